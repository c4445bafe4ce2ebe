//! Messages, between octets and what the rest of the crate knows. The codec is `rustbgpd-wire`;
//! nothing else here names it.
//!
//! A malformed attribute makes routes withdrawn, not sessions end (RFC 7606): the codec says which
//! errors are of which kind.

mod put;

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use rustbgpd_wire::validate::{ErrorDisposition, validate_update_attributes};
use rustbgpd_wire::{
    Afi, Capability, DecodeError, EvpnRoute, MAX_MESSAGE_LEN, Message, MpReachNlri, MpUnreachNlri,
    OpenMessage, PathAttribute, PmsiTunnelType, RouteRefreshMessage, RouteRefreshSubtype, Safi,
    UpdateMessage, decode_message, peek_message_length,
};
use sluice_base::Mac;

pub(crate) use self::put::{
    Origin, ROUTES_MAX, put_end_of_rib, put_keepalive, put_notification, put_open, put_reach,
    put_refresh, put_unreach,
};
use crate::route::{Attributes, Nlri, Route};
use crate::session::Identity;

/// A message that was read.
#[derive(Debug)]
pub(crate) enum Heard {
    Open(Open),
    Keepalive,
    Notification(Notification),
    Update(Box<Update>),
    /// `None`: of another family, or of no known kind.
    Refresh(Option<Refresh>),
}

/// A NOTIFICATION (RFC 4271 section 4.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Notification {
    pub(crate) code: u8,
    pub(crate) subcode: u8,
    pub(crate) data: Vec<u8>,
}

impl Notification {
    /// RFC 4486 section 4, subcode 1.
    pub(crate) const CEASE_TOO_MANY_ROUTES: Self = Self::new(6, 1);
    /// RFC 4486 section 4, subcode 2.
    pub(crate) const CEASE_SHUT_DOWN: Self = Self::new(6, 2);
    /// RFC 4486 section 4, subcode 7.
    pub(crate) const CEASE_COLLISION: Self = Self::new(6, 7);

    pub(crate) const fn new(code: u8, subcode: u8) -> Self {
        Self { code, subcode, data: Vec::new() }
    }
}

impl From<DecodeError> for Notification {
    fn from(error: DecodeError) -> Self {
        let (code, subcode, data) = error.to_notification();
        Self { code: code.as_u8(), subcode, data: data.to_vec() }
    }
}

/// The neighbor's OPEN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) local_as: u32,
    pub(crate) hold_s: u16,
    pub(crate) router_id: Ipv4Addr,
    /// AS numbers of four octets (RFC 6793).
    pub(crate) has_wide_as: bool,
    pub(crate) has_refresh: bool,
    pub(crate) has_enhanced_refresh: bool,
    has_evpn: bool,
}

impl Open {
    fn new(open: &OpenMessage) -> Self {
        let has = |wanted: &Capability| open.capabilities.contains(wanted);
        let wide = open.capabilities.iter().find_map(|capability| match capability {
            Capability::FourOctetAs { asn } => Some(*asn),
            _ => None,
        });
        Self {
            local_as: wide.unwrap_or(open.my_as.into()),
            hold_s: open.hold_time,
            router_id: open.bgp_identifier,
            has_wide_as: wide.is_some(),
            has_refresh: has(&Capability::RouteRefresh),
            has_enhanced_refresh: has(&Capability::EnhancedRouteRefresh),
            has_evpn: has(&Capability::MultiProtocol { afi: Afi::L2Vpn, safi: Safi::Evpn }),
        }
    }

    /// Checks the OPEN (RFC 4271 section 6.2, RFC 6286 section 2.2, RFC 5492 section 5).
    pub(crate) fn check(&self, own: Identity) -> Result<(), Notification> {
        let is_internal = own.local_as == own.remote_as;
        if self.local_as != own.remote_as {
            return Err(Notification::new(2, 2));
        }
        if self.router_id.is_unspecified() || (is_internal && self.router_id == own.router_id) {
            return Err(Notification::new(2, 3));
        }
        if matches!(self.hold_s, 1 | 2) {
            return Err(Notification::new(2, 6));
        }
        if !self.has_evpn {
            let data = vec![1, 4, 0, Afi::L2Vpn as u8, 0, Safi::Evpn as u8];
            return Err(Notification { code: 2, subcode: 7, data });
        }
        Ok(())
    }
}

/// A ROUTE-REFRESH of this family (RFC 2918, RFC 7313).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refresh {
    /// All routes are asked for.
    Request,
    /// All routes follow.
    Begin,
    /// All routes were sent.
    End,
}

impl Refresh {
    fn of(message: &RouteRefreshMessage) -> Option<Self> {
        let is_ours = message.afi() == Some(Afi::L2Vpn) && message.safi() == Some(Safi::Evpn);
        match message.subtype() {
            RouteRefreshSubtype::Normal if is_ours => Some(Self::Request),
            RouteRefreshSubtype::BoRR if is_ours => Some(Self::Begin),
            RouteRefreshSubtype::EoRR if is_ours => Some(Self::End),
            _ => None,
        }
    }
}

/// An UPDATE, as far as it is of this family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) withdrawn: Vec<Nlri>,
    pub(crate) reach: Vec<Route>,
    pub(crate) attributes: Attributes,
    /// True if it is the End-of-RIB marker (RFC 4724 section 2).
    pub(crate) is_end_of_rib: bool,
    /// Number of routes of other types.
    pub(crate) other_types: u32,
    /// Number of routes that are withdrawn since they cannot be read.
    pub(crate) malformed: u32,
}

/// What attributes depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dialect {
    /// True if AS numbers have four octets (RFC 6793).
    pub(crate) is_wide: bool,
    /// True if the neighbor is of the same AS.
    pub(crate) is_internal: bool,
}

/// Reads the message at the start of `bytes`, and returns its size; `None`: some of it is missing.
pub(crate) fn read(bytes: &[u8], dialect: Dialect) -> Result<Option<(usize, Heard)>, Notification> {
    let Some(length) = peek_message_length(bytes, MAX_MESSAGE_LEN)? else { return Ok(None) };
    let size = usize::from(length);
    let Some(whole) = bytes.get(..size) else { return Ok(None) };
    let heard = match decode_message(&mut Bytes::copy_from_slice(whole), MAX_MESSAGE_LEN)? {
        Message::Open(open) => Heard::Open(Open::new(&open)),
        Message::Keepalive => Heard::Keepalive,
        Message::Notification(message) => Heard::Notification(Notification {
            code: message.code.as_u8(),
            subcode: message.subcode,
            data: message.data.to_vec(),
        }),
        Message::Update(update) => Heard::Update(Box::new(read_update(&update, dialect)?)),
        Message::RouteRefresh(message) => Heard::Refresh(Refresh::of(&message)),
        // The codec knows a type that this crate does not.
        _ => return Err(Notification { code: 1, subcode: 3, data: vec![whole[18]] }),
    };
    Ok(Some((size, heard)))
}

fn read_update(message: &UpdateMessage, dialect: Dialect) -> Result<Update, Notification> {
    let Dialect { is_wide, is_internal } = dialect;
    let (parsed, discarded) = message.parse_revised_observed(is_wide, is_internal, false, &[])?;
    let other_types = discarded.iter().map(|(_, count)| *count);
    let mut update =
        Update { other_types: other_types.fold(0, u32::saturating_add), ..Update::default() };
    let attributes = &parsed.update.attributes;
    for attribute in attributes {
        match attribute {
            PathAttribute::MpReachNlri(reach) => update.take_reach(reach),
            PathAttribute::MpUnreachNlri(unreach) => {
                update.is_end_of_rib = is_end_of_rib(unreach, attributes, &parsed.malformed);
                update.take_unreach(unreach);
            }
            other => update.attributes.take(other),
        }
    }
    let is_bad = parsed
        .malformed
        .iter()
        .any(|bad| !matches!(bad.disposition, ErrorDisposition::AttributeDiscard));
    let is_valid = || validate_update_attributes(attributes, true, false, !is_internal).is_ok();
    if is_bad || !(update.reach.is_empty() || is_valid()) {
        update.treat_as_withdraw();
    }
    Ok(update)
}

fn is_end_of_rib<T>(unreach: &MpUnreachNlri, all: &[PathAttribute], malformed: &[T]) -> bool {
    let is_ours = unreach.afi == Afi::L2Vpn && unreach.safi == Safi::Evpn;
    is_ours && unreach.evpn_withdrawn.is_empty() && all.len() == 1 && malformed.is_empty()
}

impl Update {
    fn take_reach(&mut self, reach: &MpReachNlri) {
        if let IpAddr::V4(vtep) = reach.next_hop {
            let is_host = !vtep.is_unspecified() && !vtep.is_multicast() && !vtep.is_broadcast();
            self.attributes.next_hop = is_host.then_some(vtep);
        }
        for route in &reach.evpn_announced {
            match route_of(route) {
                Some(route) => self.reach.push(route),
                None => self.other_types = self.other_types.saturating_add(1),
            }
        }
    }

    fn take_unreach(&mut self, unreach: &MpUnreachNlri) {
        let routes = unreach.evpn_withdrawn.iter().filter_map(route_of);
        self.withdrawn.extend(routes.map(|route| route.nlri));
    }

    /// Withdraws the routes of an UPDATE with a malformed attribute (RFC 7606 section 2).
    fn treat_as_withdraw(&mut self) {
        let routes = std::mem::take(&mut self.reach);
        self.malformed = u32::try_from(routes.len()).unwrap_or(u32::MAX);
        self.withdrawn.extend(routes.iter().map(|route| route.nlri));
    }
}

/// Returns a route of type 2 or 3.
fn route_of(route: &EvpnRoute) -> Option<Route> {
    match route {
        EvpnRoute::MacIp(route) => {
            let nlri = Nlri::MacIp {
                rd: route.rd.octets(),
                tag: route.ethernet_tag.0,
                mac: Mac(route.mac.octets()),
                ip: route.ip,
            };
            Some(Route { nlri, label: Some(route.label1.as_vni()) })
        }
        EvpnRoute::Imet(route) => {
            let nlri = Nlri::Multicast {
                rd: route.rd.octets(),
                tag: route.ethernet_tag.0,
                originator: route.originator_ip,
            };
            Some(Route { nlri, label: None })
        }
        _ => None,
    }
}

impl Attributes {
    fn take(&mut self, attribute: &PathAttribute) {
        if let Some(communities) = attribute.extended_communities() {
            let octets = communities.iter().map(|community| community.as_u64().to_be_bytes());
            self.communities = octets.collect();
        }
        if let Some(tunnel) = attribute.pmsi_tunnel() {
            let is_replication = tunnel.tunnel_type == PmsiTunnelType::IngressReplication;
            self.replication = is_replication.then_some(tunnel.mpls_label);
        }
        match attribute {
            PathAttribute::AsPath(path) => self.as_path = path.asns().collect(),
            PathAttribute::OriginatorId(router) => self.originator = Some(*router),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
