//! Live attachments of a switch: sources and destinations of frames on a real machine.
//!
//! There are six kinds, each a folder: [`memory`] (two ports joined by a cable in this process),
//! [`tap`] and [`veth`] (a container's network card), [`vhost_user`] (a virtual machine's), [`l2`]
//! (whole frames on a device) and [`udp`] (VXLAN through the kernel's sockets). All of them are a
//! [`Port`], and their frames lie in slots of a [`Pool`] or in a guest's memory. [`neigh`] follows
//! the kernel's next hops, [`device`] queries devices, [`card`] looks at a container's, and
//! [`guard`] keeps others from sending in a VTEP's name.
//!
//! A port is driven by one thread and promises three things. It reads a frame only if the caller
//! granted a window for it and a slot is free. It never drops a frame that it took: a frame that
//! the kernel does not take now stays staged and is counted by [`Port::pending`], and a frame that
//! the kernel refuses for good is counted by [`Port::lost`]. And it reads every counter of the
//! kernel that could hide a loss on the frames' path ([`Port::outside`]).
//!
//! This is the one crate that may use `unsafe`: a pool of memory that the kernel writes into, rings
//! shared with the kernel, and system calls that no safe wrapper has.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod buckets;
mod bytes;
pub mod card;
pub mod chip;
pub mod device;
mod ebpf;
mod error;
mod finish;
mod frame;
mod gro;
pub mod guard;
pub mod guest;
mod handed;
pub mod l2;
pub mod link;
pub mod memory;
pub mod neigh;
mod net_header;
pub mod netlink;
mod netns;
mod notifier;
mod offload;
mod pool;
mod port;
pub mod probe;
mod rcvbuf;
pub mod sched;
mod series;
mod shared;
mod sockets;
mod staging;
mod stuck_head;
mod sys;
pub mod tap;
mod tx_backoff;
pub mod udp;
pub mod veth;
pub mod vhost_user;

pub use error::OpenError;
pub use frame::{FrameBuf, copy_egress, egress_size};
pub use handed::PortHandover;
pub use pool::{Pool, PoolConfig, SlotMut};
pub use port::{
    Amount, ArmResult, Counters, DeviceState, FlowControl, Handover, HeldBack, KernelSide, Losses,
    Lossless, Outside, OutsideState, PollFd, Port, PortRequest, Queues, Read, ReadAhead,
    ReceivingSockets, Ring, RoutedUnderlay, SharedRings, UNREADABLE,
};
pub use rcvbuf::{HeldSocket, SocketCounts, SocketHolds, SocketsShot};
pub use tx_backoff::{TxBackoff, Waits};
