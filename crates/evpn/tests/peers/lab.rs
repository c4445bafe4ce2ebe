//! A speaker in a network namespace, and a genuine peer in another one.
//!
//! ```text
//!   ours: Driver ─ up0 192.0.2.1 ════ 192.0.2.2 up0 ─ FRR or GoBGP
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_base::{Mac, Nanos, Vni};
use sluice_evpn::{
    Change, Config, Driver, Endpoint, Event, Limits, MacKey, Mobility, NeighborConfig, Network,
    PORT, RemoteMac, RouteTarget, Speaker,
};
use sluice_netns::Netns;

pub(crate) const OURS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub(crate) const THEIRS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// The AS of both.
pub(crate) const AS: u32 = 65000;
/// Longest time for what must happen.
const PATIENCE: Duration = Duration::from_secs(30);

/// Says why a test cannot run here. True if it cannot.
pub(crate) fn skip(test: &str, programs: &[&str]) -> bool {
    let is_there =
        |program: &&&str| Path::new(program).is_file() || sluice_netns::is_installed(program);
    let missing = ["ip", "bridge", "ethtool"].iter().chain(programs).find(|name| !is_there(name));
    let why = match missing {
        _ if !rustix::process::geteuid().is_root() => "it needs root".to_owned(),
        Some(name) => format!("`{name}` is not installed"),
        None => return false,
    };
    _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
    true
}

/// Waits for what must happen.
pub(crate) fn wait_for(what: &str, happened: impl FnMut() -> bool) {
    let step = Duration::from_millis(5);
    assert!(sluice_netns::happens(PATIENCE, step, happened), "not within {PATIENCE:?}: {what}");
}

pub(crate) fn vni(number: u32) -> Vni {
    Vni::new(number).unwrap()
}

pub(crate) fn key(number: u64) -> MacKey {
    MacKey { vni: vni(100), mac: Mac::from_u64(0x0200_0000_0000 + number) }
}

pub(crate) fn network(number: u32) -> Network {
    Network { vni: vni(number), target: RouteTarget::of_as(AS, number) }
}

pub(crate) fn endpoint(key: MacKey, ips: &[IpAddr]) -> Endpoint {
    Endpoint { key, ips: ips.to_vec(), mobility: Mobility::default() }
}

/// Two namespaces, a folder, and programs that end with it.
pub(crate) struct Lab {
    pub(crate) ours: Netns,
    pub(crate) theirs: Netns,
    pub(crate) dir: PathBuf,
    children: BTreeMap<String, Child>,
}

impl Lab {
    pub(crate) fn new(word: &str) -> Self {
        let name = format!("sluice-e-{}-{word}", std::process::id());
        let dir = std::env::temp_dir().join(&name);
        fs::create_dir_all(&dir).unwrap();
        let netns = |side: &str| Netns::create(&format!("{name}{side}")).unwrap();
        let (ours, theirs) = (netns("a"), netns("b"));
        let lab = Self { ours, theirs, dir, children: BTreeMap::new() };
        sluice_netns::cable((&lab.ours, "up0"), (&lab.theirs, "up0")).unwrap();
        lab.ours.ip(&format!("addr add {OURS}/24 dev up0")).unwrap();
        lab.theirs.ip(&format!("addr add {THEIRS}/24 dev up0")).unwrap();
        lab
    }

    /// Writes a file of the folder.
    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts a program of the peer's namespace; its output is in the folder.
    pub(crate) fn start(&mut self, name: &str, command: &mut Command) {
        let log = File::create(self.dir.join(format!("{name}.log"))).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.children.insert(name.to_owned(), child);
    }

    /// Kills a program.
    pub(crate) fn kill(&mut self, name: &str) {
        let mut child = self.children.remove(name).unwrap();
        _ = child.kill();
        _ = child.wait();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for child in self.children.values_mut() {
            _ = child.kill();
            _ = child.wait();
        }
        _ = self.ours.delete();
        _ = self.theirs.delete();
        _ = fs::remove_dir_all(&self.dir);
    }
}

/// A driver, with all that it has told.
pub(crate) struct Told {
    pub(crate) driver: Driver,
    pub(crate) macs: BTreeMap<MacKey, RemoteMac>,
    pub(crate) vteps: BTreeSet<(Vni, Ipv4Addr)>,
    pub(crate) taken: BTreeSet<MacKey>,
    pub(crate) events: Vec<Event>,
}

/// A speaker with a thread of its own in a namespace.
pub(crate) struct Ours {
    told: Arc<Mutex<Told>>,
    is_over: Arc<AtomicBool>,
    started: Instant,
    thread: Option<JoinHandle<()>>,
}

impl Ours {
    /// Starts a speaker with one neighbor.
    pub(crate) fn start(lab: &Lab, stale_max: Nanos) -> Self {
        let config = Config {
            local_as: AS,
            router_id: OURS,
            vtep: OURS,
            hold_s: Config::HOLD_S,
            stale_max,
            neighbors: vec![NeighborConfig {
                address: THEIRS.into(),
                remote_as: AS,
                is_passive: false,
            }],
            limits: Limits::default(),
        };
        let started = Instant::now();
        let listen = || {
            let speaker = Speaker::new(config, 1, Nanos::ZERO);
            Driver::listen(speaker, SocketAddr::new(OURS.into(), PORT), PORT)
        };
        let driver = lab.ours.inside(listen).unwrap().unwrap();
        let told = Arc::new(Mutex::new(Told {
            driver,
            macs: BTreeMap::new(),
            vteps: BTreeSet::new(),
            taken: BTreeSet::new(),
            events: Vec::new(),
        }));
        let is_over = Arc::new(AtomicBool::new(false));
        let (netns, shared, over) = (lab.ours.clone(), Arc::clone(&told), Arc::clone(&is_over));
        let thread = std::thread::spawn(move || {
            let run = || {
                while !over.load(Ordering::Relaxed) {
                    shared.lock().unwrap_or_else(PoisonError::into_inner).turn(now(started));
                    std::thread::sleep(Duration::from_micros(200));
                }
            };
            netns.inside(run).unwrap();
        });
        Self { told, is_over, started, thread: Some(thread) }
    }

    pub(crate) fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn announce(&self, endpoint: Endpoint) -> u32 {
        self.told().driver.speaker_mut().announce(endpoint).unwrap()
    }

    pub(crate) fn add_network(&self, network: Network) {
        let now = now(self.started);
        self.told().driver.speaker_mut().add_network(now, network);
    }

    /// Returns the VTEP that has a MAC, by the speaker's changes.
    pub(crate) fn place(&self, key: MacKey) -> Option<Ipv4Addr> {
        self.told().macs.get(&key).map(|remote| remote.vtep)
    }

    /// Returns how often an event was told.
    pub(crate) fn count(&self, which: impl Fn(&Event) -> bool) -> usize {
        self.told().events.iter().filter(|event| which(event)).count()
    }

    /// Waits until a session is established and all routes of the peer are known, as often as
    /// `times` says.
    pub(crate) fn wait_up(&self, times: usize) {
        let is_end = |event: &Event| matches!(event, Event::EndOfRib(_));
        wait_for("End-of-RIB of the peer", || self.count(is_end) >= times);
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn now(started: Instant) -> Nanos {
    // A driver's time begins somewhat after the origin.
    Nanos(u64::try_from(started.elapsed().as_nanos()).unwrap()).after(Nanos::from_millis(1))
}

impl Told {
    fn turn(&mut self, now: Nanos) {
        self.driver.turn(now);
        let speaker = self.driver.speaker_mut();
        while let Some(change) = speaker.change() {
            match change {
                Change::Mac { key, to, is_taken } => {
                    if is_taken {
                        self.taken.insert(key);
                    }
                    match to {
                        Some(to) => _ = self.macs.insert(key, to),
                        None => _ = self.macs.remove(&key),
                    }
                }
                Change::Vtep { vni, vtep, is_there } => {
                    if is_there {
                        self.vteps.insert((vni, vtep));
                    } else {
                        self.vteps.remove(&(vni, vtep));
                    }
                }
            }
        }
        while let Some(event) = speaker.event() {
            self.events.push(event);
        }
        self.driver.wait(now, Nanos::from_millis(2), None).unwrap();
    }
}
