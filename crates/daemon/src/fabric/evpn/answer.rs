//! State of the speaker, for people.

use sluice_api::fabric::{Evpn, EvpnKeptOut, EvpnNeighborRow, EvpnVtepRow};
use sluice_evpn::{NeighborInfo, State};

use super::thread::Thread;

impl Thread {
    pub(super) fn state(&self) -> Option<Evpn> {
        let plan = self.plan.as_ref()?;
        let speaker = self.driver.as_ref().map(sluice_evpn::Driver::speaker);
        let vteps = self.vteps.iter().map(|(vtep, networks)| EvpnVtepRow {
            vtep: vtep.to_string(),
            vnis: networks.iter().map(|vni| vni.get()).collect(),
        });
        Some(Evpn {
            local_as: plan.speaker.local_as,
            router_id: plan.speaker.router_id.to_string(),
            address: plan.listen.to_string(),
            failure: self.failure.clone(),
            announced_routes: speaker.map_or(0, |speaker| speaker.exported()) as u64,
            heard_macs: speaker.map_or(0, |speaker| speaker.heard()) as u64,
            vteps: vteps.collect(),
            neighbors: speaker
                .map_or_else(Vec::new, |speaker| speaker.neighbors().iter().map(row).collect()),
        })
    }
}

fn row(info: &NeighborInfo) -> EvpnNeighborRow {
    let state = match info.state {
        None => "idle",
        Some(State::OpenSent) => "open-sent",
        Some(State::OpenConfirm) => "open-confirm",
        Some(State::Established) => "established",
    };
    let kept = info.kept_out;
    EvpnNeighborRow {
        address: info.address.to_string(),
        remote_as: info.remote_as,
        state: state.to_owned(),
        router_id: info.router_id.map(|id| id.to_string()),
        routes: info.routes as u64,
        is_stale: info.is_stale,
        unsent_routes: info.backlog as u64,
        kept_out: EvpnKeptOut {
            not_ours: kept.not_ours,
            looped: kept.looped,
            other_tunnel: kept.other_tunnel,
            other_type: kept.other_type,
            malformed: kept.malformed,
            too_many: kept.too_many,
        },
        last_ending: info.last_ending.as_ref().map(ToString::to_string),
    }
}
