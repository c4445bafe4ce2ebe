use alloc::vec;
use alloc::vec::Vec;

use sluice_base::{Batch, DropReason, PortId, Priority};
use sluice_switch::{Counter, Egress, LaneKind, Taken};

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

/// Two containers; only B's address is known.
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
fn a_known_address_is_answered_once_and_then_in_the_chip() {
    let mut host = host();
    receive(&mut host, Nanos::ZERO, frame(A, B));
    assert!(!host.switch().has_work(Nanos::ZERO, PortId(1)), "it waits for the answer");
    assert_eq!(host.resolve(Nanos::ZERO, |_, _| {}), 1);
    assert_eq!(inspect::macs(host.switch()), [(VNET, B, Destination::Port(PortId(1)))]);
    receive(&mut host, Nanos::ZERO, frame(A, B));
    assert_eq!(host.resolve(Nanos::ZERO, |_, _| {}), 0);
    assert_eq!(host.switch_mut().transmit(Nanos::ZERO, PortId(1), &mut take_all), 2);
}

#[test]
fn nobody_waits_for_a_port_that_is_gone() {
    let mut host = host();
    host.switch_mut().detach(Nanos::ZERO, PortId(1));
    receive(&mut host, Nanos::ZERO, frame(A, B));
    assert_eq!(host.resolve(Nanos::ZERO, |_, _| {}), 0);
    let switch = host.switch();
    let input = switch.input(PortId(0), 0);
    let ended = switch.dropped(input, Priority::ZERO, DropReason::Unresolved);
    assert_eq!(ended, Counter { frames: 1, bytes: 100 });
}

#[test]
fn an_unknown_address_waits_and_ends_as_unresolved() {
    let mut host = host();
    receive(&mut host, Nanos::ZERO, frame(B, A));
    assert_eq!(host.resolve(Nanos::ZERO, |_, _| {}), 0);
    let count = Counter { frames: 1, bytes: 100 };
    let queue = Queue {
        source: Source::Port(PortId(0)),
        to: LaneKind::Unresolved(VNET, A),
        priority: Priority::ZERO,
        held: count,
    };
    assert_eq!(inspect::queues(host.switch()), [queue]);
    assert!(inspect::drops(host.switch()).is_empty());

    let mut turns = 0;
    while let Some(next) = host.switch().deadline() {
        host.switch_mut().advance(next);
        assert_eq!(host.resolve(next, |_, _| {}), 0);
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
fn a_port_shows_what_it_received_holds_and_sent() {
    let mut host = host();
    for _ in 0..3 {
        receive(&mut host, Nanos::ZERO, frame(A, B));
    }
    host.resolve(Nanos::ZERO, |_, _| {});
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
