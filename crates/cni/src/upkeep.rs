//! GC and STATUS.

use std::collections::BTreeSet;

use sluice_api::port::Attachment;

use crate::claim::{self, Claim};
use crate::config::{NetConfig, ValidAttachment};
use crate::error::{Code, Error};
use crate::host::Host;
use crate::invocation::{Command, Invocation};
use crate::ipam::Ipam;

/// Deletes the ports of this network whose attachments are not in use any more, gives back the
/// addresses of commands that were killed before there was a port, and lets the IPAM plugin do the
/// same.
///
/// A runtime that does not say which are in use has said nothing: nothing is deleted, also no
/// address.
pub(crate) fn gc(invocation: &Invocation, config: &NetConfig) -> Result<(), Error> {
    let Some(valid) = config.valid_attachments()? else {
        eprintln!("sluice-cni: GC without `cni.dev/valid-attachments`: nothing is deleted");
        return Ok(());
    };
    let host = Host::find(&config.host)?;
    let ipam = Ipam::of(invocation, config)?;
    let ports = host.ports()?;
    let attachments = ports.iter().filter_map(|state| state.port.cni.clone());
    let mut failed: Option<Error> = None;
    let mut note = |done: Result<(), Error>| {
        if let Err(error) = done {
            failed = Some(match failed.take() {
                None => error,
                Some(before) => before.and(&error),
            });
        }
    };
    for attachment in unused(attachments, &config.name, &valid) {
        note(collect(&host, &attachment, ipam.as_ref(), true));
    }
    if ipam.is_some() {
        for attachment in unused(claim::recorded(&host)?, &config.name, &valid) {
            note(collect(&host, &attachment, ipam.as_ref(), false));
        }
    }
    match failed {
        Some(error) => Err(error),
        None => ipam.map_or(Ok(()), |ipam| ipam.tell(Command::Gc)),
    }
}

/// Deletes what an attachment has: its port, if it had one, and then its addresses. An address
/// whose port could not be deleted is still in use. Not every IPAM plugin has a GC of its own, so
/// that it hears of each.
fn collect(
    host: &Host,
    attachment: &Attachment,
    ipam: Option<&Ipam<'_>>,
    has_port: bool,
) -> Result<(), Error> {
    let Some(ipam) = ipam else { return host.delete(attachment) };
    let mut claim = Claim::of(host, attachment)?;
    // A command that was only busy has ended meanwhile.
    if !has_port && !claim.is_left_over() {
        return Ok(());
    }
    claim.record(attachment)?;
    host.delete(attachment)?;
    ipam.free(attachment)?;
    claim.finish()
}

/// Returns the attachments of a network that are not among the valid ones.
fn unused(
    all: impl IntoIterator<Item = Attachment>,
    network: &str,
    valid: &[ValidAttachment],
) -> Vec<Attachment> {
    let valid: BTreeSet<(&str, &str)> =
        valid.iter().map(|one| (one.container.as_str(), one.interface.as_str())).collect();
    let is_unused = |of: &Attachment| {
        of.network == network && !valid.contains(&(of.container.as_str(), of.interface.as_str()))
    };
    all.into_iter().filter(is_unused).collect()
}

/// Says if an ADD would succeed (section 2, "STATUS"): 51 if the network of containers may be cut
/// off as well, since no process forwards, and 50 for all other reasons.
pub(crate) fn status(invocation: &Invocation, config: &NetConfig) -> Result<(), Error> {
    let unavailable = |error: Error| error.with(Code::Unavailable);
    let host = Host::find(&config.host).map_err(|error| match error.code() {
        // There is no host at all.
        Code::TryAgain => error.with(Code::LimitedConnectivity),
        _ => unavailable(error),
    })?;
    // A port would come: the host is in a fabric, and knows the network.
    let wanted = config.port().map_err(unavailable)?.vnet;
    let vnets = host.vnets().map_err(|error| match host.has_data() {
        true => unavailable(error),
        false => error.with(Code::LimitedConnectivity),
    })?;
    host.forwards().map_err(|error| error.with(Code::LimitedConnectivity))?;
    if !vnets.contains(&wanted) {
        return Err(Error::new(
            Code::Unavailable,
            format!("`vnet`: this host knows no `{wanted}`, only {}", vnets.join(", ")),
            format!("make it with `sluice vnet create {wanted} --vni NUMBER`"),
        ));
    }
    let ipam = Ipam::of(invocation, config).map_err(unavailable)?;
    ipam.map_or(Ok(()), |ipam| ipam.tell(Command::Status))
}

#[cfg(test)]
mod tests;
