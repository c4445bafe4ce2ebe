use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_ports::chip::Capacity;

use super::*;
use crate::config::{self, DeviceFacts, Devices};

/// A chip in memory.
#[derive(Debug, Default)]
struct Memory {
    networks: BTreeMap<VnetId, Network>,
    ports: BTreeMap<PortId, String>,
    entries: BTreeMap<(VnetId, Mac), Entry>,
    decap: Vec<(VnetId, Ipv4Addr)>,
}

impl Chip for Memory {
    fn capacity(&self) -> Capacity {
        Capacity { macs: 16, flows: 16 }
    }

    fn add_network(&mut self, network: Network) -> Result<(), Refused> {
        self.networks.insert(network.vnet, network);
        Ok(())
    }

    fn remove_network(&mut self, vnet: VnetId) -> Result<(), Refused> {
        self.networks.remove(&vnet);
        self.entries.retain(|(of, _), _| *of != vnet);
        self.decap.retain(|(of, _)| *of != vnet);
        Ok(())
    }

    fn has_network(&self, vnet: VnetId) -> bool {
        self.networks.contains_key(&vnet)
    }

    fn add_port(&mut self, port: PortId, _: VnetId, device: &str) -> Result<(), Refused> {
        self.ports.insert(port, device.to_owned());
        Ok(())
    }

    fn remove_port(&mut self, port: PortId) -> Result<(), Refused> {
        self.ports.remove(&port);
        self.entries.retain(|_, entry| entry.to != Place::Port(port));
        Ok(())
    }

    fn put(&mut self, vnet: VnetId, mac: Mac, entry: Entry) -> Result<(), Refused> {
        self.entries.insert((vnet, mac), entry);
        Ok(())
    }

    fn remove(&mut self, vnet: VnetId, mac: Mac) -> Result<(), Refused> {
        self.entries.remove(&(vnet, mac));
        Ok(())
    }

    fn set_decap(
        &mut self,
        vnet: VnetId,
        (_, vtep): (TunnelId, Ipv4Addr),
        is_on: bool,
    ) -> Result<(), Refused> {
        self.decap.retain(|known| *known != (vnet, vtep));
        self.decap.extend(is_on.then_some((vnet, vtep)));
        Ok(())
    }

    fn hits(&mut self, _: &mut dyn FnMut(VnetId, Mac, Hits)) -> Result<(), Refused> {
        Ok(())
    }

    fn mend(&mut self) -> Result<u64, Refused> {
        Ok(0)
    }

    fn forwarded(&self) -> Result<u64, Refused> {
        Ok(0)
    }
}

struct Fake;

impl Devices for Fake {
    fn facts(&self, _: &str) -> Option<DeviceFacts> {
        Some(DeviceFacts { mac: Mac([2, 0, 0, 0, 0, 9]), mtu: 1_500 })
    }
}

fn plan(vni: u32, vtep: &str) -> Plan {
    let text = format!(
        "[host]\nname = \"h1\"\n\
         [chip]\nkind = \"kernel\"\n\
         [underlay]\nkind = \"l2\"\ndevice = \"up0\"\naddress = \"192.0.2.1\"\n\
         [[vnet]]\nname = \"blue\"\nvni = {vni}\n\
         [[peer]]\nname = \"h2\"\nvtep = \"{vtep}\"\nvnets = [\"blue\"]\n"
    );
    config::plan("host.toml", &text, &Fake).unwrap_or_else(|report| panic!("{report}"))
}

const BLUE: VnetId = VnetId(0);
const H2: TunnelId = TunnelId(0);
const PORT: PortId = PortId(4);
const OWN: Mac = Mac([2, 0, 0, 0, 0, 1]);
const OTHER: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn book() -> Book<Memory> {
    Book::new(Cache::new(Memory::default()), &plan(42, "192.0.2.2"))
}

fn bound(ips: &[&str]) -> BoundTo {
    BoundTo {
        vni: Vni::new(42).unwrap(),
        mac: OWN,
        ips: ips.iter().map(|ip| ip.parse().unwrap()).collect(),
        taken: 0,
        allowed: Vec::new(),
        routes: false,
    }
}

fn add_port(book: &mut Book<Memory>, bound: Option<BoundTo>) {
    let (vnet, device) = (BLUE, "slp1".to_owned());
    book.note(Note::Port { port: PORT, vnet, device, bound }).unwrap();
}

fn senders_of(book: &Book<Memory>, mac: Mac) -> Option<Senders> {
    book.cache().chip().entries.get(&(BLUE, mac)).map(|entry| entry.senders)
}

#[test]
fn network_is_made_with_its_first_address() {
    let mut book = book();
    assert!(book.cache().chip().networks.is_empty());
    book.note(Note::Known { vnet: BLUE, mac: OTHER, to: Destination::Tunnel(H2) }).unwrap();
    let chip = book.cache().chip();
    assert_eq!(chip.networks[&BLUE].vni.get(), 42);
    let to = Place::Tunnel(H2, Ipv4Addr::new(192, 0, 2, 2));
    assert_eq!(chip.entries[&(BLUE, OTHER)].to, to);
}

#[test]
fn bound_endpoint_may_send_its_own_alone() {
    let ipv4 = Some(Ipv4Addr::new(10, 0, 0, 1));
    let ipv6 = Some("2001:db8::1".parse().unwrap());
    for (ips, senders) in [
        (&["10.0.0.1", "10.0.0.2"][..], Senders::Only(ipv4, None)),
        (&["2001:db8::1", "2001:db8::2"], Senders::Only(None, ipv6)),
        (&["2001:db8::1", "10.0.0.1"], Senders::Only(ipv4, ipv6)),
        (&[], Senders::Any),
    ] {
        let mut book = book();
        add_port(&mut book, Some(bound(ips)));
        assert_eq!(senders_of(&book, OWN), Some(senders), "{ips:?}");
        // A stranger behind the same port is the switch's matter.
        book.note(Note::Known { vnet: BLUE, mac: OTHER, to: Destination::Port(PORT) }).unwrap();
        assert_eq!(senders_of(&book, OTHER), Some(Senders::NONE));
    }
}

#[test]
fn unbound_endpoint_may_send_nothing() {
    let mut book = book();
    add_port(&mut book, Some(bound(&["10.0.0.1"])));
    book.note(Note::Unbound(PORT, OWN)).unwrap();
    assert_eq!(senders_of(&book, OWN), None);
    book.note(Note::Known { vnet: BLUE, mac: OWN, to: Destination::Port(PORT) }).unwrap();
    assert_eq!(senders_of(&book, OWN), Some(Senders::NONE), "the switch judges each frame");
}

#[test]
fn address_at_another_kind_of_port_goes() {
    let mut book = book();
    book.note(Note::Known { vnet: BLUE, mac: OTHER, to: Destination::Tunnel(H2) }).unwrap();
    // It moves to a port that is not the chip's: the old way must not stay.
    book.note(Note::Known { vnet: BLUE, mac: OTHER, to: Destination::Port(PortId(9)) }).unwrap();
    assert_eq!(senders_of(&book, OTHER), None);
}

#[test]
fn what_means_something_else_goes() {
    let know = |book: &mut Book<Memory>| {
        book.note(Note::Known { vnet: BLUE, mac: OTHER, to: Destination::Tunnel(H2) }).unwrap();
        book.note(Note::Decap { vnet: BLUE, tunnel: H2, is_on: true }).unwrap();
    };
    for (next, is_kept) in [
        (plan(42, "192.0.2.2"), true),
        (plan(42, "192.0.2.3"), false),
        (plan(43, "192.0.2.2"), false),
    ] {
        let mut book = book();
        know(&mut book);
        book.note(Note::Plan(Arc::new(next))).unwrap();
        let chip = book.cache().chip();
        assert_eq!(chip.entries.contains_key(&(BLUE, OTHER)), is_kept);
        assert_eq!(!chip.decap.is_empty(), is_kept);
        know(&mut book);
        assert_eq!(book.cache().chip().decap.len(), 1);
    }
}
