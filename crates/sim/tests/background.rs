//! Background traffic whose sockets block.

use sluice_base::{BitRate, ByteCount, Nanos, Priority, PriorityMask};
use sluice_sim::check::Checked;
use sluice_sim::events::Ties;
use sluice_sim::net::{Buffering, NetConfig};
use sluice_sim::overlay::{Limit, OverlayConfig, SAME_WEIGHT};
use sluice_sim::topology::{Cable, Node, Topology};
use sluice_sim::workload::draw::Sizes;
use sluice_sim::workload::{Background, BackgroundTraffic, Carrier, Full};
use sluice_sim::world::{Notice, Summary, Workload, World, WorldConfig};

const LINK: BitRate = BitRate::from_gbps(10);
/// Bytes of every flow, but for one.
const FLOW: u64 = 100_000;
/// Time in which flows begin.
const BEGIN: Nanos = Nanos::from_micros(200);

/// Two hosts with a VM each behind a lossless virtual switch, and a switch between them.
fn two_hosts() -> WorldConfig {
    let cable =
        |host| Cable { a: Node::Host(host), b: Node::Switch(0), rate: LINK, delay: Nanos(500) };
    let limit = |kb: u64| Limit { frames: 256, bytes: ByteCount(kb * 1_000) };
    WorldConfig {
        topology: Topology { hosts: 2, switches: 1, cables: vec![cable(0), cable(1)] },
        net: NetConfig {
            lossless: PriorityMask::ALL,
            buffer: ByteCount(103_000),
            buffering: Buffering::Input,
            xoff: ByteCount(80_000),
            xon: ByteCount(60_000),
            mark: None,
            latency: Nanos(100),
            pause_response: Nanos::ZERO,
            overhead: 24,
            frame_max: 1_518,
        },
        overlay: Some(OverlayConfig {
            vms_per_host: 1,
            lossless: PriorityMask::ALL,
            service: SAME_WEIGHT,
            own_queues: PriorityMask::NONE,
            mtu: 1_446,
            vm_in: limit(100),
            vm_out: limit(100),
            vm_rate: None,
            card_in: limit(512),
            card_out: limit(100),
            pool: limit(400),
            card_pause: Some((ByteCount(400_000), ByteCount(300_000))),
            card_priorities: PriorityMask::ALL,
        }),
        send_latency: Nanos::from_micros(9),
        receive_latency: Nanos::from_micros(24),
        seed: 1,
        ties: Ties::Fifo,
    }
}

/// Background traffic in which no flow begins after some time.
#[derive(Debug)]
struct Ending(BackgroundTraffic);

impl Workload for Ending {
    fn start(&mut self, world: &mut World) {
        self.0.start(world);
    }

    fn happened(&mut self, world: &mut World, notice: Notice) {
        match notice {
            // The tokens of the two stations.
            Notice::Time(0 | 1) if world.now() > BEGIN => {}
            notice => self.0.happened(world, notice),
        }
    }

    fn is_done(&self) -> bool {
        self.0.flows() > 0 && self.0.flows_open() == 0
    }
}

/// A hundred sockets of a VM send at the rate of its link, each. All get their turn, and a waiting
/// socket costs nothing: an event for every datagram's time would be fifty times as many.
#[test]
fn blocked_sockets_wait_for_room_not_timer() {
    let (traffic, summary) = run(Full::Wait);
    let flows = traffic.flows();
    let datagrams = flows * FLOW.div_ceil(1_400);
    assert_eq!(traffic.refused(), 0);
    assert_eq!(summary.hops, 2 * datagrams, "each passes two links, and nothing was paused");
    assert!(summary.events < 12 * datagrams, "{} events, {datagrams} datagrams", summary.events);
}

/// Senders that drop do not wait: every datagram is sent or counted, and the link is full all the
/// same.
#[test]
fn dropping_senders_count_what_they_drop() {
    let (traffic, summary) = run(Full::Drop);
    let datagrams = traffic.flows() * FLOW.div_ceil(1_400);
    assert!(traffic.refused() > datagrams / 2, "{} of {datagrams}", traffic.refused());
    assert_eq!(summary.hops, 2 * (datagrams - traffic.refused()));
}

/// Runs the traffic of two hosts to its end.
fn run(full: Full) -> (BackgroundTraffic, Summary) {
    let sizes =
        Sizes { name: "alike", source: "this test", points: &[(FLOW - 1, 0), (FLOW, 1_000_000)] };
    let mut traffic = Ending(BackgroundTraffic::new(Background {
        carrier: Carrier::Udp { bytes: 1_400, rate: LINK, full },
        sizes,
        stations: vec![0, 1],
        gap: Nanos::from_micros(2),
        priority: Priority::ZERO,
        seed: 7,
    }));
    let mut checked = Checked::new(&two_hosts(), 50, "this test".to_owned()).unwrap();
    checked.run_all(&mut [&mut traffic], Nanos::from_millis(100)).unwrap();
    checked.drain(Nanos::from_millis(100)).unwrap();
    let flows = traffic.0.flows();
    assert!(flows > 100, "{flows} flows have begun");
    assert_eq!(traffic.0.flows_open(), 0, "all of them have sent all");
    let summary = checked.world().summary();
    assert_eq!(summary.drops_congestion, 0);
    (traffic.0, summary)
}
