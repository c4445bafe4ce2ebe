//! State that one data process hands to another, and the messages of control, which starts the new
//! process, asks the old one and passes everything on.
//!
//! ```text
//!   control ── starts ──▶ next: configuration, memory        `Ready { formats }`
//!   control ── `yield` ─▶ old:  stops reading, sends all held frames, is frozen
//!              ◀───────── state and descriptors
//!   control ── the same ▶ next: opens its ports with them    `Opened`, or it ends: old continues
//!   control ── `leave` ─▶ old:  gone
//!   control ── `go` ────▶ next: forwards                     `Took { gap_ns }`
//! ```
//!
//! The state travels as a memory file beside the other descriptors. It is JSON, of [`FORMAT`]: a
//! program that reads another format says so in its `Ready`, before anything has been stopped.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use sluice_api::port::NewPort;
use sluice_ports::PortHandover;

use crate::sys::descriptors::Named;

/// Format of the state.
pub(crate) const FORMAT: u32 = 1;
/// The longest line between control and a data process that takes over.
const LINE_SIZE_MAX: usize = 4096;

/// The next data process is ready for the handover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Formats that it reads.
    pub(crate) formats: Vec<u32>,
    /// Version of its program.
    pub(crate) version: String,
}

/// The next data process has opened everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Opened {
    /// Number of ports that continue with their old state.
    pub(crate) ports: usize,
}

/// Control reports that the other process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Go {}

/// The next data process forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Took {
    /// Time for which no process read.
    pub(crate) gap_ns: u64,
}

/// The old data process is frozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandoverState {
    /// Frames that did not leave in time: they are lost with the process.
    pub(crate) left: u64,
    /// Time in which the other frames left.
    pub(crate) drain_ns: u64,
}

/// State handed over beside descriptors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Time of the old process's last read, by the machine's monotonic clock.
    pub(crate) stopped_ns: u64,
    /// Ports of the configuration. A port that several workers share has one entry for each.
    pub(crate) ports: Vec<PortState>,
    /// Ports that were added, in this order.
    pub(crate) added: Vec<NewPort>,
    /// Addresses, and their places.
    pub(crate) known: Vec<KnownState>,
}

/// State of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PortState {
    pub(crate) name: String,
    pub(crate) numbers: BTreeMap<String, u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) bytes: Vec<u8>,
}

/// State of an address. It has names, since numbers depend on the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct KnownState {
    pub(crate) vnet: String,
    pub(crate) mac: String,
    pub(crate) at: At,
}

/// Place of an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum At {
    Port(String),
    Peer(String),
}

const STATE: &str = "state";
const TAP: &str = "tap ";
const PORT: &str = "port ";

/// Packs everything into descriptors with names.
///
/// # Errors
/// If there is no memory for the state.
pub(crate) fn pack(
    mut state: State,
    taps: Vec<Named>,
    ports: Vec<(String, PortHandover)>,
) -> io::Result<Vec<Named>> {
    let mut files = Vec::new();
    for (nth, (name, handed)) in ports.into_iter().enumerate() {
        for (file, fd) in handed.files {
            files.push((format!("{PORT}{nth} {file}"), fd));
        }
        state.ports.push(PortState { name, numbers: handed.numbers, bytes: handed.bytes });
    }
    files.extend(taps.into_iter().map(|(name, fd)| (format!("{TAP}{name}"), fd)));
    let mut memory = File::from(memfd_create("sluice-state", MemfdFlags::CLOEXEC)?);
    memory.write_all(&serde_json::to_vec(&state)?)?;
    files.push((STATE.to_owned(), memory.into()));
    Ok(files)
}

/// The parts of a handover: the state without its ports, TAPs, and the other ports.
pub(crate) type Unpacked = (State, Vec<Named>, Vec<(String, PortHandover)>);

/// Reverses [`pack`].
///
/// # Errors
/// If the state is missing or cannot be read.
pub(crate) fn unpack(files: Vec<Named>) -> io::Result<Unpacked> {
    let (mut memory, mut taps, mut others) =
        (None, Vec::new(), Vec::<(usize, String, OwnedFd)>::new());
    for (name, fd) in files {
        if name == STATE {
            memory = Some(File::from(fd));
        } else if let Some(port) = name.strip_prefix(TAP) {
            taps.push((port.to_owned(), fd));
        } else if let Some((nth, file)) =
            name.strip_prefix(PORT).and_then(|rest| rest.split_once(' '))
            && let Ok(nth) = nth.parse()
        {
            others.push((nth, file.to_owned(), fd));
        }
    }
    let wrong = |what: &str| io::Error::new(ErrorKind::InvalidData, what.to_owned());
    let mut memory = memory.ok_or_else(|| wrong("it has no state"))?;
    memory.rewind()?;
    let mut text = Vec::new();
    memory.read_to_end(&mut text)?;
    let mut state: State = serde_json::from_slice(&text)?;
    let of = |port: PortState| {
        let (numbers, bytes) = (port.numbers, port.bytes);
        (port.name, PortHandover { files: BTreeMap::new(), numbers, bytes })
    };
    let mut ports: Vec<(String, PortHandover)> =
        std::mem::take(&mut state.ports).into_iter().map(of).collect();
    for (nth, file, fd) in others {
        let (_, handed) = ports.get_mut(nth).ok_or_else(|| wrong("a port without a name"))?;
        handed.files.insert(file, fd);
    }
    Ok((state, taps, ports))
}

/// Reads one line, and no byte beyond it: descriptors may come with the next byte. `None` at the
/// end of the stream.
///
/// # Errors
/// If the stream fails, or the line says something else.
pub(crate) fn read<T: DeserializeOwned>(mut stream: &UnixStream) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) if byte == *b"\n" => break,
            Ok(_) if line.len() == LINE_SIZE_MAX => return Err(ErrorKind::InvalidData.into()),
            Ok(_) => line.push(byte[0]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    if let Ok(failure) = serde_json::from_slice::<crate::ipc::protocol::Failure>(&line) {
        return Err(io::Error::other(failure.error));
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

#[cfg(test)]
mod tests;
