use super::*;

/// A key lies as the packet does: address, port, protocol.
#[test]
fn key_is_in_network_order() {
    let address = Ipv4Addr::new(10, 1, 2, 3);
    let endpoint = Endpoint { address, port: 4789, transport: Transport::Udp };
    assert_eq!(endpoint.key(), [10, 1, 2, 3, 0x12, 0xb5, 17, 0]);
}

/// The mark has no bits of other programs, and theirs have none of it.
#[test]
fn mark_is_free_of_known_bits() {
    for (theirs, bits) in [("kubernetes", 0xc000), ("cilium", 0x0f00)] {
        assert_eq!(MARK & bits, 0, "{theirs}");
    }
    assert!(![0x4_0000, 0x8_0000].contains(&(MARK & 0xff_0000)), "tailscale");
}
