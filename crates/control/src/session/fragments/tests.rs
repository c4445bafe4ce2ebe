use std::string::ToString;
use std::vec;

use proptest::prelude::*;

use super::*;

fn up() -> Fragments {
    let mut fragments = Fragments::new();
    fragments.up(true);
    fragments
}

/// Returns the frames that are written with a budget.
fn written(fragments: &mut Fragments, budget: usize) -> Vec<u8> {
    let mut out = Vec::new();
    fragments.write(budget, &mut out);
    assert!(out.len() <= budget);
    out
}

/// Hands frames to the peer.
fn deliver(to: &mut Fragments, mut frames: &[u8]) -> Result<(), Error> {
    while let Some((message, size)) = Message::parse(frames).unwrap() {
        let Message::Fragment(fragment) = message else { panic!("{message:?}") };
        to.take(&fragment)?;
        frames = &frames[size..];
    }
    Ok(())
}

fn fragment(message: u32, total: u32, offset: u32, bytes: &[u8]) -> Fragment<'_> {
    Fragment { message, total, offset, bytes }
}

#[test]
fn large_message_arrives_whole_by_windows() {
    let (mut a, mut b) = (up(), up());
    let message: Vec<u8> = (0..MESSAGE_SIZE_MAX).map(|n| n.to_le_bytes()[1]).collect();
    a.send(message.clone().into()).unwrap();
    a.send(vec![1, 2].into()).unwrap();
    let mut rounds = 0;
    while a.is_ready() {
        let frames = written(&mut a, 1 << 20);
        assert!(frames.len() <= FRAGMENT_WINDOW && !a.is_ready() || a.waiting.is_empty());
        deliver(&mut b, &frames).unwrap();
        assert!(b.ack_owed());
        a.acked(b.take_ack()).unwrap();
        rounds += 1;
    }
    assert_eq!(rounds, 1 + MESSAGE_SIZE_MAX / (FRAGMENT_WINDOW - FRAGMENT_SIZE_MIN));
    assert!(b.received() == Some(message), "it is whole");
    assert_eq!((b.received(), b.received()), (Some(vec![1, 2]), None));
    assert_eq!(a.waiting_bytes, 0);
}

#[test]
fn message_beyond_bounds_is_not_sent() {
    let mut a = up();
    assert_eq!(a.send(vec![].into()), Err(SendError::Empty));
    assert_eq!(a.send(vec![0; MESSAGE_SIZE_MAX + 1].into()), Err(SendError::TooBig));
    let large: Arc<[u8]> = vec![0; MESSAGE_SIZE_MAX].into();
    a.send(large.clone()).unwrap();
    a.send(large).unwrap();
    assert_eq!(a.send(vec![0].into()), Err(SendError::Busy));
    a.up(true);
    for _ in 0..WAITING_MAX {
        a.send(vec![0].into()).unwrap();
    }
    assert_eq!(a.send(vec![0].into()), Err(SendError::Busy));
    a.up(false);
    assert_eq!(a.send(vec![0].into()), Err(SendError::TooOld));
    a.down();
    assert_eq!(a.send(vec![0].into()), Err(SendError::NotConnected));
    for error in [SendError::TooOld, SendError::Busy, SendError::TooBig, SendError::Empty] {
        assert!(!error.to_string().is_empty());
    }
}

#[test]
fn fragment_out_of_turn_ends_connection() {
    let most = u32::try_from(MESSAGE_SIZE_MAX).unwrap();
    let wrong = |begun: bool, fragment: Fragment<'_>| {
        let mut b = up();
        if begun {
            b.take(&Fragment { message: 1, total: 9, offset: 0, bytes: b"four" }).unwrap();
        }
        assert!(matches!(b.take(&fragment), Err(Error::WrongFragment { .. })), "{fragment:?}");
        assert_eq!(b.received(), None);
    };
    wrong(false, fragment(0, 4, 0, b"four"));
    wrong(false, fragment(2, 4, 0, b"four"));
    wrong(false, fragment(1, 8, 4, b"four"));
    wrong(false, fragment(1, 3, 0, b"four"));
    wrong(false, fragment(1, 4, 0, b""));
    wrong(false, fragment(1, most + 1, 0, b"four"));
    wrong(true, fragment(1, 9, 0, b"four"));
    wrong(true, fragment(1, 9, 5, b"four"));
    wrong(true, fragment(1, 8, 4, b"four"));
    wrong(true, fragment(1, 9, 4, b"of six"));
    wrong(true, fragment(2, 9, 4, b"four"));
    wrong(true, fragment(2, 4, 0, b"four"));
    wrong(true, fragment(1, 9, u32::MAX, b"four"));
}

#[test]
fn peer_beyond_its_window_ends_connection() {
    let (mut b, bytes) = (up(), [0; 8_000]);
    b.take(&fragment(1, 90_000, 0, &bytes)).unwrap();
    b.take(&fragment(1, 90_000, 8_000, &bytes)).unwrap();
    let error = b.take(&fragment(1, 90_000, 16_000, &bytes)).unwrap_err();
    assert!(matches!(error, Error::FragmentFlood { .. }), "{error}");
}

#[test]
fn acknowledgement_of_unsent_ends_connection() {
    let mut a = up();
    a.send(vec![0; 100].into()).unwrap();
    assert!(a.acked(1).is_err());
    written(&mut a, 1_000);
    a.acked(60).unwrap();
    assert!(a.acked(59).is_err() && a.acked(119).is_err());
    a.acked(118).unwrap();
}

#[test]
fn half_message_of_old_connection_lost() {
    let (mut a, mut b) = (up(), up());
    a.send(vec![1; 1_000].into()).unwrap();
    deliver(&mut b, &written(&mut a, 500)).unwrap();
    a.up(true);
    b.up(true);
    assert!(!a.is_ready() && !b.ack_owed());
    a.send(vec![2; 3].into()).unwrap();
    deliver(&mut b, &written(&mut a, 500)).unwrap();
    assert_eq!((b.received(), b.received()), (Some(vec![2; 3]), None));
}

proptest! {
    #[test]
    fn messages_arrive_in_order_or_not_at_all(
        sizes in prop::collection::vec(1..40_000_usize, 1..20),
        steps in prop::collection::vec((0..20_000_usize, any::<bool>(), 0..30_u8), 1..200),
    ) {
        let (mut a, mut b) = (up(), up());
        let content = |n: usize| -> Vec<u8> {
            (0..sizes[n]).map(|i| (i * 7 + n).to_le_bytes()[0]).collect()
        };
        // The connection that each message was sent on, and the present one.
        let (mut sent_on, mut connection) = (Vec::new(), 0);
        let mut next = 0;
        for (budget, acks, what) in steps {
            if what == 0 {
                // The connection breaks.
                a.up(true);
                b.up(true);
                connection += 1;
            }
            if what < 6 && sent_on.len() < sizes.len() {
                a.send(content(sent_on.len()).into()).unwrap();
                sent_on.push(connection);
            }
            deliver(&mut b, &written(&mut a, budget)).unwrap();
            if acks && b.ack_owed() {
                a.acked(b.take_ack()).unwrap();
            }
            while let Some(message) = b.received() {
                let this = (next..sent_on.len()).find(|&n| sent_on[n] == connection);
                let this = this.expect("it was sent on this connection");
                prop_assert_eq!(message, content(this));
                next = this + 1;
            }
            prop_assert!(b.assembly.as_ref().is_none_or(|one| one.bytes.len() < one.total));
        }
        // Without another break, everything of the last connection arrives.
        while a.is_ready() || b.ack_owed() {
            a.acked(b.take_ack()).unwrap();
            deliver(&mut b, &written(&mut a, 30_000)).unwrap();
            while b.received().is_some() {
                next = (next..sent_on.len()).find(|&n| sent_on[n] == connection).unwrap() + 1;
            }
        }
        let last = sent_on.iter().rposition(|&on| on == connection);
        prop_assert!(last.is_none_or(|last| next == last + 1));
    }
}
