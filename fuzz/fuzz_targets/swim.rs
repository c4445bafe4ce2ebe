//! Fuzzes the failure detector of one host with datagrams: whole messages with some fields that do
//! not fit, and other bytes, between time, greetings and new incarnations.
//!
//! Nothing may panic. Every datagram fits and is for a member. A host reported as up is a member in
//! the incarnation that its connection has shown. The number of waiting datagrams is bounded. Work
//! due at a deadline is done.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sluice_base::{HostId, Nanos};
use sluice_control::liveness::{Change, DATAGRAM_MAX, Liveness, Timing};
use sluice_fuzz::Source;

const OWN: HostId = HostId(1);
/// Members, with the incarnation that the connection of each has shown; `UNSHOWN` has shown none.
const MEMBERS: [(HostId, u64); 4] =
    [(HostId(2), 20), (HostId(3), 30), (HostId(4), 40), (HostId(5), 50)];
const UNSHOWN: HostId = HostId(6);
const STRANGER: HostId = HostId(9);
const STEPS_MAX: usize = 300;
const INCARNATION: u64 = 10;

fn shown(host: HostId) -> Option<u64> {
    MEMBERS.iter().find(|(member, _)| *member == host).map(|(_, incarnation)| *incarnation)
}

fn host(source: &mut Source<'_>) -> HostId {
    source.pick(&[HostId(2), HostId(3), HostId(4), HostId(5), OWN, UNSHOWN, STRANGER])
}

/// Writes a host and incarnation, mostly the one that was shown.
fn put_life(source: &mut Source<'_>, host: HostId, out: &mut Vec<u8>) {
    let how = source.byte();
    let own = if host == OWN { INCARNATION } else { 0 };
    let incarnation = match how % 16 {
        0 => source.u64(),
        1 => shown(host).unwrap_or(own) + 1,
        _ => shown(host).unwrap_or(own),
    };
    let round = match how / 16 {
        0..=8 => 0,
        9..=14 => u32::from(source.byte() % 8),
        _ => source.u32(),
    };
    out.extend(host.0.to_be_bytes());
    out.extend(incarnation.to_be_bytes());
    out.extend(round.to_be_bytes());
}

/// Returns a message in the format of `control/src/liveness/codec.rs`.
fn datagram(source: &mut Source<'_>, from: HostId) -> Vec<u8> {
    if source.one_in(16) {
        return source.bytes().to_vec();
    }
    let mut out = Vec::new();
    let src = if source.one_in(16) { host(source) } else { from };
    put_life(source, src, &mut out);
    out.extend(u16::from(source.byte()).to_be_bytes());
    let dst = if source.one_in(8) { host(source) } else { OWN };
    put_life(source, dst, &mut out);
    let kind = source.byte() % 13;
    out.push(kind);
    if (1..=6).contains(&kind) {
        out.push(source.byte());
    }
    if (3..=6).contains(&kind) {
        let about = host(source);
        put_life(source, about, &mut out);
    }
    let count = source.byte() % 8;
    if count > 0 {
        out.extend(u16::from(count - 1).to_be_bytes());
    }
    for _ in 1..count {
        let about = host(source);
        put_life(source, about, &mut out);
        let counter = if source.one_in(8) { source.u16() } else { u16::from(source.byte() % 4) };
        out.extend(counter.to_be_bytes());
        out.push(source.byte() % 4);
    }
    if source.one_in(16) {
        out.truncate(usize::from(source.byte()));
    }
    out
}

fuzz_target!(|bytes: &[u8]| {
    let mut source = Source::new(bytes);
    let mut liveness = Liveness::new(OWN, INCARNATION, Timing::default(), 7);
    let mut now = Nanos::from_millis(1_000);
    let mut incarnation = INCARNATION;
    for _ in 0..STEPS_MAX {
        if source.is_empty() {
            break;
        }
        match source.byte() % 16 {
            0..=9 => {
                let from = host(&mut source);
                let datagram = datagram(&mut source, from);
                let before = liveness.refused();
                liveness.receive(now, from, &datagram, shown);
                let is_refused = liveness.refused() > before;
                assert!(shown(from).is_some() || from == OWN || is_refused, "{from} is believed");
            }
            10..=12 => {
                let span = u64::from(source.byte()) * source.pick(&[1, 1, 20]);
                now = now.after(Nanos::from_millis(span));
            }
            13 => {
                let to = source.pick(&MEMBERS).0;
                liveness.greet(now, to);
            }
            14 if source.one_in(4) => liveness.leave(now),
            14 => {
                incarnation += u64::from(source.byte());
                liveness.reincarnate(now, incarnation);
            }
            _ => _ = liveness.take_rejoined(),
        }
        liveness.advance(now);
        assert!(liveness.deadline().is_none_or(|at| at > now), "what is due is not done");
        let mut left = 100;
        while let Some((to, datagram)) = liveness.datagram() {
            assert!(datagram.len() <= DATAGRAM_MAX, "{} bytes", datagram.len());
            assert!(shown(to).is_some(), "{to} is no member: {datagram:?}");
            left -= 1;
            assert!(left > 0, "one datagram makes very many");
        }
        while let Some(change) = liveness.change() {
            match change {
                Change::Up(host, life) => assert_eq!(shown(host), Some(life), "{host}"),
                Change::Suspected(host) | Change::Down(host) => {
                    assert!(shown(host).is_some(), "{host}");
                }
            }
        }
    }
});
