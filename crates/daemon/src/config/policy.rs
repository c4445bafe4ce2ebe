//! The policy of a port in words, for `vport` output.

use std::collections::BTreeMap;

use sluice_api::config::{HostConfig, Port};
use sluice_api::fabric::VportPolicy;
use sluice_base::Priority;

/// Returns the policy of a port of the file, or of one that was added. `learn_max` is for ports
/// without bound endpoints.
pub(super) fn of(config: &HostConfig, port: &Port, learn_max: u32) -> VportPolicy {
    let vnet = config.vnets.iter().find(|vnet| vnet.name == port.vnet);
    let port = &vnet.map_or_else(|| port.clone(), |vnet| vnet.complete(port));
    let class = |priority: &u8| config.classes.iter().find(|class| class.priority == *priority);
    let all = || Priority::all().map(Priority::get);
    let is_lossless = |priority: &u8| {
        config.host.policy.virtual_lossless() && class(priority).is_none_or(|class| class.lossless)
    };
    let mut hold = BTreeMap::<String, Vec<u8>>::new();
    for priority in all() {
        let of_class = class(&priority).and_then(|class| class.hold);
        let time = port.hold.or(of_class).unwrap_or(config.host.hold);
        hold.entry(time.to_string()).or_default().push(priority);
    }
    VportPolicy {
        flow_control: config.host.policy.name().to_owned(),
        lossless: all().filter(is_lossless).collect(),
        hold,
        priority: port.priority,
        trust: port.trust,
        service_mbps: port.service_mbps,
        learn_max: port.mac.is_none().then_some(learn_max),
        broadcasts_per_second: config.host.broadcasts_per_second,
    }
}

#[cfg(test)]
mod tests;
