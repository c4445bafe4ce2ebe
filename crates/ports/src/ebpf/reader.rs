//! Programs that read structures of the kernel: run once from here, or attached to a tracepoint.
#![allow(unsafe_code, reason = "bpf(2) has no wrapper")]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use super::{BPF_PROG_TYPE_SCHED_CLS, Insn, bpf, load_as, open};

/// The beginning of `union bpf_attr` for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
struct TracepointAttr {
    name: u64,
    program: u32,
    padding: u32,
}

/// The beginning of `union bpf_attr` for `BPF_PROG_TEST_RUN`.
#[repr(C)]
#[derive(Default)]
struct RunAttr {
    program: u32,
    result: u32,
    size: u32,
    size_out: u32,
    frame: u64,
    frame_out: u64,
    repeat: u32,
    duration: u32,
    context_size: u32,
    context_size_out: u32,
    context: u64,
    context_out: u64,
}

/// Loads a program that reads structures of the kernel, or calls its functions, for which the
/// kernel wants a licence that fits its own. It is run by [`run_once`], or attached to a raw
/// tracepoint.
pub(crate) fn load_reader(program: &[Insn], name: &str, is_tracing: bool) -> io::Result<OwnedFd> {
    const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
    let kind = if is_tracing {
        (BPF_PROG_TYPE_RAW_TRACEPOINT, 0, 0)
    } else {
        (BPF_PROG_TYPE_SCHED_CLS, 0, 0)
    };
    load_as(program, name, kind, c"Dual MIT/GPL")
}

/// Attaches a program to a raw tracepoint, for as long as the descriptor lives.
pub(crate) fn attach_tracepoint(program: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
    let attr = TracepointAttr {
        name: name.as_ptr() as u64,
        program: program.as_raw_fd().cast_unsigned(),
        padding: 0,
    };
    // SAFETY: the name is alive during the call.
    unsafe { open(BPF_RAW_TRACEPOINT_OPEN, &attr) }
}

/// Runs a program of a device's hook once, with an empty frame, in the namespace of the calling
/// thread.
pub(crate) fn run_once(program: &OwnedFd) -> io::Result<()> {
    const BPF_PROG_TEST_RUN: libc::c_long = 10;
    let frame = [0u8; 64];
    let attr = RunAttr {
        program: program.as_raw_fd().cast_unsigned(),
        size: u32::try_from(frame.len()).expect("64"),
        frame: frame.as_ptr() as u64,
        ..RunAttr::default()
    };
    // SAFETY: the kernel reads a frame that lives, and is given no room to write to.
    unsafe { bpf(BPF_PROG_TEST_RUN, &attr) }.map(drop)
}
