//! Incarnation of this host: a number above all earlier ones, on a disk that survives a restart of
//! the machine.
//!
//! The number counts starts. Its lower bits are random, so that a disk that was restored to an
//! earlier state does not give a number that others have seen. No clock is used: one that is wrong
//! by a year would lock the host out for a year. A host whose disk is lost, or full, learns from
//! the others which numbers are used.

use std::path::{Path, PathBuf};

use ring::rand::{SecureRandom as _, SystemRandom};

use crate::sys::log::say;
use crate::sys::run_dir;
use crate::sys::threads::spawn;

/// File with the highest incarnation of this host so far.
const FILE: &str = "incarnation";
/// Number of random bits.
const RANDOM_BITS: u32 = u16::BITS;

/// Place of the number.
#[derive(Clone, Debug)]
pub(super) struct Incarnations {
    path: PathBuf,
}

impl Incarnations {
    /// Uses this directory.
    pub(super) fn of(state_dir: &Path) -> Self {
        Self { path: state_dir.join(FILE) }
    }

    /// Returns the next number, above the one in the file, and writes it there.
    pub(super) fn next(&self) -> u64 {
        let before = std::fs::read_to_string(&self.path).ok();
        self.after(before.and_then(|text| text.trim().parse().ok()).unwrap_or(0))
    }

    /// Returns the next number above one that others know, and writes it there.
    fn after(&self, known: u64) -> u64 {
        let next = above(known);
        self.keep(next);
        next
    }

    /// Returns the next number above one that others know, and has it written: the thread that asks
    /// must not wait for a disk. If it is not written in time, others say so again.
    pub(super) fn soon_after(&self, known: u64) -> u64 {
        let (here, next) = (self.clone(), above(known));
        if let Err(error) = spawn("incarnation", move || here.keep(next)) {
            say!("the number of this start is not written: {error:#}");
        }
        next
    }

    fn keep(&self, next: u64) {
        if let Err(error) = self.write(next) {
            let path = self.path.display();
            say!("cannot write {path}: {error}; the other members will say which start this is");
        }
    }

    fn write(&self, number: u64) -> std::io::Result<()> {
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        run_dir::replace_for_good(&self.path, &format!("{number}\n"))
    }
}

/// Returns a number above another one: of the next start, with random bits.
fn above(known: u64) -> u64 {
    let count = (known >> RANDOM_BITS).saturating_add(1).min(u64::MAX >> RANDOM_BITS);
    (count << RANDOM_BITS | u64::from(random())).max(known.saturating_add(1))
}

/// Returns random bits of the kernel; zero if it has none, which only costs a reminder of another
/// member.
fn random() -> u16 {
    let mut bytes = [0; 2];
    _ = SystemRandom::new().fill(&mut bytes);
    u16::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::Folder;

    #[test]
    fn each_is_above_those_before_it() {
        let folder = Folder::new("incarnation");
        let here = Incarnations::of(&folder);
        let first = here.next();
        assert!(first >> RANDOM_BITS == 1, "{first}");
        let second = Incarnations::of(&folder).next();
        assert!(second > first);
        let raised = here.after(1_763_000_000_000);
        assert!(raised > 1_763_000_000_000);
        assert!(here.next() > raised);
        assert_eq!(here.after(u64::MAX), u64::MAX);
    }

    #[test]
    fn incarnation_file_broken_or_unwritable_still_starts() {
        let folder = Folder::new("incarnation-broken");
        std::fs::write(folder.join(FILE), "\u{0}garbage").unwrap();
        assert!(Incarnations::of(&folder).next() > 0);
        // A file stands where the directory should be.
        std::fs::write(folder.join("full"), "").unwrap();
        assert!(Incarnations::of(&folder.join("full")).next() > 0);
    }
}
