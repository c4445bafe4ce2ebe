//! Many hosts in one thread, each with sessions to all others: measures the memory of a host, the
//! bytes of a vport on the wire, and the time until all hosts know it.
//!
//! ```console
//! $ cargo run --release -p sluice-control --example thousand -- HOSTS VPORTS
//! ```
//!
//! A round of all hosts is a millisecond; written bytes are received in the same round. Datagrams
//! of the failure detector are made and not delivered.

use std::error::Error;

use sluice_base::{HostId, Mac, Nanos, PortId, Vni};
use sluice_control::directory::PortRule;
use sluice_control::plane::{Config, Kind, Plane};
use sluice_control::session::{Due, Session};
use sluice_control::vport::{Ips, Key};

/// Time of a round.
const DELAY: Nanos = Nanos::from_millis(1);

/// Counters of sent data.
#[derive(Default)]
struct Sent {
    writes: u64,
    bytes: u64,
}

/// Memory of this process in kilobytes.
fn resident_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn config(own: HostId, claims: u32) -> Config {
    let mut config = Config::new(own, 1, [1; 16], 4);
    config.claims_max = claims + 1_000;
    (config.punt.questions, config.punt.unknowns, config.resolve.targets) = (1_024, 1_024, 1_024);
    // One thread does the work of all: no host is hung because the others take their time.
    config.session.silence_max = Nanos::from_millis(2_000);
    config.session.alive_after = Nanos::from_millis(500);
    config
}

/// Lets each host do what is due and delivers its bytes at once, one host after the other: a
/// million connections have no buffers of their own here.
fn round(planes: &mut [Plane], now: Nanos, sent: &mut Sent) -> Result<(), Box<dyn Error>> {
    let mut mail = Vec::new();
    for own in 0..planes.len() {
        let plane = &mut planes[own];
        plane.tick(now);
        while let Some(peer) = plane.ready(now) {
            let connects = plane.due(now, peer) == Due::Connect;
            let mut bytes = Vec::new();
            if plane.write(now, peer, 1 << 16, &mut bytes) > 0 {
                sent.writes += 1;
                sent.bytes += bytes.len() as u64;
            }
            mail.push((peer, connects, bytes));
        }
        while plane.event().is_some() || plane.datagram_out().is_some() {}
        let own = plane.own();
        for (to, connects, bytes) in mail.drain(..) {
            if connects {
                planes[own.index()].connected(now, to);
                planes[to.index()].connected(now, own);
            }
            if !bytes.is_empty() {
                let taken = planes[to.index()].stream(now, own, &bytes)?;
                assert_eq!(taken, bytes.len(), "whole messages were written");
            }
        }
    }
    Ok(())
}

/// Runs rounds until all hosts know this many claims. Returns the time then.
fn converge(
    planes: &mut [Plane],
    mut now: Nanos,
    claims: u32,
    sent: &mut Sent,
) -> Result<Nanos, Box<dyn Error>> {
    while planes.iter().any(|plane| plane.memory().1 < claims) {
        round(planes, now, sent)?;
        now = now.after(DELAY);
    }
    Ok(now)
}

#[expect(clippy::disallowed_methods, reason = "an example takes its sizes from who runs it")]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let hosts: u16 = args.next().map_or(Ok(100), |arg| arg.parse())?;
    let claims: u32 = args.next().map_or(Ok(10_000), |arg| arg.parse())?;
    let vni = Vni::new(7).ok_or("24 bits")?;
    let begin_kb = resident_kb();
    let mut planes = Vec::new();
    for own in (0..hosts).map(HostId) {
        let mut plane = Plane::new(&config(own, claims), 1, Nanos::ZERO);
        plane.add_vnet(vni);
        plane.add_port(Nanos::ZERO, PortId(0), vni, PortRule::Bound);
        for peer in (0..hosts).map(HostId).filter(|peer| *peer != own) {
            plane.add_host(Nanos::ZERO, peer, &[vni], Kind::Member);
        }
        planes.push(plane);
    }
    let mut sent = Sent::default();
    let mut now = Nanos::ZERO;
    while planes.iter().any(|plane| plane.hosts().any(|host| !host.is_up)) {
        round(&mut planes, now, &mut sent)?;
        now = now.after(DELAY);
    }
    let up_kb = resident_kb();
    println!("hosts {hosts}, vports {claims}, a session {} bytes", size_of::<Session>());
    println!("sessions up          {now}, {} KB per host", (up_kb - begin_kb) / u64::from(hosts));
    sent = Sent::default();
    let begin = now;
    for n in 0..claims {
        let plane = &mut planes[n as usize % usize::from(hosts)];
        let key = Key { vni, mac: Mac::from_u64(0x0200_0000_0000 | u64::from(n)) };
        let ip = std::net::Ipv4Addr::from_bits(0x0a00_0000 | n).into();
        plane.bind(now, PortId(0), key, Ips::from_iter([ip]))?;
    }
    now = converge(&mut planes, now, claims, &mut sent)?;
    let per_host = (resident_kb() - begin_kb) / u64::from(hosts);
    let copies = u64::from(claims) * u64::from(hosts - 1);
    println!("all vports known     {} later, {per_host} KB per host", now.since(begin));
    println!("a vport at a host    {} bytes, {} writes in all", sent.bytes / copies, sent.writes);
    let (begin, key) = (now, Key { vni, mac: Mac::from_u64(0x0200_ffff_ffff) });
    sent = Sent::default();
    planes[0].bind(now, PortId(0), key, Ips::default())?;
    now = converge(&mut planes, now, claims + 1, &mut sent)?;
    println!("one more             {} later, {} bytes", now.since(begin), sent.bytes);
    Ok(())
}
