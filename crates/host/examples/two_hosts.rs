//! Two hosts and a receiver that sleeps: backpressure holds the sender, and no frame is lost.
//!
//! ```text
//!   cargo run -p sluice-host --example two_hosts
//! ```
use std::net::Ipv4Addr;

use sluice_base::{Mac, Nanos, PortId, TunnelId, VnetId};
use sluice_host::{Host, rig};
use sluice_switch::Destination;

const CONTAINER: PortId = PortId(0);
const WIRE: PortId = PortId(1);

fn host(number: u8, peer: u8, to: Destination) -> Host<Vec<u8>> {
    let (ip, mac) = (|n| Ipv4Addr::new(10, 0, 0, n), |n| Mac([2, 0, 0, 0, 1, n]));
    let ports = vec![rig::container(64), rig::underlay(ip(number), mac(number), 64)];
    let config = rig::host(ports, &[(ip(peer), mac(peer))]);
    Host::new(&config, [(VnetId(0), Mac([2, 0, 0, 0, 0, 2]), to)], 1, Nanos::ZERO).unwrap()
}

fn main() {
    let mut left = host(1, 2, Destination::Tunnel(TunnelId(0)));
    let mut right = host(2, 1, Destination::Port(CONTAINER));
    let frame = [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5][..], &[0; 1450]].concat();
    let (mut sent, mut received) = (0, 0);
    for now in (0..1000).map(Nanos::from_millis) {
        let awake = now >= Nanos::from_millis(500);
        sent += rig::give(&mut left, now, CONTAINER, vec![frame.clone(); 8]);
        rig::give(&mut right, now, WIRE, rig::take(&mut left, now, WIRE, 64));
        received += rig::take(&mut right, now, CONTAINER, if awake { 64 } else { 0 }).len();
        rig::give(&mut left, now, WIRE, rig::take(&mut right, now, WIRE, 64));
        if now == Nanos::from_millis(499) {
            println!("asleep: {sent} sent, {received} received, the rest is held back");
        }
    }
    let closed = left.switch().audit().is_closed() && right.switch().audit().is_closed();
    println!("awake:  {sent} sent, {received} received, audits closed: {closed}");
}
