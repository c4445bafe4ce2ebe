use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::*;

const PAGE: usize = 4096;

struct Mapping {
    file: File,
    base: NonNull<u8>,
}

impl Mapping {
    /// Two pages, the second of which begins with a 7.
    fn new() -> Self {
        let fd: OwnedFd = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, 2 * PAGE as u64).unwrap();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping.
        let base = unsafe {
            mmap(std::ptr::null_mut(), 2 * PAGE, protection, MapFlags::SHARED, &fd, 0).unwrap()
        };
        let mapping = Self { file: fd.into(), base: NonNull::new(base.cast()).unwrap() };
        mapping.write(PAGE, 7);
        mapping
    }

    fn read(&self, at: usize) -> u8 {
        assert!(at < 2 * PAGE);
        // SAFETY: it is mapped.
        unsafe { self.base.add(at).read_volatile() }
    }

    fn write(&self, at: usize, value: u8) {
        assert!(at < 2 * PAGE);
        // SAFETY: it is mapped.
        unsafe { self.base.add(at).write_volatile(value) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: it is ours.
        unsafe { munmap(self.base.as_ptr().cast(), 2 * PAGE) }.unwrap();
    }
}

/// Runs a test in a process of its own: a signal handler belongs to the process, and the runtime of
/// other tests (the coroutines of `loom`) has one of SIGBUS, too. Returns that process's exit
/// status.
fn alone(name: &str, test: impl FnOnce()) -> Option<ExitStatus> {
    const ASKED: &str = "SLUICE_TEST_ALONE";
    if std::env::var_os(ASKED).is_some() {
        test();
        return None;
    }
    let name = format!("vhost_user::sigbus::tests::{name}");
    let output = Command::new(std::env::current_exe().unwrap())
        .args([&name, "--exact", "--nocapture"])
        .env(ASKED, "1")
        .output()
        .unwrap();
    println!("{}", String::from_utf8_lossy(&output.stderr));
    let ran = String::from_utf8_lossy(&output.stdout).contains("running 1 test");
    assert!(ran, "there is no test {name}");
    Some(output.status)
}

fn succeeds_alone(name: &str, test: impl FnOnce()) {
    assert!(alone(name, test).is_none_or(|status| status.success()), "{name}");
}

#[test]
fn truncated_mapping_reads_zeros_noted_others_intact() {
    succeeds_alone("truncated_mapping_reads_zeros_noted_others_intact", || {
        let (other, short) = (Mapping::new(), Mapping::new());
        let of_other = Watch::new(other.base, 2 * PAGE).unwrap();
        let of_short = Watch::new(short.base, 2 * PAGE).unwrap();
        ftruncate(&short.file, PAGE as u64).unwrap();
        assert!(!of_short.is_gone(), "nobody touched it");
        assert_eq!(short.read(2 * PAGE - 1), 0);
        assert!(of_short.is_gone() && !of_other.is_gone());
        // All of it, so that no half is trusted, and it may be written.
        short.write(0, 9);
        short.write(PAGE, 9);
        let mut there = [1];
        std::os::unix::fs::FileExt::read_at(&short.file, &mut there, 0).unwrap();
        assert_eq!(there, [0], "the file is not written any more");
        assert_eq!(other.read(PAGE), 7);
    });
}

#[test]
fn truncated_mapping_write_noted_like_read() {
    succeeds_alone("truncated_mapping_write_noted_like_read", || {
        let short = Mapping::new();
        let watch = Watch::new(short.base, 2 * PAGE).unwrap();
        ftruncate(&short.file, 0).unwrap();
        short.write(PAGE + 1, 3);
        assert!(watch.is_gone());
        assert_eq!(short.read(PAGE + 1), 3);
    });
}

#[test]
fn an_entry_is_used_again_and_begins_anew() {
    succeeds_alone("an_entry_is_used_again_and_begins_anew", || {
        for _ in 0..2 * WATCHED_MAX {
            let short = Mapping::new();
            let watch = Watch::new(short.base, 2 * PAGE).unwrap();
            assert!(!watch.is_gone());
            ftruncate(&short.file, 0).unwrap();
            assert_eq!(short.read(PAGE), 0);
            assert!(watch.is_gone());
        }
    });
}

/// A SIGBUS in memory without a watch ends the process, as before.
#[test]
fn what_nobody_watches_ends_the_process() {
    let status = alone("what_nobody_watches_ends_the_process", || {
        let (watched, short) = (Mapping::new(), Mapping::new());
        let _watch = Watch::new(watched.base, 2 * PAGE).unwrap();
        ftruncate(&short.file, 0).unwrap();
        short.read(0);
    });
    assert!(status.is_none_or(|status| status.signal() == Some(libc::SIGBUS)));
}
