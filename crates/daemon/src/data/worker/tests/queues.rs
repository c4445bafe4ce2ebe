//! Ports of several queue pairs: a guest's frames of one pair do not wait for its frames of
//! another.

use std::fmt::Write as _;

use sluice_testkit::guest::{Descriptor, Guest, GuestConfig, feature};

use super::guests::Folder;
use super::planned::{self, Host};
use super::*;

/// Makes a host of guests with these numbers of queue pairs, and ports of two: priorities 0 to 3,
/// and 4 to 7.
fn host(pairs: &[usize]) -> Host {
    let dir = Folder::new();
    // A receiver that is held for a second is no culprit here: on a busy machine it takes longer.
    let mut text =
        "[host]\nname = \"t\"\nisolate_after_ms = 0\n[[vnet]]\nname = \"blue\"\n".to_owned();
    for n in 0..pairs.len() {
        let socket = dir.join(&n.to_string());
        let (socket, mac) = (socket.display(), mac(n));
        write!(
            text,
            "[[port]]\nname = \"vm{n}\"\nkind = \"vhost-user\"\nvnet = \"blue\"\nmac = \"{mac}\"\n\
             socket = \"{socket}\"\nqueues = [[0, 1, 2, 3], [4, 5, 6, 7]]\n"
        )
        .unwrap();
    }
    let guest = |&queue_pairs: &usize| GuestConfig { queue_pairs, ..GuestConfig::default() };
    planned::host(dir, &text, pairs.iter().map(guest))
}

impl Host {
    fn send(&mut self, (from, pair): (usize, usize), to: usize, number: u32) -> bool {
        self.guests[from].pair(pair).sender.send(&frame(from, to, number))
    }

    /// Sends by a pair to a receiver that takes nothing, until the pair is held. Returns the number
    /// of frames sent.
    fn fill_by(&mut self, by: (usize, usize), to: usize) -> u32 {
        self.until_held(|host, number| host.send(by, to, number))
    }

    /// Sends `count` frames by a pair and expects each of them at the receiver.
    fn pass(&mut self, by: (usize, usize), at: (usize, usize), count: u32) {
        let until = Instant::now() + PATIENCE;
        for number in 0..count {
            while !self.send(by, at.0, number) {
                assert!(Instant::now() < until, "guest {} is held in pair {}", by.0, by.1);
                std::thread::yield_now();
            }
            assert_eq!(super::number(&self.receive(at.0, at.1)), number, "by {by:?} to {at:?}");
        }
    }

    fn expect(&mut self, at: (usize, usize), count: u32) {
        for number in 0..count {
            assert_eq!(
                super::number(&self.receive(at.0, at.1)),
                number,
                "in order, once, and none lost"
            );
        }
    }

    fn problem(&self, port: usize) -> Option<String> {
        self.port(port).outside.state().device.problem.clone()
    }

    fn port(&self, port: usize) -> snapshot::PortShot {
        let Body::Ports(ports) = self.running.ask(Question::Ports) else { panic!("ports") };
        ports.into_iter().nth(port).unwrap()
    }

    fn end_without_drops(self) {
        assert_eq!(self.drops(), []);
        self.end();
    }
}

#[test]
fn blocked_queue_holds_no_other_queue_of_guest() {
    let mut host = host(&[2, 2, 2]);
    // Guest 1 takes nothing from one of its queues, each in turn.
    for (held, free) in [(1, 0), (0, 1)] {
        let sent = host.fill_by((0, held), 1);
        assert!(sent >= 512, "{sent}: the receiver's ring and the sender's");
        host.pass((0, free), (1, free), 300);
        host.pass((0, free), (2, free), 300);
        // Others reach its free queue, too.
        host.pass((2, free), (1, free), 300);
        host.expect((1, held), sent);
        host.pass((0, held), (1, held), 300);
    }
    host.end_without_drops();
}

#[test]
fn receiver_with_fewer_queues_served_by_first_queue() {
    let mut host = host(&[2, 1, 2]);
    host.pass((0, 1), (1, 0), 300);
    host.pass((0, 0), (1, 0), 300);
    host.pass((1, 0), (0, 0), 300);
    // Queues are enabled and disabled while frames pass, as by a driver that changes its mind.
    for _ in 0..5 {
        host.guests[0].enable(2, false).unwrap();
        host.guests[0].enable(3, false).unwrap();
        host.pass((1, 0), (0, 0), 20);
        host.pass((2, 1), (0, 0), 20);
        assert!(host.send((0, 1), 1, 0), "its ring is there all the same");
        host.guests[0].enable(2, true).unwrap();
        host.guests[0].enable(3, true).unwrap();
        assert_eq!(number(&host.receive(1, 0)), 0, "what was in it goes when it may");
        host.pass((0, 1), (1, 0), 20);
        host.pass((2, 1), (0, 1), 20);
    }
    host.end_without_drops();
}

#[test]
fn a_ring_that_stops_leaves_the_others() {
    let mut host = host(&[2, 2]);
    for _ in 0..5 {
        // Frames in the switch lie in that memory: frames copied into the pool are not lost.
        let sent = 256 + 20;
        for number in 0..sent {
            let until = Instant::now() + PATIENCE;
            while !host.send((0, 1), 1, number) {
                assert!(Instant::now() < until, "frame {number} has room");
            }
        }
        let until = Instant::now() + PATIENCE;
        while host.port(0).state.held.frames < 20 {
            assert!(Instant::now() < until, "the switch holds what has no room");
        }
        host.guests[0].stop_ring(3).unwrap();
        host.pass((0, 0), (1, 0), 100);
        host.pass((1, 0), (0, 0), 100);
        host.pass((1, 1), (0, 1), 100);
        host.guests[0].start_ring(3).unwrap();
        host.expect((1, 1), sent);
        host.pass((0, 1), (1, 1), 100);
    }
    // A receive queue stops: its frames arrive through the first one.
    host.guests[1].stop_ring(2).unwrap();
    host.pass((0, 1), (1, 0), 100);
    host.guests[1].start_ring(2).unwrap();
    host.pass((0, 1), (1, 1), 100);
    host.end_without_drops();
}

#[test]
fn queue_with_invalid_descriptor_stops_alone() {
    let mut host = host(&[2, 2]);
    host.pass((0, 1), (1, 1), 100);
    let ring = host.guests[0].pair(1).sender.ring();
    ring.put_descriptor(0, Descriptor { addr: u64::MAX, len: 60, flags: 0, next: 0 });
    let at = ring.avail_idx();
    ring.put_avail(at, 0);
    ring.put_avail_idx(at.wrapping_add(1));
    ring.kick();
    let until = Instant::now() + PATIENCE;
    while host.problem(0).is_none() {
        assert!(Instant::now() < until, "somebody notices");
    }
    assert!(host.problem(0).unwrap().contains("not shared memory"));
    host.pass((0, 0), (1, 0), 300);
    host.pass((1, 0), (0, 0), 300);
    host.end_without_drops();
}

#[test]
fn queues_are_offered_as_many_as_there_are() {
    let mut host = host(&[2, 1]);
    // The front end of the port may come again, with another machine.
    host.guests[0].hang_up();
    let path = host.folder.join("0");
    let of = |queue_pairs| GuestConfig { queue_pairs, required: feature::MQ, ..Default::default() };
    // The refusal may come at its next request, or the guest may find that nobody listens any more.
    let refused = Guest::connected(of(3), &path);
    let until = Instant::now() + PATIENCE;
    let is_said =
        |host: &Host| host.problem(0).is_some_and(|said| said.contains("ring 4: this port has 4"));
    while !is_said(&host) {
        assert!(Instant::now() < until, "{:?}", host.problem(0));
    }
    drop(refused);
    host.guests[0] = Guest::connected(of(2), &path).unwrap();
    host.pass((0, 1), (1, 0), 100);
    host.end_without_drops();
}
