//! Whose frames a port takes: any, any but shown to the control plane, or those of known machines.
//!
//! ```text
//!   source ── the last good one? ── yes: on it goes
//!                 │ no
//!                 ├─ Bound: one of its MACs, and its addresses? ── no: `spoofed_mac`, `spoofed_ip`
//!                 ├─ Learn: says an address that another port here is bound to? ── `spoofed_ip`
//!                 └─ control attached: chip says it is here? ── yes: remembered
//!                                                             └─ no: a punt; on it goes
//! ```
//!
//! A port remembers the last source that was good, so that a machine with one address costs a
//! compare and a table is asked only where several share a port. Learning never delays a frame and
//! never drops one; binding drops whether control is attached or not.
//!
//! **What is remembered cannot lie for long.** It only ever keeps the switch quiet: where a frame
//! goes is asked of the chip, and what a bound port lets in follows from its bindings, with which
//! the memory is cleared. So a memory that outlives its entry could hide a machine that moved away
//! and came back, and nothing else; therefore whatever changes an entry of the chip clears the
//! memory of the place that it named.
//!
//! What a bound machine may say of itself: its MAC in the frame and in ARP (RFC 826), and if it has
//! addresses, one of them as IPv4 source, as ARP sender and as IPv6 source, and as the target of a
//! Neighbor Advertisement (RFC 4861 section 4.4). It may say that it has none yet: 0.0.0.0 in an
//! ARP probe (RFC 5227 section 2.1.1) and to 255.255.255.255 (RFC 2131 section 4.1), and `::` (RFC
//! 4862 section 5.4.2). And it has link-local addresses, of its MAC (RFC 4291 section 2.5.6) or of
//! a secret (RFC 7217), but not of another's MAC. IP whose header cannot be read does not pass.
//!
//! A port may **allow** its machines further addresses, by prefixes ([`Command::Allow`]): they are
//! nobody's by binding, and whoever says so last has them (control sees to that).
//!
//! [`Command::Allow`]: crate::Command::Allow
//!
//! What no machine may say: that it has an address that another port of this switch is bound to, in
//! its network, or one that another port allows by itself and its own does not. ARP (sender) and
//! Neighbor Discovery (source, and target of an advertisement) are looked at where somebody is
//! bound, whomever they are sent to: a reply to one machine moves that machine's traffic.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use sluice_base::{
    Batch, Buf, DropReason, InputId, IpPrefix, Mac, Nanos, PortId, PriorityMask, VlanTag, VnetId,
};
use sluice_wire::EtherType;

use crate::classify::Verdict;
use crate::config::{ConfigError, PortConfig, PortRole, Sources, SwitchConfig, Tags};
use crate::mac_table::{self, Used};
use crate::place::Lane;
use crate::receive::Arrival;
use crate::surface::{ALLOWED_MAX, BOUND_MACS_MAX, BoundIps, CommandError, LaneKind, PuntFrom};
use crate::switch::Switch;
use bound::{Bound, Speaker};
use claims::{NO_ADDRESSES, claimed};

mod bound;
mod claims;

/// No address: more than 48 bits.
const NOBODY: u64 = u64::MAX;

/// What a port takes, and what it remembers.
#[derive(Debug)]
pub(crate) struct Watch {
    sources: Sources,
    /// The last source found good, as a number.
    good: u64,
    /// Bound ports: where its binding is.
    good_at: usize,
    bound: Vec<Bound>,
    /// What its machines may have beside their own addresses.
    allowed: Vec<IpPrefix>,
}

impl Watch {
    pub(crate) fn new(port: &PortConfig) -> Self {
        // Room for bindings in any case: the next port of the bay may be bound.
        let binds = port.sources == Sources::Bound || matches!(port.role, PortRole::Access { .. });
        let bound = Vec::with_capacity(if binds { BOUND_MACS_MAX } else { 0 });
        let allowed = Vec::with_capacity(if binds { ALLOWED_MAX } else { 0 });
        Self { sources: port.sources, good: NOBODY, good_at: 0, bound, allowed }
    }

    fn forget(&mut self) {
        self.good = NOBODY;
    }

    pub(crate) const fn sources(&self) -> Sources {
        self.sources
    }

    /// Another port is here, whom nobody is bound to.
    pub(crate) fn restart(&mut self, sources: Sources) {
        self.sources = sources;
        self.bound.clear();
        self.allowed.clear();
        self.good_at = 0;
        self.forget();
    }

    /// Returns all of it, for the switch that gets the port. Here nobody is bound to it any more.
    pub(crate) fn give(&mut self) -> Self {
        let (bound, allowed) = (Vec::new(), Vec::new());
        let none = Self { sources: self.sources, good: NOBODY, good_at: 0, bound, allowed };
        core::mem::replace(self, none)
    }

    fn bind(&mut self, port: PortId, mac: Mac, ips: BoundIps) -> Result<(), CommandError> {
        if self.sources != Sources::Bound {
            return Err(CommandError::NotBound(port));
        }
        if mac.is_group() {
            return Err(CommandError::GroupAddress(mac));
        }
        let bound = Bound { mac: mac.to_u64(), ips };
        match self.bound.iter().position(|there| there.mac == bound.mac) {
            Some(at) => self.bound[at] = bound,
            None if self.bound.len() == BOUND_MACS_MAX => {
                return Err(CommandError::TooManyBound(port));
            }
            None => self.bound.push(bound),
        }
        self.forget();
        Ok(())
    }

    fn allow(&mut self, port: PortId, prefix: IpPrefix) -> Result<(), CommandError> {
        if self.sources != Sources::Bound {
            return Err(CommandError::NotBound(port));
        }
        if !self.allowed.contains(&prefix) {
            if self.allowed.len() == ALLOWED_MAX {
                return Err(CommandError::TooManyAllowed(port));
            }
            self.allowed.push(prefix);
        }
        self.forget();
        Ok(())
    }

    fn is_bound_to(&self, ip: IpAddr) -> bool {
        self.bound.iter().any(|bound| bound.has(ip))
    }

    fn allows(&self, ip: IpAddr) -> bool {
        self.allowed.iter().any(|prefix| prefix.contains(ip))
    }

    /// Returns true if an address is on the list by itself, and not as one of many.
    fn names(&self, ip: IpAddr) -> bool {
        self.allowed.iter().any(|prefix| prefix.is_single() && prefix.address() == ip)
    }

    fn unbind(&mut self, mac: Mac) {
        self.bound.retain(|bound| bound.mac != mac.to_u64());
        self.forget();
    }

    fn unbind_ip(&mut self, mac: Mac, ip: IpAddr) {
        let is_it = |bound: &&mut Bound| bound.mac == mac.to_u64() && bound.has(ip);
        let Some(bound) = self.bound.iter_mut().find(is_it) else { return };
        bound.ips.iter_mut().filter(|there| **there == Some(ip)).for_each(|there| *there = None);
        let is_bound = bound.has_ips();
        if !is_bound {
            self.unbind(mac);
        }
        self.forget();
    }

    /// Returns true if a frame of a bound port passes at first sight: of the last good source, and
    /// plain IPv4 of its own address or of a machine that may have any.
    fn passes(&self, head: &[u8]) -> bool {
        if source_of(head) != self.good {
            return false;
        }
        let Some(bound) = self.bound.get(self.good_at) else { return false };
        let Some(head) = head.first_chunk::<30>() else { return false };
        let ethertype = EtherType(u16::from_be_bytes([head[12], head[13]]));
        if bound.is_free(&self.allowed) {
            // ARP says the MAC twice.
            return ethertype != EtherType::ARP && !ethertype.is_tag();
        }
        let ip = Ipv4Addr::new(head[26], head[27], head[28], head[29]);
        ethertype == EtherType::IPV4 && (bound.has(ip.into()) || self.allows(ip.into()))
    }

    /// What a frame of a bound port ends under, or where its binding is.
    fn judge(&self, head: &[u8]) -> Result<usize, DropReason> {
        let source = source_of(head);
        let at = self.bound.iter().position(|bound| bound.mac == source);
        let at = at.ok_or(DropReason::SpoofedMac)?;
        let speaker = Speaker { bound: &self.bound[at], allowed: &self.allowed };
        speaker.judge(head).map(|()| at)
    }
}

/// Returns the source address as a number; one that nobody has, and no memory holds, if it is cut
/// off.
#[inline]
fn source_of(head: &[u8]) -> u64 {
    match head.first_chunk::<12>() {
        Some(&[_, _, _, _, _, _, a, b, c, d, e, f]) => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        None => NOBODY - 1,
    }
}

/// Returns the bindings of a configuration, each at a port that is bound.
pub(crate) fn make_watches(config: &SwitchConfig) -> Vec<Watch> {
    let mut watches: Vec<Watch> = config.ports.iter().map(Watch::new).collect();
    for binding in &config.control.bindings {
        let watch = &mut watches[binding.port.index()];
        watch.bind(binding.port, binding.mac, binding.ips).expect("checked by `validate`");
    }
    for (port, prefix) in &config.control.allowed {
        watches[port.index()].allow(*port, *prefix).expect("checked by `validate`");
    }
    watches
}

/// Whether the bindings of a configuration can be made.
pub(crate) fn check_bindings(config: &SwitchConfig) -> Result<(), ConfigError> {
    let mut counts = alloc::vec![0; config.ports.len()];
    for binding in &config.control.bindings {
        let index = binding.port.index();
        let is_bound = config.ports.get(index).is_some_and(|port| port.sources == Sources::Bound);
        if !is_bound || binding.mac.is_group() {
            return Err(ConfigError::NoSuch { what: "bound port", index, by: "a binding" });
        }
        counts[index] += 1;
        if counts[index] > BOUND_MACS_MAX {
            return Err(ConfigError::TooMany { what: "bindings of a port", limit: BOUND_MACS_MAX });
        }
    }
    let mut counts = alloc::vec![0; config.ports.len()];
    for (port, _) in &config.control.allowed {
        let index = port.index();
        let is_bound = config.ports.get(index).is_some_and(|port| port.sources == Sources::Bound);
        if !is_bound {
            return Err(ConfigError::NoSuch { what: "bound port", index, by: "an allowed prefix" });
        }
        counts[index] += 1;
        if counts[index] > ALLOWED_MAX {
            return Err(ConfigError::TooMany { what: "prefixes of a port", limit: ALLOWED_MAX });
        }
    }
    Ok(())
}

impl<B: Buf> Switch<B> {
    /// Frames of an access port that looks at sources or tags, or that may find its input full.
    #[inline(never)]
    pub(crate) fn receive_careful(
        &mut self,
        now: Nanos,
        input: u16,
        port: u16,
        vnet: u16,
        batch: &mut Batch<B>,
    ) {
        let long_way = self.takes_long_way(input, port, batch.as_slice());
        if !self.sources_pass(input, port, vnet, batch.as_slice()) {
            for buf in batch.drain() {
                self.receive_bound(now, input, port, vnet, buf);
            }
        } else if long_way {
            for buf in batch.drain() {
                self.receive_access(now, input, port, vnet, buf);
            }
        } else {
            self.receive_batch(now, input, port, vnet, batch);
        }
    }

    /// As [`Self::receive_careful`], for one frame.
    #[inline(never)]
    pub(crate) fn receive_careful_one(
        &mut self,
        now: Nanos,
        input: u16,
        port: u16,
        vnet: u16,
        buf: B,
    ) {
        if !self.sources_pass(input, port, vnet, core::slice::from_ref(&buf)) {
            self.receive_bound(now, input, port, vnet, buf);
            return;
        }
        let plain = if self.takes_long_way(input, port, core::slice::from_ref(&buf)) {
            Err(buf)
        } else {
            self.receive_plain(input, port, vnet, buf)
        };
        if let Err(buf) = plain {
            self.receive_access(now, input, port, vnet, buf);
        }
    }

    /// Returns true if frames cannot go the fast way: they may find the input full, their queue is
    /// of some priorities only, or a tag that their driver took off says their priority.
    fn takes_long_way(&self, input: u16, port: u16, frames: &[B]) -> bool {
        let looks_at_tags = self.ports[usize::from(port)].tags != Tags::Kept;
        self.may_be_full(usize::from(input))
            || self.inputs[usize::from(input)].priorities != PriorityMask::ALL
            || (looks_at_tags && frames.iter().any(|buf| buf.vlan_tag() != VlanTag::AsIs))
    }

    /// Looks at the sources of frames. Returns whether none of them has to be judged by itself.
    fn sources_pass(&mut self, input: u16, port: u16, vnet: u16, frames: &[B]) -> bool {
        let at = usize::from(port);
        match self.watch[at].sources {
            Sources::Any => true,
            Sources::Bound => {
                let watch = &self.watch[at];
                frames.iter().all(|buf| watch.passes(buf.head()))
            }
            // Before its source is made known to anybody.
            Sources::Learn
                if self.has_bound_ips
                    && frames.iter().any(|buf| claimed(buf.head()) != NO_ADDRESSES) =>
            {
                false
            }
            Sources::Learn => {
                if self.control.attached {
                    for buf in frames {
                        if source_of(buf.head()) != self.watch[at].good {
                            self.meet_source(input, port, vnet, buf);
                        }
                    }
                }
                true
            }
        }
    }

    /// Whether a frame leaves alone the addresses that others here are bound to, and those that
    /// others are allowed by name unless its port is.
    fn judge_claims(&self, port: u16, vnet: u16, head: &[u8]) -> Result<(), DropReason> {
        let own = &self.watch[usize::from(port)];
        for ip in claimed(head).into_iter().flatten() {
            let may_share = own.allows(ip) || own.is_bound_to(ip);
            let is_bound = |(at, watch): (usize, &Watch)| {
                let role = &self.ports[at].role;
                at != usize::from(port)
                    && matches!(role, PortRole::Access { vnet: there } if there.0 == vnet)
                    && (watch.is_bound_to(ip) || (!may_share && watch.names(ip)))
            };
            if self.watch.iter().enumerate().any(is_bound) {
                return Err(DropReason::SpoofedIp);
            }
        }
        Ok(())
    }

    /// What a frame ends under; or where its binding is, if its port is bound.
    fn judge(&self, port: u16, vnet: u16, head: &[u8]) -> Result<Option<usize>, DropReason> {
        let watch = &self.watch[usize::from(port)];
        let at = if watch.sources == Sources::Bound { Some(watch.judge(head)?) } else { None };
        self.judge_claims(port, vnet, head)?;
        Ok(at)
    }

    /// One frame that is judged by itself.
    fn receive_bound(&mut self, now: Nanos, input: u16, port: u16, vnet: u16, buf: B) {
        let verdict = self.classify_access(input, port, &buf);
        if let Verdict::Forward(c) = verdict {
            match self.judge(port, vnet, buf.head()) {
                Err(reason) => {
                    let arrival =
                        Arrival { source: input, vnet, strip: 0, priority: c.priority, ecn: None };
                    self.refuse(input, &arrival, buf, reason);
                    return;
                }
                Ok(None) => {
                    if self.control.attached
                        && source_of(buf.head()) != self.watch[usize::from(port)].good
                    {
                        self.meet_source(input, port, vnet, &buf);
                    }
                }
                Ok(Some(at)) => {
                    let watch = &mut self.watch[usize::from(port)];
                    watch.good_at = at;
                    if !self.control.attached {
                        watch.good = source_of(buf.head());
                    } else if watch.good != source_of(buf.head()) {
                        watch.forget();
                        self.meet_source(input, port, vnet, &buf);
                    }
                }
            }
        }
        if self.takes_long_way(input, port, core::slice::from_ref(&buf)) {
            self.receive_access(now, input, port, vnet, buf);
        } else if let Err(buf) = self.receive_plain(input, port, vnet, buf) {
            self.receive_access(now, input, port, vnet, buf);
        }
    }

    /// Asks the chip about a source that is not the one remembered.
    #[inline(never)]
    fn meet_source(&mut self, input: u16, port: u16, vnet: u16, buf: &B) {
        let head = buf.head();
        let verdict = self.classify_access(input, port, buf);
        if !matches!(verdict, Verdict::Forward(_)) {
            return;
        }
        let source = source_of(head);
        let key = mac_table::key_of(vnet, source);
        let known = self.chip.meet(key);
        if known == Some(self.ports[usize::from(port)].lane) {
            self.watch[usize::from(port)].good = source;
            return;
        }
        let from = (VnetId(vnet), PuntFrom::Input(InputId(input)));
        self.punt_source(port, known.is_some(), key, from, head);
    }

    /// Binds a machine to a port.
    pub(crate) fn bind(
        &mut self,
        port: PortId,
        mac: Mac,
        ips: BoundIps,
    ) -> Result<(), CommandError> {
        self.check_port(port)?;
        self.watch[port.index()].bind(port, mac, ips)?;
        self.bindings_changed();
        Ok(())
    }

    /// Allows the machines of a bound port further addresses.
    pub(crate) fn allow(&mut self, port: PortId, prefix: IpPrefix) -> Result<(), CommandError> {
        self.check_port(port)?;
        self.watch[port.index()].allow(port, prefix)?;
        self.bindings_changed();
        Ok(())
    }

    /// Unbinds a machine from a port.
    pub(crate) fn unbind(&mut self, port: PortId, mac: Mac) -> Result<(), CommandError> {
        self.check_port(port)?;
        self.watch[port.index()].unbind(mac);
        self.bindings_changed();
        Ok(())
    }

    /// Takes an address from a machine that is bound to a port.
    pub(crate) fn unbind_ip(
        &mut self,
        port: PortId,
        mac: Mac,
        ip: IpAddr,
    ) -> Result<(), CommandError> {
        self.check_port(port)?;
        self.watch[port.index()].unbind_ip(mac, ip);
        self.bindings_changed();
        Ok(())
    }

    fn any_bound_ips(&self) -> bool {
        let has_ips = |watch: &Watch| watch.bound.iter().any(Bound::has_ips);
        self.watch.iter().any(|watch| has_ips(watch) || !watch.allowed.is_empty())
    }

    /// Somebody has an address by binding, or nobody has any more.
    pub(crate) fn bindings_changed(&mut self) {
        let has_bound_ips = self.any_bound_ips();
        if has_bound_ips != self.has_bound_ips {
            self.has_bound_ips = has_bound_ips;
            for port in 0..self.ports.len() {
                self.ports[port].careful = self.is_careful(port);
            }
        }
    }

    fn check_port(&self, port: PortId) -> Result<(), CommandError> {
        let port_exists = self.ports.get(port.index()).is_some_and(|port| !port.detached);
        if port_exists { Ok(()) } else { Err(CommandError::NoSuchPort(port)) }
    }

    /// What is good depends on whether control is attached.
    pub(crate) fn sources_changed(&mut self) {
        self.has_bound_ips = self.any_bound_ips();
        self.watch.iter_mut().for_each(Watch::forget);
        for port in 0..self.ports.len() {
            self.ports[port].careful = self.is_careful(port);
        }
    }

    /// Returns true if frames of a port need more than the fast way.
    pub(crate) fn is_careful(&self, port: usize) -> bool {
        let watches = match self.watch[port].sources {
            Sources::Any => false,
            Sources::Learn => self.control.attached || self.has_bound_ips,
            Sources::Bound => true,
        };
        let first_input = usize::from(self.ports[port].first_input);
        let looks_at_tags = self.ports[port].tags != Tags::Kept;
        matches!(self.ports[port].role, PortRole::Access { .. })
            && (watches
                || looks_at_tags
                || self.may_be_full(first_input)
                || self.has_own_queues(port))
    }

    /// Returns true if a port has queues that are of some priorities only.
    fn has_own_queues(&self, port: usize) -> bool {
        let port = &self.ports[port];
        let first = usize::from(port.first_input);
        let inputs = &self.inputs[first..first + usize::from(port.queues)];
        inputs.iter().any(|input| input.priorities != PriorityMask::ALL)
    }

    /// Puts an entry into the chip; what it was, and what had to go for it, is forgotten.
    pub(crate) fn install(&mut self, key: u64, lane: u32) {
        let kind = self.lanes[lane as usize].kind;
        let is_flow = matches!(kind, LaneKind::Tunnel(_) | LaneKind::Held(_));
        let inserted = self.chip.insert(key, lane, is_flow);
        if let Some(before) = inserted.before.filter(|before| *before != lane) {
            forget(&self.lanes, &mut self.watch, key, before);
        }
        if let Some((key, lane)) = inserted.evicted {
            forget(&self.lanes, &mut self.watch, key, lane);
        }
    }

    /// Takes an entry out of the chip.
    pub(crate) fn uninstall(&mut self, key: u64) {
        if let Some(lane) = self.chip.remove(key) {
            forget(&self.lanes, &mut self.watch, key, lane);
        }
    }

    /// Looks at the next `places` places of the chip's table (about twice as many as there are
    /// entries) and tells which of their entries were used since it last looked at them. It does
    /// not change what will be evicted. Returns whether it came to the end; the next call then
    /// begins again. Whoever ages out what is idle calls it in every turn, and an entry is idle
    /// that two whole rounds did not tell.
    pub fn used_since(&mut self, places: u32, mut each: impl FnMut(VnetId, Mac, Used)) -> bool {
        let (lanes, watch) = (&self.lanes, &mut self.watch);
        self.chip.walk_used(places, |key, lane, used| {
            // So that its next frame asks the chip, and is seen.
            forget(lanes, watch, key, lane);
            let (vnet, mac) = mac_table::unkey(key);
            each(vnet, mac, used);
        })
    }
}

/// The place that an entry names forgets its source.
fn forget(lanes: &[Lane], watch: &mut [Watch], key: u64, lane: u32) {
    if let LaneKind::Port(port) = lanes[lane as usize].kind
        && watch[port.index()].good == mac_table::unkey(key).1.to_u64()
    {
        watch[port.index()].forget();
    }
}

#[cfg(test)]
mod tests;
