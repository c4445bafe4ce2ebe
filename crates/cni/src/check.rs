//! CHECK: compares what the ADD reported, and what the host was asked for, with what is there.

use serde_json::Value;
use sluice_api::port::{Card, NewPort};

use crate::attach::attachment;
use crate::config::NetConfig;
use crate::error::{Code, Error};
use crate::host::Host;
use crate::invocation::{Command, Invocation};
use crate::ipam::Ipam;
use crate::name;
use crate::result::rows;

const REMEDY: &str = "DEL the container's interface and ADD it anew";

/// Checks a container's interface.
pub(crate) fn check(invocation: &Invocation, config: &NetConfig) -> Result<(), Error> {
    let Some(before) = config.prev_result() else {
        return Err(Error::key("prevResult", "is missing", "give CHECK the result of the ADD"));
    };
    let host = Host::find(&config.host)?;
    let key = attachment(invocation, config);
    let (interface, network) = (&key.interface, &key.network);
    let state = host.port_of(&key)?.ok_or_else(|| {
        let container = &key.container;
        differs(&format!("container {container} has no interface {interface} in {network}"))
    })?;
    if !state.open {
        return Err(differs(&format!("interface {interface} waits for its namespace or its vnet")));
    }
    let vnet = config.vnet()?;
    if state.port.vnet != vnet {
        let (is, wanted) = (&state.port.vnet, vnet);
        return Err(differs(&format!("interface {interface} is in vnet {is}, not in {wanted}")));
    }
    let card = host.card(&name::of(&key)).map_err(|error| match error.code() {
        Code::TryAgain => error,
        _ => error.with(Code::Differs),
    })?;
    let netns = invocation.netns.as_deref().unwrap_or_default();
    if let Some(difference) = difference(&state.port, &card, before, netns) {
        return Err(differs(&difference));
    }
    Ipam::of(invocation, config)?.map_or(Ok(()), |ipam| ipam.tell(Command::Check))
}

fn differs(problem: &str) -> Error {
    Error::new(Code::Differs, problem, REMEDY)
}

/// Returns the first difference between a device, its port, and the result of its ADD.
fn difference(port: &NewPort, card: &Card, before: &Value, netns: &str) -> Option<String> {
    let device = &card.device;
    let interfaces = rows(before, "interfaces");
    let text = |row: &Value, key: &str| row.get(key).and_then(Value::as_str).map(str::to_owned);
    let is_it = |row: &&Value| {
        text(row, "name").as_ref() == Some(device) && text(row, "sandbox").as_deref() == Some(netns)
    };
    let Some(at) = interfaces.iter().position(|row| is_it(&row)) else {
        return Some(format!("prevResult has no interface {device} in {netns}"));
    };
    let macs = [text(&interfaces[at], "mac"), port.mac.clone()];
    if let Some(mac) = macs.into_iter().flatten().find(|mac| !mac.eq_ignore_ascii_case(&card.mac)) {
        return Some(format!("{device} has the MAC {}, not {mac}", card.mac));
    }
    let reported = interfaces[at].get("mtu").and_then(Value::as_u64).filter(|mtu| *mtu > 0);
    let mtus = [reported, port.mtu.map(u64::from)];
    if let Some(mtu) = mtus.into_iter().flatten().find(|mtu| *mtu != u64::from(card.mtu)) {
        return Some(format!("{device} has an MTU of {}, not {mtu}", card.mtu));
    }
    if !card.up {
        return Some(format!("{device} is down"));
    }
    let is_of_it = |row: &&Value| row.get("interface").and_then(Value::as_u64) == Some(at as u64);
    let ips = rows(before, "ips").iter().filter(is_of_it);
    let reported: Vec<String> = ips.filter_map(|row| text(row, "address")).collect();
    let bound: Vec<String> = port.ips.iter().map(ToString::to_string).collect();
    let has_address = |text: &String| {
        let of_card = card.addresses.iter().map(|own| format!("{}/{}", own.ip, own.prefix));
        of_card.into_iter().any(|own| own == *text)
    };
    if let Some(address) = reported.iter().chain(&bound).find(|text| !has_address(text)) {
        return Some(format!("{device} does not have the address {address}"));
    }
    if let Some(address) = reported.iter().find(|text| !bound.contains(text)) {
        return Some(format!("the port of {device} is not bound to {address}"));
    }
    let route = port.routes.iter().find(|route| !card.routes.contains(route));
    route.map(|route| format!("{device} does not have the route {route}"))
}

#[cfg(test)]
mod tests;
