//! Errors of opening a port.

use std::io;
use std::path::PathBuf;

/// A port that cannot be opened, with the device's name and, where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no device of that name in the namespace.
    #[error("device {device}: there is none of that name in {place}")]
    NoSuchDevice {
        /// The device.
        device: String,
        /// The network namespace.
        place: String,
    },
    /// A device name that Linux does not accept.
    #[error("device {device:?}: a name has 1 to 15 bytes, no '/', no space and no zero byte")]
    BadName {
        /// The name.
        device: String,
    },
    /// A system call about a device failed.
    #[error("device {device}: cannot {what}: {source}{}", remedy(source))]
    Device {
        /// The device.
        device: String,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A network namespace that cannot be entered.
    #[error("network namespace {path}: cannot {what}: {source}{}", netns_remedy(source))]
    Netns {
        /// The path of the namespace.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A veth pair whose container end would not hold its senders.
    #[error(
        "device {device}: it does not hold its senders on this kernel: {reason}; \
         take kind `tap`, which drops when it is full"
    )]
    NotHeld {
        /// The device.
        device: String,
        /// The observation.
        reason: String,
    },
    /// An offload that would give this port frames that never were on a wire.
    #[error(
        "device {device}: {feature} is on and cannot be switched off; \
         try `ethtool -K {device} {feature} off`, or take another device"
    )]
    Offload {
        /// The device.
        device: String,
        /// The offload, in the words of ethtool.
        feature: &'static str,
    },
    /// A buffer is too small for the frames of this MTU.
    #[error("device {device}: an MTU of {mtu} needs {needed} bytes per frame, there are {there}")]
    FrameSize {
        /// The device.
        device: String,
        /// The MTU.
        mtu: u32,
        /// Bytes needed for one frame.
        needed: usize,
        /// Bytes available for one frame.
        there: usize,
    },
    /// The address of an underlay cannot be used.
    #[error("udp {address}: cannot {what}: {source}{}", remedy(source))]
    Address {
        /// The address.
        address: std::net::SocketAddrV4,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// Memory for frames could not be taken.
    #[error("cannot take {bytes} bytes for {what}: {source}")]
    Memory {
        /// Number of bytes.
        bytes: usize,
        /// Use of the memory.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Remedy of an error about a network namespace. The namespace of a process is also closed to a
/// user who may not trace that process (`proc(5)`).
fn netns_remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "; run as root, or with CAP_SYS_ADMIN, and CAP_SYS_PTRACE for that of a process"
        }
        _ => remedy(error),
    }
}

/// Remedy of an error that has a usual cause.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run as root, or with CAP_NET_ADMIN and CAP_NET_RAW",
        Some(libc::EMFILE) => {
            "; the process may have no more descriptors: raise its limit (`LimitNOFILE`)"
        }
        Some(libc::EBUSY) => "; another program has it open",
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => "; it is not there, or went away",
        Some(libc::EADDRINUSE) => {
            "; another program, or a VXLAN device of the kernel, has the port"
        }
        Some(libc::EADDRNOTAVAIL) => "; give the address to a device first",
        _ => "",
    }
}

impl OpenError {
    /// Converts the error of a system call about `device`, for `map_err`.
    pub(crate) fn device(
        device: &str,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let device = device.to_owned();
        move |source| Self::Device { device, what, source }
    }

    /// Converts the error of a step that an older kernel does not know, or one that was built
    /// without a part, for `map_err`.
    pub(crate) fn lacks(
        device: &str,
        what: &'static str,
    ) -> impl FnOnce(io::Error) -> Self + use<> {
        let device = device.to_owned();
        move |source| match source.raw_os_error() {
            None
            | Some(
                libc::EINVAL
                | libc::ENOENT
                | libc::ENOSYS
                | libc::EOPNOTSUPP
                | libc::EAFNOSUPPORT
                | libc::EPROTONOSUPPORT,
            ) => {
                let needs = "it needs Linux 6.13 with veth, AF_XDP, BPF and pfifo";
                Self::NotHeld { device, reason: format!("cannot {what}: {source}; {needs}") }
            }
            Some(_) => Self::Device { device, what, source },
        }
    }
}
