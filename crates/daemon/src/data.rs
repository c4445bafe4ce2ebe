//! The data process: the switch, its ports, and whoever asks about them.
//!
//! ```text
//!   main thread     the worker: switch and ports (worker.rs)
//!   server          data.sock: questions of control (server.rs)
//!   next-hops       netlink: the way to the other hosts (next_hops.rs)
//!                         │ bounded channel, then an edge on an eventfd
//!                         └──────────────▶ the worker, between two turns
//! ```
//!
//! It outlives a killed control process and its terminal, and holds its role's lock for as long as
//! it lives.

mod answer;
mod attach;
mod look;
mod next_hops;
mod orders;
mod ports;
mod server;
mod snapshot;
mod worker;

use std::num::NonZeroU64;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use rustix::thread::CpuSet;
use sluice_base::Nanos;
use sluice_host::Host;
use sluice_ports::l2::PARKED_FRAMES_MAX;
use sluice_ports::{Pool, PoolConfig, Port};

use self::worker::{Ask, BATCH, Pacing, Worker};
use crate::clock;
use crate::config::{self, Attachment, KernelDevices, Plan, PortPlan};
use crate::log::{self, say};
use crate::poller::{Poller, Waker};
use crate::run_dir::{self, Role};

/// Questions that may wait for the worker.
const ASKS_MAX: usize = 16;
/// How long the worker may take for an answer. It looks up once per turn; if it does not, it is
/// stuck or the machine is.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// A pool up to this size is taken from the kernel at once; a larger one as it is used.
const POPULATED_BYTES_MAX: usize = 64 << 20;

/// Super-frames that may be in the host pool at a time. They are rare there, and large.
const SUPER_FRAMES: u32 = 64;

/// How other threads reach the worker.
#[derive(Clone, Debug)]
struct Asker {
    asks: SyncSender<Ask>,
    waker: Waker,
}

impl Asker {
    /// Puts a question in front of the worker: first into the channel, then the edge.
    fn ask(&self, ask: Ask) {
        // The worker ends only with the process.
        _ = self.asks.send(ask);
        self.waker.wake();
    }

    /// Asks and waits for the answer.
    fn answer<T>(&self, question: impl FnOnce(SyncSender<T>) -> Ask) -> Result<T, String> {
        let (reply, answer) = sync_channel(1);
        self.ask(question(reply));
        answer.recv_timeout(ANSWER_WAIT).map_err(|_| {
            format!("the data process did not answer within {} s", ANSWER_WAIT.as_secs())
        })
    }
}

/// Runs a data process until it is drained.
///
/// # Errors
/// What could not be opened, with the remedy.
pub fn run(config: &Path) -> anyhow::Result<ExitCode> {
    let plan = config::load(config, &KernelDevices)?;
    log::speak_as(&plan.config.host.name, "data");
    run_dir::create(&plan.run_dir)?;
    let role = Role::take(&plan.run_dir, "data")?;

    let started = clock::now();
    let (asks, receiver) = sync_channel(ASKS_MAX);
    let poller = Poller::new().context("cannot make an epoll instance")?;
    let asker = Asker { asks, waker: poller.waker() };
    drain_on_signals(&asker)?;
    let mut worker = make_worker(&plan, poller, receiver, started)?;
    let next_hops = next_hops::follow(&plan, asker.clone())?;
    let socket = plan.run_dir.join(run_dir::DATA_SOCKET);
    let listener = role.listen(&socket)?;
    let names = answer::Names::new(&plan, started);
    settle(&plan);
    let ports = plan.ports.len();
    server::serve(listener, plan, names, next_hops, asker)?;
    say!("forwarding on {ports} ports, process {}", std::process::id());

    let left = worker.run().context("the worker cannot wait for events")?;
    worker.close();
    _ = run_dir::remove(&socket);
    say!("drained; {} frames held and {} in drivers ended", left.resident, left.pending);
    Ok(ExitCode::SUCCESS)
}

fn make_worker(
    plan: &Plan,
    poller: Poller,
    asks: std::sync::mpsc::Receiver<Ask>,
    now: Nanos,
) -> anyhow::Result<Worker> {
    let mut ports: Vec<(String, Box<dyn Port>)> = Vec::with_capacity(plan.ports.len());
    let mut trunks = attach::Trunks::new();
    for port in &plan.ports {
        ports.push((port.name.clone(), attach::open(&mut trunks, port)?));
    }
    let host = Host::new(&plan.switch, plan.addresses.iter().copied(), plan.seed, now)
        .map_err(|error| anyhow::anyhow!("the switch refuses the configuration: {error:?}"))?;
    let bays = ports.len() + plan.switch.spare.as_ref().map_or(0, |spare| spare.ports.into());
    let shares = |port: &&PortPlan| matches!(port.attachment, Attachment::BareMetal { .. });
    let parked = plan.ports.iter().filter(shares).count() * PARKED_FRAMES_MAX;
    let slots = host.switch().capacity() + bays * BATCH + parked;
    let slots = u32::try_from(slots).context("more buffers than can be counted")?;
    let mut pool = PoolConfig::for_mtu(slots, plan.mtu_max);
    pool.populate = slots as usize * usize::from(pool.slot_size) <= POPULATED_BYTES_MAX;
    let pool = Pool::new(pool)?.with_large(SUPER_FRAMES)?;
    let pacing = Pacing {
        pace: Nanos::from_micros(plan.config.host.pace_us.into()),
        spin: Nanos::from_micros(plan.config.host.spin_us.into()),
    };
    let worker = Worker::new(host, ports, plan.config.peers.len(), pool, poller, asks, pacing);
    worker.context("cannot watch a port")
}

/// What makes the worker punctual. None of it is needed to be right.
fn settle(plan: &Plan) {
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        say!("timers stay inexact: {error}");
    }
    if let Some(cpu) = plan.config.host.worker_cpu {
        let mut cpus = CpuSet::new();
        cpus.set(cpu as usize);
        if let Err(error) = rustix::thread::sched_setaffinity(None, &cpus) {
            say!("cannot run on CPU {cpu} alone: {error}");
        }
    }
}

/// SIGTERM and SIGINT drain. SIGHUP, when a terminal goes away, does nothing.
fn drain_on_signals(asker: &Asker) -> anyhow::Result<()> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    let ignored = std::sync::Arc::default();
    signal_hook::flag::register(signal_hook::consts::SIGHUP, ignored)?;
    let asker = asker.clone();
    spawn("signals", move || {
        use std::io::Read as _;
        let mut reader = reader;
        while reader.read_exact(&mut [0]).is_ok() {
            asker.ask(Ask::Drain);
        }
    })
}

/// A thread that lasts as long as the process.
fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<()> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start the thread `{name}`"))?;
    Ok(())
}
