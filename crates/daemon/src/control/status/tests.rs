use serde_json::{Value, json};
use sluice_api::fabric::Certificates;

use super::*;
use crate::control::sample::tests::{silent, well};
use crate::metrics::FabricAnswers;

/// Longest report of a host with something wrong everywhere.
const SCREEN_LINES: usize = 40;

/// Returns a sample whose answer to a question of data is another one.
fn with(mut sample: Sample, question: &str, rows: &Value) -> Sample {
    let data = sample.data.as_mut().unwrap();
    let answer = json!({
        "version": 2, "host": "h1", "policy": "ZZ", "at_ns": 9_000_000_000_u64, question: rows,
    });
    let answer = serde_json::from_value(answer).unwrap();
    *match question {
        "ports" => &mut data.ports,
        "drops" => &mut data.drops,
        "audit" => &mut data.audit,
        "pauses" => &mut data.pauses,
        "tunnels" => &mut data.tunnels,
        _ => unreachable!(),
    } = answer;
    sample
}

fn port(name: &str, lossless: &str, losses: &Value) -> Value {
    json!({
        "port": name, "kind": "veth", "vnet": "blue", "lossless": lossless, "rx_frames": 0,
        "rx_bytes": 0, "tx_frames": 0, "tx_bytes": 0, "driver_pending": 0, "driver_lost": 0,
        "held_frames": 0, "held_bytes_max": 0, "held_frames_max": 0, "queued_frames": 0,
        "queued_bytes_max": 0, "queued_frames_max": 0, "ring_frames_max": 0, "ring_frames": 0,
        "kernel": {}, "losses": losses,
    })
}

fn pause(name: &str, priority: u8, isolated: &Value, sockets: &Value) -> Value {
    json!({
        "port": name, "priority": priority, "xoff_sent": 0, "xon_sent": 0, "received": 0,
        "paused_ns": 0, "paused": false, "pausing": false, "isolated": isolated,
        "sockets": sockets,
    })
}

/// Returns an isolation that began 4 s ago, with the moment of its last frame.
fn isolated(moved_ns: u64, stuck: bool) -> Value {
    json!({
        "since_ns": 5_000_000_000_u64, "moved_ns": moved_ns, "endpoints": [], "waiting": ["h2"],
        "reserve_frames": 0, "reserve_bytes": 0, "held_at_senders": true, "stuck": stuck,
    })
}

fn drop_of(port: &str, reason: &str, frames: u64) -> Value {
    json!({"port": port, "priority": 0, "reason": reason, "class": "", "frames": frames,
           "bytes": 64 * frames})
}

fn member(host: &str, health: &str, connected: bool) -> Value {
    json!({
        "host": host, "id": 1, "vtep": "192.0.2.1", "health": health, "connected": connected,
        "kind": if host == "h1" { "own" } else { "member" }, "vports": 0, "stale_ns": null,
        "sequence": 0, "lag": 0, "records_sent": 0, "records_received": 0,
    })
}

fn fabric_of(members: &[Value], certificates: &Value, rivals: &Value) -> FabricAnswers {
    let certificates: Certificates = serde_json::from_value(certificates.clone()).unwrap();
    FabricAnswers {
        members: serde_json::from_value(json!(members)).unwrap(),
        certificates,
        rivals: serde_json::from_value(rivals.clone()).unwrap(),
        evpn: None,
    }
}

fn certificate(days_left: i64) -> Value {
    let mut rows = json!([{"kind": "own", "host": "h1", "from": "2026-01-01",
                           "until": "2027-01-01", "days_left": days_left, "state": "valid"}]);
    if days_left < 0 {
        rows[0]["remedy"] = json!("Rotate the key: `sluice fabric rotate-key`.");
    }
    json!({"rows": rows})
}

fn configuration(writable: bool, h2: &Value) -> Box<sluice_api::transaction::Status> {
    let mut status = json!({
        "fabric": "prod", "host": "h1", "revision": 7, "leader": "h1", "writable": writable,
        "members": [
            {"name": "h1", "id": 1, "vtep": "192.0.2.1", "part": "voter", "connected": true,
             "revision": 7, "lag": 0},
            {"name": "h2", "id": 2, "vtep": "192.0.2.2", "part": "voter", "connected": true,
             "revision": 7, "lag": 0},
        ],
    });
    for (key, value) in h2.as_object().unwrap() {
        status["members"][1][key] = value.clone();
    }
    if !writable {
        status["why"] = json!("the disk of this host cannot be written: No space left on device");
    }
    serde_json::from_value(status).unwrap()
}

/// Returns a sample of a member of a fabric that was made by command.
fn member_sample() -> Sample {
    let members = [member("h1", "alive", true), member("h2", "alive", true)];
    Sample {
        fabric: Some(Ok(fabric_of(&members, &certificate(90), &json!([])))),
        configuration: Some(Ok(configuration(true, &json!({})))),
        ..well()
    }
}

/// Returns the only row that is not as it should be.
fn only_unwell(sample: &Sample) -> Row {
    let report = report(sample);
    let unwell: Vec<&Row> = report.rows.iter().filter(|row| row.grade != Grade::Pass).collect();
    let [row] = unwell[..] else { panic!("{report}") };
    assert_eq!(row.grade, report.grade);
    assert!(!row.remedy.is_empty(), "{row:?}");
    row.clone()
}

fn warned(sample: &Sample) -> (String, String) {
    let row = only_unwell(sample);
    assert_eq!(row.grade, Grade::Warn, "{row:?}");
    (row.what, row.seen)
}

#[test]
fn well_host_passes_in_every_part() {
    for sample in [well(), member_sample()] {
        let report = report(&sample);
        assert_eq!(report.grade, Grade::Pass, "{report}");
        for part in ["host", "ports", "fabric"] {
            assert!(report.rows.iter().any(|row| row.part == part), "{part}: {report}");
        }
    }
    let text = report(&member_sample()).to_string();
    for seen in ["2 of 2 well", "valid for 90 days", "revision 7, 2 members, h1 leads"] {
        assert!(text.contains(seen), "{seen}: {text}");
    }
}

#[test]
fn silent_data_process_stops_host() {
    let row = only_unwell(&silent());
    assert_eq!((row.grade, row.what.as_str()), (Grade::Stop, "forwarding"));
    assert_eq!(row.seen, "it hangs");
    assert!(row.remedy.contains("sluice doctor"), "{row:?}");
    // One that waits for its fabric says what makes it a member, and nothing of a fabric.
    let why = "this host is in no fabric yet: `sluice fabric create` makes one".to_owned();
    let waits = Sample { stage: Stage::Waits, data: Err(why.clone()), ..silent() };
    let row = only_unwell(&waits);
    assert_eq!((row.grade, row.seen), (Grade::Stop, why));
    assert!(report(&waits).rows.iter().all(|row| row.part == "host"));
}

/// A member's control may restart while its data forwards: it is neither in no fabric nor down.
#[test]
fn starting_control_leaves_forwarding_host_unknown() {
    let starts = |forwards| {
        let why = "this host is being started".to_owned();
        Sample { stage: Stage::Starts { forwards }, data: Err(why), ..silent() }
    };
    let row = only_unwell(&starts(true));
    assert_eq!((row.grade, row.what.as_str()), (Grade::Unknown, "forwarding"));
    assert!(row.seen.starts_with("yes"), "{row:?}");
    let row = only_unwell(&starts(false));
    assert_eq!((row.grade, row.seen.as_str()), (Grade::Stop, "this host is being started"));
    assert!(row.remedy.contains("again"), "{row:?}");
}

#[test]
fn silent_fabric_is_unknown() {
    let sample = Sample { fabric: Some(Err("it is busy".to_owned())), ..well() };
    let row = only_unwell(&sample);
    assert_eq!((row.grade, row.seen.as_str()), (Grade::Unknown, "it is busy"));
    let sample = Sample { configuration: Some(Err("late".to_owned())), ..member_sample() };
    let row = only_unwell(&sample);
    assert_eq!((row.grade, row.what.as_str()), (Grade::Unknown, "configuration"));
}

/// A slow receiver is what a lossless network is made for.
#[test]
fn receiver_named_once_it_takes_nothing() {
    let of = |moved_ns, stuck| {
        let rows = json!([
            pause("web", 0, &isolated(moved_ns, stuck), &json!([])),
            pause("web", 3, &isolated(moved_ns, stuck), &json!([]))
        ]);
        with(well(), "pauses", &rows)
    };
    let slow = report(&of(8_000_000_001, false));
    assert_eq!(slow.grade, Grade::Pass, "{slow}");
    assert!(slow.to_string().contains("slow: web priority 0, 3 for 4.0 s, waiting: h2"), "{slow}");
    let (what, seen) = warned(&of(8_000_000_000, false));
    assert_eq!(what, "receivers");
    assert_eq!(seen, "held: web priority 0, 3 for 4.0 s, waiting: h2");
    let (_, seen) = warned(&of(8_000_000_001, true));
    assert!(seen.starts_with("stuck: web priority 0, 3"), "{seen}");
}

#[test]
fn stuck_socket_named_held_one_slow() {
    let of = |stuck| {
        let socket = json!([{"address": "10.0.0.1:53", "priority": 0, "frames": 3,
                             "since_ns": 2_000_000_000_u64, "stuck": stuck}]);
        with(well(), "pauses", &json!([pause("web", 0, &Value::Null, &socket)]))
    };
    let (_, seen) = warned(&of(true));
    assert_eq!(seen, "stuck: socket 10.0.0.1:53 behind web for 7.0 s");
    let held = report(&of(false));
    assert_eq!(held.grade, Grade::Pass, "{held}");
    assert!(held.to_string().contains("slow: socket 10.0.0.1:53"), "{held}");
}

/// Takes no end by a rule for a loss, and no end by a contract for one of the network.
#[test]
fn losses_warn_but_for_stuck_receivers() {
    let rules = json!([drop_of("web", "same_port", 5), drop_of("web", "receiver_stuck", 7)]);
    let report = report(&with(well(), "drops", &rules));
    assert_eq!(report.grade, Grade::Pass, "{report}");
    assert!(report.to_string().contains("none, but 7 frames of receivers"), "{report}");
    let (what, seen) = warned(&with(well(), "drops", &json!([drop_of("web", "output_full", 1)])));
    assert_eq!(
        (what.as_str(), seen.as_str()),
        ("lost frames", "web: 1 frame ended as output_full")
    );
    let ring = json!([{"port": "web", "counter": "ring.drops", "frames": 2, "ago_ns": 0}]);
    let lossless = "no, lost 2 frames outside the switch";
    let (what, seen) = warned(&with(well(), "ports", &json!([port("web", lossless, &ring)])));
    assert_eq!(what, "lost frames");
    assert!(seen.contains("web: lost 2 frames outside the switch (ring.drops)"), "{seen}");
}

#[test]
fn lossy_priority_and_policy_lose_nothing() {
    let rows = json!([drop_of("web", "output_full", 1)]);
    let mut lossless = [true; 8];
    lossless[0] = false;
    let lossy = Sample { lossless, ..with(well(), "drops", &rows) };
    assert_eq!(report(&lossy).grade, Grade::Pass);
}

/// A loss that may be another's names no port, and hides none either.
#[test]
fn port_without_backpressure_named_with_its_need() {
    let machine = json!([{"port": "web", "counter": "softnet.dropped", "frames": 2, "ago_ns": 0}]);
    for losses in [json!([]), machine] {
        let rows =
            json!([port("web", "no, needs Linux 7.3", &losses), port("db", "yes", &json!([]))]);
        let (what, seen) = warned(&with(well(), "ports", &rows));
        assert_eq!((what.as_str(), seen.as_str()), ("lossless", "not web (needs Linux 7.3)"));
    }
}

#[test]
fn open_audit_and_unresolved_tunnel_warn() {
    let (what, _) = warned(&with(well(), "audit", &json!({"closed": false, "rows": []})));
    assert_eq!(what, "audit");
    let tunnel = |next_hop: &str, queued| {
        let row = json!([{"peer": "h2", "vtep": "192.0.2.2", "next_hop": next_hop, "tx_frames": 0,
                          "rx_frames": 0, "queued_frames": queued}]);
        with(well(), "tunnels", &row)
    };
    let (what, seen) = warned(&tunnel("unresolved", 3));
    assert_eq!(what, "tunnels");
    assert_eq!(seen, "no next hop: h2 (192.0.2.2), 3 frames");
    for well in [tunnel("unresolved", 0), tunnel("02:00:00:00:00:01", 3)] {
        assert_eq!(report(&well).grade, Grade::Pass);
    }
}

#[test]
fn members_that_are_away_named() {
    let of = |health, connected| {
        let members = [member("h1", "alive", true), member("h2", health, connected)];
        let fabric = fabric_of(&members, &certificate(90), &json!([]));
        warned(&Sample { fabric: Some(Ok(fabric)), ..member_sample() }).1
    };
    assert_eq!(of("down", false), "1 of 2 well: h2 is down");
    assert_eq!(of("unknown", false), "1 of 2 well: h2 was never heard");
    assert_eq!(of("alive", false), "1 of 2 well: h2 is alive without a connection");
}

#[test]
fn evicted_host_stops_with_reason() {
    let mut own = member("h1", "alive", true);
    own["evicted"] = json!("h2 evicted this host; `sluice fabric join` makes it a member again");
    let fabric = fabric_of(&[own], &certificate(90), &json!([]));
    let row = only_unwell(&Sample { fabric: Some(Ok(fabric)), ..well() });
    assert_eq!((row.grade, row.what.as_str()), (Grade::Stop, "membership"));
}

#[test]
fn certificate_and_rival_rows_have_remedies() {
    let members = [member("h1", "alive", true)];
    let fabric = fabric_of(&members, &certificate(-2), &json!([]));
    let row = only_unwell(&Sample { fabric: Some(Ok(fabric)), ..well() });
    assert!(row.remedy.contains("rotate-key"), "{row:?}");
    let rival = json!([{"vnet": "blue", "what": "10.0.0.1", "first": "h1", "first_port": "a",
                        "second": "h2", "second_port": "b"}]);
    let fabric = fabric_of(&members, &certificate(90), &rival);
    let (what, seen) = warned(&Sample { fabric: Some(Ok(fabric)), ..well() });
    assert_eq!((what.as_str(), seen.as_str()), ("bound twice", "10.0.0.1 of blue at h1 and h2"));
}

#[test]
fn bgp_neighbor_that_is_down_named() {
    let neighbor = |address: &str, state: &str, ending: Value| {
        json!({
            "address": address, "as": 65000, "state": state, "routes": 3, "unsent_routes": 0,
            "kept_out": {"not_ours": 0, "looped": 0, "other_tunnel": 0, "other_type": 0,
                         "malformed": 0, "too_many": 0},
            "last_ending": ending,
        })
    };
    let neighbors = [
        neighbor("10.0.0.8", "established", Value::Null),
        neighbor("10.0.0.9", "idle", json!("the connection was closed")),
    ];
    let evpn = json!({
        "as": 65000, "router_id": "10.0.0.1", "address": "10.0.0.1:179", "announced_routes": 0,
        "heard_macs": 0, "vteps": [], "neighbors": neighbors,
    });
    let evpn = Some(serde_json::from_value(evpn).unwrap());
    let members = [member("h1", "alive", true)];
    let fabric = FabricAnswers { evpn, ..fabric_of(&members, &certificate(90), &json!([])) };
    let (what, seen) = warned(&Sample { fabric: Some(Ok(fabric)), ..well() });
    let expected = "1 of 2 neighbors up, 3 routes; 10.0.0.9: the connection was closed";
    assert_eq!((what.as_str(), seen.as_str()), ("EVPN", expected));
}

#[test]
fn configuration_rows_name_cause_and_member() {
    let of = |status| warned(&Sample { configuration: Some(Ok(status)), ..member_sample() });
    let (what, seen) = of(configuration(false, &json!({})));
    assert_eq!(what, "configuration");
    assert!(seen.contains("the disk of this host cannot be written: No space left"), "{seen}");
    assert_eq!(of(configuration(true, &json!({"lag": 1}))).1, "h2 lacks 1 change");
    assert_eq!(of(configuration(true, &json!({"connected": false}))).1, "h2 is away");
    let mut status = configuration(true, &json!({}));
    status.not_in_force = Some("port eth9 is missing".to_owned());
    assert_eq!(of(status).1, "not in force at this host: port eth9 is missing");
    let mut status = configuration(true, &json!({}));
    status.unconfirmed = Some(8);
    assert_eq!(of(status).1, "revision 8 waits for its confirmation");
}

/// A thousand things that are wrong fit onto a screen.
#[test]
fn report_bounded_with_everything_wrong() {
    let many = || 0..1_000;
    let name = |at: usize| format!("port-{at}");
    let ports: Vec<Value> =
        many().map(|at| port(&name(at), "no, needs Linux 7.3", &json!([]))).collect();
    let drops: Vec<Value> = many().map(|at| drop_of(&name(at), "output_full", 1)).collect();
    let pauses: Vec<Value> =
        many().map(|at| pause(&name(at), 0, &isolated(0, at % 2 == 0), &json!([]))).collect();
    let members: Vec<Value> = many().map(|at| member(&format!("m{at}"), "down", false)).collect();
    let mut sample = with(member_sample(), "ports", &json!(ports));
    sample = with(sample, "drops", &json!(drops));
    sample = with(sample, "pauses", &json!(pauses));
    sample.fabric = Some(Ok(fabric_of(&members, &certificate(-2), &json!([]))));
    let text = report(&sample).to_string();
    assert!(text.lines().count() <= SCREEN_LINES, "{text}");
    assert!(text.len() < 4_000, "{text}");
    assert!(text.contains("and 995 more"), "{text}");
}

#[test]
fn time_has_unit_that_suits_it() {
    const SECOND: u64 = 1_000_000_000;
    let texts = [
        (4_200_000_000, "4.2 s"),
        (119 * SECOND, "119.0 s"),
        (120 * SECOND, "2 min"),
        (2 * 3_600 * SECOND, "2 h"),
        (48 * 3_600 * SECOND, "2 days"),
    ];
    for (ns, text) in texts {
        assert_eq!(lasted(ns), text);
    }
}
