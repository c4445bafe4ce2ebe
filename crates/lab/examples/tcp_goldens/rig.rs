//! Two namespaces with one TAP each, and the two programs that talk through them.
//!
//! Everything is made for one run and removed after it, also when it fails: the TAPs with their
//! descriptors, the namespaces with [`Namespaces`]. Settings are written in the new namespaces
//! only; nothing of the machine itself is changed.

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sluice_base::Mac;
use sluice_ports::tap::{TapConfig, TapPort};

use crate::relay::{self, Entry};
use crate::scenarios::{Acks, MSS, Scenario};

const NAMESPACES: [&str; 2] = ["sluice-gold-a", "sluice-gold-b"];
const DEVICE: &str = "tap0";
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 71, 0, 1), Ipv4Addr::new(10, 71, 0, 2)];
const MACS: [Mac; 2] = [Mac([2, 0, 0, 0, 0x71, 1]), Mac([2, 0, 0, 0, 0x71, 2])];
const PORT: u16 = 7100;
/// Receive window in bytes; larger than the bytes in flight of any scenario.
const RECEIVE_WINDOW: &str = "64000";
/// Time between the connection and the first write.
const SETTLE: Duration = Duration::from_millis(100);
/// Sleep of a thread between two checks whether the run is over.
const LOOK: Duration = Duration::from_millis(5);

/// Settings of both namespaces, beside `tcp_sack`.
const SETTINGS: [(&str, &str); 19] = [
    ("tcp_timestamps", "0"),
    ("tcp_dsack", "0"),
    ("tcp_ecn", "0"),
    // F-RTO, RACK as far as it can be switched off, tail loss probes.
    ("tcp_frto", "0"),
    ("tcp_recovery", "0"),
    ("tcp_early_retrans", "0"),
    // No run learns from the one before.
    ("tcp_no_metrics_save", "1"),
    ("tcp_slow_start_after_idle", "1"),
    // Each segment of new data is one segment on the wire, and each arrival may cause an answer.
    ("tcp_retrans_collapse", "0"),
    ("tcp_autocorking", "0"),
    ("tcp_comp_sack_nr", "0"),
    ("tcp_backlog_ack_defer", "0"),
    ("tcp_min_tso_segs", "1"),
    // Neither buffers nor the receive window limit a transfer.
    ("tcp_wmem", "4096 1048576 4194304"),
    ("tcp_rmem", "4096 1048576 4194304"),
    ("tcp_moderate_rcvbuf", "0"),
    ("tcp_reordering", "3"),
    ("tcp_fastopen", "0"),
    ("tcp_mtu_probing", "0"),
];

/// Returns the announcement that is printed before anything is made.
pub(crate) fn announcement() -> String {
    format!(
        "makes the namespaces {} for each run, with a TAP {DEVICE} in each, and removes them; \
         changes nothing else but the golden files",
        NAMESPACES.join(" and ")
    )
}

/// Returns the release of the kernel.
pub(crate) fn kernel() -> anyhow::Result<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    // The suffix of a distribution says nothing about TCP.
    Ok(text.trim().split('-').next().unwrap_or_default().to_owned())
}

/// Returns today's date.
pub(crate) fn date() -> anyhow::Result<String> {
    let output = Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("running date")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// The namespaces; removed when this is dropped.
struct Namespaces;

impl Namespaces {
    fn new() -> anyhow::Result<Self> {
        for name in NAMESPACES {
            ensure!(!path(name).exists(), "{name} exists: `ip netns delete {name}`");
        }
        let all = Self; // From here on they are removed, also if only one was made.
        for name in NAMESPACES {
            ip(&["netns", "add", name])?;
        }
        Ok(all)
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in NAMESPACES.into_iter().filter(|name| path(name).exists()) {
            if let Err(error) = ip(&["netns", "delete", name]) {
                eprintln!("namespace {name} is left over: {error:#}");
            }
        }
    }
}

fn path(name: &str) -> std::path::PathBuf {
    Path::new("/run/netns").join(name)
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("starting ip")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {}", arguments.join(" "), said.trim());
    Ok(())
}

/// Moves the calling thread, which must end afterwards, into a namespace.
fn enter(name: &str) -> anyhow::Result<()> {
    let file = File::open(path(name)).with_context(|| format!("opening namespace {name}"))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .with_context(|| format!("entering namespace {name}"))
}

/// Runs a scenario once.
pub(crate) fn run(scenario: &Scenario, stop: &AtomicBool) -> anyhow::Result<Vec<Entry>> {
    let _namespaces = Namespaces::new()?;
    let taps = [open(0, scenario)?, open(1, scenario)?];
    let over = AtomicBool::new(false);
    let listening = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(scenario, &listening, &over));
        let sender = scope.spawn(|| send(scenario, &listening, &over));
        let entries = relay::run(taps, scenario, stop);
        over.store(true, Ordering::Relaxed);
        let ends = [("sender", sender), ("receiver", receiver)];
        let ends = ends.map(|(name, end)| {
            end.join().map_err(|_| anyhow!("the {name} panicked"))?.context(name)
        });
        // The error of an end says more than that of the relay, which only waited in vain.
        ends.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
        entries
    })
}

/// Opens the TAP of one side and sets its namespace up.
fn open(side: usize, scenario: &Scenario) -> anyhow::Result<TapPort> {
    let name = NAMESPACES[side];
    let on_thread = std::thread::scope(|scope| {
        let settings = scope.spawn(|| -> anyhow::Result<()> {
            enter(name)?;
            let sack = ("tcp_sack", if scenario.sack { "1" } else { "0" });
            for (key, value) in SETTINGS.into_iter().chain([sack]) {
                std::fs::write(format!("/proc/sys/net/ipv4/{key}"), value)
                    .with_context(|| format!("writing {value} to {key}"))?;
            }
            let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
            Ok(())
        });
        settings.join()
    });
    on_thread.map_err(|_| anyhow!("a thread panicked"))??;
    let mut config = TapConfig::new(DEVICE, 1500);
    config.netns = Some(path(name));
    config.mac = Some(MACS[side]);
    let tap = TapPort::open(&config)?;
    let (own, other) = (ADDRESSES[side].to_string(), ADDRESSES[1 - side].to_string());
    let (mss, window) = (MSS.to_string(), scenario.initial_window.to_string());
    let in_netns = |arguments: &[&str]| ip(&[&["-n", name], arguments].concat());
    // One segment in each packet of the kernel, as on a wire.
    in_netns(&["link", "set", DEVICE, "gso_max_segs", "1"])?;
    in_netns(&["address", "add", &format!("{own}/32"), "dev", DEVICE])?;
    let quickack = if scenario.acks == Acks::Each { "1" } else { "0" };
    // A fixed window: an acknowledgement that moves the window does not count as a duplicate.
    let route = ["route", "add", &other, "dev", DEVICE, "advmss", &mss, "initcwnd", &window];
    in_netns(&[&route[..], &["quickack", quickack, "window", RECEIVE_WINDOW]].concat())?;
    let mac = MACS[1 - side].to_string();
    in_netns(&["neighbour", "add", &other, "lladdr", &mac, "dev", DEVICE, "nud", "permanent"])?;
    Ok(tap)
}

/// Accepts the connection and reads nothing, so that no answer depends on the time of a read.
fn receive(scenario: &Scenario, listening: &AtomicBool, over: &AtomicBool) -> anyhow::Result<()> {
    enter(NAMESPACES[1])?;
    let listener = TcpListener::bind(SocketAddrV4::new(ADDRESSES[1], PORT))?;
    listener.set_nonblocking(true)?;
    listening.store(true, Ordering::Relaxed);
    let mut stream = None;
    while !over.load(Ordering::Relaxed) {
        if let (None, Ok((accepted, _))) = (&stream, listener.accept()) {
            if scenario.acks == Acks::Delayed {
                sockopt::set_tcp_quickack(&accepted, false)?;
            }
            stream = Some(accepted);
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Connects and performs the writes of the scenario at their times.
fn send(scenario: &Scenario, listening: &AtomicBool, over: &AtomicBool) -> anyhow::Result<()> {
    enter(NAMESPACES[0])?;
    while !listening.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    sockopt::set_tcp_congestion(&socket, scenario.algorithm)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::connect(&socket, &SocketAddrV4::new(ADDRESSES[1], PORT))?;
    let mut stream = TcpStream::from(socket);
    std::thread::sleep(SETTLE);
    let begin = Instant::now();
    for &(at_ms, bytes) in &scenario.sends {
        let due = begin + Duration::from_millis(at_ms);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(&vec![0; usize::try_from(bytes)?])?;
    }
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
    }
    Ok(())
}
