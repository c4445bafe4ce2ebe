use std::os::unix::net::UnixListener;

use serde_json::json;

use super::*;

/// Returns a sample of a host whose data process does not answer.
pub(in crate::control) fn silent() -> Sample {
    Sample {
        host: "h1".to_owned(),
        role: Role::Host,
        lossless: [true; 8],
        stage: Stage::Works,
        data: Err("it hangs".to_owned()),
        fabric: None,
        configuration: None,
        traces: (0, 0),
        took: Duration::ZERO,
    }
}

/// Returns a sample of a host without ports.
pub(in crate::control) fn well() -> Sample {
    let answer = |question: &str, rows: serde_json::Value| {
        let answer = json!({
            "version": 2, "host": "h1", "policy": "ZZ", "at_ns": 1, question: rows,
        });
        serde_json::from_value(answer).unwrap()
    };
    let data = DataAnswers {
        ports: answer("ports", json!([])),
        queues: answer("queues", json!([])),
        drops: answer("drops", json!([])),
        audit: answer("audit", json!({"closed": true, "rows": []})),
        pauses: answer("pauses", json!([])),
        tunnels: answer("tunnels", json!([])),
        worker: answer("worker", json!([])),
    };
    Sample { data: Ok(Box::new(data)), ..silent() }
}

/// A process that is stopped accepts nothing: even when no more connections may wait for it, the
/// thread waits for a bounded time.
#[test]
fn hanging_data_process_costs_bounded_time() {
    let name = format!("sluice-sample-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&dir).unwrap();
    let ask = |limit| {
        let began = Instant::now();
        let why = ask_data(&dir, began + limit).unwrap_err();
        (why, began.elapsed())
    };
    let (why, _) = ask(Duration::from_secs(1));
    assert!(why.contains("no data process runs"), "{why}");
    let path = dir.join(crate::sys::run_dir::DATA_SOCKET);
    let _listener = UnixListener::bind(&path).unwrap();
    // The kernel lets one more wait than `listen` says.
    let mut kept = Vec::new();
    while let Ok(waiting) = protocol::connect_now(&dir) {
        kept.push(waiting);
        assert!(kept.len() < 100_000, "the kernel bounds those that wait");
    }
    let (why, took) = ask(Duration::from_millis(200));
    assert!(why.contains("does not answer"), "{why}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    kept.truncate(0);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn classes_of_file_say_what_is_lossless() {
    let text = "[host]\nname = \"h1\"\n[[class]]\npriority = 2\nlossless = false\n\
                [[class]]\npriority = 3\nweight = 4\n";
    let facts = Facts::of(&toml::from_str(text).unwrap());
    let lossy: Vec<usize> = (0..8).filter(|at| !facts.lossless[*at]).collect();
    assert_eq!(lossy, [2]);
}
