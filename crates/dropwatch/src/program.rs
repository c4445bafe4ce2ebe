//! The program in the kernel, and its maps.

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData};
use aya::programs::RawTracePoint;

use crate::Unavailable;

#[cfg(has_program)]
const OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/dropwatch.bpf.o"));

#[cfg(not(has_program))]
fn load() -> Result<Ebpf, Unavailable> {
    Err(Unavailable("built without clang; install clang and libbpf-dev and build again".into()))
}

#[cfg(has_program)]
fn load() -> Result<Ebpf, Unavailable> {
    let refused = |error| Unavailable(format!("the kernel refuses the program: {}", all(&error)));
    aya::EbpfLoader::new().load(OBJECT).map_err(refused)
}

/// An error with its causes.
fn all(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// A place where packets were dropped (`struct place`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) netns: u32,
    pub(crate) device: u32,
    pub(crate) reason: u32,
    pub(crate) location: u64,
}

/// Packets dropped at a place since the program was loaded (`struct count`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    pub(crate) frames: u64,
    /// Name of the device; empty if the packet had no device any more.
    pub(crate) device: String,
}

/// The program at its tracepoint, as long as this lives.
pub(crate) struct Program {
    /// The link closes with it, also if the process is killed.
    _ebpf: Ebpf,
    drops: HashMap<MapData, [u64; 3], [u64; 4]>,
    missed: Array<MapData, u64>,
}

impl Program {
    pub(crate) fn load() -> Result<Self, Unavailable> {
        let mut ebpf = load()?;
        let failed = |error: &dyn std::error::Error| Unavailable(all(error));
        let lacks = || Unavailable("the object lacks a map or its program".into());
        let drops = ebpf.take_map("drops").ok_or_else(lacks)?;
        let missed = ebpf.take_map("missed").ok_or_else(lacks)?;
        let drops = HashMap::try_from(drops).map_err(|error| failed(&error))?;
        let missed = Array::try_from(missed).map_err(|error| failed(&error))?;
        let program = ebpf.program_mut("count_drops").ok_or_else(lacks)?;
        let program: &mut RawTracePoint = program.try_into().map_err(|error| failed(&error))?;
        program.load().map_err(|error| failed(&error))?;
        program.attach("kfree_skb").map_err(|error| failed(&error))?;
        Ok(Self { _ebpf: ebpf, drops, missed })
    }

    pub(crate) fn read(&self) -> Vec<(Place, Count)> {
        // No key vanishes during the read: keys are never removed.
        self.drops.iter().flatten().map(|(key, value)| (place(key), count(value))).collect()
    }

    pub(crate) fn missed(&self) -> u64 {
        self.missed.get(&0, 0).unwrap_or(0)
    }
}

fn place(key: [u64; 3]) -> Place {
    let [netns, device] = halves(key[0]);
    let [reason, _] = halves(key[1]);
    Place { netns, device, reason, location: key[2] }
}

fn count(value: [u64; 4]) -> Count {
    let name = [value[2].to_ne_bytes(), value[3].to_ne_bytes()].concat();
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Count { frames: value[0], device: String::from_utf8_lossy(name).into_owned() }
}

/// Two numbers of 32 bits, adjacent in memory.
fn halves(word: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}
