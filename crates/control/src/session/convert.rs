//! Conversion between claims and records on the wire.

use sluice_wire::fabric::{IpList, Origin as WireOrigin, Record};

use crate::publisher::Change;
use crate::vport::{Claim, Ips, Key, Origin};

/// Returns the record of a change.
pub(super) fn record(change: Change<'_>) -> Record {
    match change {
        Change::Withdrawn(Key { vni, mac }) => Record::Withdrawn { vni, mac },
        Change::Claimed(claim) => Record::Claimed {
            vni: claim.key.vni,
            mac: claim.key.mac,
            port: claim.port,
            origin: match claim.origin {
                Origin::Learned => WireOrigin::Learned,
                Origin::Sticky => WireOrigin::Sticky,
                Origin::Bound => WireOrigin::Bound,
            },
            moves: claim.moves,
            ips: IpList::new(claim.ips.with_sequences()),
        },
    }
}

/// Returns the change in a record: the vport, and the claim unless it is withdrawn.
pub(super) fn change(record: &Record) -> (Key, Option<Claim>) {
    match *record {
        Record::Withdrawn { vni, mac } => (Key { vni, mac }, None),
        Record::Claimed { vni, mac, port, origin, moves, ips } => {
            let key = Key { vni, mac };
            let origin = match origin {
                WireOrigin::Learned => Origin::Learned,
                WireOrigin::Sticky => Origin::Sticky,
                WireOrigin::Bound => Origin::Bound,
            };
            let mut known = Ips::default();
            for (ip, sequence) in ips.iter() {
                // A record has no more addresses than fit, and a repeated one counts once.
                _ = known.set(ip, sequence);
            }
            (key, Some(Claim { key, port, ips: known, origin, moves }))
        }
    }
}

const _: () = assert!(sluice_wire::fabric::IPS_MAX == crate::vport::IPS_MAX);
const _: () = assert!(sluice_wire::fabric::SEQUENCE_FIRST == crate::vport::IP_SEQUENCE_FIRST);
