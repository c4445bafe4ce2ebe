use alloc::vec::Vec;

use sluice_base::Vni;

use super::*;
use crate::config::VnetConfig;
use crate::networks::Vnet;

fn network(tunnels: &[u16]) -> Vnet {
    let tunnels: Vec<_> = tunnels.iter().map(|t| TunnelId(*t)).collect();
    let config = VnetConfig { vni: Vni::new(1), mtu: 1_500, tunnels };
    let mut vnet = Vnet::new(&config, 0);
    vnet.set_tunnels(&config.tunnels, 10, |_| 7);
    vnet
}

#[test]
fn decap_table_ends_at_last_tunnel_of_network() {
    let rows = |tunnels: &[u16]| network(tunnels).decaps().to_vec();
    assert_eq!([rows(&[]).len(), rows(&[0]).len(), rows(&[4, 2]).len()], [0, 1, 5]);
    let row = rows(&[4, 2])[3];
    assert_eq!((row.port, row.source), (7, 13), "of the fourth tunnel, behind ten inputs");
}

#[test]
fn decap_rows_of_kept_tunnels_stay() {
    let mut vnet = network(&[0, 2]);
    vnet.decaps_mut()[0].received.add(100);
    vnet.decaps_mut()[2].received.add(200);
    let bytes = |row: &Decap| row.received.bytes;
    let kept = |vnet: &Vnet| -> Vec<u64> { vnet.decaps().iter().map(bytes).collect() };
    vnet.set_tunnels(&[TunnelId(0), TunnelId(1)], 10, |_| 7);
    assert_eq!(kept(&vnet), [100, 0]);
    vnet.set_tunnels(&[TunnelId(2), TunnelId(0)], 10, |_| 7);
    assert_eq!(kept(&vnet), [100, 0, 0], "a flow that was ended does not come back");
}
