use sluice_api::config::Policy;

use super::*;
use crate::scenario::SHIPPED;
use crate::sim::simulate::simulate;

fn text(name: &str) -> &'static str {
    SHIPPED.iter().find(|(known, _)| *known == name).unwrap().1
}

fn parse(text: &str) -> anyhow::Result<Experiment> {
    experiment(Scenario::parse(text).unwrap(), &Overrides::default())
}

fn refusal(text: &str) -> String {
    format!("{:#}", parse(text).unwrap_err())
}

fn replaced(name: &str, from: &str, to: &str) -> String {
    let text = text(name);
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1)
}

/// Keys of the shipped scenarios that the simulator has no model of.
const REFUSED: [(&str, &[&str]); 2] = [
    ("netvisor-walk", &["lab.by_command", "lab.learned", "lab.vnets", "check.kind: \"tables\""]),
    ("pa-vms", &["lab.vms_per_host"]),
];

/// Makes the cells of a scenario few and short; its checks stay.
fn few(name: &str) -> Scenario {
    let mut scenario = Scenario::parse(text(name)).unwrap();
    if let Some(pa) = &mut scenario.pa {
        pa.change(Some(2), Some(&pa.sizes.clone()[..1]), None);
        pa.switch_kb.truncate(1);
    }
    for check in &mut scenario.checks {
        if let crate::scenario::Check::Transfer { megabytes, .. } = check {
            *megabytes = 1;
        }
    }
    scenario
}

#[test]
fn every_shipped_scenario_simulated_or_refused_by_name() {
    for (name, _) in SHIPPED {
        let made = experiment(few(name), &Overrides::default());
        let Some((_, keys)) = REFUSED.iter().find(|(known, _)| *known == name) else {
            let made = made.unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert!(!made.cases.is_empty(), "{name}");
            for case in &made.cases {
                let found = simulate(case, &mut |_| {}).unwrap();
                assert_eq!(found.broken, Vec::<String>::new(), "{name} {}", case.variant);
                assert_eq!(found.fct_ns.len(), case.queries() as usize, "{name}");
            }
            continue;
        };
        let error = format!("{:#}", made.unwrap_err());
        for key in *keys {
            assert!(error.contains(key), "{name} names no {key}: {error}");
        }
        assert!(error.contains("`sluice lab run`"), "{name}: {error}");
    }
}

#[test]
fn parts_without_model_refused_by_key() {
    for (from, to, expected) in [
        ("\"cubic\"", "\"bbr\"", "tcp.congestion: the simulator has cubic, reno and vegas, not"),
        (
            "queries = 50",
            "queries = 50\ncongestions = [\"reno\", \"htcp\"]",
            "pa.congestions: the simulator has cubic, reno and vegas, not htcp",
        ),
        ("count = 5", "count = 5\nunheard_at = \"h0c1\"", "check.unheard_at"),
        ("hosts = 2", "hosts = 2\nvnets = 2", "lab.vnets"),
    ] {
        let error = refusal(&replaced("smoke", from, to));
        assert!(error.contains(expected), "{to}: {error}");
    }
    let vxlan = replaced("linux-bridge", "linux-bridge\"\nvariant", "linux-vxlan\"\nvariant");
    assert!(refusal(&vxlan).contains("lab.fabric: ") && refusal(&vxlan).contains("linux-vxlan"));
}

#[test]
fn overrides_without_queries_are_refused() {
    let of = |overrides: &Overrides| {
        let error = experiment(Scenario::parse(text("two-subnets")).unwrap(), overrides);
        error.unwrap_err().to_string()
    };
    let queries = Overrides { queries: Some(3), ..Overrides::default() };
    assert!(of(&queries).contains("leave --queries"), "{}", of(&queries));
    let policies = Overrides { policies: Some(vec![Policy::LL]), ..Overrides::default() };
    assert!(of(&policies).contains("leave --policies out"), "{}", of(&policies));
}

#[test]
fn parts_left_out_are_warned_of() {
    let warned = |name: &str| parse(text(name)).unwrap().warnings.join("\n");
    assert!(warned("demo").starts_with("today: "), "{}", warned("demo"));
    assert_eq!(warned("smoke"), "");
    let subnets = warned("two-subnets");
    for key in ["lab.subnets: ", "lab.static_neighbours: "] {
        assert!(subnets.contains(key), "{subnets}");
    }
}

#[test]
fn several_congestions_are_variants_with_their_tcp() {
    let both = "queries = 50\ncongestions = [\"reno\", \"vegas\"]";
    let made = parse(&replaced("smoke", "queries = 50", both)).unwrap();
    let cells: Vec<(&str, Policy)> =
        made.cases.iter().map(|case| (case.variant.as_str(), case.policy)).collect();
    let expected = [
        ("vm-bound", Policy::default()),
        ("vm-bound tcp=reno", Policy::LL),
        ("vm-bound tcp=vegas", Policy::LL),
        ("vm-bound tcp=reno", Policy::ZZ),
        ("vm-bound tcp=vegas", Policy::ZZ),
    ];
    assert_eq!(cells, expected);
    let algorithms: Vec<tcp::Algorithm> = made
        .cases
        .iter()
        .filter_map(|case| match &case.load {
            Load::Aggregate(plan) => Some(plan.tcp.algorithm),
            _ => None,
        })
        .collect();
    assert_eq!(algorithms[..2], [tcp::Algorithm::NewReno, tcp::Algorithm::Vegas]);
}

fn check(made: &Experiment, is_echo: bool) -> &Case {
    let is = |case: &&Case| case.probe().is_some_and(|probe| probe.is_echo == is_echo);
    made.cases.iter().find(is).unwrap()
}

#[test]
fn echo_over_router_takes_computed_time() {
    let made = parse(text("two-subnets")).unwrap();
    let found = simulate(check(&made, true), &mut |_| {}).unwrap();
    // Four links each way of 98 + 50 + 24 bytes at 1 Gbit/s and 1 us, and both latencies.
    let link = (98 + 50 + 24) * 8 + 1_000;
    let way = 9_500 + 4 * link + 24_000;
    assert_eq!(found.fct_ns.len(), 20);
    assert!(found.fct_ns.iter().all(|&ns| ns.abs_diff(2 * way) < 2_000), "{:?}", found.fct_ns);
}

#[test]
fn transfer_over_router_fills_the_vnic() {
    let made = parse(&text("two-subnets").replace("= 100", "= 20")).unwrap();
    let found = simulate(check(&made, false), &mut |_| {}).unwrap();
    let mbps = 20e6 * 8e3 / found.fct_ns[0] as f64;
    // 1,398 bytes in frames of 1,464 at 500 Mbit/s.
    let most = 500.0 * 1_398.0 / 1_464.0;
    assert!((most * 0.95..=most).contains(&mbps), "{mbps} of {most} Mbit/s");
}

#[test]
fn linux_bridge_is_one_lossy_switch() {
    let made = parse(text("linux-bridge")).unwrap();
    assert_eq!(made.subject, "linux-bridge");
    let case = made.cases.iter().find(|case| case.size == 16).unwrap();
    let overlay = case.world.overlay.as_ref().unwrap();
    assert_eq!((case.world.topology.hosts, overlay.vms_per_host), (1, 33));
    // 64 frames of 1,600 bytes, and 200 us at 500 Mbit/s.
    assert_eq!(overlay.vm_out.bytes.0, 64 * 1_600 + 12_500);
    assert_eq!(overlay.vm_rate, Some(sluice_base::BitRate::from_mbps(500)));
    let found = simulate(case, &mut |_| {}).unwrap();
    assert_eq!(found.broken, Vec::<String>::new());
    assert!(found.losses.congestion > 0 && found.summary.tcp.timeouts > 0);
}
