//! Fuzzes a session with the bytes of a peer's control plane, in pieces of any size: after a good
//! Hello, or from the first byte on.
//!
//! Nothing may panic. No message exceeds its size limit. Output fits its budget and can be parsed.
//! The number of open questions is bounded, and so are the messages of a read. Claims end up under
//! the host of the connection.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_base::{HostId, Mac, Nanos, PortId, Vni};
use sluice_control::digest::Digest;
use sluice_control::publisher::Publisher;
use sluice_control::rpc::{Event, OPEN_MAX, URGENT_OPEN_MAX};
use sluice_control::session::{Config, NoRoom, Replica, Session, Timing};
use sluice_control::vport::{Claim, Ips, Key, Origin};
use sluice_wire::fabric::{
    ANSWER_SIZE_MAX, ASK_SIZE_MAX, FRAGMENT_WINDOW, FRAME_SIZE_MAX, Have, Hello, MESSAGE_SIZE_MAX,
    Message, SMALL_SIZE_MAX, Topic, VERSIONS,
};

const OWN: HostId = HostId(1);
const PEER: HostId = HostId(2);
const FABRIC: [u8; 16] = [7; 16];

/// A replica with room for some claims.
#[derive(Default)]
struct Table(Vec<Claim>);

impl Replica for Table {
    fn begin_snapshot(&mut self, owner: HostId) {
        assert_eq!(owner, PEER);
    }

    fn claim(&mut self, owner: HostId, claim: &Claim) -> Result<(), NoRoom> {
        assert_eq!(owner, PEER);
        assert!(!claim.key.mac.is_group());
        if self.0.len() == 20 {
            return Err(NoRoom);
        }
        self.0.push(*claim);
        Ok(())
    }

    fn withdraw(&mut self, owner: HostId, key: Key) {
        assert_eq!(owner, PEER);
        self.0.retain(|claim| claim.key != key);
    }

    fn end_snapshot(&mut self, owner: HostId) {
        assert_eq!(owner, PEER);
    }

    fn digest(&self, owner: HostId) -> Digest {
        assert_eq!(owner, PEER);
        self.0.iter().collect()
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&[how, piece], bytes)) = bytes.split_first_chunk() else { return };
    let config = Config {
        own: OWN,
        peer: PEER,
        fabric: FABRIC,
        versions: VERSIONS,
        timing: Timing::DEFAULT,
    };
    let (mut session, mut publisher) = (Session::new(config, 1), Publisher::new(3, 4));
    for n in 0..3 {
        let key = Key { vni: Vni::new(1).expect("small"), mac: Mac([2, 0, 0, 0, 0, n]) };
        let (port, ips, origin) = (PortId(1), Ips::default(), Origin::Learned);
        publisher.claim(&Claim { key, port, ips, origin, moves: 0 });
    }
    let (mut table, mut now) = (Table::default(), Nanos::from_millis(1));
    session.connected(now);
    if how & 1 == 0 {
        let have = Have { incarnation: 3, sequence: u64::from(how >> 1 & 3) };
        let hello = Hello { versions: VERSIONS, fabric: FABRIC, host: PEER, incarnation: 1, have };
        session
            .received(now, &Message::Hello(hello), &mut publisher, &mut table)
            .expect("a good Hello");
    }
    let (mut unread, mut out) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(usize::from(piece).max(1)) {
        now = now.after(Nanos::from_millis(u64::from(how >> 3)));
        unread.extend_from_slice(piece);
        let taken = session.stream(now, &unread, &mut publisher, &mut table);
        talk(&mut session, now);
        messages(&mut session);
        out.clear();
        let budget = SMALL_SIZE_MAX + usize::from(how) * 4;
        let size = session.write(now, &publisher, budget, &mut out);
        assert!(size == out.len() && size <= budget);
        readable(&out);
        let _ = session.tick(now);
        match taken {
            Ok(used) => drop(unread.drain(..used)),
            Err(error) => {
                assert!(!error.to_string().is_empty());
                session.disconnected(now);
                session.connected(now);
                unread.clear();
            }
        }
        assert!(unread.len() < FRAME_SIZE_MAX);
    }
});

/// Answers questions, and keeps a question of its own open.
fn talk(session: &mut Session, now: Nanos) {
    let (rpc, now) = session.rpc(now);
    while let Some(event) = rpc.event() {
        match event {
            Event::Asked { ticket, body, .. } => {
                assert!(body.len() <= ASK_SIZE_MAX);
                rpc.reply(now, ticket, Ok(&body));
            }
            Event::Done { answer: Ok(body), .. } => assert!(body.len() <= ANSWER_SIZE_MAX),
            Event::Done { answer: Err(why), .. } => assert!(!why.to_string().is_empty()),
            Event::Wrong(what) => assert!(!what.name().is_empty()),
        }
    }
    let (mine, theirs) = rpc.open();
    let most = OPEN_MAX + URGENT_OPEN_MAX;
    assert!(mine <= most && theirs <= most);
    if mine == 0 {
        // There may be no connection, or one without support for questions.
        let _ = rpc.ask(now, Topic(1), Nanos::from_millis(100), b"who?");
        let _ = rpc.ask(now, Topic::HOLD, Nanos::from_millis(100), b"held");
    }
}

/// Takes messages, and sends some.
fn messages(session: &mut Session) {
    let mut size = 0;
    while let Some(message) = session.message() {
        assert!((1..=MESSAGE_SIZE_MAX).contains(&message.len()));
        size += message.len();
    }
    assert!(size <= MESSAGE_SIZE_MAX + FRAGMENT_WINDOW);
    // There may be no connection, or too many wait.
    let _ = session.send(vec![7; 1_000].into());
}

/// Checks that the bytes are whole frames.
fn readable(mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (_, size) = Message::parse(bytes).expect("a frame").expect("a whole one");
        bytes = &bytes[size..];
    }
}
