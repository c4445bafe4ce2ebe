use std::vec::Vec;

use sluice_base::{HostId, PortId, PuntCause};

use super::*;
use crate::directory::PortRule;
use crate::plane::{Command, Config, Kind};
use crate::vport::Ips;

const PORT: PortId = PortId(1);
const PEER: HostId = HostId(2);
const HERE: Location = Location::Port(PORT);
const THERE: Location = Location::Host(PEER);

fn vni() -> Vni {
    Vni::new(9).unwrap()
}

fn mac(n: u64) -> Mac {
    Mac::from_u64(0x0200_0000_0000 | n)
}

fn key(n: u64) -> Key {
    Key { vni: vni(), mac: mac(n) }
}

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

fn plane() -> Plane {
    let mut plane = Plane::new(&Config::new(HostId(5), 1, [1; 16], 4), 3, Nanos::ZERO);
    plane.add_vnet(vni());
    let rule = PortRule::Learn { quota: 10, sticky: false };
    assert!(plane.add_port(Nanos::ZERO, PORT, vni(), rule));
    plane.add_host(Nanos::ZERO, PEER, &[vni()], Kind::Member);
    plane
}

fn commands(plane: &mut Plane) -> Vec<Command> {
    let all = core::iter::from_fn(|| plane.command());
    all.filter(|command| !matches!(command, Command::OpenTunnel { .. })).collect()
}

#[test]
fn adopted_entry_at_own_port_claimed_without_command() {
    let mut plane = plane();
    plane.adopt(at(1), vni(), mac(7), HERE);
    assert_eq!(plane.own_claims(), 1);
    assert_eq!(plane.vport(key(7)).unwrap().vport.claim.port, PORT);
    assert_eq!(commands(&mut plane), []);
    assert_eq!(plane.installed().count(), 1);
    // The entry stays when the time of unconfirmed entries is over.
    plane.tick(at(20_000));
    assert_eq!(commands(&mut plane), []);
}

#[test]
fn adopted_remote_entry_kept_until_claim_timeout() {
    let mut plane = plane();
    plane.adopt(at(1), vni(), mac(7), THERE);
    assert_eq!(plane.own_claims(), 0, "it is not this host's to claim");
    assert_eq!((commands(&mut plane), plane.flow_count()), (Vec::new(), 1));
    plane.tick(at(14_000));
    assert_eq!(commands(&mut plane), []);
    plane.tick(at(15_100));
    assert_eq!(commands(&mut plane), [Command::Remove { vni: vni(), mac: mac(7) }]);
    assert_eq!(plane.flow_count(), 0);
}

#[test]
fn adopted_entry_of_removed_host_taken_out() {
    let mut plane = plane();
    let foreign = HostId(u16::MAX);
    plane.add_host(at(1), foreign, &[vni()], Kind::Foreign);
    plane.adopt(at(1), vni(), mac(7), Location::Host(foreign));
    plane.adopt(at(1), vni(), mac(8), THERE);
    plane.decap(at(1), vni(), foreign);
    assert_eq!((plane.flow_count(), plane.tunnels().count()), (2, 2));
    // It becomes a member, with another number.
    plane.remove_host(at(2), foreign);
    let ended = [
        Command::ForgetDecap { vni: vni(), host: foreign },
        Command::Remove { vni: vni(), mac: mac(7) },
        Command::CloseTunnel { host: foreign },
    ];
    assert_eq!(commands(&mut plane), ended);
    assert_eq!((plane.flow_count(), plane.tunnels().count()), (1, 1), "others stay");
    plane.add_host(at(2), HostId(6), &[vni()], Kind::Member);
    plane.tick(at(15_100));
    assert_eq!(commands(&mut plane), [Command::Remove { vni: vni(), mac: mac(8) }]);
}

#[test]
fn what_the_table_knows_better_is_corrected() {
    let mut plane = plane();
    plane.bind(at(1), PORT, key(7), Ips::default()).unwrap();
    plane.adopt(at(2), vni(), mac(7), THERE);
    assert_eq!(commands(&mut plane), [Command::Install { vni: vni(), mac: mac(7), to: HERE }]);
    assert_eq!(plane.flow_count(), 0);
    plane.adopt(at(3), vni(), mac(7), HERE);
    assert_eq!(commands(&mut plane), [], "as it should be");
}

#[test]
fn adopted_entry_of_unknown_vnet_ignored() {
    let mut plane = plane();
    plane.adopt(at(1), Vni::new(8).unwrap(), mac(7), HERE);
    assert_eq!((plane.own_claims(), plane.installed().count()), (0, 0));
}

#[test]
fn fdb_lost_entries_cleared_reinstalled_on_next_miss() {
    let mut plane = plane();
    plane.bind(at(1), PORT, key(7), Ips::default()).unwrap();
    plane.decap(at(1), vni(), PEER);
    let mut head = [0; 60];
    head[..6].copy_from_slice(&mac(7).0);
    head[6..12].copy_from_slice(&mac(8).0);
    let ask = |plane: &mut Plane, now| {
        plane.punt(now, Location::Host(PEER), vni(), PuntCause::Miss, &head);
        commands(plane)
    };
    let install = Command::Install { vni: vni(), mac: mac(7), to: HERE };
    assert_eq!(ask(&mut plane, at(2)), std::slice::from_ref(&install));
    plane.punt(at(200), Location::Host(PEER), vni(), PuntCause::Miss, &head);
    plane.fdb_lost(at(200));
    assert_eq!(commands(&mut plane), [], "what waited was for the old one");
    assert_eq!((plane.installed().count(), plane.decap_flows().count()), (0, 0));
    assert_eq!(plane.own_claims(), 1, "what is claimed is not the chip's");
    assert_eq!(ask(&mut plane, at(400)), [install]);
}

#[test]
fn who_leaves_says_so_and_ends_its_sessions() {
    let mut plane = plane();
    plane.connected(at(1), PEER);
    let mut bytes = Vec::new();
    plane.write(at(1), PEER, 1 << 16, &mut bytes);
    plane.leave(at(2));
    bytes.clear();
    assert!(plane.write(at(2), PEER, 1 << 16, &mut bytes) > 0, "goodbye");
    assert_eq!(plane.write(at(2), PEER, 1 << 16, &mut bytes), 0);
}
