//! Results of an ADD (section 5, "Success"): read from an IPAM plugin, made for the runtime.

use std::net::IpAddr;

use serde_json::{Map, Value, json};
use sluice_api::port::{Card, Cidr, Route};

use crate::config::Version;
use crate::error::{Code, Error};

/// An address that was assigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AssignedIp {
    pub(crate) address: Cidr,
    pub(crate) gateway: Option<IpAddr>,
}

/// Everything that an interface gets beside its link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addressing {
    pub(crate) ips: Vec<AssignedIp>,
    pub(crate) routes: Vec<Route>,
    pub(crate) dns: Option<Value>,
}

impl Addressing {
    /// Reads the abbreviated result of an IPAM plugin (section 5, "Delegated plugins (IPAM)").
    pub(crate) fn of_ipam(result: &Value) -> Result<Self, Error> {
        let ips: Vec<AssignedIp> =
            rows(result, "ips").iter().map(assigned).collect::<Result<_, _>>()?;
        let mut routes: Vec<Route> =
            rows(result, "routes").iter().map(route_of).collect::<Result<_, _>>()?;
        for route in &mut routes {
            let of_family = ips.iter().filter(|ip| ip.address.ip.is_ipv4() == route.ip.is_ipv4());
            route.gateway = route.gateway.or_else(|| of_family.filter_map(|ip| ip.gateway).next());
        }
        let dns =
            result.get("dns").filter(|dns| dns.as_object().is_some_and(|dns| !dns.is_empty()));
        Ok(Self { ips, routes, dns: dns.cloned() })
    }
}

fn assigned(row: &Value) -> Result<AssignedIp, Error> {
    let of_ipam = |error: String| {
        let msg = format!("the IPAM plugin assigned an address that cannot be used: {error}");
        Error::sentence(Code::Config, &msg)
    };
    let text = |key: &str| row.get(key).and_then(Value::as_str);
    let address = text("address").ok_or_else(|| of_ipam(format!("{row} has no `address`")))?;
    let address = address.parse().map_err(of_ipam)?;
    let gateway = text("gateway").filter(|text| !text.is_empty());
    let gateway = gateway
        .map(|text| text.parse().map_err(|_| of_ipam(format!("`{text}` is no router's address"))));
    Ok(AssignedIp { address, gateway: gateway.transpose()? })
}

/// Returns the default route by a router, of its family.
pub(crate) fn default_route(gateway: IpAddr) -> Route {
    let ip = if gateway.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    Route { ip, prefix: 0, gateway: Some(gateway) }
}

/// Reads a route: `dst` and `gw`. Other properties of a route are refused, not forgotten.
pub(crate) fn route_of(row: &Value) -> Result<Route, Error> {
    let wrong =
        |problem: String| Error::key("routes", &problem, "use `{\"dst\": CIDR, \"gw\": IP}`");
    let text = |key: &str| row.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let to = text("dst").ok_or_else(|| wrong(format!("{row} has no `dst`")))?;
    let is_set = |key: &&&str| row.get(**key).is_some_and(|value| !value.is_null() && *value != 0);
    if let Some(key) = ["mtu", "advmss", "priority", "table", "scope"].iter().find(is_set) {
        return Err(wrong(format!("`{key}` of {to} is not supported")));
    }
    let line = match text("gw") {
        Some(gateway) => format!("{to},{gateway}"),
        None => to.to_owned(),
    };
    line.parse().map_err(wrong)
}

/// Makes the result of an ADD in the configuration's version. What plugins before this one made
/// comes first.
pub(crate) fn of_add(
    version: Version,
    before: Option<&Value>,
    (card, netns): (&Card, &str),
    given: &Addressing,
) -> Value {
    let mut result = before.and_then(Value::as_object).cloned().unwrap_or_default();
    result.insert("cniVersion".to_owned(), version.text().into());
    let mut interface = json!({ "name": card.device, "mac": card.mac, "sandbox": netns });
    if version >= Version::V1_1 {
        interface["mtu"] = card.mtu.into();
    }
    let index = push(&mut result, "interfaces", interface);
    for ip in &given.ips {
        let mut row = json!({ "address": ip.address.to_string(), "interface": index });
        if let Some(gateway) = ip.gateway {
            row["gateway"] = gateway.to_string().into();
        }
        if version == Version::V0_4 {
            row["version"] = if ip.address.ip.is_ipv4() { "4" } else { "6" }.into();
        }
        push(&mut result, "ips", row);
    }
    for route in &given.routes {
        let mut row = json!({ "dst": format!("{}/{}", route.ip, route.prefix) });
        if let Some(gateway) = route.gateway {
            row["gw"] = gateway.to_string().into();
        }
        push(&mut result, "routes", row);
    }
    if let Some(dns) = &given.dns {
        result.insert("dns".to_owned(), dns.clone());
    }
    Value::Object(result)
}

/// Appends to a list of the result; returns the position.
fn push(result: &mut Map<String, Value>, key: &str, row: Value) -> usize {
    let list = result.entry(key).or_insert_with(|| json!([]));
    if !list.is_array() {
        *list = json!([]);
    }
    let list = list.as_array_mut().expect("it is a list now");
    list.push(row);
    list.len() - 1
}

/// Returns the rows of a list; none if there is no such list.
pub(crate) fn rows<'a>(result: &'a Value, key: &str) -> &'a [Value] {
    result.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests;
