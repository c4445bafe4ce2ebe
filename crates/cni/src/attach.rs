//! ADD and DEL.
//!
//! ```text
//!   ADD: a left-over goes ── IPAM ADD ── the host adds the port ── look at its device ── result
//!                               └── fails ──────┴─────── fails ──────┴─▶ port, then address go
//!   DEL: the host deletes the port ── IPAM DEL
//! ```
//!
//! An address is given back only after its port is gone: until then it is in use. Whatever a killed
//! ADD leaves is found by a DEL, which needs nothing of it.

use serde_json::Value;
use sluice_api::port::{Attachment, NewPort};

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
    clear(&host, &attachment, ipam.as_ref())?;
    let made = assign(ipam.as_ref(), config).and_then(|given| {
        port.ips = given.ips.iter().map(|ip| ip.address).collect();
        port.routes.clone_from(&given.routes);
        make(&host, port, (invocation, config), &given)
    });
    made.map_err(|error| undone(error, &host, &attachment, ipam.as_ref()))
}

/// Deletes a container's interface; no error if it is gone.
pub(crate) fn del(invocation: &Invocation, config: &NetConfig) -> Result<(), Error> {
    // First, also if the IPAM plugin cannot be found.
    Host::find(&config.host)?.delete(&attachment(invocation, config))?;
    Ipam::of(invocation, config)?.map_or(Ok(()), |ipam| ipam.tell(Command::Del))
}

/// Undoes what failed; returns its error, with that of the undoing if it fails as well.
pub(crate) fn undone(
    error: Error,
    host: &Host,
    attachment: &Attachment,
    ipam: Option<&Ipam<'_>>,
) -> Error {
    match undo(host, attachment, ipam) {
        Ok(()) => error,
        Err(more) => error.and(&more),
    }
}

fn undo(host: &Host, attachment: &Attachment, ipam: Option<&Ipam<'_>>) -> Result<(), Error> {
    host.delete(attachment)?;
    ipam.map_or(Ok(()), |ipam| ipam.tell(Command::Del))
}

/// Deletes what an earlier ADD of the same attachment left without a device: the namespace ended,
/// or the machine was restarted. A port whose device is there is in use.
pub(crate) fn clear(
    host: &Host,
    attachment: &Attachment,
    ipam: Option<&Ipam<'_>>,
) -> Result<(), Error> {
    let Some(state) = host.port_of(attachment)? else { return Ok(()) };
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
    undo(host, attachment, ipam)
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
