//! The aggregator: takes jobs from its standard input, reports on its standard output, and ends
//! when the input does.

use std::io::{BufRead, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;

use super::flood::{self, Sink};
use super::worker::Service;
use super::{Cell, HEAD_BYTES, Job, PORT, Report, echo, socket};
use crate::counters;
use crate::netns;

/// Time limit of a query; a longer one breaks its cell.
const PATIENCE: Duration = Duration::from_secs(30);
/// The time between two reports of progress.
const PROGRESS: Duration = Duration::from_millis(250);

/// Frames of the agent in a machine: the file that its start script names.
const AGENT_FRAMES: &str = "/run/sluice-guest";

/// Runs the aggregator.
///
/// # Errors
///
/// The input is not understood or the output is closed.
pub(crate) fn run() -> anyhow::Result<()> {
    let mut services = Services::default();
    say(&Report::Ready)?;
    for line in std::io::stdin().lock().lines() {
        let job = serde_json::from_str(&line?).context("a job")?;
        let report = match work(&job, &mut services) {
            Ok(report) => report,
            Err(error) => Report::Failed { error: format!("{error:#}") },
        };
        say(&report)?;
    }
    Ok(())
}

fn say(report: &Report) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(report)?;
    line.push('\n');
    let mut output = std::io::stdout().lock();
    output.write_all(line.as_bytes())?;
    output.flush()?;
    Ok(())
}

/// Services that run beside the jobs.
#[derive(Default)]
struct Services {
    service: Option<Service>,
    sink: Option<Sink>,
}

fn work(job: &Job, services: &mut Services) -> anyhow::Result<Report> {
    match job {
        Job::Cell(cell) => run_cell(cell),
        Job::Fetch { from, bytes, congestion } => {
            let mut peers = Peers::connect(&[*from], congestion, 0)?;
            let ns = peers.query(0, *bytes, Duration::from_secs(600))?;
            Ok(Report::Fetch { ns })
        }
        Job::Ping { to, count } => Ok(Report::Ping { rtt_ns: echo::ping(*to, *count)? }),
        Job::Prepare { commands, settings } => {
            netns::ip(commands)?;
            for (name, value) in settings {
                netns::setting(name, value)?;
            }
            Ok(Report::Done)
        }
        Job::Serve { address, congestion } => {
            match &services.service {
                Some(service) => service.change(congestion),
                None => services.service = Some(Service::start(*address, PORT, congestion)?),
            }
            Ok(Report::Done)
        }
        Job::Count => {
            let (repairs, losses) = counters::read(&[std::process::id()]);
            Ok(Report::Counted { repairs, losses })
        }
        Job::Card => {
            let text = std::fs::read_to_string("/proc/net/dev").context("the kernel's devices")?;
            let (received, sent) = counters::device(&text, "eth0").context("no card eth0")?;
            let (told, asked) = agent_frames();
            let (received, sent) = (received.saturating_sub(asked), sent.saturating_sub(told));
            Ok(Report::Card { received, sent })
        }
        Job::Flood { to, bytes, milliseconds } => {
            let time = Duration::from_millis(u64::from(*milliseconds));
            Ok(Report::Flooded { sent: flood::send(*to, *bytes, time)? })
        }
        Job::Sink => {
            if services.sink.is_none() {
                services.sink = Some(Sink::start()?);
            }
            Ok(Report::Done)
        }
        Job::Sunk => {
            let sink = services.sink.as_ref().context("nothing was counted")?;
            Ok(Report::Sunk { received: sink.take() })
        }
    }
}

/// Frames that the agent of a machine has sent and received, which its card counts beside those of
/// the workload; none without an agent.
fn agent_frames() -> (u64, u64) {
    let text = std::fs::read_to_string(AGENT_FRAMES).unwrap_or_default();
    let mut counts = text.split_whitespace().map_while(|word| word.parse().ok());
    let received = counts.next().unwrap_or(0);
    (counts.next().unwrap_or(0), received)
}

/// Runs a cell. Connections last for the cell: congestion windows are those of a service that has
/// run a while.
fn run_cell(cell: &Cell) -> anyhow::Result<Report> {
    let mut peers = Peers::connect(&cell.workers, &cell.congestion, cell.priority)?;
    let gap = Duration::from_micros(u64::from(cell.gap_us));
    let time = Duration::from_secs_f64(cell.seconds);
    let mut fct_ns = Vec::new();
    let mut number = 0_u64;
    let mut began = Instant::now();
    let mut said = began;
    let broken = loop {
        if number == u64::from(cell.warm_up) {
            began = Instant::now();
        }
        match peers.query(number, cell.answer_bytes, PATIENCE) {
            Ok(fct) if number >= u64::from(cell.warm_up) => fct_ns.push(fct),
            Ok(_) => {}
            Err(error) => break Some(format!("query {number}: {error:#}")),
        }
        number += 1;
        let queries = u32::try_from(fct_ns.len()).unwrap_or(u32::MAX);
        let spent = began.elapsed();
        let enough = spent >= time && queries >= cell.queries_min;
        if queries >= cell.queries || enough || spent >= time * 3 {
            break None;
        }
        if said.elapsed() >= PROGRESS {
            said = Instant::now();
            say(&Report::Progress { queries })?;
        }
        std::thread::sleep(gap);
    };
    Ok(Report::Cell { fct_ns, broken })
}

/// Connections to workers, and the bytes of the current answer that each still owes.
struct Peers {
    epoll: OwnedFd,
    streams: Vec<TcpStream>,
    owed: Vec<u64>,
    head: Vec<[u8; HEAD_BYTES]>,
    buffer: Vec<u8>,
}

impl Peers {
    fn connect(workers: &[Ipv4Addr], congestion: &str, priority: u8) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut streams = Vec::new();
        for (index, &worker) in workers.iter().enumerate() {
            let stream = socket::connection(worker, PORT, congestion, priority)?;
            stream.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, &stream, data, epoll::EventFlags::IN)?;
            streams.push(stream);
        }
        let count = streams.len();
        Ok(Self {
            epoll,
            streams,
            owed: vec![0; count],
            head: vec![[0; HEAD_BYTES]; count],
            buffer: vec![0; 256 << 10],
        })
    }

    /// Sends one query to all. Returns the time from the first request to the last byte, in
    /// nanoseconds. The worker that is asked first changes from query to query.
    fn query(&mut self, number: u64, bytes: u64, patience: Duration) -> anyhow::Result<u64> {
        ensure!(bytes >= HEAD_BYTES as u64, "an answer has {HEAD_BYTES} bytes at least");
        let mut request = bytes.to_le_bytes().to_vec();
        request.extend(number.to_le_bytes());
        let count = self.streams.len();
        let first = usize::try_from(number % count as u64)?;
        self.owed.fill(bytes);
        let began = Instant::now();
        for index in (first..count).chain(0..first) {
            // Requests are few and small and the buffer is large: a short write is an error.
            (&self.streams[index]).write_all(&request).context("sending a request")?;
        }
        let mut waiting = count;
        let mut events = Vec::with_capacity(64);
        while waiting > 0 {
            let left = patience.saturating_sub(began.elapsed());
            if left.is_zero() {
                bail!("{waiting} of {count} answers are not complete after {patience:?}");
            }
            let left = Timespec::try_from(left)?;
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&left)) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for event in events.drain(..) {
                let index = usize::try_from(event.data.u64())?;
                if self.read(index, bytes, number)? {
                    waiting -= 1;
                }
            }
        }
        Ok(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Reads the available bytes; returns true if the answer is now complete.
    fn read(&mut self, index: usize, bytes: u64, number: u64) -> anyhow::Result<bool> {
        loop {
            let got = match (&self.streams[index]).read(&mut self.buffer) {
                Ok(0) => bail!("worker {index} closed its connection"),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).with_context(|| format!("worker {index}")),
            };
            ensure!(got as u64 <= self.owed[index], "worker {index} sent more than it was asked");
            let at = usize::try_from(bytes - self.owed[index]).unwrap_or(usize::MAX);
            if at < HEAD_BYTES {
                let now = got.min(HEAD_BYTES - at);
                self.head[index][at..at + now].copy_from_slice(&self.buffer[..now]);
            }
            self.owed[index] -= got as u64;
            if self.owed[index] == 0 {
                let answered = u64::from_le_bytes(self.head[index]);
                ensure!(answered == number, "worker {index} answered query {answered}");
                return Ok(true);
            }
        }
    }
}
