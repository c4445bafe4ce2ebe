use sluice_sim::workload::Gaps;

use super::super::experiment::{Experiment, Load, Overrides};
use super::super::scenario::Any;
use super::super::simulate::simulate;

const TEXT: &str = "[sim]\nname = \"x\"\npolicies = [\"LL\"]\n\
     [topology]\nkind = \"star\"\nhosts = 4\nlink_mbps = 1000\n\
     [workload]\nkind = \"udp-sources\"\ngaps = \"poisson\"\nsenders = 3\nload_percent = 50\n\
     datagram_bytes = 1472\nduration_ms = 200\n";

fn experiment(text: &str) -> Experiment {
    Experiment::new(Any::parse(text).unwrap(), &Overrides::default()).unwrap()
}

#[test]
fn load_becomes_gap_of_each_sender() {
    let plain = experiment(TEXT);
    let Load::Sources(sources) = &plain.cases[0].load else { panic!("no sources") };
    let pairs: Vec<(u32, u32)> = sources.iter().map(|source| (source.from, source.to)).collect();
    assert_eq!(pairs, [(1, 0), (2, 0), (3, 0)]);
    // 1,538 bytes take 12,304 ns of 1 Gbit/s.
    assert!(sources.iter().all(|source| source.gap.0 == 12_304 * 2 * 3));
    assert!(sources.iter().all(|source| source.gaps == Gaps::Poisson && source.bytes == 1_472));
    let firsts: Vec<u64> = sources.iter().map(|source| source.first.0).collect();
    assert!(firsts.iter().all(|first| *first < 73_824) && firsts[0] != firsts[1], "{firsts:?}");
    let virtual_ones = TEXT.replace("[workload]", "[overlay]\nvms_per_host = 2\n[workload]");
    let virtual_ones = experiment(&virtual_ones.replace("1472", "1400"));
    let Load::Sources(sources) = &virtual_ones.cases[0].load else { panic!("no sources") };
    assert_eq!((sources[0].from, sources[0].gap.0), (2, (42 + 1_400 + 50 + 24) * 8 * 2 * 3));
}

#[test]
fn datagrams_of_workload_arrive_at_its_load() {
    let found = simulate(&experiment(TEXT).cases[0], &mut |_| {}).unwrap();
    assert_eq!((found.broken.len(), found.losses.congestion), (0, 0));
    let counts = found.datagrams[0].unwrap();
    assert!(counts.refused == 0 && counts.arrived <= counts.sent, "{counts:?}");
    // 8,127 datagrams are expected; three standard deviations of a Poisson count.
    assert!((8_127 - 270..8_127 + 270).contains(&counts.arrived), "{counts:?}");
    assert_eq!(found.delivered.iter().sum::<u64>(), counts.arrived * 1_472);
}

#[test]
fn sources_beside_workload_send_on() {
    let incast = crate::sim::scenario::text_of("incast").unwrap();
    let noise =
        "[background]\nkind = \"udp-sources\"\ngaps = \"constant\"\nload_percent = 5\n[tcp]";
    let overrides = Overrides { queries: Some(3), sizes: Some(vec![4]), ..Overrides::default() };
    let scenario = Any::parse(&incast.replace("[tcp]", noise)).unwrap();
    let experiment = Experiment::new(scenario, &overrides).unwrap();
    assert!(experiment.background);
    let case = &experiment.cases[0];
    assert_eq!(case.sources.len(), 17);
    assert_eq!((case.sources[16].from, case.sources[16].to), (16, 0));
    let found = simulate(case, &mut |_| {}).unwrap();
    assert_eq!(found.datagrams[0], None);
    let counts = found.datagrams[1].unwrap();
    assert!(counts.arrived > 100 && counts.refused == 0, "{counts:?}");
    assert_eq!(found.fct_ns.len(), 3);
}
