//! State of a TAP's link as its container has set it, seen from outside.
//!
//! A container that is down, or gone, sends no event of it: `ip link set down` takes the TAP down
//! in the container's namespace, and a namespace that lost its name goes on as long as the TAP is
//! open. So the state has to be polled, by a thread of its own, which changes its namespace for
//! each look.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::device;

/// The namespace of this thread.
const OWN: &str = "/proc/thread-self/ns/net";

/// Looks at TAPs in the namespaces of their containers.
#[derive(Debug)]
pub struct TapLook {
    own: OwnedFd,
}

impl TapLook {
    /// Makes one for the calling thread, which must do nothing else.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn new() -> io::Result<Self> {
        Ok(Self { own: File::open(OWN)?.into() })
    }

    /// Returns true if the device is there and set up, in the namespace that has the name `netns`
    /// now, or in the thread's first one.
    #[must_use]
    pub fn is_up(&self, netns: Option<&Path>, device: &str) -> bool {
        let there = netns.map(|path| File::open(path).map(OwnedFd::from));
        let namespace = match &there {
            None => self.own.as_fd(),
            Some(Ok(there)) => there.as_fd(),
            // Its name is gone: `ip netns del`, or the container's first process has ended.
            Some(Err(_)) => return false,
        };
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network)).is_ok()
            && device::device(device).is_ok_and(|device| device.up)
    }
}
