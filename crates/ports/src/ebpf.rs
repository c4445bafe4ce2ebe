//! Programs of eBPF, assembled here: a few dozen instructions need no compiler, neither at build
//! time nor at run time.
//!
//! A program is attached to a device's tcx hook (Linux 6.6) or its driver's XDP hook by a link that
//! ends with its descriptor: after SIGKILL nothing is left behind. The one that is to stay is
//! attached without one (`lasting.rs`). Maps are hash tables and arrays
//! of bytes; those shared with a program word by word are made by [`create_map`].
#![allow(unsafe_code, reason = "bpf(2) has no wrapper")]

mod lasting;
mod reader;
mod socket;
mod tables;

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub(crate) use self::lasting::{attach_lasting, count};
pub(crate) use self::reader::{attach_tracepoint, load_reader, run_once};
pub(crate) use self::socket::{filter, load_filter};
pub(crate) use self::tables::PerCpu;

/// One instruction of BPF (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Insn {
    pub(crate) code: u8,
    registers: u8,
    pub(crate) offset: i16,
    value: i32,
}

/// Number of the helper `bpf_skb_load_bytes`.
pub(crate) const LOAD_BYTES: i32 = 26;
/// `TC_ACT_SHOT`: the frame ends here.
pub(crate) const SHOT: i32 = 2;
/// `TCX_NEXT`: go on with the next program, or the stack.
pub(crate) const NEXT: i32 = -1;
/// Offset of `protocol` in `struct __sk_buff`: the EtherType in network order.
pub(crate) const SKB_PROTOCOL: i16 = 16;

const fn insn(code: u8, to: u8, from: u8, offset: i16, value: i32) -> Insn {
    Insn { code, registers: from << 4 | to, offset, value }
}

/// r`to` = r`from`
pub(crate) const fn mov(to: u8, from: u8) -> Insn {
    insn(0xbf, to, from, 0, 0)
}

/// r`to` = value
pub(crate) const fn set(to: u8, value: i32) -> Insn {
    insn(0xb7, to, 0, 0, value)
}

/// r`to` += value
pub(crate) const fn add(to: u8, value: i32) -> Insn {
    insn(0x07, to, 0, 0, value)
}

/// r`to` &= value
pub(crate) const fn and(to: u8, value: i32) -> Insn {
    insn(0x57, to, 0, 0, value)
}

/// r`to` <<= value
pub(crate) const fn shift_left(to: u8, value: i32) -> Insn {
    insn(0x67, to, 0, 0, value)
}

/// r`to` = the 32, 16 or 8 bits at r`from` + offset
pub(crate) const fn load32(to: u8, from: u8, offset: i16) -> Insn {
    insn(0x61, to, from, offset, 0)
}
pub(crate) const fn load16(to: u8, from: u8, offset: i16) -> Insn {
    insn(0x69, to, from, offset, 0)
}
pub(crate) const fn load8(to: u8, from: u8, offset: i16) -> Insn {
    insn(0x71, to, from, offset, 0)
}

pub(crate) const fn call(function: i32) -> Insn {
    insn(0x85, 0, 0, 0, function)
}

pub(crate) const EXIT: Insn = insn(0x95, 0, 0, 0, 0);

/// If the low 32 bits of r`of` are (are not) `value`, go to one of the two ends of the program.
pub(crate) const fn if_equal(of: u8, value: i32, end: i16) -> Insn {
    insn(0x16, of, 0, end, value)
}
pub(crate) const fn if_not(of: u8, value: i32, end: i16) -> Insn {
    insn(0x56, of, 0, end, value)
}

/// r`to` = the 64 bits at r`from` + offset
pub(crate) const fn load64(to: u8, from: u8, offset: i16) -> Insn {
    insn(0x79, to, from, offset, 0)
}

/// The 64 bits at r`to` + offset += r`from`, which gets the earlier value: a full fence.
pub(crate) const fn fetch_add(to: u8, offset: i16, from: u8) -> Insn {
    const BPF_FETCH: i32 = 1;
    insn(0xdb, to, from, offset, BPF_FETCH)
}

/// Exchanges the 64 bits at r`to` + offset with r`from`: a full fence.
pub(crate) const fn exchange(to: u8, offset: i16, from: u8) -> Insn {
    const BPF_XCHG: i32 = 0xe1;
    insn(0xdb, to, from, offset, BPF_XCHG)
}

/// *(r`to` + offset) = the low 32, 16 or 8 bits of r`from`
pub(crate) const fn store32(to: u8, offset: i16, from: u8) -> Insn {
    insn(0x63, to, from, offset, 0)
}
pub(crate) const fn store16(to: u8, offset: i16, from: u8) -> Insn {
    insn(0x6b, to, from, offset, 0)
}
pub(crate) const fn store8(to: u8, offset: i16, from: u8) -> Insn {
    insn(0x73, to, from, offset, 0)
}

/// The 64 bits at r`to` + offset += r`from`, atomically.
pub(crate) const fn atomic_add(to: u8, offset: i16, from: u8) -> Insn {
    insn(0xdb, to, from, offset, 0)
}

/// The 32 bits at r`to` + offset = value
pub(crate) const fn set32(to: u8, offset: i16, value: i32) -> Insn {
    insn(0x62, to, 0, offset, value)
}

/// r`to` += r`from`
pub(crate) const fn add_register(to: u8, from: u8) -> Insn {
    insn(0x0f, to, from, 0, 0)
}

/// r`to` -= r`from`
pub(crate) const fn sub_register(to: u8, from: u8) -> Insn {
    insn(0x1f, to, from, 0, 0)
}

/// *(r`to` + offset) = r`from`
pub(crate) const fn store64(to: u8, offset: i16, from: u8) -> Insn {
    insn(0x7b, to, from, offset, 0)
}

/// Calls the function of the kernel that has this number in its BTF.
pub(crate) const fn call_kernel(function: i32) -> Insn {
    const BPF_PSEUDO_KFUNC_CALL: u8 = 2;
    insn(0x85, 0, BPF_PSEUDO_KFUNC_CALL, 0, function)
}

/// Number of the helper `bpf_map_lookup_elem`.
pub(crate) const MAP_LOOKUP: i32 = 1;
/// Offset of `mark` in `struct __sk_buff`.
pub(crate) const SKB_MARK: i16 = 8;
/// Offset of `len`.
pub(crate) const SKB_LEN: i16 = 0;
/// Offset of `gso_segs`: the number of frames that a super-frame becomes, 0 for a plain frame.
pub(crate) const SKB_SEGMENTS: i16 = 164;
/// Number of the helper `bpf_redirect_map`.
pub(crate) const REDIRECT_MAP: i32 = 51;
/// Number of the helper `bpf_ringbuf_output`.
pub(crate) const RING_OUTPUT: i32 = 130;

/// Condition of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum If {
    /// The low 32 bits are the value.
    Is,
    /// The low 32 bits are not the value.
    IsNot,
    /// The low 32 bits have a bit of the value.
    Has,
    /// The pointer is null.
    Null,
}

/// A place in a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label(usize);

/// A program whose jumps are written with labels; they lead forward only.
#[derive(Debug, Default)]
pub(crate) struct Program {
    insns: Vec<Insn>,
    jumps: Vec<(usize, Label)>,
    /// Index of the instruction behind each label, once it is placed.
    labels: Vec<Option<usize>>,
}

impl Program {
    /// Makes a label that is not placed yet.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places the label here.
    pub(crate) fn here(&mut self, label: Label) {
        self.labels[label.0] = Some(self.insns.len());
    }

    /// Adds instructions without jumps.
    pub(crate) fn plain(&mut self, insns: &[Insn]) {
        self.insns.extend_from_slice(insns);
    }

    /// Jumps to the label if the condition holds for r`of`.
    pub(crate) fn jump(&mut self, of: u8, how: If, value: i32, to: Label) {
        let code = match how {
            If::Is => 0x16,
            If::IsNot => 0x56,
            If::Has => 0x46,
            If::Null => 0x15,
        };
        self.jumps.push((self.insns.len(), to));
        self.insns.push(insn(code, of, 0, 0, value));
    }

    /// Jumps to the label if r`of` is larger than r`than`.
    pub(crate) fn jump_above(&mut self, of: u8, than: u8, to: Label) {
        self.jumps.push((self.insns.len(), to));
        self.insns.push(insn(0x2d, of, than, 0, 0));
    }

    /// r`to` = the map, for a call.
    pub(crate) fn map(&mut self, to: u8, map: BorrowedFd<'_>) {
        // `BPF_LD_IMM64` is two instructions; `BPF_PSEUDO_MAP_FD` is 1.
        self.insns.extend([insn(0x18, to, 1, 0, map.as_raw_fd()), insn(0, 0, 0, 0, 0)]);
    }

    /// r`to` = address of the value of an array with one element.
    pub(crate) fn map_value(&mut self, to: u8, map: BorrowedFd<'_>) {
        // `BPF_PSEUDO_MAP_VALUE` is 2; the second half would hold an offset.
        self.insns.extend([insn(0x18, to, 2, 0, map.as_raw_fd()), insn(0, 0, 0, 0, 0)]);
    }

    /// The instructions.
    pub(crate) fn finish(mut self) -> Vec<Insn> {
        for (at, label) in self.jumps {
            let to = self.labels[label.0].expect("it was set");
            let over = to.checked_sub(at + 1).expect("jumps lead forward");
            self.insns[at].offset = i16::try_from(over).expect("a short program");
        }
        self.insns
    }
}

/// A hook of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Frames that the device receives, behind the point at which AF_PACKET sees them.
    Ingress,
    /// Frames that the host sends there, from any source.
    Egress,
    /// Frames that the driver receives, before they have an `sk_buff` of their own; frames in
    /// several buffers too.
    Xdp,
}

impl Hook {
    /// `BPF_TCX_INGRESS`, `BPF_TCX_EGRESS`, `BPF_XDP`.
    const fn attach_type(self) -> u32 {
        match self {
            Self::Ingress => 46,
            Self::Egress => 47,
            Self::Xdp => 37,
        }
    }

    const fn program_type(self) -> u32 {
        match self {
            Self::Ingress | Self::Egress => BPF_PROG_TYPE_SCHED_CLS,
            Self::Xdp => BPF_PROG_TYPE_XDP,
        }
    }

    const fn load_flags(self) -> u32 {
        const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
        if matches!(self, Self::Xdp) { BPF_F_XDP_HAS_FRAGS } else { 0 }
    }

    const fn link_flags(self) -> u32 {
        const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
        if matches!(self, Self::Xdp) { XDP_FLAGS_DRV_MODE } else { 0 }
    }
}

/// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`, as far as it is used.
#[repr(C)]
#[derive(Default)]
struct LoadAttr {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_SIZE],
    device: u32,
    attach_type: u32,
}

/// The beginning of `union bpf_attr` for `BPF_LINK_CREATE`, with its part for tcx.
#[repr(C)]
#[derive(Default)]
struct LinkAttr {
    program: u32,
    device: u32,
    attach_type: u32,
    flags: u32,
    relative: u32,
    padding: u32,
    revision: u64,
}

/// The beginning of `union bpf_attr` for `BPF_LINK_UPDATE`.
#[repr(C)]
struct UpdateAttr {
    link: u32,
    program: u32,
}

/// The beginning of `union bpf_attr` for `BPF_MAP_CREATE`.
#[repr(C)]
#[derive(Default)]
struct MapAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    entries_max: u32,
    flags: u32,
}

/// `union bpf_attr` for elements of a map.
#[repr(C)]
#[derive(Default)]
struct ElementAttr {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

const BPF_MAP_CREATE: libc::c_long = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_long = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_long = 2;
const BPF_MAP_DELETE_ELEM: libc::c_long = 3;
const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
const BPF_LINK_CREATE: libc::c_long = 28;
const BPF_LINK_UPDATE: libc::c_long = 29;
const BPF_MAP_TYPE_HASH: u32 = 1;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_XDP: u32 = 6;
const NAME_SIZE: usize = 16;

/// # Safety
/// `attr` is the right one for `command`, and all its pointers are good.
unsafe fn bpf<T>(command: libc::c_long, attr: &T) -> io::Result<libc::c_long> {
    // SAFETY: the kernel reads that many bytes of a live value; the rest is the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// # Safety
/// As for [`bpf`], and the kernel may write into `attr` itself.
unsafe fn bpf_mut<T>(command: libc::c_long, attr: &mut T) -> io::Result<libc::c_long> {
    // SAFETY: the caller's promise.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Runs a command that returns a descriptor.
///
/// # Safety
/// As for [`bpf`], and the command makes a descriptor.
unsafe fn open<T>(command: libc::c_long, attr: &T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let fd = i32::try_from(unsafe { bpf(command, attr) }?).map_err(io::Error::other)?;
    // SAFETY: the kernel just made it, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Loads a program for a hook.
pub(crate) fn load(program: &[Insn], name: &str, hook: Hook) -> io::Result<OwnedFd> {
    let kind = (hook.program_type(), hook.attach_type(), hook.load_flags());
    load_as(program, name, kind, c"Apache-2.0")
}

fn load_as(
    program: &[Insn],
    name: &str,
    (kind, attach_type, flags): (u32, u32, u32),
    license: &CStr,
) -> io::Result<OwnedFd> {
    let mut bytes = [0; NAME_SIZE];
    let size = name.len().min(NAME_SIZE - 1);
    bytes[..size].copy_from_slice(&name.as_bytes()[..size]);
    let load = LoadAttr {
        kind,
        instructions: u32::try_from(program.len()).expect("a short program"),
        program: program.as_ptr() as u64,
        license: license.as_ptr() as u64,
        flags,
        name: bytes,
        attach_type,
        ..LoadAttr::default()
    };
    // SAFETY: program and license are alive during the call.
    unsafe { open(BPF_PROG_LOAD, &load) }
}

/// Attaches a program to a device, for as long as the descriptor lives.
pub(crate) fn attach(program: &OwnedFd, index: u32, hook: Hook) -> io::Result<OwnedFd> {
    let link = LinkAttr {
        program: program.as_raw_fd().cast_unsigned(),
        device: index,
        attach_type: hook.attach_type(),
        flags: hook.link_flags(),
        ..LinkAttr::default()
    };
    // SAFETY: there is no pointer in it.
    unsafe { open(BPF_LINK_CREATE, &link) }
}

/// Replaces the program of a link.
pub(crate) fn replace(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    let (link, program) = (link.as_raw_fd().cast_unsigned(), program.as_raw_fd().cast_unsigned());
    // SAFETY: there is no pointer in it.
    unsafe { bpf(BPF_LINK_UPDATE, &UpdateAttr { link, program }) }.map(drop)
}

/// The beginning of `union bpf_attr` for `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoAttr {
    object: u32,
    size: u32,
    info: u64,
}

/// The beginning of `struct bpf_link_info`, with its part for tcx.
#[repr(C)]
#[derive(Default)]
struct LinkInfo {
    kind: u32,
    id: u32,
    program: u32,
    padding: u32,
    device: u32,
    attach_type: u32,
}

/// Index of the device that a link holds its program at, in the namespace of that device; 0 once
/// the link has lost it.
pub(crate) fn device_of(link: &OwnedFd) -> io::Result<u32> {
    let mut info = LinkInfo::default();
    let attr = InfoAttr {
        object: link.as_raw_fd().cast_unsigned(),
        size: u32::try_from(size_of::<LinkInfo>()).expect("a small struct"),
        info: std::ptr::from_mut(&mut info) as u64,
    };
    // SAFETY: the kernel writes at most `size` bytes into `info`, which lives.
    unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &attr) }?;
    Ok(info.device)
}

/// A kind of map beside those of [`Map`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// An array of one element of this size, which processes may map (`BPF_F_MMAPABLE`).
    SharedArray(u32),
    /// An AF_XDP socket for each of so many receive queues (`BPF_MAP_TYPE_XSKMAP`).
    Sockets(u32),
    /// A ring of this many bytes that wakes its readers (`BPF_MAP_TYPE_RINGBUF`).
    Ring(u32),
}

/// Makes a map.
pub(crate) fn create_map(kind: MapKind) -> io::Result<OwnedFd> {
    const BPF_MAP_TYPE_XSKMAP: u32 = 17;
    const BPF_MAP_TYPE_RINGBUF: u32 = 27;
    const BPF_F_MMAPABLE: u32 = 1 << 10;
    let word = 4;
    let attr = |kind, key_size, value_size, entries_max, flags| MapAttr {
        kind,
        key_size,
        value_size,
        entries_max,
        flags,
    };
    let attr = match kind {
        MapKind::SharedArray(size) => attr(BPF_MAP_TYPE_ARRAY, word, size, 1, BPF_F_MMAPABLE),
        MapKind::Sockets(queues) => attr(BPF_MAP_TYPE_XSKMAP, word, word, queues, 0),
        MapKind::Ring(bytes) => attr(BPF_MAP_TYPE_RINGBUF, 0, 0, bytes, 0),
    };
    // SAFETY: there is no pointer in it.
    unsafe { open(BPF_MAP_CREATE, &attr) }
}

/// Sets the socket of a receive queue.
pub(crate) fn set_socket(map: &OwnedFd, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
    let value = socket.as_raw_fd();
    let attr = ElementAttr {
        map: map.as_raw_fd().cast_unsigned(),
        key: std::ptr::from_ref(&queue) as u64,
        value: std::ptr::from_ref(&value) as u64,
        ..ElementAttr::default()
    };
    // SAFETY: the kernel reads a key and a value of 4 bytes each, which live.
    unsafe { bpf(BPF_MAP_UPDATE_ELEM, &attr) }.map(drop)
}

/// A map of keys of `K` bytes to values of `V` words.
#[derive(Debug)]
pub(crate) struct Map<const K: usize, const V: usize>(OwnedFd);

impl<const K: usize, const V: usize> Map<K, V> {
    /// A hash table.
    pub(crate) fn hash(entries_max: usize) -> io::Result<Self> {
        Self::create(BPF_MAP_TYPE_HASH, entries_max, 0)
    }

    /// A hash table that takes memory for the elements that are there only.
    pub(crate) fn growing_hash(entries_max: usize) -> io::Result<Self> {
        const BPF_F_NO_PREALLOC: u32 = 1;
        Self::create(BPF_MAP_TYPE_HASH, entries_max, BPF_F_NO_PREALLOC)
    }

    /// An array; its keys are numbers of 32 bits.
    pub(crate) fn array(entries: usize) -> io::Result<Self> {
        const { assert!(K == size_of::<u32>()) };
        Self::create(BPF_MAP_TYPE_ARRAY, entries, 0)
    }

    fn create(kind: u32, entries_max: usize, flags: u32) -> io::Result<Self> {
        let size = |bytes: usize| u32::try_from(bytes).map_err(io::Error::other);
        let attr = MapAttr {
            kind,
            key_size: size(K)?,
            value_size: size(V * size_of::<u64>())?,
            entries_max: size(entries_max.max(1))?,
            flags,
        };
        // SAFETY: there is no pointer in it.
        unsafe { open(BPF_MAP_CREATE, &attr) }.map(Self)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn element(&self, key: &[u8; K], value: *const u64) -> ElementAttr {
        ElementAttr {
            map: self.0.as_raw_fd().cast_unsigned(),
            key: key.as_ptr() as u64,
            value: value as u64,
            ..ElementAttr::default()
        }
    }

    /// Removes an element, if it is there.
    pub(crate) fn remove(&self, key: &[u8; K]) -> io::Result<()> {
        // SAFETY: the key is alive during the call.
        match unsafe { bpf(BPF_MAP_DELETE_ELEM, &self.element(key, std::ptr::null())) } {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Sets an element.
    pub(crate) fn set(&self, key: &[u8; K], value: &[u64; V]) -> io::Result<()> {
        // SAFETY: the kernel reads `K` bytes and `V` words, which live.
        unsafe { bpf(BPF_MAP_UPDATE_ELEM, &self.element(key, value.as_ptr())) }.map(drop)
    }

    /// An element.
    pub(crate) fn get(&self, key: &[u8; K]) -> io::Result<[u64; V]> {
        let mut value = [0; V];
        // SAFETY: the kernel reads `K` bytes and writes `V` words, which live.
        unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &self.element(key, value.as_mut_ptr())) }?;
        Ok(value)
    }
}
