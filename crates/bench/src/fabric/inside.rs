//! The control plane and the forwarding table (FDB) in one thread, without sockets: rate of punts
//! on one core, and rate of entries that the control plane installs. Time is the processor time of
//! the thread.

use sluice_api::results::Row;
use sluice_base::{HostId, Mac, Nanos, PortId, PuntCause, VnetId, Vni};
use sluice_control::bucket::Rate;
use sluice_control::directory::PortRule;
use sluice_control::plane::{Command, Config, Location, Plane};
use sluice_control::punt;
use sluice_ports::FrameBuf;
use sluice_switch::{self as switch, Destination, Switch};

use super::host::mac_of;
use crate::forward;
use crate::machine::processor_time;

const PORTS: u16 = 64;
/// Endpoints that send ARP requests for each other.
const ENDPOINTS: u32 = 4096;
const PUNTS: u32 = 1_000_000;
/// Entries of the forwarding table.
const ENTRIES: u32 = 50_000;
/// Punts between two drains of the control plane, as a host does in a turn.
const BATCH: u32 = 64;
const OWN: HostId = HostId(1);

fn vni() -> Vni {
    Vni::new(42).expect("below 2^24")
}

/// Returns a control plane with ports whose frames are not policed.
fn plane() -> Plane {
    let mut config = Config::new(OWN, 1, [7; 16], PORTS);
    let all = Rate::UNLIMITED;
    config.punt = punt::Config {
        assured: all,
        port: all,
        cause: [all; PuntCause::COUNT],
        ..punt::Config::new(PORTS)
    };
    let mut plane = Plane::new(&config, 1, Nanos::ZERO);
    plane.add_vnet(vni());
    for port in 0..PORTS {
        let rule = PortRule::Learn { quota: ENTRIES, sticky: false };
        plane.add_port(Nanos::ZERO, PortId(port), vni(), rule);
    }
    plane
}

fn port_of(number: u32) -> PortId {
    PortId::from_index(usize::try_from(number % u32::from(PORTS)).expect("few ports"))
}

/// Returns an ARP request (RFC 826) of one endpoint for another.
fn request(number: u32, target: u32) -> [u8; 60] {
    let (mac, ip) = (mac_of(number), |number: u32| (0x0a40_0000 + number).to_be_bytes());
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&mac.0);
    frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame[22..28].copy_from_slice(&mac.0);
    frame[28..32].copy_from_slice(&ip(number));
    frame[38..42].copy_from_slice(&ip(target));
    frame
}

/// Measures all rows.
pub(super) fn rows(rounds: usize) -> anyhow::Result<Vec<Row>> {
    let [mut punts, mut alone, mut joined] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        punts.push(answered()?);
        alone.push(installs()?);
        joined.push(misses()?);
    }
    let punts = Row::new("punts", "sluice", "1/s", punts).with("answered", "ARP");
    let punts = punts.with("ports", PORTS).with("entries", ENTRIES).with("peers", 0);
    let install = |of, values| {
        Row::new("chip_install", "sluice", "1/s", values)
            .with("entries", ENTRIES)
            .with("peers", 0)
            .with("of", of)
    };
    Ok(vec![punts, install("the switch alone", alone), install("a miss: plane and switch", joined)])
}

/// Takes all commands and events out of the plane; `each` gets the commands.
fn drain(plane: &mut Plane, now: Nanos, mut each: impl FnMut(&Command)) {
    plane.tick(now);
    while let Some(command) = plane.command() {
        each(&command);
    }
    while plane.event().is_some() {}
}

/// Returns the number of ARP requests answered per second.
fn answered() -> anyhow::Result<f64> {
    let mut plane = plane();
    let requests: Vec<_> = (0..ENDPOINTS).map(|n| request(n, (n * 7 + 1) % ENDPOINTS)).collect();
    // Slow enough that a repeated request counts as a new one.
    let at = |number: u32| Nanos::from_micros(u64::from(number) * 20);
    let punt = |plane: &mut Plane, number: u32| {
        let (asker, now) = (number % ENDPOINTS, at(number));
        let frame = &requests[usize::try_from(asker).expect("few")];
        plane.punt(now, Location::Port(port_of(asker)), vni(), PuntCause::Arp, frame);
    };
    // All endpoints are learned before the measurement.
    for number in 0..ENDPOINTS {
        punt(&mut plane, number);
        drain(&mut plane, at(number), |_| {});
    }
    let (begin, mut answers) = (processor_time(), 0_u32);
    for number in ENDPOINTS..ENDPOINTS + PUNTS {
        punt(&mut plane, number);
        if number % BATCH == 0 {
            drain(&mut plane, at(number), |command| {
                answers += u32::from(matches!(command, Command::Send { .. }));
            });
        }
    }
    let time = processor_time() - begin;
    anyhow::ensure!(answers > PUNTS - 2 * BATCH, "{answers} answers to {PUNTS} questions");
    Ok(f64::from(PUNTS) / time)
}

/// Returns a switch with an empty forwarding table.
fn fdb() -> anyhow::Result<Switch<FrameBuf>> {
    let mut config = forward::config(&forward::Setup { ports: 64, macs: 0, lossy: false });
    config.fdb = switch::FdbConfig { macs: 294_912, flows: 57_344 };
    Switch::new(&config, 1, Nanos::ZERO).map_err(|error| anyhow::anyhow!("{error:?}"))
}

fn install(fdb: &mut Switch<FrameBuf>, mac: Mac, to: Destination) -> anyhow::Result<()> {
    let command = switch::Command::Install { vnet: VnetId(0), mac, to };
    fdb.command(Nanos::ZERO, command).map_err(|error| anyhow::anyhow!("{error:?}"))
}

/// Returns the number of entries that the switch installs per second.
fn installs() -> anyhow::Result<f64> {
    let mut fdb = fdb()?;
    let begin = processor_time();
    for number in 0..ENTRIES {
        install(&mut fdb, mac_of(number), Destination::Port(port_of(number)))?;
    }
    Ok(f64::from(ENTRIES) / (processor_time() - begin))
}

/// Returns the entries per second from a frame that misses to the forwarding table: the plane finds
/// the endpoint, and the switch installs the entry.
fn misses() -> anyhow::Result<f64> {
    let (mut plane, mut fdb) = (plane(), fdb()?);
    let at = |number: u32| Nanos::from_micros(u64::from(number) * 20);
    for number in 0..ENTRIES {
        let frame = request(number, number);
        plane.punt(at(number), Location::Port(port_of(number)), vni(), PuntCause::Arp, &frame);
        drain(&mut plane, at(number), |_| {});
    }
    let mut frame = [0; 60];
    let (begin, mut installed, mut failed) = (processor_time(), 0_u32, None);
    for number in 0..ENTRIES {
        let (now, next) = (at(ENTRIES + number), (number + 1) % ENTRIES);
        forward::write_frame(&mut frame, mac_of(next), mac_of(number));
        plane.punt(now, Location::Port(port_of(next)), vni(), PuntCause::Miss, &frame);
        if number % BATCH == 0 || number + 1 == ENTRIES {
            drain(&mut plane, now, |command| {
                if let Command::Install { mac, to: Location::Port(port), .. } = command {
                    failed = install(&mut fdb, *mac, Destination::Port(*port)).err();
                    installed += 1;
                }
            });
        }
    }
    let time = processor_time() - begin;
    anyhow::ensure!(failed.is_none() && installed == ENTRIES, "{installed} were installed");
    Ok(f64::from(ENTRIES) / time)
}
