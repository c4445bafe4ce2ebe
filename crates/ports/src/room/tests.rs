//! Every state with every answer.

use super::*;

const NOW: Nanos = Nanos(100);

/// A port that had room, one with a time of retry, and one that waits for an event.
fn all() -> [Room; 3] {
    [Waits::No, Waits::For(Nanos(5)), Waits::ForRoom].map(|waits| {
        let mut room = Room::default();
        room.offered(NOW, waits);
        room
    })
}

#[test]
fn a_port_is_due_when_its_time_is_over_or_a_descriptor_told() {
    for (mut room, later) in all().into_iter().zip([None, Some(Nanos(105)), Some(Nanos::MAX)]) {
        assert_eq!(room.deadline(), later);
        assert_eq!(room.is_due(NOW), later.is_none());
        assert_eq!(room.is_due(Nanos(105)), later != Some(Nanos::MAX));
        room.told();
        assert!(room.is_due(NOW));
        assert_eq!(room.is_missing(), later.is_some(), "only an offer finds out");
    }
}

#[test]
fn only_a_port_that_waits_for_room_itself_is_left_alone() {
    for room in all() {
        let is_missing = room.is_missing();
        let after = |answer, wants_write| {
            let mut room = room;
            let again = room.rested(answer, wants_write);
            (again, room)
        };
        for wants_write in [false, true] {
            assert_eq!(after(Rest::Told, wants_write), (false, room));
            let (again, served) = after(Rest::More, wants_write);
            assert!(again && served.is_due(NOW), "{room:?}");
        }
        let (again, left) = after(Rest::Armed, true);
        assert_eq!((again, left.is_due(NOW)), (false, !is_missing));
        let (again, served) = after(Rest::Armed, false);
        assert_eq!((again, served.is_due(NOW)), (is_missing, true), "nobody would tell of it");
    }
}
