//! Drops since a moment, in the watched namespaces, with names.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketType, netdevice::index_to_name, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Unavailable;
use crate::names::Names;
use crate::program::{Count, Place, Program};
use crate::reason::is_loss;

/// Packets that the kernel dropped for one reason at one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dropped {
    /// Network namespace, by its name in [`Drops::watch`].
    pub namespace: String,
    /// Device; empty if the packet had none.
    pub device: String,
    /// `enum skb_drop_reason` without its prefix: `FULL_RING`.
    pub reason: String,
    /// Function of the kernel that dropped it.
    pub function: String,
    /// Packets.
    pub frames: u64,
}

impl Dropped {
    /// Returns true if somebody waited for these packets ([`is_loss`]).
    #[must_use]
    pub fn is_loss(&self) -> bool {
        is_loss(&self.reason, &self.function)
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, device, reason, function, frames } = self;
        let device = if device.is_empty() { "no device" } else { device };
        write!(f, "{frames} {reason} at {device} of {namespace} in {function}")
    }
}

/// A watched namespace.
#[derive(Debug)]
struct Watched {
    name: String,
    path: PathBuf,
    inode: u32,
}

/// The kernel's drops in some network namespaces, since this was made.
pub struct Drops {
    program: Program,
    names: Names,
    watched: Vec<Watched>,
    before: BTreeMap<Place, u64>,
}

impl Drops {
    /// Watches namespaces, given as names of `ip netns`, or as paths such as `/proc/1/ns/net`.
    ///
    /// # Errors
    /// The missing part of the kernel or the build, or the namespace that does not exist.
    pub fn watch<N: AsRef<str>>(
        namespaces: impl IntoIterator<Item = N>,
    ) -> Result<Self, Unavailable> {
        let namespaces = namespaces.into_iter().map(|name| watched(name.as_ref()));
        let watched = namespaces.collect::<Result<_, _>>()?;
        let program = Program::load()?;
        let names = Names::of_this_kernel();
        let mut new = Self { program, names, watched, before: BTreeMap::new() };
        new.restart();
        Ok(new)
    }

    /// Restarts the count.
    pub fn restart(&mut self) {
        let all = self.program.read().into_iter();
        self.before = all.map(|(place, count)| (place, count.frames)).collect();
    }

    /// Every drop since this was made or restarted, losses or not, in order.
    #[must_use]
    pub fn since(&self) -> Vec<Dropped> {
        let mut rows: BTreeMap<_, u64> = BTreeMap::new();
        for (place, count) in self.program.read() {
            let frames = count.frames - self.before.get(&place).copied().unwrap_or(0);
            let of = self.watched.iter().find(|watched| watched.inode == place.netns);
            let Some(of) = of.filter(|_| frames > 0) else {
                continue;
            };
            let function = self.names.function(place.location);
            let reason = self.names.reason(place.reason);
            let key = (of.name.clone(), device(of, &place, &count), reason, function);
            *rows.entry(key).or_default() += frames;
        }
        let row = |((namespace, device, reason, function), frames)| Dropped {
            namespace,
            device,
            reason,
            function,
            frames,
        };
        rows.into_iter().map(row).collect()
    }

    /// Drops of [`Drops::since`] that are losses.
    #[must_use]
    pub fn losses(&self) -> Vec<Dropped> {
        self.since().into_iter().filter(Dropped::is_loss).collect()
    }

    /// Frames dropped by a reason at a device of a namespace, since this was made or restarted.
    #[must_use]
    pub fn frames(&self, namespace: &str, device: &str, reason: &str) -> u64 {
        let rows = self.since().into_iter();
        let is = |row: &Dropped| {
            (&*row.namespace, &*row.device, &*row.reason) == (namespace, device, reason)
        };
        rows.filter(is).map(|row| row.frames).sum()
    }

    /// Drops that found no room in the program's map. If it is not 0, the other counts are
    /// incomplete.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.program.missed()
    }
}

fn watched(name: &str) -> Result<Watched, Unavailable> {
    let path = if name.contains('/') { name.into() } else { Path::new("/run/netns").join(name) };
    let stat = fs::metadata(&path)
        .map_err(|error| Unavailable(format!("namespace {}: {error}", path.display())))?;
    // The kernel's number of a namespace has 32 bits.
    let inode = u32::try_from(stat.ino()).unwrap_or(0);
    Ok(Watched { name: name.to_owned(), path, inode })
}

/// Name of the device: from the packet, or from the namespace by its index.
fn device(of: &Watched, place: &Place, count: &Count) -> String {
    if !count.device.is_empty() || place.device == 0 {
        return count.device.clone();
    }
    let ask = || {
        let file = File::open(&of.path).ok()?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).ok()?;
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
        index_to_name(socket, place.device).ok()
    };
    // A thread of its own: it stays in that namespace until its end.
    let asked = std::thread::scope(|scope| scope.spawn(ask).join().ok().flatten());
    asked.unwrap_or_else(|| format!("device {}", place.device))
}
