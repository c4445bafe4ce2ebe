use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Batch, DropReason, PortId, Priority, PriorityMask};
use sluice_switch::{Counter, Egress, PortConfig, QueueGroupKind, Sink, Taken};

use super::*;
use crate::inspect::{Dropped, Queue, Source};

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
const VNET: VnetId = VnetId(0);

fn frame(src: Mac, dst: Mac) -> Vec<u8> {
    let mut frame = vec![0; 100];
    frame[..6].copy_from_slice(&dst.0);
    frame[6..12].copy_from_slice(&src.0);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Returns a host with two containers; only B's address is known.
fn host() -> Host<Vec<u8>> {
    let config = rig::host(vec![rig::container(8), rig::container(8)], &[]);
    let known = [(VNET, B, Destination::Port(PortId(1)))];
    Host::new(&config, known, 1, Nanos::ZERO).unwrap()
}

fn receive(host: &mut Host<Vec<u8>>, now: Nanos, frame: Vec<u8>) {
    let input = host.switch().input(PortId(0), 0);
    let mut batch = Batch::with_limit(1);
    batch.push(frame).unwrap();
    host.switch_mut().receive(now, input, &mut batch);
}

fn take_all(_: &Egress<'_, Vec<u8>>) -> Taken {
    Taken::All
}

#[test]
fn known_address_resolved_once_then_forwarded_by_fdb() {
    let mut host = host();
    receive(&mut host, Nanos::ZERO, frame(A, B));
    assert!(!host.switch().has_work(Nanos::ZERO, PortId(1)), "it waits for the answer");
    assert_eq!(host.resolve(Nanos::ZERO, |_| {}), 1);
    assert_eq!(inspect::macs(host.switch()), [(VNET, B, Destination::Port(PortId(1)))]);
    receive(&mut host, Nanos::ZERO, frame(A, B));
    assert_eq!(host.resolve(Nanos::ZERO, |_| {}), 0);
    assert_eq!(host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut take_all), 2);
}

#[test]
fn nobody_waits_for_a_port_that_is_gone() {
    let mut host = host();
    host.switch_mut().detach(Nanos::ZERO, PortId(1));
    receive(&mut host, Nanos::ZERO, frame(A, B));
    assert_eq!(host.resolve(Nanos::ZERO, |_| {}), 0);
    let switch = host.switch();
    let input = switch.input(PortId(0), 0);
    let ended = switch.dropped(input, Priority::ZERO, DropReason::Unresolved);
    assert_eq!(ended, Counter { frames: 1, bytes: 100 });
}

#[test]
fn an_unknown_address_waits_and_ends_as_unresolved() {
    let mut host = host();
    receive(&mut host, Nanos::ZERO, frame(B, A));
    assert_eq!(host.resolve(Nanos::ZERO, |_| {}), 0);
    let count = Counter { frames: 1, bytes: 100 };
    let queue = Queue {
        source: Source::Port(PortId(0)),
        to: QueueGroupKind::Unresolved(VNET, A),
        priority: Priority::ZERO,
        held: count,
    };
    assert_eq!(inspect::queues(host.switch()), [queue]);
    assert!(inspect::drops(host.switch()).is_empty());

    let mut turns = 0;
    while let Some(next) = host.switch().deadline() {
        host.switch_mut().advance(next);
        assert_eq!(host.resolve(next, |_| {}), 0);
        turns += 1;
        assert!(turns < 100, "asking again ends");
    }
    let (port, priority, reason) = (Some(PortId(0)), Priority::ZERO, DropReason::Unresolved);
    assert_eq!(inspect::drops(host.switch()), [Dropped { port, priority, reason, count }]);
    assert!(inspect::queues(host.switch()).is_empty());
    assert!(host.switch().audit().is_closed());
}

#[test]
fn the_first_of_two_answers_counts() {
    let to = |port| Destination::Port(PortId(port));
    let resolver = Resolver::new([(VNET, B, to(1)), (VNET, A, to(2)), (VNET, B, to(3))]);
    assert_eq!(resolver.find(VNET, B), Some(to(1)));
    assert_eq!(resolver.find(VNET, A), Some(to(2)));
    assert_eq!(resolver.find(VnetId(1), A), None);
}

#[test]
fn port_counters_show_received_held_and_sent_frames() {
    let mut host = host();
    for _ in 0..3 {
        receive(&mut host, Nanos::ZERO, frame(A, B));
    }
    host.resolve(Nanos::ZERO, |_| {});
    let mut room = 1;
    host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut |_: &Egress<'_, Vec<u8>>| {
        room -= 1;
        if room < 0 { Taken::No } else { Taken::All }
    });
    let from = inspect::port(host.switch(), PortId(0), 1);
    assert_eq!((from.received.frames, from.held.frames, from.held_max.frames_max), (3, 2, 3));
    let to = inspect::port(host.switch(), PortId(1), 1);
    assert_eq!((to.sent.frames, to.queued.frames, to.queued_max.frames_max), (1, 2, 3));
    assert!(inspect::pauses(host.switch(), Nanos::ZERO, [PortId(0), PortId(1)]).is_empty());
    assert!(inspect::tunnels(host.switch(), 0).is_empty());
}

/// Returns a host whose first port has a second queue, of priorities 3 and 5.
fn two_queues() -> Host<Vec<u8>> {
    let mut of_two = PriorityMask::NONE;
    [3, 5].iter().for_each(|p| of_two.insert(Priority::from_low_bits(*p)));
    let mut first = PortConfig { queues: 2, ..rig::container(8) };
    first.queue_priorities[1] = of_two;
    let config = rig::host(vec![first, rig::container(8)], &[]);
    let known = [(VNET, B, Destination::Port(PortId(1)))];
    let mut host = Host::new(&config, known, 1, Nanos::ZERO).unwrap();
    receive_by(&mut host, 0, &[frame(A, B)]);
    host.resolve(Nanos::ZERO, |_| {});
    assert_eq!(host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut take_all), 1);
    host
}

fn receive_by(host: &mut Host<Vec<u8>>, queue: u8, frames: &[Vec<u8>]) {
    let input = host.switch().input(PortId(0), queue);
    let mut batch = Batch::with_limit(8);
    frames.iter().for_each(|frame| batch.push(frame.clone()).unwrap());
    host.switch_mut().receive(Nanos::ZERO, input, &mut batch);
}

/// Returns an IPv4 frame whose DSCP gives a priority.
fn marked(priority: u8) -> Vec<u8> {
    let mut frame = frame(A, B);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    (frame[14], frame[15]) = (0x45, priority << 5);
    frame
}

#[test]
fn queue_frames_get_priority_allowed_for_queue() {
    // One at a time, and together.
    for at_a_time in [1, 4] {
        let mut host = two_queues();
        let said = [0, 3, 5, 7].map(marked);
        for queue in [0, 1] {
            said.chunks(at_a_time).for_each(|frames| receive_by(&mut host, queue, frames));
        }
        let mut seen = Vec::new();
        host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut |frame: &Egress<'_, Vec<u8>>| {
            let said = frame.buf.unwrap()[15] >> 5;
            seen.push((said, frame.priority.get()));
            Taken::All
        });
        seen.sort_unstable();
        // Frames of the first queue have the priority that they carry, those of the second queue
        // one that it may have.
        let expected = [(0, 0), (0, 3), (3, 3), (3, 3), (5, 5), (5, 5), (7, 3), (7, 7)];
        assert_eq!(seen, expected, "{at_a_time} at a time");
    }
}

/// A driver that has no room for some priorities.
struct Picky {
    full: PriorityMask,
    taken: Vec<u8>,
    offered: usize,
}

impl Sink<Vec<u8>> for Picky {
    fn offer(&mut self, frame: &Egress<'_, Vec<u8>>) -> Taken {
        self.offered += 1;
        if self.full.contains(frame.priority) {
            return Taken::No;
        }
        self.taken.push(frame.priority.get());
        Taken::All
    }

    fn refuses(&self) -> PriorityMask {
        self.full
    }
}

#[test]
fn a_priority_without_room_stops_no_other() {
    let mut host = two_queues();
    receive_by(&mut host, 0, &[5, 0, 3, 5, 7, 3, 0].map(marked));
    let mut full = PriorityMask::NONE;
    [3, 7].iter().for_each(|p| full.insert(Priority::from_low_bits(*p)));
    let mut driver = Picky { full, taken: Vec::new(), offered: 0 };
    assert_eq!(host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut driver), 4);
    driver.taken.sort_unstable();
    assert_eq!((driver.taken, driver.offered <= 4 + 2), (vec![0, 0, 5, 5], true));
    assert!(host.switch().has_work(Nanos::ZERO, PortId(1)), "the others wait");
    let mut driver = Picky { full: PriorityMask::ALL, taken: Vec::new(), offered: 0 };
    assert_eq!(host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut driver), 0);
    assert_eq!(driver.offered, 1, "who has no room for anything is asked once");
    assert_eq!(host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut take_all), 3);
}
