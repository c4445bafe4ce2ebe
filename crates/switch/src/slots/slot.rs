//! One slot: a frame that waits, and its metadata.

use sluice_base::{Buf, Priority};

use super::{BufferOwner, NIL};

/// Value of [`Slot::remote_port`] for a frame without a remote reference.
pub(super) const NOT_REMOTE: u16 = u16::MAX;

/// Metadata of a frame when it gets its slot.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) source: u16,
    pub(crate) vnet: u16,
    pub(crate) strip: u16,
    pub(crate) priority: Priority,
    pub(crate) ecn: Option<u8>,
}

/// Metadata that a copy shares with its body.
#[derive(Clone, Copy)]
pub(super) struct Metadata {
    bytes: u32,
    input: u16,
    arrival: Arrival,
}

/// One frame. `bytes` is its size as received, which the audit counts. Aligned so that it lies in
/// one cache line (with a handle of up to 24 bytes).
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Slot<B> {
    buf: Option<B>,
    next: u32,
    bytes: u32,
    /// A second number, by the role of the slot: the body of a copy, the number of copies of a
    /// body, or the number of a handed-off frame in the switch that it belongs to.
    link: u32,
    input: u16,
    source: u16,
    vnet: u16,
    /// Bytes in front of the tenant's frame (the outer headers it came in), and of each of its
    /// segments.
    strip: u16,
    priority: u8,
    owner: BufferOwner,
    /// New value of the inner ECN field, if it must change (RFC 6040 section 4.2).
    ecn: Option<u8>,
    /// Number of frames that it is on the wire.
    segments: u16,
    /// Number of segments that a driver took already, and their bytes, with those in front of them.
    sent: u16,
    sent_bytes: u32,
    /// [`BufferOwner::Pool`]: the partition that it is counted in.
    part: u8,
    /// The port of another switch that references it remotely, or [`NOT_REMOTE`].
    remote_port: u16,
}

impl<B> Slot<B> {
    /// Returns a free slot in front of another one.
    pub(super) const fn free(next: u32) -> Self {
        Self {
            buf: None,
            next,
            bytes: 0,
            link: NIL,
            input: 0,
            source: 0,
            vnet: 0,
            strip: 0,
            priority: 0,
            owner: BufferOwner::Ring,
            ecn: None,
            segments: 1,
            sent: 0,
            sent_bytes: 0,
            part: 0,
            remote_port: NOT_REMOTE,
        }
    }

    /// Puts a frame of an input here.
    #[inline(always)]
    pub(super) fn fill(&mut self, input: u16, arrival: &Arrival, owner: BufferOwner, buf: B)
    where
        B: Buf,
    {
        self.bytes = buf.size();
        self.segments = buf.segments();
        (self.sent, self.sent_bytes) = (0, 0);
        self.buf = Some(buf);
        self.input = input;
        self.source = arrival.source;
        self.vnet = arrival.vnet;
        self.strip = arrival.strip;
        self.priority = arrival.priority.get();
        self.owner = owner;
        self.ecn = arrival.ecn;
    }

    /// Keeps a handle here whose frame has ended at an input.
    pub(super) fn keep_ended(&mut self, input: u16, buf: B) {
        self.buf = Some(buf);
        self.input = input;
    }

    /// Returns the handle; `None` in a copy, or while another switch has it.
    #[inline]
    pub(crate) const fn buf(&self) -> Option<&B> {
        self.buf.as_ref()
    }

    /// Takes the handle out.
    #[inline]
    pub(crate) const fn take_buf(&mut self) -> Option<B> {
        self.buf.take()
    }

    /// Puts a handle in.
    #[inline]
    pub(crate) fn put_buf(&mut self, buf: B) {
        self.buf = Some(buf);
    }

    /// Returns the next slot of its list; [`NIL`] for the last one.
    #[inline]
    pub(crate) const fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    pub(super) const fn set_next(&mut self, next: u32) {
        self.next = next;
    }

    /// Returns the size of the frame as received.
    #[inline]
    pub(crate) const fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline]
    pub(crate) const fn input(&self) -> u16 {
        self.input
    }

    #[inline]
    pub(crate) const fn source(&self) -> u16 {
        self.source
    }

    #[inline]
    pub(crate) const fn vnet(&self) -> u16 {
        self.vnet
    }

    /// Returns the number of bytes in front of the tenant's frame.
    #[inline]
    pub(crate) const fn strip(&self) -> u16 {
        self.strip
    }

    #[inline]
    pub(crate) const fn priority(&self) -> u8 {
        self.priority
    }

    #[inline]
    pub(crate) const fn owner(&self) -> BufferOwner {
        self.owner
    }

    /// Returns true if the frame is in the memory of its input's driver.
    #[inline]
    pub(crate) const fn is_with_driver(&self) -> bool {
        matches!(self.owner, BufferOwner::Ring | BufferOwner::Output)
    }

    /// Makes the frame one that waits in its input's own memory.
    #[inline]
    pub(crate) const fn wait_in_ring(&mut self) {
        self.owner = BufferOwner::Ring;
    }

    /// Makes the frame one of the host pool, where its handle is from now on.
    pub(crate) const fn move_to_pool(&mut self) {
        self.owner = BufferOwner::Pool;
    }

    /// Returns the new value of the inner ECN field, if it must change.
    #[inline]
    pub(crate) const fn ecn(&self) -> Option<u8> {
        self.ecn
    }

    /// Returns the number of frames that it is on the wire.
    pub(super) const fn segments(&self) -> u16 {
        self.segments
    }

    /// Returns true if it is more than one frame on the wire.
    #[inline]
    pub(crate) const fn is_super(&self) -> bool {
        self.segments > 1
    }

    /// Returns the segments that a driver took already, and their bytes.
    #[inline]
    pub(crate) const fn sent(&self) -> (u16, u32) {
        (self.sent, self.sent_bytes)
    }

    /// Sets the segments that a driver took already, and their bytes.
    pub(crate) const fn set_sent(&mut self, sent: (u16, u32)) {
        (self.sent, self.sent_bytes) = sent;
    }

    /// Counts segments that a driver took.
    pub(crate) const fn add_sent(&mut self, count: u16, bytes: u32) {
        self.sent += count;
        self.sent_bytes += bytes;
    }

    /// Returns the bytes that are still to be sent, without the header that the switch adds.
    #[inline]
    pub(crate) const fn bytes_left(&self) -> u32 {
        self.bytes - self.sent_bytes - self.strip as u32 * self.segments_left() as u32
    }

    /// Returns the segments that are still to be sent.
    #[inline]
    pub(crate) const fn segments_left(&self) -> u16 {
        self.segments - self.sent
    }

    /// Returns the partition of the host pool that it is counted in.
    pub(crate) const fn part(&self) -> u8 {
        self.part
    }

    pub(crate) const fn set_part(&mut self, part: u8) {
        self.part = part;
    }

    /// Returns the metadata that copies share.
    pub(super) fn metadata(&self) -> Metadata {
        let (source, vnet, strip, ecn) = (self.source, self.vnet, self.strip, self.ecn);
        let priority = Priority::from_low_bits(self.priority);
        let arrival = Arrival { source, vnet, strip, priority, ecn };
        Metadata { bytes: self.bytes, input: self.input, arrival }
    }

    /// Makes the slot a copy, which has no handle of its own.
    pub(super) fn become_copy_of(&mut self, body: u32, of: Metadata, segments: u16) {
        let Metadata { bytes, input, arrival } = of;
        (self.bytes, self.input, self.segments) = (bytes, input, segments);
        (self.source, self.vnet, self.strip) = (arrival.source, arrival.vnet, arrival.strip);
        (self.priority, self.ecn) = (arrival.priority.get(), arrival.ecn);
        (self.sent, self.sent_bytes) = (0, 0);
        (self.owner, self.link) = (BufferOwner::Copy, body);
    }

    /// Returns the body of a copy.
    #[inline]
    pub(super) const fn body(&self) -> u32 {
        self.link
    }

    /// Makes the slot a body, and begins to count its copies.
    pub(super) const fn begin_copies(&mut self) {
        self.link = 0;
    }

    pub(super) const fn add_copy(&mut self) {
        self.link += 1;
    }

    pub(super) const fn sub_copy(&mut self) {
        self.link -= 1;
    }

    /// Returns true if the body has copies.
    pub(super) const fn has_copies(&self) -> bool {
        self.link > 0
    }

    /// Returns the port of another switch that references the frame remotely.
    pub(super) const fn remote_port(&self) -> u16 {
        self.remote_port
    }

    /// Notes that the frame is referenced for a port of another switch.
    pub(crate) const fn begin_remote(&mut self, port: u16) {
        self.remote_port = port;
    }

    /// Ends the remote reference. Returns its port, if there was one.
    pub(crate) fn end_remote(&mut self) -> Option<u16> {
        let port = core::mem::replace(&mut self.remote_port, NOT_REMOTE);
        (port != NOT_REMOTE).then_some(port)
    }

    /// Returns the number of a handed-off frame in the switch that it belongs to.
    pub(crate) const fn remote_number(&self) -> u32 {
        self.link
    }

    /// Sets the number of a handed-off frame in the switch that it belongs to.
    pub(crate) const fn set_remote_number(&mut self, number: u32) {
        self.link = number;
    }
}
