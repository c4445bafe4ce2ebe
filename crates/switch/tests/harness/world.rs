//! A switch with its drivers, its control plane and an oracle. The oracle knows only the promises
//! of a switch, and nothing of its implementation.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use sluice_base::{
    Batch, BitRate, Buf, DropClass, DropReason, InputId, Mac, Nanos, PortId, Priority,
    PriorityMask, TunnelId, VlanTag, VnetId,
};
use sluice_switch::{
    AttachError, Command, Counter, Destination, Detached, Egress, InputFull, Notice, PlaceState,
    PortConfig, PortRole, PortState, PortValues, PuntCause, QueueGroupKind, RateLimit, Sources,
    SparePlaces, Switch, SwitchConfig, Tags, Taken, TunnelConfig, VnetConfig,
};
use sluice_wire::{ethernet, ipv4, vxlan};

use super::frames::{Outer, Tenant, in_vxlan, on_wire};
use super::{Info, Ledger, Owner, TestBuf};

/// More than any bucket holds.
const LEVEL_MAX: i128 = 1 << 90;

/// A token bucket in bits times nanoseconds, kept exactly.
#[derive(Debug)]
struct Meter {
    limit: RateLimit,
    level: i128,
    at: Nanos,
    sent: i128,
}

impl Meter {
    fn new(limit: RateLimit, now: Nanos) -> Self {
        // All of the unused time before the start may have been earned.
        Self { limit, level: LEVEL_MAX, at: now, sent: 0 }
    }

    /// Takes another limit: time that was earned or is owed stays.
    fn change(&mut self, limit: RateLimit, now: Nanos) {
        let (old, new) = (i128::from(self.limit.rate.0), i128::from(limit.rate.0));
        let level = self.level + old * i128::from(now.since(self.at).0);
        // Rounded up, as a frame must not be refused that the switch may send. How much of unused
        // time counts is decided by the limit under which it is used.
        let ns = level.div_euclid(old) + 1;
        *self = Self { limit, level: (ns * new).min(LEVEL_MAX), at: now, sent: 0 };
    }

    /// Takes a frame that is sent. It may overdraw by itself, but must not start overdrawn.
    fn send(&mut self, now: Nanos, size: u32, waits: bool) {
        let rate = i128::from(self.limit.rate.0);
        let earned = rate * i128::from(now.since(self.at).0);
        self.level = (self.level + earned).min(rate * i128::from(self.limit.catch_up.0));
        self.at = now;
        // Two nanoseconds, and a few parts in a million of rounding.
        let slack = 2 * rate + self.sent / 300_000;
        assert!(!waits || self.level >= -slack, "the rate is exceeded: {self:?}");
        let bits = i128::from(size + u32::from(self.limit.overhead)) * 8 * 1_000_000_000;
        self.level -= bits;
        self.sent += bits;
    }
}

/// Fills the spare places of a configuration with anything. Returns which places are in use.
fn with_spare_places(config: &mut SwitchConfig) -> (Vec<bool>, Vec<bool>) {
    let (vnets, tunnels) = (config.vnets.len(), config.tunnels.len());
    let SparePlaces { vnets: spare_vnets, tunnels: spare_tunnels } =
        std::mem::take(&mut config.spare_places);
    assert!(spare_vnets.iter().all(|spare| spare.index() >= vnets), "spare places come last here");
    let vnet = VnetConfig { vni: None, mtu: 0, tunnels: Vec::new() };
    config.vnets.resize(vnets + spare_vnets.len(), vnet);
    let tunnel = TunnelConfig {
        port: PortId(u16::MAX),
        remote: std::net::Ipv4Addr::UNSPECIFIED,
        next_hop: None,
        foreign: false,
    };
    config.tunnels.resize(tunnels + spare_tunnels.len(), tunnel);
    let in_use = |count: usize, all: usize| (0..all).map(|at| at < count).collect();
    (in_use(vnets, config.vnets.len()), in_use(tunnels, config.tunnels.len()))
}

/// (sender, network, destination, priority, port, tunnel)
type Flow = (u16, u16, Mac, Priority, u16, Option<u16>);

/// A frame that a driver took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub port: usize,
    /// `None` for a pause frame.
    pub info: Option<Info>,
    pub bytes: Vec<u8>,
    pub size: u32,
    pub priority: Priority,
    pub tunnel: Option<u16>,
}

/// Checks the frames that come out.
#[derive(Debug)]
pub struct Oracle {
    /// Frames that came out, while they are recorded.
    pub log: Option<Vec<Sent>>,
    config: SwitchConfig,
    last: BTreeMap<Flow, u64>,
    delivered: BTreeSet<u64>,
    /// Frames that must not come out: control took them, or their source is spoofed.
    pub ended: BTreeSet<u64>,
    paused_until: Vec<[Nanos; 8]>,
    meters: Vec<Option<Meter>>,
    groups: BTreeMap<(u16, Option<u16>), Meter>,
    /// Addresses behind each port that attached while the switch ran.
    behind: BTreeMap<usize, BTreeSet<(VnetId, Mac)>>,
    /// Frames taken, tenants' and flow control.
    pub taken: u64,
    /// Frames offered.
    pub offered: u64,
}

impl Oracle {
    fn new(config: &SwitchConfig, now: Nanos) -> Self {
        Self {
            log: None,
            config: config.clone(),
            last: BTreeMap::new(),
            delivered: BTreeSet::new(),
            ended: BTreeSet::new(),
            paused_until: vec![[Nanos::ZERO; 8]; config.ports.len()],
            meters: config.ports.iter().map(|p| p.rate.map(|r| Meter::new(r, now))).collect(),
            groups: BTreeMap::new(),
            behind: BTreeMap::new(),
            taken: 0,
            offered: 0,
        }
    }

    /// Resets the state of a port for one that attaches while the switch runs.
    fn plug(&mut self, now: Nanos, port: usize, config: &PortConfig) {
        self.config.ports[port] = config.clone();
        self.paused_until[port] = [Nanos::ZERO; 8];
        self.meters[port] = config.rate.map(|rate| Meter::new(rate, now));
        self.groups.retain(|(of, _), _| usize::from(*of) != port);
        self.behind.insert(port, BTreeSet::new());
    }

    /// Notes another rate of a port.
    fn set_rate(&mut self, now: Nanos, port: usize, rate: Option<RateLimit>) {
        match (&mut self.meters[port], rate) {
            (Some(meter), Some(rate)) => meter.change(rate, now),
            (meter, rate) => *meter = rate.map(|rate| Meter::new(rate, now)),
        }
    }

    /// Notes a network that came.
    pub fn set_vnet(&mut self, at: usize, config: VnetConfig) {
        self.config.vnets[at] = config;
    }

    /// Notes a tunnel that came.
    pub fn set_tunnel(&mut self, at: usize, config: TunnelConfig) {
        self.config.tunnels[at] = config;
        let port = config.port.0;
        self.groups.remove(&(port, Some(TunnelId::from_index(at).0)));
    }

    /// Notes a pause frame that came in at a port.
    pub fn paused(&mut self, now: Nanos, port: usize, enabled: u8, quanta: [u16; 8]) {
        let config = &self.config.ports[port];
        if !config.rx_pause {
            return;
        }
        let link = match (config.input_full, config.rate) {
            (InputFull::Pause(pause), _) => pause.link,
            (_, Some(rate)) => rate.rate,
            _ => BitRate::from_gbps(10),
        };
        for p in (0..8).filter(|p| enabled >> p & 1 == 1) {
            let nanos = u128::from(quanta[p]) * 512 * 1_000_000_000 / u128::from(link.0);
            self.paused_until[port][p] = now.after(Nanos(u64::try_from(nanos).unwrap()));
        }
    }

    /// Returns the ends of all pauses, by port and priority.
    pub fn paused_until(&self) -> Vec<[Nanos; 8]> {
        self.paused_until.clone()
    }

    /// Takes back the pause frames since [`Self::paused_until`].
    pub fn set_paused_until(&mut self, until: Vec<[Nanos; 8]>) {
        self.paused_until = until;
    }

    /// Returns true if a priority of a port is paused.
    pub fn is_paused(&self, now: Nanos, port: usize, priority: Priority) -> bool {
        now < self.paused_until[port][priority.index()]
    }

    /// Checks a frame that is offered to the driver of `port`.
    pub fn offer(&mut self, now: Nanos, port: usize, egress: &Egress<'_, TestBuf>, takes: bool) {
        self.offered += 1;
        if let Some(buf) = egress.buf {
            assert!(!self.is_paused(now, port, egress.priority), "sent while paused");
            self.check_frame(port, egress, buf);
        } else {
            assert_eq!((egress.header.len(), egress.size, egress.strip), (60, 60, 0));
        }
        if takes {
            self.take(now, port, egress);
        }
    }

    fn check_frame(&self, port: usize, egress: &Egress<'_, TestBuf>, buf: &TestBuf) {
        let bytes = on_wire(egress);
        let size = egress.header.len() + buf.size() as usize - usize::from(egress.strip);
        assert_eq!(size, egress.size as usize, "the size on the wire");
        assert!(!self.ended.contains(&buf.info.id), "it had ended: {:?}", buf.info);
        assert!(bytes.len() <= egress.size as usize);
        let role = self.config.ports[port].role;
        assert_eq!(
            egress.tunnel.is_some() || buf.info.from == CONTROL,
            matches!(role, PortRole::Underlay { .. }) || buf.info.from == CONTROL
        );
        if !buf.info.valid {
            return;
        }
        let info = &buf.info;
        assert_eq!(egress.priority, info.priority, "{info:?}");
        assert_ne!(usize::from(info.port), port, "back to where it came from: {info:?}");
        let from_tunnel = (TUNNELS..CONTROL).contains(&info.from);
        let inner = match (egress.tunnel, role) {
            (None, PortRole::Access { vnet }) => {
                assert_eq!(vnet, VnetId(info.vnet), "into another network: {info:?}");
                let behind = self.behind.get(&port);
                let is_there = |set: &BTreeSet<_>| set.contains(&(vnet, info.dst));
                let is_meant = info.dst.is_group() || behind.is_none_or(is_there);
                assert!(is_meant, "for a port that is gone: {info:?}");
                assert_eq!(egress.size, buf.size() - if from_tunnel { 50 } else { 0 });
                &bytes[..]
            }
            (Some(tunnel), PortRole::Underlay { local, mac }) => {
                assert!(!from_tunnel, "split horizon: {info:?}");
                assert_eq!((egress.header.len(), egress.strip), (50, 0));
                let tunnel = &self.config.tunnels[tunnel.index()];
                assert_eq!(tunnel.port.index(), port);
                let outer = ethernet::Frame::new_checked(&bytes).unwrap();
                assert_eq!(outer.src(), mac);
                let ip = ipv4::Packet::new_checked(outer.payload()).unwrap();
                assert_eq!((ip.src(), ip.dst()), (local, tunnel.remote));
                assert_eq!(usize::from(ip.total_size()), egress.size as usize - 14);
                assert!(ip.total_size() <= self.config.ports[port].mtu, "over the underlay's MTU");
                assert!(ip.header_checksum_ok());
                let vni = vxlan::Header::new_checked(&bytes[42..]).unwrap().vni();
                assert_eq!(Some(vni), self.config.vnets[usize::from(info.vnet)].vni);
                &bytes[50..]
            }
            _ => panic!("{info:?} left by {role:?} with tunnel {:?}", egress.tunnel),
        };
        assert_eq!(ethernet::Frame::new_checked(inner).unwrap().dst(), info.dst);
        assert!(!self.delivered.contains(&info.id), "twice: {info:?}");
    }

    fn take(&mut self, now: Nanos, port: usize, egress: &Egress<'_, TestBuf>) {
        self.taken += 1;
        if let Some(log) = &mut self.log {
            log.push(Sent {
                port,
                info: egress.buf.map(|buf| buf.info),
                bytes: on_wire(egress),
                size: egress.size,
                priority: egress.priority,
                tunnel: egress.tunnel.map(|t| t.0),
            });
        }
        let out = u16::try_from(port).unwrap();
        let tunnel = egress.tunnel.map(|t| t.0);
        if let Some(meter) = &mut self.meters[port] {
            meter.send(now, egress.size, egress.buf.is_some());
        }
        let Some(buf) = egress.buf else { return };
        if let Some(rate) = self.config.ports[port].group_rate {
            let meter = self.groups.entry((out, tunnel)).or_insert_with(|| Meter::new(rate, now));
            meter.send(now, egress.size, true);
        }
        let info = buf.info;
        if !info.valid {
            return;
        }
        if !info.dst.is_group() {
            self.delivered.insert(info.id);
        }
        let flow = (info.from, info.vnet, info.dst, info.priority, out, tunnel);
        if let Some(last) = self.last.insert(flow, info.id) {
            assert!(last < info.id, "{} went before {}: {flow:?}", last, info.id);
        }
    }

    /// Returns the number of unicast frames that came out.
    pub fn delivered(&self) -> usize {
        self.delivered.len()
    }
}

/// `Info::from` of the first tunnel.
pub const TUNNELS: u16 = 1000;
/// `Info::from` of control.
pub const CONTROL: u16 = 60_000;

/// A switch and everything around it.
#[derive(Debug)]
pub struct World {
    pub switch: Switch<TestBuf>,
    pub config: SwitchConfig,
    pub now: Nanos,
    pub ledger: Rc<Ledger>,
    pub oracle: Oracle,
    /// The port of each input.
    pub inputs: Vec<PortId>,
    pub detached: Vec<bool>,
    /// Places with a network.
    pub vnets: Vec<bool>,
    /// Places with a tunnel.
    pub tunnels: Vec<bool>,
    /// Port that each spare port was made for.
    pub spare_ports: Vec<PortConfig>,
    /// Number of handles of each input that the switch has.
    pub out: Vec<usize>,
    /// Misses that were not answered.
    pub misses: Vec<(VnetId, Mac)>,
    /// Number of handles that the host pool gives out.
    pub pool_size: usize,
    pub pooled: usize,
    /// True if control is attached.
    pub attached: bool,
    /// Ports with the machines that are bound to them.
    pub bound: BTreeSet<(PortId, Mac)>,
    /// Decap flows that were reported.
    pub flows: BTreeSet<(VnetId, TunnelId)>,
    /// The punts that were read, while they are recorded.
    pub punts: Option<Vec<(PuntCause, Destination, Vec<u8>)>>,
    /// Number of ports that attached while the switch ran.
    pub came: u64,
    /// Number of networks and tunnels that came while the switch ran.
    pub vnets_came: u64,
    pub tunnels_came: u64,
    /// A device never takes one of so many frames that drivers take; 0: devices take all.
    pub never_takes: u64,
    /// Frames that a driver took and its device did not.
    never_taken: u64,
    /// Interval, in frames, at which the switch's counts of received frames are compared.
    pub looks_every: u64,
    next_id: u64,
}

impl Drop for World {
    fn drop(&mut self) {
        self.ledger.close();
    }
}

impl World {
    pub fn new(config: &SwitchConfig, seed: u64) -> Self {
        let now = Nanos::from_millis(1);
        let switch = Switch::new(config, seed, now).unwrap();
        let mut config = config.clone();
        let mut detached = vec![false; config.ports.len()];
        if let Some(spare) = &config.spare {
            detached.resize(detached.len() + usize::from(spare.ports), true);
            config.ports.resize(detached.len(), spare.like.clone());
        }
        let (vnets, tunnels) = with_spare_places(&mut config);
        let mut inputs = Vec::new();
        for (at, port) in config.ports.iter().enumerate() {
            for queue in 0..port.queues {
                assert_eq!(switch.input(PortId::from_index(at), queue).index(), inputs.len());
                inputs.push(PortId::from_index(at));
            }
        }
        Self {
            oracle: Oracle::new(&config, now),
            switch,
            now,
            ledger: Rc::default(),
            detached,
            vnets,
            tunnels,
            spare_ports: config.ports.clone(),
            out: vec![0; inputs.len() + 2],
            inputs,
            misses: Vec::new(),
            pool_size: usize::MAX,
            pooled: 0,
            attached: false,
            bound: config.control.bindings.iter().map(|b| (b.port, b.mac)).collect(),
            flows: BTreeSet::new(),
            punts: None,
            came: 0,
            vnets_came: 0,
            tunnels_came: 0,
            never_takes: 0,
            never_taken: 0,
            looks_every: 8,
            next_id: seed << 40,
            config,
        }
    }

    /// Attaches a port while the switch runs.
    pub fn plug(&mut self, config: &PortConfig) -> Result<PortId, AttachError> {
        let before = self.switch.audit();
        let port = self.switch.attach(self.now, config)?;
        let at = port.index();
        assert!(self.detached[at], "{port} was given away twice");
        self.came += 1;
        self.detached[at] = false;
        self.config.ports[at] = config.clone();
        self.oracle.plug(self.now, at, config);
        let after = self.switch.audit();
        for (input, _) in self.inputs.iter().enumerate().filter(|(_, of)| **of == port) {
            assert_eq!(self.out[input], 0, "{port} has handles of the port before it");
            let of_input = |row: &&sluice_switch::AuditRow| row.input.index() == input;
            let resident = before.rows.iter().filter(of_input).map(|row| row.frames.resident);
            assert_eq!(resident.sum::<u64>(), 0, "frames of the port before {port}");
            assert_eq!(after.rows.iter().filter(of_input).count(), 0, "{port} begins at zero");
        }
        let total = |audit: &sluice_switch::Audit| {
            (
                audit.total(|row| row.frames.received + row.frames.copied),
                audit.total(|row| row.bytes.delivered + row.bytes.dropped),
            )
        };
        assert_eq!(total(&before), total(&after), "the sums of all");
        assert_eq!(self.switch.sent(port).frames, 0, "{port} has sent nothing");
        Ok(port)
    }

    /// Returns the numbers of ports, networks and tunnels that came while the switch ran.
    pub const fn come(&self) -> [u64; 3] {
        [self.came, self.vnets_came, self.tunnels_came]
    }

    /// Detaches a port; its driver has not reclaimed its handles yet.
    pub fn unplug(&mut self, port: PortId) -> Detached {
        let detached = self.switch.detach(self.now, port);
        self.detached[port.index()] = true;
        self.bound.retain(|(of, _)| *of != port);
        detached
    }

    /// Sets the values of a port.
    pub fn set_port(&mut self, port: PortId, values: &PortValues) {
        self.switch.set_port(port, values).unwrap();
        let config = &mut self.config.ports[port.index()];
        (config.rate, config.default_priority) = (values.rate, values.default_priority);
        self.oracle.set_rate(self.now, port.index(), values.rate);
    }

    /// Notes that an address was put somewhere.
    pub fn put(&mut self, vnet: VnetId, mac: Mac, to: Destination) {
        if let Destination::Port(port) = to
            && let Some(behind) = self.oracle.behind.get_mut(&port.index())
        {
            behind.insert((vnet, mac));
        }
    }

    /// Starts to record the frames that come out, and returns those recorded before.
    pub fn log(&mut self) -> Vec<Sent> {
        self.oracle.log.replace(Vec::new()).unwrap_or_default()
    }

    /// Puts an address behind a port.
    pub fn at_port(&mut self, mac: Mac, port: usize) {
        let PortRole::Access { vnet } = self.config.ports[port].role else {
            panic!("no access port")
        };
        let to = Destination::Port(PortId::from_index(port));
        self.command(Command::Install { vnet, mac, to });
    }

    /// Puts an address of network 0 behind a tunnel.
    pub fn at_tunnel(&mut self, mac: Mac, tunnel: u16) {
        let to = Destination::Tunnel(TunnelId(tunnel));
        self.command(Command::Install { vnet: VnetId(0), mac, to });
    }

    pub fn command(&mut self, command: Command) {
        self.switch.command(self.now, command).unwrap();
        if let Command::Install { vnet, mac, to } = command {
            self.put(vnet, mac, to);
        }
    }

    /// Attaches or detaches a control plane.
    pub fn attach(&mut self, attached: bool) {
        self.switch.attach_control(attached);
        self.attached = attached;
    }

    /// Starts to record punts, and returns those that wait and those recorded before.
    pub fn punts(&mut self) -> Vec<(PuntCause, Destination, Vec<u8>)> {
        self.notices();
        self.punts.replace(Vec::new()).unwrap_or_default()
    }

    /// Returns a tenant's frame at the first queue of an access port.
    pub fn tenant(&mut self, port: usize, tenant: &Tenant) -> TestBuf {
        let input = self.switch.input(PortId::from_index(port), 0);
        let PortRole::Access { vnet } = self.config.ports[port].role else {
            panic!("no access port")
        };
        let info = Info {
            id: self.next_id(),
            from: input.0,
            port: u16::try_from(port).unwrap(),
            vnet: vnet.0,
            dst: tenant.dst,
            priority: Priority::from_low_bits(tenant.pcp.unwrap_or(tenant.dscp >> 3)),
            valid: true,
        };
        // The driver of a trunk takes the tag off and reports its content.
        let tag = tenant.pcp.filter(|_| self.config.ports[port].tags != Tags::Kept);
        let tenant = Tenant { pcp: tenant.pcp.filter(|_| tag.is_none()), ..*tenant };
        let mut buf = self.buf(input, info, tenant.bytes());
        if let Some(pcp) = tag {
            buf.tag = VlanTag::TakenOff(u16::from(pcp) << 13 | 10);
        }
        buf
    }

    /// Returns a frame of network 0 from a tunnel (its number in this switch) at an underlay port.
    pub fn tunnel_frame(&mut self, port: usize, tunnel: u16, tenant: &Tenant) -> TestBuf {
        let input = self.switch.input(PortId::from_index(port), 0);
        let PortRole::Underlay { local, mac } = self.config.ports[port].role else {
            panic!("no underlay port")
        };
        let outer = Outer {
            dst: mac,
            remote: self.config.tunnels[usize::from(tunnel)].remote,
            local,
            vni: self.config.vnets[0].vni.unwrap().get(),
            dscp: tenant.dscp,
            ecn: tenant.ecn,
            pcp: None,
        };
        let info = Info {
            id: self.next_id(),
            from: TUNNELS + tunnel * 8,
            port: u16::try_from(port).unwrap(),
            vnet: 0,
            dst: tenant.dst,
            priority: Priority::from_low_bits(tenant.dscp >> 3),
            valid: true,
        };
        self.buf(input, info, in_vxlan(&outer, &tenant.bytes()))
    }

    /// Fills the window of a port's first input with frames that `make` makes. Returns their
    /// number.
    pub fn fill(&mut self, port: usize, mut make: impl FnMut(&mut Self) -> TestBuf) -> usize {
        let input = self.switch.input(PortId::from_index(port), 0);
        let window = self.switch.window(input).of_any();
        let (mut bufs, mut bytes) = (Vec::new(), 0);
        while bufs.len() < window.frames as usize && bytes < window.bytes.0 {
            let buf = make(self);
            bytes += u64::from(buf.size());
            bufs.push(buf);
        }
        self.receive(input, bufs)
    }

    /// Returns the next frame's identity.
    pub fn next_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// Returns a handle of an input's driver.
    pub fn buf(&mut self, input: InputId, info: Info, bytes: Vec<u8>) -> TestBuf {
        let size = u32::try_from(bytes.len()).unwrap();
        TestBuf::new(&self.ledger, info, Owner::Input(input.0), bytes, size)
    }

    /// Gives frames to an input, not more than its window. Returns their number.
    pub fn receive(&mut self, input: InputId, bufs: Vec<TestBuf>) -> usize {
        let mut batch = Batch::with_limit(bufs.len());
        let count = bufs.len();
        let classifier = self.switch.classifier(input);
        let window = self.switch.window(input);
        // Audits now and then, since an audit takes far longer than a frame.
        let looks = self.next_id.is_multiple_of(self.looks_every);
        let mut counts = if looks { self.received(input) } else { [0; Priority::COUNT] };
        for buf in bufs {
            let priority = classifier.priority(buf.head(), buf.size(), buf.tag);
            assert!(!window.closed.contains(priority), "beyond the window of {priority}");
            counts[priority.index()] += 1;
            self.note_end(input, &buf);
            self.out[input.index()] += 1;
            batch.push(buf).unwrap();
        }
        self.switch.receive(self.now, input, &mut batch);
        assert!(batch.is_empty(), "receive takes all");
        assert!(!looks || self.received(input) == counts, "told apart as the switch does");
        count
    }

    /// Returns the frames that came in at an input, by priority.
    fn received(&self, input: InputId) -> [u64; Priority::COUNT] {
        let mut sum = [0; Priority::COUNT];
        for row in self.switch.audit().rows.iter().filter(|row| row.input == input) {
            sum[row.priority.index()] += row.frames.received;
        }
        sum
    }

    /// Hands over flow control that a driver keeps apart, which is taken whatever the window is.
    pub fn hear(&mut self, input: InputId, frame: &[u8]) {
        let before = self.switch.audit().total(|row| row.frames.consumed);
        self.switch.hear(self.now, input, frame);
        let after = self.switch.audit().total(|row| row.frames.consumed);
        assert_eq!(after, before + 1, "it is counted, like one that came among data");
    }

    /// Notes a frame that must not come out, before the switch sees it.
    fn note_end(&mut self, input: InputId, buf: &TestBuf) {
        let port = self.inputs[input.index()];
        let config = &self.config.ports[port.index()];
        let Ok(frame) = ethernet::Frame::new_checked(&buf.bytes) else { return };
        if !buf.info.valid || !matches!(config.role, PortRole::Access { .. }) {
            return;
        }
        let spoofed =
            config.sources == Sources::Bound && !self.bound.contains(&(port, frame.src()));
        if spoofed {
            self.oracle.ended.insert(buf.info.id);
        }
    }

    /// Lets a port send. `takes` returns true if the driver has room for the frame offered.
    pub fn transmit(&mut self, port: PortId, mut takes: impl FnMut() -> bool) -> u32 {
        self.transmit_to(port, |_| if takes() { Taken::All } else { Taken::No })
    }

    /// Transmits with a driver that may answer that one of several receivers has no room.
    pub fn transmit_to(
        &mut self,
        port: PortId,
        mut answer: impl FnMut(Option<&Info>) -> Taken,
    ) -> u32 {
        let (now, oracle) = (self.now, &mut self.oracle);
        let had_work = self.switch.has_work(now, port);
        let before = (oracle.offered, oracle.taken);
        let mut refused = false;
        let (mut given_back, never_takes) = (Vec::new(), self.never_takes);
        let taken = self.switch.transmit(now, port, &mut |egress: &Egress<'_, TestBuf>| {
            assert!(!refused, "a frame was offered after the driver had no room");
            let answer = answer(egress.buf.map(|buf| &buf.info));
            let takes = answer == Taken::All;
            // A device never takes some of the frames that its driver takes.
            if takes && never_takes > 0 && oracle.taken % never_takes == 0 {
                given_back.push((egress.priority, egress.size));
            }
            oracle.offer(now, port.index(), egress, takes);
            refused = answer == Taken::No;
            answer
        });
        assert_eq!(u64::from(taken), oracle.taken - before.1, "what it returns");
        assert!(had_work || oracle.offered == before.0, "has_work said that there was none");
        for (priority, size) in given_back {
            self.never_taken += 1;
            self.switch.refused(port, priority, Counter { frames: 1, bytes: size.into() });
        }
        taken
    }

    /// Hands back up to `count` handles of an input, or of the pool.
    pub fn reclaim(&mut self, input: InputId, count: usize) -> usize {
        let mut out = Batch::with_limit(count);
        if count == 1 {
            out.push(match self.switch.reclaim_one(input) {
                None => return 0,
                Some(buf) => buf,
            })
            .expect("there is room for one");
        } else {
            self.switch.reclaim(input, &mut out);
        }
        let owner = if input == self.switch.pool_input() {
            self.pooled -= out.len();
            Owner::Pool
        } else {
            Owner::Input(input.0)
        };
        let count = out.len();
        if input != self.switch.pool_input() && input != self.switch.control_input() {
            self.out[input.index()] -= count;
        }
        for buf in out.drain() {
            assert_eq!(buf.owner, owner, "a handle came back to another driver: {:?}", buf.info);
            buf.hand_back();
        }
        count
    }

    /// Hands back all handles of frames that ended.
    pub fn reclaim_all(&mut self) {
        for input in 0..=self.switch.pool_input().0 {
            while self.reclaim(InputId(input), 64) > 0 {}
        }
    }

    /// Moves handles of an input into the pool, of which `room` places may be used.
    pub fn copy_to_shared(&mut self, input: InputId, mut room: usize) {
        let (pooled, size) = (&mut self.pooled, self.pool_size);
        let out = &mut self.out[input.index()];
        let is_control = input == self.switch.control_input();
        self.switch.copy_to_shared(input, |buf| {
            if room == 0 || *pooled >= size {
                return Err(buf);
            }
            assert_eq!(buf.owner, Owner::Input(input.0), "copied by another input");
            room -= 1;
            *pooled += 1;
            *out -= usize::from(!is_control);
            Ok(buf.into_pool())
        });
    }

    /// Migrates the buffers of an input; `room` places of the pool may be used. Afterwards its
    /// driver has every handle back.
    pub fn migrate_buffers(&mut self, input: InputId, mut room: usize) -> u32 {
        let (pooled, size) = (&mut self.pooled, self.pool_size);
        let out = &mut self.out[input.index()];
        let ended = self.switch.migrate_buffers(input, |buf| {
            if room == 0 || *pooled >= size {
                return Err(buf);
            }
            assert_eq!(buf.owner, Owner::Input(input.0), "migrated from another input");
            room -= 1;
            *pooled += 1;
            *out -= 1;
            Ok(buf.into_pool())
        });
        while self.reclaim(input, 64) > 0 {}
        assert_eq!(self.out[input.index()], 0, "handles of {input} are still in the switch");
        ended
    }

    /// Reads the events.
    pub fn notices(&mut self) {
        let mut by_port = BTreeMap::new();
        while let Some(notice) = self.switch.notice() {
            match notice {
                Notice::Miss { vnet, mac, head, .. } => {
                    let dst = &head.as_slice()[..6];
                    assert_eq!(dst, &mac.0, "the head of a frame for another address");
                    if !self.misses.contains(&(vnet, mac)) {
                        self.misses.push((vnet, mac));
                    }
                }
                Notice::Punt { cause, from, head, .. } => {
                    assert!(self.attached, "a punt for nobody");
                    let port = match from {
                        Destination::Port(port) => port,
                        Destination::Tunnel(tunnel) => self.config.tunnels[tunnel.index()].port,
                    };
                    *by_port.entry(port).or_insert(0) += 1;
                    if let Some(punts) = &mut self.punts {
                        punts.push((cause, from, head.as_slice().to_vec()));
                    }
                }
                Notice::Decap { vnet, tunnel } => {
                    assert!(self.attached, "a decap flow for nobody");
                    assert!(self.flows.insert((vnet, tunnel)), "told twice: {vnet} {tunnel}");
                }
                _ => {}
            }
        }
        let most = (self.config.control.punts / 4).max(1);
        for (port, punts) in by_port {
            assert!(punts <= most, "{port} has {punts} of the notices, more than its share");
        }
    }

    /// Returns all ports in use.
    pub fn ports(&self) -> impl Iterator<Item = PortId> + use<> {
        let open: Vec<usize> =
            (0..self.config.ports.len()).filter(|&p| !self.detached[p]).collect();
        open.into_iter().map(PortId::from_index)
    }

    /// Advances the switch to the present.
    pub fn advance(&mut self) {
        self.switch.advance(self.now);
        let mut busy = BTreeSet::new();
        let mut from = PortId(0);
        while let Some(port) = self.switch.busy_port(from) {
            busy.insert(port);
            from = PortId(port.0 + 1);
        }
        for port in self.ports() {
            let work = self.switch.has_work(self.now, port);
            assert!(!work || busy.contains(&port), "{port} has work and is not busy");
        }
    }

    /// Does all work that is due: all drivers have room and reclaim their handles. Nothing is due
    /// afterwards.
    pub fn service(&mut self) {
        for _ in 0..2 {
            self.advance();
            self.notices();
        }
        for _ in 0..2 {
            for port in self.ports() {
                self.switch.resume_port(port);
                self.transmit(port, || true);
            }
            for input in 0..=self.inputs.len() {
                self.copy_to_shared(InputId::from_index(input), usize::MAX);
            }
            self.reclaim_all();
        }
        // A broadcast that was replicated only now may go out, or end.
        self.advance();
        for port in self.ports() {
            self.transmit(port, || true);
            assert!(!self.switch.has_work(self.now, port), "work after everything was taken");
        }
        if let Some(deadline) = self.switch.deadline() {
            assert!(deadline > self.now, "due at {deadline}, and done at {}", self.now);
        }
    }

    /// Checks that nothing names a network or tunnel that is not there.
    fn check_places(&self) {
        let free = self.switch.free_places();
        for (at, &is_free) in free.vnets.iter().enumerate() {
            let state = self.switch.vnet_state(VnetId::from_index(at));
            assert_eq!(is_free, state == PlaceState::Free, "network {at}");
        }
        for (at, &is_free) in free.tunnels.iter().enumerate() {
            let state = self.switch.tunnel_state(TunnelId::from_index(at));
            assert_eq!(is_free, state == PlaceState::Free, "tunnel {at}");
        }
        for (at, &is_there) in self.vnets.iter().enumerate() {
            let state = self.switch.vnet_state(VnetId::from_index(at));
            assert_eq!(is_there, state == PlaceState::InUse, "network {at}");
        }
        for (at, &is_there) in self.tunnels.iter().enumerate() {
            let state = self.switch.tunnel_state(TunnelId::from_index(at));
            assert_eq!(is_there, state == PlaceState::InUse, "tunnel {at}");
        }
        let of_vnet = |vnet: VnetId| assert!(self.vnets[vnet.index()], "{vnet} is removed");
        let of_tunnel =
            |tunnel: TunnelId| assert!(self.tunnels[tunnel.index()], "{tunnel} is removed");
        for (vnet, _, to) in self.switch.macs() {
            of_vnet(vnet);
            if let Destination::Tunnel(tunnel) = to {
                of_tunnel(tunnel);
                let has = self.config.vnets[vnet.index()].tunnels.contains(&tunnel);
                assert!(has, "{vnet} does not have {tunnel}");
            }
        }
        for (vnet, _, tunnel) in self.switch.holds() {
            of_vnet(vnet);
            of_tunnel(tunnel);
        }
        for flow in self.switch.decap_flows() {
            of_vnet(flow.vnet);
            of_tunnel(flow.tunnel);
        }
        for queue in self.switch.queues() {
            match queue.to {
                QueueGroupKind::Tunnel(tunnel) | QueueGroupKind::Held(tunnel) => of_tunnel(tunnel),
                QueueGroupKind::Unresolved(vnet, _) => of_vnet(vnet),
                QueueGroupKind::Port(_) => {}
                QueueGroupKind::Free => panic!("frames wait for nothing: {queue:?}"),
            }
        }
    }

    /// Checks the promises that must hold after every call.
    pub fn check(&self) {
        self.check_places();
        assert_eq!(self.ledger.lost(), 0, "a handle was lost");
        let audit = self.switch.audit();
        assert!(audit.is_closed(), "the audit does not close: {audit:#?}");
        self.check_drops();
        self.check_never_taken();
        for (vnet, mac, to) in self.switch.macs() {
            let Destination::Port(port) = to else { continue };
            assert!(!self.detached[port.index()], "{mac} of {vnet} is at {port}, which is gone");
        }
        for (at, port) in self.config.ports.iter().enumerate() {
            let state = self.switch.port_state(PortId::from_index(at));
            assert_eq!(self.detached[at], state != PortState::Attached);
            let queued = self.switch.queued(PortId::from_index(at));
            if self.detached[at] {
                assert_eq!(queued.frames, 0, "queued for a detached port");
            }
            for queue in 0..port.queues {
                let input = self.switch.input(PortId::from_index(at), queue);
                self.check_input(input, at);
            }
        }
    }

    fn check_input(&self, input: InputId, port: usize) {
        let config = &self.config.ports[port];
        let (window, held) = (self.switch.window(input), self.switch.held(input));
        assert!(self.detached[port] <= (window.frames == 0 && held.frames == 0));
        if let InputFull::Pause(pause) = config.input_full
            && !self.detached[port]
        {
            self.check_priorities(input, port, pause.priorities);
        }
        if config.input_full == InputFull::Wait {
            assert!(held.frames + u64::from(window.frames) <= u64::from(config.input.frames));
            // The last frame may exceed the limit.
            let most = config.input.bytes.0 + u64::from(config.mtu) + 118;
            assert!(held.bytes < most, "{held:?}");
        }
    }

    /// Checks that every priority has the whole input for itself: it closes itself and no other,
    /// and the promise holds for each open one.
    fn check_priorities(&self, input: InputId, port: usize, pausable: PriorityMask) {
        let (window, config) = (self.switch.window(input), &self.config.ports[port]);
        if window.closed == PriorityMask::ALL && pausable != PriorityMask::ALL {
            // No frame may pass one that could not be queued.
            assert_eq!(window.frames, 0);
            return;
        }
        for priority in Priority::all().filter(|p| pausable.contains(*p)) {
            let held = self.switch.held_of(input, priority);
            let is_full =
                held.frames >= u64::from(config.input.frames) || held.bytes >= config.input.bytes.0;
            let closed = window.closed.contains(priority);
            assert!(is_full <= closed, "{priority} is full and open: {held:?}");
            // All are closed behind a frame that could not be queued.
            assert!(is_full || !closed || window.frames == 0, "{priority} is closed by another");
            let sum = held.frames + u64::from(window.frames);
            assert!(closed || sum <= u64::from(config.input.frames), "{priority}: {held:?}");
        }
        assert!(window.closed == PriorityMask::ALL || window.closed.without(pausable).is_empty());
    }

    /// Checks that no frame of a lossless priority is dropped for want of room, with the documented
    /// exceptions.
    fn check_drops(&self) {
        for priority in Priority::all().filter(|p| self.config.classes[p.index()].lossless) {
            for input in 0..=self.inputs.len() {
                for &reason in DropReason::ALL {
                    let may = match reason {
                        DropReason::ReplicationLimit | DropReason::NotEcnCapable => true,
                        DropReason::InputFull => self.input_drops(input, priority),
                        DropReason::ReceiverStuck => self.config.isolation.is_some(),
                        _ => reason.class() != DropClass::Congestion,
                    };
                    let dropped = self.switch.dropped(InputId::from_index(input), priority, reason);
                    assert!(may || dropped.frames == 0, "{reason} at {input}, {priority}");
                }
            }
        }
    }

    /// Checks that frames that devices never took are counted, also those of ports that are gone.
    fn check_never_taken(&self) {
        let inputs = (0..=self.switch.pool_input().0).map(InputId);
        let rows = inputs.flat_map(|input| Priority::all().map(move |priority| (input, priority)));
        let of =
            |(input, priority)| self.switch.dropped(input, priority, DropReason::Refused).frames;
        assert_eq!(rows.map(of).sum::<u64>(), self.never_taken);
    }

    fn input_drops(&self, input: usize, priority: Priority) -> bool {
        let Some(port) = self.inputs.get(input) else { return false };
        match self.config.ports[port.index()].input_full {
            InputFull::Drop => true,
            InputFull::Pause(pause) => !pause.priorities.contains(priority),
            InputFull::Wait => false,
        }
    }

    /// Drains the switch after the faults have stopped: all frames in it must come out.
    pub fn drain(&mut self, mut answer: impl FnMut(&mut Self)) {
        for round in 0..5_000 {
            answer(self);
            self.service();
            self.check();
            let resident = self.switch.audit().total(|row| row.frames.resident);
            if resident == 0 {
                break;
            }
            // A receiver that is isolated is looked at often; the lease of a hold is far longer.
            let least =
                if round < 1_000 { self.now } else { self.now.after(Nanos::from_millis(1)) };
            self.now = match self.switch.deadline() {
                Some(deadline) => deadline.max(least),
                None => panic!("{resident} frames and nothing to wait for: {:#?}", self.stuck()),
            };
        }
        self.check_empty();
    }

    fn stuck(&self) -> Vec<sluice_switch::QueueState> {
        self.switch.queues().collect()
    }

    /// Checks that the switch is empty, and that its counters agree.
    pub fn check_empty(&mut self) {
        self.reclaim_all();
        self.check();
        assert_eq!(self.stuck().len(), 0, "{:#?}", self.stuck());
        assert_eq!(self.ledger.live(), 0, "handles that did not come back");
        for at in (0..self.vnets.len()).filter(|at| !self.vnets[*at]) {
            let state = self.switch.vnet_state(VnetId::from_index(at));
            assert_eq!(state, PlaceState::Free, "network {at} is gone");
        }
        for at in (0..self.tunnels.len()).filter(|at| !self.tunnels[*at]) {
            let state = self.switch.tunnel_state(TunnelId::from_index(at));
            assert_eq!(state, PlaceState::Free, "tunnel {at} is gone");
        }
        for (at, &port) in self.inputs.iter().enumerate() {
            let input = InputId::from_index(at);
            let (held, window) = (self.switch.held(input), self.switch.window(input));
            let config = &self.config.ports[port.index()];
            let queue = at - self.switch.input(port, 0).index();
            if self.detached[port.index()] {
                assert_eq!(self.switch.port_state(port), PortState::Free, "{port} is gone");
            } else if queue >= config.queues.into() {
                assert_eq!(window.frames, 0, "a queue that the port does not have");
                continue;
            }
            assert_eq!((held.frames, held.bytes), (0, 0));
            assert_eq!(self.switch.queued(port).frames, 0);
            assert_eq!(self.switch.queued(port).bytes, 0);
            if !self.detached[port.index()] {
                assert!(window.frames >= config.input.frames, "the window stays closed");
                assert!(window.bytes >= config.input.bytes);
            }
        }
    }
}
