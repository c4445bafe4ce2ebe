//! Migrations that are given up midway.

use std::fs::File;
use std::sync::Arc;

use sluice_base::DropReason;

use super::super::odd::Odd;
use super::super::several::start_with;
use super::*;

#[test]
fn unwatchable_port_given_up_frames_dropped_senders_free() {
    let is_so = Arc::new(AtomicBool::new(false));
    let running = start_with(&containers(4, 64), &[0, 1, 1, 0], 64, |_, port| {
        let file = File::open("/proc/self/exe").unwrap();
        Box::new(Odd { unwatchable: Some((file, Arc::clone(&is_so))), ..Odd::of(port) })
    });
    let mover = Mover::new(running.askers.clone(), PATIENCE);
    is_so.store(true, Ordering::Release);
    assert!(!mover.go(PortId(0), 0, 1).unwrap(), "it can be watched nowhere");
    // Frames for the port are dropped, from either worker, and no sender is held.
    let send = |from, to, number| {
        let until = Instant::now() + PATIENCE;
        while !running.send(from, to, number) {
            assert!(Instant::now() < until, "{from} is held by a port that is gone");
            std::thread::yield_now();
        }
    };
    let count = 2_000;
    (0..count).for_each(|number| [1, 3].into_iter().for_each(|from| send(from, 0, number)));
    for (from, to) in [(1, 3), (3, 2), (2, 1)] {
        send(from, to, 7);
        assert_eq!(number(&running.receive(to)), 7);
    }
    // The worker that lost the port does not even know the address.
    let ways = [DropReason::Stopped, DropReason::Unresolved];
    let until = Instant::now() + PATIENCE;
    loop {
        let Body::Drops(drops) = running.ask(Question::Drops) else { panic!("drops") };
        assert!(drops.iter().all(|drop| ways.contains(&drop.reason)), "{drops:?}");
        let frames: u64 = drops.iter().map(|drop| drop.count.frames).sum();
        if frames == 2 * u64::from(count) {
            break;
        }
        assert!(Instant::now() < until, "all of them end: {drops:?}");
    }
    running.end();
}

#[test]
fn port_move_refused_while_host_status_is_read() {
    let running = start(&containers(2, 64), &[0, 1], 64);
    let mover = Mover::new(running.askers.clone(), PATIENCE);
    let steady = running.askers.steady();
    let (reply, answer) = sync_channel(1);
    let moving = std::thread::spawn(move || {
        _ = reply.send(mover.go(PortId(0), 0, 1).unwrap());
        mover
    });
    let went = answer.recv_timeout(PATIENCE);
    drop(steady);
    let mover = moving.join().unwrap();
    assert_eq!(went, Ok(false), "it stays meanwhile");
    for number in 0..100 {
        assert!(running.send(0, 1, number) && running.send(1, 0, number));
        let received = [0, 1].map(|to| super::number(&running.receive(to)));
        assert_eq!(received, [number; 2]);
    }
    assert!(mover.go(PortId(0), 0, 1).unwrap(), "and goes then");
    running.no_drops();
    running.end();
}
