use serde_json::json;

use super::*;
use crate::control::sample::tests::{silent, well};

/// Returns a sample whose text does not fit into a socket.
pub(in crate::control::http) fn large() -> Sample {
    let balance = json!({
        "received": 1, "injected": 0, "copied": 0, "delivered": 1, "consumed": 0, "resident": 0,
        "dropped": 0, "dropped_congestion": 0,
    });
    let row = |at| {
        json!({
            "port": format!("a-port-with-a-long-name-{at}-{}", "x".repeat(200)), "priority": 0,
            "frames": balance, "bytes": balance,
        })
    };
    let rows: Vec<_> = (0..4_000).map(row).collect();
    let mut sample = well();
    let audit = json!({
        "version": 2, "host": "h1", "policy": "ZZ", "at_ns": 1,
        "audit": {"closed": true, "rows": rows},
    });
    sample.data.as_mut().unwrap().audit = serde_json::from_value(audit).unwrap();
    sample
}

/// A host that is being started is not one whose data process hangs.
#[test]
fn waiting_host_unwell_with_code_of_its_own() {
    for stage in [Stage::Waits, Stage::Starts { forwards: true }] {
        let made = health(&Sample { stage, ..silent() });
        let problem: Problem = serde_json::from_slice(&made.body).unwrap();
        assert_eq!(
            (made.status, problem.code.as_str()),
            (StatusCode::SERVICE_UNAVAILABLE, "not_ready")
        );
    }
}
