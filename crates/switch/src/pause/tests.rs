use super::*;
use sluice_base::ByteCount;
use sluice_base::Mac;

fn sender() -> PauseSender {
    let config = PauseConfig {
        priorities: PriorityMask(0b1000_1000),
        xoff: ByteCount(1000),
        xon: ByteCount(400),
        link: BitRate::from_gbps(1),
        source: Mac([2, 0, 0, 0, 0, 1]),
    };
    PauseSender::new(config, Limit { frames: 20, bytes: ByteCount(2_000) })
}

#[test]
fn pause_weight_is_larger_of_bytes_and_frames() {
    let s = sender();
    assert_eq!((s.weight(3, 4_500), s.weight(10, 600), s.weight(0, 0)), (4_500, 1_000, 0));
}

fn p(n: u8) -> Priority {
    Priority::new(n).unwrap()
}

/// Sends the frame that is due and returns its priorities and quanta.
fn send(sender: &mut PauseSender, now: Nanos) -> Option<(u8, [u16; 8])> {
    if !sender.is_due(now) {
        return None;
    }
    let mut out = [0; FRAME_SIZE];
    sender.frame(now, &mut out);
    sender.sent(now);
    match Message::parse(&out[14..]) {
        Ok(Message::Pfc { enabled, quanta }) => Some((enabled.0, quanta)),
        other => panic!("{other:?}"),
    }
}

/// Every state with every event: (pausing before, event, pausing after, a frame is due).
#[test]
fn the_receiving_side_has_two_states() {
    type Event = fn(&mut PauseSender);
    let table: [(bool, Event, bool, bool); 6] = [
        (false, |s| s.rose(p(3), 999), false, false),
        (false, |s| s.rose(p(3), 1000), true, true),
        (false, |s| s.fell(p(3), 0), false, false),
        (true, |s| s.rose(p(3), 5000), true, false),
        (true, |s| s.fell(p(3), 401), true, false),
        (true, |s| s.fell(p(3), 400), false, true),
    ];
    for (at, (before, event, after, due)) in table.into_iter().enumerate() {
        let mut s = sender();
        if before {
            s.rose(p(3), 1000);
            send(&mut s, Nanos::ZERO);
        }
        event(&mut s);
        assert_eq!((s.pausing.contains(p(3)), s.is_due(Nanos::ZERO)), (after, due), "row {at}");
    }
}

#[test]
fn a_priority_without_flow_control_is_never_paused() {
    let mut s = sender();
    s.rose(p(0), u64::MAX);
    assert!(!s.is_due(Nanos::MAX));
}

#[test]
fn xoff_is_refreshed_before_expiry_until_xon() {
    let mut s = sender();
    s.rose(p(3), 1000);
    let (enabled, quanta) = send(&mut s, Nanos::ZERO).unwrap();
    assert_eq!((enabled, quanta[3]), (0b1000, 0xffff));
    let refresh = s.deadline().unwrap();
    let lapse = pause_time(0xffff, BitRate::from_gbps(1));
    assert_eq!(refresh.0, lapse.0 / 4, "a stall of three quarters is no gap");
    assert_eq!(send(&mut s, Nanos(refresh.0 - 1)), None);
    // A second priority joins, and the frame covers both.
    s.rose(p(7), 1000);
    assert_eq!(send(&mut s, Nanos(refresh.0 - 1)).unwrap().0, 0b1000_1000);
    s.fell(p(3), 0);
    let (enabled, quanta) = send(&mut s, refresh).unwrap();
    assert_eq!((enabled, quanta[3]), (0b1000, 0));
    s.fell(p(7), 0);
    send(&mut s, refresh).unwrap();
    assert_eq!(s.deadline(), None);
    assert_eq!((s.xoff_sent[3], s.xon_sent[3], s.xon_sent[7]), (2, 1, 1));
}

/// Every state with every event: (paused before, quanta received, paused after).
#[test]
fn xon_of_one_priority_has_no_time_of_another() {
    let mut s = sender();
    s.rose(p(3), 1000);
    s.rose(p(7), 1000);
    assert_eq!(send(&mut s, Nanos::ZERO), Some((0b1000_1000, [0, 0, 0, 0xffff, 0, 0, 0, 0xffff])));
    s.fell(p(3), 0);
    assert_eq!(send(&mut s, Nanos::ZERO), Some((0b1000, [0; 8])));
}

#[test]
fn sender_with_repeated_pauses_applies_last_one() {
    for (before, quanta, after) in
        [(false, 0, false), (false, 10, true), (true, 0, false), (true, 10, true)]
    {
        let mut r = PauseReceiver::new(true, BitRate::from_gbps(1));
        let message = |quanta: u16| Message::Pfc { enabled: PriorityMask(8), quanta: [quanta; 8] };
        if before {
            r.receive(Nanos::ZERO, &message(0xffff));
        }
        r.receive(Nanos(1), &message(quanta));
        assert_eq!(r.paused.contains(p(3)), after, "{before} {quanta}");
        assert!(!r.paused.contains(p(2)));
        // Ten quanta of 512 bits at 1 Gbit/s.
        r.expire(Nanos(1 + 5_119));
        assert_eq!(r.paused.contains(p(3)), after);
        r.expire(Nanos(1 + 5_120));
        assert!(!r.paused.contains(p(3)));
    }
}

/// A reader in software that stalls between two refreshes, time after time.
#[test]
fn longest_pause_with_late_refresh_never_lapses() {
    for link in [BitRate::from_gbps(1), LINK_DEFAULT] {
        let mut r = PauseReceiver::new(true, link);
        let mut s = sender();
        s.config.link = link;
        s.rose(p(3), 1000);
        let mut now = Nanos::ZERO;
        for _ in 0..20 {
            assert!(s.is_due(now));
            r.receive(now, &s.message(now));
            s.sent(now);
            let refresh = s.deadline().unwrap();
            // The frame was due, and comes after a stall of 50 ms.
            now = refresh.after(Nanos::from_millis(50));
            r.expire(now);
            assert!(r.paused.contains(p(3)), "{now}");
        }
        s.fell(p(3), 0);
        r.receive(now, &s.message(now));
        assert!(r.paused.is_empty(), "XON ends it at once");
    }
}

#[test]
fn pause_grace_withdrawn_after_one_lapse_without_xon() {
    let mut r = PauseReceiver::new(true, BitRate::from_gbps(1));
    let longest = Message::Pfc { enabled: PriorityMask(8), quanta: [0xffff; 8] };
    let lapse = pause_time(0xffff, BitRate::from_gbps(1));
    let mut kept = |now: Nanos, xon: bool| {
        r.receive(now, &longest);
        let until = r.deadline(PriorityMask(8)).unwrap();
        if xon {
            r.receive(now, &Message::Pfc { enabled: PriorityMask(8), quanta: [0; 8] });
        }
        r.expire(until);
        assert!(r.paused.is_empty());
        until.since(now)
    };
    let graced = lapse.after(GRACE);
    assert_eq!(kept(Nanos(0), true), graced);
    assert_eq!(kept(Nanos(1_000_000_000), false), graced);
    assert_eq!(kept(Nanos(2_000_000_000), false), lapse);
    assert_eq!(kept(Nanos(3_000_000_000), true), lapse);
    assert_eq!(kept(Nanos(4_000_000_000), true), graced);
}

/// The neighbour stalled once for longer than the sender waits.
#[test]
fn pause_grace_restored_when_peer_refreshes_pause() {
    let mut r = PauseReceiver::new(true, BitRate::from_gbps(1));
    let longest = Message::Pfc { enabled: PriorityMask(8), quanta: [0xffff; 8] };
    let lapse = pause_time(0xffff, BitRate::from_gbps(1));
    r.receive(Nanos(0), &longest);
    r.expire(Nanos(1_000_000_000));
    let again = Nanos(1_000_000_001);
    r.receive(again, &longest);
    assert_eq!(r.deadline(PriorityMask(8)), Some(again.after(lapse)));
    let repeated = again.after(Nanos(lapse.0 / 4));
    r.receive(repeated, &longest);
    assert_eq!(r.deadline(PriorityMask(8)), Some(repeated.after(lapse).after(GRACE)));
}

#[test]
fn pause_802_3_stops_all_priorities_counts_time() {
    let mut r = PauseReceiver::new(true, BitRate::from_gbps(1));
    r.receive(Nanos(100), &Message::Pause { quanta: 1 });
    assert_eq!(r.paused, PriorityMask::ALL);
    assert_eq!(r.deadline(PriorityMask(1)), Some(Nanos(612)));
    r.expire(Nanos(10_000));
    assert_eq!(r.paused_time(Nanos(10_000), p(0)), Nanos(512));
}

#[test]
fn paused_time_excludes_gap_after_unseen_lapse() {
    for quanta in [0, 1] {
        let mut r = PauseReceiver::new(true, BitRate::from_gbps(1));
        r.receive(Nanos(0), &Message::Pause { quanta: 1 });
        r.receive(Nanos(10_000), &Message::Pause { quanta });
        r.expire(Nanos(20_000));
        let total = Nanos(512 + 512 * u64::from(quanta));
        assert_eq!(r.paused_time(Nanos(20_000), p(0)), total);
    }
}

#[test]
fn pause_without_flow_control_is_counted_but_ignored() {
    let mut r = PauseReceiver::new(false, LINK_DEFAULT);
    r.receive(Nanos(0), &Message::Pause { quanta: 0xffff });
    assert!(r.paused.is_empty() && r.received[0] == 1);
}
