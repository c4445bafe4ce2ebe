use alloc::vec;
use alloc::vec::Vec;

use core::net::Ipv4Addr;

use sluice_base::{
    Batch, BitRate, ByteCount, DropReason, InputId, Mac, Priority, PriorityMask, Vni,
};
use sluice_wire::{EtherType, ethernet};

use super::*;
use crate::config::{InputFull, PauseConfig, RateLimit, Service, SparePlaces};
use crate::*;

type S = Switch<Vec<u8>>;

const NOW: Nanos = Nanos::from_millis(1);
const BLUE: VnetId = VnetId(0);
const RED: VnetId = VnetId(1);

fn limit(frames: u32, bytes: u64) -> Limit {
    Limit { frames, bytes: ByteCount(bytes) }
}

fn access(vnet: VnetId) -> PortConfig {
    PortConfig {
        role: PortRole::Access { vnet },
        queues: 1,
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        input: limit(32, 100_000),
        input_full: InputFull::Wait,
        output: limit(32, 100_000),
        rate: None,
        group_rate: None,
        mtu: 1_500,
        rx_pause: true,
        trust: Trust::PcpThenDscp,
        default_priority: Priority::ZERO,
        sources: Sources::Any,
        tags: Tags::Kept,
        hold: Default::default(),
        is_offloaded: false,
    }
}

/// Returns a configuration of two ports of the first network, and spare ports.
fn config(spare: u16) -> SwitchConfig {
    let vnet = |n| VnetConfig { vni: Vni::new(n), mtu: 1_450, tunnels: vec![] };
    SwitchConfig {
        ports: vec![access(BLUE), access(BLUE)],
        vnets: vec![vnet(1), vnet(2)],
        tunnels: vec![],
        classes: [ClassConfig { service: Service::Weighted(1), lossless: true }; 8],
        dscp_to_priority: [Priority::ZERO; 64],
        priority_to_dscp: [0; 8],
        pool: PoolConfig {
            from_underlay: limit(8, 100_000),
            from_local: limit(8, 100_000),
            pair_share: 0,
            replicated_frames: 4,
            copies_per_group: 4,
        },
        fdb: FdbConfig { macs: 16, flows: 16 },
        unresolved: UnresolvedConfig {
            destinations: 4,
            frames: 4,
            timeout: Nanos::from_millis(1),
            punt_gap: Nanos::from_micros(100),
        },
        control: ControlConfig::default(),
        handoff: HandoffConfig::default(),
        isolation: None,
        spare_places: SparePlaces::default(),
        spare: Some(SpareConfig { ports: spare, like: access(RED) }),
    }
}

fn switch(spare: u16) -> S {
    Switch::new(&config(spare), 1, NOW).expect("it can work")
}

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

/// Receives frames at the first queue of a port.
fn give(switch: &mut S, port: PortId, count: usize, dst: Mac) {
    let mut batch = Batch::with_limit(count);
    for _ in 0..count {
        let mut bytes = vec![0; 60];
        let src = mac(u8::try_from(port.0).expect("few") + 100);
        ethernet::Repr { dst, src, ethertype: EtherType::IPV4 }.emit(&mut bytes);
        bytes[14] = 0x45;
        batch.push(bytes).expect("there is room");
    }
    switch.receive(NOW, switch.input(port, 0), &mut batch);
}

/// Returns the number of frames that a port takes now.
fn take(switch: &mut S, now: Nanos, port: PortId) -> u32 {
    switch.transmit(now, port, &mut |_: &Egress<'_, Vec<u8>>| Taken::All)
}

/// Returns the number of handles of an input, or of the pool, that come back.
fn back(switch: &mut S, input: InputId) -> usize {
    let mut out = Batch::with_limit(64);
    switch.reclaim(input, &mut out);
    out.len()
}

fn at_port(switch: &mut S, vnet: VnetId, mac: Mac, port: PortId) -> Result<(), CommandError> {
    switch.command(NOW, Command::Install { vnet, mac, to: Destination::Port(port) })
}

fn check(switch: &S) {
    assert!(switch.audit().is_closed(), "{:#?}", switch.audit());
}

const SPARE: PortId = PortId(2);

/// Returns a switch whose spare port is in a state; a port in it is bound, and has sent one frame.
fn in_state(state: PortState) -> S {
    let mut switch = switch(1);
    if state != PortState::Free {
        let bound = PortConfig { sources: Sources::Bound, ..access(BLUE) };
        assert_eq!(switch.attach(NOW, &bound), Ok(SPARE));
        let port = SPARE;
        switch.bind(port, mac(102), [None; 4]).expect("bound");
        at_port(&mut switch, BLUE, mac(0), PortId(0)).expect("a member");
        give(&mut switch, SPARE, 1, mac(0));
        assert_eq!(take(&mut switch, NOW, PortId(0)), 1);
    }
    if state == PortState::Detached {
        assert_eq!(switch.detach(NOW, SPARE), Detached { dropped: 0, handles: 1 });
    }
    assert_eq!(switch.port_state(SPARE), state);
    switch
}

#[test]
fn every_call_in_every_state() {
    use PortState::{Attached, Detached, Free};
    type Call = fn(&mut S) -> bool;
    let inject = |switch: &mut S| {
        switch.inject(NOW, vec![0; 60], Target::Port(SPARE)).is_ok()
            && switch.queued(SPARE).frames == 1
    };
    // True if the call works in: Free, Attached, Detached.
    let table: Vec<(&str, [bool; 3], Call)> = vec![
        ("window", [false, true, false], |s| s.window(s.input(SPARE, 0)).frames > 0),
        ("install", [false, true, false], |s| at_port(s, BLUE, mac(9), SPARE).is_ok()),
        ("bind", [false, true, false], |s| s.bind(SPARE, mac(9), [None; 4]).is_ok()),
        ("unbind", [false, true, false], |s| {
            s.command(NOW, Command::Unbind { port: SPARE, mac: mac(102), ip: None }).is_ok()
        }),
        ("inject", [false, true, false], inject),
        ("broadcast", [false, true, false], |s| {
            give(s, PortId(0), 1, Mac::BROADCAST);
            s.copy_to_shared(s.input(PortId(0), 0), Ok);
            assert_eq!(s.queued(PortId(1)).frames, 1);
            s.queued(SPARE).frames == 1
        }),
        ("transmit", [false; 3], |s| s.has_work(NOW, SPARE) || take(s, NOW, SPARE) > 0),
        ("reclaim", [false, true, true], |s| back(s, InputId(2)) == 1),
        ("attach", [true, false, false], |s| {
            let error = match s.port_state(SPARE) {
                Detached => AttachError::Busy,
                Attached | Free => AttachError::Full,
            };
            let attached = s.attach(NOW, &access(RED));
            assert!(attached == Ok(SPARE) || attached == Err(error), "{attached:?}");
            attached.is_ok()
        }),
        ("detach", [false, true, true], |s| {
            let detached = s.detach(NOW, SPARE);
            let state = s.port_state(SPARE);
            assert_eq!(state, if detached.handles > 0 { Detached } else { Free });
            assert_eq!(s.detach(NOW, SPARE), detached, "once more changes nothing");
            detached.handles == 1
        }),
        ("reclaim and attach", [true, false, true], |s| {
            back(s, InputId(2));
            s.attach(NOW, &access(RED)).is_ok()
        }),
    ];
    for (name, works, call) in table {
        for (state, works) in [Free, Attached, Detached].into_iter().zip(works) {
            let mut switch = in_state(state);
            assert_eq!(call(&mut switch), works, "{name} in {state:?}");
            check(&switch);
        }
    }
}

#[test]
fn a_port_that_cannot_be_attached_is_refused() {
    let underlay = PortRole::Underlay { local: Ipv4Addr::LOCALHOST, mac: mac(1) };
    let pause = PauseConfig {
        priorities: PriorityMask::ALL,
        xoff: ByteCount(50_000),
        xon: ByteCount(1),
        link: BitRate::from_gbps(10),
        source: mac(1),
    };
    type Change<'a> = &'a dyn Fn(&mut PortConfig);
    let table: [(Change<'_>, Option<AttachError>); 9] = [
        (&|_| {}, None),
        (&|p| p.role = underlay, Some(AttachError::NotAccess)),
        (&|p| p.queues = 2, Some(AttachError::TooLarge)),
        (&|p| p.input.frames = 33, Some(AttachError::TooLarge)),
        (&|p| p.output.bytes = ByteCount(100_001), Some(AttachError::TooLarge)),
        // Nine times the slots, or as many with a ninth of the frames.
        (&|p| p.input_full = InputFull::Pause(pause), Some(AttachError::TooLarge)),
        (
            &|p| {
                p.input_full = InputFull::Pause(pause);
                p.input.frames = 3;
            },
            None,
        ),
        (
            &|p| p.input.frames = 0,
            Some(AttachError::Config(ConfigError::LimitTooSmall {
                what: "input",
                port: Some(PortId(NO_PORT)),
                bytes_min: ByteCount(1_518),
            })),
        ),
        (
            &|p| p.role = PortRole::Access { vnet: VnetId(2) },
            Some(AttachError::Config(ConfigError::NoSuch {
                what: "network",
                index: 2,
                by: "a port",
            })),
        ),
    ];
    for (at, (change, error)) in table.into_iter().enumerate() {
        let mut port = access(BLUE);
        change(&mut port);
        assert_eq!(switch(1).attach(NOW, &port).err(), error, "row {at}");
    }
    assert_eq!(switch(0).attach(NOW, &access(BLUE)), Err(AttachError::Full));
    let mut config = config(1);
    config.spare.as_mut().expect("one").like.role = underlay;
    assert_eq!(S::new(&config, 1, NOW).err(), Some(ConfigError::SpareUnderlay));
}

#[test]
fn fdb_entry_of_detached_port_after_reuse_misses() {
    let mut switch = switch(0);
    for n in 1..8 {
        at_port(&mut switch, BLUE, mac(n), PortId(1)).expect("a member");
    }
    at_port(&mut switch, BLUE, mac(20), PortId(0)).expect("a member");
    switch.detach(NOW, PortId(1));
    assert_eq!(switch.macs().count(), 1);
    let stale = at_port(&mut switch, BLUE, mac(1), PortId(1));
    assert_eq!(stale, Err(CommandError::NoSuchPort(PortId(1))));
    assert_eq!(switch.attach(NOW, &access(BLUE)), Ok(PortId(1)));
    give(&mut switch, PortId(0), 1, mac(1));
    assert_eq!(take(&mut switch, NOW, PortId(1)), 0, "it is not known where this is");
    assert!(matches!(switch.notice(), Some(Notice::Miss { .. })));
    at_port(&mut switch, BLUE, mac(1), PortId(1)).expect("it is here now");
    assert_eq!(take(&mut switch, NOW, PortId(1)), 1);
    check(&switch);
}

#[test]
fn attached_port_receives_floods_of_its_network_only() {
    let mut switch = switch(2);
    let to_all = |switch: &mut S, from: PortId| {
        give(switch, from, 1, Mac::BROADCAST);
        switch.copy_to_shared(switch.input(from, 0), Ok);
        let taken = [0, 1, 2, 3].map(|port| take(switch, NOW, PortId(port)));
        for input in 0..=switch.pool_input().0 {
            back(switch, InputId(input));
        }
        check(switch);
        taken
    };
    assert_eq!(to_all(&mut switch, PortId(0)), [0, 1, 0, 0], "spare bays are no members");
    assert_eq!(switch.attach(NOW, &access(BLUE)), Ok(PortId(2)));
    assert_eq!(switch.attach(NOW, &access(RED)), Ok(PortId(3)));
    assert_eq!(to_all(&mut switch, PortId(0)), [0, 1, 1, 0]);
    assert_eq!(to_all(&mut switch, PortId(2)), [1, 1, 0, 0]);
    switch.detach(NOW, PortId(1));
    assert_eq!(to_all(&mut switch, PortId(2)), [1, 0, 0, 0]);
    assert_eq!(switch.attach(NOW, &access(RED)), Ok(PortId(1)));
    assert_eq!(to_all(&mut switch, PortId(3)), [0, 1, 0, 0], "of another network now");
    assert_eq!(to_all(&mut switch, PortId(0)), [0, 0, 1, 0]);
}

#[test]
fn a_new_port_owes_nothing() {
    let rate = RateLimit { rate: BitRate(8_000), catch_up: Nanos::ZERO, overhead: 0 };
    for slow in [
        PortConfig { rate: Some(rate), ..access(BLUE) },
        PortConfig { group_rate: Some(rate), ..access(BLUE) },
    ] {
        let mut switch = switch(1);
        for round in 0..3 {
            assert_eq!(switch.attach(NOW, &slow), Ok(SPARE));
            at_port(&mut switch, BLUE, mac(1), SPARE).expect("a member");
            give(&mut switch, PortId(0), 3, mac(1));
            assert_eq!(take(&mut switch, NOW, SPARE), 1, "round {round}: it owes 60 ms");
            assert_eq!(switch.detach(NOW, SPARE).dropped, 2);
            assert_eq!(switch.deadline(), None, "nobody waits for its rate");
            assert_eq!(back(&mut switch, InputId(0)), 3);
            check(&switch);
        }
        // A port without a rate is not slowed down.
        assert_eq!(switch.attach(NOW, &access(BLUE)), Ok(SPARE));
        at_port(&mut switch, BLUE, mac(1), SPARE).expect("a member");
        give(&mut switch, PortId(0), 30, mac(1));
        assert_eq!(take(&mut switch, NOW, SPARE), 30);
        switch.advance(NOW.after(Nanos::from_millis(100)));
    }
}

#[test]
fn reused_port_counters_start_at_zero_totals_kept() {
    let mut switch = in_state(PortState::Attached);
    let input = switch.input(SPARE, 0);
    at_port(&mut switch, BLUE, mac(1), SPARE).expect("a member");
    give(&mut switch, PortId(0), 2, mac(1));
    take(&mut switch, NOW, SPARE);
    give(&mut switch, SPARE, 3, mac(2));
    assert_eq!(switch.detach(NOW, SPARE).dropped, 3);
    let dropped = |s: &S, input| s.dropped(input, Priority::ZERO, DropReason::Stopped).frames;
    // The counters of the old port can be read until the spare port is reused.
    assert_eq!((switch.received(input).frames, switch.sent(SPARE).frames), (4, 2));
    assert_eq!((dropped(&switch, input), switch.held_marks(input).frames_max), (3, 3));
    back(&mut switch, input);
    let total = switch.audit().total(|row| row.bytes.received);
    assert_eq!(switch.attach(NOW, &access(BLUE)), Ok(SPARE));
    assert_eq!((switch.received(input).frames, switch.sent(SPARE).frames), (0, 0));
    assert_eq!((dropped(&switch, input), switch.held_marks(input)), (0, Marks::default()));
    assert_eq!(switch.queued_marks(SPARE), Marks::default());
    assert!(switch.audit().rows.iter().all(|row| row.input != input), "it has no row");
    assert_eq!(switch.audit().total(|row| row.bytes.received), total);
    let gone = switch.pool_input();
    assert_eq!((switch.received(gone).frames, dropped(&switch, gone)), (4, 3));
    assert_eq!(switch.port_of(gone), None);
    check(&switch);
}

#[test]
fn frames_in_shared_buffer_keep_spare_port() {
    let mut switch = in_state(PortState::Attached);
    let input = switch.input(SPARE, 0);
    // Two frames beyond its share are copied to the shared buffer, and every receiver of a
    // broadcast has a copy.
    give(&mut switch, SPARE, 20, mac(0));
    switch.copy_to_shared(input, Ok);
    assert!(switch.audit().total(|row| row.frames.resident) > 16);
    give(&mut switch, SPARE, 1, Mac::BROADCAST);
    switch.copy_to_shared(input, Ok);
    switch.detach(NOW, SPARE);
    assert!(back(&mut switch, input) > 0);
    let busy = |switch: &mut S| switch.attach(NOW, &access(BLUE)) == Err(AttachError::Busy);
    assert!(busy(&mut switch), "frames of it wait");
    assert_eq!(take(&mut switch, NOW, PortId(1)), 1);
    assert!(busy(&mut switch), "one receiver of its broadcast has it");
    assert!(take(&mut switch, NOW, PortId(0)) > 1);
    assert!(busy(&mut switch), "the pool has not taken back what was copied");
    let pool = switch.pool_input();
    while back(&mut switch, pool) > 0 {}
    assert_eq!(switch.attach(NOW, &access(BLUE)), Ok(SPARE));
    check(&switch);
}

#[test]
fn attach_picks_port_slot_free_for_longest() {
    let mut switch = switch(3);
    let later = |ms| NOW.after(Nanos::from_millis(ms));
    for port in 2..5 {
        assert_eq!(switch.attach(NOW, &access(BLUE)), Ok(PortId(port)));
    }
    for (ms, port) in [(3, 3), (4, 0), (5, 4), (6, 2)] {
        switch.detach(later(ms), PortId(port));
    }
    // A second detachment does not count.
    switch.detach(later(9), PortId(3));
    for port in [3, 0, 4, 2] {
        assert_eq!(switch.attach(later(9), &access(RED)), Ok(PortId(port)));
    }
}

#[test]
fn limits_follow_from_the_ports_that_are_there() {
    let small = PortConfig { input: limit(8, 6_000), mtu: 900, ..access(BLUE) };
    let jumbo = PortConfig { mtu: 9_000, ..access(BLUE) };
    let of = |switch: &S| (switch.egress.common_room(0), switch.ingress.pair_share());
    // A switch that had these ports from the start.
    let expected = |more: &[&PortConfig]| {
        let mut config = config(0);
        config.pool.pair_share = 128;
        config.ports.extend(more.iter().map(|port| (*port).clone()));
        of(&Switch::<Vec<u8>>::new(&config, 1, NOW).expect("it can work"))
    };
    let mut config = config(2);
    config.pool.pair_share = 128;
    let mut switch: S = Switch::new(&config, 1, NOW).expect("it can work");
    assert_eq!(of(&switch), expected(&[]));
    switch.attach(NOW, &small).expect("a spare port is free");
    assert_eq!(of(&switch), expected(&[&small]));
    switch.attach(NOW, &jumbo).expect("a spare port is free");
    assert_eq!(of(&switch), expected(&[&small, &jumbo]));
    assert_ne!(expected(&[&small, &jumbo]), expected(&[&jumbo]));
    switch.detach(NOW, PortId(2));
    assert_eq!(of(&switch), expected(&[&jumbo]));
    switch.detach(NOW, PortId(3));
    assert_eq!(of(&switch), expected(&[]));
}

#[test]
fn pending_notices_of_detached_port_are_withdrawn() {
    let mut switch = switch(1);
    switch.attach_control(true);
    let learns = PortConfig { sources: Sources::Learn, ..access(BLUE) };
    assert_eq!(switch.attach(NOW, &learns), Ok(SPARE));
    // A new source, and an unknown destination, to which another port sends as well.
    give(&mut switch, SPARE, 1, mac(7));
    give(&mut switch, SPARE, 1, mac(8));
    give(&mut switch, PortId(0), 1, mac(7));
    switch.detach(NOW, SPARE);
    assert_eq!(switch.notice(), None, "the port is gone");
    // A miss for which others wait is reported again; one for which no frame waits is not.
    switch.advance(NOW);
    let from_other = Some(Destination::Port(PortId(0)));
    let event = switch.notice();
    assert!(
        matches!(event, Some(Notice::Miss { mac: Mac([.., 7]), from, .. }) if from == from_other),
        "{event:?}"
    );
    assert_eq!(switch.notice(), None);
    assert_eq!(switch.egress.free_count(), 3);
    // The new port has its whole share of events, and not the old one's source.
    back(&mut switch, InputId(2));
    assert_eq!(switch.attach(NOW, &learns), Ok(SPARE));
    let counts = |s: &S| s.punt_counters(SPARE, PuntCause::NewSource).admitted;
    assert_eq!(counts(&switch), 0);
    at_port(&mut switch, BLUE, mac(0), PortId(0)).expect("a member");
    give(&mut switch, SPARE, 1, mac(0));
    assert_eq!(counts(&switch), 1);
    check(&switch);
}

#[test]
fn nobody_is_bound_to_a_new_port() {
    let mut switch = in_state(PortState::Detached);
    let bound = PortConfig { sources: Sources::Bound, ..access(BLUE) };
    back(&mut switch, InputId(2));
    assert_eq!(switch.attach(NOW, &bound), Ok(SPARE));
    give(&mut switch, SPARE, 1, mac(0));
    let spoofed = |s: &S| s.dropped(InputId(2), Priority::ZERO, DropReason::SpoofedMac).frames;
    assert_eq!(spoofed(&switch), 1);
    // And a port that takes any source takes that one.
    switch.detach(NOW, SPARE);
    back(&mut switch, InputId(2));
    assert_eq!(switch.attach(NOW, &access(BLUE)), Ok(SPARE));
    give(&mut switch, SPARE, 1, mac(0));
    assert_eq!((spoofed(&switch), take(&mut switch, NOW, PortId(0))), (0, 1));
    assert_eq!(switch.bind(SPARE, mac(1), [None; 4]), Err(CommandError::NotBound(SPARE)));
}

#[test]
fn attach_with_fewer_queues_keeps_extra_inputs_closed() {
    let mut config = config(1);
    config.spare.as_mut().expect("one").like.queues = 3;
    let mut switch: S = Switch::new(&config, 1, NOW).expect("it can work");
    let windows = |s: &S| [2, 3, 4].map(|input| s.window(InputId(input)).frames > 0);
    for (queues, open) in [
        (2, [true, true, false]),
        (3, [true; 3]),
        (1, [true, false, false]),
        (2, [true, true, false]),
    ] {
        let port = PortConfig { queues, input_full: InputFull::Drop, ..access(BLUE) };
        assert_eq!(switch.attach(NOW, &port), Ok(SPARE));
        assert_eq!(windows(&switch), open);
        switch.detach(NOW, SPARE);
        assert_eq!(windows(&switch), [false; 3]);
    }
}
