use super::*;

fn packet(message: &[u8], from: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0_u8; 20];
    packet[0] = 0x45;
    packet[12..16].copy_from_slice(&from.octets());
    packet.extend_from_slice(message);
    packet
}

#[test]
fn only_the_reply_to_this_request_counts() {
    let from = Ipv4Addr::new(10, 99, 0, 1);
    let request = message(ECHO_REQUEST, [1, 2], 7_u32.to_be_bytes());
    let reply = message(ECHO_REPLY, [1, 2], 7_u32.to_be_bytes());
    assert!(is_reply(&packet(&reply, from), from, &request));
    assert!(!is_reply(&packet(&request, from), from, &request), "the request itself");
    assert!(!is_reply(&packet(&reply, from), Ipv4Addr::new(10, 99, 0, 2), &request));
    let late = message(ECHO_REPLY, [1, 2], 6_u32.to_be_bytes());
    assert!(!is_reply(&packet(&late, from), from, &request), "an earlier one");
    let mut bad = packet(&reply, from);
    bad[40] ^= 1;
    assert!(!is_reply(&bad, from, &request), "a damaged one");
    for cut in 0..bad.len() {
        assert!(!is_reply(&bad[..cut], from, &request));
    }
}

#[test]
fn checksum_of_rfc_1071() {
    assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), !0xddf2);
}
