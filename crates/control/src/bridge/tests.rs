use core::net::Ipv4Addr;
use std::vec;

use sluice_base::{Mac, PortId};

use super::*;
use crate::vport::Origin;

const ME: HostId = HostId(1);
const OTHER: HostId = HostId(2);

fn key(n: u64) -> Key {
    Key { vni: Vni::new(5000).unwrap(), mac: Mac::from_u64(n) }
}

fn ip(n: u64) -> IpAddr {
    Ipv4Addr::from_bits(0x0a00_0000 + u32::try_from(n).unwrap()).into()
}

fn claim(n: u64, moves: u32) -> Claim {
    let ips = [ip(n)].into_iter().collect();
    Claim { key: key(n), port: PortId(4), ips, origin: Origin::Learned, moves }
}

struct Both {
    table: Table,
    changes: Vec<Change>,
}

impl Both {
    fn new(limit: u32) -> Self {
        Self { table: Table::new(limit, 1), changes: Vec::new() }
    }

    fn intake(&mut self) -> Intake<'_> {
        Intake { table: &mut self.table, now: Nanos(5), changes: &mut self.changes }
    }

    fn state(&self, n: u64) -> Option<State> {
        let view = View { table: &self.table, me: ME, confirmed: |_, _| true };
        let found = view.find(key(n));
        assert_eq!(view.find_ip(key(n).vni, ip(n)), found, "both indices lead to the same");
        found.map(|found| found.state)
    }
}

#[test]
fn what_a_session_brings_is_found_and_told() {
    let mut both = Both::new(100);
    both.intake().claim(OTHER, &claim(1, 0)).unwrap();
    both.intake().claim(OTHER, &claim(1, 0)).unwrap();
    assert_eq!(both.changes.len(), 1, "to hear it again is no news");
    assert_eq!(both.state(1), Some(State::Authoritative));
    both.table.set_owner(Nanos(6), OTHER, OwnerState::Stale, |_| {});
    assert_eq!(both.state(1), Some(State::Stale));
    both.intake().claim(ME, &claim(1, 1)).unwrap();
    assert_eq!(both.state(1), Some(State::Own));
    both.intake().withdraw(ME, key(1));
    both.intake().withdraw(ME, key(1));
    assert_eq!(both.state(1), Some(State::Stale), "what another host has claimed is there again");
    assert_eq!(both.changes.len(), 3);
}

#[test]
fn a_snapshot_sweeps_what_it_did_not_name_and_tells_it() {
    let mut both = Both::new(5_000);
    for n in 0..3_000 {
        both.intake().claim(OTHER, &claim(n, 0)).unwrap();
    }
    both.changes.clear();
    both.intake().begin_snapshot(OTHER);
    let named = [claim(1, 0), claim(2, 0)];
    for claim in &named {
        both.intake().claim(OTHER, claim).unwrap();
    }
    both.intake().end_snapshot(OTHER);
    assert_eq!(both.changes.len(), 2_998);
    let left: Vec<_> = vec![both.state(0), both.state(1), both.state(2)];
    assert_eq!(left, [None, Some(State::Authoritative), Some(State::Authoritative)]);
    assert_eq!(both.intake().digest(OTHER), named.iter().collect(), "what its owner would say");
}

#[test]
fn a_full_table_says_so() {
    let mut both = Both::new(1);
    both.intake().claim(OTHER, &claim(1, 0)).unwrap();
    assert_eq!(both.intake().claim(OTHER, &claim(2, 0)), Err(NoRoom));
    assert_eq!(both.changes.len(), 1);
}
