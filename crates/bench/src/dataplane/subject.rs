//! A switch under test, and the guests at its ports.
//!
//! ```text
//!   guests 0, 1, 2, 3  ══ vhost-user ══  switch        in one thread, on one core │ on the other
//!   the last one may be the underlay: it sends and receives what a wire would carry
//! ```
//!
//! Each subject is started anew for every round, with new guests, so that no round inherits the
//! memory of another.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use sluice_testkit::guest::{Guest, GuestConfig, Listener, Pages, connect};
use sluice_testkit::load::frame::{self, End};
use sluice_testkit::load::{Load, Run, Sink, Source, Tsc};

use super::machine::{Machine, Running};
use super::{ovs, sluice, testpmd};

/// Descriptors of each ring.
pub(super) const RING_SIZE: u16 = 1024;
/// Size of each buffer: a full frame in VXLAN fits.
const BUFFER_BYTES: usize = 2048;
/// Time limit of a wait for a switch.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// VNI of the guests' network.
pub(super) const VNI: u32 = 100;
/// Tunnel endpoints: the switch at the other end of the underlay, and this one.
pub(super) const VTEPS: [End; 2] = [
    End { mac: [2, 0, 0, 0, 1, 1], ip: [192, 0, 2, 1] },
    End { mac: [2, 0, 0, 0, 1, 2], ip: [192, 0, 2, 2] },
];
/// The endpoint behind the other switch.
pub(super) const REMOTE: End = End { mac: [2, 0, 0, 0, 2, 1], ip: [198, 51, 100, 99] };

/// Returns a guest's address.
pub(super) fn end(guest: usize) -> End {
    let number = u8::try_from(guest + 1).expect("few guests");
    End { mac: [2, 0, 0, 0, 0, number], ip: [198, 51, 100, number] }
}

/// Formats a MAC address for configurations.
pub(super) fn mac(end: End) -> String {
    end.mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Formats an IP address for configurations.
pub(super) fn ip(end: End) -> String {
    end.ip.map(|byte| byte.to_string()).join(".")
}

/// Number of guests, queue pairs and underlay of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wiring {
    pub(super) guests: usize,
    /// Queue pairs of each guest.
    pub(super) pairs: usize,
    /// True if a switch with a buffer pool gets a quarter of its usual size.
    pub(super) quarter_pool: bool,
    pub(super) underlay: bool,
}

impl Wiring {
    /// Returns a wiring of guests without an underlay.
    pub(super) const fn guests(guests: usize) -> Self {
        Self { guests, pairs: 1, quarter_pool: false, underlay: false }
    }

    /// Returns the number of vhost-user ports; the underlay is the last one.
    pub(super) fn ports(self) -> usize {
        self.guests + usize::from(self.underlay)
    }
}

/// A switch that can be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    OvsDpdk,
    Testpmd,
    Sluice,
}

pub(super) const SUBJECTS: [Subject; 3] = [Subject::OvsDpdk, Subject::Testpmd, Subject::Sluice];

/// Sockets and processes of a running switch.
pub(super) struct Ports {
    /// Socket of each port.
    pub(super) sockets: Vec<PathBuf>,
    /// The process that forwards frames.
    pub(super) switch: Running,
    /// Further processes of the switch, ended after it.
    pub(super) _others: Vec<Running>,
}

impl Subject {
    /// Returns the name in results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::OvsDpdk => "ovs-dpdk",
            Self::Testpmd => "testpmd",
            Self::Sluice => "sluice",
        }
    }

    /// Returns the reason why the subject cannot take part; `None` if it can.
    pub(super) fn obstacle(self) -> Option<String> {
        match self {
            Self::OvsDpdk => ovs::obstacle(),
            Self::Testpmd => testpmd::obstacle(),
            Self::Sluice => sluice::obstacle(),
        }
    }

    /// Returns true if the subject supports the wiring. Forwarding between pairs of ports knows
    /// neither addresses nor tunnels.
    pub(super) fn can(self, wiring: Wiring) -> bool {
        match self {
            Self::OvsDpdk | Self::Sluice => true,
            Self::Testpmd => {
                wiring.guests.is_multiple_of(2) && !wiring.underlay && wiring.pairs == 1
            }
        }
    }

    /// Returns true if frames are switched by address, so that several guests can send to one.
    pub(super) fn switches(self) -> bool {
        self != Self::Testpmd
    }

    /// Returns true if the switch connects to sockets of the guests; false if it listens.
    fn comes(self) -> bool {
        self == Self::OvsDpdk
    }

    fn start(self, dir: &Path, wiring: Wiring) -> anyhow::Result<Ports> {
        match self {
            Self::OvsDpdk => ovs::start(dir, wiring),
            Self::Testpmd => testpmd::start(dir, wiring),
            Self::Sluice => sluice::start(dir, wiring),
        }
    }

    /// Starts the subject with its guests, and waits until frames pass between the first two.
    ///
    /// # Errors
    /// With the end of its log, if the subject does not start or forwards nothing.
    pub(super) fn bench(self, machine: &Machine, wiring: Wiring) -> anyhow::Result<Bench> {
        let dir = machine.dir().join(self.name());
        std::fs::create_dir_all(&dir)?;
        let bench = Bench::start(self, &dir, wiring);
        bench.with_context(|| format!("{}: {}", self.name(), log_ends(&dir)))
    }
}

/// Returns the last lines of all logs.
fn log_ends(dir: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "log") {
            let log = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            text += &lines[lines.len().saturating_sub(8)..].join("\n");
        }
    }
    text
}

/// A running switch with its guests connected.
pub(super) struct Bench {
    // Dropped first, because a switch without guests ends cleanly.
    pub(super) load: Load,
    ports: Ports,
    _listeners: Vec<Listener>,
}

impl Bench {
    /// Returns the nanoseconds in which the switch moved frames, if it reports them.
    ///
    /// # Errors
    /// If the switch does not answer.
    pub(super) fn busy_ns(&self, subject: Subject) -> anyhow::Result<Option<u64>> {
        match (subject, self.ports.sockets.first().and_then(|socket| socket.parent())) {
            (Subject::Sluice, Some(dir)) => sluice::busy_ns(dir).map(Some),
            _ => Ok(None),
        }
    }

    fn start(subject: Subject, dir: &Path, wiring: Wiring) -> anyhow::Result<Self> {
        let config = GuestConfig {
            ring_size: RING_SIZE,
            queue_pairs: wiring.pairs,
            frame_bytes_max: BUFFER_BYTES,
            receive_buffer_bytes: BUFFER_BYTES,
            pages: Pages::Huge,
            ..GuestConfig::default()
        };
        let mut guests = Vec::new();
        for _ in 0..wiring.ports() {
            guests.push(Guest::new(config.clone())?);
        }
        // A switch that connects needs the sockets before its start.
        let sockets: Vec<PathBuf> =
            (0..wiring.ports()).map(|port| dir.join(format!("p{port}"))).collect();
        let comes = subject.comes();
        let mut listeners = Vec::new();
        for socket in sockets.iter().filter(|_| comes) {
            listeners.push(Listener::bind(socket)?);
        }
        let ports = subject.start(dir, wiring)?;
        for (index, guest) in guests.iter_mut().enumerate() {
            let stream = match listeners.get(index) {
                Some(listener) => listener.accept(PATIENCE)?,
                None => connect(&sockets[index], 1000)?,
            };
            guest.attach(stream)?;
        }
        let mut bench = Self { load: Load::new(guests), ports, _listeners: listeners };
        bench.warm_up(wiring)?;
        Ok(bench)
    }

    /// Sends slowly until frames arrive.
    fn warm_up(&mut self, wiring: Wiring) -> anyhow::Result<()> {
        let clock = Tsc::measured();
        let run = Run { settle_ms: 0, window_ms: 100, burst: 8, touch: false };
        // All guests send, so that a switch that learns knows them.
        let count = wiring.guests;
        let to = |guest: usize| if guest.is_multiple_of(2) { guest + 1 } else { guest - 1 };
        let sources: Vec<Source> = (0..count)
            .filter(|&guest| to(guest) < count)
            .map(|guest| between(guest, to(guest), 64, Some(500)))
            .collect();
        let sinks: Vec<Sink> = (0..wiring.ports()).map(sink).collect();
        for _ in 0..100 {
            let report = self.load.run(&sources, &sinks, run, &clock);
            if report.sent.iter().all(|sent| sent.frames > 0 && sent.lost == 0) {
                return Ok(());
            }
            if !self.ports.switch.is_alive() {
                bail!("it has ended");
            }
        }
        bail!("frames do not pass")
    }

    /// Returns the id of the process that forwards frames.
    pub(super) fn pid(&self) -> u32 {
        self.ports.switch.pid()
    }
}

/// Returns a source from one guest to another.
pub(super) fn between(from: usize, to: usize, bytes: usize, rate: Option<u64>) -> Source {
    let template = frame::plain(end(from), end(to), bytes);
    Source { guest: from, pair: 0, template, skip: 0, rate, flows: 1 }
}

/// Returns a sink without limits.
pub(super) fn sink(guest: usize) -> Sink {
    Sink { guest, skip: 0, rate: None, sleep_us: None }
}
