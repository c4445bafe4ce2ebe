//! The time that an ADD takes, whole and by its stages. Each stage is what the plugin does at that
//! point, executed by itself.
//!
//! ```text
//!   start ── IPAM ── the host's list ── port: device, addresses ── look at the device ── result
//! ```

use std::time::{Duration, Instant};

use crate::rig::cni::{self, Cni, percentiles, range, skip_without_peers};
use crate::rig::pair::Pair;
use crate::rig::say;
use serde_json::{Value, json};
use sluice_api::client;
use sluice_api::request::Request;
use sluice_testkit::bound::{at_most, is_soak};

/// Repetitions; `SLUICE_SOAK=1` has more.
const SHORT: usize = 50;
const SOAK: usize = 500;
/// Longest ADD.
const ADD_MAX: Duration = Duration::from_millis(50);

/// A stage: its name, what comes before it, itself, and what undoes it.
type Stage<'a> = (&'static str, [&'a dyn Fn(); 3]);

/// Measures the stages in turn, so that each meets the same load of the machine; prints and returns
/// p50 and p99 of each.
fn measure(stages: &[Stage<'_>]) -> Vec<(&'static str, [Duration; 2])> {
    let count = if is_soak() { SOAK } else { SHORT };
    let mut times = vec![Vec::new(); stages.len()];
    for _ in 0..count {
        for ((_, [prepare, begin, undo]), times) in stages.iter().zip(&mut times) {
            prepare();
            let started = Instant::now();
            begin();
            times.push(started.elapsed());
            undo();
        }
    }
    let row = |((name, _), times): (&Stage<'_>, Vec<Duration>)| {
        let [p50, p99] = percentiles(times);
        say(&format!("{name:<32} p50 {p50:>8.2?}  p99 {p99:>8.2?}  of {count}"));
        (*name, [p50, p99])
    };
    stages.iter().zip(times).map(row).collect()
}

/// Asks the host by its socket, as the plugin does.
fn ask(cni: &Cni, request: &Request) -> Value {
    let stream = client::connect(cni.socket()).unwrap();
    client::expect(&client::ask(stream, request).unwrap()).unwrap()
}

#[test]
#[ignore = "live: needs root"]
fn time_of_add_is_reported_by_stage() {
    if skip_without_peers("live::cni_time") {
        return;
    }
    let case = Pair::new("cnitime", 4);
    let cni = Cni::new(&case, 0);
    let path = cni::path_of(&case.containers[0]);
    let of_file = cni.config(&json!({"addresses": ["10.42.0.10/24"]}));
    let delegated = cni.config(&json!({"ipam": cni.host_local(range(10, 250))}));
    let plugin = |command: &str, config: &Value| {
        cni.exec(command, "c7", Some(&path), config).succeeds();
    };
    let ipam = |command: &str| _ = cni.exec_ipam(command, "c7", &path, &delegated).succeeds();
    let port = |more: Value| {
        let mut port = json!({
            "place": {"netns": path}, "vnet": "blue", "name": "p", "device": "eth0",
            "mac": "02:42:00:00:00:77"
        });
        port.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Request::Add(serde_json::from_value(port).unwrap())
    };
    let bare = port(json!({}));
    let whole = port(json!({"ips": ["10.42.0.10/24"], "routes": ["0.0.0.0/0,10.42.0.1"]}));
    let tell = |request: &Request| _ = ask(&cni, request);
    let del = || tell(&Request::Del("p".to_owned()));
    let look = || tell(&Request::Card("p".to_owned()));
    let [add_bare, add_whole] = [&bare, &whole].map(|request| move || tell(request));
    let nothing = || {};
    let measured = measure(&[
        ("start of the plugin (VERSION)", [&nothing, &|| plugin("VERSION", &of_file), &nothing]),
        ("IPAM (host-local)", [&nothing, &|| ipam("ADD"), &|| ipam("DEL")]),
        ("the host's list of ports", [&nothing, &|| tell(&Request::Ports), &nothing]),
        ("port without addresses", [&nothing, &add_bare, &del]),
        ("port with address and route", [&nothing, &add_whole, &del]),
        ("look at the device", [&add_whole, &look, &del]),
        (
            "ADD, addresses of the file",
            [&nothing, &|| plugin("ADD", &of_file), &|| plugin("DEL", &of_file)],
        ),
        (
            "ADD, host-local",
            [&nothing, &|| plugin("ADD", &delegated), &|| plugin("DEL", &delegated)],
        ),
    ]);
    for (name, [_, p99]) in measured.into_iter().filter(|(name, _)| name.starts_with("ADD")) {
        at_most(&format!("p99 of {name}"), p99, ADD_MAX);
    }
}
