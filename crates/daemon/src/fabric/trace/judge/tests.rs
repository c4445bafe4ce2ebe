use std::net::{IpAddr, Ipv4Addr};

use sluice_api::show::{DropRow, LossRow, PauseRow, PortRow, TunnelRow};
use sluice_base::{PriorityMask, VnetId, Vni};

use super::super::facts::Frame;
use super::*;

const A: Mac = Mac([2, 0, 0, 0, 0, 1]);
const B: Mac = Mac([2, 0, 0, 0, 0, 2]);
const VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Ports 0 and 1, and the underlay, 2; the tunnel to h2 is 0.
struct Case {
    facts: Facts,
    looked: Looked,
}

fn claimed(mac: Mac, state: State, port: u16) -> Claimed {
    let host_name = if state == State::Own { "h1" } else { "h2" }.to_owned();
    let host = HostId(if state == State::Own { 1 } else { 2 });
    let port = PortId(port);
    Claimed { mac, host, host_name, state, port, is_frozen: false, unused_ns: None }
}

/// Returns a port of that number; 2 is the underlay, and has its name.
fn port(index: u16) -> PortLook {
    let port = if index == 2 { "underlay".to_owned() } else { format!("p{index}") };
    let row = PortRow { port, lossless: "yes".to_owned(), ..PortRow::default() };
    PortLook { index, row, up: Some(true), window_frames: 9, ..PortLook::default() }
}

fn pause(paused: bool) -> PauseRow {
    PauseRow {
        port: String::new(),
        priority: 0,
        xoff_sent: 0,
        xon_sent: 0,
        received: 1,
        paused_ns: 77,
        paused,
        pausing: false,
        isolated: None,
        sockets: vec![],
    }
}

impl Case {
    /// Makes a case in which A is at port 0 here, B at h2, and all is well.
    fn new() -> Self {
        let peer = Peer {
            host: HostId(2),
            name: "h2".to_owned(),
            vtep: VTEP.into(),
            tunnel: 0,
            is_member: true,
            is_stale: false,
            has_network: true,
        };
        let entrance = LocalPort {
            id: PortId(0),
            name: "p0".to_owned(),
            is_bound: false,
            has_sender: false,
            learned: 1,
            learn_max: 4,
        };
        let facts = Facts {
            host_name: "h1".to_owned(),
            frame: Frame { vni: Vni::new(42).unwrap(), from: A, to: To::Mac(B) },
            vnet: Some((VnetId(0), "blue".to_owned())),
            source: Some(claimed(A, State::Own, 0)),
            port: Some(entrance),
            destination: Some(claimed(B, State::Authoritative, 7)),
            peer: Some(peer),
            rivals: None,
            hold: None,
        };
        let row = TunnelRow {
            peer: "h2".to_owned(),
            vtep: VTEP,
            next_hop: "02:00:00:00:00:99".to_owned(),
            tx_frames: 5,
            rx_frames: 6,
            queued_frames: 0,
            path_mtu: None,
        };
        let looked = Looked {
            at_ns: 0,
            fdb: vec![Some(Destination::Port(0)), Some(Destination::Tunnel(0))],
            ports: vec![port(0), port(1), port(2)],
            tunnels: vec![TunnelLook { index: 0, row, decap_frames: Some(3) }],
        };
        Self { facts, looked }
    }

    /// Makes a case in which B is at port 1 of this host.
    fn local() -> Self {
        let mut case = Self::new();
        case.facts.destination = Some(claimed(B, State::Own, 1));
        case.looked.fdb[1] = Some(Destination::Port(1));
        case
    }

    fn entrance(&mut self) -> &mut LocalPort {
        self.facts.port.as_mut().unwrap()
    }

    fn peer(&mut self) -> &mut Peer {
        self.facts.peer.as_mut().unwrap()
    }

    /// Returns the verdicts of the sender's host, with an arrow if another host is asked.
    fn source(&self) -> String {
        let (steps, next) = source(&self.facts, &self.looked, self.facts.port.as_ref().unwrap());
        let next = if next == Next::End { "" } else { " ->" };
        words(&steps) + next
    }

    fn arrival(&self) -> String {
        words(&arrival(&self.facts, &self.looked, B))
    }
}

fn words(steps: &[Step]) -> String {
    for step in steps {
        assert!(!step.why.is_empty() && step.remedy == step.verdict.remedy(), "{step:?}");
    }
    let ended = steps.iter().position(|step| step.grade == Grade::Stop);
    assert!(ended.is_none_or(|at| at + 1 == steps.len()), "{steps:?}");
    steps.iter().map(|step| step.verdict.name()).collect::<Vec<_>>().join(" ")
}

type Row = (&'static str, fn(&mut Case), &'static str);

#[test]
fn each_fact_at_the_sender_has_its_verdict() {
    let rows: [Row; 27] = [
        ("all well", |_| (), "learned port_up installed tunnel_up lossless ->"),
        (
            "held for its receiver",
            |c| c.facts.hold = Some(HeldHere { held: PriorityMask(9), ..HeldHere::default() }),
            "learned port_up held_remote tunnel_up lossless ->",
        ),
        (
            "held for too long",
            |c| c.facts.hold = Some(HeldHere { held: PriorityMask(9), stuck: PriorityMask(8) }),
            "learned port_up stuck_remote tunnel_up lossless ->",
        ),
        (
            "bound",
            |c| (c.entrance().is_bound, c.entrance().has_sender) = (true, true),
            "bound port_up installed tunnel_up lossless ->",
        ),
        ("spoofed", |c| c.entrance().is_bound = true, "spoofed_mac"),
        ("new", |c| c.facts.source = None, "would_learn port_up installed tunnel_up lossless ->"),
        (
            "over quota",
            |c| (c.facts.source, c.entrance().learned) = (None, 4),
            "over_quota port_up installed tunnel_up lossless ->",
        ),
        (
            "frozen",
            |c| c.facts.source.as_mut().unwrap().is_frozen = true,
            "frozen port_up installed tunnel_up lossless ->",
        ),
        (
            "elsewhere",
            |c| c.facts.source = Some(claimed(A, State::Authoritative, 3)),
            "claimed_elsewhere port_up installed tunnel_up lossless ->",
        ),
        ("gone", |c| c.looked.ports[0].gone = Some("gone".to_owned()), "learned port_gone"),
        ("down", |c| c.looked.ports[0].up = Some(false), "learned port_down"),
        (
            "held",
            |c| c.looked.ports[0].window_frames = 0,
            "learned held_back installed tunnel_up lossless ->",
        ),
        (
            "unknown port",
            |c| drop(c.looked.ports.remove(0)),
            "learned switch_silent installed tunnel_up lossless ->",
        ),
        (
            "by its address",
            |c| c.facts.frame.to = To::Ip(IpAddr::V4(VTEP)),
            "learned port_up resolved installed tunnel_up lossless ->",
        ),
        (
            "an address of nobody",
            |c| (c.facts.frame.to, c.facts.destination) = (To::Ip(VTEP.into()), None),
            "learned port_up ip_unknown",
        ),
        ("a group", |c| c.facts.frame.to = To::Mac(Mac::BROADCAST), "learned port_up group"),
        (
            "a miss",
            |c| c.looked.fdb[1] = None,
            "learned port_up would_install tunnel_up lossless ->",
        ),
        (
            "nobody",
            |c| (c.looked.fdb[1], c.facts.destination, c.facts.peer) = (None, None, None),
            "learned port_up destination_unknown",
        ),
        (
            "it has moved",
            |c| c.looked.fdb[1] = Some(Destination::Port(1)),
            "learned port_up chip_differs tunnel_up lossless ->",
        ),
        (
            "no next hop",
            |c| c.looked.tunnels[0].row.next_hop = "unresolved".to_owned(),
            "learned port_up installed next_hop_unknown",
        ),
        (
            "not in the network",
            |c| c.peer().has_network = false,
            "learned port_up installed not_in_network",
        ),
        ("stale", |c| c.peer().is_stale = true, "learned port_up installed host_stale lossless"),
        (
            "foreign",
            |c| c.peer().is_member = false,
            "learned port_up installed foreign_host lossless",
        ),
        (
            "underlay down",
            |c| c.looked.ports[2].up = Some(false),
            "learned port_up installed port_down",
        ),
        (
            "underlay paused",
            |c| c.looked.ports[2].pauses = vec![pause(true)],
            "learned port_up installed paused lossless ->",
        ),
        (
            "underlay was paused",
            |c| c.looked.ports[2].pauses = vec![pause(false)],
            "learned port_up installed tunnel_up lossless ->",
        ),
        (
            "lossy",
            |c| c.looked.ports[2].row.lossless = "no, needs ZZ".to_owned(),
            "learned port_up installed tunnel_up lossy ->",
        ),
    ];
    for (name, change, expected) in rows {
        let mut case = Case::new();
        change(&mut case);
        assert_eq!(case.source(), expected, "{name}");
    }
}

#[test]
fn trace_local_receiver_decided_without_tunnel() {
    assert_eq!(Case::local().source(), "learned port_up installed delivered");
    let rows: [Row; 4] = [
        ("down", |c| c.looked.ports[1].up = Some(false), "learned port_up installed port_down"),
        ("blocked", |c| c.looked.ports[1].blocked = true, "learned port_up installed blocked"),
        (
            "the sender's port",
            |c| {
                c.facts.destination = Some(claimed(B, State::Own, 0));
                c.looked.fdb[1] = Some(Destination::Port(0));
            },
            "learned port_up installed same_port",
        ),
        ("withdrawn", |c| c.facts.destination = None, "learned port_up chip_differs delivered"),
    ];
    for (name, change, expected) in rows {
        let mut case = Case::local();
        change(&mut case);
        assert_eq!(case.source(), expected, "{name}");
    }
}

/// An open path is reported as open, together with the losses of its ports.
#[test]
fn trace_reports_port_losses_along_path() {
    let lost = |frames| {
        let counter = "ring.drops".to_owned();
        vec![LossRow { port: "p".to_owned(), counter, frames, ago_ns: 3_000_000_000 }]
    };
    let mut case = Case::new();
    case.looked.ports[0].row.losses = lost(1);
    case.looked.ports[2].row.losses = lost(12);
    let (steps, _) = source(&case.facts, &case.looked, case.facts.port.as_ref().unwrap());
    let of = |what: &str| &steps.iter().find(|step| step.what == what).unwrap().why;
    assert!(of("port").ends_with("lost 1 frame outside the switch (ring.drops), last 3.0 s ago"));
    assert!(of("tunnel").contains("; but port "), "{}", of("tunnel"));
    assert!(
        of("tunnel").contains("lost 12 frames outside the switch (ring.drops), last 3.0 s ago")
    );
}

#[test]
fn each_fact_at_the_receiver_has_its_verdict() {
    let rows: [Row; 9] = [
        ("all well", |_| (), "accepted installed delivered"),
        ("a stranger", |c| c.facts.peer = None, "unknown_vtep"),
        ("not its network", |c| c.peer().has_network = false, "unknown_vni"),
        ("not our network", |c| c.facts.vnet = None, "unknown_vni"),
        (
            "elsewhere",
            |c| c.facts.destination = Some(claimed(B, State::Authoritative, 3)),
            "accepted split_horizon",
        ),
        ("nobody", |c| c.facts.destination = None, "accepted destination_unknown"),
        ("a miss", |c| c.looked.fdb[1] = None, "accepted would_install delivered"),
        ("down", |c| c.looked.ports[1].up = Some(false), "accepted installed port_down"),
        ("blocked", |c| c.looked.ports[1].blocked = true, "accepted installed blocked"),
    ];
    for (name, change, expected) in rows {
        let mut case = Case::local();
        change(&mut case);
        assert_eq!(case.arrival(), expected, "{name}");
    }
}

#[test]
fn trace_reports_counters_of_entries_on_path() {
    let mut case = Case::new();
    case.looked.ports[0].row.rx_frames = 11;
    case.looked.ports[0].drops = [(1, 2), (3, 4)]
        .map(|(priority, frames)| DropRow {
            port: "p0".to_owned(),
            priority,
            reason: "spoofed_mac".to_owned(),
            class: "policy".to_owned(),
            frames,
            bytes: 0,
        })
        .to_vec();
    case.looked.ports[2].pauses = vec![pause(false)];
    case.facts.destination.as_mut().unwrap().unused_ns = Some(8);
    let (steps, _) = source(&case.facts, &case.looked, case.facts.port.as_ref().unwrap());
    let seen = |at: usize, name: &str| steps[at].seen.get(name).copied();
    assert_eq!(seen(0, "endpoints_learned"), Some(1));
    assert_eq!([seen(1, "rx_frames"), seen(1, "drops.spoofed_mac")], [Some(11), Some(6)]);
    assert_eq!(seen(2, "unused_ns"), Some(8));
    assert_eq!([seen(3, "tx_frames"), seen(3, "paused_ns")], [Some(5), Some(77)]);
    let steps = arrival(&Case::local().facts, &Case::local().looked, B);
    assert_eq!(steps[0].seen.get("decap_frames"), Some(&3));
}
