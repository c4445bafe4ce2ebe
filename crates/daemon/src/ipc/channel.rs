//! The connection between data and control while both live: punts one way, commands the other.
//!
//! The connection begins as a line, `"attach"`, on `data.sock`. After the answer it carries records
//! only:
//!
//! ```text
//!   size  u16, little-endian: bytes after it
//!   kind  u8
//!   body  numbers little-endian, MACs in order; the last field takes the rest
//! ```
//!
//! Both ends are processes of one host and one version: data does not let another version attach,
//! which then drains it ([`crate::control`]). So a record that cannot be read is a fault of the
//! program, and ends the connection. Records name networks, ports and tunnels by number, from the
//! configuration that both have read.
//!
//! The state of receivers that do not take frames, and of holds for such receivers elsewhere, goes
//! ahead of every other record that waits ([`Pipe::put_ahead`]).

mod pipe;

use std::mem::size_of;
use std::net::IpAddr;

use sluice_base::{
    self as base, Destination, DropReason, Mac, PortId, PriorityMask, PuntCause, ReceiverState,
    TunnelId, VnetId,
};

pub(crate) use pipe::Pipe;

/// Most bytes of a frame in a record: a frame of the largest MTU and its Ethernet header.
pub(crate) const FRAME_SIZE_MAX: usize = 9_600;
/// Size of the largest record.
pub(crate) const RECORD_SIZE_MAX: usize = FRAME_SIZE_MAX + 32;
const SIZE_SIZE: usize = size_of::<u16>();
/// Most senders that a record names.
pub(crate) const SENDERS_MAX: usize = 4096;
const _: () = assert!(SENDERS_MAX * size_of::<u16>() <= FRAME_SIZE_MAX);

/// Events that data reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// The first bytes of a frame.
    Punt { cause: PuntCause, vnet: VnetId, from: Destination, head: &'a [u8] },
    /// The first frame of a network arrived from another host.
    Decap { vnet: VnetId, tunnel: TunnelId },
    /// An address of the forwarding table was used since it was last reported.
    Used { vnet: VnetId, mac: Mac },
    /// An address that was in the forwarding table before control attached.
    Found { vnet: VnetId, mac: Mac, to: Destination },
    /// All addresses that were there before control attached have been reported.
    All,
    /// New state of a port as a receiver, as far as this worker sees.
    Receiver { port: PortId, state: ReceiverState, senders: Senders<'a> },
}

/// Tunnels whose hosts send to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Senders<'a>(&'a [u8]);

impl<'a> Senders<'a> {
    /// Writes the first [`SENDERS_MAX`] of them into `bytes`.
    pub(crate) fn write(tunnels: impl Iterator<Item = TunnelId>, bytes: &'a mut Vec<u8>) -> Self {
        bytes.clear();
        bytes.extend(tunnels.take(SENDERS_MAX).flat_map(|tunnel| tunnel.0.to_le_bytes()));
        Self(bytes)
    }

    fn read(bytes: &'a [u8]) -> Result<Self, Unreadable> {
        if bytes.len().is_multiple_of(size_of::<u16>()) { Ok(Self(bytes)) } else { Err(Unreadable) }
    }

    /// Iterates over the tunnels.
    pub(crate) fn iter(self) -> impl Iterator<Item = TunnelId> + 'a {
        self.0.chunks_exact(2).map(|id| TunnelId(u16::from_le_bytes([id[0], id[1]])))
    }
}

/// Commands of control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command<'a> {
    /// A command that the switch carries out.
    Switch(base::Command),
    /// Sends a frame out of a port or through a tunnel.
    Send { vnet: VnetId, to: Destination, frame: &'a [u8] },
    /// Floods a frame as if it had come in there.
    Flood { vnet: VnetId, from: Destination, frame: &'a [u8] },
}

/// Error: a record that no process of this version writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a record that cannot be read")]
pub(crate) struct Unreadable;

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    fn new(out: &'a mut Vec<u8>, kind: u8) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; SIZE_SIZE]);
        out.push(kind);
        Self { out, start }
    }

    fn id(self, id: u16) -> Self {
        self.bytes(&id.to_le_bytes())
    }

    fn mac(self, mac: Mac) -> Self {
        self.bytes(&mac.0)
    }

    fn destination(self, to: Destination) -> Self {
        let (kind, id) = match to {
            Destination::Port(port) => (0, port.0),
            Destination::Tunnel(tunnel) => (1, tunnel.0),
        };
        self.bytes(&[kind]).id(id)
    }

    fn mask(self, mask: PriorityMask) -> Self {
        self.bytes(&[mask.0])
    }

    fn receiver(self, state: ReceiverState) -> Self {
        self.mask(state.isolated).mask(state.held).mask(state.stuck)
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.out.extend_from_slice(bytes);
        self
    }
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        let size = self.out.len() - self.start - SIZE_SIZE;
        let size = u16::try_from(size).expect("a record is shorter than 64 KiB");
        self.out[self.start..][..SIZE_SIZE].copy_from_slice(&size.to_le_bytes());
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Unreadable> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Unreadable)?;
        self.0 = rest;
        Ok(*first)
    }

    fn id(&mut self) -> Result<u16, Unreadable> {
        self.take().map(u16::from_le_bytes)
    }

    fn vnet(&mut self) -> Result<VnetId, Unreadable> {
        self.id().map(VnetId)
    }

    fn tunnel(&mut self) -> Result<TunnelId, Unreadable> {
        self.id().map(TunnelId)
    }

    fn mask(&mut self) -> Result<PriorityMask, Unreadable> {
        self.take().map(|[mask]| PriorityMask(mask))
    }

    fn receiver(&mut self) -> Result<ReceiverState, Unreadable> {
        let (isolated, held, stuck) = (self.mask()?, self.mask()?, self.mask()?);
        Ok(ReceiverState { isolated, held, stuck })
    }

    fn cause(&mut self) -> Result<PuntCause, Unreadable> {
        let [cause] = self.take()?;
        PuntCause::ALL.get(usize::from(cause)).copied().ok_or(Unreadable)
    }

    fn reason(&mut self) -> Result<DropReason, Unreadable> {
        let [reason] = self.take()?;
        DropReason::ALL.get(usize::from(reason)).copied().ok_or(Unreadable)
    }

    fn mac(&mut self) -> Result<Mac, Unreadable> {
        self.take().map(Mac)
    }

    fn destination(&mut self) -> Result<Destination, Unreadable> {
        let [kind] = self.take()?;
        let id = self.id()?;
        match kind {
            0 => Ok(Destination::Port(PortId(id))),
            1 => Ok(Destination::Tunnel(TunnelId(id))),
            _ => Err(Unreadable),
        }
    }

    /// Reads an address that fills the rest, or nothing.
    fn ip(&mut self) -> Result<Option<IpAddr>, Unreadable> {
        let rest = self.rest();
        if let Ok(octets) = <[u8; 4]>::try_from(rest) {
            return Ok(Some(octets.into()));
        }
        match <[u8; 16]>::try_from(rest) {
            Ok(octets) => Ok(Some(octets.into())),
            Err(_) if rest.is_empty() => Ok(None),
            Err(_) => Err(Unreadable),
        }
    }

    fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

fn read<'a, T>(
    bytes: &'a [u8],
    parse: impl FnOnce(u8, &mut Reader<'a>) -> Result<T, Unreadable>,
) -> Result<Option<(T, usize)>, Unreadable> {
    let Some((size, rest)) = bytes.split_first_chunk() else { return Ok(None) };
    let size = usize::from(u16::from_le_bytes(*size));
    if size > RECORD_SIZE_MAX {
        return Err(Unreadable);
    }
    let Some(record) = rest.get(..size) else { return Ok(None) };
    let (&kind, body) = record.split_first().ok_or(Unreadable)?;
    let mut body = Reader(body);
    let message = parse(kind, &mut body)?;
    if body.0.is_empty() { Ok(Some((message, SIZE_SIZE + size))) } else { Err(Unreadable) }
}

impl<'a> Event<'a> {
    /// Appends the record to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        _ = match *self {
            Self::Punt { cause, vnet, from, head } => {
                Writer::new(out, 0).bytes(&[cause as u8]).id(vnet.0).destination(from).bytes(head)
            }
            Self::Decap { vnet, tunnel } => Writer::new(out, 1).id(vnet.0).id(tunnel.0),
            Self::Used { vnet, mac } => Writer::new(out, 2).id(vnet.0).mac(mac),
            Self::Found { vnet, mac, to } => {
                Writer::new(out, 3).id(vnet.0).mac(mac).destination(to)
            }
            Self::All => Writer::new(out, 4),
            Self::Receiver { port, state, senders } => {
                Writer::new(out, 5).id(port.0).receiver(state).bytes(senders.0)
            }
        };
    }

    /// Returns the record at the start of `bytes`, and its size; `None` if it is not complete.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Unreadable> {
        read(bytes, Self::parse)
    }

    fn parse(kind: u8, body: &mut Reader<'a>) -> Result<Self, Unreadable> {
        Ok(match kind {
            0 => Self::Punt {
                cause: body.cause()?,
                vnet: body.vnet()?,
                from: body.destination()?,
                head: body.rest(),
            },
            1 => Self::Decap { vnet: body.vnet()?, tunnel: body.tunnel()? },
            2 => Self::Used { vnet: body.vnet()?, mac: body.mac()? },
            3 => Self::Found { vnet: body.vnet()?, mac: body.mac()?, to: body.destination()? },
            4 => Self::All,
            5 => Self::Receiver {
                port: PortId(body.id()?),
                state: body.receiver()?,
                senders: Senders::read(body.rest())?,
            },
            _ => return Err(Unreadable),
        })
    }
}

impl<'a> Command<'a> {
    /// Appends the record to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        _ = match *self {
            Self::Switch(command) => write_command(command, out),
            Self::Send { vnet, to, frame } => {
                Writer::new(out, 3).id(vnet.0).destination(to).bytes(frame)
            }
            Self::Flood { vnet, from, frame } => {
                Writer::new(out, 6).id(vnet.0).destination(from).bytes(frame)
            }
        };
    }

    /// Returns the record at the start of `bytes`, and its size; `None` if it is not complete.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Unreadable> {
        read(bytes, Self::parse)
    }

    fn parse(kind: u8, body: &mut Reader<'a>) -> Result<Self, Unreadable> {
        Ok(match kind {
            3 => Self::Send { vnet: body.vnet()?, to: body.destination()?, frame: body.rest() },
            6 => Self::Flood { vnet: body.vnet()?, from: body.destination()?, frame: body.rest() },
            _ => Self::Switch(parse_command(kind, body)?),
        })
    }
}

fn write_command(command: base::Command, out: &mut Vec<u8>) -> Writer<'_> {
    match command {
        base::Command::Install { vnet, mac, to } => {
            Writer::new(out, 0).id(vnet.0).mac(mac).destination(to)
        }
        base::Command::Remove { vnet, mac } => Writer::new(out, 1).id(vnet.0).mac(mac),
        base::Command::Reject { vnet, mac } => Writer::new(out, 2).id(vnet.0).mac(mac),
        base::Command::ForgetDecap { vnet, tunnel } => Writer::new(out, 4).id(vnet.0).id(tunnel.0),
        base::Command::Hold { vnet, mac, tunnel, held, stuck } => {
            Writer::new(out, 5).id(vnet.0).mac(mac).id(tunnel.0).mask(held).mask(stuck)
        }
        base::Command::Refuse { port, reason, frames, bytes } => {
            let writer = Writer::new(out, 7).id(port.0).bytes(&[reason as u8]);
            writer.bytes(&frames.to_le_bytes()).bytes(&bytes.to_le_bytes())
        }
        base::Command::Unbind { port, mac, ip } => {
            let writer = Writer::new(out, 8).id(port.0).mac(mac);
            match ip {
                Some(IpAddr::V4(ip)) => writer.bytes(&ip.octets()),
                Some(IpAddr::V6(ip)) => writer.bytes(&ip.octets()),
                None => writer,
            }
        }
    }
}

fn parse_command(kind: u8, body: &mut Reader<'_>) -> Result<base::Command, Unreadable> {
    Ok(match kind {
        0 => {
            base::Command::Install { vnet: body.vnet()?, mac: body.mac()?, to: body.destination()? }
        }
        1 => base::Command::Remove { vnet: body.vnet()?, mac: body.mac()? },
        2 => base::Command::Reject { vnet: body.vnet()?, mac: body.mac()? },
        4 => base::Command::ForgetDecap { vnet: body.vnet()?, tunnel: body.tunnel()? },
        5 => base::Command::Hold {
            vnet: body.vnet()?,
            mac: body.mac()?,
            tunnel: body.tunnel()?,
            held: body.mask()?,
            stuck: body.mask()?,
        },
        7 => base::Command::Refuse {
            port: PortId(body.id()?),
            reason: body.reason()?,
            frames: u64::from_le_bytes(body.take()?),
            bytes: u64::from_le_bytes(body.take()?),
        },
        8 => base::Command::Unbind { port: PortId(body.id()?), mac: body.mac()?, ip: body.ip()? },
        _ => return Err(Unreadable),
    })
}

#[cfg(test)]
mod tests;
