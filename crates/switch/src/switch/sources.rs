//! Source check of a port: it takes frames of any source, of any source with punts of new ones, or
//! of bound machines only.
//!
//! ```text
//!   source ── the last good one? ── yes: passes
//!                 │ no
//!                 ├─ Bound: one of its MACs, and its addresses? ── no: `spoofed_mac`, `spoofed_ip`
//!                 ├─ Learn: claims an address that another port is bound to? ── `spoofed_ip`
//!                 └─ control attached: table has it here? ─── yes: cached
//!                                                             └─ no: a punt; passes
//! ```
//!
//! A port caches the last good source, so that a machine with one address costs one compare, and
//! the table is read only if several share a port. Learning never delays a frame and never drops
//! one; binding drops whether control is attached or not.
//!
//! **The cached source does not stay stale.** It only suppresses punts: the forwarding table (FDB)
//! gives the destination of a frame, and the bindings of a bound port, which clear the cache when
//! they change, decide what it lets in. A cached source that outlives its entry could only hide a
//! machine that moved away and came back; therefore every change of an entry of the forwarding
//! table clears the cache of the port that it referred to.
//!
//! A bound machine may use its MAC in the frame and in ARP (RFC 826), and if it has addresses, one
//! of them as IPv4 source, as ARP sender and as IPv6 source, and as the target of a Neighbor
//! Advertisement (RFC 4861 section 4.4). Before it has one it may use 0.0.0.0 in an ARP probe (RFC
//! 5227 section 2.1.1) and to 255.255.255.255 (RFC 2131 section 4.1), and `::` (RFC 4862 section
//! 5.4.2). It may also use link-local addresses, formed from its MAC (RFC 4291 section 2.5.6) or
//! from a secret (RFC 7217), but not from another MAC. IP whose header cannot be read does not
//! pass.
//!
//! A port may **allow** its machines further addresses, by prefixes ([`Switch::allow`]): no
//! binding owns such an address, and the last machine that claims it has it (control sees to that).
//!
//! No machine may claim an address that another port of this switch is bound to in its network, or
//! one that another port allows as a single address and its own port does not. While any port is
//! bound, the claims in ARP (sender) and Neighbor Discovery (source, and target of an
//! advertisement) are checked, whatever their destination: a reply to one machine moves that
//! machine's traffic.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use sluice_base::{
    Buf, Destination, DropReason, IpPrefix, Mac, Nanos, PortId, PriorityMask, VlanTag, VnetId,
};
use sluice_wire::EtherType;

use crate::classify::Verdict;
use crate::config::{PortConfig, PortRole, Sources, SwitchConfig, Tags};
use crate::egress::QueueGroup;
use crate::mac_table::{self, Used};
use crate::slots::Arrival;
use crate::surface::{ALLOWED_MAX, BOUND_MACS_MAX, BoundIps, CommandError, QueueGroupKind};
use crate::switch::Switch;
use crate::switch::dispose::Disposition;
use crate::switch::receive::{Entry, Way};
use bound::{Bound, Speaker};
use claims::{NO_ADDRESSES, claimed};

mod bound;
mod claims;

/// Number of no address: it has more than 48 bits.
const NOBODY: u64 = u64::MAX;

/// Source checks of all ports.
#[derive(Debug)]
pub(crate) struct SourceChecks {
    /// By port.
    watch: Box<[Watch]>,
    /// True if some port is bound to addresses.
    has_bound_ips: bool,
}

/// Source check of one port: its rule, bindings and cached source.
#[derive(Debug)]
pub(crate) struct Watch {
    sources: Sources,
    /// The last source found good, as a number.
    good: u64,
    /// Bound ports: index of that source's binding.
    good_at: usize,
    bound: Vec<Bound>,
    /// Prefixes that its machines may use beside their own addresses.
    allowed: Vec<IpPrefix>,
}

impl Watch {
    fn new(port: &PortConfig) -> Self {
        // Reserves room for bindings in any case: the next port in this place may be bound.
        let binds = port.sources == Sources::Bound || matches!(port.role, PortRole::Access { .. });
        let bound = Vec::with_capacity(if binds { BOUND_MACS_MAX } else { 0 });
        let allowed = Vec::with_capacity(if binds { ALLOWED_MAX } else { 0 });
        Self { sources: port.sources, good: NOBODY, good_at: 0, bound, allowed }
    }

    fn forget(&mut self) {
        self.good = NOBODY;
    }

    /// Resets the check for another port, without bindings.
    fn restart(&mut self, sources: Sources) {
        self.sources = sources;
        self.bound.clear();
        self.allowed.clear();
        self.good_at = 0;
        self.forget();
    }

    /// Returns the whole state, for the switch that gets the port, and leaves a check without
    /// bindings.
    fn give(&mut self) -> Self {
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
        let bound = Bound::new(mac.to_u64(), ips);
        match self.bound.iter().position(|there| there.mac() == bound.mac()) {
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

    /// Returns true if the port allows an address as a single one, and not in a larger prefix.
    fn names(&self, ip: IpAddr) -> bool {
        self.allowed.iter().any(|prefix| prefix.is_single() && prefix.address() == ip)
    }

    fn unbind(&mut self, mac: Mac) {
        self.bound.retain(|bound| bound.mac() != mac.to_u64());
        self.forget();
    }

    fn unbind_ip(&mut self, mac: Mac, ip: IpAddr) {
        let is_it = |bound: &&mut Bound| bound.mac() == mac.to_u64() && bound.has(ip);
        let Some(bound) = self.bound.iter_mut().find(is_it) else { return };
        bound.unbind(ip);
        let is_bound = bound.has_ips();
        if !is_bound {
            self.unbind(mac);
        }
        self.forget();
    }

    /// Returns true if a frame of a bound port passes the fast check: it is of the last good
    /// source, and plain IPv4 from an address of it, or the machine may have any address.
    fn passes(&self, head: &[u8]) -> bool {
        if source_of(head) != self.good {
            return false;
        }
        let Some(bound) = self.bound.get(self.good_at) else { return false };
        let Some(head) = head.first_chunk::<30>() else { return false };
        let ethertype = EtherType(u16::from_be_bytes([head[12], head[13]]));
        if bound.is_free(&self.allowed) {
            // ARP has the MAC a second time.
            return ethertype != EtherType::ARP && !ethertype.is_tag();
        }
        let ip = Ipv4Addr::new(head[26], head[27], head[28], head[29]);
        ethertype == EtherType::IPV4 && (bound.has(ip.into()) || self.allows(ip.into()))
    }

    /// Returns the index of the binding of a frame at a bound port, or its drop reason.
    fn judge(&self, head: &[u8]) -> Result<usize, DropReason> {
        let source = source_of(head);
        let at = self.bound.iter().position(|bound| bound.mac() == source);
        let at = at.ok_or(DropReason::SpoofedMac)?;
        let speaker = Speaker::new(&self.bound[at], &self.allowed);
        speaker.judge(head).map(|()| at)
    }
}

/// Returns the source address as a number. If it is cut off, returns one that is no address and is
/// never cached.
#[inline]
fn source_of(head: &[u8]) -> u64 {
    match head.first_chunk::<12>() {
        Some(&[_, _, _, _, _, _, a, b, c, d, e, f]) => u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
        None => NOBODY - 1,
    }
}

impl SourceChecks {
    /// Returns the source checks of all ports, with the bindings of the configuration.
    pub(crate) fn new(config: &SwitchConfig) -> Self {
        let mut watches: Box<[Watch]> = config.ports.iter().map(Watch::new).collect();
        for binding in &config.control.bindings {
            let watch = &mut watches[binding.port.index()];
            watch.bind(binding.port, binding.mac, binding.ips).expect("checked by `validate`");
        }
        for (port, prefix) in &config.control.allowed {
            watches[port.index()].allow(*port, *prefix).expect("checked by `validate`");
        }
        Self { watch: watches, has_bound_ips: false }
    }

    /// Returns the rule of a port.
    pub(crate) const fn of(&self, port: usize) -> Sources {
        self.watch[port].sources
    }

    /// Resets the check of a port for another one, without bindings.
    pub(crate) fn restart(&mut self, port: usize, sources: Sources) {
        self.watch[port].restart(sources);
    }

    /// Returns the whole state of a port, for the switch that gets it, and leaves a check without
    /// bindings.
    pub(crate) fn give(&mut self, port: usize) -> Watch {
        self.watch[port].give()
    }

    /// Takes the state of a port that another switch gave.
    pub(crate) fn take(&mut self, port: usize, watch: Watch) {
        self.watch[port] = watch;
    }

    fn any_bound_ips(&self) -> bool {
        let has_ips = |watch: &Watch| watch.bound.iter().any(Bound::has_ips);
        self.watch.iter().any(|watch| has_ips(watch) || !watch.allowed.is_empty())
    }

    /// Clears the cached source of the port that an entry leads to.
    fn forget(&mut self, group: &QueueGroup, key: u64) {
        if let QueueGroupKind::Port(port) = group.kind()
            && self.watch[port.index()].good == mac_table::unkey(key).1.to_u64()
        {
            self.watch[port.index()].forget();
        }
    }
}

impl<B: Buf> Switch<B> {
    /// Returns true if frames have to take the slow path: they may find the input full, their queue
    /// has some priorities only, or a tag that their driver took off gives their priority.
    pub(crate) fn takes_long_way(&self, entry: Entry, frames: &[B]) -> bool {
        let (input, port) =
            (self.ingress.input(entry.input), self.egress.port(usize::from(entry.port)));
        let looks_at_tags = port.tags() != Tags::Kept;
        input.may_be_full(self.egress.lossless())
            || input.priorities() != PriorityMask::ALL
            || (looks_at_tags && frames.iter().any(|buf| buf.vlan_tag() != VlanTag::AsIs))
    }

    /// Checks the sources of frames. Returns false if each frame has to be judged by itself.
    pub(crate) fn sources_pass(&mut self, entry: Entry, frames: &[B]) -> bool {
        let Way::Access { vnet } = self.way(entry) else { return true };
        let Entry { input, port } = entry;
        let at = usize::from(port);
        match self.sources.watch[at].sources {
            Sources::Any => true,
            Sources::Bound => {
                let watch = &self.sources.watch[at];
                frames.iter().all(|buf| watch.passes(buf.head()))
            }
            // Judges the frames before any source is punted.
            Sources::Learn
                if self.sources.has_bound_ips
                    && frames.iter().any(|buf| claimed(buf.head()) != NO_ADDRESSES) =>
            {
                false
            }
            Sources::Learn => {
                if self.control.is_attached() {
                    for buf in frames {
                        if source_of(buf.head()) != self.sources.watch[at].good {
                            self.meet_source(input, port, vnet, buf);
                        }
                    }
                }
                true
            }
        }
    }

    /// Checks that a frame claims no address that another port is bound to, and none that another
    /// port allows as a single one, unless its own port has it too.
    fn judge_claims(&self, port: u16, vnet: u16, head: &[u8]) -> Result<(), DropReason> {
        let own = &self.sources.watch[usize::from(port)];
        for ip in claimed(head).into_iter().flatten() {
            let may_share = own.allows(ip) || own.is_bound_to(ip);
            let is_bound = |(at, watch): (usize, &Watch)| {
                let role = self.egress.port(at).role();
                at != usize::from(port)
                    && matches!(role, PortRole::Access { vnet: there } if there.0 == vnet)
                    && (watch.is_bound_to(ip) || (!may_share && watch.names(ip)))
            };
            if self.sources.watch.iter().enumerate().any(is_bound) {
                return Err(DropReason::SpoofedIp);
            }
        }
        Ok(())
    }

    /// Returns the drop reason of a frame, or the index of its binding, if its port is bound.
    fn judge(&self, port: u16, vnet: u16, head: &[u8]) -> Result<Option<usize>, DropReason> {
        let watch = &self.sources.watch[usize::from(port)];
        let at = if watch.sources == Sources::Bound { Some(watch.judge(head)?) } else { None };
        self.judge_claims(port, vnet, head)?;
        Ok(at)
    }

    /// Receives one frame whose source has to be judged by itself.
    pub(crate) fn receive_checked(&mut self, now: Nanos, entry: Entry, buf: B) {
        match self.check_source(entry, &buf) {
            Ok(()) => self.receive_passed(now, entry, buf),
            Err((arrival, reason)) => {
                let slot = self.arrive(entry.input, &arrival, buf);
                self.settle(slot, Disposition::Drop(reason));
            }
        }
    }

    /// Judges the source of a frame, and punts it if the source is new.
    fn check_source(&mut self, entry: Entry, buf: &B) -> Result<(), (Arrival, DropReason)> {
        let Way::Access { vnet } = self.way(entry) else { return Ok(()) };
        let Entry { input, port } = entry;
        let Verdict::Forward(c) = self.classify_access(input, port, buf) else { return Ok(()) };
        let source = source_of(buf.head());
        let judged = self.judge(port, vnet, buf.head()).map_err(|reason| {
            let priority = c.priority;
            (Arrival { source: input, vnet, strip: 0, priority, ecn: None }, reason)
        })?;
        let watch = &mut self.sources.watch[usize::from(port)];
        if let Some(at) = judged {
            watch.good_at = at;
            if !self.control.is_attached() {
                watch.good = source;
                return Ok(());
            }
        }
        if self.control.is_attached() && watch.good != source {
            if judged.is_some() {
                watch.forget();
            }
            self.meet_source(input, port, vnet, buf);
        }
        Ok(())
    }

    /// Looks up a source other than the cached one in the forwarding table, and punts the frame if
    /// it is not there.
    #[inline(never)]
    fn meet_source(&mut self, input: u16, port: u16, vnet: u16, buf: &B) {
        let head = buf.head();
        let verdict = self.classify_access(input, port, buf);
        if !matches!(verdict, Verdict::Forward(_)) {
            return;
        }
        let source = source_of(head);
        let key = mac_table::key_of(vnet, source);
        let known = self.fdb.meet(key);
        if known == Some(self.egress.port(usize::from(port)).group()) {
            self.sources.watch[usize::from(port)].good = source;
            return;
        }
        let from = (VnetId(vnet), Destination::Port(PortId(port)));
        self.punt_source(port, known.is_some(), key, from, head);
    }

    /// Binds a machine to a port of [`Sources::Bound`], or gives it other addresses.
    ///
    /// # Errors
    /// There is no such port, it takes any source or has no place for another machine, or the
    /// machine's address is a group.
    pub fn bind(&mut self, port: PortId, mac: Mac, ips: BoundIps) -> Result<(), CommandError> {
        self.check_port(port)?;
        self.sources.watch[port.index()].bind(port, mac, ips)?;
        self.bindings_changed();
        Ok(())
    }

    /// Allows the bound machines of a port to use any address of a prefix as well. Machines of
    /// other ports may have these addresses too. The permission ends with the port.
    ///
    /// # Errors
    /// There is no such port, or it takes any source or allows [`ALLOWED_MAX`] prefixes.
    pub fn allow(&mut self, port: PortId, prefix: IpPrefix) -> Result<(), CommandError> {
        self.check_port(port)?;
        self.sources.watch[port.index()].allow(port, prefix)?;
        self.bindings_changed();
        Ok(())
    }

    /// Sets the prefixes that a bound port allows its machines, instead of those of before.
    pub(crate) fn set_allowed(&mut self, port: PortId, prefixes: &[IpPrefix]) {
        let watch = &mut self.sources.watch[port.index()];
        watch.allowed.clear();
        watch.allowed.extend_from_slice(prefixes);
        watch.forget();
        self.bindings_changed();
    }

    /// Unbinds a machine from a port, or takes an address from it.
    pub(crate) fn unbind(
        &mut self,
        port: PortId,
        mac: Mac,
        ip: Option<IpAddr>,
    ) -> Result<(), CommandError> {
        self.check_port(port)?;
        let watch = &mut self.sources.watch[port.index()];
        match ip {
            None => watch.unbind(mac),
            Some(ip) => watch.unbind_ip(mac, ip),
        }
        self.bindings_changed();
        Ok(())
    }

    /// Updates the ports after the first binding with an address was made, or the last one removed.
    pub(crate) fn bindings_changed(&mut self) {
        let has_bound_ips = self.sources.any_bound_ips();
        if has_bound_ips != self.sources.has_bound_ips {
            self.sources.has_bound_ips = has_bound_ips;
            self.careful_changed();
        }
    }

    fn check_port(&self, port: PortId) -> Result<(), CommandError> {
        let port_exists = self.egress.ports().get(port.index()).is_some_and(|p| !p.is_detached());
        if port_exists { Ok(()) } else { Err(CommandError::NoSuchPort(port)) }
    }

    /// Resets all source checks: their results depend on whether control is attached.
    pub(crate) fn sources_changed(&mut self) {
        self.sources.has_bound_ips = self.sources.any_bound_ips();
        self.sources.watch.iter_mut().for_each(Watch::forget);
        self.careful_changed();
    }

    fn careful_changed(&mut self) {
        for port in 0..self.egress.ports().len() {
            self.egress.set_careful(port, self.is_careful(port));
        }
    }

    /// Returns true if frames of a port need more than the fast path.
    pub(crate) fn is_careful(&self, port: usize) -> bool {
        let watches = match self.sources.watch[port].sources {
            Sources::Any => false,
            Sources::Learn => self.control.is_attached() || self.sources.has_bound_ips,
            Sources::Bound => true,
        };
        let first_input = self.egress.port(port).first_input();
        let looks_at_tags = self.egress.port(port).tags() != Tags::Kept;
        matches!(self.egress.port(port).role(), PortRole::Access { .. })
            && (watches
                || looks_at_tags
                || self.ingress.input(first_input).may_be_full(self.egress.lossless())
                || self.has_own_queues(port))
    }

    /// Returns true if a port has queues that are limited to some priorities.
    fn has_own_queues(&self, port: usize) -> bool {
        let mut inputs = self.egress.port(port).inputs();
        inputs.any(|input| self.ingress.input(input).priorities() != PriorityMask::ALL)
    }

    /// Adds an entry to the forwarding table, and clears the cached sources of the entry that it
    /// replaces and of the one that is evicted.
    pub(crate) fn install(&mut self, key: u64, group: u32) {
        let is_flow = self.egress.group(group).is_behind_tunnel();
        let inserted = self.fdb.insert(key, group, is_flow);
        if let Some(before) = inserted.before.filter(|before| *before != group) {
            self.sources.forget(self.egress.group(before), key);
        }
        if let Some((key, group)) = inserted.evicted {
            self.sources.forget(self.egress.group(group), key);
        }
    }

    /// Removes an entry from the forwarding table.
    pub(crate) fn uninstall(&mut self, key: u64) {
        if let Some(group) = self.fdb.remove(key) {
            self.sources.forget(self.egress.group(group), key);
        }
    }

    /// Counts a use of an address that somebody else forwarded for this switch.
    pub fn touch(&mut self, vnet: VnetId, mac: Mac, used: Used) {
        let key = mac_table::key(vnet.0, mac);
        if used.as_destination {
            self.fdb.lookup(key);
        }
        if used.as_source {
            self.fdb.meet(key);
        }
    }

    /// Walks the next `places` places of the forwarding table (it has at least twice as many places
    /// as entries) and reports the entries that were used since the last walk passed them. The walk
    /// does not affect eviction. Returns true at the end of the table; the next call then starts
    /// again. To age out idle entries, call it in every turn: an entry is idle if two whole rounds
    /// did not report it.
    pub fn used_since(&mut self, places: u32, mut each: impl FnMut(VnetId, Mac, Used)) -> bool {
        let (egress, sources) = (&self.egress, &mut self.sources);
        self.fdb.walk_used(places, |key, group, used| {
            // Clears the cached source, so that its next frame reads the table and counts as a use.
            sources.forget(egress.group(group), key);
            let (vnet, mac) = mac_table::unkey(key);
            each(vnet, mac, used);
        })
    }
}

#[cfg(test)]
mod tests;
