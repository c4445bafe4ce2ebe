use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;

const PAGE: u64 = 4096;

fn file(size: u64) -> File {
    let fd: OwnedFd = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, size).unwrap();
    fd.into()
}

fn region(guest: u64, user: u64, size: u64, offset: u64) -> Layout {
    Layout { guest, user, size, offset }
}

#[test]
fn memory_access_mapped_only_within_one_region() {
    let regions = [
        (region(0, 0x7000_0000, PAGE, 0), file(PAGE)),
        (region(PAGE, 0x9000_0000, 3 * PAGE, PAGE), file(4 * PAGE)),
    ];
    let memory = Memory::map(&regions).unwrap();
    let page = usize::try_from(PAGE).unwrap();
    for (at, size, is_mapped) in [
        (0, page, true),
        (0, page + 1, false),
        (PAGE - 1, 1, true),
        // In two regions, which are neighbours for the guest only.
        (PAGE - 1, 2, false),
        (PAGE, 3 * page, true),
        (PAGE, 3 * page + 1, false),
        (4 * PAGE - 1, 1, true),
        (4 * PAGE, 1, false),
        (4 * PAGE, 0, false),
        (u64::MAX, 1, false),
        (u64::MAX - 3, 8, false),
        (1, usize::MAX, false),
    ] {
        assert_eq!(memory.at(at, size).is_some(), is_mapped, "{size} bytes at {at:#x}");
    }
    let by_guest = memory.at(PAGE + 5, 1).unwrap();
    assert_eq!(memory.at_user(0x9000_0005, 1), Some(by_guest));
    assert_eq!(memory.at_user(5, 1), None, "a guest's address is none of the front end's");
}

#[test]
fn memory_region_starts_at_offset_in_file() {
    let file = file(2 * PAGE);
    let both = [
        (region(0, 0x1000_0000, 2 * PAGE, 0), file.try_clone().unwrap()),
        (region(1 << 20, 0x2000_0000, PAGE, PAGE), file),
    ];
    let memory = Memory::map(&both).unwrap();
    let (first, second) = (memory.at(PAGE + 7, 1).unwrap(), memory.at((1 << 20) + 7, 1).unwrap());
    // SAFETY: both are mapped, and nobody else uses them.
    unsafe {
        first.write_volatile(42);
        assert_eq!(second.read_volatile(), 42);
    }
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let half = u64::MAX / 2;
    for (said, layouts, size) in [
        ("empty", vec![region(0, 0, 0, 0)], PAGE),
        ("wraps", vec![region(u64::MAX, 0, PAGE, 0)], PAGE),
        ("wraps", vec![region(0, u64::MAX - 1, PAGE, 0)], PAGE),
        ("wraps", vec![region(0, 0, PAGE, 0), region(1, 1 << 30, u64::MAX, 0)], PAGE),
        (
            "wraps",
            vec![
                region(0, 1 << 31, PAGE, 0),
                region(1 << 30, (1 << 31) + 1, u64::MAX - (1 << 30), 0),
            ],
            PAGE,
        ),
        ("larger than its file", vec![region(0, 0, 2 * PAGE, 0)], PAGE),
        ("larger than its file", vec![region(0, 0, PAGE, PAGE)], PAGE),
        ("larger than its file", vec![region(0, 0, half, 0)], PAGE),
        ("overlap", vec![region(0, 0, PAGE, 0), region(PAGE - 1, 1 << 30, PAGE, 0)], PAGE),
        ("overlap", vec![region(0, 0, PAGE, 0), region(1 << 30, PAGE - 1, PAGE, 0)], PAGE),
    ] {
        let layouts: Vec<_> = layouts.into_iter().map(|layout| (layout, file(size))).collect();
        let error = Memory::map(&layouts).unwrap_err();
        assert!(error.to_string().contains(said), "{said}: {error}");
    }
}
