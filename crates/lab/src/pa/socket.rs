//! TCP sockets as the workload needs them: congestion control by name, large buffers, no Nagle.

use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};

use anyhow::Context;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, sockopt};

use super::BUFFER_BYTES;

fn socket(congestion: &str) -> anyhow::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::INET,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    prepare(&socket, congestion)?;
    // Set before the handshake: the window scale is chosen from it.
    sockopt::set_socket_recv_buffer_size_force(&socket, BUFFER_BYTES)?;
    sockopt::set_socket_send_buffer_size_force(&socket, BUFFER_BYTES)?;
    Ok(socket)
}

/// Sets the options of every connection. Accepted sockets do not inherit the congestion control in
/// a namespace that may not choose it if the kernel's default differs, so each socket is set by
/// itself.
pub(crate) fn prepare(socket: impl AsFd, congestion: &str) -> anyhow::Result<()> {
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_tcp_congestion(&socket, congestion)
        .with_context(|| format!("this kernel has no congestion control {congestion}"))
}

/// Returns a listening socket.
pub(crate) fn listener(
    address: Ipv4Addr,
    port: u16,
    congestion: &str,
) -> anyhow::Result<TcpListener> {
    let socket = socket(congestion)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    let address = SocketAddrV4::new(address, port);
    bind(&socket, &address).with_context(|| format!("binding {address}"))?;
    listen(&socket, 64)?;
    Ok(TcpListener::from(socket))
}

/// Opens a connection whose packets have the class selector of this priority (RFC 2474). The peer
/// answers with the same one (`net.ipv4.tcp_reflect_tos`).
pub(crate) fn connection(
    address: Ipv4Addr,
    port: u16,
    congestion: &str,
    priority: u8,
) -> anyhow::Result<TcpStream> {
    let socket = socket(congestion)?;
    sockopt::set_ip_tos(&socket, priority << 5).context("setting a packet's priority")?;
    let address = SocketAddrV4::new(address, port);
    connect(&socket, &address).with_context(|| format!("connecting to {address}"))?;
    Ok(TcpStream::from(socket))
}
