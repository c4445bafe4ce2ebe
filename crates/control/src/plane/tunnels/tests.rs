use sluice_base::{HostId, Nanos, Vni};

use super::{Flow, Tunnels, Turn};

const LIFE: Nanos = Nanos::from_millis(100);
const H: HostId = HostId(7);

fn vni() -> Vni {
    Vni::new(5).unwrap()
}

fn at(millis: u64) -> Nanos {
    Nanos::from_millis(millis)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    /// In use, by this many flows.
    InUse(u32),
    Lingering,
}

fn made(state: State) -> Tunnels {
    let mut tunnels = Tunnels::new(LIFE, LIFE);
    let flows = match state {
        State::Closed => 0,
        State::InUse(flows) => flows,
        State::Lingering => 1,
    };
    for _ in 0..flows {
        let _ = tunnels.flow_made(at(0), H, Flow::Encap);
    }
    if state == State::Lingering {
        tunnels.flow_ended(at(0), H, Flow::Encap);
    }
    tunnels
}

fn state(tunnels: &Tunnels) -> State {
    match tunnels.iter().next() {
        None => State::Closed,
        Some(info) if info.encap_flows + info.decap_flows > 0 => {
            assert_eq!(tunnels.lingering.deadline(), None, "what is in use has no end");
            State::InUse(info.encap_flows + info.decap_flows)
        }
        Some(_) => State::Lingering,
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    EncapMade,
    DecapMade,
    FlowEnds,
    Early,
    TimeComes,
    Removed,
}

/// Returns the command for the switch after an event, as a word.
fn happen(tunnels: &mut Tunnels, event: Event) -> &'static str {
    let turn = |turn| if turn == Turn::Open { "open" } else { "" };
    let closed = |closed: Option<HostId>| if closed == Some(H) { "close" } else { "" };
    match event {
        Event::EncapMade => turn(tunnels.flow_made(at(50), H, Flow::Encap)),
        Event::DecapMade => turn(tunnels.decap(at(50), vni(), H).expect("a new flow")),
        Event::FlowEnds => {
            tunnels.flow_ended(at(50), H, Flow::Encap);
            ""
        }
        Event::Early => closed(tunnels.close_expired(at(99))),
        Event::TimeComes => closed(tunnels.close_expired(at(100))),
        Event::Removed => {
            if tunnels.remove(H) {
                "close"
            } else {
                ""
            }
        }
    }
}

#[test]
fn every_event_in_every_state() {
    use Event::{DecapMade, Early, EncapMade, FlowEnds, Removed, TimeComes};
    use State::{Closed, InUse, Lingering};
    let table = [
        (Closed, EncapMade, InUse(1), "open"),
        (Closed, DecapMade, InUse(1), "open"),
        (Closed, Early, Closed, ""),
        (Closed, TimeComes, Closed, ""),
        (Closed, Removed, Closed, ""),
        (InUse(1), EncapMade, InUse(2), ""),
        (InUse(1), DecapMade, InUse(2), ""),
        (InUse(2), FlowEnds, InUse(1), ""),
        (InUse(1), FlowEnds, Lingering, ""),
        (InUse(1), Early, InUse(1), ""),
        (InUse(1), TimeComes, InUse(1), ""),
        (Lingering, EncapMade, InUse(1), ""),
        (Lingering, DecapMade, InUse(1), ""),
        (Lingering, Early, Lingering, ""),
        (Lingering, TimeComes, Closed, "close"),
        (Lingering, Removed, Closed, "close"),
    ];
    for (before, event, after, does) in table {
        let mut tunnels = made(before);
        assert_eq!(state(&tunnels), before);
        assert_eq!(happen(&mut tunnels, event), does, "{before:?} {event:?}");
        assert_eq!(state(&tunnels), after, "{before:?} {event:?}");
    }
}

#[test]
#[should_panic(expected = "flows end before their tunnel")]
fn a_tunnel_in_use_is_not_removed() {
    made(State::InUse(1)).remove(H);
}

#[test]
#[should_panic(expected = "a flow has a tunnel")]
fn a_flow_without_a_tunnel_does_not_end() {
    made(State::Closed).flow_ended(at(0), H, Flow::Encap);
}

#[test]
fn decap_flow_expiry_renewed_by_each_first_frame() {
    let mut tunnels = Tunnels::new(LIFE, LIFE);
    assert_eq!(tunnels.decap(at(0), vni(), H), Some(Turn::Open));
    assert_eq!(tunnels.decap(at(60), vni(), H), None, "it is there");
    assert_eq!(tunnels.expired_decap(at(159)), None);
    assert_eq!(tunnels.deadline(), Some(at(160)));
    assert_eq!(tunnels.expired_decap(at(160)), Some((vni(), H)));
    assert!(tunnels.remove_decap(at(160), vni(), H));
    assert!(!tunnels.remove_decap(at(160), vni(), H), "once");
    assert_eq!(tunnels.deadline(), Some(at(260)), "the tunnel lingers");
    assert_eq!(tunnels.close_expired(at(260)), Some(H));
    assert_eq!(tunnels.deadline(), None);
}
