//! One configuration for several switches of a host.

use sluice_base::{ByteCount, PortId, Priority, PriorityMask};

use crate::config::{
    InputFull, Limit, PortConfig, PortRole, Sources, SwitchConfig, Tags, Trust, remote_refs_of,
};

impl SwitchConfig {
    /// Returns the configuration of switch `me` of `count` that share these ports. `owners` gives
    /// the switch that reads and writes each port; `None`: every switch has a driver of its own for
    /// the port, which gets a part of the incoming frames. Behind the ports come `count` ports of
    /// [`PortRole::Handoff`], number `ports + n` to switch `n`; the one to itself is not used, and
    /// keeps the numbers the same in all switches. The ports of `movable` may migrate.
    ///
    /// # Panics
    /// If `owners` is not as long as the list of ports.
    #[must_use]
    pub fn shard(
        &self,
        owners: &[Option<usize>],
        movable: &[PortId],
        count: usize,
        me: usize,
        refs_max: u16,
    ) -> Self {
        assert!(owners.len() == self.ports.len(), "each port has an owner");
        let mut shard = self.clone();
        let is_here = |owner: &Option<usize>| owner.is_none_or(|owner| owner == me);
        let elsewhere = owners.iter().enumerate().filter(|(_, owner)| !is_here(owner));
        shard.handoff.elsewhere = elsewhere.map(|(at, _)| PortId::from_index(at)).collect();
        shard.handoff.movable = movable.to_vec();
        shard.handoff.refs_max = refs_max;
        for port in &shard.handoff.elsewhere {
            let port = &mut shard.ports[port.index()];
            // The owner of the port applies these settings.
            (port.rate, port.group_rate, port.rx_pause) = (None, None, false);
            if let InputFull::Pause(_) = port.input_full {
                port.input_full = InputFull::Wait;
            }
        }
        let may_be_here = |(at, owner): &(usize, &Option<usize>)| {
            is_here(owner) || movable.contains(&PortId::from_index(*at))
        };
        let own = owners.iter().enumerate().filter(may_be_here).count();
        let handoff = handoff_port(remote_refs_of(own, refs_max));
        shard.ports.extend(core::iter::repeat_n(handoff, count));
        let bound = |port: PortId| is_here(&owners[port.index()]);
        shard.control.bindings.retain(|binding| bound(binding.port));
        shard.control.allowed.retain(|(port, _)| bound(*port));
        shard
    }

    /// Returns the handoff port to switch `other`, in a configuration of so many shared ports.
    #[must_use]
    pub fn handoff_port(ports: usize, other: usize) -> PortId {
        PortId::from_index(ports + other)
    }
}

/// Returns a handoff port at which so many frames come in at a time.
fn handoff_port(frames: u32) -> PortConfig {
    // Each frame was received by a port with an MTU of its own.
    let limit = Limit { frames: frames.max(1), bytes: ByteCount(u64::MAX) };
    PortConfig {
        role: PortRole::Handoff,
        queues: 1,
        queue_priorities: [PriorityMask::ALL; Priority::COUNT],
        input: limit,
        input_full: InputFull::Wait,
        output: limit,
        rate: None,
        group_rate: None,
        mtu: u16::MAX,
        rx_pause: false,
        trust: Trust::Nothing,
        default_priority: Priority::ZERO,
        sources: Sources::Any,
        tags: Tags::Kept,
        hold: Default::default(),
        is_offloaded: false,
    }
}
