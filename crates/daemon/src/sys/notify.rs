//! Notifications to the service manager (`sd_notify(3)`): control is ready, lives, or stops.
//! Without `$NOTIFY_SOCKET` there are none.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The variable with the socket of the service manager.
const SOCKET: &str = "NOTIFY_SOCKET";

/// Reports a state to the service manager, such as `READY=1`.
pub(crate) fn tell(state: &str) {
    let Some(socket) = std::env::var_os(SOCKET) else { return };
    // If nobody listens any more, nobody waits for the message either.
    _ = send(&socket, state);
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        path => SocketAddr::from_pathname(OsStr::from_bytes(path))?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

/// Returns the time between two signs of life: half of the service manager's limit.
pub(crate) fn beat() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_for_us = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    let micros = number("WATCHDOG_USEC").filter(|micros| is_for_us && *micros > 0)?;
    Some(Duration::from_micros(micros / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Service managers use both kinds of sockets.
    #[test]
    fn notification_reaches_path_and_abstract_sockets() {
        let name = format!("sluice-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let by_path = UnixDatagram::bind(&path).unwrap();
        let address = SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        for (socket, at) in
            [(by_path, path.clone().into_os_string()), (by_name, format!("@{name}").into())]
        {
            send(&at, "READY=1").unwrap();
            let mut bytes = [0; 32];
            let size = socket.recv(&mut bytes).unwrap();
            assert_eq!(&bytes[..size], b"READY=1");
        }
        std::fs::remove_file(path).unwrap();
    }
}
