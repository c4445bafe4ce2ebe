//! Delayed acknowledgements: a message of one segment is acknowledged when the delay is over, and
//! times out before that if the sender waits for less.

use std::sync::Arc;

use sluice_base::{BitRate, ByteCount, Nanos, Priority};
use sluice_sim::tcp::{Algorithm, Config};
use sluice_sim::world::{Connect, Notice, Workload, World};

use crate::network::{Chain, FULL_WIRE};

/// One message of a full segment, on a connection without a handshake.
#[derive(Debug)]
struct Message {
    tcp: Arc<Config>,
    acknowledged: Option<Nanos>,
}

impl Workload for Message {
    fn start(&mut self, world: &mut World) {
        let with = Connect { from: 0, to: 1, priority: Priority::ZERO, flow: 1, handshake: false };
        let id = world.connect(&self.tcp, &with).expect("a path");
        world.tell_acknowledged(id.client());
        world.write(id.client(), 1_460);
    }

    fn happened(&mut self, world: &mut World, _notice: Notice) {
        self.acknowledged = Some(world.now());
    }

    fn is_done(&self) -> bool {
        self.acknowledged.is_some()
    }
}

/// Returns the time at which the message is acknowledged, and the number of time-outs.
fn one_message(config: Config) -> (Nanos, u32) {
    let rate = BitRate::from_gbps(10);
    let chain = Chain { pairs: 1, links: 2, rate, delay: Nanos(1_000), buffer: ByteCount(100_000) };
    let mut world = World::new(&chain.config()).expect("a chain that works");
    let mut message = Message { tcp: Arc::new(config), acknowledged: None };
    world.run(&mut message, Nanos::from_millis(1_000));
    let timeouts = world.summary().tcp.timeouts;
    (message.acknowledged.expect("acknowledged"), u32::try_from(timeouts).expect("a few"))
}

/// Frames take a byte's time for each byte of the wire, rounded up; an acknowledgement has
/// 84 bytes.
#[test]
fn single_segment_waits_for_ack_delay() {
    let bits = |bytes: u64| (bytes * 8).div_ceil(10);
    let path = 2 * (bits(FULL_WIRE) + 1_000) + 2 * (bits(84) + 1_000);
    let freebsd9 = Config::freebsd9(Algorithm::NewReno);
    let profile = one_message(freebsd9.clone());
    assert_eq!(profile, (Nanos(path + 10_000_000), 0), "10 ms, less than 2 + 20 ms");
    let short = Config { rto_slop: Nanos::ZERO, ack_delay: Nanos(1_900_000), ..freebsd9 };
    assert!(!short.ack_delay_outlasts_rto());
    let first = Config { rto_initial: short.rto_min, ..short };
    assert_eq!(one_message(first.clone()), (Nanos(path + 1_900_000), 0));
    let long = Config { ack_delay: Nanos::from_millis(10), ..first.clone() };
    assert!(long.ack_delay_outlasts_rto());
    assert_eq!(one_message(long.clone()).1, 1, "nothing is lost, and the sender waits for 2 ms");
    let each = Config { ack_every: 1, ..long };
    assert!(!each.ack_delay_outlasts_rto());
    assert_eq!(one_message(each), (Nanos(path), 0));
    let quick = Config { ack_every: 2, quick_acks: 1, ..first };
    assert_eq!(one_message(quick), (Nanos(path), 0));
}
