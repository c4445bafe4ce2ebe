//! Changes of the kernel's tables, without those of this chip's own making.
//!
//! The kernel tells its listeners of each entry that is written or removed, whoever did it. To read
//! a message about each of its own writes would cost a chip more than the writes. So it notes in a
//! map of BPF what it wants to be there, before it writes, and a filter on the socket drops the
//! messages that agree with it:
//!
//! | message | noted | what happens |
//! |---|---|---|
//! | written | yes | dropped |
//! | removed | no | dropped |
//! | written | no | read: somebody else's |
//! | removed | yes | read: it was wanted |
//!
//! Messages that the filter cannot parse are read, and judged here.

use std::io;
use std::net::Ipv4Addr;

use sluice_base::Mac;

use super::fdb::Row;
use crate::ebpf::{
    self, EXIT, If, Insn, LOAD_BYTES, MAP_LOOKUP, Map, Program, add, call, load8, load16, load32,
    mov, set, store16, store32,
};
use crate::netlink::{Changes, GROUP_LINK, GROUP_NEIGHBOUR, Netlink};

/// Room for changes between two looks, of a kilobyte each.
const CHANGES_BYTES: usize = 16 << 20;

const KEY_SIZE: usize = 16;
type Key = [u8; KEY_SIZE];

/// Attributes of an entry (`NDA_*` of `linux/neighbour.h`).
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NDA_MASTER: u16 = 9;

/// The changes, and what is wanted.
#[derive(Debug)]
pub(super) struct Watch {
    changes: Netlink,
    wanted: Map<KEY_SIZE, 1>,
}

impl Watch {
    /// Watches the namespace of the caller. `macs` addresses are wanted at most, of two entries
    /// each.
    pub(super) fn open(macs: usize) -> io::Result<Self> {
        let changes = Netlink::subscribe(GROUP_LINK | GROUP_NEIGHBOUR)?;
        changes.hold(CHANGES_BYTES);
        let wanted = Map::growing_hash(2 * macs)?;
        ebpf::filter(changes.fd(), &ebpf::load_filter(&program(&wanted), "sluice_watch")?)?;
        Ok(Self { changes, wanted })
    }

    /// Reads changes, if there are any.
    pub(super) fn read(&mut self) -> io::Result<Changes> {
        self.changes.changes()
    }

    /// Notes entries that are about to be written; with each stands the index of its bridge.
    pub(super) fn want(&self, rows: &[(Row, u32)]) {
        let keys: Vec<Key> = rows.iter().map(|(row, bridge)| key(row, *bridge)).collect();
        let done = self.wanted.set_all(&keys, &vec![[1]; keys.len()]);
        // What is not noted is read and judged, which only takes longer.
        keys[done..].iter().for_each(|key| _ = self.wanted.set(key, &[1]));
    }

    /// Forgets an entry that is about to be removed.
    pub(super) fn unwant(&self, row: &Row, bridge: u32) -> io::Result<()> {
        self.wanted.remove(&key(row, bridge))
    }
}

/// `MAC 6, attribute 2, its value 4, device 4`: an entry of a bridge has the bridge as the value,
/// one of a VXLAN device the VTEP.
fn key(row: &Row, bridge: u32) -> Key {
    let Row { mac: Mac(mac), device, vtep } = row;
    let (attribute, value) = match vtep {
        None => (NDA_MASTER, bridge.to_ne_bytes()),
        Some(vtep) => (NDA_DST, Ipv4Addr::octets(vtep)),
    };
    let mut key = [0; KEY_SIZE];
    key[..6].copy_from_slice(mac);
    key[6..8].copy_from_slice(&attribute.to_ne_bytes());
    key[8..12].copy_from_slice(&value);
    key[12..].copy_from_slice(&device.to_ne_bytes());
    key
}

/// The filter. r6 is the message; its first bytes are copied onto the stack:
///
/// ```text
///   header 16: size 4, type 2   entry 12: family 1, 3, device 4, 4
///   attribute 12: size 2, NDA_LLADDR 2, MAC 6, 2   attribute 8: size 2, type 2, value 4
/// ```
fn program(wanted: &Map<KEY_SIZE, 1>) -> Vec<Insn> {
    const SIZE: i32 = 48;
    const MESSAGE: i16 = -64;
    const KEY: i16 = -16;
    const RTM_NEWNEIGH: i32 = 28;
    const RTM_DELNEIGH: i32 = 29;
    const AF_BRIDGE: i32 = 7;
    let (kind, family, device) = (MESSAGE + 4, MESSAGE + 16, MESSAGE + 20);
    let (first, mac, second, value) = (MESSAGE + 28, MESSAGE + 32, MESSAGE + 40, MESSAGE + 44);
    let mut program = Program::default();
    let p = &mut program;
    let (read, gone) = (p.label(), p.label());
    p.plain(&[mov(6, 1), set(2, 0), mov(3, 10), add(3, MESSAGE.into()), set(4, SIZE)]);
    p.plain(&[call(LOAD_BYTES)]);
    p.jump(0, If::IsNot, 0, read);
    p.plain(&[load8(1, 10, family)]);
    p.jump(1, If::IsNot, AF_BRIDGE, read);
    p.plain(&[load16(1, 10, first)]);
    p.jump(1, If::IsNot, 4 + 6, read);
    p.plain(&[load16(1, 10, first + 2)]);
    p.jump(1, If::IsNot, NDA_LLADDR.into(), read);
    p.plain(&[load16(1, 10, second)]);
    p.jump(1, If::IsNot, 4 + 4, read);
    p.plain(&[load32(1, 10, mac), store32(10, KEY, 1)]);
    p.plain(&[load16(1, 10, mac + 4), store16(10, KEY + 4, 1)]);
    p.plain(&[load16(1, 10, second + 2), store16(10, KEY + 6, 1)]);
    p.plain(&[load32(1, 10, value), store32(10, KEY + 8, 1)]);
    p.plain(&[load32(1, 10, device), store32(10, KEY + 12, 1)]);
    p.map(1, wanted.fd());
    p.plain(&[mov(2, 10), add(2, KEY.into()), call(MAP_LOOKUP)]);
    p.plain(&[load16(7, 10, kind)]);
    p.jump(0, If::Null, 0, gone);
    p.jump(7, If::IsNot, RTM_NEWNEIGH, read);
    p.plain(&[set(0, 0), EXIT]);
    p.here(gone);
    p.jump(7, If::IsNot, RTM_DELNEIGH, read);
    p.plain(&[set(0, 0), EXIT]);
    p.here(read);
    p.plain(&[set(0, -1), EXIT]);
    program.finish()
}
