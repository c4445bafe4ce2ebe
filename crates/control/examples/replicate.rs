//! A million claims from one host to another, in memory: encoded, decoded and applied to a replica
//! that only counts.
//!
//! ```console
//! $ cargo run --release -p sluice-control --example replicate
//! ```

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};

use sluice_base::{HostId, Mac, Nanos, PortId, Vni};
use sluice_control::digest::Digest;
use sluice_control::publisher::Publisher;
use sluice_control::session::{Config, NoRoom, Replica, Session, Timing};
use sluice_control::vport::{Claim, Key, Origin};
use sluice_wire::fabric::VERSIONS;

const CLAIMS: u32 = 1_000_000;

/// Keeps the digest of all claims.
#[derive(Default)]
struct Sum(Digest);

impl Replica for Sum {
    fn begin_snapshot(&mut self, _owner: HostId) {
        self.0 = Digest::default();
    }
    fn claim(&mut self, _owner: HostId, claim: &Claim) -> Result<(), NoRoom> {
        self.0.add(claim);
        Ok(())
    }
    fn withdraw(&mut self, _owner: HostId, _key: Key) {}
    fn end_snapshot(&mut self, _owner: HostId) {}
    fn digest(&self, _owner: HostId) -> Digest {
        self.0
    }
}

fn session(own: u16, peer: u16) -> Session {
    let (own, peer) = (HostId(own), HostId(peer));
    let timing = Timing::DEFAULT;
    Session::new(Config { own, peer, fabric: [0; 16], versions: VERSIONS, timing }, 1)
}

#[expect(clippy::disallowed_methods, reason = "an example measures; the crate has no clock")]
#[expect(clippy::disallowed_types, reason = "an example measures; the crate has no clock")]
fn main() -> Result<(), Box<dyn Error>> {
    let now = Nanos::ZERO;
    let mut publishers = [Publisher::new(1, 1_000), Publisher::new(1, 1_000)];
    let begin = std::time::Instant::now();
    for n in 0..CLAIMS {
        let vni = Vni::new(1 + n % 1_000).expect("a small number");
        let key = Key { vni, mac: Mac::from_u64(0x0200_0000_0000 | u64::from(n)) };
        let ips = [IpAddr::from(Ipv4Addr::from_bits(n))].into_iter().collect();
        let port = PortId(1);
        publishers[0].claim(&Claim { key, port, ips, origin: Origin::Learned, moves: 0 });
    }
    println!("published: {:.0} claims/s", f64::from(CLAIMS) / begin.elapsed().as_secs_f64());
    let (mut sessions, mut sums) =
        ([session(1, 2), session(2, 1)], [Sum::default(), Sum::default()]);
    sessions.iter_mut().for_each(|session| session.connected(now));
    let (begin, mut bytes, mut stream) = (std::time::Instant::now(), 0, Vec::new());
    while !(sessions[0].is_done(&publishers[0]) && sessions[0].flight_bytes() == 0) {
        for (from, to) in [(0, 1), (1, 0)] {
            stream.clear();
            bytes += sessions[from].write(now, &publishers[from], 1 << 20, &mut stream);
            sessions[to].stream(now, &stream, &mut publishers[to], &mut sums[to])?;
        }
    }
    let rate = f64::from(CLAIMS) / begin.elapsed().as_secs_f64();
    assert_eq!(sums[1].0, publishers[0].digest());
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let size = bytes as f64 / f64::from(CLAIMS);
    println!("replicated: {rate:.0} records/s, {size:.1} bytes/record");
    Ok(())
}
