//! The data process: the switch, its ports, and the threads that answer questions about them.
//!
//! ```text
//!   main thread     worker 0: its switch and its ports (worker.rs)
//!   worker-N        the others, if there are; frames are handed off between them (handoff.rs)
//!   server          data.sock: questions of control (server.rs)
//!   next-hops       netlink: next hops to the other hosts (next_hops.rs)
//!   placement       flows of a shared underlay, by worker (rebalancer/buckets.rs)
//!   port-balancer   ports, by worker (rebalancer/ports.rs)
//!                         │ bounded channel, then an edge on an eventfd
//!                         └──────────────▶ the workers, between two turns
//! ```
//!
//! The data process outlives a killed control process and its terminal, and holds its role's lock
//! for as long as it lives.

mod answer;
mod attach;
mod cables;
mod capture;
mod chip;
mod control_link;
mod cpus;
mod guard;
mod handoff;
mod look;
mod losses;
mod merge;
mod next_hops;
mod places;
mod policy;
mod ports;
mod predecessor;
mod rebalancer;
mod reconfigure;
mod registry;
mod server;
mod sleep_flag;
mod snapshot;
mod successor;
mod taps;
mod too_big;
mod underlay;
mod veths;
mod worker;

use std::num::NonZeroU64;
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::thread::CpuSet;
use sluice_base::{Nanos, PortId};
use sluice_host::Host;
use sluice_ports::buckets::HELD_MAX;
use sluice_ports::{Pool, PoolConfig};

use self::attach::SharedSelector;
use self::cpus::Cpus;
use self::guard::Guard;
use self::policy::PolicyWatch;
use self::successor::Successor;
use self::taps::Taps;
use self::worker::{BATCH, Left, Opened, Pacing, Part, Worker, WorkerRequest};
use crate::config::{self, Attachment, KernelDevices, Numbers, Placed, Plan, PortPlan};
use crate::sys::clock;
use crate::sys::descriptors;
use crate::sys::limits;
use crate::sys::log::{self, say};
use crate::sys::poller::{Poller, Waker};
use crate::sys::privileges;
use crate::sys::run_dir::{self, Role};
use crate::sys::seccomp;
use crate::sys::threads::spawn;

/// Questions that may wait for the worker.
const ASKS_MAX: usize = 16;
/// Time between two looks for containers that are gone.
const CONTAINERS_EVERY: Duration = Duration::from_millis(500);
/// Longest time for a worker's answer. A worker reads questions once per turn; if it does not, it
/// is stuck or the machine is.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Slice of a worker: less than the kernel's 0.7 ms or more, so that it runs at its wake-up, also
/// while another thread of the host works, such as one that commits a change.
const SLICE: Duration = Duration::from_micros(200);
/// A pool up to this size is taken from the kernel at once; a larger one as it is used.
const POPULATED_BYTES_MAX: usize = 64 << 20;

/// Limits of the super-frames that may wait at a worker: 64 KB each, of which the kernel gives what
/// was used once.
const SUPER_FRAMES_MIN: u32 = 64;
const SUPER_FRAMES_MAX: u32 = 16_384;

/// Handle of other threads for a worker.
#[derive(Clone, Debug)]
struct WorkerHandle {
    asks: SyncSender<WorkerRequest>,
    waker: Waker,
}

impl WorkerHandle {
    /// Asks the worker: first the question goes into the channel, then the edge.
    fn ask(&self, ask: WorkerRequest) {
        // The worker ends only with the process.
        _ = self.asks.send(ask);
        self.waker.wake();
    }

    /// Asks and waits for the answer.
    fn answer<T>(
        &self,
        question: impl FnOnce(SyncSender<T>) -> WorkerRequest,
    ) -> Result<T, String> {
        self.request(question).recv_timeout(ANSWER_WAIT).map_err(|_| silence())
    }

    /// Asks. Returns the channel through which the answer comes.
    fn request<T>(&self, question: impl FnOnce(SyncSender<T>) -> WorkerRequest) -> Receiver<T> {
        let (reply, answer) = sync_channel(1);
        self.ask(question(reply));
        answer
    }
}

fn silence() -> String {
    format!("the data process did not answer within {} s", ANSWER_WAIT.as_secs())
}

/// Handle of other threads for all workers. While the first lock is held, no port migrates; while
/// the second is held, no bucket of a shared underlay moves. The second lock holds the table of
/// buckets.
#[derive(Clone, Debug)]
struct WorkerHandles(Vec<WorkerHandle>, Arc<Mutex<()>>, Arc<Mutex<Vec<u8>>>);

impl WorkerHandles {
    /// Returns the only worker, or the first one: requests to it alone are refused if there are
    /// several.
    fn first(&self) -> &WorkerHandle {
        &self.0[0]
    }

    /// Locks ports: while the guard is held, each port is at one worker.
    fn steady(&self) -> MutexGuard<'_, ()> {
        self.1.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the worker of each bucket of flows: while the guard is held, no bucket moves.
    fn settled(&self) -> MutexGuard<'_, Vec<u8>> {
        self.2.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks ports like [`Self::steady`], if the lock is free now.
    fn steady_now(&self) -> Option<MutexGuard<'_, ()>> {
        match self.1.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Asks all workers the same.
    fn ask_all(&self, ask: impl Fn() -> WorkerRequest) {
        for asker in &self.0 {
            asker.ask(ask());
        }
    }

    /// Asks all of them at once, and waits for every answer, the first worker's first.
    fn answers<T>(
        &self,
        question: impl Fn(SyncSender<T>) -> WorkerRequest,
    ) -> Result<Vec<T>, String> {
        let _steady = self.steady();
        self.answers_now(question)
    }

    /// Asks like [`Self::answers`], but also while ports migrate.
    fn answers_now<T>(
        &self,
        question: impl Fn(SyncSender<T>) -> WorkerRequest,
    ) -> Result<Vec<T>, String> {
        let until = Instant::now() + ANSWER_WAIT;
        let asked: Vec<Receiver<T>> = self.0.iter().map(|asker| asker.request(&question)).collect();
        let wait = |answer: Receiver<T>| {
            let left = until.saturating_duration_since(Instant::now());
            answer.recv_timeout(left).map_err(|_| silence())
        };
        asked.into_iter().map(wait).collect()
    }
}

/// State with which a data process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// No state.
    Alone,
    /// Descriptors of an earlier data process: control kept them, and sends them through the socket
    /// on standard input.
    TakesOver,
    /// The whole state of a running data process: control sends it through the socket on standard
    /// input, once this process is ready.
    Succeeds,
}

/// Runs a data process until it is drained. Relative paths are relative to `beside`, or to the
/// file.
///
/// # Errors
/// If something cannot be opened, with the remedy.
pub fn run(config: &Path, beside: Option<&Path>, begin: Begin) -> anyhow::Result<ExitCode> {
    let plan = match beside {
        Some(dir) => config::load_beside(config, Some(dir), &KernelDevices)?,
        None => config::load(config, &KernelDevices)?,
    };
    let plan = match Numbers::beside(config)?.filter(|numbers| numbers.fit(&plan.config)) {
        Some(numbers) => {
            config::renumber(plan, numbers, &KernelDevices).map_err(anyhow::Error::msg)?
        }
        None => plan,
    };
    log::init(&plan.config.host.name, "data", plan.config.host.log);
    run_dir::create(&plan.run_dir, plan.config.host.group.as_deref())?;
    privileges::drop_others(&plan.config.host, [&plan.run_dir, &plan.state_dir])?;
    seccomp::install(plan.config.host.seccomp, seccomp::Process::Data);
    if begin == Begin::Succeeds {
        return succeed(plan);
    }
    let role = Role::take(&plan.run_dir, "data")?;
    _ = limits::raise_descriptors();
    let kept = if begin == Begin::TakesOver { kept() } else { Vec::new() };
    let taps = Arc::new(Taps::new(&plan, kept).with_chip(chip::Chip::open(&plan)?));
    let guard = Guard::install(&plan);
    let mut host = Idle::new(&plan)?;
    drain_on_signals(&host.askers)?;
    host.open(&plan, &taps).inspect_err(|_| taps.undo())?;
    host.join_chip(&plan, &taps);
    let listener = role.listen(&plan.run_dir.join(run_dir::DATA_SOCKET), None)?;
    host.forward(plan, listener, (&taps, guard), None)
}

/// Continues the work of another data process.
fn succeed(plan: Plan) -> anyhow::Result<ExitCode> {
    _ = limits::raise_descriptors();
    let mut host = Idle::new(&plan)?;
    drain_on_signals(&host.askers)?;
    // Installed beside that of the other process, so that there is a guard at every moment.
    let guard = Guard::install(&plan);
    let Some((successor, kept, handed)) = Successor::ready()? else { return Ok(ExitCode::SUCCESS) };
    if let Some(why) = successor::misfit(&plan, &handed) {
        successor.refuse(why)?;
        return Ok(ExitCode::SUCCESS);
    }
    let taps = Arc::new(Taps::succeed(&plan, kept, handed));
    let opened = host.open(&plan, &taps);
    taps.close_handed();
    let done = opened.and_then(|()| {
        let listener = run_dir::listen(&plan.run_dir.join(run_dir::NEXT_SOCKET), None)?;
        host.workers.iter_mut().for_each(Worker::begin_frozen);
        host.forward(plan, listener, (&taps, guard), Some(successor))
    });
    done.or_else(|error| {
        // The other process still uses these: no port is closed in order.
        say!(error: "{error:#}");
        taps.undo();
        std::process::exit(1)
    })
}

/// Returns the descriptors that control kept.
fn kept() -> Vec<descriptors::Named> {
    let taken = std::io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from);
    taken.and_then(|stream| descriptors::receive(&stream)).unwrap_or_else(|error| {
        say!(warn: "what control kept does not come: {error}; devices are found by their names");
        Vec::new()
    })
}

/// Workers without ports at first. Making them takes longest, since they allocate all memory.
struct Idle {
    started: Nanos,
    askers: WorkerHandles,
    workers: Vec<Worker>,
    /// Ports to give to their workers.
    ports: Vec<Vec<Opened>>,
    /// Selector of the workers' sockets, if they share an underlay.
    selector: Option<SharedSelector>,
}

impl Idle {
    fn new(plan: &Plan) -> anyhow::Result<Self> {
        let started = clock::now();
        let (askers, ends) = worker_channels(plan.workers.count)?;
        let make = |(at, (poller, asks))| make_worker(plan, at, poller, asks, started);
        let workers = ends.into_iter().enumerate().map(make).collect::<anyhow::Result<_>>()?;
        let ports = (0..plan.workers.count).map(|_| Vec::new()).collect();
        Ok(Self { started, askers, workers, ports, selector: None })
    }

    /// Opens all ports. If one cannot be opened, the ports before it stay open.
    fn open(&mut self, plan: &Plan, taps: &Taps) -> anyhow::Result<()> {
        self.selector = open_ports(plan, taps, &mut self.ports)?;
        let wakers: Vec<Waker> = self.askers.0.iter().map(|asker| asker.waker.clone()).collect();
        let handoffs = handoff::between(&plan.workers, &plan.switch, &wakers);
        let workers = self.workers.iter_mut().zip(&mut self.ports).zip(handoffs);
        for ((worker, ports), handoffs) in workers {
            worker.open(ports).context("cannot watch a port")?;
            worker.join(handoffs);
        }
        Ok(())
    }

    /// Has the chip follow the worker, and tells it of all ports.
    fn join_chip(&mut self, plan: &Plan, taps: &Taps) {
        let Some(chip) = taps.chip() else { return };
        if let (Some(link), [worker]) = (chip.link(), self.workers.as_mut_slice()) {
            worker.set_chip(link);
        }
        for (at, port) in plan.ports.iter().enumerate() {
            let Some((vnet, device)) = attach::chip_port(&plan.config.host.name, port) else {
                continue;
            };
            let (port, bound) = (PortId::from_index(at), plan.bound_at(PortId::from_index(at)));
            chip.tell(chip::Note::Port { port, vnet, device, bound });
        }
        if plan.fabric.is_none() {
            chip.tell_all_of(plan);
        }
    }

    /// Forwards until it is drained.
    fn forward(
        &mut self,
        plan: Plan,
        listener: UnixListener,
        (taps, guard): (&Arc<Taps>, Guard),
        successor: Option<Successor>,
    ) -> anyhow::Result<ExitCode> {
        let Self { started, askers, workers, selector, .. } = self;
        let (started, askers) = (*started, askers.clone());
        let next_hops = next_hops::follow(&plan, askers.clone())?;
        underlay::follow(&plan, taps, guard.clone(), askers.clone())?;
        cables::follow(&plan, askers.clone())?;
        let containers = Arc::clone(taps);
        spawn("containers", move || {
            loop {
                std::thread::sleep(CONTAINERS_EVERY);
                containers.follow_containers();
            }
        })?;
        let socket = plan.run_dir.join(run_dir::DATA_SOCKET);
        let cpus: Vec<Option<u32>> = (0..workers.len()).map(|at| cpu_of(&plan, at)).collect();
        let wanted = PolicyWatch::new(&plan);
        let cpus_known = Cpus::new(&cpus, plan.config.host.vcpu_cpus.as_deref());
        let shared = (workers.as_mut_slice(), selector.take());
        let buckets = follow_placement(&plan, shared, (&wanted, &cpus_known), &askers)?;
        // A host with one worker has nothing to count, and ports can be added to it.
        let several = workers.len() > 1;
        let counted = workers.iter_mut().filter(|_| several);
        let meters = counted.map(|worker| worker.meter(plan.ports.len())).collect();
        let balancer =
            rebalancer::ports::follow(&plan.workers, wanted.clone(), cpus_known, meters, &askers)?;
        let registry = registry::Ports::new(&plan);
        let known = (started, registry.clone());
        let names = answer::Names::new(&plan, known, (buckets, balancer), wanted, guard);
        let ports = plan.ports.len();
        let named = |port: &PortPlan| (port.name.clone(), port.vnet.clone());
        let names_of_ports: Vec<_> = plan.ports.iter().map(named).collect();
        let run_dir = plan.run_dir.clone();
        let known = (Arc::clone(taps), registry);
        let server = server::serve(listener, plan, known, names, next_hops, askers)?;
        for (name, vnet) in names_of_ports {
            say!("port {name} of {vnet}: open");
        }
        let count = workers.len();
        let by = if count > 1 { format!(" by {count} workers") } else { String::new() };
        match successor {
            None => say!("forwarding on {ports} ports{by}, process {}", std::process::id()),
            Some(successor) => successor.follow(server, run_dir)?,
        }

        let left = run_all(workers, &cpus)?;
        workers.iter_mut().for_each(Worker::close);
        _ = run_dir::remove(&socket);
        say!("drained; {} frames held and {} in drivers ended", left.resident, left.pending);
        Ok(ExitCode::SUCCESS)
    }
}

/// Lets the placement assign flows of the underlay to workers, if they share it.
fn follow_placement(
    plan: &Plan,
    (workers, selector): (&mut [Worker], Option<SharedSelector>),
    (wanted, cpus): (&PolicyWatch, &Cpus),
    askers: &WorkerHandles,
) -> anyhow::Result<rebalancer::buckets::Shown> {
    let ports = plan.ports.len();
    let parts: Vec<Part> = workers.iter_mut().filter_map(|worker| worker.part(ports)).collect();
    let shared = plan.workers.ports.iter().position(|placed| placed.worker.is_none());
    let port = shared.map_or("", |at| plan.ports[at].name.as_str());
    rebalancer::buckets::follow(port, wanted.clone(), cpus.clone(), (selector, parts), askers)
}

/// The worker's end: descriptors, and questions.
type End = (Poller, Receiver<WorkerRequest>);

/// Returns the handles of `count` workers, and the workers' ends.
fn worker_channels(count: usize) -> anyhow::Result<(WorkerHandles, Vec<End>)> {
    let mut askers = Vec::with_capacity(count);
    let mut ends = Vec::with_capacity(count);
    for _ in 0..count {
        let (asks, receiver) = sync_channel(ASKS_MAX);
        let poller = Poller::new().context("cannot make an epoll instance")?;
        askers.push(WorkerHandle { asks, waker: poller.waker() });
        ends.push((poller, receiver));
    }
    Ok((WorkerHandles(askers, Arc::default(), Arc::default()), ends))
}

/// Runs the first worker here and the others in threads of their own, until all have drained.
fn run_all(workers: &mut [Worker], cpus: &[Option<u32>]) -> anyhow::Result<Left> {
    let (first, others) = workers.split_first_mut().context("there is a worker")?;
    if others.is_empty() {
        pin_thread(cpus[0]);
        return first.run().context("the worker cannot wait for events");
    }
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (at, worker) in others.iter_mut().enumerate() {
            let (name, cpu) = (format!("worker-{}", at + 1), cpus[at + 1]);
            let body = move || {
                pin_thread(cpu);
                drained_or_end(|| worker.run())
            };
            let thread = std::thread::Builder::new().name(name).spawn_scoped(scope, body);
            running.push(thread.context("cannot start the thread of a worker")?);
        }
        pin_thread(cpus[0]);
        let mut left = drained_or_end(|| first.run());
        for thread in running {
            left += thread.join().map_err(|_| anyhow::anyhow!("a worker panicked"))?;
        }
        Ok(left)
    })
}

/// Ends the process with a worker that ends without having drained, as with an only worker: others
/// wait for the frames that they sent it, and control starts a new data process.
fn drained_or_end<T>(run: impl FnOnce() -> std::io::Result<T>) -> T {
    struct Guard;
    impl Drop for Guard {
        fn drop(&mut self) {
            if std::thread::panicking() {
                std::process::abort();
            }
        }
    }
    let _guard = Guard;
    run().unwrap_or_else(|error| {
        say!(error: "a worker cannot wait for events: {error}");
        std::process::exit(1)
    })
}

/// Returns the CPU of a worker.
fn cpu_of(plan: &Plan, worker: usize) -> Option<u32> {
    let host = &plan.config.host;
    host.worker_cpus.get(worker).copied().or(host.worker_cpu.filter(|_| worker == 0))
}

/// Opens the ports of a plan, by worker. Returns the selector of a port that all of them share.
fn open_ports(
    plan: &Plan,
    taps: &Taps,
    ports: &mut [Vec<Opened>],
) -> anyhow::Result<Option<SharedSelector>> {
    let mut shared = attach::Shared::default();
    for (at, (port, placed)) in plan.ports.iter().zip(&plan.workers.ports).enumerate() {
        // A port that all workers share has a part at each, in their order.
        let (first, last) = placed.worker.map_or((0, ports.len() - 1), |worker| (worker, worker));
        for own in &mut ports[first..=last] {
            let opened = attach::open(&mut shared, taps, port)?;
            own.push((PortId::from_index(at), port.name.clone(), opened));
        }
    }
    Ok(shared.into_selector())
}

/// Makes a worker without ports.
fn make_worker(
    plan: &Plan,
    number: usize,
    poller: Poller,
    asks: Receiver<WorkerRequest>,
    now: Nanos,
) -> anyhow::Result<Worker> {
    let shard = plan.workers.shard(&plan.switch, number);
    let host = Host::new(&shard, plan.addresses.iter().copied(), plan.seed, now)
        .map_err(|error| anyhow::anyhow!("the switch refuses the configuration: {error:?}"))?;
    let is_own = |placed: &Placed| placed.worker.is_none_or(|worker| worker == number);
    let places = plan.workers.ports.iter().filter(|placed| is_own(placed) || placed.moves).count()
        + plan.switch.spare.as_ref().map_or(0, |spare| spare.ports.into());
    let own = plan.ports.iter().zip(&plan.workers.ports);
    let own = own.filter(|(_, placed)| is_own(placed)).map(|(port, _)| port);
    let is_spread =
        |port: &&PortPlan| matches!(port.attachment, Attachment::Udp { sharers: 2.., .. });
    let kept = own.filter(is_spread).count() * HELD_MAX;
    let slots = host.switch().capacity() + places * BATCH + kept;
    let slots = u32::try_from(slots).context("more buffers than can be counted")?;
    let mut pool = PoolConfig::for_mtu(slots, plan.mtu_max);
    pool.populate = slots as usize * usize::from(pool.slot_size) <= POPULATED_BYTES_MAX;
    let pool = Pool::new(pool)?.with_large(slots.clamp(SUPER_FRAMES_MIN, SUPER_FRAMES_MAX))?;
    let pacing = Pacing {
        pace: Nanos::from_micros(plan.config.host.pace_us.into()),
        spin: Nanos::from_micros(plan.config.host.spin_us.into()),
    };
    let worker = Worker::new(host, Vec::new(), pool, poller, asks, pacing);
    worker.context("cannot watch a port")
}

/// Makes this worker punctual. Nothing here is needed for correctness.
fn pin_thread(cpu: Option<u32>) {
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        say!(warn: "timers stay inexact: {error}");
    }
    if let Err(error) = sluice_ports::sched::set_slice(SLICE) {
        say!(warn: "the worker waits for other threads of this host: {error}");
    }
    if let Some(cpu) = cpu {
        let mut cpus = CpuSet::new();
        cpus.set(cpu as usize);
        if let Err(error) = rustix::thread::sched_setaffinity(None, &cpus) {
            say!(warn: "cannot run on CPU {cpu} alone: {error}");
        }
    }
}

/// Drains on SIGTERM and SIGINT. SIGHUP, when a terminal goes away, does nothing.
fn drain_on_signals(askers: &WorkerHandles) -> anyhow::Result<()> {
    let (reader, writer) = UnixStream::pair()?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
    }
    let ignored = Arc::default();
    signal_hook::flag::register(signal_hook::consts::SIGHUP, ignored)?;
    let askers = askers.clone();
    spawn("signals", move || {
        use std::io::Read as _;
        let mut reader = reader;
        while reader.read_exact(&mut [0]).is_ok() {
            askers.ask_all(|| WorkerRequest::Drain);
        }
    })
}

#[cfg(test)]
mod tests;
