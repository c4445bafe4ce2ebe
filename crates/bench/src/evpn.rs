//! `make bench PART=evpn`: the EVPN speaker's RIB: MACs that a neighbor announces and withdraws, in
//! one thread and without a network, each MAC to its last change.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::ensure;
use sluice_api::results::Row;
use sluice_base::{Mac, Nanos, Vni};
use sluice_evpn::{
    Change, Config, Endpoint, Limits, Link, MacKey, Mobility, NeighborConfig, NeighborId, Network,
    RouteTarget, Side, Speaker,
};

use crate::{machine, report};

/// Bytes that a connection gives at a time.
const PIECE: usize = 1 << 16;

/// Two speakers with a session.
struct Pair {
    now: Nanos,
    sender: Speaker,
    receiver: Speaker,
}

const fn link(side: Side) -> Link {
    Link { neighbor: NeighborId(0), side }
}

/// Seconds of each step for all MACs.
struct Round {
    announce: f64,
    import: f64,
    withdraw: f64,
    bytes: usize,
}

pub(crate) fn run(rounds: usize, macs: u32) -> anyhow::Result<()> {
    let all = (0..rounds).map(|_| round(macs)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut rows = Vec::new();
    let mut add = |measure, unit, of: &dyn Fn(&Round) -> f64| {
        let row = Row::new(measure, "sluice", unit, all.iter().map(of).collect());
        rows.push(row.with("macs", macs));
    };
    let rate = |seconds: f64| f64::from(macs) / seconds / 1e3;
    add("evpn_announce", "K/s", &|round| rate(round.announce));
    add("evpn_import", "K/s", &|round| rate(round.import));
    add("evpn_withdraw", "K/s", &|round| rate(round.withdraw));
    add("evpn_bytes", "B/MAC", &|round| round.bytes as f64 / f64::from(macs));
    report::finish("evpn", rows)
}

fn round(macs: u32) -> anyhow::Result<Round> {
    let mut pair = Pair::new()?;
    let begin = machine::processor_time();
    for number in 0..macs {
        let endpoint =
            Endpoint { key: key(number), ips: Vec::new(), mobility: Mobility::default() };
        let announced = pair.sender.announce(endpoint);
        ensure!(announced == Ok(0), "cannot announce MAC {number}: {announced:?}");
    }
    let bytes = pair.output();
    let announce = machine::processor_time() - begin;
    let (import, there) = pair.import(&bytes);
    ensure!(there == macs, "{there} of {macs} MACs are known");
    for number in 0..macs {
        pair.sender.withdraw(key(number));
    }
    let withdrawals = pair.output();
    let (withdraw, there) = pair.import(&withdrawals);
    ensure!(there == 0 && pair.receiver.neighbors()[0].routes == 1, "{there} MACs are left");
    Ok(Round { announce, import, withdraw, bytes: bytes.len() })
}

fn key(number: u32) -> MacKey {
    let vni = Vni::new(100).expect("24 bits");
    MacKey { vni, mac: Mac::from_u64(0x0200_0000_0000 + u64::from(number)) }
}

impl Pair {
    /// Brings the session up.
    fn new() -> anyhow::Result<Self> {
        let now = Nanos::from_millis(1);
        let mut pair = Self { now, sender: speaker(1, 2, now), receiver: speaker(2, 1, now) };
        let address = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
        pair.sender.connected(now, NeighborId(0));
        ensure!(pair.receiver.accept(now, address).is_some(), "the neighbor is not known");
        for _ in 0..4 {
            let bytes = pair.output();
            pair.receiver.receive(now, link(Side::Passive), &bytes);
            let answer = pair.receiver.output(now, link(Side::Passive)).to_vec();
            pair.receiver.sent(now, link(Side::Passive), answer.len());
            pair.sender.receive(now, link(Side::Active), &answer);
        }
        while pair.receiver.change().is_some() {}
        Ok(pair)
    }

    /// Returns all that the sender has for the receiver.
    fn output(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        loop {
            let bytes = self.sender.output(self.now, link(Side::Active));
            let size = bytes.len();
            if size == 0 {
                return all;
            }
            all.extend_from_slice(bytes);
            self.sender.sent(self.now, link(Side::Active), size);
        }
    }

    /// Gives bytes to the receiver; returns the seconds until all changes were taken, and the
    /// number of MACs that have a place then.
    fn import(&mut self, bytes: &[u8]) -> (f64, u32) {
        let mut there = 0;
        let begin = machine::processor_time();
        for piece in bytes.chunks(PIECE) {
            self.receiver.receive(self.now, link(Side::Passive), piece);
            while let Some(change) = self.receiver.change() {
                there += u32::from(matches!(change, Change::Mac { to: Some(_), .. }));
            }
        }
        (machine::processor_time() - begin, there)
    }
}

fn speaker(own: u8, other: u8, now: Nanos) -> Speaker {
    let address = |last| Ipv4Addr::new(192, 0, 2, last);
    let neighbor =
        NeighborConfig { address: address(other).into(), remote_as: 65000, is_passive: true };
    let config = Config {
        local_as: 65000,
        router_id: address(own),
        vtep: address(own),
        hold_s: Config::HOLD_S,
        stale_max: Config::STALE_MAX,
        neighbors: vec![neighbor],
        limits: Limits::default(),
    };
    let mut speaker = Speaker::new(config, 1, now);
    let vni = Vni::new(100).expect("24 bits");
    speaker.add_network(now, Network { vni, target: RouteTarget::of_as(65000, 100) });
    speaker
}
