//! The stand-in for a virtual machine: a process with a thread that is named and pinned as libvirt
//! names and pins a vCPU, and that never sleeps.
//!
//! The guest takes numbered datagrams of several flows and works on each for a while. In between it
//! does other work, and counts its pieces.

use std::hint::black_box;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::{PORT, guest_address, numbers, pin};
use crate::machine::processor_time;

/// Name that QEMU gives the thread of its first vCPU.
const NAME: &str = "CPU 0/KVM";
/// Datagrams of one flow at a time.
const BATCH: usize = 16;
/// Receive buffer: more than can be in flight in 10 ms, at 8 KiB each.
const SOCKET_BYTES: usize = 4 << 20;
/// Duration of a piece of the other work, in nanoseconds.
const PIECE_NS: u32 = 2_000;
/// Rounds of work that are timed to find the speed.
const TRIAL: u32 = 1_000_000;

/// Arguments of a guest.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Guest {
    /// The core it is pinned to.
    #[arg(long)]
    pub(crate) core: usize,
    /// Flows.
    #[arg(long)]
    pub(crate) flows: u16,
    /// Nanoseconds of work on each datagram.
    #[arg(long)]
    pub(crate) work_ns: u32,
}

/// Counters since the start.
#[derive(Default)]
struct Done {
    came: AtomicU64,
    late: AtomicU64,
    pieces: AtomicU64,
}

/// Runs until standard input ends; prints the counters for every input line.
pub(crate) fn run(guest: &Guest) -> anyhow::Result<()> {
    rustix::process::setsid().context("a guest is a session of its own")?;
    let socket = |flow| {
        let address: Ipv4Addr = guest_address(flow);
        let socket = UdpSocket::bind((address, PORT))?;
        socket.set_nonblocking(true)?;
        set_socket_recv_buffer_size_force(&socket, SOCKET_BYTES)?;
        io::Result::Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..guest.flows).map(socket).collect::<Result<_, _>>()?;
    let done = Arc::new(Done::default());
    let (counts, core, work_ns) = (Arc::clone(&done), guest.core, guest.work_ns);
    let vcpu = std::thread::Builder::new().name(NAME.to_owned()).spawn(move || {
        let error = pin(core).and_then(|()| vcpu(&sockets, work_ns, &counts));
        eprintln!("guest: {error:?}");
        std::process::exit(1);
    })?;
    for line in io::stdin().lines() {
        line?;
        let said = [&done.came, &done.late, &done.pieces].map(|of| of.load(Ordering::Relaxed));
        writeln!(io::stdout(), "{}", numbers(&said))?;
    }
    drop(vcpu);
    Ok(())
}

/// Works for ever; returns only on an error.
fn vcpu(sockets: &[UdpSocket], work_ns: u32, done: &Done) -> anyhow::Result<()> {
    let rounds_per_us = speed();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "of some us")]
    let rounds = |ns: u32| (f64::from(ns) / 1000.0 * rounds_per_us) as u32;
    let (on_each, piece) = (rounds(work_ns), rounds(PIECE_NS));
    let mut last = vec![0_u64; sockets.len()];
    let mut bytes = vec![0_u8; 16 << 10];
    let add = |counter: &AtomicU64, count| _ = counter.fetch_add(count, Ordering::Relaxed);
    loop {
        let mut is_idle = true;
        for (socket, last) in sockets.iter().zip(&mut last) {
            for _ in 0..BATCH {
                let size = match socket.recv(&mut bytes) {
                    Ok(size) => size,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) => bail!("receiving: {error}"),
                };
                let number = bytes[..size].first_chunk().context("a datagram without a number")?;
                let number = u64::from_be_bytes(*number);
                work(on_each);
                add(&done.came, 1);
                add(&done.late, u64::from(number < *last));
                *last = number.max(*last);
                is_idle = false;
            }
        }
        if is_idle {
            work(piece);
            add(&done.pieces, 1);
        }
    }
}

/// Runs a random number generator; each step depends on the one before it.
fn work(rounds: u32) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// Returns the rounds of work per microsecond of processor time, the best of a few trials.
fn speed() -> f64 {
    let mut best = 0.0_f64;
    for _ in 0..5 {
        let before = processor_time();
        work(TRIAL);
        best = best.max(f64::from(TRIAL) / ((processor_time() - before) * 1e6));
        std::thread::sleep(Duration::from_millis(1));
    }
    best
}
