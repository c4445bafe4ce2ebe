//! Messages of this speaker.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use rustbgpd_wire::notification::NotificationCode;
use rustbgpd_wire::{
    Afi, AsPath, AsPathSegment, Capability, EthernetSegmentIdentifier, EthernetTagId, EvpnImet,
    EvpnMacIp, EvpnRoute, ExtendedCommunity, GracefulRestartFamily, MacAddress, Message,
    MpReachNlri, MpUnreachNlri, MplsLabel, NotificationMessage, OpenMessage, PathAttribute,
    PmsiTunnel, RouteDistinguisher, RouteRefreshMessage, RouteRefreshSubtype, Safi, UpdateMessage,
    encode_message,
};

use super::{Notification, Refresh};
use crate::exports::{Common, Exports, OwnRoute};
use crate::route::{ENCAPSULATION, mobility_community};
use crate::session::Identity;

/// Routes of one message: the largest ones, of 51 octets, leave 600 octets of a message for the
/// header and the attributes.
pub(crate) const ROUTES_MAX: usize = 68;
/// Stands for an AS of four octets where there is room for two (RFC 6793 section 9).
const AS_TRANS: u16 = 23_456;
/// LOCAL_PREF that implementations take by default.
const LOCAL_PREF: u32 = 100;

/// The speaker, as its routes name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) vtep: Ipv4Addr,
    pub(crate) router_id: Ipv4Addr,
    pub(crate) local_as: u32,
    /// True towards a neighbor of the same AS.
    pub(crate) is_internal: bool,
}

/// The family, whose frames pass without this speaker (RFC 4724 section 3).
const PRESERVED: GracefulRestartFamily =
    GracefulRestartFamily { afi: Afi::L2Vpn, safi: Safi::Evpn, forwarding_preserved: true };

fn put(out: &mut Vec<u8>, message: &Message) {
    // Sizes are bounded by `ROUTES_MAX`, and no field comes from elsewhere.
    let bytes = encode_message(message).expect("a message of its own fits");
    out.extend_from_slice(&bytes);
}

pub(crate) fn put_open(out: &mut Vec<u8>, own: Identity) {
    let capabilities = vec![
        Capability::MultiProtocol { afi: Afi::L2Vpn, safi: Safi::Evpn },
        Capability::RouteRefresh,
        Capability::EnhancedRouteRefresh,
        Capability::FourOctetAs { asn: own.local_as },
        // Without families: neighbors are to keep nothing, and this speaker understands End-of-RIB
        // (RFC 4724 section 4.1). FRR sends none without this capability.
        Capability::GracefulRestart {
            restart_state: false,
            notification: false,
            restart_time: own.restart_s,
            families: if own.restart_s > 0 { vec![PRESERVED] } else { Vec::new() },
        },
    ];
    let open = OpenMessage {
        version: 4,
        my_as: u16::try_from(own.local_as).unwrap_or(AS_TRANS),
        hold_time: own.hold_s,
        bgp_identifier: own.router_id,
        capabilities,
    };
    put(out, &Message::Open(open));
}

pub(crate) fn put_keepalive(out: &mut Vec<u8>) {
    put(out, &Message::Keepalive);
}

pub(crate) fn put_notification(out: &mut Vec<u8>, notification: &Notification) {
    let code = NotificationCode::from_u8(notification.code);
    let data = Bytes::copy_from_slice(&notification.data);
    let message = NotificationMessage::new(code, notification.subcode, data);
    put(out, &Message::Notification(message));
}

pub(crate) fn put_refresh(out: &mut Vec<u8>, refresh: Refresh) {
    let subtype = match refresh {
        Refresh::Request => RouteRefreshSubtype::Normal,
        Refresh::Begin => RouteRefreshSubtype::BoRR,
        Refresh::End => RouteRefreshSubtype::EoRR,
    };
    let message = RouteRefreshMessage::new_with_subtype(Afi::L2Vpn, Safi::Evpn, subtype);
    put(out, &Message::RouteRefresh(message));
}

pub(crate) fn put_end_of_rib(out: &mut Vec<u8>) {
    put_update(out, &[unreach(Vec::new())], true);
}

/// Writes an UPDATE with routes that have all in common but their names.
pub(crate) fn put_reach(
    out: &mut Vec<u8>,
    origin: &Origin,
    is_wide: bool,
    common: Common,
    routes: &[OwnRoute],
    exports: &Exports,
) {
    let announced = routes.iter().map(|route| nlri(origin, route, exports)).collect();
    let path = AsPathSegment::AsSequence(vec![origin.local_as]);
    let segments = if origin.is_internal { Vec::new() } else { vec![path] };
    let mut attributes = vec![
        PathAttribute::Origin(rustbgpd_wire::Origin::Igp),
        PathAttribute::AsPath(AsPath { segments }),
    ];
    if origin.is_internal {
        attributes.push(PathAttribute::LocalPref(LOCAL_PREF));
    }
    let mut communities = vec![common.target.octets(), ENCAPSULATION];
    match common.mobility {
        // RFC 7432 section 15: the first advertisement has no sequence.
        Some(mobility) if mobility == crate::Mobility::default() => {}
        Some(mobility) => communities.push(mobility_community(mobility)),
        None => {
            let vtep = IpAddr::V4(origin.vtep);
            let tunnel = PmsiTunnel::for_evpn_ingress_replication(common.vni.get(), vtep);
            attributes.push(PathAttribute::PmsiTunnel(tunnel));
        }
    }
    let communities = communities.into_iter().map(u64::from_be_bytes).map(ExtendedCommunity::new);
    attributes.push(PathAttribute::ExtendedCommunities(communities.collect()));
    attributes.push(PathAttribute::MpReachNlri(Box::new(MpReachNlri {
        afi: Afi::L2Vpn,
        safi: Safi::Evpn,
        next_hop: IpAddr::V4(origin.vtep),
        link_local_next_hop: None,
        announced: Vec::new(),
        flowspec_announced: Vec::new(),
        evpn_announced: announced,
        bgpls_announced: Vec::new(),
        vpn_announced: Vec::new(),
        labeled_announced: Vec::new(),
        rtc_announced: Vec::new(),
    })));
    put_update(out, &attributes, is_wide);
}

/// Writes an UPDATE that withdraws routes.
pub(crate) fn put_unreach(
    out: &mut Vec<u8>,
    origin: &Origin,
    routes: &[OwnRoute],
    exports: &Exports,
) {
    let withdrawn = routes.iter().map(|route| nlri(origin, route, exports)).collect();
    put_update(out, &[unreach(withdrawn)], true);
}

fn unreach(withdrawn: Vec<EvpnRoute>) -> PathAttribute {
    PathAttribute::MpUnreachNlri(Box::new(MpUnreachNlri {
        afi: Afi::L2Vpn,
        safi: Safi::Evpn,
        withdrawn: Vec::new(),
        flowspec_withdrawn: Vec::new(),
        evpn_withdrawn: withdrawn,
        bgpls_withdrawn: Vec::new(),
        vpn_withdrawn: Vec::new(),
        labeled_withdrawn: Vec::new(),
        rtc_withdrawn: Vec::new(),
    }))
}

fn put_update(out: &mut Vec<u8>, attributes: &[PathAttribute], is_wide: bool) {
    let mut octets = Vec::new();
    rustbgpd_wire::attribute::encode_path_attributes(attributes, &mut octets, is_wide, false)
        .expect("attributes of its own can be written");
    let update = UpdateMessage {
        withdrawn_routes: Bytes::new(),
        path_attributes: Bytes::from(octets),
        nlri: Bytes::new(),
    };
    put(out, &Message::Update(update));
}

fn nlri(origin: &Origin, route: &OwnRoute, exports: &Exports) -> EvpnRoute {
    let [a, b, c, d] = origin.router_id.octets();
    let [high, low] = exports.number_of(route.vni()).to_be_bytes();
    // Type 1: an address and a number (RFC 7432 section 7.9).
    let rd = RouteDistinguisher::new([0, 1, a, b, c, d, high, low]);
    let ethernet_tag = EthernetTagId(0);
    match route {
        OwnRoute::Network(_) => {
            EvpnRoute::Imet(EvpnImet { rd, ethernet_tag, originator_ip: IpAddr::V4(origin.vtep) })
        }
        OwnRoute::Mac(key, ip) => EvpnRoute::MacIp(EvpnMacIp {
            rd,
            esi: EthernetSegmentIdentifier::ZERO,
            ethernet_tag,
            mac: MacAddress::new(key.mac.0),
            ip: *ip,
            label1: MplsLabel::new(key.vni.get()),
            label2: None,
        }),
    }
}
