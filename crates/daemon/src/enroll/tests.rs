//! Joins over sockets of the loopback device.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::KeyPair;
use rustls::pki_types::UnixTime;
use sluice_api::config::UnderlayKind;

use super::client::verified;
use super::messages::{
    ANSWER_LINE_MAX, AnswerError, FORMAT, JoinAnswer, JoinRequest, REQUEST_LINE_MAX,
};
use super::slots::SLOTS_MAX;
use super::timed::read_line;
use super::*;
use crate::fabric::tests::Folder;

/// Time of all tests here, in seconds since 1970.
const NOW: i64 = 1_800_000_000;
const NOW_MS: u64 = 1_800_000_000_000;

/// A clock that stands still.
#[derive(Debug)]
struct At(i64);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0).unwrap();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

pub(super) fn wall() -> Wall {
    Arc::new(At(NOW))
}

/// A fabric whose configuration is in memory.
#[derive(Debug, Default)]
struct Fabric {
    records: Mutex<Vec<TokenRecord>>,
    members: Mutex<Vec<MemberAddress>>,
    refused: AtomicUsize,
    next: Mutex<Option<AuthorityPem>>,
}

impl Fabric {
    fn token(&self, authority: Fingerprint, valid_ms: u64) -> Token {
        let (token, record) = Token::new(authority, NOW_MS, valid_ms).unwrap();
        self.records.lock().unwrap().push(record);
        token
    }

    fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    fn members(&self) -> usize {
        self.members.lock().unwrap().len()
    }
}

impl Enroll for Fabric {
    fn admit(&self, _from: SocketAddr, joiner: &Joiner) -> Result<Admitted, Refused> {
        let mut records = self.records.lock().unwrap();
        let mut members = self.members.lock().unwrap();
        let key = joiner.request.key();
        let (id, redemption) = redeem(&*records, &joiner.token, (&joiner.name, key), NOW_MS)?;
        if redemption == Redemption::First {
            for member in &*members {
                if member.name == joiner.name {
                    return Err(Refused::name_taken(&joiner.name));
                }
                if member.vtep == joiner.vtep {
                    return Err(Refused::vtep_taken(joiner.vtep, &member.name));
                }
                if member.address == joiner.address {
                    return Err(Refused::address_taken(joiner.address, &member.name));
                }
            }
            let record = records.iter_mut().find(|record| record.id == id).unwrap();
            record.used = Some(TokenUse { host: joiner.name.clone(), key });
            let id = u16::try_from(members.len()).unwrap() + 1;
            let (name, vtep) = (joiner.name.clone(), joiner.vtep);
            members.push(MemberAddress { name, id, address: joiner.address, vtep });
        }
        let own = members.iter().find(|member| member.name == joiner.name).unwrap();
        let (fabric, number) = ("prod".to_owned(), [7; 16]);
        let next = self.next.lock().unwrap().clone();
        Ok(Admitted { fabric, number, id: own.id, members: members.clone(), next })
    }

    fn standing(&self, asker: &Asker) -> Result<StandingAnswer, Refused> {
        let members = self.members.lock().unwrap();
        let is_one = members.iter().any(|member| member.name == asker.name);
        let standing = match is_one {
            true => Standing::Member,
            false => {
                let by = Some(asker.serial.clone());
                Standing::Evicted(Eviction { by, ..Eviction::default() })
            }
        };
        Ok(StandingAnswer { revision: 7, standing })
    }

    fn refused(&self, _from: SocketAddr, _refused: &Refused) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// A member of a fabric that hosts can join.
pub(super) struct Member {
    fabric: Arc<Fabric>,
    credentials: Credentials,
    listener: JoinListener,
}

impl Member {
    pub(super) fn new() -> Self {
        let credentials = Credentials::create("h1", NOW).unwrap();
        let fabric = Arc::new(Fabric::default());
        let at = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener =
            JoinListener::start(at, &credentials, fabric.clone() as Arc<dyn Enroll>, &wall())
                .unwrap();
        Self { fabric, credentials, listener }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    pub(super) fn refused(&self) -> usize {
        self.fabric.refused()
    }

    pub(super) fn evict(&self, host: &str) {
        self.fabric.members.lock().unwrap().retain(|member| member.name != host);
    }

    fn fingerprint(&self) -> Fingerprint {
        self.credentials.authority().unwrap().fingerprint()
    }

    pub(super) fn token(&self) -> Token {
        self.fabric.token(self.fingerprint(), VALID_MS)
    }

    pub(super) fn join(&self, token: &Token, own: u8) -> Result<Joined, JoinError> {
        let key = JoinKey::generate().unwrap();
        join(self.listener.address(), token, &applicant(own), &key, &wall())
    }

    fn problem(&self, token: &Token, applicant: &Applicant) -> String {
        let key = JoinKey::generate().unwrap();
        join(self.listener.address(), token, applicant, &key, &wall()).unwrap_err().to_string()
    }

    /// Sends a line over a verified connection, and returns the refusal.
    fn say(&self, line: &[u8]) -> Refused {
        let mut peer = verified(self.listener.address(), &self.token(), &wall()).unwrap();
        peer.write_all(line).unwrap();
        match JoinAnswer::parse(&read_line(&mut peer, ANSWER_LINE_MAX).unwrap()) {
            Err(AnswerError::Refused(refused)) => refused,
            other => panic!("{other:?}"),
        }
    }
}

fn applicant(own: u8) -> Applicant {
    let vtep = IpAddr::from(Ipv4Addr::new(10, 0, 0, own));
    let (name, address) = (format!("h{own}"), SocketAddr::new(vtep, 7474));
    Applicant { name, vtep, address, underlay: UnderlayKind::L2 }
}

#[test]
fn join_good_token_gives_usable_credentials() {
    let member = Member::new();
    let joined = member.join(&member.token(), 2).unwrap();
    assert_eq!((joined.fabric.as_str(), joined.number, joined.id), ("prod", [7; 16], 1));
    assert_eq!(joined.members.len(), 1);
    assert_eq!(joined.credentials.name(), "h2");
    // It can let hosts in itself.
    assert_eq!(joined.credentials.authority().unwrap().fingerprint(), member.fingerprint());
    let folder = Folder::new("enroll-join");
    let files = Files::of(&folder);
    files.install(&joined.credentials).unwrap();
    assert_eq!(files.load(NOW).unwrap(), joined.credentials);
}

#[test]
fn join_asked_again_with_same_key_repeats_answer() {
    let member = Member::new();
    let (token, key) = (member.token(), JoinKey::generate().unwrap());
    let at = member.listener.address();
    let first = join(at, &token, &applicant(2), &key, &wall()).unwrap();
    let again = join(at, &token, &applicant(2), &key, &wall()).unwrap();
    assert_eq!((first.id, first.members), (again.id, again.members));
    assert_eq!(member.fabric.members(), 1);
    let error = member.problem(&token, &applicant(2));
    assert!(error.contains("the token was used already"), "{error}");
}

#[test]
fn join_token_wrong_used_expired_refused_with_remedy() {
    let member = Member::new();
    let (unknown, _) = Token::new(member.fingerprint(), NOW_MS, VALID_MS).unwrap();
    let used = member.token();
    member.join(&used, 2).unwrap();
    let expired = member.fabric.token(member.fingerprint(), 0);
    for (token, reason) in [
        (unknown, "the fabric does not know this token"),
        (used, "the token was used already, and lets one host join"),
        (expired, "the token has expired"),
    ] {
        let error = member.problem(&token, &applicant(3));
        assert!(error.contains(reason), "{error}");
        assert!(error.ends_with("make another one with `sluice fabric token` on a member"));
    }
    assert_eq!((member.fabric.members(), member.fabric.refused()), (1, 3));
}

#[test]
fn join_name_vtep_address_taken_refused_token_unused() {
    let member = Member::new();
    member.join(&member.token(), 2).unwrap();
    let other = applicant(3);
    let taken = applicant(2);
    let token = member.token();
    for (applicant, reason) in [
        (Applicant { name: taken.name, ..other.clone() }, "the fabric has a member `h2`"),
        (Applicant { vtep: taken.vtep, ..other.clone() }, "VTEP 10.0.0.2 is that of the member"),
        (Applicant { address: taken.address, ..other.clone() }, "`h2` listens at 10.0.0.2:7474"),
    ] {
        let error = member.problem(&token, &applicant);
        assert!(error.contains(reason), "{error}");
    }
    member.join(&token, 3).unwrap();
}

#[test]
fn join_racers_with_one_token_one_admitted() {
    let member = Member::new();
    let token = member.token();
    let results = std::thread::scope(|scope| {
        let racers = [2, 3, 4].map(|own| {
            let (member, token) = (&member, &token);
            scope.spawn(move || member.join(token, own).is_ok())
        });
        racers.map(|racer| racer.join().unwrap())
    });
    assert_eq!(results.iter().filter(|joined| **joined).count(), 1);
    assert_eq!(member.fabric.members(), 1);
}

#[test]
fn join_impostor_of_other_authority_learns_nothing() {
    let (member, impostor) = (Member::new(), Member::new());
    let token = member.token();
    // It would even take the token.
    impostor.fabric.records.lock().unwrap().clone_from(&member.fabric.records.lock().unwrap());
    let error = impostor.join(&token, 2).unwrap_err();
    assert!(matches!(error, JoinError::OtherFabric(_)), "{error}");
    assert!(error.to_string().contains("nothing was sent to it"));
    assert_eq!((impostor.fabric.members(), impostor.fabric.refused()), (0, 0));
    member.join(&token, 2).unwrap();
}

#[test]
fn join_nobody_or_other_service_named() {
    let member = Member::new();
    let closed = member.listener.address();
    let token = member.token();
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = other.local_addr().unwrap();
    let web = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        _ = stream.read(&mut [0; 512]);
    });
    let ask = |at| {
        let key = JoinKey::generate().unwrap();
        join(at, &token, &applicant(2), &key, &wall()).unwrap_err()
    };
    let error = ask(at);
    assert!(matches!(error, JoinError::NoMember { .. }), "{error}");
    web.join().unwrap();
    drop(member);
    // The thread of the listener may hold the socket for a moment, but accepts nobody.
    let error = ask(closed);
    assert!(!matches!(error, JoinError::Refused { .. } | JoinError::BadAnswer { .. }), "{error}");
}

#[test]
fn join_member_expired_or_clock_wrong_named() {
    let member = Member::new();
    let key = JoinKey::generate().unwrap();
    let late: Wall = Arc::new(At(NOW + 400 * profile::DAY));
    let at = member.listener.address();
    let error = join(at, &member.token(), &applicant(2), &key, &late).unwrap_err();
    assert!(matches!(error, JoinError::Expired(_)), "{error}");
}

fn request(own: u8, token: &Token, key: &KeyPair) -> JoinRequest {
    let applicant = applicant(own);
    JoinRequest {
        format: FORMAT,
        program: "0.1.0".to_owned(),
        request: SigningRequest::make(&applicant.name, key).unwrap(),
        name: applicant.name,
        vtep: applicant.vtep,
        address: applicant.address,
        token: token.secret().digits(),
        has_pauses: true,
    }
}

fn line(request: &JoinRequest) -> Vec<u8> {
    let mut line = serde_json::to_vec(request).unwrap();
    line.push(b'\n');
    line
}

#[test]
fn join_request_for_other_name_refused_unseen() {
    let member = Member::new();
    let key = KeyPair::generate().unwrap();
    let mut asked = request(2, &member.token(), &key);
    asked.request = SigningRequest::make("h1", &key).unwrap();
    let refused = member.say(&line(&asked));
    assert_eq!(refused.kind, RefusedKind::Request);
    assert!(refused.error.contains("only one for `h2` is signed"), "{refused}");
    assert_eq!((member.fabric.members(), member.fabric.refused()), (0, 1));
}

#[test]
fn join_other_format_told_both_versions() {
    let member = Member::new();
    let future = br#"{"format":9,"program":"7.7.7","wish":{}}"#;
    let refused = member.say(&[&future[..], b"\n"].concat());
    assert_eq!(refused.kind, RefusedKind::Version);
    assert!(refused.error.contains("runs sluice 7.7.7"), "{refused}");
    assert!(refused.error.contains(env!("CARGO_PKG_VERSION")), "{refused}");
}

#[test]
fn join_served_amid_silent_slow_and_garbage_connections() {
    let member = Member::new();
    let at = member.listener.address();
    // More than there is room for, from the address of the good host.
    let silent: Vec<_> = (0..2 * SLOTS_MAX).map(|_| TcpStream::connect(at).unwrap()).collect();
    let mut garbage: Vec<_> = (0..8).map(|_| TcpStream::connect(at).unwrap()).collect();
    for stream in &mut garbage {
        // The member may have closed it by then.
        _ = stream.write_all(&[0x16; 4096]);
    }
    let done = AtomicBool::new(false);
    let joined = std::thread::scope(|scope| {
        for _ in 0..4 {
            // They are verified, and send a line that never ends, byte by byte.
            let (done, token) = (&done, member.token());
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    let Ok(mut slow) = verified(at, &token, &wall()) else { continue };
                    while !done.load(Ordering::Relaxed) && slow.write_all(b" ").is_ok() {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        let joined: Vec<_> = (2..10).map(|own| member.join(&member.token(), own)).collect();
        done.store(true, Ordering::Relaxed);
        joined
    });
    for joined in joined {
        joined.unwrap();
    }
    assert_eq!(member.fabric.members(), 8);
    drop(silent);
}

#[test]
fn join_oversize_line_refused_not_read_on() {
    let member = Member::new();
    let refused = member.say(&vec![b' '; REQUEST_LINE_MAX]);
    assert_eq!(refused.kind, RefusedKind::Request);
    assert!(refused.error.contains("too long"), "{refused}");
    assert_eq!(member.fabric.members(), 0);
}

/// The host follows a change of authority, and hosts join before and after it.
#[test]
fn join_works_before_during_and_after_new_authority() {
    let member = Member::new();
    let old = member.token();
    let next = Authority::create(NOW).unwrap();
    let both = vec![member.credentials.authorities()[0].clone(), next.pem().certificate.clone()];
    let trusting = member.credentials.trusting(both, NOW).unwrap();
    member.listener.set_credentials(&trusting).unwrap();
    let joined = member.join(&old, 2).unwrap();
    assert_eq!(joined.credentials.authorities().len(), 2);
    assert!(joined.next.is_none());
    // The member has its key, and gives it.
    *member.fabric.next.lock().unwrap() = Some(next.pem().clone());
    let joined = member.join(&member.token(), 6).unwrap();
    assert_eq!(joined.next.as_ref(), Some(next.pem()));
    // One that is not trusted is none.
    *member.fabric.next.lock().unwrap() = Some(Authority::create(NOW).unwrap().pem().clone());
    let error = member.join(&member.token(), 7).unwrap_err();
    assert!(error.to_string().contains("the next authority is not trusted"), "{error}");
    *member.fabric.next.lock().unwrap() = None;
    let reissued = trusting.reissued_by(next.pem(), NOW).unwrap();
    member.listener.set_credentials(&reissued).unwrap();
    let token = member.fabric.token(next.fingerprint(), VALID_MS);
    let joined = member.join(&token, 3).unwrap();
    assert_eq!(joined.credentials.authority().unwrap().fingerprint(), next.fingerprint());
    let old = member.token();
    let error = member.join(&old, 4).unwrap_err();
    assert!(matches!(error, JoinError::OtherFabric(_)), "its authority signs no more: {error}");
    let alone = vec![next.pem().certificate.clone()];
    let alone = reissued.trusting(alone, NOW).unwrap();
    member.listener.set_credentials(&alone).unwrap();
    member.join(&member.fabric.token(next.fingerprint(), VALID_MS), 5).unwrap();
}
