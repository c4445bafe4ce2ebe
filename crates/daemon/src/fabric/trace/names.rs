//! Endpoints for addresses and names of ports.
//!
//! ```text
//!   02:…:65   a MAC, as it is
//!   10.0.0.7  an IP address: the sender's becomes its MAC, the receiver's is resolved on the path
//!   web       a port of the asked host; if that has none of the name, of the one host that has
//!   h2/web    a port of that host
//! ```
//!
//! A port stands for the one endpoint that is there. Members are asked by name ([`Topic::PORT`]),
//! and report only on networks that the asking host is in.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sluice_base::{HostId, Mac, Vni};
use sluice_control::plane::Plane;
use sluice_control::rpc::Failure;
use sluice_wire::fabric::Topic;

use super::{Question, Time, span};
use crate::config::FabricPlan;
use crate::fabric::Fabric;
use crate::fabric::ports::Ports;

/// Most endpoints of one port in an answer.
const ENDPOINTS_MAX: usize = 8;
/// Rows that are read from the table at a time.
const PAGE: usize = 4096;

/// A question about a port, with this host's names.
#[derive(Clone, Debug)]
pub(in crate::fabric) enum NameQuery {
    /// The sender's MAC of an IP address in a network of this name.
    Ip(String, IpAddr),
    /// Endpoints of a port of this host, in a network of this name.
    Port(String, String),
    /// A member's question, which has the network's number.
    Asked(HostId, PortQuestion),
}

/// Answer of control.
#[derive(Clone, Debug, Default)]
pub(in crate::fabric) struct Found {
    /// The network's number.
    vni: u32,
    /// True if there is such a port here.
    is_here: bool,
    macs: Vec<Mac>,
    /// Members that have the network.
    others: Vec<(HostId, String)>,
}

/// A question between members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::fabric) struct PortQuestion {
    vni: u32,
    port: String,
}

/// Answer to a question between members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::fabric) struct PortAnswer {
    /// True if there is a port of that name in the network.
    here: bool,
    macs: Vec<String>,
}

/// Answers in the fabric's thread.
pub(in crate::fabric) fn find(
    plan: &FabricPlan,
    (ports, plane): (&Ports, &Plane),
    wanted: &NameQuery,
) -> Result<Found, String> {
    match wanted {
        NameQuery::Ip(vnet, ip) => {
            let (_, vni) = plan.vnet_named(vnet)?;
            let macs = plane.vport_of_ip(vni, *ip).map(|vport| vport.claim.key.mac);
            Ok(Found { vni: vni.get(), macs: macs.into_iter().collect(), ..Found::default() })
        }
        NameQuery::Port(vnet, name) => {
            let (_, vni) = plan.vnet_named(vnet)?;
            let members = plan.hosts.iter().filter(|host| host.at.is_some());
            let members = members.filter(|host| host.vnets.contains(&vni));
            let others = members.map(|host| (host.host, host.name.clone())).collect();
            Ok(Found { others, ..at_port(plan, (ports, plane), vni, name) })
        }
        NameQuery::Asked(host, question) => {
            let vni = Vni::new(question.vni).ok_or("it is no VNI")?;
            // A host that is not in the network learns nothing about it.
            let is_in = |known: &&crate::config::HostPlan| known.host == *host;
            let known = plan.hosts.iter().find(is_in);
            match known.is_some_and(|known| known.vnets.contains(&vni)) {
                true => Ok(at_port(plan, (ports, plane), vni, &question.port)),
                false => Err("it is not in the network".to_owned()),
            }
        }
    }
}

fn at_port(plan: &FabricPlan, (ports, plane): (&Ports, &Plane), vni: Vni, name: &str) -> Found {
    let vnet = plan.vnet(vni);
    let mut found = Found { vni: vni.get(), ..Found::default() };
    let at = ports.named(name).filter(|(_, port)| Some(port.local.vnet) == vnet);
    let Some((id, port)) = at else { return found };
    found.is_here = true;
    let bound = port.bound.iter().filter(|bound| bound.vni == vni);
    found.macs = bound.map(|bound| bound.mac).take(ENDPOINTS_MAX).collect();
    let mut after = None;
    while found.macs.is_empty() {
        let page = plane.vports(vni, after, PAGE);
        let here = page.iter().filter(|vport| (vport.owner, vport.claim.port) == (plan.own, id));
        found.macs.extend(here.map(|vport| vport.claim.key.mac).take(ENDPOINTS_MAX));
        match page.last() {
            Some(last) if page.len() == PAGE => after = Some(last.claim.key.mac),
            _ => break,
        }
    }
    found
}

/// Answers a member.
pub(super) fn serve(
    fabric: &Fabric,
    host: HostId,
    body: &[u8],
    time: Time,
) -> Result<Vec<u8>, Failure> {
    let question = serde_json::from_slice(body).map_err(|_| Failure::Refused)?;
    let found = fabric.named(NameQuery::Asked(host, question), span(time.left()));
    let found = found.map_err(|_| Failure::Refused)?;
    let macs = found.macs.iter().map(Mac::to_string).collect();
    serde_json::to_vec(&PortAnswer { here: found.is_here, macs }).map_err(|_| Failure::Refused)
}

/// Returns the question with addresses, or the reason why its sender is unknown.
pub(super) fn resolved(
    fabric: &Fabric,
    question: &Question,
    time: Time,
) -> Result<Result<Question, String>, String> {
    let mut plain = question.clone();
    match Name::read(&question.from) {
        Name::Mac => {}
        Name::Ip(ip) => {
            let wanted = NameQuery::Ip(question.vnet.clone(), ip);
            match fabric.named(wanted, span(time.left()))?.macs.first() {
                Some(mac) => plain.from = mac.to_string(),
                None => return Ok(Err(format!("nobody is known to have {ip}"))),
            }
        }
        Name::Port(host, port) => {
            let (mac, is_here) = at(fabric, &question.vnet, host, port, time)?;
            plain.from = mac;
            if is_here && plain.port.is_none() {
                plain.port = Some(port.to_owned());
            }
        }
    }
    if let Name::Port(host, port) = Name::read(&question.to) {
        plain.to = at(fabric, &question.vnet, host, port, time)?.0;
    }
    Ok(Ok(plain))
}

/// Meaning of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name<'a> {
    Mac,
    Ip(IpAddr),
    /// A port, and the host that has it if one was named.
    Port(Option<&'a str>, &'a str),
}

impl<'a> Name<'a> {
    fn read(text: &'a str) -> Self {
        match (text.parse::<Mac>(), text.parse::<IpAddr>(), text.split_once('/')) {
            (Ok(_), ..) => Self::Mac,
            (_, Ok(ip), _) => Self::Ip(ip),
            (.., Some((host, port))) => Self::Port(Some(host), port),
            _ => Self::Port(None, text),
        }
    }
}

/// Returns the one endpoint at a port, and true if the port is of this host.
fn at(
    fabric: &Fabric,
    vnet: &str,
    host: Option<&str>,
    port: &str,
    time: Time,
) -> Result<(String, bool), String> {
    let wanted = NameQuery::Port(vnet.to_owned(), port.to_owned());
    let found = fabric.named(wanted, span(time.left()))?;
    let is_own = host.is_none_or(|host| host == fabric.name());
    if is_own && found.is_here {
        let macs: Vec<String> = found.macs.iter().map(Mac::to_string).collect();
        return only(&macs, port, fabric.name()).map(|mac| (mac, true));
    }
    let asked: Vec<_> = match host {
        Some(host) if host == fabric.name() => Vec::new(),
        Some(host) => found.others.into_iter().filter(|(_, name)| name == host).collect(),
        None => found.others,
    };
    let mut there: Vec<(String, Vec<String>)> = Vec::new();
    let mut silent = Vec::new();
    for (left, (id, name)) in (1..=asked.len() as u64).rev().zip(asked) {
        let question = PortQuestion { vni: found.vni, port: port.to_owned() };
        let limit = sluice_base::Nanos(time.most().0 / 2 / left);
        let answer = fabric.call(id, Topic::PORT, limit, &question);
        match answer.map(|body| serde_json::from_slice::<PortAnswer>(&body)) {
            Ok(Ok(answer)) if answer.here => there.push((name, answer.macs)),
            Ok(Ok(_)) => {}
            Ok(Err(_)) => silent.push(format!("{name}: its answer cannot be read")),
            Err(failure) => silent.push(format!("{name}: {failure}")),
        }
    }
    match &there[..] {
        [(name, macs)] => only(macs, port, name).map(|mac| (mac, false)),
        [] => {
            let place = host.map_or_else(String::new, |host| format!(" of {host}"));
            let mut error =
                format!("`{port}` is no MAC, no IP address and no port{place} in {vnet}");
            if !silent.is_empty() {
                error += &format!(" (not known of {})", silent.join(", "));
            }
            Err(error + "; `sluice vport list` shows all endpoints")
        }
        several => {
            let names: Vec<String> =
                several.iter().map(|(host, _)| format!("{host}/{port}")).collect();
            Err(format!("several hosts have a port `{port}`; name one: {}", names.join(", ")))
        }
    }
}

fn only(macs: &[String], port: &str, host: &str) -> Result<String, String> {
    let read = |mac: &String| mac.parse::<Mac>().map_err(|_| format!("{host} answers no MAC"));
    match macs {
        [mac] => read(mac).map(|mac| mac.to_string()),
        [] => Err(format!(
            "nobody was heard at port {port} of {host} so far; let the machine send a frame, or \
             give its MAC"
        )),
        several => {
            for mac in several {
                read(mac)?;
            }
            Err(format!("at port {port} of {host} are {}; name one of them", several.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests;
