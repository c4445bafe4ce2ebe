use std::sync::Arc;

use super::*;
use crate::tcp::{Algorithm, Config};

const SYN_ACK: Flags = Flags(Flags::SYN.0 | Flags::ACK.0);
const STATES: [Handshake; 6] = [
    Handshake::Listen,
    Handshake::SynSent { due: true },
    Handshake::SynSent { due: false },
    Handshake::SynReceived { due: true },
    Handshake::SynReceived { due: false },
    Handshake::Done,
];

fn connection(handshake: Handshake) -> Connection {
    let config = Arc::new(Config::linux_2013(Algorithm::Cubic));
    let mut connection = Connection::new(&config, Role::Server, Nanos::ZERO);
    connection.handshake = handshake;
    connection
}

/// The result of each event in each state: SYN, SYN-ACK, ACK, a time-out, `poll`.
#[test]
fn states_and_events() {
    use Handshake::{Done, Listen, SynReceived, SynSent};
    let table = [
        (Listen, [SynReceived { due: true }, SynReceived { due: true }, Listen, Listen, Listen]),
        (
            SynSent { due: true },
            [
                SynSent { due: true },
                Done,
                SynSent { due: true },
                SynSent { due: true },
                SynSent { due: false },
            ],
        ),
        (
            SynSent { due: false },
            [
                SynSent { due: false },
                Done,
                SynSent { due: false },
                SynSent { due: true },
                SynSent { due: false },
            ],
        ),
        (
            SynReceived { due: true },
            [
                SynReceived { due: true },
                SynReceived { due: true },
                Done,
                SynReceived { due: true },
                SynReceived { due: false },
            ],
        ),
        (
            SynReceived { due: false },
            [
                SynReceived { due: true },
                SynReceived { due: true },
                Done,
                SynReceived { due: true },
                SynReceived { due: false },
            ],
        ),
        (Done, [Done; 5]),
    ];
    for ((state, after), expected) in table.into_iter().zip(STATES) {
        assert_eq!(state, expected);
        for (event, after) in after.into_iter().enumerate() {
            let mut connection = connection(state);
            connection.sender.deadline = Nanos(5);
            let flags = [Flags::SYN, SYN_ACK, Flags::ACK];
            match event {
                0..3 => {
                    let segment = Segment { flags: flags[event], ..Segment::default() };
                    connection.receive(Nanos(5), &segment);
                }
                3 => connection.expire(Nanos(5)),
                _ => drop(connection.poll(Nanos(5))),
            }
            assert_eq!(connection.handshake, after, "{state:?} event {event}");
        }
    }
}

/// RFC 9293 clause 3.8.1 with RFC 6298: a SYN that is not answered comes again after 1, 3, 7 s.
#[test]
fn a_syn_is_sent_again() {
    let config = Arc::new(Config::linux_2013(Algorithm::Cubic));
    let mut client = Connection::new(&config, Role::Client, Nanos::ZERO);
    client.write(Nanos::ZERO, 1_000);
    for seconds in [0, 1, 3, 7] {
        let now = Nanos::from_millis(seconds * 1_000);
        client.expire(now);
        let segment = client.poll(now).expect("a SYN");
        assert!(segment.flags.contains(Flags::SYN) && segment.len == 0);
        assert_eq!(client.poll(now), None, "no data before the answer");
    }
    // RFC 5681 clause 3.1, RFC 6298 clause 5.7.
    let now = Nanos::from_millis(7_100);
    client.receive(now, &Segment { flags: SYN_ACK, window: 60_000, ..Segment::default() });
    assert_eq!(client.cwnd(), 1_460);
    assert_eq!(client.rto(), Nanos::from_millis(3_000));
    let data = client.poll(now).expect("data");
    assert_eq!((data.len, data.flags.contains(Flags::ACK)), (1_000, true));
    assert_eq!(client.poll(now), None, "the data acknowledges the SYN-ACK");
}

/// The last ACK of the handshake is lost and the client has nothing to send: it answers the SYN-ACK
/// that comes again.
#[test]
fn a_second_syn_ack_is_answered() {
    let mut client = connection(Handshake::Done);
    client.receive(Nanos(5), &Segment { flags: SYN_ACK, ..Segment::default() });
    let answer = client.poll(Nanos(5)).expect("an ACK");
    assert_eq!((answer.len, answer.flags.contains(Flags::SYN)), (0, false));
}
