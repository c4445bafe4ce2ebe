use super::*;
use core::net::Ipv4Addr;
use sluice_base::{PortId, Vni};

const THROUGH_PORT_7: TunnelConfig = TunnelConfig {
    port: PortId(7),
    remote: Ipv4Addr::new(172, 16, 0, 1),
    next_hop: None,
    foreign: false,
};

#[test]
fn decap_table_ends_at_last_tunnel_of_network() {
    let rows = |tunnels: &[u16]| {
        let tunnels = tunnels.iter().map(|t| TunnelId(*t)).collect();
        let vnet = VnetConfig { vni: Vni::new(1), mtu: 1_500, tunnels };
        make_decaps(&vnet, &[THROUGH_PORT_7; 6], 10)
    };
    assert_eq!([rows(&[]).len(), rows(&[0]).len(), rows(&[4, 2]).len()], [0, 1, 5]);
    let row = rows(&[4, 2])[3];
    assert_eq!((row.port, row.source), (7, 13), "of the fourth tunnel, behind ten inputs");
}
