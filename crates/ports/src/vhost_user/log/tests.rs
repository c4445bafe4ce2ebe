use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::*;

const SIZE: u64 = 4096;

fn file(flags: MemfdFlags, size: u64) -> File {
    let fd: OwnedFd = memfd_create("log", flags | MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&fd, size).unwrap();
    fd.into()
}

/// The pages that are marked.
fn marked(log: &DirtyLog) -> Vec<u64> {
    let bit = |page: &u64| {
        let byte = log.byte(page / 8).unwrap();
        byte.load(Ordering::Relaxed) & (1 << (page % 8)) != 0
    };
    (0..8 * log.size as u64).filter(bit).collect()
}

#[test]
fn dirty_log_marks_exactly_touched_pages() {
    let last = 8 * SIZE - 1;
    for (at, size, pages) in [
        (0, 0, 0..0),
        (0, 1, 0..1),
        (4095, 1, 0..1),
        (4095, 2, 0..2),
        (4096, 4096, 1..2),
        (4096, 4097, 1..3),
        (7 * 4096 + 5, 9 * 4096, 7..17),
        (last * 4096, 4096, last..last + 1),
    ] {
        let file = file(MemfdFlags::ALLOW_SEALING, SIZE);
        let log = DirtyLog::map(&file, 0, SIZE).unwrap();
        log.mark(at, size);
        assert_eq!(marked(&log), pages.collect::<Vec<_>>(), "{size} bytes at {at:#x}");
        // A second mark of the same pages.
        log.mark(at, size);
    }
}

#[test]
fn dirty_log_starts_at_offset_end_follows_size() {
    let file = file(MemfdFlags::ALLOW_SEALING, 2 * SIZE);
    let whole = DirtyLog::map(&file, 0, 2 * SIZE).unwrap();
    let second = DirtyLog::map(&file, SIZE, SIZE - 1).unwrap();
    second.mark(4096 * 10, 1);
    assert_eq!(marked(&whole), [8 * SIZE + 10]);
    assert_eq!((whole.end(), second.end()), (2 * SIZE * 8 * 4096, (SIZE - 1) * 8 * 4096));
}

#[test]
fn logs_that_cannot_be_are_refused() {
    let memfd = |size| file(MemfdFlags::ALLOW_SEALING, size);
    for (said, file, offset, size) in [
        ("empty", memfd(SIZE), 0, 0),
        ("wraps", memfd(SIZE), u64::MAX, 2),
        ("larger than its file", memfd(SIZE), 0, SIZE + 1),
        ("larger than its file", memfd(SIZE), SIZE, 1),
        ("may shrink", file(MemfdFlags::empty(), SIZE), 0, SIZE),
    ] {
        let error = DirtyLog::map(&file, offset, size).unwrap_err();
        assert!(error.to_string().contains(said), "{said}: {error}");
    }
}

#[test]
fn what_is_mapped_cannot_shrink_any_more() {
    let file = file(MemfdFlags::ALLOW_SEALING, SIZE);
    let _log = DirtyLog::map(&file, 0, SIZE).unwrap();
    file.set_len(0).unwrap_err();
}
