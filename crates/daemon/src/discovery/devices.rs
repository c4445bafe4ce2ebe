//! Devices of a host that has no configuration yet, on which its underlay may be.

use std::fs;
use std::io;
use std::path::Path;

use sluice_ports::device;

use super::Place;

/// Returns the devices that may lead to other hosts, each with its first IPv4 address: the one of
/// the default route, and others that are neither bridges nor made for a tenant (TUN, TAP). A veth
/// with an address counts: it is the underlay of a host that is a namespace.
///
/// # Errors
/// The kernel's error.
pub fn candidates() -> io::Result<Vec<Place>> {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let by_default = default_devices(&routes);
    let mut places: Vec<Place> = Vec::new();
    for (name, address) in device::addresses()? {
        let is_new = places.iter().all(|place| place.device != name);
        let leads_out = by_default.contains(&name.as_str()) || !is_made_for_others(&name);
        let is_up = || device::device(&name).is_ok_and(|device| device.up);
        if !address.is_loopback() && is_new && leads_out && is_up() {
            places.push(Place { device: name, address });
        }
    }
    places.sort_unstable();
    Ok(places)
}

/// Returns true for a device between this host and its own tenants.
fn is_made_for_others(device: &str) -> bool {
    let folder = Path::new("/sys/class/net").join(device);
    ["bridge", "tun_flags"].iter().any(|mark| folder.join(mark).exists())
}

/// Returns the devices of default routes in `/proc/net/route`.
fn default_devices(routes: &str) -> Vec<&str> {
    let device = |line| {
        let fields: Vec<&str> = str::split_ascii_whitespace(line).collect();
        // Interface, destination, and as the eighth field the mask.
        let is_default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        is_default.then(|| fields[0])
    };
    routes.lines().filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_route_device_found() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
                      br0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
                      eth1\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
                      broken\n";
        assert_eq!(default_devices(routes), ["br0"]);
        assert!(default_devices("").is_empty());
    }

    #[test]
    fn candidates_never_loopback() {
        assert!(candidates().unwrap().iter().all(|place| place.device != "lo"));
    }
}
