//! A source that sends more than its receiver takes: the virtual switches hold it, and its socket
//! refuses the rest.

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::check::Checked;
use sluice_sim::net::Buffering;
use sluice_sim::overlay::{Limit, OverlayConfig, SAME_WEIGHT};
use sluice_sim::workload::{Gaps, Source, Sources};

use crate::network::Chain;

/// Payload of a datagram, and the size of its frame in a VM.
const DATAGRAM: u32 = 1_400;
const FRAME: u64 = 42 + 1_400;

/// A VM takes 1 Gbit/s, and its peer sends 2: half of the datagrams are sent, but for what the
/// buffers between them hold, and each of these arrives.
#[test]
fn refused_datagrams_are_those_beyond_rate() {
    let limit = |frames: u32| Limit { frames, bytes: ByteCount(u64::from(frames) * 1_600) };
    let (rate, delay, buffer) = (BitRate::from_gbps(10), Nanos(500), ByteCount(150_000));
    let mut config = Chain { pairs: 1, links: 2, rate, delay, buffer }.config();
    config.net.lossless = PriorityMask::ALL;
    config.net.buffering = Buffering::Input;
    config.overlay = Some(OverlayConfig {
        vms_per_host: 1,
        lossless: PriorityMask::ALL,
        service: SAME_WEIGHT,
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
    let datagrams = 20_000;
    let source = Source {
        from: 0,
        to: 1,
        bytes: DATAGRAM,
        gaps: Gaps::Poisson,
        gap: Nanos(FRAME * 8 / 2),
        first: Nanos::ZERO,
        datagrams,
        priority: Priority::ZERO,
    };
    let mut sources = Sources::new(vec![source], 5);
    let mut checked = Checked::new(&config, 200, "this test".to_owned()).expect("two hosts");
    checked.run_all(&mut [&mut sources], Nanos::from_millis(1_000)).expect("no violation");
    checked.drain(Nanos::from_millis(100)).expect("nothing is left");
    let counts = sources.total(checked.world());
    println!("{counts:?}");
    assert_eq!((counts.arrived, checked.world().summary().drops_congestion), (counts.sent, 0));
    assert_eq!(counts.sent + counts.refused, datagrams);
    assert!((9_700..10_900).contains(&counts.sent), "half, and what the buffers hold");
}
