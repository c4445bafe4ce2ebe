//! Ports for tests that open sockets.

use std::net::{Ipv4Addr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel chooses for a socket without one (`ip_local_port_range`): such a
/// socket of another test would take a port between its choice and its use.
const PORTS: Range<u16> = 20_000..32_000;

/// Returns a UDP port that is free at each address, and that no other call in this process returns.
///
/// # Panics
///
/// Panics if there is none.
#[must_use]
pub fn free_port(addresses: &[Ipv4Addr]) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let size = PORTS.end - PORTS.start;
    // Another process begins elsewhere.
    let first = std::process::id().wrapping_mul(97) % u32::from(size);
    let first = u16::try_from(first).unwrap_or_default();
    let is_free = |port: &u16| addresses.iter().all(|at| UdpSocket::bind((*at, *port)).is_ok());
    (0..size)
        .map(|_| PORTS.start + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % size)
        .find(is_free)
        .expect("a free UDP port")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_port_skipped_and_none_returned_twice() {
        let at = Ipv4Addr::new(127, 0, 8, 1);
        let used = UdpSocket::bind((at, free_port(&[at]))).unwrap();
        let used = used.local_addr().unwrap().port();
        let others: Vec<u16> = (0..100).map(|_| free_port(&[at])).collect();
        assert!(!others.contains(&used));
        assert!(others.iter().all(|port| PORTS.contains(port)));
        assert!((1..others.len()).all(|n| !others[..n].contains(&others[n])));
    }
}
