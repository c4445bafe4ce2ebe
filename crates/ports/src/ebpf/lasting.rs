//! Programs that stay at a device's tcx hook without a descriptor, until the device goes.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::{Hook, bpf, bpf_mut};

/// The beginning of `union bpf_attr` for `BPF_PROG_ATTACH`.
#[repr(C)]
#[derive(Default)]
struct AttachAttr {
    device: u32,
    program: u32,
    attach_type: u32,
    flags: u32,
    replaced: u32,
    relative: u32,
    revision: u64,
}

/// The beginning of `union bpf_attr` for `BPF_PROG_QUERY`.
#[repr(C)]
#[derive(Default)]
struct QueryAttr {
    device: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    programs: u64,
    count: u32,
    padding: u32,
    program_flags: u64,
    links: u64,
    link_flags: u64,
    revision: u64,
}

/// Attaches a program to a device for as long as the device lives.
pub(crate) fn attach_lasting(program: &OwnedFd, index: u32, hook: Hook) -> io::Result<()> {
    const BPF_PROG_ATTACH: libc::c_long = 8;
    let attr = AttachAttr {
        device: index,
        program: program.as_raw_fd().cast_unsigned(),
        attach_type: hook.attach_type(),
        ..AttachAttr::default()
    };
    // SAFETY: there is no pointer in it.
    unsafe { bpf(BPF_PROG_ATTACH, &attr) }.map(drop)
}

/// Returns the number of programs at a hook of a device.
pub(crate) fn count(index: u32, hook: Hook) -> io::Result<u32> {
    const BPF_PROG_QUERY: libc::c_long = 16;
    let mut attr =
        QueryAttr { device: index, attach_type: hook.attach_type(), ..QueryAttr::default() };
    // SAFETY: the kernel writes numbers into it, and follows no pointer, as there is room for no
    // program.
    match unsafe { bpf_mut(BPF_PROG_QUERY, &mut attr) } {
        Ok(_) => Ok(attr.count),
        // It counts first, and then finds no room.
        Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => Ok(attr.count),
        // Nothing was ever there.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(0),
        Err(error) => Err(error),
    }
}
