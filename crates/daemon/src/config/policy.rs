//! The policy of a port: in words, for `vport` output; the fabric's part of it that a port cannot
//! have, and that which stands above what its host says.

use std::collections::BTreeMap;

use sluice_api::config::{HostConfig, Port, PortKind, PortPolicy};
use sluice_api::fabric::VportPolicy;
use sluice_api::port::NewPort;
use sluice_base::Priority;

use super::{added, build};

const _: () = assert!(sluice_api::config::ALLOWED_MAX == sluice_switch::ALLOWED_MAX);

/// Returns the policy of a port of the file, or of one that was added. `learn_max` is for ports
/// without bound endpoints.
pub(super) fn of(config: &HostConfig, port: &Port, learn_max: u32) -> VportPolicy {
    let of_fabric = config.policy_of(port).map_or_else(Vec::new, keys);
    let port = &config.complete(port);
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
        allowed: port.allowed.clone(),
        of_fabric,
        learn_max: port.mac.is_none().then_some(learn_max),
        broadcasts_per_second: config.host.broadcasts_per_second,
    }
}

/// Returns the keys of a policy that have a value.
fn keys(policy: &PortPolicy) -> Vec<String> {
    let all = [
        ("service_mbps", policy.service_mbps.is_some()),
        ("priority", policy.priority.is_some()),
        ("allow_ip", policy.allow_ip.is_some()),
    ];
    all.into_iter().filter(|(_, is_said)| *is_said).map(|(key, _)| key.to_owned()).collect()
}

/// Returns the reasons why a port cannot have its whole policy, with the remedies.
fn unfit(config: &HostConfig, port: &Port) -> Vec<String> {
    let Some(policy) = config.policy_of(port) else { return Vec::new() };
    let (vnet, name) = (&port.vnet, &port.name);
    let mut all = Vec::new();
    if policy.allow_ip.is_some() && !config.binds(port) {
        all.push(format!(
            "vport {vnet}/{name}: its port learns who is behind it, and takes any address; leave \
             `allow_ip` out, or bind the port to a MAC"
        ));
    }
    if port.kind == PortKind::L2
        && let (Some(mbps), Some(link)) =
            (policy.service_mbps, build::link_of(config, port).rate_mbps)
        && mbps > link
    {
        all.push(format!(
            "vport {vnet}/{name}: its port is a link of {link} Mbit/s, and {mbps} are above that; \
             use {link} or less"
        ));
    }
    all
}

/// Returns the reason against the policies of a configuration that a port here cannot have, and
/// that are not in force already. `added` are the ports that were added at run time.
///
/// # Errors
/// The reason, with the remedy.
pub(crate) fn check(now: &HostConfig, next: &HostConfig, added: &[NewPort]) -> Result<(), String> {
    let added: Vec<Port> = added.iter().map(added::entry).collect();
    let mut all = Vec::new();
    for port in next.ports.iter().chain(&added) {
        let before = unfit(now, port);
        all.extend(unfit(next, port).into_iter().filter(|why| !before.contains(why)));
    }
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

/// Returns the reason against a port that is about to be added: it cannot have its policy.
///
/// # Errors
/// The reason, with the remedy.
pub(crate) fn check_added(config: &HostConfig, new: &NewPort) -> Result<(), String> {
    let all = unfit(config, &added::entry(new));
    match all.is_empty() {
        true => Ok(()),
        false => Err(format!("{} (`sluice config show` has its policy)", all.join("; "))),
    }
}

/// Returns what the ports of a file have otherwise than it says, and what they cannot have.
pub(super) fn notes(config: &HostConfig) -> Vec<String> {
    let all = config.ports.iter().flat_map(|port| {
        let above = overruled(config, port);
        above
            .into_iter()
            .chain(unfit(config, port).into_iter().map(|why| format!("{why}; left out")))
    });
    all.collect()
}

/// Returns the values of a port that its policy replaces by others.
fn overruled(config: &HostConfig, port: &Port) -> Vec<String> {
    let whole = config.complete(port);
    let list = |port: &Port| {
        let all: Vec<String> = port.allowed.iter().map(ToString::to_string).collect();
        all.join(", ")
    };
    let mut all = Vec::new();
    let mut say = |key: &str, is: String, was: String| {
        all.push(format!(
            "port {}: `{key}` is `{is}` by the policy of vport {}/{}, and not `{was}` as its host \
             says",
            port.name, port.vnet, port.name
        ));
    };
    let Some(policy) = config.policy_of(port) else { return all };
    if let (Some(is), Some(was)) = (policy.service_mbps, port.service_mbps)
        && is != was
    {
        say("service_mbps", is.to_string(), was.to_string());
    }
    if port.priority != 0 && whole.priority != port.priority {
        say("priority", whole.priority.to_string(), port.priority.to_string());
    }
    if !port.allowed.is_empty() && whole.allowed != port.allowed {
        say("allow_ip", list(&whole), list(port));
    }
    all
}

/// Returns the values that differ between the ports of two configurations, in words. `added` are
/// the ports that were added at run time.
pub(super) fn changes(now: &HostConfig, next: &HostConfig, added: &[NewPort]) -> Vec<String> {
    let added: Vec<Port> = added.iter().map(added::entry).collect();
    let mut all = Vec::new();
    for port in now.ports.iter().chain(&added) {
        if now.policy_of(port) == next.policy_of(port) {
            continue;
        }
        let (was, is) = (now.complete(port), next.complete(port));
        let differs = [
            (
                "service_mbps",
                now.policy_of(port).and_then(|p| p.service_mbps)
                    != next.policy_of(port).and_then(|p| p.service_mbps),
            ),
            ("priority", was.priority != is.priority),
            ("allow_ip", was.allowed != is.allowed),
        ];
        let keys = differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key);
        all.extend(keys.map(|key| format!("port `{}`: {key}, by its policy", port.name)));
        let above = overruled(next, port);
        all.extend(above.into_iter().filter(|one| !overruled(now, port).contains(one)));
    }
    all
}

#[cfg(test)]
mod tests;
