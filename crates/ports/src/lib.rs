//! Live attachments of a switch: sources and destinations of frames on a real machine.
//!
//! There are five kinds, each a folder: [`memory`] (two ports joined by a cable in this process),
//! [`tap`] (a container's network card), [`vhost_user`] (a virtual machine's), [`l2`] (whole frames
//! on a device) and [`udp`] (VXLAN through the kernel's sockets). All of them are a [`Port`], and
//! their frames lie in slots of a [`Pool`] or in a guest's memory. [`neigh`] follows the kernel's
//! next hops, [`device`] queries devices, [`machines`] lists the cores of virtual machines,
//! [`topology`] the cores that belong together. [`guard`] keeps others from sending in a VTEP's
//! name.
//!
//! A port is driven by one thread and promises three things. It reads a frame only if the caller
//! granted a window for it and a slot is free. It never drops a frame that it took: a frame that
//! the kernel does not take now stays staged and is counted by [`Port::pending`], and a frame that
//! the kernel refuses for good is counted by [`Port::lost`]. And it reads every counter of the
//! kernel that could hide a loss on the frames' path ([`Port::kernel_counters`]).
//!
//! This is the one crate that may use `unsafe`: a pool of memory that the kernel writes into, rings
//! shared with the kernel, and system calls that no safe wrapper has.
#![deny(unsafe_op_in_unsafe_fn)]

mod bell;
mod bytes;
pub mod cpu_list;
pub mod device;
mod ebpf;
mod error;
mod finish;
mod frame;
pub mod guard;
mod handed;
pub mod l2;
pub mod link;
pub mod machines;
pub mod memory;
pub mod neigh;
pub mod netlink;
mod netns;
mod offload;
mod patience;
mod pool;
mod port;
mod room;
mod sockets;
mod staging;
mod sys;
pub mod tap;
pub mod topology;
pub mod udp;
pub mod vhost_user;

pub use error::OpenError;
pub use frame::FrameBuf;
pub use handed::Handed;
pub use pool::{Pool, PoolConfig, SlotMut};
pub use port::{
    Amount, Aside, Counters, Losses, Lossless, PollFd, Port, Queues, Read, Rest, Ring, Wanted,
};
pub use room::{Room, Waits};
