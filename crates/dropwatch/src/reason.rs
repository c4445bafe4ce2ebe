//! Reasons by which the kernel ends a packet that nobody waits for.

/// Prefixes of reasons that say of a packet that it was not wanted where it was dropped, rather than
/// that there was no room for it. Names as in `enum skb_drop_reason`.
const UNWANTED: &[&str] = &[
    // Nobody in this namespace takes it: no socket, protocol, address, or another host's.
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
    // Somebody said so: a socket's filter, a rule, a program at tcx or XDP. The packet socket in
    // front of it has its copy.
    "SOCKET_FILTER",
    "NETFILTER_DROP",
    "TC_INGRESS",
    "TC_EGRESS",
    "XDP",
    // TCP's own business with segments that came twice, late, or for a connection that is over.
    "TCP_",
    // Its socket closed while it waited.
    "SOCKET_CLOSE",
    "SOCKET_DESTROYED",
    "QUEUE_PURGE",
    "DEV_READY",
    // ARP: an address that nobody answers for.
    "NEIGH_FAILED",
    "ARP_PVLAN_DISABLE",
];

/// Whether a packet that ended by this reason was lost. An unknown reason is a loss.
#[must_use]
pub fn is_loss(reason: &str) -> bool {
    !UNWANTED.iter().any(|known| reason.starts_with(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_room_and_no_reason_are_losses() {
        for reason in ["FULL_RING", "SOCKET_RCVBUFF", "QDISC_DROP"] {
            assert!(is_loss(reason), "{reason}");
        }
        for reason in ["CPU_BACKLOG", "NOMEM", "NOT_SPECIFIED", "reason 300", "SOCKET_BACKLOG"] {
            assert!(is_loss(reason), "{reason}");
        }
        for reason in ["NO_SOCKET", "TC_INGRESS", "TCP_OLD_DATA", "OTHERHOST"] {
            assert!(!is_loss(reason), "{reason}");
        }
    }
}
