//! ADD and DEL.
//!
//! ```text
//!   ADD: claim ── a left-over goes ── IPAM ADD ── the host adds the port ── look ── result
//!                                        └── fails ──────┴─── fails ───────┴─▶ both go
//!   DEL: claim ── the host deletes the port ── IPAM DEL
//! ```
//!
//! An address is given back only after its port is gone: until then it is in use. Whatever a killed
//! ADD leaves is found by a DEL, which needs nothing of it, and by the next ADD. Both wait for an
//! IPAM plugin that outlived its ADD ([`claim`](crate::claim)).

use serde_json::Value;
use sluice_api::port::{Attachment, NewPort};

use crate::claim::Claim;
use crate::config::NetConfig;
use crate::error::{Code, Error};
use crate::host::Host;
use crate::invocation::{Command, Invocation};
use crate::ipam::Ipam;
use crate::name;
use crate::result::{self, Addressing};

/// Returns the key of a container's interface.
pub(crate) fn attachment(invocation: &Invocation, config: &NetConfig) -> Attachment {
    Attachment {
        network: config.name.clone(),
        container: invocation.container.clone(),
        interface: invocation.interface.clone(),
    }
}

/// Adds a container's interface.
pub(crate) fn add(invocation: &Invocation, config: &NetConfig) -> Result<Value, Error> {
    let mut port = new_port(invocation, config)?;
    let host = Host::find(&config.host)?;
    let attachment = attachment(invocation, config);
    let ipam = Ipam::of(invocation, config)?;
    let mut claim = claim(&host, &attachment, config)?;
    let is_unfinished = claim.as_ref().is_some_and(Claim::is_left_over);
    // Nobody was told of what an unfinished command left.
    let is_left = is_unfinished || has_left_over(&host, &attachment)?;
    record(claim.as_mut(), &attachment)?;
    if is_left {
        undo(&host, &attachment, ipam.as_ref())?;
    }
    let made = assign(ipam.as_ref(), config).and_then(|given| {
        port.ips = given.ips.iter().map(|ip| ip.address).collect();
        port.routes.clone_from(&given.routes);
        make(&host, port, (invocation, config), &given)
    });
    match made {
        Ok(result) => finish(claim).map(|()| result),
        Err(error) => {
            let undone = undo(&host, &attachment, ipam.as_ref());
            Err(error.after(undone.and_then(|()| finish(claim))))
        }
    }
}

/// Deletes a container's interface; no error if it is gone.
pub(crate) fn del(invocation: &Invocation, config: &NetConfig) -> Result<(), Error> {
    let host = Host::find(&config.host)?;
    let attachment = attachment(invocation, config);
    let mut claim = claim(&host, &attachment, config)?;
    record(claim.as_mut(), &attachment)?;
    // First, also if the IPAM plugin cannot be found.
    host.delete(&attachment)?;
    if let Some(ipam) = Ipam::of(invocation, config)? {
        ipam.tell(Command::Del)?;
    }
    finish(claim)
}

/// Claims an attachment whose addresses an IPAM plugin assigns.
fn claim(host: &Host, attachment: &Attachment, config: &NetConfig) -> Result<Option<Claim>, Error> {
    config.ipam.as_ref().map(|_| Claim::of(host, attachment)).transpose()
}

fn record(claim: Option<&mut Claim>, attachment: &Attachment) -> Result<(), Error> {
    claim.map_or(Ok(()), |claim| claim.record(attachment))
}

fn finish(claim: Option<Claim>) -> Result<(), Error> {
    claim.map_or(Ok(()), Claim::finish)
}

fn undo(host: &Host, attachment: &Attachment, ipam: Option<&Ipam<'_>>) -> Result<(), Error> {
    host.delete(attachment)?;
    ipam.map_or(Ok(()), |ipam| ipam.tell(Command::Del))
}

/// Returns true if an earlier ADD of the same attachment left a port without a device: the
/// namespace ended, or the machine was restarted. A port whose device is there is in use.
pub(crate) fn has_left_over(host: &Host, attachment: &Attachment) -> Result<bool, Error> {
    let Some(state) = host.port_of(attachment)? else { return Ok(false) };
    if state.open {
        match host.card(&name::of(attachment)) {
            Ok(_) => {
                let Attachment { network, container, interface } = attachment;
                return Err(Error::new(
                    Code::Refused,
                    format!(
                        "container {container} has its interface {interface} in {network} already"
                    ),
                    "DEL it before another ADD",
                ));
            }
            // A host that cannot look now has not said that the device is gone.
            Err(error) if error.code() == Code::TryAgain => return Err(error),
            Err(_) => {}
        }
    }
    Ok(true)
}

fn new_port(invocation: &Invocation, config: &NetConfig) -> Result<NewPort, Error> {
    let said = config.port()?;
    let attachment = attachment(invocation, config);
    let place = invocation.place().expect("ADD has a namespace");
    Ok(NewPort {
        place,
        kind: said.kind,
        vnet: said.vnet,
        name: Some(name::of(&attachment)),
        device: Some(invocation.interface.clone()),
        ips: Vec::new(),
        mac: said.mac.or_else(|| invocation.mac.clone()),
        allowed: Vec::new(),
        moves: false,
        standby: false,
        change: false,
        taken: 0,
        gateway: None,
        routes: Vec::new(),
        mtu: said.mtu,
        cni: Some(attachment),
    })
}

fn assign(ipam: Option<&Ipam<'_>>, config: &NetConfig) -> Result<Addressing, Error> {
    let mut given = ipam.map_or_else(|| config.addressing(), Ipam::add)?;
    if let Some(dns) = config.dns() {
        given.dns = Some(dns.clone());
    }
    Ok(given)
}

/// Adds the port, and looks at its device: the runtime hears what is there.
fn make(
    host: &Host,
    port: NewPort,
    (invocation, config): (&Invocation, &NetConfig),
    given: &Addressing,
) -> Result<Value, Error> {
    let added = host.add(port)?;
    let card = host.card(&added.name)?;
    let netns = invocation.netns.as_deref().unwrap_or_default();
    Ok(result::of_add(config.version, config.prev_result(), (&card, netns), given))
}
