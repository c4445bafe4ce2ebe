//! The tables that filters read, as maps of BPF.
//!
//! ```text
//!   fdb      MAC 6, network 2 (LE)          place 4, hit to 1, hit from 1, rule 1, 0, IPv4 4, 0 4,
//!                                           IPv6 16
//!   vnis     VNI 3, 0                       network
//!   decap    outer source 4, network 2, 0   place of the tunnel
//!   verdict  (one for each CPU)             verdict on the frame in hand 4, its device 4;
//!                                           frames forwarded 8
//! ```
//!
//! A place is the index of a port's device, or [`TUNNEL`] and the number of a tunnel.

use std::io;
use std::net::Ipv4Addr;

use sluice_base::{Mac, TunnelId, VnetId, Vni};

use super::{Hits, Senders};
use crate::ebpf::{Map, PerCpu};

/// Bit of a place behind a tunnel.
pub(super) const TUNNEL: u32 = 1 << 31;
/// Offsets in a value of the FDB.
pub(super) const PLACE: i16 = 0;
pub(super) const HIT_TO: i16 = 4;
pub(super) const HIT_FROM: i16 = 5;
pub(super) const RULE: i16 = 6;
pub(super) const IP: i16 = 8;
pub(super) const IPV6: i16 = 16;
/// Rules for what an address may send: anything, or a bit each for its IPv4 and IPv6 address.
pub(super) const ANY: u8 = 1;
pub(super) const ONLY_IPV4: u8 = 2;
pub(super) const ONLY_IPV6: u8 = 4;

/// The maps, which filters of all ports share.
#[derive(Debug)]
pub(super) struct Maps {
    pub(super) fdb: Map<8, 4>,
    pub(super) vnis: Map<4, 1>,
    pub(super) decap: Map<8, 1>,
    pub(super) verdict: PerCpu<2>,
}

/// Networks, and pairs of a network and another host, that fit.
const VNIS_MAX: usize = 1 << 16;
const DECAP_MAX: usize = 1 << 18;

impl Maps {
    /// Makes empty tables for so many addresses.
    pub(super) fn new(macs: usize) -> io::Result<Self> {
        Ok(Self {
            fdb: Map::hash(macs)?,
            vnis: Map::hash(VNIS_MAX)?,
            decap: Map::hash(DECAP_MAX)?,
            verdict: PerCpu::new()?,
        })
    }

    pub(super) fn put(
        &self,
        (vnet, mac): (VnetId, Mac),
        place: u32,
        senders: Senders,
    ) -> io::Result<()> {
        self.fdb.set(&key(vnet, mac), &value(place, senders))
    }

    /// Sets addresses. Returns how many of them, from the first one on, are set.
    pub(super) fn put_all(&self, entries: &[((VnetId, Mac), u32, Senders)]) -> usize {
        let keys: Vec<_> = entries.iter().map(|((vnet, mac), ..)| key(*vnet, *mac)).collect();
        let values: Vec<_> =
            entries.iter().map(|&(_, place, senders)| value(place, senders)).collect();
        self.fdb.set_all(&keys, &values)
    }

    pub(super) fn remove(&self, vnet: VnetId, mac: Mac) -> io::Result<()> {
        self.fdb.remove(&key(vnet, mac))
    }

    pub(super) fn add_vni(&self, vni: Vni, vnet: VnetId) -> io::Result<()> {
        self.vnis.set(&vni_key(vni), &[vnet.0.into()])
    }

    pub(super) fn remove_vni(&self, vni: Vni) -> io::Result<()> {
        self.vnis.remove(&vni_key(vni))
    }

    pub(super) fn set_decap(
        &self,
        vnet: VnetId,
        vtep: Ipv4Addr,
        tunnel: Option<TunnelId>,
    ) -> io::Result<()> {
        let mut key = [0; 8];
        key[..4].copy_from_slice(&vtep.octets());
        key[4..6].copy_from_slice(&vnet.0.to_ne_bytes());
        match tunnel {
            Some(tunnel) => self.decap.set(&key, &[tunnel_place(tunnel).into()]),
            None => self.decap.remove(&key),
        }
    }

    /// Reports the addresses that were hit, and clears their hits.
    pub(super) fn hits(&self, each: &mut dyn FnMut(VnetId, Mac, Hits)) -> io::Result<()> {
        let mut hit = Vec::new();
        self.fdb.for_each(|key, value| {
            let bytes = value[0].to_ne_bytes();
            let hits =
                Hits { to: bytes[HIT_TO as usize] != 0, from: bytes[HIT_FROM as usize] != 0 };
            if hits != Hits::default() {
                hit.push((*key, *value, hits));
            }
        })?;
        for (key, mut value, hits) in hit {
            let mut bytes = value[0].to_ne_bytes();
            (bytes[HIT_TO as usize], bytes[HIT_FROM as usize]) = (0, 0);
            value[0] = u64::from_ne_bytes(bytes);
            self.fdb.set(&key, &value)?;
            let (vnet, mac) = unkey(&key);
            each(vnet, mac, hits);
        }
        Ok(())
    }

    /// Frames that the filters left to the kernel.
    pub(super) fn forwarded(&self) -> io::Result<u64> {
        self.verdict.sum(1)
    }
}

fn key(vnet: VnetId, mac: Mac) -> [u8; 8] {
    let mut key = [0; 8];
    key[..6].copy_from_slice(&mac.0);
    key[6..].copy_from_slice(&vnet.0.to_ne_bytes());
    key
}

fn unkey(key: &[u8; 8]) -> (VnetId, Mac) {
    let [a, b, c, d, e, f, g, h] = *key;
    (VnetId(u16::from_ne_bytes([g, h])), Mac([a, b, c, d, e, f]))
}

fn vni_key(vni: Vni) -> [u8; 4] {
    let [_, a, b, c] = vni.get().to_be_bytes();
    [a, b, c, 0]
}

fn value(place: u32, senders: Senders) -> [u64; 4] {
    let mut bytes = [[0; 8]; 4];
    let mut rule = 0;
    match senders {
        Senders::Any => rule = ANY,
        Senders::Only(ipv4, ipv6) => {
            if let Some(ip) = ipv4 {
                rule |= ONLY_IPV4;
                bytes[1][..4].copy_from_slice(&ip.octets());
            }
            if let Some(ip) = ipv6 {
                rule |= ONLY_IPV6;
                bytes[2..].as_flattened_mut().copy_from_slice(&ip.octets());
            }
        }
    }
    bytes[0][..4].copy_from_slice(&place.to_ne_bytes());
    bytes[0][RULE as usize] = rule;
    bytes.map(u64::from_ne_bytes)
}

/// Returns the place behind a tunnel.
pub(super) fn tunnel_place(tunnel: TunnelId) -> u32 {
    TUNNEL | u32::from(tunnel.0)
}
