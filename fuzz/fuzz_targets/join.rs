//! Fuzzes what strangers send before there is trust: tokens, both lines of a join, requests for
//! certificates, beacons. The first byte chooses what the rest is read as.
//!
//! Nothing may panic. A value that was read and written is read again as the same value. What a
//! host says about itself is bounded and has no control character for a terminal. No list grows
//! beyond its size.
#![no_main]

use std::net::Ipv4Addr;

use libfuzzer_sys::fuzz_target;
use sluice_api::span::Span;
use sluice_base::Nanos;
use sluice_daemon::discovery::{BEACON_SIZE_MAX, Beacon, HEARD_MAX, HeardHosts};
use sluice_daemon::enroll::{self, Fingerprint, SigningRequest, Token, TokenRecord};

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, rest)) = bytes.split_first() else { return };
    match kind % 7 {
        0 => text(rest, token),
        1 => enroll::fuzz(rest),
        2 => drop(SigningRequest::parse_der(rest).map(|request| request_is_fine(&request))),
        3 => text(rest, |pem| {
            drop(SigningRequest::parse(pem).map(|request| request_is_fine(&request)));
        }),
        4 => beacon(rest),
        5 => beacons(rest),
        _ => record(rest),
    }
});

fn text(bytes: &[u8], read: impl FnOnce(&str)) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        read(text);
    }
}

fn token(text: &str) {
    match text.parse::<Token>() {
        Ok(token) => {
            assert_eq!(token.text().parse(), Ok(token.clone()));
            assert!(!format!("{token:?}").contains(&token.text()));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    _ = text.parse::<Span>();
    if let Ok(fingerprint) = text.parse::<Fingerprint>() {
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    }
}

fn request_is_fine(request: &SigningRequest) {
    let name = request.name();
    assert!(!name.is_empty() && name.len() <= 63 && name.is_ascii());
    assert_eq!(request.key(), request.key());
}

fn beacon(datagram: &[u8]) {
    let Ok(read) = Beacon::parse(datagram) else { return };
    let written = read.datagram();
    assert!(written.len() <= BEACON_SIZE_MAX);
    assert_eq!(Beacon::parse(&written).as_ref(), Ok(&read));
    let fabric = read.fabric().map(|fabric| fabric.name());
    for text in [read.host(), read.program()].into_iter().chain(fabric) {
        assert!(!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()));
    }
}

/// Hears the lines of an input as datagrams, each from many addresses.
fn beacons(bytes: &[u8]) {
    let mut hosts = HeardHosts::default();
    let mut count = 0;
    for (at, line) in (0_u64..).zip(bytes.split(|byte| *byte == b'\n').take(8)) {
        for last in 0..64 {
            hosts.hear(Nanos(at), "up0", Ipv4Addr::new(10, 0, line.len() as u8, last), line);
            count += 1;
        }
    }
    let heard = hosts.heard(Nanos(8));
    assert!(heard.hosts.len() <= HEARD_MAX);
    assert!(heard.more + heard.unreadable + heard.hosts.len() as u64 <= count);
}

fn record(bytes: &[u8]) {
    let Ok(read) = serde_json::from_slice::<TokenRecord>(bytes) else { return };
    let written = serde_json::to_vec(&read).expect("it is written");
    assert_eq!(serde_json::from_slice::<TokenRecord>(&written).expect("it is read"), read);
}
