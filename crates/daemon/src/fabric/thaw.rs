//! `sluice vport thaw`: allows an endpoint that moved too often to move again, at all hosts.
//!
//! Each host counts the moves that it hears of, and freezes on its own
//! ([`sluice_control::mobility`]). So the host that is asked thaws the endpoint and tells every
//! member, one after the other ([`Topic::THAW`]).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use sluice_api::fabric::ThawRow;
use sluice_base::{Mac, Nanos, Vni};
use sluice_control::rpc::Failure;
use sluice_control::vport::Key;
use sluice_wire::fabric::Topic;

use super::Fabric;
use super::member::MemberRequest;

/// Longest time for a member's answer.
const LIMIT: Nanos = Nanos::from_millis(1_000);

/// Request to a member.
#[derive(Debug, Serialize, Deserialize)]
struct ThawRequest {
    vni: u32,
    mac: String,
}

/// Name of an endpoint: a MAC or an IP address of it, in one network or in any.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) vnet: Option<String>,
    pub(super) endpoint: String,
}

impl Fabric {
    /// Thaws an endpoint here and at every member.
    pub(super) fn thaw(&self, named: Named) -> Result<Vec<ThawRow>, String> {
        let (key, was_frozen) = self.wait(|reply| MemberRequest::Thaw(named, reply))??;
        let plan = self.agreement.plan();
        let own = ThawRow { host: plan.name.clone(), was_frozen: Some(was_frozen), error: None };
        let wanted = ThawRequest { vni: key.vni.get(), mac: key.mac.to_string() };
        let members = plan.hosts.iter().filter(|known| known.at.is_some());
        let members = members.filter(|known| known.vnets.contains(&key.vni));
        let rows = members.map(|known| {
            let answer = self.call(known.host, Topic::THAW, LIMIT, &wanted);
            let answer = answer.map(|body| serde_json::from_slice::<bool>(&body));
            let (was_frozen, error) = match answer {
                Ok(Ok(was_frozen)) => (Some(was_frozen), None),
                Ok(Err(error)) => (None, Some(error.to_string())),
                Err(failure) => (None, Some(failure.to_string())),
            };
            ThawRow { host: known.name.clone(), was_frozen, error }
        });
        Ok(std::iter::once(own).chain(rows).collect())
    }

    /// Handles the request of a member to let an endpoint move again.
    pub(super) fn serve_thaw(&self, body: &[u8]) -> Result<Vec<u8>, Failure> {
        let wanted: ThawRequest = serde_json::from_slice(body).map_err(|_| Failure::Refused)?;
        let vni = Vni::new(wanted.vni).ok_or(Failure::Refused)?;
        let mac: Mac = wanted.mac.parse().map_err(|_| Failure::Refused)?;
        let limit = Duration::from_nanos(LIMIT.0);
        let thawed =
            self.wait_within(limit, |reply| MemberRequest::ThawKey(Key { vni, mac }, reply));
        let was_frozen = thawed.ok_or(Failure::TooLate)?;
        serde_json::to_vec(&was_frozen).map_err(|_| Failure::TooBig)
    }
}
