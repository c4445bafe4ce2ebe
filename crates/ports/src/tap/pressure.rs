//! A full ring that holds its senders: `IFF_BACKPRESSURE`, from Linux 7.3 on.
//!
//! ```text
//!   socket ─▶ [ pfifo: 200,000 ] ─▶ [ ring ] ─▶ read()
//!             stopped while the ring is full; a sender waits when its own send buffer is in there
//! ```
//!
//! A flag is believed once it was seen at work: the stop test fills a TAP of its own, in a
//! namespace of its own, while nobody reads, and requires that the sender is held and that every
//! frame arrives afterwards. Nothing of it depends on a device, so it runs once in each process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::net::{SendFlags, send};

use super::rings;
use crate::device::ioctl_socket;
use crate::error::OpenError;
use crate::netlink::{CONTAINER_FIFO_FRAMES, Netlink};
use crate::netns;
use crate::sys::{self, DeviceRequest, IFF_BACKPRESSURE};

/// Requirement of a TAP on an earlier kernel.
const NEEDS_KERNEL: &str = "Linux 7.3 or senders limited by a window, such as TCP, all of which \
                            fit into the ring: a full one drops and no kernel tells its sender; \
                            kind `veth` holds them";
/// Requirement of a TAP that an earlier release made.
const NEEDS_ANEW: &str = "to be made anew, as the release that made it could not hold its \
                          senders: start the container again";
/// Requirement of a TAP whose configuration says that it holds nobody.
const NEEDS_FLAG: &str = "to hold its senders, which its configuration forbids";

/// Device of the stop test, in its own namespace.
const DEVICE: &str = "stop";
/// Size of its ring, so that few frames fill it.
const RING_FRAMES: u32 = 64;
/// Send buffer: several times what the ring holds.
const SEND_BUFFER_BYTES: i32 = 1 << 20;
/// Frames that no send buffer of that size takes.
const FRAMES_MAX: usize = 10_000;
/// Time until all frames must have arrived.
const DRAIN_MAX: Duration = Duration::from_secs(2);
/// A broadcast of the first EtherType for experiments (IEEE 802).
const FRAME: [u8; 60] = {
    let mut frame = [0xff; 60];
    frame[6] = 2;
    frame[12] = 0x88;
    frame[13] = 0xb5;
    frame
};

/// Returns true if this kernel knows the flag.
pub(super) fn is_known(tun: &OwnedFd) -> io::Result<bool> {
    Ok(sys::tun_features(tun)? & IFF_BACKPRESSURE.cast_unsigned() != 0)
}

/// Returns the requirement for a full ring to hold its senders, if it does not. `is_set` is true
/// for a TAP that has the flag.
pub(super) fn judge(tun: &OwnedFd, is_wanted: bool, is_set: bool) -> Result<(), &'static str> {
    static SEEN: OnceLock<Result<(), String>> = OnceLock::new();
    let seen = || SEEN.get_or_init(stop_test).as_ref().map(drop).map_err(String::as_str);
    requirement((is_set, is_wanted), || is_known(tun).unwrap_or(false), seen)
}

fn requirement(
    (is_set, is_wanted): (bool, bool),
    is_known: impl FnOnce() -> bool,
    seen: impl FnOnce() -> Result<(), &'static str>,
) -> Result<(), &'static str> {
    match (is_set, is_wanted) {
        (true, _) => seen(),
        (false, _) if !is_known() => Err(NEEDS_KERNEL),
        (false, true) => Err(NEEDS_ANEW),
        (false, false) => Err(NEEDS_FLAG),
    }
}

/// Shows on this kernel that a full ring holds its sender and loses nothing, or says what it does.
fn stop_test() -> Result<(), String> {
    let failed = |error: OpenError| format!("a stop test, which failed: {error}");
    let seen = netns::private(|| fill_and_drain().map_err(OpenError::device(DEVICE, "test it")));
    seen.map_err(failed)?.map_err(|reason| format!("another kernel: in the stop test {reason}"))
}

fn fill_and_drain() -> io::Result<Result<(), String>> {
    let tun = rings::attach(DEVICE, true).map_err(io::Error::other)?;
    let request = || DeviceRequest::new(DEVICE).ok_or(io::ErrorKind::InvalidInput);
    let asking = ioctl_socket()?;
    let index = request()?.index(asking.as_fd())?;
    request()?.set_queue_frames(asking.as_fd(), RING_FRAMES)?;
    Netlink::open()?.set_fifo(index, CONTAINER_FIFO_FRAMES)?;
    request()?.set_up(asking.as_fd())?;
    let sender = sys::packet_socket()?;
    sys::set_option(&sender, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES)?;
    sys::bind_packet(&sender, index, 0)?;
    let accepted = match fill(&sender)? {
        Ok(accepted) => accepted,
        Err(reason) => return Ok(Err(reason)),
    };
    if accepted <= RING_FRAMES as usize {
        return Ok(Err(format!("{accepted} frames filled a ring of {RING_FRAMES}")));
    }
    let arrived = drain(&tun, accepted)?;
    let is_whole = arrived == accepted;
    Ok(is_whole.then_some(()).ok_or_else(|| format!("{arrived} of {accepted} frames arrived")))
}

/// Sends until the socket is held; returns the number of frames, or what happened instead.
fn fill(sender: &OwnedFd) -> io::Result<Result<usize, String>> {
    for accepted in 0..FRAMES_MAX {
        match send(sender, &FRAME, SendFlags::DONTWAIT) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(Ok(accepted)),
            Err(rustix::io::Errno::NOBUFS) => {
                return Ok(Err(format!("frame {accepted} was dropped at the queueing discipline")));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Err(format!("a sender was not held after {FRAMES_MAX} frames")))
}

/// Reads until all frames are there, or the time is over. The kernel's own frames do not count.
fn drain(tun: &OwnedFd, wanted: usize) -> io::Result<usize> {
    let (mut arrived, until) = (0, Instant::now() + DRAIN_MAX);
    let mut bytes = [0; 2048];
    while arrived < wanted && Instant::now() < until {
        match rustix::io::read(tun, &mut bytes) {
            Ok(size) => arrived += usize::from(bytes[..size].ends_with(&FRAME)),
            // What waits in the discipline follows when the kernel has run it.
            Err(rustix::io::Errno::AGAIN) => std::thread::sleep(Duration::from_micros(100)),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirement_depends_on_flag_and_stop_test() {
        let of = |flags, is_known, seen| requirement(flags, || is_known, || seen);
        let dropped = Err("another kernel");
        assert_eq!(of((true, true), true, Ok(())), Ok(()));
        assert_eq!(of((true, true), true, dropped), dropped, "a flag is not believed");
        assert_eq!(of((true, false), true, Ok(())), Ok(()), "it cannot be taken back");
        assert_eq!(of((false, true), false, Ok(())), Err(NEEDS_KERNEL));
        assert_eq!(of((false, true), true, Ok(())), Err(NEEDS_ANEW));
        assert_eq!(of((false, false), true, Ok(())), Err(NEEDS_FLAG));
    }

    #[test]
    fn stop_test_agrees_with_kernel() {
        let is_root = rustix::process::geteuid().is_root();
        let Ok(features) = crate::probe::tap_features() else {
            return assert!(!is_root || !std::path::Path::new("/dev/net/tun").exists());
        };
        if !is_root {
            return;
        }
        match stop_test() {
            Ok(()) => assert!(features.back_pressure),
            Err(reason) => {
                assert!(!features.back_pressure, "{reason}");
                assert!(reason.contains("a sender was not held after 10000 frames"), "{reason}");
            }
        }
    }
}
