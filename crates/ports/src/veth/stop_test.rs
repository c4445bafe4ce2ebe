//! The stop test: shows, on this kernel and this pair, that a sender is held while nobody polls,
//! and that nothing is lost.
//!
//! ```text
//!   socket ─▶ [ pfifo ] ─▶ [ ring of the veth: 256 ] ─╱─ NAPI, not run ─▶ AF_XDP
//!   fill:  sends until the socket says EAGAIN; more than the ring holds: the pfifo has some too
//!   hold:  nothing arrives meanwhile
//!   drain: every frame arrives, each once, and no counter shows a loss
//! ```
//!
//! It runs before the container's end is in its namespace, with a socket of its own: afterwards
//! only what the container sends passes there.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto};
use sluice_base::Mac;

use super::napi::Poller;
use super::requests;
use super::rings::Xsk;
use super::waking::{Hint, Words as _};
use crate::netlink::Netlink;
use crate::sys;

/// Address to which it sends; nobody has it (RFC 5737).
const NOBODY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(198, 51, 100, 9), 9);
/// Send buffer: several times what the ring of a veth holds (256 frames).
const SEND_BUFFER_BYTES: i32 = 1 << 20;
/// Frames that no send buffer of that size takes.
const FRAMES_MAX: u64 = 10_000;
/// Frames that the ring alone holds.
const RING_FRAMES: u64 = 256;
/// Time for which nobody polls while the path is full.
const HOLD: Duration = Duration::from_millis(20);
/// Time until all frames must have arrived.
const DRAIN_MAX: Duration = Duration::from_secs(2);
const PAYLOAD: [u8; 18] = [0; 18];

/// The parts of a path under test.
pub(super) struct Path<'a> {
    pub(super) xsk: &'a mut Xsk,
    pub(super) poller: &'a Poller,
    pub(super) hint: &'a Hint,
}

/// Runs the test. The container's end of the path is the device `name` of the caller's namespace.
/// Returns the reason if senders are not held.
pub(super) fn run(
    netlink: &mut Netlink,
    (name, index, mac): (&str, u32, Mac),
    path: &mut Path<'_>,
) -> io::Result<Result<(), String>> {
    requests::add_neighbour(netlink, index, *NOBODY.ip(), mac)?;
    let socket = sender(name)?;
    let (sent_before, drops_before) = (path.hint.sent(), netlink.qdisc_drops(index)?);
    let accepted = match fill(&socket)? {
        Ok(accepted) => accepted,
        Err(reason) => return Ok(Err(reason)),
    };
    if accepted <= RING_FRAMES {
        return Ok(Err(format!("the test filled it with {accepted} frames only")));
    }
    std::thread::sleep(HOLD);
    let early = path.xsk.waiting();
    if early > 0 {
        return Ok(Err(format!("{early} frames arrived while nobody polled")));
    }
    let arrived = drain(path, accepted);
    let dropped = netlink.qdisc_drops(index)?.wrapping_sub(drops_before);
    let counted = path.hint.sent().wrapping_sub(sent_before);
    let statistics = path.xsk.statistics()?;
    let lost = statistics.rx_dropped + statistics.rx_ring_full;
    Ok(match () {
        () if arrived != accepted => Err(format!(
            "of {accepted} frames {arrived} arrived (qdisc dropped {dropped}, AF_XDP {lost})"
        )),
        () if counted != accepted => {
            Err(format!("of {accepted} frames the program at its egress counted {counted}"))
        }
        () => Ok(()),
    })
}

fn sender(device: &str) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sys::bind_to_device(&socket, device)?;
    sys::set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER_BYTES)?;
    // So that a drop at the queueing discipline is an error of the call.
    sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_RECVERR, &1)?;
    Ok(socket)
}

/// Sends until the socket is held; returns the number of frames, or what happened instead.
fn fill(socket: &OwnedFd) -> io::Result<Result<u64, String>> {
    for accepted in 0..FRAMES_MAX {
        match sendto(socket.as_fd(), &PAYLOAD, SendFlags::DONTWAIT, &NOBODY) {
            Ok(_) => {}
            Err(rustix::io::Errno::AGAIN) => return Ok(Ok(accepted)),
            Err(rustix::io::Errno::NOBUFS) => {
                return Ok(Err(format!("frame {accepted} was dropped at the queueing discipline")));
            }
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(Err(format!("a sender was still not held after {FRAMES_MAX} frames")))
}

fn drain(path: &mut Path<'_>, wanted: u64) -> u64 {
    let (mut arrived, until) = (0, Instant::now() + DRAIN_MAX);
    let mut frame = [0; 256];
    while arrived < wanted && Instant::now() < until {
        path.poller.poll();
        while path.xsk.has_frame() {
            let _its_size = path.xsk.take_front(&mut frame);
            arrived += 1;
        }
        path.xsk.publish();
    }
    arrived
}
