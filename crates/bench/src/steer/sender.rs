//! The stand-in for the other host: a process that sends numbered datagrams in several flows
//! through the tunnel, at a fixed rate.
//!
//! The sender encapsulates the datagrams itself, so that its core does no tunnel work of the kernel
//! for the other host.

use std::io::{self, IoSlice, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::net::sockopt::set_socket_send_buffer_size_force;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::frames::Datagram;
use super::{numbers, pin};

/// Datagrams of one flow at a time: about as many as a sender leaves to its card at once for
/// segmentation. The sender sleeps once per batch, so its work stays small beside the tunnel's.
const BATCH: u32 = 32;
/// Batches that a delayed sender makes up for at most.
const BEHIND_MAX: u32 = 4;
/// Send buffer. A packet on a veth pair is charged to its sender until the other end takes it, so
/// that a full socket would block the sender. A real host is not blocked like that: excess packets
/// are lost on the way in. So a socket has more room than all queues there together.
const SOCKET_BYTES: usize = 64 << 20;
/// Tunnel endpoints.
const HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const THERE: (Ipv4Addr, u16) = (Ipv4Addr::new(192, 0, 2, 2), 4789);
/// The outer port of the first flow; the next ones follow.
const FIRST_OUTER_PORT: u16 = 50_000;

/// Arguments of a sender.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Sender {
    /// The core it is pinned to.
    #[arg(long)]
    pub(crate) core: usize,
    /// Flows.
    #[arg(long)]
    pub(crate) flows: u16,
    /// Bytes of a datagram.
    #[arg(long)]
    pub(crate) bytes: usize,
    /// Datagrams a second, of all flows.
    #[arg(long)]
    pub(crate) rate: u32,
}

/// Sends until standard input ends; prints the number of sent datagrams for every input line.
pub(crate) fn run(sender: &Sender) -> anyhow::Result<()> {
    rustix::process::setsid().context("a sender is a session of its own")?;
    let flow = |flow| {
        let socket = UdpSocket::bind((HERE, FIRST_OUTER_PORT + flow))?;
        socket.connect(THERE)?;
        set_socket_send_buffer_size_force(&socket, SOCKET_BYTES)?;
        let batch = (0..BATCH).map(|_| Datagram::new(flow, sender.bytes)).collect();
        io::Result::Ok(Flow { socket, batch })
    };
    let mut flows: Vec<Flow> = (0..sender.flows).map(flow).collect::<Result<_, _>>()?;
    let sent = Arc::new(AtomicU64::new(0));
    let (count, settings) = (Arc::clone(&sent), sender.clone());
    std::thread::Builder::new().name("sender".to_owned()).spawn(move || {
        let error = pin(settings.core).and_then(|()| send(&mut flows, &settings, &count));
        eprintln!("sender: {error:?}");
        std::process::exit(1);
    })?;
    for line in io::stdin().lines() {
        line?;
        writeln!(io::stdout(), "{}", numbers(&[sent.load(Ordering::Relaxed)]))?;
    }
    Ok(())
}

struct Flow {
    socket: UdpSocket,
    batch: Vec<Datagram>,
}

impl Flow {
    /// Sends the batch.
    fn send(&self) -> io::Result<()> {
        let packets: Vec<[IoSlice<'_>; 1]> =
            self.batch.iter().flat_map(|one| &one.packets).map(|all| [IoSlice::new(all)]).collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            packets.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let both = packets.iter().zip(&mut controls);
        let mut headers: Vec<MMsgHdr<'_>> =
            both.map(|(packet, control)| MMsgHdr::new(packet, control)).collect();
        let mut rest = &mut headers[..];
        while !rest.is_empty() {
            match sendmmsg(&self.socket, rest, SendFlags::empty()) {
                Ok(count) => rest = &mut rest[count..],
                // The receiver may be absent while a measurement begins or ends.
                Err(rustix::io::Errno::CONNREFUSED) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Sends for ever; returns only on an error.
fn send(flows: &mut [Flow], settings: &Sender, sent: &AtomicU64) -> anyhow::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let each = Duration::from_secs(1) * BATCH / settings.rate;
    let (mut number, mut next) = (0_u64, Instant::now());
    loop {
        for flow in &mut *flows {
            for datagram in &mut flow.batch {
                number += 1;
                datagram.set(number);
            }
            flow.send().context("sending")?;
            sent.fetch_add(BATCH.into(), Ordering::Relaxed);
            next += each;
            let now = Instant::now();
            match next.checked_duration_since(now) {
                Some(left) => std::thread::sleep(left),
                None if now - next > each * BEHIND_MAX => next = now,
                None => {}
            }
        }
    }
}
