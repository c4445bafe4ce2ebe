//! Sizes of the tables of a new switch, from its configuration.

use sluice_base::{Priority, PriorityMask};

use crate::config::{InputFull, PortConfig, PortRole, SwitchConfig};

/// Frames that a driver may have received beyond the limit of an input, because they end at once:
/// the largest batch.
pub(crate) const BATCH_MAX: u32 = 64;
/// Frames that control may have in the switch.
pub(crate) const CONTROL_FRAMES: u32 = 64;

/// Returns the set of priorities that `has` selects.
pub(crate) fn mask_of(has: impl Fn(usize) -> bool) -> PriorityMask {
    let mut mask = PriorityMask::NONE;
    for priority in Priority::all().filter(|p| has(p.index())) {
        mask.insert(priority);
    }
    mask
}

/// Returns the priorities that frames of a queue may have.
pub(crate) fn priorities_of(port: &PortConfig, queue: u8) -> PriorityMask {
    match port.role {
        PortRole::Access { .. } => {
            port.queue_priorities.get(usize::from(queue)).copied().unwrap_or(PriorityMask::ALL)
        }
        PortRole::Underlay { .. } | PortRole::Handoff => PriorityMask::ALL,
    }
}

/// Returns the first queue group of held destinations, which have the last queue groups.
pub(crate) fn first_hold_group(config: &SwitchConfig) -> usize {
    let unresolved = usize::from(config.unresolved.destinations);
    config.ports.len() + config.tunnel_places() + unresolved
}

/// Returns the number of destinations that may be held at a time.
pub(crate) fn holds_max(config: &SwitchConfig) -> usize {
    config.isolation.map_or(0, |isolation| isolation.holds.into())
}

/// Returns the size up to which a frame needs no further checks, by its MTU. It is below the
/// largest number, with which a driver tells that a frame is not plain
/// ([`sluice_base::Buf::plain_size`]).
pub(crate) fn plain_size_max(mtu: u16) -> u16 {
    mtu.saturating_add(14).min(u16::MAX - 1)
}

/// Returns the number of frames that can be in the switch at the same time.
pub(crate) fn slot_count(config: &SwitchConfig) -> u64 {
    let pool = &config.pool;
    let mut count = u64::from(CONTROL_FRAMES) * 2 + buffer_count(config);
    for frames in [pool.replicated_frames, pool.from_local.frames, pool.from_underlay.frames] {
        count += u64::from(frames);
    }
    count += config.isolation.map_or(0, |isolation| u64::from(isolation.reserve.frames));
    // A lossy frame with a remote reference has left the buffer of its output.
    count += u64::from(config.handoff.remote_refs_max());
    for (at, port) in config.ports.iter().enumerate() {
        if config.handoff.is_elsewhere(at) && !config.handoff.is_movable(at) {
            continue;
        }
        let priorities = match port.input_full {
            // Each paused priority may fill the buffer, and so may the others together.
            InputFull::Pause(pause) => pause.priorities.0.count_ones() + 1,
            InputFull::Wait | InputFull::Drop => 1,
        };
        let frames = u64::from(port.input.frames) * u64::from(priorities) + u64::from(BATCH_MAX);
        count += frames * u64::from(port.queues);
    }
    let groups = config.ports.len() as u64 + config.tunnel_places() as u64;
    count + groups * u64::from(pool.copies_per_group)
}

/// Returns the number of slots that an input has for itself. Each paused priority may fill the
/// buffer, and so may the others together.
pub(crate) fn own_slots(frames: u32, full: InputFull) -> u32 {
    let priorities = match full {
        InputFull::Pause(pause) => pause.priorities.0.count_ones() + 1,
        InputFull::Wait | InputFull::Drop => 1,
    };
    frames * priorities + BATCH_MAX
}

/// Returns the number of slots for lossy frames that wait for an output or to be resolved.
pub(crate) fn buffer_count(config: &SwitchConfig) -> u64 {
    let mut count = u64::from(config.unresolved.frames);
    if config.classes.iter().all(|class| class.lossless) {
        return count;
    }
    let groups = config
        .ports
        .iter()
        .chain(config.tunnels.iter().filter_map(|tunnel| config.ports.get(tunnel.port.index())));
    for port in groups {
        count += u64::from(port.output.frames);
    }
    // A spare tunnel may lead through any underlay.
    let underlays = config.ports.iter().filter(|p| matches!(p.role, PortRole::Underlay { .. }));
    let most = underlays.map(|port| u64::from(port.output.frames)).max().unwrap_or(0);
    count + most * config.spare_places.tunnels.len() as u64
}
