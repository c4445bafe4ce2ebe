//! Requirements of a configuration on the machine, checked without changing anything: certificates,
//! addresses, namespaces, and whether any port could send or receive. Devices are checked when the
//! configuration is read.

use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::ExitCode;

use sluice_api::config::UnderlayKind;

use crate::config::{self, Plan};
use crate::fabric;

/// A result of the checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The item is fine.
    Fine(String),
    /// The host runs, but may not do as expected.
    Warning(String),
    /// The host would not run.
    Problem(String),
}

/// Checks the machine.
pub(crate) fn look(plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(fabric) = &plan.fabric {
        let folder = fabric.certificates.display();
        match fabric::check_certificates(fabric) {
            Ok(certificates) => {
                let words = format!("the certificates in {folder} are those of {}", fabric.name);
                findings.push(Finding::Fine(words));
                let need_somebody = certificates.rows.into_iter().filter_map(|row| {
                    Some(Finding::Warning(format!("{row}. {}", row.remedy.as_ref()?)))
                });
                findings.extend(need_somebody);
            }
            Err(error) => findings.push(Finding::Problem(format!("{error:#}"))),
        }
        findings.extend(address("fabric.address", fabric.listen.ip()));
    }
    findings.extend(vtep(plan));
    findings.extend(namespaces(plan));
    findings.extend(silent(plan));
    findings
}

/// Checks the address of the VTEP, if the kernel must have it.
fn vtep(plan: &Plan) -> Option<Finding> {
    let underlay = plan.config.underlay.as_ref()?;
    if underlay.kind == UnderlayKind::VhostUser {
        return None;
    }
    let address = address("underlay.address", underlay.address.into())?;
    // Both are the same address most of the time.
    let listen = plan.fabric.as_ref().map(|fabric| fabric.listen.ip());
    (listen != Some(underlay.address.into())).then_some(address)
}

/// Checks that this machine has an address: only then a socket can have it.
fn address(key: &str, address: IpAddr) -> Option<Finding> {
    use std::io::ErrorKind::AddrNotAvailable;
    match UdpSocket::bind((address, 0)) {
        Err(error) if error.kind() == AddrNotAvailable => Some(Finding::Problem(format!(
            "{key}: {address} is not an address of this host; give it to the device with \
             `ip addr add {address}/PREFIX dev DEVICE`, or say the right one"
        ))),
        Err(error) => Some(Finding::Warning(format!("{key}: {address} cannot be tried: {error}"))),
        Ok(_) => Some(Finding::Fine(format!("{key}: {address} is an address of this host"))),
    }
}

fn namespaces(plan: &Plan) -> impl Iterator<Item = Finding> + '_ {
    plan.config.ports.iter().filter(|port| port.kind.is_card()).filter_map(|port| {
        let netns = port.netns.as_deref().filter(|path| !Path::new(path).exists())?;
        Some(Finding::Problem(format!(
            "port {}: there is no namespace {netns}; make it first, such as with `ip netns add`",
            port.name
        )))
    })
}

/// Reports a switch that forwards nothing.
fn silent(plan: &Plan) -> Vec<Finding> {
    let config = &plan.config;
    let mut findings = Vec::new();
    if config.ports.is_empty() && config.spare_ports() == 0 {
        let words = "there is no [[port]], and none can be added: nobody sends or receives; list \
                     ports, or set `host.spare_ports`";
        findings.push(Finding::Warning(words.to_owned()));
    }
    if config.vports.is_empty() && config.fabric.is_none() {
        let words = "there is no [[vport]] and no [fabric]: no address is known, and what is sent \
                     to one ends as `unresolved`; list the endpoints, or add a [fabric], which \
                     learns them";
        findings.push(Finding::Warning(words.to_owned()));
    }
    findings
}

/// Checks a configuration and the machine that it is for, and prints the result.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(file: &Path) -> anyhow::Result<ExitCode> {
    use Finding::{Fine, Problem, Warning};
    let plan = config::load(file, &config::KernelDevices)?;
    for note in &plan.notes {
        println!("{note}");
    }
    let mut problems = 0;
    for finding in look(&plan) {
        match finding {
            Fine(text) => println!("{text}"),
            Warning(text) => println!("warning: {text}"),
            Problem(text) => {
                problems += 1;
                eprintln!("{}: {text}", file.display());
            }
        }
    }
    if problems > 0 {
        return Ok(ExitCode::FAILURE);
    }
    println!("{}: fine, {} ports", file.display(), plan.ports.len());
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests;
