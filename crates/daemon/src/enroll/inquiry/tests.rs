//! Tests of questions about a host's standing, over sockets of the loopback device.

use std::net::TcpListener;

use rustls::{ServerConfig, ServerConnection};

use super::super::tests::{Member, wall};
use super::super::{Eviction, RefusedKind, Standing};
use super::*;

fn inquirer(name: &str, credentials: &Credentials) -> Inquirer {
    Inquirer {
        name: name.to_owned(),
        id: 2,
        seat: 9,
        credentials: credentials.clone(),
        revoked: BTreeSet::new(),
    }
}

fn ask(member: &Member, inquirer: &Inquirer) -> Result<StandingAnswer, InquiryError> {
    inquirer.ask(&Known { name: "h1".to_owned(), at: member.address() }, &wall())
}

fn serial_of(credentials: &Credentials) -> String {
    let pem = credentials.certificate().as_bytes();
    serial(&CertificateDer::from_pem_slice(pem).unwrap()).unwrap()
}

#[test]
fn member_and_evicted_host_learn_their_standing() {
    let member = Member::new();
    let joined = member.join(&member.token(), 2).unwrap().credentials;
    let own = inquirer("h2", &joined);
    assert_eq!(ask(&member, &own).unwrap().standing, Standing::Member);
    member.evict("h2");
    let answer = ask(&member, &own).unwrap();
    // The serial number is that of the certificate that was shown.
    let evicted = Eviction { by: Some(serial_of(&joined)), ..Eviction::default() };
    assert_eq!((answer.revision, answer.standing), (7, Standing::Evicted(evicted)));
    assert_eq!(member.refused(), 0);
}

#[test]
fn stranger_gets_no_answer() {
    let (member, other) = (Member::new(), Member::new());
    let foreign = other.join(&other.token(), 2).unwrap().credentials;
    // It knows the authority of the fabric, which is no secret, and has none of its certificates.
    let all = [foreign.authorities(), member.credentials().authorities()].concat();
    let stranger = inquirer("h2", &foreign.trusting(all, 1_800_000_000).unwrap());
    let error = ask(&member, &stranger).unwrap_err();
    assert!(matches!(error, InquiryError::Io(_)), "{error}");
    assert_eq!(member.refused(), 0, "TLS ends it");
}

#[test]
fn question_without_certificate_or_for_another_host_refused() {
    let member = Member::new();
    let joined = member.join(&member.token(), 2).unwrap().credentials;
    let error = ask(&member, &inquirer("h1", &joined)).unwrap_err();
    let InquiryError::Refused(refused) = error else { panic!("{error}") };
    assert_eq!(refused.kind, RefusedKind::Request);
    assert!(refused.error.contains("is that of another host"), "{refused}");
    // A client that trusts anybody, and shows nothing.
    let mut roots = RootCertStore::empty();
    let authority = joined.authorities()[0].as_bytes();
    roots.add(CertificateDer::from_pem_slice(authority).unwrap()).unwrap();
    let mut config = ClientConfig::builder_with_details(Arc::new(default_provider()), wall())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![STANDING.to_vec()];
    let name = ServerName::try_from("h1").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let stream = connect(member.address()).unwrap();
    let mut peer = StreamOwned::new(tls, Timed::new(stream, ANSWER_MAX));
    let line = br#"{"format":1,"program":"0.1.0","name":"h2","id":2,"seat":9}"#;
    peer.write_all(&[&line[..], b"\n"].concat()).unwrap();
    let answer = StandingMessage::parse(&read_line(&mut peer, ANSWER_LINE_MAX).unwrap());
    let Err(AnswerError::Refused(refused)) = answer else { panic!("{answer:?}") };
    assert!(refused.error.contains("has to show its certificate"), "{refused}");
    assert_eq!(member.refused(), 2);
}

#[test]
fn answer_of_impostor_or_revoked_member_not_believed() {
    let (member, impostor) = (Member::new(), Member::new());
    let joined = member.join(&member.token(), 2).unwrap().credentials;
    let own = inquirer("h2", &joined);
    let error = ask(&impostor, &own).unwrap_err();
    assert!(matches!(error, InquiryError::Untrusted(_)), "{error}");
    // A member of the fabric, in another one's place.
    let named = Known { name: "h3".to_owned(), at: member.address() };
    let error = own.ask(&named, &wall()).unwrap_err();
    assert!(matches!(error, InquiryError::Untrusted(_)), "{error}");
    let revoked = [serial_of(member.credentials())].into();
    let error = ask(&member, &Inquirer { revoked, ..own }).unwrap_err();
    assert!(matches!(error, InquiryError::Revoked), "{error}");
}

#[test]
fn member_without_the_question_says_nothing() {
    let credentials = Credentials::create("h1", 1_800_000_000).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(credentials.key().as_bytes()).unwrap();
    let mut config = ServerConfig::builder_with_details(Arc::new(default_provider()), wall())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![der(credentials.certificate())], key)
        .unwrap();
    config.alpn_protocols = vec![super::super::PROTOCOL.to_vec()];
    let old = std::thread::spawn(move || {
        let tls = ServerConnection::new(Arc::new(config)).unwrap();
        let (stream, _) = listener.accept().unwrap();
        let mut peer = StreamOwned::new(tls, Timed::new(stream, ANSWER_MAX));
        read_line(&mut peer, ANSWER_LINE_MAX).is_err()
    });
    let known = Known { name: "h1".to_owned(), at };
    let error = inquirer("h1", &credentials).ask(&known, &wall()).unwrap_err();
    assert!(matches!(error, InquiryError::Io(_)), "{error}");
    assert!(old.join().unwrap(), "nothing was said to it");
}
