//! The agent in a virtual machine: it tells the host's port which room UDP sockets have
//! ([`sluice_wire::guest_room`]), and sets what losslessness needs beside.
//!
//! ```text
//!   card ─▶ NAPI ─▶ IP, sockets                      ◀── before a question, in order
//!             └───▶ packet socket ─▶ agent ─ sock_diag ─▶ kernel: used, limit
//!   card ◀────────── answer ◀──────────┘
//! ```
//!
//! **It decides nothing** and keeps no state: each question is answered from the kernel's view when
//! it is read. By then all data that came before the question is in its sockets, because one NAPI
//! hands over the frames of a card in order. Receive packet steering (`rps_cpus`) breaks that.
//!
//! **The room is asked by `sock_diag`** (UDP, one socket by its flow, with its memory): any kernel
//! since Linux 3.9 answers, without BTF and without BPF. The kernel's own lookup finds connected
//! sockets and those of a group.

mod agent;
mod diag;
mod settings;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use crate::device::ioctl_socket;
use crate::sys::DeviceRequest;

pub use agent::{Agent, Frames, Told};
pub use settings::{Setting, apply};

/// An agent that cannot work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GuestError {
    /// There is no such device.
    #[error("device {device}: there is none of that name here; `ip link` says which there are")]
    NoDevice {
        /// The device.
        device: String,
    },
    /// The process may not do something.
    #[error("device {device}: cannot {what}: {source}; run it as root, in the machine itself")]
    Denied {
        /// The device.
        device: String,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A system call about the device failed.
    #[error("device {device}: cannot {what}: {source}")]
    Device {
        /// The device.
        device: String,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel does not tell of sockets.
    #[error(
        "the kernel does not tell the room of UDP sockets: {source}; \
         load the module: `modprobe udp_diag` (CONFIG_INET_UDP_DIAG)"
    )]
    NoDiag {
        /// The kernel's error.
        source: io::Error,
    },
}

impl GuestError {
    fn device(device: &str, what: &'static str) -> impl Fn(io::Error) -> Self + use<> {
        let device = device.to_owned();
        move |source| {
            let device = device.clone();
            match source.kind() {
                io::ErrorKind::PermissionDenied => Self::Denied { device, what, source },
                _ => Self::Device { device, what, source },
            }
        }
    }
}

/// Finds a card. Returns a socket to ask about it, the request, and its index.
fn find(device: &str) -> Result<(OwnedFd, DeviceRequest, u32), GuestError> {
    let asker = ioctl_socket().map_err(GuestError::device(device, "open a socket"))?;
    let request = DeviceRequest::new(device);
    let found = request.and_then(|request| Some((request, request.index(asker.as_fd()).ok()?)));
    let (request, index) =
        found.ok_or_else(|| GuestError::NoDevice { device: device.to_owned() })?;
    Ok((asker, request, index))
}
