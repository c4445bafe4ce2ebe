//! Ports whose driver takes tags off: priorities, the tenant's own tags, and frames of no VLAN.

mod harness;

use harness::config::{access, config, underlay, underlay_mac, vtep, with_tunnels};
use harness::frames::{Outer, Tenant, in_vxlan, tagged};
use sluice_base::{
    Batch, Buf, DropReason, Mac, Nanos, PortId, Priority, TunnelId, VlanTag, VnetId,
};
use sluice_switch::{
    Command, Destination, Egress, PortConfig, Sources, Switch, SwitchConfig, Tags, Taken, Target,
};
use sluice_wire::EtherType;

/// A frame, and its driver's treatment of its tag.
#[derive(Debug)]
struct Frame(Vec<u8>, VlanTag);

impl Buf for Frame {
    fn head(&self) -> &[u8] {
        &self.0[..self.0.len().min(128)]
    }

    fn size(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap()
    }

    fn truncate(&mut self, size: u32) {
        self.0.truncate(size as usize);
    }

    fn vlan_tag(&self) -> VlanTag {
        self.1
    }
}

const NOW: Nanos = Nanos(1_000_000);

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

/// Returns a switch with ports 0 (`tags`), 1 (untouched), the underlay 2, and a tunnel to 2.
fn switch(tags: Tags, sources: Sources) -> Switch<Frame> {
    let ports = vec![PortConfig { tags, sources, ..access(0) }, access(0), underlay(1)];
    let config: SwitchConfig = with_tunnels(config(ports), 2, &[2]);
    let mut switch = Switch::new(&config, 1, NOW).unwrap();
    let places = [
        (1, Destination::Port(PortId(0))),
        (2, Destination::Port(PortId(1))),
        (3, Destination::Tunnel(TunnelId(0))),
    ];
    for (n, to) in places {
        let install = Command::Install { vnet: VnetId(0), mac: mac(n), to };
        switch.command(NOW, install).unwrap();
    }
    switch.attach_control(true);
    switch
}

fn give(switch: &mut Switch<Frame>, port: u16, frames: Vec<Frame>) {
    let input = switch.input(PortId(port), 0);
    let mut batch = Batch::with_limit(64);
    frames.into_iter().for_each(|frame| batch.push(frame).unwrap());
    switch.receive(NOW, input, &mut batch);
}

/// Returns priority and bytes of the frames that leave a port.
fn sent(switch: &mut Switch<Frame>, port: u16) -> Vec<(u8, Vec<u8>)> {
    let mut sent = Vec::new();
    let mut sink = |egress: &Egress<'_, Frame>| {
        let rest = egress.buf.map_or(&[][..], |buf| &buf.0[egress.strip.into()..]);
        sent.push((egress.priority.get(), [egress.header, rest].concat()));
        Taken::All
    };
    switch.transmit(NOW, PortId(port), &mut sink);
    sent
}

fn dropped(switch: &Switch<Frame>, reason: DropReason) -> u64 {
    let inputs = 0..4;
    let of = |at: usize| {
        let input = sluice_base::InputId::from_index(at);
        Priority::all().map(|p| switch.dropped(input, p, reason).frames).sum::<u64>()
    };
    inputs.map(of).sum()
}

/// Returns a frame of DSCP 46, which is priority 5 unless a tag gives another.
fn plain(dst: u8) -> Vec<u8> {
    Tenant::new(mac(dst), mac(1), 46, 60).bytes()
}

#[test]
fn pcp_sets_priority_in_batches_and_singly() {
    for sources in [Sources::Any, Sources::Learn] {
        for together in [true, false] {
            let mut switch = switch(Tags::Trunk, sources);
            let tags = [
                VlanTag::TakenOff(3 << 13 | 10),
                VlanTag::TakenOff(10),
                VlanTag::AsIs,
                VlanTag::TakenOff(7 << 13 | 10),
            ];
            let frames = tags.map(|tag| Frame(plain(2), tag));
            if together {
                give(&mut switch, 0, frames.into());
            } else {
                frames.into_iter().for_each(|frame| give(&mut switch, 0, vec![frame]));
            }
            let mut priorities: Vec<u8> = sent(&mut switch, 1).iter().map(|f| f.0).collect();
            priorities.sort_unstable();
            assert_eq!(priorities, [0, 3, 5, 7], "{sources:?}, {together}");
            assert!(switch.audit().is_closed());
        }
    }
}

#[test]
fn foreign_vlan_and_untagged_frames_drop_with_reason() {
    let mut switch = switch(Tags::Trunk, Sources::Any);
    let other = tagged(&plain(2), EtherType::VLAN);
    give(&mut switch, 0, vec![Frame(other, VlanTag::NotAllowed)]);
    let two = || Frame(plain(2), VlanTag::NotAllowed);
    give(&mut switch, 0, vec![two(), two()]);
    assert_eq!(sent(&mut switch, 1), []);
    assert_eq!(dropped(&switch, DropReason::VlanNotAllowed), 1);
    assert_eq!(dropped(&switch, DropReason::Untagged), 2);
    assert!(switch.audit().is_closed());
}

/// Returns a frame with a tag of VLAN 7.
fn own_tag(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = tagged(bytes, EtherType::VLAN);
    bytes[15] = 7;
    bytes
}

/// Behind the port's tag the tenant's own one passes everywhere in its network, unchanged. Out of a
/// tunnel it comes in only if the network has a trunk.
#[test]
fn tenant_tag_is_carried_only_in_trunk_networks() {
    let mut near = switch(Tags::Trunk, Sources::Any);
    let off = VlanTag::TakenOff(4 << 13 | 10);
    let (here, there) = (own_tag(&plain(2)), own_tag(&plain(3)));
    give(&mut near, 0, vec![Frame(here.clone(), off), Frame(there.clone(), off)]);
    assert_eq!(sent(&mut near, 1), [(4, here)]);
    let through = sent(&mut near, 2);
    assert_eq!((through.len(), &through[0].1[50..]), (1, &there[..]));
    for (tags, carried) in [(Tags::Trunk, true), (Tags::Access, false), (Tags::Kept, false)] {
        let mut far = switch(tags, Sources::Any);
        let (dst, remote) = (underlay_mac(1), vtep(2));
        let outer = Outer { dst, remote, local: vtep(1), vni: 100, dscp: 32, ecn: 0, pcp: None };
        let inner = own_tag(&plain(1));
        let bytes = in_vxlan(&outer, &inner);
        give(&mut far, 2, vec![Frame(bytes, VlanTag::AsIs)]);
        let expected = if carried { vec![(4, inner)] } else { vec![] };
        assert_eq!(sent(&mut far, 0), expected, "{tags:?}");
        assert_eq!(dropped(&far, DropReason::VlanNotAllowed), u64::from(!carried));
        assert!(far.audit().is_closed());
    }
}

/// A machine behind a tag of its own is in another network: its ARP is not punted to control.
#[test]
fn arp_behind_tenant_tag_is_not_punted() {
    let mut switch = switch(Tags::Trunk, Sources::Any);
    let arp = harness::frames::arp(Mac::BROADCAST, mac(1), [192, 168, 0, 1].into());
    let own = own_tag(&arp);
    let off = VlanTag::TakenOff(10);
    give(&mut switch, 0, vec![Frame(own, off)]);
    assert_eq!(switch.notice(), None);
    give(&mut switch, 0, vec![Frame(arp, off)]);
    assert!(switch.notice().is_some());
}

/// A frame that control sends out of a port is like any other: its driver puts the tag on.
#[test]
fn what_control_sends_leaves_by_the_ports_driver() {
    let mut switch = switch(Tags::Trunk, Sources::Any);
    let frame = Frame(plain(1), VlanTag::AsIs);
    switch.inject(NOW, frame, Target::Port(PortId(0))).unwrap();
    assert_eq!(sent(&mut switch, 0), [(7, plain(1))]);
}
