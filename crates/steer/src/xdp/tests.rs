//! The program in the kernel, with packets made here; on no device. Needs root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aya::programs::{TestRun as _, TestRunOptions};
use rustix::process::geteuid;
use sluice_base::{FlowMatch, IpPrefix, Mac, Vni, mix};

use super::*;
use crate::rules::MATCHES_MAX;

const BUCKETS: u32 = 16;
const HIGH: u32 = 4;
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// A program that does not wait for pauses, and has no patience; `None` without root.
fn program(test: &str, settings: impl FnOnce(&mut Settings)) -> Option<Program> {
    if !geteuid().is_root() {
        eprintln!("SKIPPED {test}: needs root");
        return None;
    }
    let mut all = Settings {
        settle_ns: 0,
        hurry_ns: 0,
        patience_ns: 0,
        buckets: BUCKETS,
        high: HIGH,
        port: 4789,
        high_networks: vec![77],
        rules: Rules::default(),
    };
    settings(&mut all);
    Some(Program::new(&[0], &all).unwrap())
}

/// Inner headers of a VXLAN packet.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Inner {
    vni: u32,
    /// Of source and destination, here and below.
    macs: [Mac; 2],
    is_tagged: bool,
    ips: Option<[IpAddr; 2]>,
    protocol: u8,
    ports: [u16; 2],
    /// True for the first fragment, false for a later one; IPv4 only.
    fragment: Option<bool>,
    is_v6_outside: bool,
}

impl Inner {
    fn bytes(&self) -> Vec<u8> {
        let mut inner = [self.macs[1].0, self.macs[0].0].concat();
        if self.is_tagged {
            inner.extend([0x81, 0, 0, 5]);
        }
        let payload = [self.ports.map(u16::to_be_bytes).concat(), vec![0; 20]].concat();
        match self.ips {
            None => inner.extend([&[0x08, 0x06][..], &payload].concat()),
            Some([from, to]) => inner.extend(ip(from, to, self.protocol, self.fragment, &payload)),
        }
        let vxlan = [[8, 0, 0, 0], (self.vni << 8).to_be_bytes()].concat();
        let udp = [[0xc0, 0, 18, 181], [0; 4]].concat();
        let payload = [udp, vxlan, inner].concat();
        let outer: [IpAddr; 2] = if self.is_v6_outside {
            [Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
        } else {
            [Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]
        };
        [vec![2; 12], ip(outer[0], outer[1], 17, None, &payload)].concat()
    }

    /// Independent definition of a match, in the plainest way.
    fn matches(&self, one: &FlowMatch) -> bool {
        let has_ip = self.ips.is_some();
        let has_ports = has_ip && self.fragment.is_none() && [6, 17].contains(&self.protocol);
        let end = |at: usize| {
            let ip = |prefix: IpPrefix| self.ips.is_some_and(|ips| prefix.contains(ips[at]));
            let port = |port| has_ports && self.ports[at] == port;
            one.ip.is_none_or(ip) && one.port.is_none_or(port)
        };
        one.vni.is_none_or(|vni| vni.get() == self.vni)
            && one.mac.is_none_or(|mac| self.macs.contains(&mac))
            && one.protocol.is_none_or(|protocol| has_ip && protocol == self.protocol)
            && (end(0) || end(1))
    }
}

/// Type, header and payload.
fn ip(from: IpAddr, to: IpAddr, protocol: u8, fragment: Option<bool>, payload: &[u8]) -> Vec<u8> {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            // The first one has more fragments behind it, the next one begins at byte 64.
            let flags = fragment.map_or([0, 0], |first| if first { [0x20, 0] } else { [0, 8] });
            let head = [&[0x08, 0x00, 0x45, 0, 0, 0, 0, 0][..], &flags, &[64, protocol, 0, 0]];
            [&head.concat()[..], &from.octets(), &to.octets(), payload].concat()
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let head = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, protocol, 64];
            [&head[..], &from.octets(), &to.octets(), payload].concat()
        }
        _ => panic!("of one version"),
    }
}

fn some<T: Copy>(seed: &mut u64, of: &[T]) -> T {
    *seed = mix(*seed);
    of[usize::try_from(*seed % of.len() as u64).unwrap()]
}

const MACS: [Mac; 3] = [Mac([2, 1, 0, 0, 0, 1]), Mac([2, 2, 0, 0, 0, 1]), Mac([2, 1, 0, 0, 0, 3])];
const V4: [&str; 4] = ["10.0.0.1", "10.0.0.129", "10.0.1.1", "9.0.0.1"];
const V6: [&str; 4] = ["fd00::1", "fd00::1:0:0:1", "fd01::1", "a00:1::"];
const PORTS: [u16; 3] = [80, 443, 0];

fn some_inner(seed: &mut u64) -> Inner {
    let addresses = some(seed, &[Some(V4), Some(V4), Some(V6), Some(V6), None]);
    let address = |seed: &mut u64, of: [&str; 4]| some(seed, &of).parse().unwrap();
    let ips = addresses.map(|of| [address(seed, of), address(seed, of)]);
    let is_v4 = ips.is_some_and(|ips: [IpAddr; 2]| ips[0].is_ipv4());
    let fragment = some(seed, &[None, None, Some(true), Some(false)]).filter(|_| is_v4);
    Inner {
        vni: some(seed, &[5, 0xff_ffff]),
        macs: [some(seed, &MACS), some(seed, &MACS)],
        is_tagged: some(seed, &[true, false]),
        ips,
        protocol: some(seed, &[6, 17, 1, 0]),
        ports: [some(seed, &PORTS), some(seed, &PORTS)],
        fragment,
        is_v6_outside: some(seed, &[true, false]),
    }
}

fn some_match(seed: &mut u64) -> FlowMatch {
    const PREFIXES: [&str; 10] = [
        "10.0.0.1/32",
        "10.0.0.0/25",
        "10.0.0.0/23",
        "0.0.0.0/0",
        "fd00::1/128",
        "fd00::/64",
        "fd00::/15",
        "fd00::/96",
        "a00:1::/32",
        "::/0",
    ];
    let protocol = some(seed, &["tcp", "udp", "1", "0"]);
    let all = [
        format!("vni={}", some(seed, &[5, 0xff_ffff])),
        format!("mac={}", some(seed, &MACS)),
        format!("ip={}", some(seed, &PREFIXES)),
        format!("proto={protocol}"),
    ];
    let mut words: Vec<String> = all.into_iter().filter(|_| some(seed, &[true, false])).collect();
    let may_have_port = words.iter().any(|word| word == "proto=tcp" || word == "proto=udp");
    if may_have_port && some(seed, &[true, false]) {
        words.push(format!("port={}", some(seed, &PORTS)));
    }
    // An empty match covers all flows, and has no text.
    words.join(",").parse().unwrap_or_default()
}

impl Program {
    /// Runs a packet through the program; returns its verdict, and true if its bucket is a high
    /// one.
    fn take(&mut self, packet: &[u8]) -> (u32, bool) {
        let high = |all: &[Work]| all[12..].iter().map(|bucket| bucket.packets).sum::<u64>();
        let before = self.work().unwrap();
        let options = TestRunOptions { data_in: Some(packet), ..TestRunOptions::new() };
        let verdict = self.main().unwrap().test_run(options).unwrap().return_value;
        let after = self.work().unwrap();
        let count = |all: &[Work]| all.iter().map(|bucket| bucket.packets).sum::<u64>();
        assert_eq!(count(&after), count(&before) + 1, "it is of one bucket");
        (verdict, high(&after) > high(&before))
    }

    /// Sets rules at once: two versions later, no slot waits for earlier packets.
    fn force_rules(&mut self, rules: Rules) {
        (self.settings.rules, self.version) = (rules, self.version + 2);
        self.tell().unwrap();
    }
}

#[test]
fn xdp_flow_match_agrees_with_userspace() {
    let Some(mut program) = program("flows_match_in_the_kernel", |_| ()) else { return };
    let looked_at = program.main().unwrap().info().unwrap().verified_instruction_count();
    assert!(looked_at.is_none_or(|count| count < 100_000), "{looked_at:?} of a million at most");
    let mut seed = 1;
    let mut high = 0;
    for table in 0..250 {
        let count = some(&mut seed, &[0, 1, 1, 1, 2, 4, MATCHES_MAX]);
        let matches: Vec<FlowMatch> = (0..count).map(|_| some_match(&mut seed)).collect();
        program.force_rules(Rules { networks: false, matches: matches.clone() });
        for _ in 0..40 {
            let inner = some_inner(&mut seed);
            let wanted = matches.iter().any(|one| inner.matches(one));
            let (verdict, is_high) = program.take(&inner.bytes());
            assert_eq!((verdict, is_high), (XDP_PASS, wanted), "{table}: {inner:?}, {matches:?}");
            high += u32::from(is_high);
        }
    }
    assert!((2_000..8_000).contains(&high), "both cases are common: {high} of 10,000");
}

/// The flow of the tests below.
const FLOW: Inner = Inner {
    vni: 5,
    macs: [MACS[0], MACS[1]],
    is_tagged: false,
    ips: Some([IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2))]),
    protocol: 6,
    ports: [1, 443],
    fragment: None,
    is_v6_outside: false,
};

fn of(text: &str) -> Rules {
    Rules { networks: false, matches: vec![text.parse().unwrap()] }
}

#[test]
fn xdp_high_networks_count_only_while_enabled() {
    let Some(mut program) = program("networks_of_high_priority", |_| ()) else { return };
    let [five, high] = [5, 77].map(|vni| Inner { vni, ..FLOW }.bytes());
    for networks in [true, false] {
        program.force_rules(Rules { networks, matches: Vec::new() });
        assert_eq!(program.take(&five), (XDP_PASS, false));
        assert_eq!(program.take(&high), (XDP_PASS, networks));
    }
    assert_eq!(Vni::new(77).map(Vni::get), Some(77));
}

/// Sets a core for every bucket: the flow's packets are then redirected into a queue that only the
/// test empties.
fn place_all(program: &mut Program) {
    for bucket in 0..BUCKETS {
        program.want(bucket, 0).unwrap();
    }
}

#[test]
fn changed_rules_wait_for_what_is_under_way() {
    let Some(mut program) = program("changed_rules_wait", |_| ()) else { return };
    let packet = FLOW.bytes();
    place_all(&mut program);
    assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
    assert!(program.set_rules(&of("proto=tcp,port=443")).unwrap());
    // The earlier packet is still in the queue.
    assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
    assert!(!program.set_rules(&of("proto=udp")).unwrap(), "two changes do not overlap");
    assert!(program.set_rules(&of("proto=tcp,port=443")).unwrap(), "that one holds already");
    for slot in 0..BUCKETS - HIGH {
        program.taken.set(slot, 2, 0).unwrap();
    }
    assert_eq!(program.take(&packet), (XDP_REDIRECT, true));
    let counts = program.counts().unwrap();
    assert_eq!((counts.reread, counts.reread_forced), (1, 0));
    assert!(program.set_rules(&of("proto=udp")).unwrap());
}

#[test]
fn xdp_changed_rules_wait_for_affected_flow_gap() {
    let long = |settings: &mut Settings| settings.settle_ns = 1 << 40;
    let Some(mut program) = program("changed_rules_wait_for_a_pause", long) else { return };
    let packet = FLOW.bytes();
    assert_eq!(program.take(&packet), (XDP_PASS, false));
    assert!(program.set_rules(&of("proto=tcp,port=443")).unwrap());
    for _ in 0..3 {
        assert_eq!(program.take(&packet), (XDP_PASS, false), "it does not pause");
    }
    program.settings.settle_ns = 0;
    program.tell().unwrap();
    assert_eq!(program.take(&packet), (XDP_PASS, true));
}

#[test]
fn xdp_changed_rules_skip_wait_for_unaffected_flows() {
    let some = |settings: &mut Settings| settings.settle_ns = 20_000_000;
    let Some(mut program) = program("changed_rules_do_not_wait", some) else { return };
    let packet = FLOW.bytes();
    program.take(&packet);
    assert!(program.set_rules(&of("proto=udp")).unwrap());
    let begin = Instant::now();
    while program.counts().unwrap().reread == 0 {
        assert!(begin.elapsed() < Duration::from_secs(10), "they wait for a flow that stays");
        assert_eq!(program.take(&packet), (XDP_PASS, false));
    }
    assert_eq!(program.counts().unwrap().reread_forced, 0);
}

#[test]
fn patience_ends_and_is_counted() {
    let long = |settings: &mut Settings| {
        (settings.settle_ns, settings.hurry_ns, settings.patience_ns) = (1 << 40, 1 << 40, 1);
    };
    let Some(mut program) = program("patience_ends", long) else { return };
    let packet = FLOW.bytes();
    assert_eq!(program.take(&packet), (XDP_PASS, false));
    assert!(program.set_rules(&of("proto=tcp,port=443")).unwrap());
    // The first packet begins the wait, and the second one has waited long enough.
    assert_eq!(program.take(&packet), (XDP_PASS, false));
    assert_eq!(program.take(&packet), (XDP_PASS, true));
    let counts = program.counts().unwrap();
    assert_eq!((counts.reread, counts.reread_forced), (1, 1));
}

#[test]
fn xdp_high_bucket_waits_for_all_slot_queues() {
    let Some(mut program) = program("a_high_bucket_waits", |_| ()) else { return };
    program.force_rules(of("proto=tcp"));
    // Flows of three slots that share a bucket, any bucket.
    let mut flows: Vec<Vec<(u32, Vec<u8>)>> = vec![Vec::new(); HIGH as usize];
    for port in 1..200 {
        let packet = Inner { ports: [port, 443], ..FLOW }.bytes();
        let before: Vec<u64> = slots_last(&program);
        program.take(&packet);
        let after = slots_last(&program);
        let slot = (0..12).find(|at| before[*at] != after[*at]).unwrap();
        let same = &mut flows[slot % HIGH as usize];
        if same.iter().all(|(other, _)| *other as usize != slot) {
            same.push((u32::try_from(slot).unwrap(), packet));
        }
    }
    let flows = flows.into_iter().find(|flows| flows.len() == 3).expect("of 200 flows");
    let high = 12 + flows[0].0 % HIGH;
    program.want(high, 0).unwrap();
    for (_, packet) in &flows {
        assert_eq!(program.take(packet), (XDP_REDIRECT, true));
    }
    // Back to no core; the three queues are emptied one after the other.
    program.wanted.set(high, 0, 0).unwrap();
    for (at, (slot, packet)) in flows.iter().enumerate() {
        assert_eq!(program.take(packet), (XDP_REDIRECT, true), "{at}");
        let put = halves(program.slots.get(slot, 0).unwrap()[0])[1];
        program.taken.set(*slot, put, 0).unwrap();
    }
    assert_eq!(program.take(&flows[0].1), (XDP_PASS, true));
}

/// Stores times of another receive core that has read the clock later, in every slot and bucket.
fn others_are_later(program: &mut Program, waits: bool) -> u64 {
    let later = monotonic_ns() + (1 << 40);
    let waits_since = if waits { later } else { 0 };
    for slot in 0..BUCKETS - HIGH {
        let [numbers, ..] = program.slots.get(&slot, 0).unwrap();
        program.slots.set(slot, [numbers, later, waits_since, later], 0).unwrap();
    }
    for bucket in 0..BUCKETS {
        let [core, ..] = program.state.get(&bucket, 0).unwrap();
        program.state.set(bucket, [core, later, waits_since], 0).unwrap();
    }
    later
}

/// Makes every bucket leave its packets to the stack again.
fn place_none(program: &mut Program) {
    for bucket in 0..BUCKETS {
        program.wanted.set(bucket, 0, 0).unwrap();
    }
}

#[test]
fn xdp_future_timestamp_does_not_empty_queue() {
    let Some(mut program) = program("a_later_time_empties_no_queue", |_| ()) else { return };
    let packet = FLOW.bytes();
    place_all(&mut program);
    assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
    place_none(&mut program);
    others_are_later(&mut program, false);
    assert_eq!(program.take(&packet), (XDP_REDIRECT, false), "one is in the queue");
    assert_eq!(program.counts().unwrap().moved, 1, "to the core, and not back");
}

#[test]
fn xdp_future_timestamp_is_no_idle_gap() {
    let some = |settings: &mut Settings| settings.settle_ns = 1;
    let Some(mut program) = program("a_later_time_is_no_pause", some) else { return };
    let packet = FLOW.bytes();
    assert_eq!(program.take(&packet), (XDP_PASS, false));
    place_all(&mut program);
    assert!(program.set_rules(&of("proto=tcp,port=443")).unwrap());
    let later = others_are_later(&mut program, false);
    for _ in 0..3 {
        assert_eq!(program.take(&packet), (XDP_PASS, false), "neither place nor bucket change");
    }
    assert!(slots_last(&program).iter().all(|last| *last == later), "no time goes back");
}

#[test]
fn xdp_future_timestamp_does_not_exhaust_wait_limit() {
    let some = |settings: &mut Settings| {
        (settings.settle_ns, settings.hurry_ns, settings.patience_ns) = (1, 1, 1 << 30);
    };
    let Some(mut program) = program("a_later_time_uses_no_patience_up", some) else { return };
    let packet = FLOW.bytes();
    assert_eq!(program.take(&packet), (XDP_PASS, false));
    place_all(&mut program);
    assert!(program.set_rules(&of("proto=tcp,port=443")).unwrap());
    others_are_later(&mut program, true);
    assert_eq!(program.take(&packet), (XDP_PASS, false));
    let counts = program.counts().unwrap();
    assert_eq!((counts.moved, counts.reread), (0, 0));
}

impl Program {
    /// Sets the numbers of packets that went into the queue of core 0, and that left it.
    fn pass(&mut self, put: u32, left: u32) {
        let [_, roomy, ..] = self.queues[0].get(&0, 0).unwrap();
        self.queues[0].set(0, [put.into(), roomy, 0, 0, 0, 0, 0, 0], 0).unwrap();
        self.queues[1].set(0, [left.into(), 0, 0, 0, 0, 0, 0, 0], 0).unwrap();
    }

    /// Packets in the queue of core 0, according to the counters.
    fn inside(&self) -> u32 {
        let [put, left] = [0, 1].map(|at| halves(self.queues[at].get(&0, 0).unwrap()[0])[0]);
        put.wrapping_sub(left)
    }

    /// Packets of all slots that are under way.
    fn under_way(&self) -> u32 {
        let put = |slot| halves(self.slots.get(&slot, 0).unwrap()[0])[1];
        (0..BUCKETS - HIGH).map(|slot| put(slot) - self.taken.get(&slot, 0).unwrap()).sum()
    }
}

#[test]
fn xdp_full_queue_drop_not_counted_in_flight() {
    let Some(mut program) = program("what_finds_a_queue_full", |_| ()) else { return };
    let packet = FLOW.bytes();
    place_all(&mut program);
    // Half empty, and so trusted; as full as it may be, across the wrap of the counters.
    for (put, left) in [(5, 5), (QUEUE - 9, u32::MAX - 7)] {
        program.pass(put, left);
        assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
    }
    assert_eq!(program.inside(), QUEUE);
    for _ in 0..3 {
        assert_eq!(program.take(&packet), (XDP_DROP, false));
    }
    assert_eq!((program.inside(), program.under_way()), (QUEUE, 2));
    // One packet has left it.
    program.pass(QUEUE - 8, u32::MAX - 6);
    assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
    let counts = program.counts().unwrap();
    assert_eq!((counts.steered, counts.dropped), (3, 3));
    // A bucket whose packets have left may move, regardless of drops.
    for slot in 0..BUCKETS - HIGH {
        program.taken.set(slot, 3, 0).unwrap();
    }
    place_none(&mut program);
    assert_eq!(program.take(&packet), (XDP_PASS, false));
}

#[test]
fn a_count_that_cannot_be_right_begins_anew() {
    let Some(mut program) = program("a_count_begins_anew", |_| ()) else { return };
    let packet = FLOW.bytes();
    place_all(&mut program);
    // More packets left than came; or the queue was not half empty since the start.
    for (put, left) in [(7, 9), (QUEUE + 9, 9)] {
        program.pass(put, left);
        assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
        assert_eq!(program.inside(), 1);
        program.queues[0].set(0, [0; 8], 0).unwrap();
    }
    program.pass(1, 0);
    assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
    program.trust_no_queue().unwrap();
    program.pass(QUEUE, 0);
    assert_eq!(program.take(&packet), (XDP_REDIRECT, false));
    assert_eq!(program.counts().unwrap().dropped, 0);
}

fn slots_last(program: &Program) -> Vec<u64> {
    (0..12).map(|slot| program.slots.get(&slot, 0).unwrap()[1]).collect()
}

#[test]
#[ignore = "prints figures: run it with --ignored --nocapture"]
fn what_matches_cost() {
    let Some(mut program) = program("what_matches_cost", |_| ()) else { return };
    let packet = FLOW.bytes();
    for count in [0, 1, 8, MATCHES_MAX] {
        let matches = vec!["vni=6,ip=10.0.0.0/8,proto=tcp,port=443".parse().unwrap(); count];
        program.force_rules(Rules { networks: false, matches });
        let mut rounds: Vec<Duration> = (0..15)
            .map(|_| {
                let options = TestRunOptions {
                    data_in: Some(&packet),
                    repeat: 100_000,
                    ..TestRunOptions::new()
                };
                program.main().unwrap().test_run(options).unwrap().duration
            })
            .collect();
        rounds.sort();
        let [least, median, most] = [0, 7, 14].map(|at| rounds[at].as_nanos());
        println!("{count} matches: {least} / {median} / {most} ns a packet");
        assert!(least > 0 && most < 1_000_000);
    }
}
