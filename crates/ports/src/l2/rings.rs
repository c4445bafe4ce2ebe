//! The receive ring (packet_mmap, TPACKET version 2), and the socket that sends.
//!
//! ```text
//!   slot:  | tpacket2_hdr 32 | sockaddr_ll 20 | pad | frame, at tp_mac ....... | unused |
//!            tp_status: 0 the kernel's, USER the reader's
//! ```
//!
//! The kernel fills slots in order and hands each over by its status word; the reader hands it
//! back the same way. Nothing else is shared.
#![allow(unsafe_code, reason = "memory shared with the kernel, and sendmmsg")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};
use sluice_base::Mac;
use sluice_wire::EtherType;

use super::driver::KernelShare;
use super::filter;
use super::joined::{NET_HEADER_SIZE, net_header_of_series};
use crate::chip::Way;
use crate::guard;
use crate::series::{PARTS_MAX, Series, part_of};
use crate::staging::{STAGED_FRAMES_MAX, Staging};
use crate::sys::{self, Instruction, bpf};

/// Bytes of a frame on the wire beside its data: preamble, check sequence, inter-frame gap.
pub const WIRE_OVERHEAD: u32 = 24;

/// Bytes of a slot before the frame: the headers of packet_mmap, aligned, and the kernel's room for
/// a link header (16), so that the network header is aligned; and the header that tells of a series
/// of datagrams.
const SLOT_OVERHEAD: usize =
    (libc::TPACKET2_HDRLEN + 16).next_multiple_of(16) - 14 + NET_HEADER_SIZE;
/// Size of one block of memory that the kernel takes for the ring.
const BLOCK_SIZE: u32 = 64 << 10;

/// Size of a ring for a headroom.
///
/// The kernel gives every frame a slot of full size, so the capacity of a ring is a number of
/// frames. The headroom is bytes on the wire, and small frames make many: the ring is sized for the
/// smallest frames that may come, unless that would exceed the memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingPlan {
    /// Frames it holds.
    pub frames: u32,
    /// Size of the slot of each.
    pub slot_size: u32,
    /// Memory it takes.
    pub memory_bytes: u64,
    /// Bytes on the wire that it surely holds, if no frame is smaller than planned. Less than the
    /// requested headroom if the memory was limited.
    pub covered_bytes: u64,
}

impl RingPlan {
    /// Plans a ring for `headroom_bytes` on the wire in frames of at least `wire_bytes_min`, for a
    /// layer-3 MTU of `mtu`.
    #[must_use]
    pub fn new(headroom_bytes: u64, wire_bytes_min: u32, mtu: u16, memory_bytes_max: u64) -> Self {
        let slot = (SLOT_OVERHEAD + super::driver::frame_size_max(mtu)).next_multiple_of(16);
        let slot_size = u32::try_from(slot).expect("an MTU has 16 bits");
        let block_size = Self::block_size(slot_size);
        let per_block = u64::from(block_size / slot_size);
        let wire_bytes_min = u64::from(wire_bytes_min.max(1));
        let blocks_wanted = headroom_bytes.div_ceil(wire_bytes_min).div_ceil(per_block).max(1);
        let blocks = blocks_wanted.min((memory_bytes_max / u64::from(block_size)).max(1));
        let frames = blocks * per_block;
        Self {
            frames: u32::try_from(frames).unwrap_or(u32::MAX),
            slot_size,
            memory_bytes: blocks * u64::from(block_size),
            covered_bytes: frames * wire_bytes_min,
        }
    }

    /// Blocks hold whole slots, and at least two of them.
    fn block_size(slot_size: u32) -> u32 {
        BLOCK_SIZE.max((slot_size * 2).next_power_of_two())
    }
}

/// Kind of frames that a ring takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Flow control: untagged MAC Control frames to its group address (802.3 clause 31, 802.1Q
    /// clause 36).
    Control,
    /// All other frames, but for those of the kernel alone.
    Data(KernelShare),
}

impl Kind {
    fn filter(self) -> Vec<Instruction> {
        let [a, b, c, d, e, f] = Mac::PAUSE.0.map(u32::from);
        let load = Instruction::new;
        let returns = |size| Instruction::new(bpf::RET_K, size);
        // Frames that are no flow control go to the instruction behind the eleven below.
        let unless = |k, at: u8| Instruction::jump(bpf::JUMP_IF_EQUAL, k, 0, 10 - at);
        let (control, others) = match self {
            Self::Control => (u32::MAX, vec![returns(0)]),
            Self::Data(KernelShare::NoVxlan(vtep)) => (0, filter::program(vtep)),
            Self::Data(_) => (0, vec![returns(u32::MAX)]),
        };
        let mut program = vec![
            // A load beyond the end would end the program, and keep nothing.
            load(bpf::LOAD_SIZE, 0),
            Instruction::jump(bpf::JUMP_IF_NOT_BELOW, 14, 0, 10 - 1),
            load(bpf::LOAD_WORD, HAS_TAG),
            unless(0, 3),
            load(bpf::LOAD_HALF, 12),
            unless(EtherType::MAC_CONTROL.0.into(), 5),
            load(bpf::LOAD_HALF, 4),
            unless(e << 8 | f, 7),
            load(bpf::LOAD_WORD, 0),
            unless(a << 24 | b << 16 | c << 8 | d, 9),
            returns(control),
        ];
        program.extend(others);
        program
    }
}

/// Offset that tells a program if the kernel removed a tag (`SKF_AD_VLAN_TAG_PRESENT`).
const HAS_TAG: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_VLAN_TAG_PRESENT).cast_unsigned();

/// Queue of a ring's socket for packets that are larger than a slot: several datagrams as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesQueue {
    /// Limit of the memory that these packets take.
    pub(super) bytes: u64,
}

impl SeriesQueue {
    /// Makes the queue, before the ring.
    fn make(self, socket: &OwnedFd) -> io::Result<()> {
        let set = |level, name, value: i32| sys::set_option(socket, level, name, &value);
        set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
        // The kernel doubles the value, for its own overhead.
        let bytes = i32::try_from(self.bytes).unwrap_or(i32::MAX / 2);
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
            // Without CAP_NET_ADMIN the system's limit applies.
            .or_else(|_| set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes))
    }
}

/// A frame in the ring.
pub(super) struct RxFrame<'a> {
    /// Its bytes, without a tag that the kernel removed.
    pub(super) bytes: &'a [u8],
    /// Its original size, more than `bytes` if the slot was too small.
    pub(super) size: usize,
    /// The tag that the kernel removed: TPID and TCI.
    pub(super) tag: Option<[u8; 4]>,
    /// True if a local sender left the checksum to a card.
    pub(super) checksum_open: bool,
    /// True if all of it stands in the queue of the socket: it was larger than the slot.
    pub(super) is_in_socket: bool,
}

/// The ring.
#[derive(Debug)]
pub(super) struct RxRing {
    socket: OwnedFd,
    map: NonNull<u8>,
    map_size: usize,
    slot_size: usize,
    slots_per_block: usize,
    block_size: usize,
    slots: usize,
    next: usize,
}

// SAFETY: the ring is the only owner of its mapping on this side; the other side is the kernel.
unsafe impl Send for RxRing {}

impl RxRing {
    /// Opens a ring of all frames that the device receives, also of those to other stations.
    pub(super) fn open(
        index: u32,
        plan: &RingPlan,
        (kind, way): (Kind, Option<&Way>),
        series: Option<SeriesQueue>,
    ) -> Result<Self, (&'static str, io::Error)> {
        let socket = sys::packet_socket().map_err(|e| ("open a packet socket on it", e))?;
        if let Some(queue) = series {
            queue.make(&socket).map_err(|e| ("let it take datagrams that come as one", e))?;
        }
        let ring = Self::set_up(socket, plan, kind)?;
        if let (Kind::Data(_), Some(way)) = (kind, way) {
            way.filter(ring.socket.as_fd(), index)
                .map_err(|e| ("tell the chip's frames apart on it", e))?;
        }
        let all = libc::packet_mreq {
            mr_ifindex: index.cast_signed(),
            mr_type: sys::ALL_ADDRESSES,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        sys::set_option(&ring.socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &all)
            .map_err(|e| ("make it promiscuous", e))?;
        sys::bind_packet(&ring.socket, index, sys::ALL_PROTOCOLS).map_err(|e| ("bind to it", e))?;
        Ok(ring)
    }

    /// Makes a socket with its ring, not bound yet.
    fn set_up(
        socket: OwnedFd,
        plan: &RingPlan,
        kind: Kind,
    ) -> Result<Self, (&'static str, io::Error)> {
        let set = |name, value: i32| sys::set_option(&socket, libc::SOL_PACKET, name, &value);
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        set(libc::PACKET_VERSION, version).map_err(|e| ("choose TPACKET_V2", e))?;
        set(libc::PACKET_IGNORE_OUTGOING, 1).map_err(|e| ("ignore what it sends", e))?;
        sys::filter(&socket, &mut kind.filter())
            .map_err(|e| ("tell flow control and the kernel's frames apart on it", e))?;
        let block_size = RingPlan::block_size(plan.slot_size);
        let per_block = block_size / plan.slot_size;
        let request = libc::tpacket_req {
            tp_block_size: block_size,
            tp_block_nr: plan.frames / per_block,
            tp_frame_size: plan.slot_size,
            tp_frame_nr: plan.frames,
        };
        sys::set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
            .map_err(|e| ("make its receive ring", e))?;
        Self::map(socket, plan).map_err(|e| ("map its receive ring", e))
    }

    /// Continues the ring of another process, of the same plan, at its next slot. Frames in the
    /// ring are kept.
    pub(super) fn take_up(socket: OwnedFd, plan: &RingPlan, next: usize) -> io::Result<Self> {
        let mut ring = Self::map(socket, plan)?;
        ring.next = next % ring.slots;
        Ok(ring)
    }

    /// Index of the next slot.
    pub(super) const fn next(&self) -> usize {
        self.next
    }

    fn map(socket: OwnedFd, plan: &RingPlan) -> io::Result<Self> {
        let block_size = RingPlan::block_size(plan.slot_size);
        let per_block = block_size / plan.slot_size;
        let map_size = block_size as usize * (plan.frames / per_block) as usize;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing.
        let map = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                map_size,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED | MapFlags::POPULATE,
                &socket,
                0,
            )
        }?;
        Ok(Self {
            socket,
            map: NonNull::new(map.cast()).expect("a mapping is never at zero"),
            map_size,
            slot_size: plan.slot_size as usize,
            slots_per_block: per_block as usize,
            block_size: block_size as usize,
            slots: plan.frames as usize,
            next: 0,
        })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the slot that is `ahead` slots after the next one.
    fn slot(&self, ahead: usize) -> NonNull<libc::tpacket2_hdr> {
        let nth = (self.next + ahead) % self.slots;
        let (block, inside) = (nth / self.slots_per_block, nth % self.slots_per_block);
        // SAFETY: `nth` is a slot of the ring, all of which lie in the mapping.
        let slot = unsafe { self.map.add(block * self.block_size + inside * self.slot_size) };
        slot.cast()
    }

    fn status(&self, ahead: usize) -> &AtomicU32 {
        const { assert!(std::mem::offset_of!(libc::tpacket2_hdr, tp_status) == 0) };
        let status = self.slot(ahead).cast::<u32>().as_ptr();
        // SAFETY: the word lies in the mapping, is aligned (slots are, to 16 bytes), and both
        // sides use it atomically only.
        unsafe { AtomicU32::from_ptr(status) }
    }

    /// Returns true if the slot that is `ahead` slots after the next one holds a frame.
    fn ready(&self, ahead: usize) -> bool {
        self.status(ahead).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The next frame.
    pub(super) fn front(&self) -> Option<RxFrame<'_>> {
        let status = self.status(0).load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        let slot = self.slot(0);
        // SAFETY: the status says that the slot is ours until `release`, and the kernel wrote the
        // header before it set the status.
        let header = unsafe { slot.read() };
        let start = usize::from(header.tp_mac).min(self.slot_size);
        let there = (header.tp_snaplen as usize).min(self.slot_size - start);
        // SAFETY: these bytes lie inside the slot, which is ours, as above.
        let bytes =
            unsafe { std::slice::from_raw_parts(slot.cast::<u8>().add(start).as_ptr(), there) };
        let tag = (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| {
            let known = status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
            let tpid = if known { header.tp_vlan_tpid } else { 0x8100 };
            let ([a, b], [c, d]) = (tpid.to_be_bytes(), header.tp_vlan_tci.to_be_bytes());
            [a, b, c, d]
        });
        let checksum_open = status & libc::TP_STATUS_CSUMNOTREADY != 0;
        let size = header.tp_len as usize;
        let is_in_socket = status & libc::TP_STATUS_COPY != 0;
        Some(RxFrame { bytes, size, tag, checksum_open, is_in_socket })
    }

    /// Gives the next slot back to the kernel.
    pub(super) fn release(&mut self) {
        debug_assert!(self.ready(0));
        self.status(0).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % self.slots;
    }

    /// Number of frames that wait. They are a run from the next slot on, so its end is found by
    /// doubling and halving, not by counting.
    pub(super) fn waiting(&self) -> usize {
        if !self.ready(0) {
            return 0;
        }
        let mut low = 0; // A slot with a frame.
        let mut step = 1;
        while low + step < self.slots && self.ready(low + step) {
            low += step;
            step *= 2;
        }
        while step > 0 {
            if low + step < self.slots && self.ready(low + step) {
                low += step;
            }
            step /= 2;
        }
        low + 1
    }

    /// Frames that found the ring full since the last call.
    pub(super) fn drops(&self) -> io::Result<u64> {
        let zero = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let stats = sys::get_option(&self.socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, zero)?;
        Ok(stats.tp_drops.into())
    }
}

impl Drop for RxRing {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and every borrow of it is a borrow of `self`.
        let unmapped = unsafe { rustix::mm::munmap(self.map.as_ptr().cast(), self.map_size) };
        debug_assert!(unmapped.is_ok());
    }
}

/// The socket that sends. It is bound to no protocol and so receives nothing.
#[derive(Debug)]
pub(super) struct TxSocket {
    socket: OwnedFd,
    /// Header in front of each frame, empty if this socket has none.
    net_header: &'static [u8],
}

/// Header of a frame of which nothing is left to do.
const FINISHED: [u8; NET_HEADER_SIZE] = [0; NET_HEADER_SIZE];
/// Room for what was sent and has not left, of a socket that sends several datagrams as one.
const SERIES_SEND_BYTES: i32 = 1 << 20;

impl TxSocket {
    pub(super) fn open(index: u32) -> io::Result<Self> {
        let socket = sys::packet_socket()?;
        sys::bind_packet(&socket, index, 0)?;
        guard::mark(&socket)?;
        Ok(Self { socket, net_header: &[] })
    }

    /// Lets the kernel take several datagrams as one.
    pub(super) fn take_series(&mut self) -> io::Result<()> {
        let set = |level, name, value: i32| sys::set_option(&self.socket, level, name, &value);
        set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        self.net_header = &FINISHED;
        set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SERIES_SEND_BYTES)
            // Without CAP_NET_ADMIN the system's limit applies.
            .or_else(|_| set(libc::SOL_SOCKET, libc::SO_SNDBUF, SERIES_SEND_BYTES))
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sends one frame, if the kernel takes it now.
    pub(super) fn send_one(&self, frame: &[u8]) -> io::Result<()> {
        self.send_parts(&mut [part_of(self.net_header), part_of(frame)])
    }

    /// Sends the datagrams of a series behind the same outer headers, as one: all or nothing. That
    /// of UDP begins at `udp_at`.
    pub(super) fn send_series(
        &self,
        outer: &[u8],
        udp_at: u16,
        series: &Series<'_>,
    ) -> io::Result<()> {
        let net_header = net_header_of_series(series.each, udp_at);
        let mut parts = [part_of(&[]); PARTS_MAX];
        parts[0] = part_of(&net_header);
        parts[1] = part_of(outer);
        let count = series.list(&mut parts[2..]);
        self.send_parts(&mut parts[..2 + count])
    }

    fn send_parts(&self, parts: &mut [libc::iovec]) -> io::Result<()> {
        // SAFETY: all zero is an empty message.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        // SAFETY: the message is filled in, and its parts are borrowed bytes; sending only reads
        // them.
        let sent = unsafe {
            libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
        };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends staged frames from the front on; returns the number that the kernel took.
    pub(super) fn send(&self, staging: &Staging) -> io::Result<usize> {
        let count = staging.len();
        let mut parts = [[part_of(&[]); 2]; STAGED_FRAMES_MAX];
        // SAFETY: all zero is an empty message.
        let mut messages: [libc::mmsghdr; STAGED_FRAMES_MAX] = unsafe { std::mem::zeroed() };
        for nth in 0..count {
            parts[nth] = [part_of(self.net_header), part_of(staging.get(nth))];
            messages[nth].msg_hdr.msg_iov = parts[nth].as_mut_ptr();
            messages[nth].msg_hdr.msg_iovlen = 2;
        }
        let vlen = libc::c_uint::try_from(count).expect("at most STAGED_FRAMES_MAX");
        // SAFETY: the first `count` messages are filled in, and what they point to outlives the
        // call; sending only reads it.
        let sent = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), vlen, flags)
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}
