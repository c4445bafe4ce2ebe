use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::Path;

use super::*;
use crate::fabric::certificates::{CertificateRequest, make};
use crate::fabric::identity::is_of;
use crate::fabric::tests::{Folder, Hand, certificates};
use crate::fabric::wall;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn identity(folder: &Path, name: &str) -> Identity {
    Identity::load(&folder.join(name), name, &wall()).unwrap()
}

/// Connects both ends as far as possible, and returns them with the reason why each ended, if it
/// did.
fn meet(a: &Identity, b: &Identity, b_is: &str) -> (Link, Link, [Option<String>; 2]) {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let mut near = Link::connect(HERE, listener.local_addr().unwrap(), b_is, a).unwrap();
    let mut far = Link::accept(listener.accept().unwrap().0, b).unwrap();
    let mut ends = [None, None];
    for _ in 0..200 {
        for (link, end) in [&mut near, &mut far].into_iter().zip(&mut ends) {
            if end.is_none() {
                *end = link.work(&mut Vec::new()).err().map(|error| error.to_string());
            }
        }
        if near.is_open() && far.is_open() || ends.iter().all(Option::is_some) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    (near, far, ends)
}

#[test]
fn link_between_fabric_hosts_authenticates_and_carries_bytes() {
    let folder = Folder::new("link-open");
    certificates(&folder, &["h1", "h2"]);
    let (h1, h2) = (identity(&folder, "h1"), identity(&folder, "h2"));
    let (mut near, mut far, ends) = meet(&h1, &h2, "h2");
    assert_eq!(ends, [None, None]);
    assert!(near.is_open() && far.is_open());
    let certificate = far.certificate().unwrap();
    assert!(is_of(certificate, "h1") && !is_of(certificate, "h2"));

    let sent: Vec<u8> = (0..200_000_u32).map(|n| n.to_le_bytes()[0]).collect();
    assert!(near.room() >= sent.len());
    near.send(&sent).unwrap();
    let mut got = Vec::new();
    while got.len() < sent.len() {
        near.flush().unwrap();
        far.work(&mut got).unwrap();
    }
    assert_eq!(got, sent);

    near.close();
    let end = loop {
        match far.work(&mut got) {
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(end, "the connection was closed");
}

#[test]
fn link_slow_peer_send_buffer_bounded() {
    let folder = Folder::new("link-slow");
    certificates(&folder, &["h1", "h2"]);
    let (mut near, _far, _) = meet(&identity(&folder, "h1"), &identity(&folder, "h2"), "h2");
    let mut sent = 0;
    while near.room() > 0 {
        near.send(&vec![0; near.room()]).unwrap();
        sent += ROOM;
        assert!(sent < 64 << 20, "a peer that does not read never takes 64 MB");
    }
    assert_eq!(near.room(), 0);
}

#[test]
fn link_wrong_host_fabric_or_expired_certificate_refused() {
    let folder = Folder::new("link-refused");
    certificates(&folder, &["h1", "h2"]);
    let other = Folder::new("link-refused-other");
    certificates(&other, &["h1"]);
    let h2 = identity(&folder, "h2");

    let (near, _, ends) = meet(&identity(&folder, "h1"), &h2, "h3");
    assert!(!near.is_open());
    assert_eq!(ends[0].as_deref(), Some("TLS: the certificate is that of another host"));
    assert!(ends[1].is_some());

    let (_, far, ends) = meet(&identity(&other, "h1"), &h2, "h2");
    assert!(!far.is_open());
    assert_eq!(ends[0].as_deref(), Some("TLS: the certificate is of another fabric"));

    let hosts = ["h1".to_owned()];
    make(&CertificateRequest { folder: &folder, hosts: &hosts, days: -2, replace: true }).unwrap();
    let (near, far, ends) = meet(&identity(&folder, "h1"), &h2, "h2");
    assert!(far.certificate().is_none());
    let [said, seen] = ends.map(Option::unwrap_or_default);
    assert_eq!(seen, "TLS: the certificate has expired");
    assert!(said.contains("this host's certificate has expired or is not valid yet"), "{said}");
    drop(near);
}

#[test]
fn link_resumption_with_expired_certificate_refused() {
    let folder = Folder::new("link-resumed");
    certificates(&folder, &["h1", "h2"]);
    let hand = Hand::now();
    let [h1, h2] = ["h1", "h2"].map(|name| {
        let clock: std::sync::Arc<Hand> = std::sync::Arc::clone(&hand);
        Identity::load(&folder.join(name), name, &(clock as _)).unwrap()
    });
    // A session could be resumed within hours.
    let end = u64::try_from(h2.own.until).unwrap();
    hand.set(end - 600);
    let (mut near, mut far, ends) = meet(&h1, &h2, "h2");
    assert_eq!(ends, [None, None]);
    // The other side's messages after its handshake.
    far.send(b"x").unwrap();
    let mut got = Vec::new();
    while got.is_empty() {
        near.work(&mut got).unwrap();
    }
    hand.set(end + 600);
    let (near, _far, ends) = meet(&h1, &h2, "h2");
    assert!(!near.is_open());
    assert_eq!(ends[0].as_deref(), Some("TLS: the certificate has expired"));
}
