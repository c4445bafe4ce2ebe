//! A source that sends more than its receiver takes: the virtual switches hold it, and its socket
//! refuses the rest.

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::check::Checked;
use sluice_sim::net::Buffering;
use sluice_sim::overlay::{Limit, OverlayConfig, SAME_WEIGHT};
use sluice_sim::workload::{Gaps, Source, SourceCounts, Sources};
use sluice_sim::world::WorldConfig;

use crate::network::Chain;

/// Payload of a datagram, and the size of its frame in a VM.
const DATAGRAM: u32 = 1_400;
const FRAME: u64 = 42 + 1_400;

/// Returns pairs of hosts with a VM each that takes 1 Gbit/s; nothing is lost between them.
fn lossless(pairs: u32, own_queues: PriorityMask) -> WorldConfig {
    let limit = |frames: u32| Limit { frames, bytes: ByteCount(u64::from(frames) * 1_600) };
    let (rate, delay, buffer) = (BitRate::from_gbps(10), Nanos(500), ByteCount(150_000));
    let mut config = Chain { pairs, links: 2, rate, delay, buffer }.config();
    config.net.lossless = PriorityMask::ALL;
    config.net.buffering = Buffering::Input;
    config.overlay = Some(OverlayConfig {
        vms_per_host: 1,
        lossless: PriorityMask::ALL,
        service: SAME_WEIGHT,
        own_queues,
        mtu: 1_450,
        vm_in: limit(64),
        vm_out: limit(64),
        vm_rate: Some(BitRate::from_gbps(1)),
        card_in: limit(256),
        card_out: limit(64),
        pool: limit(128),
        card_pause: Some((ByteCount(240_000), ByteCount(160_000))),
        card_priorities: PriorityMask::ALL,
    });
    config
}

/// Returns a source from the first VM, whose frames have this rate on average.
fn source(to: u32, rate: BitRate, datagrams: u64, priority: u8) -> Source {
    Source {
        from: 0,
        to,
        bytes: DATAGRAM,
        gaps: Gaps::Poisson,
        gap: rate.time_for(ByteCount(FRAME)),
        first: Nanos::ZERO,
        datagrams,
        priority: Priority::from_low_bits(priority),
    }
}

/// Runs sources to their end, checks that each datagram that was sent arrives, and returns the
/// counts of each source.
fn counts_of(config: &WorldConfig, sources: Vec<Source>) -> Vec<SourceCounts> {
    let mut sources = Sources::new(sources, 5);
    let mut checked = Checked::new(config, 200, "this test".to_owned()).expect("hosts");
    checked.run_all(&mut [&mut sources], Nanos::from_millis(1_000)).expect("no violation");
    checked.drain(Nanos::from_millis(100)).expect("nothing is left");
    let total = sources.total(checked.world());
    assert_eq!((total.arrived, checked.world().summary().drops_congestion), (total.sent, 0));
    let counts = sources.counts(checked.world());
    println!("{counts:?}");
    counts
}

/// A VM takes 1 Gbit/s, and its peer sends 2: half of the datagrams are sent, but for what the
/// buffers between them hold, and each of these arrives.
#[test]
fn refused_datagrams_are_those_beyond_rate() {
    let datagrams = 20_000;
    let counts = counts_of(
        &lossless(1, PriorityMask::NONE),
        vec![source(1, BitRate::from_gbps(2), datagrams, 0)],
    )[0];
    assert_eq!(counts.sent + counts.refused, datagrams);
    assert!((9_700..10_900).contains(&counts.sent), "half, and what the buffers hold");
}

/// A VM that sends too much to one peer sends little to another one, in a priority of its own: in a
/// queue of its own nothing of that is refused; behind the other's frames, which are held, half of
/// it is.
#[test]
fn own_queue_waits_behind_no_other_priority() {
    let refused = |own_queues| {
        let sources = vec![
            source(2, BitRate::from_gbps(2), 20_000, 0),
            source(3, BitRate::from_mbps(100), 1_000, 3),
        ];
        let [much, little] = counts_of(&lossless(2, own_queues), sources)[..] else {
            unreachable!("two sources")
        };
        assert!(much.refused > 8_000, "the receiver holds its sender back: {much:?}");
        little.refused
    };
    assert_eq!(refused(PriorityMask(1 << 3)), 0);
    let behind = refused(PriorityMask::NONE);
    assert!(behind > 200, "{behind} of 1,000 were refused");
}
