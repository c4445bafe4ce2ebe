//! Parts of a lab that the simulator has no model of. A scenario with one of them is refused before
//! anything is built; the message names each key, and the value to write instead.

use std::collections::BTreeSet;

use anyhow::bail;
use sluice_sim::tcp::Algorithm;

use crate::scenario::{Check, Fabric, Scenario};

/// Checks that the simulator has a model of everything in the scenario.
///
/// # Errors
///
/// Names every key that it has no model of, with a remedy each.
pub(super) fn check(scenario: &Scenario) -> anyhow::Result<()> {
    let mut refused = machines(scenario);
    refused.extend(tcp(scenario));
    refused.extend(scenario.checks.iter().filter_map(one_check));
    if scenario.pa.is_none() && scenario.checks.is_empty() {
        refused.push("this scenario has neither [pa] nor [[check]]: add one of them".to_owned());
    }
    // Each key once, in the order of the scenario.
    let mut known = BTreeSet::new();
    refused.retain(|text| known.insert(text.clone()));
    if refused.is_empty() {
        return Ok(());
    }
    bail!("{}", refused.join("; "))
}

fn machines(scenario: &Scenario) -> Vec<String> {
    let lab = &scenario.lab;
    let fabric = match lab.fabric {
        Fabric::Sluice | Fabric::LinuxBridge => None,
        Fabric::LinuxVxlan | Fabric::Ovs => Some(format!(
            "lab.fabric: the simulator has \"sluice\" and \"linux-bridge\", not \"{}\": use one of \
             them, or `sluice lab run`",
            crate::results::subject(scenario)
        )),
    };
    let word = |is: bool, text: &str| is.then(|| text.to_owned());
    let refused = [
        fabric,
        word(
            lab.vms_per_host > 0,
            "lab.vms_per_host: a virtual machine has a kernel of its own, and the simulator has \
             models of TCP only: use containers_per_host, or `sluice lab run`",
        ),
        word(
            lab.by_command,
            "lab.by_command: the simulator has no control plane: take it out, or `sluice lab run`",
        ),
        word(
            lab.learned,
            "lab.learned: the simulator's hosts know every container: take it out, or `sluice lab \
             run`",
        ),
        word(lab.vnets > 1, "lab.vnets: the simulator has one network of containers: use 1"),
    ];
    refused.into_iter().flatten().collect()
}

fn tcp(scenario: &Scenario) -> Vec<String> {
    let own = &scenario.tcp;
    let mut refused = Vec::new();
    let pa = scenario.pa.as_ref();
    let several = pa.is_some_and(|pa| !pa.congestions.is_empty());
    let names = pa.map_or_else(|| vec![own.congestion.clone()], |pa| pa.congestions(own));
    let key = if several { "pa.congestions" } else { "tcp.congestion" };
    for name in names.iter().filter(|name| algorithm(name).is_none()) {
        refused.push(format!(
            "{key}: the simulator has cubic, reno and vegas, not {name}: use one of them, or \
             `sluice lab run`"
        ));
    }
    refused
}

fn one_check(check: &Check) -> Option<String> {
    let text = match check {
        Check::Ping { unheard_at: Some(_), .. } => {
            "check.unheard_at: the simulator has no ARP: take it out, or `sluice lab run`"
        }
        Check::Tables { .. } => {
            "check.kind: \"tables\" is about the control plane, which the simulator does not have: \
             take the check out, or `sluice lab run`"
        }
        Check::Flood { .. } => {
            "check.kind: \"flood\" goes between virtual machines, which the simulator does not \
             have: take the check out, or `sluice lab run`"
        }
        Check::Ping { .. } | Check::Transfer { .. } => return None,
    };
    Some(text.to_owned())
}

/// Returns the model of a congestion control of the lab.
pub(super) fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "cubic" => Some(Algorithm::Cubic),
        "reno" => Some(Algorithm::NewReno),
        "vegas" => Some(Algorithm::Vegas),
        _ => None,
    }
}
