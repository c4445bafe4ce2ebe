//! Sockets of the fabric, marked for the network and for the guard.

use std::io;
use std::os::fd::AsFd;

use rustix::net::sockopt;
use sluice_ports::guard;

/// Marks a socket as network control, DSCP CS6 (RFC 4594 section 3.2): traffic of the fabric does
/// not wait behind the tenants' frames, and is not paused with them. The socket also gets the mark
/// of Sluice's packets ([`guard`]).
pub(crate) fn mark(socket: &impl AsFd) -> io::Result<()> {
    guard::mark(socket)?;
    Ok(sockopt::set_ip_tos(socket, 48 << 2)?)
}
