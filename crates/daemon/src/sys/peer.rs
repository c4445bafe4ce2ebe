//! The process at the other end of a socket.

use std::os::fd::AsFd;

/// Returns true if the peer is root, or the user as whom this process runs.
pub(crate) fn is_owner(stream: impl AsFd) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream)
        .is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}
