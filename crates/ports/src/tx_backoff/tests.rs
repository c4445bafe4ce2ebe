//! Every state with every answer.

use super::*;

const NOW: Nanos = Nanos(100);

/// A port that had room, one with a time of retry, and one that waits for an event.
fn all() -> [TxBackoff; 3] {
    [Waits::No, Waits::For(Nanos(5)), Waits::ForRoom].map(|waits| {
        let mut room = TxBackoff::default();
        room.offered(NOW, waits);
        room
    })
}

#[test]
fn port_due_after_retry_time_or_event() {
    for (mut room, later) in all().into_iter().zip([None, Some(Nanos(105)), Some(Nanos::MAX)]) {
        assert_eq!(room.deadline(), later);
        assert_eq!(room.is_due(NOW), later.is_none());
        assert_eq!(room.is_due(Nanos(105)), later != Some(Nanos::MAX));
        room.note_event();
        assert!(room.is_due(NOW));
        assert_eq!(room.is_missing(), later.is_some(), "only an offer finds out");
    }
}

#[test]
fn port_offered_again_unless_armed_for_room() {
    for room in all() {
        let is_missing = room.is_missing();
        let after = |answer, wants_write| {
            let mut room = room;
            let again = room.note_armed(answer, wants_write);
            (again, room)
        };
        for wants_write in [false, true] {
            let (again, served) = after(ArmResult::More, wants_write);
            assert!(again && served.is_due(NOW), "{room:?}");
        }
        let (again, left) = after(ArmResult::Armed, true);
        assert_eq!((again, left.is_due(NOW)), (false, !is_missing));
        let (again, served) = after(ArmResult::Armed, false);
        assert_eq!((again, served.is_due(NOW)), (is_missing, true), "nobody would tell of it");
    }
}
