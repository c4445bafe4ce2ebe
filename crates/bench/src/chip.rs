//! `make bench PART=chip`: how fast the kernel as chip takes and gives up addresses, and what its
//! upkeep costs, without traffic.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use sluice_api::results::Row;
use sluice_base::{Mac, PortId, TunnelId, VnetId, Vni};
use sluice_ports::chip::{
    Cache, Capacity, Entry, KernelChip, KernelConfig, Network, Place, Senders,
};

use crate::fabric::net::{Net, cable, obstacle, sweep};
use crate::report;

const VNET: VnetId = VnetId(1);
const PORT: PortId = PortId(0);
const TUNNEL: TunnelId = TunnelId(0);
/// Addresses written together, as many as a data process does at most.
const TOGETHER: usize = 256;
/// Time between two looks for changes by others, its own among them.
const LOOK_EVERY: Duration = Duration::from_millis(200);
const VTEP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// Figures of one round.
#[derive(Clone, Copy, Debug)]
struct Figures {
    /// Addresses of ports written per second, and of tunnels, with the upkeep meanwhile.
    put: [f64; 2],
    /// The same, removed.
    removed: [f64; 2],
    /// Seconds for a look at all hits, and for a comparison of all entries.
    hits: f64,
    mend: f64,
}

fn mac(number: usize) -> Mac {
    let [.., a, b, c, d] = number.to_be_bytes();
    Mac([2, 0, a, b, c, d])
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn per_second(count: usize, since: Instant) -> f64 {
    count as f64 / since.elapsed().as_secs_f64()
}

/// Fills a chip with addresses of ports and of tunnels, looks at it, and empties it.
fn round(macs: usize, flows: usize) -> anyhow::Result<Figures> {
    let capacity = Capacity { macs: macs + flows, flows };
    let host = "bench".to_owned();
    let vtep = Ipv4Addr::new(192, 0, 2, 1);
    let config = KernelConfig { host, vtep, capacity, offloads: false };
    let mut chip = Cache::new(KernelChip::open(config).context("the kernel as chip")?);
    let vni = Vni::new(42).context("a VNI")?;
    chip.add_network(Network { vnet: VNET, vni, mtu: 1400 })?;
    chip.add_port(PORT, VNET, "p0")?;
    let kinds = [(0..macs, Place::Port(PORT)), (macs..macs + flows, Place::Tunnel(TUNNEL, VTEP))];
    let (mut put, mut removed) = ([0.0; 2], [0.0; 2]);
    for (at, (numbers, to)) in kinds.clone().into_iter().enumerate() {
        let (count, began) = (numbers.len(), Instant::now());
        let entry = Entry { to, senders: Senders::Any };
        let mut look = began + LOOK_EVERY;
        for some in numbers.collect::<Vec<_>>().chunks(TOGETHER) {
            chip.put_all(some.iter().map(|number| (VNET, mac(*number), entry)))?;
            if Instant::now() >= look {
                chip.mend()?;
                look = Instant::now() + LOOK_EVERY;
            }
        }
        put[at] = per_second(count, began);
    }
    let began = Instant::now();
    chip.hits(|_, _, _| {})?;
    let hits = began.elapsed().as_secs_f64();
    chip.mend()?;
    anyhow::ensure!(chip.figures().mended == 0, "own entries were taken for another's");
    // Somebody changes a port, and everything is compared.
    sluice_netns::run("bridge link set dev p0 learning on").map_err(anyhow::Error::msg)?;
    let began = Instant::now();
    chip.mend()?;
    let mend = began.elapsed().as_secs_f64();
    anyhow::ensure!(chip.figures().mended == 1, "one flag is put right");
    for (at, (numbers, _)) in kinds.into_iter().enumerate() {
        let (count, began) = (numbers.len(), Instant::now());
        for number in numbers {
            chip.remove(VNET, mac(number))?;
        }
        removed[at] = per_second(count, began);
    }
    chip.remove_network(VNET)?;
    Ok(Figures { put, removed, hits, mend })
}

/// Measures and reports.
///
/// # Errors
/// If something is missing, or the kernel refuses something.
pub(crate) fn run(rounds: usize, macs: usize, flows: usize) -> anyhow::Result<()> {
    if let Some(why) = obstacle() {
        anyhow::bail!("nothing can be measured: {why}");
    }
    sweep();
    let mut net = Net::new("chip")?;
    let (host, other) = (net.netns("h1")?, net.netns("c1")?);
    cable((&host, "p0"), (&other, "eth0"))?;
    host.ip("link set p0 up")?;
    let mut all = Vec::new();
    for nth in 1..=rounds {
        all.push(sluice_netns::inside(host.name(), || round(macs, flows))??);
        eprintln!("round {nth} of {rounds}");
    }
    let column = |of: fn(&Figures) -> f64| all.iter().map(of).collect::<Vec<f64>>();
    let row = |measure: &str, unit: &str, of, values| {
        let row = Row::new(measure, "sluice", unit, values).with("chip", "kernel");
        row.with("of", of).with("macs", macs).with("flows", flows)
    };
    report::finish(
        "chip",
        vec![
            row("chip_put", "1/s", "ports", column(|figures| figures.put[0])),
            row("chip_put", "1/s", "tunnels", column(|figures| figures.put[1])),
            row("chip_remove", "1/s", "ports", column(|figures| figures.removed[0])),
            row("chip_remove", "1/s", "tunnels", column(|figures| figures.removed[1])),
            row("chip_hits", "s", "all", column(|figures| figures.hits)),
            row("chip_mend", "s", "all", column(|figures| figures.mend)),
        ],
    )
}
