//! Checks of a scenario's values: every error names its key and a remedy.

use anyhow::ensure;
use sluice_sim::workload::draw::Sizes;

use super::{Load, Noise, Overlay, Shape, Sim, SimScenario, TracePlan, link};

impl SimScenario {
    /// Checks that the scenario can be simulated.
    ///
    /// # Errors
    ///
    /// Names the key with the wrong value, and the value to write instead.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Sim { name, policies, seconds_max, .. } = &self.sim;
        let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        ensure!(!name.is_empty() && name.chars().all(word), "sim.name: of a-z, 0-9 and '-'");
        ensure!(!policies.is_empty(), "sim.policies: at least one of LL, LZ, ZL, ZZ");
        ensure!((1..=100_000).contains(seconds_max), "sim.seconds_max: 1 to 100000");
        self.check_topology()?;
        if let Some(overlay) = &self.overlay {
            overlay.check()?;
        } else {
            ensure!(
                !policies.iter().any(|policy| policy.virtual_lossless()),
                "sim.policies: the first letter speaks of the virtual network, and there is none: \
                 use LL and LZ, or add a table [overlay]"
            );
        }
        ensure!(
            (2..=4096).contains(&self.switch.buffer_kb),
            "switch.buffer_kb: 2 to 4096 (KB of a port)"
        );
        self.classes.check()?;
        self.check_tcp()?;
        self.check_load()?;
        self.check_noise()?;
        self.trace.as_ref().map_or(Ok(()), TracePlan::check)
    }

    fn check_topology(&self) -> anyhow::Result<()> {
        let hosts = self.topology.hosts();
        ensure!(
            (2..=1024).contains(&hosts),
            "topology: it has {hosts} hosts; give numbers that make 2 to 1024"
        );
        let (link_mbps, delay_ns) = self.topology.link();
        ensure!((1..=400_000).contains(&link_mbps), "topology.link_mbps: 1 to 400000");
        ensure!(delay_ns <= 1_000_000, "topology.delay_ns: 1000000 at most");
        if let Shape::LeafSpine { spine_mbps, spines, .. } = &self.topology {
            ensure!((1..=400_000).contains(spine_mbps), "topology.spine_mbps: 1 to 400000");
            ensure!(*spines > 0, "topology.spines: 1 at least");
        }
        if let Shape::FatTree { middles_per_pod, cores_per_middle, .. } = &self.topology {
            let ways = *middles_per_pod > 0 && *cores_per_middle > 0;
            ensure!(ways, "topology.middles_per_pod, topology.cores_per_middle: 1 at least");
        }
        link::check(self.topology.links(), hosts)
    }

    fn check_tcp(&self) -> anyhow::Result<()> {
        let tcp = &self.tcp;
        ensure!(tcp.initial_window != Some(0), "tcp.initial_window: 1 at least");
        ensure!(tcp.ack_every != Some(0), "tcp.ack_every: 1 at least");
        ensure!(
            tcp.ack_delay_us.is_none_or(|us| (1..=500_000).contains(&us)),
            "tcp.ack_delay_us: 1 to 500000 (RFC 1122 has half a second at most); tcp.ack_every = 1 \
             for no delay"
        );
        let small = |kb: Option<u32>| kb.is_some_and(|kb| !(4..=1 << 20).contains(&kb));
        ensure!(
            !small(tcp.send_buffer_kb) && !small(tcp.receive_buffer_kb),
            "tcp.send_buffer_kb, tcp.receive_buffer_kb: 4 to 1048576"
        );
        Ok(())
    }

    fn check_load(&self) -> anyhow::Result<()> {
        let stations = self.stations();
        match &self.workload {
            Load::Pa { sizes, queries, .. } => queries_fit(sizes, *queries),
            Load::Incast { senders, sizes, queries, .. } => {
                let others = stations - stations / self.topology.hosts();
                ensure!(
                    (1..=others).contains(senders),
                    "workload.senders: 1 to {others}, the machines of the other hosts"
                );
                queries_fit(sizes, *queries)
            }
            Load::Search { sizes, clients, message_bytes, queries, gap_us, .. } => {
                let is_tree = matches!(self.topology, Shape::FatTree { .. });
                ensure!(
                    *clients == 0 || (is_tree && *clients <= 256),
                    "workload.clients: 256 at most, at the cores of a topology of kind fat-tree"
                );
                ensure!(
                    message_bytes.is_none_or(|bytes| bytes > 0 && sizes.len() == 1),
                    "workload.message_bytes: 1 at least, and workload.sizes has one entry beside it"
                );
                ensure!(*gap_us > 0, "workload.gap_us: 1 at least");
                let vms = self.overlay.as_ref().map(|overlay| overlay.vms_per_host);
                ensure!(
                    vms == Some(3),
                    "overlay.vms_per_host: the workload search needs 3 (an aggregator of queries, \
                     one of a rack, and a worker)"
                );
                queries_fit(sizes, *queries)
            }
            Load::Permutation { shift, duration_ms } => {
                ensure!(
                    shift % stations != 0,
                    "workload.shift: {shift} leads every machine to itself; use 1 to {}",
                    stations - 1
                );
                ensure!((1..=60_000).contains(duration_ms), "workload.duration_ms: 1 to 60000");
                Ok(())
            }
            Load::UdpSources(load) => {
                load.check(stations - stations / self.topology.hosts(), self.mtu())
            }
        }
    }

    fn check_noise(&self) -> anyhow::Result<()> {
        let (sizes, load_percent, vm) = match &self.background {
            Noise::None => return Ok(()),
            Noise::UdpSources(noise) => {
                let vms = self.overlay.as_ref().map_or(1, |overlay| overlay.vms_per_host);
                return noise.check(vms, self.mtu());
            }
            Noise::Tcp { sizes, load_percent, vm } => (sizes, load_percent, vm),
            Noise::Udp { sizes, load_percent, vm, datagram_bytes, flow_mbps, .. } => {
                let most = self.mtu() - 28;
                ensure!(
                    (1..=u32::from(most)).contains(datagram_bytes),
                    "background.datagram_bytes: 1 to {most}, the MTU without headers"
                );
                ensure!(*flow_mbps > 0, "background.flow_mbps: 1 at least");
                (sizes, load_percent, vm)
            }
        };
        let names: Vec<&str> = Sizes::ALL.iter().map(|sizes| sizes.name).collect();
        ensure!(
            Sizes::by_name(sizes).is_some(),
            "background.sizes: there is no distribution {sizes}; there are: {}",
            names.join(", ")
        );
        ensure!((1..=100).contains(load_percent), "background.load_percent: 1 to 100");
        let vms = self.overlay.as_ref().map_or(1, |overlay| overlay.vms_per_host);
        ensure!(
            vm.is_none_or(|vm| vm < vms),
            "background.vm: below overlay.vms_per_host, which is {vms}"
        );
        Ok(())
    }
}

fn queries_fit(sizes: &[u32], queries: u32) -> anyhow::Result<()> {
    ensure!(
        !sizes.is_empty() && sizes.iter().all(|size| (1..=4096).contains(size)),
        "workload.sizes: full segments of an answer, each 1 to 4096"
    );
    ensure!((1..=1_000_000).contains(&queries), "workload.queries: 1 to 1000000");
    Ok(())
}

impl Overlay {
    fn check(&self) -> anyhow::Result<()> {
        ensure!((1..=64).contains(&self.vms_per_host), "overlay.vms_per_host: 1 to 64");
        ensure!((576..=9000).contains(&self.mtu), "overlay.mtu: 576 to 9000");
        ensure!(self.vm_mbps != Some(0), "overlay.vm_mbps: 1 at least; leave it out for no limit");
        let frames = [
            ("vm_frames", self.vm_frames),
            ("card_frames", self.card_frames),
            ("tunnel_frames", self.tunnel_frames),
            ("pool_frames", self.pool_frames),
        ];
        for (key, value) in frames {
            ensure!((2..=65_536).contains(&value), "overlay.{key}: 2 to 65536");
        }
        let small = |kb: Option<u64>| kb.is_some_and(|kb| !(2..=100_000).contains(&kb));
        ensure!(!small(self.vm_kb) && !small(self.card_kb), "overlay.*_kb: 2 to 100000");
        Ok(())
    }
}
