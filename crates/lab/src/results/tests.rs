use super::*;
use crate::run::groups;

/// Returns results as of a run of a shipped scenario, with made-up figures: only for tests.
pub(crate) fn synthetic(name: &str) -> Results {
    let scenario = Scenario::load(name).unwrap();
    let plan = Plan::new(&scenario);
    results(&scenario, &plan, &findings(&scenario))
}

fn findings(scenario: &Scenario) -> Findings {
    let mut findings = Findings::default();
    let pa = scenario.pa.as_ref().unwrap();
    let mut random = sluice_base::Prng::new(1);
    for group in groups(scenario) {
        for &size in &pa.sizes {
            let lossless = u64::from(size) * 800_000;
            let slow = match group.policy {
                Policy::ZZ => 0,
                Policy::ZL if size <= 8 => 30,
                Policy::ZL => 80,
                Policy::LL | Policy::LZ => 95,
            };
            let count = if slow > 50 { 32 } else { 200 };
            let fct_ns: Vec<u64> = (0..count)
                .map(|_| {
                    let late = if random.chance(slow, 100) { 250_000_000 } else { 0 };
                    lossless + late + random.below(lossless / 10)
                })
                .collect();
            let mut losses = Losses { audit_closed: Some(true), ..Losses::default() };
            if slow > 0 {
                let place = if group.policy == Policy::ZL { "tor s0" } else { "vswitch h0" };
                losses.congestion = u64::from(size) * 100;
                losses.drops.insert(format!("{place} output_full"), losses.congestion - 17);
                losses.drops.insert("nic h0 input_full".to_owned(), 17);
            }
            let tcp = [("RetransSegs".to_owned(), slow * 20), ("TCPTimeouts".to_owned(), slow)];
            let cell = Cell {
                policy: group.policy,
                settings: group.settings.clone(),
                congestion: String::new(),
                size,
                fct_ns,
                broken: None,
                seconds: 8.0,
                drained: true,
                losses,
                tcp: tcp.into_iter().filter(|(_, value)| *value > 0).collect(),
                cores: None,
            };
            let congestions = pa.congestions(&scenario.tcp).into_iter();
            findings
                .cells
                .extend(congestions.map(|name| Cell { congestion: name, ..cell.clone() }));
        }
        let mark = |place: &str, frames| HighWater {
            place: place.to_owned(),
            port: "h0/h0c0".to_owned(),
            frames,
            bytes: Some(frames * 1500),
            limit_frames: 64,
            limit_bytes: None,
        };
        findings.marks.push(Marks {
            policy: group.policy,
            settings: group.settings,
            marks: vec![mark("container input", 60), mark("container output", 64)],
        });
    }
    findings
}

#[test]
fn contexts_are_those_of_the_format() {
    let keys = [
        "audit_closed",
        "background",
        "drops",
        "drops_congestion",
        "mean",
        "p50",
        "p95",
        "policy",
        "profile",
        "queries",
        "rto_min_ms",
        "size_packets",
        "tcp",
        "variant",
    ];
    let results = synthetic("demo");
    let mut seen = (0, 0);
    for row in &results.rows {
        let own: Vec<&str> = row.context.keys().map(String::as_str).collect();
        match row.measure.as_str() {
            "pa.fct" => {
                assert_eq!(own, keys);
                assert_eq!(row.unit, "ns");
                assert_eq!(row.context["queries"], row.values.len());
                assert_eq!(row.context["background"], false);
                seen.0 += 1;
            }
            "pa.gain" => {
                let more: Vec<&&str> = own.iter().filter(|key| !keys.contains(key)).collect();
                assert_eq!(more, [&"ci95_high", &"ci95_low"]);
                assert_eq!((row.unit.as_str(), row.values.len()), ("ratio", 1));
                assert_eq!(row.median, row.values[0]);
                seen.1 += 1;
            }
            _ => {}
        }
    }
    assert_eq!(seen, (20, 15), "4 policies of 5 sizes, 3 gains of each");
}

#[test]
fn the_total_is_compared_with_plain_zz() {
    let results = synthetic("pa-total");
    let gains: Vec<(String, String)> = results
        .rows
        .iter()
        .filter(|row| row.measure == "pa.gain" && row.context["size_packets"] == 8)
        .map(|row| (row.context["variant"].to_string(), row.context["policy"].to_string()))
        .collect();
    let expected = [("\"vm-bound\"", "\"ZZ\""), ("\"vm-bound-total\"", "\"ZZ\"")];
    assert_eq!(gains, expected.map(|(variant, policy)| (variant.to_owned(), policy.to_owned())));
}

#[test]
fn a_sweep_stands_in_the_variant() {
    let results = synthetic("pa-buffers");
    let row = results.rows.iter().find(|row| row.measure == "pa.fct").unwrap();
    assert_eq!(row.context["variant"], "vm-bound switch_kb=12");
    let gains = results.rows.iter().filter(|row| row.measure == "pa.gain").count();
    assert_eq!(gains, 12, "ZL and ZZ at six buffers");
}

#[test]
fn each_tcp_is_compared_with_itself() {
    let results = synthetic("pa-vms");
    let named = |measure: &str| -> Vec<String> {
        let rows = results.rows.iter().filter(|row| row.measure == measure);
        let of_one = rows.filter(|row| row.context["size_packets"] == 8);
        of_one.map(|row| format!("{} {}", row.context["variant"], row.context["tcp"])).collect()
    };
    let names = ["reno", "cubic", "vegas"].map(|tcp| format!("\"vm-bound tcp={tcp}\" \"{tcp}\""));
    assert_eq!(named("pa.gain"), names);
    assert_eq!(named("pa.fct"), [&names[..], &names[..]].concat());
}

#[test]
fn promises_broken_by_zz_drop_or_open_audit() {
    let scenario = Scenario::load("smoke").unwrap();
    let good = findings(&scenario);
    assert!(broken_promises(&good).is_empty(), "drops under LL are no broken promise");
    let with = |change: &dyn Fn(&mut Cell)| {
        let mut bad = good.clone();
        for cell in &mut bad.cells {
            change(cell);
        }
        broken_promises(&bad).len()
    };
    assert_eq!(with(&|cell| cell.losses.congestion = 1), 1);
    assert_eq!(with(&|cell| cell.losses.audit_closed = Some(false)), 2);
    assert_eq!(with(&|cell| cell.broken = Some("why".to_owned())), 2);
    assert_eq!(with(&|cell| cell.losses.kernel = [("h0/up0 tp_drops".to_owned(), 3)].into()), 1);
    assert_eq!(with(&|cell| cell.losses.audit_closed = None), 0, "a bridge has none");
}
