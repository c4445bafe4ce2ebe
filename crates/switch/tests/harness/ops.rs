//! Steps for a world, drawn from numbers, so that a shorter list of numbers is a smaller case.

use sluice_base::{
    Buf, InputId, Mac, Nanos, PortId, Priority, PriorityMask, Prng, TunnelId, VnetId,
};
use sluice_switch::{
    AttachError, Command, CommandError, Destination, InputFull, PortRole, PortState, Sources,
    Taken, Target, Trust, Window,
};

use super::config::{
    MTU, few_or_many, fitted, next_hop, pick, random, random_access, underlay_mac, vtep,
};
use super::frames::{Outer, Tenant, arp, in_vxlan, neighbor, pause, pfc};
use super::places;
use super::world::{CONTROL, TUNNELS, World};
use super::{Info, TestBuf};

/// Kind of the next step, and the seed of its details.
pub type Op = (u8, u32);

/// Returns the address `n` of a network.
pub fn address(vnet: u16, n: u8) -> Mac {
    Mac([2, 0, 0, 0, u8::try_from(vnet).unwrap(), n])
}

const ADDRESSES: u64 = 8;

/// Returns a world of a random configuration.
pub fn random_world(seed: u64) -> World {
    let mut rng = Prng::new(seed);
    let config = random(&mut rng);
    let mut world = World::new(&config, seed);
    if rng.chance(3, 4) {
        let pool = &config.pool;
        let frames = pool.from_local.frames + pool.from_underlay.frames + pool.replicated_frames;
        world.pool_size = frames as usize;
    }
    if rng.chance(1, 2) {
        world.attach(true);
    }
    for vnet in 0..u16::try_from(config.vnets.len()).unwrap() {
        for n in 0..u8::try_from(ADDRESSES).unwrap() {
            if rng.chance(1, 2) {
                install(&mut world, &mut rng, VnetId(vnet), address(vnet, n));
            }
        }
    }
    world
}

/// Runs steps, checks after every one, and drains the switch in the end.
pub fn run(seed: u64, ops: &[Op]) -> World {
    let mut world = random_world(seed);
    // Some drivers never take anything back while they run.
    let lazy = seed.is_multiple_of(4);
    for &op in ops {
        if lazy && matches!(op.0 % 32, 16..=18 | 29 | 31) {
            continue;
        }
        step(&mut world, op);
        world.check();
    }
    let mut rng = Prng::new(seed ^ 99);
    for tunnel in 0..world.config.tunnels.len() {
        if rng.chance(1, 2) && world.tunnels[tunnel] {
            set_next_hop(&mut world, tunnel, true);
        }
    }
    world.drain(|world| {
        while let Some((vnet, mac)) = world.misses.pop() {
            match rng.below(4) {
                0 => world.switch.command(world.now, Command::Reject { vnet, mac }).unwrap(),
                // No answer at all: the timeout ends it.
                1 => {}
                _ => install(world, &mut rng, vnet, mac),
            }
        }
    });
    world
}

fn step(world: &mut World, (kind, seed): Op) {
    let mut rng = Prng::new(u64::from(seed));
    match kind % 32 {
        0..=8 => {
            let input = any_input(world, &mut rng);
            receive(world, &mut rng, input);
        }
        9 => receive_everywhere(world, &mut rng),
        10..=15 => transmit(world, &mut rng),
        16..=18 => {
            let input = pick(&mut rng, u64::from(world.switch.pool_input().0) + 1);
            let count = 1 + few_or_many(&mut rng, 4, 100);
            world.reclaim(InputId(input), count as usize);
        }
        19 | 20 => {
            let input = pick(&mut rng, world.inputs.len() as u64 + 1);
            let room = pick(&mut rng, 6);
            world.copy_to_shared(InputId(input), room);
        }
        21..=24 => control(world, &mut rng),
        25 => match rng.chance(1, 4) {
            true => places::set_port(world, &mut rng),
            false => inject(world, &mut rng),
        },
        26 => match rng.below(8) {
            0 => detach(world, &mut rng),
            1..=3 => attach(world, &mut rng),
            4 => {
                let input = any_input(world, &mut rng);
                let room = if rng.chance(1, 2) { usize::MAX } else { pick(&mut rng, 6) };
                world.migrate_buffers(input, room);
            }
            _ => places::change(world, &mut rng),
        },
        27 | 28 => {
            let span = [100, 10_000, 300_000][pick::<usize>(&mut rng, 3)];
            let jump = rng.chance(1, 3).then(|| world.switch.deadline()).flatten();
            let later = world.now.after(Nanos(rng.below(span)));
            world.now = jump.unwrap_or(later).max(world.now);
            world.advance();
        }
        29 => world.service(),
        30 => world.notices(),
        _ => world.reclaim_all(),
    }
}

fn any_input(world: &World, rng: &mut Prng) -> InputId {
    InputId(pick(rng, world.inputs.len() as u64))
}

/// Receives frames up to the window, or a few.
fn receive(world: &mut World, rng: &mut Prng, input: InputId) {
    let window = world.switch.window(input);
    let most = if rng.chance(1, 4) { window.frames } else { window.frames.min(pick(rng, 5)) };
    if rng.chance(1, 8) && !world.detached[world.inputs[input.index()].index()] {
        // Flow control comes whatever the window is.
        let bytes = flow_control_bytes(world, rng, input);
        world.hear(input, &bytes);
    }
    receive_window(world, rng, input, Window { frames: most, ..window });
}

fn receive_window(world: &mut World, rng: &mut Prng, input: InputId, window: Window) {
    let classifier = world.switch.classifier(input);
    let mut bufs = Vec::new();
    let mut sum = 0;
    // Frames that its driver would set aside do not come.
    let mut tries = window.frames;
    while tries > 0 && sum < window.bytes.0 {
        tries -= 1;
        let paused_until = world.oracle.paused_until();
        let buf = frame(world, rng, input);
        if window.closed.contains(classifier.priority(buf.head(), buf.size(), buf.tag)) {
            buf.hand_back();
            world.oracle.set_paused_until(paused_until);
            continue;
        }
        sum += u64::from(buf.size());
        bufs.push(buf);
    }
    world.receive(input, bufs);
}

/// Receives at all inputs at once: promises made at the same time must hold for all of them.
fn receive_everywhere(world: &mut World, rng: &mut Prng) {
    let windows: Vec<_> = (0..world.inputs.len())
        .map(|at| (InputId::from_index(at), world.switch.window(InputId::from_index(at))))
        .collect();
    for (input, window) in windows {
        receive_window(world, rng, input, window);
    }
}

fn transmit(world: &mut World, rng: &mut Prng) {
    let Some(port) = any_port(world, rng) else { return };
    let mut room = match rng.below(4) {
        0 => u64::MAX,
        1 => 0,
        _ => rng.below(6),
    };
    world.never_takes = 7;
    // Some receivers behind the port may have no room, until it is resumed.
    let has_receivers = rng.chance(1, 3);
    let full = pick::<u16>(rng, 4);
    if rng.chance(1, 4) {
        world.switch.resume_port(port);
    }
    world.transmit_to(port, |info| {
        if has_receivers && info.is_some_and(|info| info.from % 4 == full) {
            return Taken::Later;
        }
        room = room.saturating_sub(1);
        if room > 0 { Taken::All } else { Taken::No }
    });
}

fn any_port(world: &World, rng: &mut Prng) -> Option<PortId> {
    let ports: Vec<PortId> = world.ports().collect();
    (!ports.is_empty()).then(|| ports[pick::<usize>(rng, ports.len() as u64)])
}

/// Returns any frame that a port can get.
fn frame(world: &mut World, rng: &mut Prng, input: InputId) -> TestBuf {
    let port = world.inputs[input.index()];
    let role = world.config.ports[port.index()].role;
    match (rng.below(24), role) {
        (0, _) => garbage(world, rng, input),
        (1, _) => flow_control(world, rng, input),
        (_, PortRole::Access { vnet }) => from_tenant(world, rng, input, vnet.0),
        (_, PortRole::Underlay { .. }) => from_underlay(world, rng, input),
        (_, PortRole::Handoff) => unreachable!("random configurations have none"),
    }
}

fn info(world: &mut World, port: PortId) -> Info {
    Info {
        id: world.next_id(),
        from: 0,
        port: port.0,
        vnet: 0,
        dst: Mac::BROADCAST,
        priority: Priority::ZERO,
        valid: false,
    }
}

fn garbage(world: &mut World, rng: &mut Prng, input: InputId) -> TestBuf {
    let info = info(world, world.inputs[input.index()]);
    let size = rng.below(120);
    let mut bytes: Vec<u8> = (0..size).map(|_| pick(rng, 256)).collect();
    if let Some(first) = bytes.first_mut().filter(|_| rng.chance(1, 2)) {
        *first = 2;
    }
    world.buf(input, info, bytes)
}

fn flow_control(world: &mut World, rng: &mut Prng, input: InputId) -> TestBuf {
    let port = world.inputs[input.index()];
    let info = info(world, port);
    let bytes = flow_control_bytes(world, rng, input);
    world.buf(input, info, bytes)
}

fn flow_control_bytes(world: &mut World, rng: &mut Prng, input: InputId) -> Vec<u8> {
    let port = world.inputs[input.index()];
    let quanta: u16 = if rng.chance(1, 3) { 0 } else { pick(rng, 2_000) };
    let enabled: u8 = if rng.chance(1, 2) { 1 << rng.below(8) } else { pick(rng, 256) };
    if rng.chance(1, 3) {
        world.oracle.paused(world.now, port.index(), 0xff, [quanta; 8]);
        pause(quanta)
    } else {
        world.oracle.paused(world.now, port.index(), enabled, [quanta; 8]);
        pfc(enabled, [quanta; 8])
    }
}

fn destination(rng: &mut Prng, vnet: u16) -> Mac {
    match rng.below(16) {
        0 => Mac::BROADCAST,
        1 => Mac([0x33, 0x33, 0, 0, 0, 1]),
        // An address that is seldom known.
        2 => address(vnet, 100 + pick::<u8>(rng, 100)),
        _ => address(vnet, pick(rng, ADDRESSES)),
    }
}

/// Returns the sender: mostly the same one.
fn source(rng: &mut Prng, vnet: u16) -> Mac {
    match rng.below(8) {
        0 => address(vnet, pick(rng, ADDRESSES)),
        1 => Mac([2, 1, 0, 0, 0, pick(rng, 250)]),
        _ => Mac([2, 1, 0, 0, 0, 1]),
    }
}

/// Returns an ARP or ND frame.
fn of_neighbors(rng: &mut Prng, tenant: &Tenant) -> Vec<u8> {
    let dst = if rng.chance(1, 2) { Mac::BROADCAST } else { tenant.dst };
    if rng.chance(2, 3) {
        return arp(dst, tenant.src, [192, 168, 0, 1].into());
    }
    let ip = std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    neighbor(dst, tenant.src, ip, ip)
}

fn tenant(rng: &mut Prng, vnet: u16) -> Tenant {
    let size = match rng.below(6) {
        0 => u32::from(MTU) + 14,
        // Too large for every port.
        1 if rng.chance(1, 8) => u32::from(MTU) + 15,
        2 => 60 + pick::<u32>(rng, 1_400),
        _ => 60,
    };
    let dscp: u8 = if rng.chance(1, 2) { 0 } else { pick(rng, 64) };
    let mut tenant = Tenant::new(destination(rng, vnet), source(rng, vnet), dscp, size);
    if rng.chance(1, 8) {
        tenant.pcp = Some(pick(rng, 8));
        tenant.size += 4;
    }
    tenant.ecn = pick(rng, 4);
    tenant
}

fn from_tenant(world: &mut World, rng: &mut Prng, input: InputId, vnet: u16) -> TestBuf {
    let port = world.inputs[input.index()];
    let config = &world.config.ports[port.index()];
    let tenant = tenant(rng, vnet);
    if rng.chance(1, 8) {
        let bytes = of_neighbors(rng, &tenant);
        let is_arp = bytes[12..14] == [0x08, 0x06];
        let priority = match config.trust {
            Trust::PcpThenDscp if !is_arp => Priority::ZERO,
            _ => config.default_priority,
        };
        let dst = Mac(bytes[..6].try_into().unwrap());
        let info = Info { from: input.0, vnet, dst, priority, valid: true, ..info(world, port) };
        return world.buf(input, info, bytes);
    }
    let priority = match (config.trust, tenant.pcp) {
        (Trust::Nothing, _) => config.default_priority,
        (Trust::PcpThenDscp, Some(pcp)) => Priority::new(pcp).unwrap(),
        (Trust::PcpThenDscp, None) => Priority::new(tenant.dscp >> 3).unwrap(),
    };
    let info =
        Info { from: input.0, vnet, dst: tenant.dst, priority, valid: true, ..info(world, port) };
    world.buf(input, info, tenant.bytes())
}

fn from_underlay(world: &mut World, rng: &mut Prng, input: InputId) -> TestBuf {
    let port = world.inputs[input.index()];
    let vnet: u16 = pick(rng, world.config.vnets.len() as u64);
    let tunnel: u16 = pick(rng, world.config.tunnels.len() as u64 + 1);
    let tenant = tenant(rng, vnet);
    let outer = Outer {
        dst: underlay_mac(if rng.chance(1, 30) { 9 } else { 1 }),
        remote: vtep(2 + u8::try_from(tunnel).unwrap()),
        local: vtep(1),
        vni: if rng.chance(1, 30) { 7 } else { 100 + u32::from(vnet) },
        dscp: pick(rng, 64),
        ecn: pick(rng, 4),
        pcp: None,
    };
    let config = &world.config.ports[port.index()];
    let priority = match config.trust {
        Trust::Nothing => config.default_priority,
        Trust::PcpThenDscp => Priority::new(outer.dscp >> 3).unwrap(),
    };
    let queue = input.0 - world.switch.input(port, 0).0;
    let from = TUNNELS + tunnel * 8 + queue;
    let info = Info { from, vnet, dst: tenant.dst, priority, valid: true, ..info(world, port) };
    world.buf(input, info, in_vxlan(&outer, &tenant.bytes()))
}

/// Returns a network that is there.
pub fn any_vnet(world: &World, rng: &mut Prng) -> VnetId {
    let there = world.vnets.iter().enumerate().filter(|(_, is_there)| **is_there);
    let there: Vec<usize> = there.map(|(at, _)| at).collect();
    VnetId::from_index(there[pick::<usize>(rng, there.len() as u64)])
}

/// Puts an address somewhere in its network.
pub fn install(world: &mut World, rng: &mut Prng, vnet: VnetId, mac: Mac) {
    let mut places: Vec<Destination> = world
        .ports()
        .filter(|p| world.config.ports[p.index()].role == PortRole::Access { vnet })
        .map(Destination::Port)
        .collect();
    places.extend(world.config.vnets[vnet.index()].tunnels.iter().map(|t| Destination::Tunnel(*t)));
    if places.is_empty() {
        return;
    }
    // Mostly the place where it was before: it was evicted, and did not move.
    let usual = usize::from(mac.0[5]) % places.len();
    let to = if rng.chance(3, 4) { usual } else { pick(rng, places.len() as u64) };
    world.command(Command::Install { vnet, mac, to: places[to] });
}

fn set_next_hop(world: &mut World, tunnel: usize, up: bool) {
    let mac = up.then(|| next_hop(tunnel));
    world.switch.set_next_hop(world.now, TunnelId::from_index(tunnel), mac).unwrap();
}

fn control(world: &mut World, rng: &mut Prng) {
    let vnet = any_vnet(world, rng);
    let mut mac = address(vnet.0, pick(rng, ADDRESSES));
    match rng.below(12) {
        8 => attachment(world, rng),
        9 => binding(world, rng),
        10 => forget(world, rng),
        11 => {
            let _ = world.switch.used_since(pick(rng, 100), |_, _, _| {});
        }
        0 => world.switch.command(world.now, Command::Remove { vnet, mac }).unwrap(),
        1 => {
            let mut at = vnet;
            if let Some((vnet, waiting)) = world.misses.pop() {
                (at, mac) = (vnet, waiting);
            }
            world.switch.command(world.now, Command::Reject { vnet: at, mac }).unwrap();
        }
        2 if !world.config.tunnels.is_empty() => {
            let tunnel = pick::<usize>(rng, world.config.tunnels.len() as u64);
            let up = rng.chance(1, 2);
            if world.tunnels[tunnel] {
                set_next_hop(world, tunnel, up);
            }
        }
        3 => install(world, rng, vnet, mac),
        _ => {
            if let Some((vnet, mac)) = world.misses.pop() {
                install(world, rng, vnet, mac);
            }
        }
    }
}

/// Attaches or detaches a control plane, seldom.
fn attachment(world: &mut World, rng: &mut Prng) {
    if rng.chance(1, 4) {
        let attached = rng.chance(2, 3);
        world.attach(attached);
    }
}

/// Binds a machine to a port, or unbinds it.
fn binding(world: &mut World, rng: &mut Prng) {
    let Some(port) = any_port(world, rng) else { return };
    let mac = source(rng, 0);
    if world.config.ports[port.index()].sources != Sources::Bound {
        let refused = world.switch.bind(port, mac, [None; 4]);
        assert!(refused.is_err());
        return;
    }
    if rng.chance(3, 4) {
        world.switch.bind(port, mac, [None; 4]).unwrap();
        world.bound.insert((port, mac));
    } else {
        world.command(Command::Unbind { port, mac, ip: None });
        world.bound.remove(&(port, mac));
    }
}

/// Holds or releases a destination, as its host would ask.
fn hold(world: &mut World, rng: &mut Prng) {
    let vnet = any_vnet(world, rng);
    let Some(&tunnel) = world.config.vnets[vnet.index()].tunnels.first() else { return };
    let mac = address(vnet.0, pick(rng, ADDRESSES));
    let held = PriorityMask(if rng.chance(1, 3) { 0 } else { pick(rng, 256) });
    let stuck = PriorityMask(if rng.chance(2, 3) { 0 } else { pick(rng, 256) });
    let hold = Command::Hold { vnet, mac, tunnel, held, stuck };
    match world.switch.command(world.now, hold) {
        Ok(()) | Err(CommandError::TooManyHeld) => {}
        Err(error) => panic!("{error:?}"),
    }
}

/// Forgets a decap flow; its next event is a new one.
fn forget(world: &mut World, rng: &mut Prng) {
    if world.config.isolation.is_some() && rng.chance(3, 4) {
        hold(world, rng);
        return;
    }
    let vnet = any_vnet(world, rng);
    let Some(&tunnel) = world.config.vnets[vnet.index()].tunnels.first() else { return };
    world.notices();
    world.command(Command::ForgetDecap { vnet, tunnel });
    world.flows.remove(&(vnet, tunnel));
}

fn inject(world: &mut World, rng: &mut Prng) {
    let vnet: u16 = any_vnet(world, rng).0;
    let tenant = Tenant { pcp: None, size: 60, ..tenant(rng, vnet) };
    let input = world.switch.control_input();
    let mut info = Info {
        from: CONTROL,
        vnet,
        dst: tenant.dst,
        priority: Priority::new(7).unwrap(),
        ..info(world, PortId(u16::MAX))
    };
    let tunnel = world.config.vnets[usize::from(vnet)].tunnels.first();
    let target = match any_port(world, rng).filter(|_| rng.chance(1, 3)) {
        Some(_) if tunnel.is_some() && rng.chance(1, 2) => {
            Target::Tunnel(VnetId(vnet), *tunnel.unwrap())
        }
        Some(port) => Target::Port(port),
        None => {
            info.valid = true;
            Target::Address(VnetId(vnet), tenant.dst)
        }
    };
    let bytes = tenant.bytes();
    let buf = world.buf(input, info, bytes);
    if let Err(buf) = world.switch.inject(world.now, buf, target) {
        buf.hand_back();
    }
}

fn detach(world: &mut World, rng: &mut Prng) {
    let Some(port) = any_port(world, rng) else { return };
    let detached = world.unplug(port);
    if rng.chance(1, 3) {
        // Its driver is slow.
        let first = world.switch.input(port, 0).index();
        let queues = usize::from(world.config.ports[port.index()].queues);
        let handles: usize = world.out[first..first + queues].iter().sum();
        assert_eq!(handles, detached.handles as usize, "handles of a detached port");
        return;
    }
    let mut handles = 0;
    for queue in 0..world.config.ports[port.index()].queues {
        let input = world.switch.input(port, queue);
        while let count @ 1.. = world.reclaim(input, 7) {
            handles += count;
        }
    }
    assert_eq!(handles, detached.handles as usize, "handles of a detached port");
}

/// Attaches a port, mostly one that fits somewhere.
fn attach(world: &mut World, rng: &mut Prng) {
    let mut port = random_access(rng, world.config.vnets.len() as u64);
    if let PortRole::Access { vnet } = &mut port.role
        && !world.vnets[vnet.index()]
    {
        *vnet = any_vnet(world, rng);
    }
    let spare_port = pick::<usize>(rng, world.spare_ports.len() as u64);
    let is_access = matches!(world.spare_ports[spare_port].role, PortRole::Access { .. });
    let fits = is_access && rng.chance(7, 8);
    if fits {
        port = fitted(port, &world.spare_ports[spare_port]);
    }
    let state = world.switch.port_state(PortId::from_index(spare_port));
    match world.plug(&port) {
        Ok(port) => probe(world, port),
        Err(AttachError::TooLarge) => assert!(!fits, "it fits into a bay"),
        Err(AttachError::Full) => assert!(!fits || state == PortState::Attached),
        Err(AttachError::Busy) => assert!(!fits || state != PortState::Free),
        Err(error) => panic!("{error:?}"),
    }
}

/// Checks that a broadcast in the network of a port reaches all of its members, the port included.
fn probe(world: &mut World, port: PortId) {
    let PortRole::Access { vnet } = world.config.ports[port.index()].role else { return };
    let is_member = |p: &PortId| world.config.ports[p.index()].role == PortRole::Access { vnet };
    let members: Vec<PortId> = world.ports().filter(is_member).collect();
    assert!(members.contains(&port));
    let Some(&from) = members.iter().find(|p| **p != port) else { return };
    let input = world.switch.input(from, 0);
    if world.switch.held(input).frames > 0 || world.switch.window(input).of_any().frames == 0 {
        return;
    }
    let sums = |world: &World| {
        let audit = world.switch.audit();
        (audit.total(|row| row.frames.copied), audit.total(|row| row.frames.dropped))
    };
    let before = sums(world);
    let tenant = Tenant::new(Mac::BROADCAST, address(vnet.0, 1), 0, 60);
    let config = &world.config.ports[from.index()];
    let trusted = config.trust == Trust::PcpThenDscp;
    let priority = if trusted { Priority::ZERO } else { config.default_priority };
    let info = Info {
        from: input.0,
        vnet: vnet.0,
        dst: tenant.dst,
        priority,
        valid: true,
        ..info(world, from)
    };
    let buf = world.buf(input, info, tenant.bytes());
    world.receive(input, vec![buf]);
    world.copy_to_shared(input, 1);
    let after = sums(world);
    let receivers = members.len() - 1 + world.config.vnets[vnet.index()].tunnels.len();
    // The broadcast or a copy of it may have found no room.
    if after.1 == before.1 {
        assert_eq!(after.0 - before.0, receivers as u64 - 1, "copies of a broadcast");
    }
}

/// Returns the number of pauses of inputs, for tests that check that there were any.
pub fn pauses(world: &World) -> u64 {
    let mut count = 0;
    for port in 0..world.config.ports.len() {
        if matches!(world.config.ports[port].input_full, InputFull::Pause(_)) {
            for priority in Priority::all() {
                let state = world.switch.pause_state(world.now, PortId::from_index(port), priority);
                count += state.xoff_sent;
            }
        }
    }
    count
}
