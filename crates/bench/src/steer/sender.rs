//! What stands for the other host: a process that sends numbered datagrams in several flows, so
//! many a second and no more.

use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::{HOST, PORT, guest_address, numbers, pin};

/// Datagrams of one flow at a time.
const BATCH: u32 = 8;
/// A sender that was kept from its core does not make up for more than so many batches.
const BEHIND_MAX: u32 = 8;
/// What the first flow sends from; the next ones follow.
const FIRST_PORT: u16 = 9000;

/// What a sender is told.
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

/// Sends until its input ends, and says for every line of it how many it has sent.
pub(crate) fn run(sender: &Sender) -> anyhow::Result<()> {
    rustix::process::setsid().context("a sender is a session of its own")?;
    let socket = |flow| {
        let socket = UdpSocket::bind((HOST, FIRST_PORT + flow))?;
        socket.connect((guest_address(flow), PORT))?;
        io::Result::Ok(socket)
    };
    let sockets: Vec<UdpSocket> = (0..sender.flows).map(socket).collect::<Result<_, _>>()?;
    let sent = Arc::new(AtomicU64::new(0));
    let (count, told) = (Arc::clone(&sent), sender.clone());
    std::thread::Builder::new().name("sender".to_owned()).spawn(move || {
        let error = pin(told.core).and_then(|()| send(&sockets, &told, &count));
        eprintln!("sender: {error:?}");
        std::process::exit(1);
    })?;
    for line in io::stdin().lines() {
        line?;
        writeln!(io::stdout(), "{}", numbers(&[sent.load(Ordering::Relaxed)]))?;
    }
    Ok(())
}

/// Never ends but by an error.
fn send(sockets: &[UdpSocket], told: &Sender, sent: &AtomicU64) -> anyhow::Result<()> {
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    let each = Duration::from_secs(1) * BATCH / told.rate;
    let mut bytes = vec![0_u8; told.bytes];
    let (mut number, mut next) = (0_u64, Instant::now());
    loop {
        for socket in sockets {
            for _ in 0..BATCH {
                number += 1;
                let head = bytes.first_chunk_mut().context("no room for a number")?;
                *head = number.to_be_bytes();
                socket.send(&bytes).context("sending")?;
            }
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
