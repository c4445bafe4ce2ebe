//! Drop reasons of packets that nobody waits for.

/// Prefixes of reasons that mean that a packet was not wanted, rather than that there was no room
/// for it. Names as in `enum skb_drop_reason`.
const UNWANTED: &[&str] = &[
    // No taker in this namespace: no socket, protocol, address, or another host's.
    "NO_SOCKET",
    "UNHANDLED_PROTO",
    "IP_NOPROTO",
    "OTHERHOST",
    "UNICAST_IN_L2_MULTICAST",
    "IP_INADDRERRORS",
    "IP_INNOROUTES",
    "IP_OUTNOROUTES",
    "IPV6DISABLED",
    "INVALID_PROTO",
    // Dropped on purpose: by a socket's filter, a rule, a program at tcx or XDP. The packet socket
    // in front of it has its copy.
    "SOCKET_FILTER",
    "NETFILTER_DROP",
    "TC_INGRESS",
    "TC_EGRESS",
    "XDP",
    // TCP's own drops of segments that came twice, late, or for a connection that is over.
    "TCP_",
    // Its socket closed while the packet waited.
    "SOCKET_CLOSE",
    "SOCKET_DESTROYED",
    "QUEUE_PURGE",
    "DEV_READY",
    // ARP: an address without an answer.
    "NEIGH_FAILED",
    "ARP_PVLAN_DISABLE",
];

/// Returns true if a packet that a kernel function dropped for this reason was lost. An unknown
/// reason is a loss; no reason at all is one unless TCP gave none, as it does for segments of a
/// connection that is closing.
#[must_use]
pub fn is_loss(reason: &str, function: &str) -> bool {
    let is_tcp = reason == "NOT_SPECIFIED" && function.starts_with("tcp_");
    // The kernel made the packet itself, to run a program on it.
    let is_probe = function == "bpf_prog_test_run_skb";
    !is_tcp && !is_probe && !UNWANTED.iter().any(|known| reason.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_and_no_reason_are_losses() {
        for reason in ["FULL_RING", "SOCKET_RCVBUFF", "QDISC_DROP"] {
            assert!(is_loss(reason, "tcp_v4_rcv") || reason == "NOT_SPECIFIED", "{reason}");
            assert!(is_loss(reason, "tun_net_xmit"), "{reason}");
        }
        for reason in ["CPU_BACKLOG", "NOMEM", "NOT_SPECIFIED", "reason 300", "SOCKET_BACKLOG"] {
            assert!(is_loss(reason, "tcp_v4_rcv") || reason == "NOT_SPECIFIED", "{reason}");
            assert!(is_loss(reason, "tun_net_xmit"), "{reason}");
        }
        assert!(!is_loss("NOT_SPECIFIED", "tcp_rcv_state_process"));
        assert!(!is_loss("NOT_SPECIFIED", "bpf_prog_test_run_skb"));
        for reason in ["NO_SOCKET", "TC_INGRESS", "TCP_OLD_DATA", "OTHERHOST"] {
            assert!(!is_loss(reason, "ip_rcv"), "{reason}");
        }
    }
}
