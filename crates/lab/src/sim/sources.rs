//! UDP sources of a scenario. A load is a part of a link's rate, with all headers and what a frame
//! takes on a wire beside them; the time of each source's first datagram is drawn from the seed.

use sluice_base::{Nanos, Priority, Prng};
use sluice_sim::workload::Source;

use super::experiment::OUTER;
use super::scenario::{Noise, SimScenario, SourceLoad};

/// Bytes of the headers of Ethernet, IPv4 and UDP.
const HEADERS: u64 = 14 + 20 + 8;
/// The smallest frame; a shorter one is padded.
const FRAME_BYTES_MIN: u64 = 60;

/// Returns the sources of a workload: machines of the hosts from 1 on, which all send to machine 0.
pub(super) fn workload(scenario: &SimScenario, load: &SourceLoad) -> Vec<Source> {
    let first = machines_of_host(scenario);
    let pairs = (first..first + load.senders).map(|from| (from, 0)).collect();
    let gap = gap(scenario, load.datagram_bytes, load.load_percent, load.senders);
    sources(scenario, pairs, load.gaps.into(), load.datagram_bytes, gap, scenario.classes.workload)
}

/// Returns the sources beside a workload: each machine sends to the same one of the next host.
pub(super) fn background(scenario: &SimScenario) -> Vec<Source> {
    let Noise::UdpSources(noise) = &scenario.background else { return Vec::new() };
    let (stations, vms) = (scenario.stations(), machines_of_host(scenario));
    let senders = (0..stations).filter(|at| noise.vm.is_none_or(|vm| at % vms == vm));
    let pairs = senders.map(|from| (from, (from + vms) % stations)).collect();
    let gap = gap(scenario, noise.datagram_bytes, noise.load_percent, 1);
    sources(
        scenario,
        pairs,
        noise.gaps.into(),
        noise.datagram_bytes,
        gap,
        scenario.classes.background,
    )
}

fn machines_of_host(scenario: &SimScenario) -> u32 {
    scenario.overlay.as_ref().map_or(1, |overlay| overlay.vms_per_host)
}

/// Returns the mean gap of each of `senders` sources that load a link together.
fn gap(scenario: &SimScenario, datagram: u32, load_percent: u32, senders: u32) -> Nanos {
    let outer = if scenario.overlay.is_some() { u64::from(OUTER) } else { 0 };
    let frame = (HEADERS + u64::from(datagram) + outer).max(FRAME_BYTES_MIN);
    let bits = (frame + u64::from(scenario.switch.overhead_bytes)) * 8;
    let (mbps, _) = scenario.topology.link();
    // Bits by Mbit/s are microseconds; the load is in percent.
    Nanos((bits * u64::from(senders) * 100_000 / (mbps * u64::from(load_percent))).max(1))
}

fn sources(
    scenario: &SimScenario,
    pairs: Vec<(u32, u32)>,
    gaps: sluice_sim::workload::Gaps,
    bytes: u32,
    gap: Nanos,
    class: u8,
) -> Vec<Source> {
    let source = |(from, to): (u32, u32)| Source {
        from,
        to,
        bytes,
        gaps,
        gap,
        first: Nanos(Prng::stream(scenario.sim.seed, &format!("first {from}")).below(gap.0)),
        datagrams: u64::MAX,
        priority: Priority::from_low_bits(class),
    };
    pairs.into_iter().map(source).collect()
}

#[cfg(test)]
mod tests;
