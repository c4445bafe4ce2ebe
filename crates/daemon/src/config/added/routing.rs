//! Routes and MTU of an added port.

use sluice_api::port::{NewPort, Place};
use sluice_ports::tap::TapRoute;

/// Every host accepts packets of this size (RFC 791 section 3.2; RFC 8200 section 5).
const MTU_MIN_IPV4: u16 = 576;
const MTU_MIN_IPV6: u16 = 1280;

/// Returns the routes for its device.
///
/// # Errors
/// Routes that the kernel would refuse, with the remedy.
pub(super) fn of(new: &NewPort) -> Result<Vec<TapRoute>, String> {
    if super::has_machine(&new.place) && (new.gateway.is_some() || !new.routes.is_empty()) {
        return Err("the machine behind the port has routes of its own; leave `--gateway` and \
                    `--route` out"
            .to_owned());
    }
    if new.place == Place::Host && new.gateway.is_some() {
        return Err("`--gateway` would take the host's own default route; name what lies behind \
                    it with `--route`"
            .to_owned());
    }
    let on_link = |gateway| new.ips.iter().any(|cidr| cidr.contains(gateway));
    let gateways = new.routes.iter().filter_map(|route| route.gateway).chain(new.gateway);
    for gateway in gateways {
        if new.ips.iter().any(|cidr| cidr.ip == gateway) {
            return Err(format!("{gateway} is the port's own address and cannot be its router"));
        }
        if !on_link(gateway) {
            return Err(format!(
                "the router {gateway} is in no network of the port; give it an `--ip` with a \
                 prefix that covers it"
            ));
        }
    }
    if new.ips.is_empty() && !new.routes.is_empty() {
        return Err("routes need an address; give one with `--ip`".to_owned());
    }
    let default = new.gateway.map(|gateway| {
        let ip = if gateway.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
        TapRoute { ip, prefix: 0, gateway: Some(gateway) }
    });
    let more = new.routes.iter().map(|route| TapRoute {
        ip: route.ip,
        prefix: route.prefix,
        gateway: route.gateway,
    });
    Ok(default.into_iter().chain(more).collect())
}

/// Checks that the network can carry frames of a device of this MTU.
///
/// # Errors
/// If it cannot, or no stack would use it.
pub(super) fn check_mtu(new: &NewPort, of_network: u16) -> Result<(), String> {
    let Some(mtu) = new.mtu else { return Ok(()) };
    if mtu > of_network {
        return Err(format!(
            "an MTU of {mtu} is larger than {of_network}, that of `{}`; use {of_network} or less",
            new.vnet
        ));
    }
    let has_ipv6 = new.ips.iter().any(|cidr| cidr.ip.is_ipv6());
    let min = if has_ipv6 { MTU_MIN_IPV6 } else { MTU_MIN_IPV4 };
    if mtu < min {
        let what = if has_ipv6 { "IPv6" } else { "IPv4" };
        return Err(format!("an MTU of {mtu} is less than {what} needs; use {min} or more"));
    }
    Ok(())
}
