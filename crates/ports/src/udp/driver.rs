//! Port of the UDP underlay.

mod parts;
mod together;

use together::join_next;

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use sluice_base::{Batch, Buf as _, Mac, Nanos, Priority};
use sluice_switch::{Egress, Sink, Taken, Window};
use sluice_wire::{ethernet, ipv4, udp};

use super::counters::KernelCounters;
use super::inbox::{BLOCKS, Inbox};
use super::outer::{OUTER_SIZE, target, write_frame};
use super::rings::{RECEIVE_COST, Receiver, Sender, SeriesNumber};
use super::sharing::{Selector, bucket_of, choose_by, evenly};
use crate::buckets::{BucketTable, Buckets};
use crate::error::OpenError;
use crate::finish::{Finisher, finish};
use crate::frame::{FrameBuf, frame_size, is_unfinished};
use crate::handed::{PortHandover, SHARERS};
use crate::pool::{Pool, SlotMut};
use crate::port::{
    Amount, Counters, Handover, Losses, Lossless, Outside, PollFd, Port, Read, ReadAhead, Ring,
    RoutedUnderlay, UNREADABLE,
};
use crate::series::SeriesHeaders;
use crate::staging::NotStaged;

/// The UDP port of VXLAN (RFC 7348 section 5).
pub const VXLAN_PORT: u16 = 4789;

/// Configuration of a UDP underlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpConfig {
    /// Address of this host's VTEP, which a device of the kernel has.
    pub local: Ipv4Addr,
    /// Device to receive datagrams from; `None` for any, including one that leads to a tenant that
    /// knows the address of a VTEP.
    pub device: Option<String>,
    /// UDP port of every VTEP.
    pub port: u16,
    /// Destination MAC of received frames: the switch's underlay MAC.
    pub mac: Mac,
    /// Layer-3 MTU of the underlay.
    pub mtu: u16,
    /// Size of the kernel's receive buffer in bytes.
    pub receive_buffer_bytes: usize,
    /// Number of sockets that send, each from a port of its own.
    pub senders: usize,
    /// Number of ports opened at this address, each for some buckets of the input: opened one after
    /// the other, from the first on; 256 at most.
    pub sharers: usize,
}

impl UdpConfig {
    /// Default size of the receive buffer.
    pub const RECEIVE_BUFFER_BYTES: usize = 32 << 20;
    /// Default number of sockets that send.
    pub const SENDERS: usize = 8;

    /// An underlay with default settings.
    #[must_use]
    pub fn new(local: Ipv4Addr, mac: Mac, mtu: u16) -> Self {
        Self {
            local,
            device: None,
            port: VXLAN_PORT,
            mac,
            mtu,
            receive_buffer_bytes: Self::RECEIVE_BUFFER_BYTES,
            senders: Self::SENDERS,
            sharers: 1,
        }
    }
}

/// Names of the state that is handed over.
const SOCKET: &str = "socket";
/// Maximum of datagrams of one read, also of those that become one frame.
const DATAGRAMS_READ_MAX: usize = 256;
/// Interval of retries when the kernel had no room and signals none.
const NO_ROOM_RETRY: Nanos = Nanos::from_micros(200);

/// A UDP underlay.
#[derive(Debug)]
pub struct UdpPort {
    config: UdpConfig,
    open: Option<Open>,
    /// Slots for datagrams; empty between calls.
    slots: Vec<SlotMut>,
    inbox: Inbox,
    /// The last series of datagrams, and whether what is offered belongs to it.
    series: SeriesNumber,
    in_series: bool,
    series_headers: SeriesHeaders,
    waits: Waits,
    waiting_max: u64,
    truncated: u64,
    lost: Losses,
    /// Destination of a datagram that was too large for its path.
    too_large: Option<Ipv4Addr>,
    finisher: Finisher,
    /// Its buckets, if it is one of several at its address.
    buckets: Option<Box<Buckets>>,
    /// Selector of this port and the others at the address, and its table.
    selector: Option<(Selector, BucketTable)>,
    /// True if its socket is read no more.
    stopped: bool,
}

/// Resources of an open port.
#[derive(Debug)]
struct Open {
    receiver: Receiver,
    senders: Vec<Sender>,
    /// Datagrams that found the receive buffer full before the opening of the port.
    drops: u32,
    kernel: Arc<KernelCounters>,
}

/// Result of one receive call.
#[derive(Clone, Copy, Debug)]
struct Received {
    frames: usize,
    bytes: u64,
    /// Datagrams in these frames, and others.
    datagrams: usize,
    /// Frames on hold, and those that were lost.
    others: usize,
    /// True if the kernel had as many as it was asked for.
    full: bool,
}

impl Received {
    const fn nothing(full: bool) -> Self {
        Self { frames: 0, bytes: 0, datagrams: 0, others: 0, full }
    }
}

/// Reasons why datagrams stay staged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Waits {
    for_writable: bool,
    for_room: bool,
}

impl UdpPort {
    /// Opens the port.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn open(config: &UdpConfig) -> Result<Self, OpenError> {
        Self::adopt(config, None)
    }

    /// Opens the port with the socket that an earlier one handed over, in which datagrams may wait;
    /// with a socket of its own if that one had another address, or another number of sharers.
    ///
    /// # Errors
    /// [`OpenError`] says what failed, with the remedy.
    pub fn adopt(config: &UdpConfig, handed: Option<PortHandover>) -> Result<Self, OpenError> {
        let address = SocketAddrV4::new(config.local, config.port);
        let failed = |(what, source)| OpenError::Address { address, what, source };
        let mut table = evenly(config.sharers);
        let inherited = handed.and_then(|mut handed| {
            let shared = handed.numbers.get(SHARERS).copied().unwrap_or(1);
            if config.sharers > 1 {
                table = handed.bytes.as_slice().try_into().ok()?;
            }
            handed.take_file(SOCKET).filter(|_| shared == config.sharers as u64)
        });
        let receiver = Receiver::open(config, inherited).map_err(failed)?;
        // Staged data are payloads of datagrams.
        let size_max =
            usize::from(config.mtu).saturating_sub(ipv4::HEADER_SIZE_MIN + udp::HEADER_SIZE);
        let senders = (0..config.senders.max(1))
            .map(|_| Sender::open(config.local, size_max).map_err(failed))
            .collect::<Result<_, _>>()?;
        let unreadable = |source| failed(("read the kernel's counters", source));
        let drops = receiver.memory().map_err(unreadable)?.drops;
        let kernel = Arc::new(KernelCounters::new().map_err(unreadable)?);
        let open = Open { receiver, senders, drops, kernel };
        let mut selector = None;
        if config.sharers > 1 {
            // The program of an earlier process may tell flows of high priority apart.
            let socket = open.receiver.socket();
            choose_by(socket, &table)
                .map_err(|source| failed(("choose among its sockets", source)))?;
            let of =
                Selector::of(socket).map_err(|source| failed(("duplicate its socket", source)))?;
            selector = Some((of, table));
        }
        Ok(Self {
            config: config.clone(),
            open: Some(open),
            slots: Vec::with_capacity(BLOCKS),
            inbox: Inbox::new(),
            series: 0,
            in_series: false,
            series_headers: SeriesHeaders::new(),
            waits: Waits::default(),
            waiting_max: 0,
            truncated: 0,
            lost: Losses::default(),
            too_large: None,
            finisher: Finisher::new(),
            buckets: selector.is_some().then(|| Box::new(Buckets::new())),
            selector,
            stopped: false,
        })
    }

    /// Duplicates the socket that receives. A shared one is not passed on: the kernel would go on
    /// giving it its part of the flows.
    #[must_use]
    pub fn duplicate_socket(&self) -> Option<OwnedFd> {
        let open = self.open.as_ref().filter(|_| self.buckets.is_none())?;
        open.receiver.fd().try_clone_to_owned().ok()
    }

    /// Takes the selector of this port and the others at its address, and its table. Works only
    /// once; `None` if it is the only one.
    pub fn take_selector(&mut self) -> Option<(Selector, BucketTable)> {
        self.selector.take()
    }

    /// Wraps a socket from [`Self::duplicate_socket`] for [`Self::adopt`].
    #[must_use]
    pub fn handed(socket: OwnedFd) -> PortHandover {
        let mut handed = PortHandover::default();
        handed.files.insert(SOCKET.to_owned(), socket);
        handed
    }

    /// Makes the kernel refuse several datagrams as one, as it does on a route with IPsec.
    #[cfg(test)]
    pub(super) fn refuse_series(&self) {
        self.open.iter().flat_map(|open| &open.senders).for_each(Sender::refuse_series);
    }

    /// Receives once into at most `limit` slots, at most `most` datagrams.
    fn receive(
        &mut self,
        limit: usize,
        most: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Received> {
        let Some(open) = &self.open else { return Ok(Received::nothing(false)) };
        while self.slots.len() < limit.min(BLOCKS) {
            let Some(slot) = pool.take() else { break };
            self.slots.push(slot);
        }
        if self.slots.is_empty() {
            return Ok(Received::nothing(true));
        }
        let (mut received, mut full) = (Ok(()), true);
        if self.inbox.is_empty() && !self.stopped {
            open.receiver.join_once();
            let asked = self.inbox.blocks_for(most).min(self.slots.len());
            received = open.receiver.receive(asked, &mut self.inbox);
            full = self.inbox.sizes().count() == asked;
            if let Some(buckets) = &mut self.buckets {
                buckets.were_read(self.inbox.sizes(), !full);
            }
        }
        let handed = self.hand_out(most, pool, batch);
        full |= handed.full;
        match received.map_err(|error| (error.raw_os_error(), error)) {
            Ok(()) => Ok(Received { full, ..handed }),
            Err((Some(libc::EAGAIN), _)) => Ok(Received::nothing(false)),
            // To be asked again, before a sleep too.
            Err((Some(libc::EINTR), _)) => Ok(Received { others: 1, ..Received::nothing(true) }),
            Err((_, error)) => Err(error),
        }
    }

    /// Hands out datagrams of the inbox, at most `most`, in the slots that were taken.
    fn hand_out(&mut self, most: usize, pool: &mut Pool, batch: &mut Batch<FrameBuf>) -> Received {
        let (mut frames, mut bytes, mut others, mut left) = (0, 0, 0, most);
        let mut slots = self.slots.drain(..);
        let place = (self.config.local, self.config.port, self.config.mac);
        for mut slot in slots.by_ref() {
            if left == 0 {
                pool.cancel(slot);
                break;
            }
            if self.buckets.is_none()
                && let Some((buf, count)) = join_next(&mut self.inbox, left, place, pool)
            {
                pool.cancel(slot);
                (frames, left) = (frames + 1, left - count);
                bytes += u64::from(buf.size());
                batch.push(buf).expect("room was counted before");
                continue;
            }
            left -= 1;
            let Some(datagram) = self.inbox.next() else {
                pool.cancel(slot);
                break;
            };
            let size = OUTER_SIZE + datagram.bytes.len();
            if datagram.truncated || size > slot.bytes_mut().len() {
                self.truncated += 1;
                others += 1;
                pool.cancel(slot);
                continue;
            }
            write_frame(&datagram, place, &mut slot.bytes_mut()[..size]);
            // By the bytes that the kernel saw: a handle shows no more than its head.
            let bucket =
                self.buckets.as_ref().and_then(|buckets| bucket_of(datagram.bytes, buckets.high()));
            let mut buf = slot.freeze(0, size);
            if let Some(buckets) = &mut self.buckets {
                let Some(passed) = buckets.pass(bucket, buf) else {
                    others += 1;
                    continue;
                };
                buf = passed;
            }
            batch.push(buf).expect("room was counted before");
            frames += 1;
            bytes += size as u64;
        }
        slots.for_each(|slot| pool.cancel(slot));
        let full = !self.inbox.is_empty();
        Received { frames, bytes, others, full, datagrams: most - left }
    }
}

/// Sends the staged datagrams of one socket. Returns a host to which a datagram was too large.
///
/// A full socket gives `EAGAIN`. Any other error for the first datagram may be over soon (memory, a
/// rule with a rate, a full table of connections) or never (a rule), and others wait behind it
/// meanwhile: it is retried for a time, and then dropped.
fn send_staged(sender: &mut Sender, waits: &mut Waits, lost: &mut Losses) -> Option<Ipv4Addr> {
    let mut too_large = None;
    while !sender.staging.is_empty() {
        let error = match sender.send() {
            Ok(sent) => {
                for _ in 0..sent {
                    sender.staging.pop();
                    sender.patience.passed();
                }
                continue;
            }
            Err(error) => error,
        };
        match error.raw_os_error().unwrap_or_default() {
            libc::EINTR => {}
            libc::EAGAIN => {
                waits.for_writable = true;
                break;
            }
            libc::ENOBUFS | libc::ENOMEM | libc::EPERM if !sender.patience.is_over() => {
                if !sender.patience.is_short() {
                    waits.for_room = true;
                    break;
                }
            }
            // The device, its route or its memory takes no several as one: each for itself is next.
            libc::EMSGSIZE
            | libc::EINVAL
            | libc::EIO
            | libc::EOPNOTSUPP
            | libc::ENOBUFS
            | libc::ENOMEM
                if sender.part_first() =>
            {
                sender.patience.forget();
            }
            errno => {
                if errno == libc::EMSGSIZE {
                    too_large = Some(*sender.first_target().to.ip());
                }
                sender.patience.forget();
                sender.staging.refuse(errno, lost);
            }
        }
    }
    too_large
}

impl Sink<FrameBuf> for UdpPort {
    fn offer(&mut self, frame: &Egress<'_, FrameBuf>) -> Taken {
        if is_unfinished(frame) {
            if let Some(taken) = self.offer_series(frame) {
                return taken;
            }
            // Its segments are of one flow, and of one size but for the last.
            (self.series, self.in_series) = (self.series.wrapping_add(1).max(1), true);
            let taken = finish(self, |own| &mut own.finisher, frame, Self::offer);
            self.in_series = false;
            return taken;
        }
        let series = if self.in_series { self.series } else { 0 };
        let Some(open) = &mut self.open else { return Taken::No };
        let size = frame_size(frame);
        let Some((target, skip, port)) = target(frame.header, self.config.port) else {
            // Such as a PFC frame: no socket can send it.
            self.lost.refuse(libc::EPROTONOSUPPORT, frame.priority, size);
            return Taken::All;
        };
        let which = usize::from(port) % open.senders.len();
        let sender = &mut open.senders[which];
        let mut staged = sender.push(frame, skip, (target, series));
        if staged == Err(NotStaged::Full) && self.waits == Waits::default() {
            let refused = send_staged(sender, &mut self.waits, &mut self.lost);
            self.too_large = refused.or(self.too_large);
            staged = sender.push(frame, skip, (target, series));
        }
        match staged {
            Ok(()) => Taken::All,
            Err(NotStaged::Full) => Taken::No,
            Err(NotStaged::TooLarge) => {
                self.lost.refuse(libc::EMSGSIZE, frame.priority, size);
                Taken::All
            }
        }
    }
}

impl Port for UdpPort {
    fn kind(&self) -> &'static str {
        "udp"
    }

    fn poll_fds(&self) -> Vec<PollFd<'_>> {
        let Some(open) = &self.open else { return Vec::new() };
        let receiver = PollFd { fd: open.receiver.fd(), read: true, write: false };
        let sender = |sender| PollFd { fd: Sender::fd(sender), read: false, write: true };
        std::iter::once(receiver).chain(open.senders.iter().map(sender)).collect()
    }

    fn read(
        &mut self,
        window: Window,
        limit: usize,
        pool: &mut Pool,
        batch: &mut Batch<FrameBuf>,
    ) -> io::Result<Read> {
        let Some(open) = &self.open else { return Ok(Read { frames: 0, more: false, others: 0 }) };
        let waiting = open.receiver.memory()?.taken;
        self.waiting_max = self.waiting_max.max(waiting);
        let limit = limit.min(window.frames as usize).min(batch.room());
        let frame_size_max = usize::from(self.config.mtu) + ethernet::HEADER_SIZE;
        let (mut frames, mut bytes, mut others) = (0, 0, 0);
        if let Some(buckets) = &mut self.buckets {
            buckets.reads(pool.slots(), waiting);
            (frames, bytes) = buckets.hand_over(window, limit, batch);
        }
        let mut datagrams = 0;
        while frames + others < limit && datagrams < DATAGRAMS_READ_MAX && bytes < window.bytes.0 {
            if self.stopped && self.inbox.is_empty() {
                break;
            }
            if self.buckets.as_ref().is_some_and(|b| !b.may_read(BLOCKS)) {
                break;
            }
            // The number that surely does not exceed the window by more than the last frame.
            let by_bytes = (window.bytes.0 - bytes).div_ceil(frame_size_max as u64);
            let by_bytes = usize::try_from(by_bytes).unwrap_or(usize::MAX);
            let most = (DATAGRAMS_READ_MAX - datagrams).min(by_bytes);
            let slots = (limit - frames - others).min(most);
            let more = self.receive(slots, most, pool, batch)?;
            datagrams += more.datagrams;
            frames += more.frames;
            others += more.others;
            bytes += more.bytes;
            if !more.full {
                return Ok(Read { frames, more: false, others });
            }
            if more.frames + more.others == 0 {
                break;
            }
        }
        Ok(Read { frames, more: true, others })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.waits = Waits::default();
        if let Some(open) = &mut self.open {
            for sender in &mut open.senders {
                let refused = send_staged(sender, &mut self.waits, &mut self.lost);
                self.too_large = refused.or(self.too_large);
            }
        }
        Ok(())
    }

    fn give_back(&mut self, bufs: &mut Batch<FrameBuf>, pool: &mut Pool) {
        for buf in bufs.drain() {
            if let Some(buckets) = &mut self.buckets {
                buckets.ended(&buf);
            }
            pool.give_back(buf);
        }
    }

    fn buckets(&mut self) -> Option<&mut Buckets> {
        self.buckets.as_deref_mut()
    }

    fn wants_write(&self) -> bool {
        self.waits.for_writable
    }

    fn retry_after(&self) -> Option<Nanos> {
        self.waits.for_room.then_some(NO_ROOM_RETRY)
    }

    fn pending(&self) -> Amount {
        let senders = self.open.iter().flat_map(|open| &open.senders);
        senders.fold(Amount::default(), |sum, sender| Amount {
            frames: sum.frames + sender.staging.amount().frames,
            bytes: sum.bytes + sender.staging.amount().bytes,
        })
    }

    fn lost(&self) -> &Losses {
        &self.lost
    }

    fn take_refused(&mut self) -> Option<(Priority, Amount)> {
        self.lost.take_refused()
    }

    fn outside(&self) -> Outside {
        let Some(open) = &self.open else { return Outside::default() };
        let mut rows = Counters::from([("ring.truncated", self.truncated)]);
        match open.receiver.memory() {
            Ok(memory) => {
                rows.insert("socket.drops", memory.drops.wrapping_sub(open.drops).into());
            }
            // A counter that cannot be read is not zero.
            Err(_) => rows.extend([UNREADABLE]),
        }
        Outside::of_kernel(rows, Arc::clone(&open.kernel) as _)
    }

    fn read_ahead(&mut self) -> Option<&mut dyn ReadAhead> {
        Some(self)
    }

    fn handover(&mut self) -> Option<&mut dyn Handover> {
        Some(self)
    }

    fn routed_underlay(&mut self) -> Option<&mut dyn RoutedUnderlay> {
        Some(self)
    }

    fn ring(&self) -> Ring {
        let memory = self.open.as_ref().and_then(|open| open.receiver.memory().ok());
        Ring {
            capacity_frames: memory.map_or(0, |memory| memory.limit / RECEIVE_COST),
            waiting_frames_max: Some(self.waiting_max.div_ceil(RECEIVE_COST)),
        }
    }

    fn lossless(&self) -> Lossless {
        Lossless::No { needs: "an l2 underlay: kernel sockets can neither send nor see PFC" }
    }

    fn mtu(&self) -> u16 {
        self.config.mtu
    }

    fn close(&mut self) -> io::Result<()> {
        self.open = None;
        while let Some(rest) = self.inbox.next() {
            self.lost.count(libc::ENETDOWN, rest.bytes.len());
        }
        // The selector may have a descriptor of the socket.
        self.selector = None;
        self.waits = Waits::default();
        Ok(())
    }
}
