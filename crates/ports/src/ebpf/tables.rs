//! Maps that programs and this process share element by element: one value for each CPU, and
//! reading many elements by one call.
#![allow(unsafe_code, reason = "bpf(2) has no wrapper")]

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use super::{BPF_MAP_CREATE, BPF_MAP_LOOKUP_ELEM, ElementAttr, Map, MapAttr, bpf, open};

/// An array of one element that has `V` words for each CPU.
#[derive(Debug)]
pub(crate) struct PerCpu<const V: usize> {
    fd: OwnedFd,
    cpus: usize,
}

impl<const V: usize> PerCpu<V> {
    pub(crate) fn new() -> io::Result<Self> {
        const BPF_MAP_TYPE_PERCPU_ARRAY: u32 = 6;
        let attr = MapAttr {
            kind: BPF_MAP_TYPE_PERCPU_ARRAY,
            key_size: 4,
            value_size: u32::try_from(V * size_of::<u64>()).map_err(io::Error::other)?,
            entries_max: 1,
            flags: 0,
        };
        // SAFETY: there is no pointer in it.
        let fd = unsafe { open(BPF_MAP_CREATE, &attr) }?;
        Ok(Self { fd, cpus: cpus()? })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Sums a word over all CPUs.
    pub(crate) fn sum(&self, word: usize) -> io::Result<u64> {
        let (key, mut values) = (0u32, vec![0u64; self.cpus * V]);
        let attr = ElementAttr {
            map: self.fd.as_raw_fd().cast_unsigned(),
            key: std::ptr::from_ref(&key) as u64,
            value: values.as_mut_ptr() as u64,
            ..ElementAttr::default()
        };
        // SAFETY: the kernel writes `V` words for each CPU that it may have, which is `cpus`.
        unsafe { bpf(BPF_MAP_LOOKUP_ELEM, &attr) }?;
        Ok(values.iter().skip(word).step_by(V).sum())
    }
}

/// Number of CPUs for which the kernel keeps values: one more than the last possible one.
fn cpus() -> io::Result<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = text.trim().rsplit(['-', ',']).next().and_then(|last| last.parse::<usize>().ok());
    last.map(|last| last + 1).ok_or_else(|| io::Error::other(format!("CPUs {text:?}")))
}

/// `union bpf_attr` for many elements of a map.
#[repr(C)]
#[derive(Default)]
struct BatchAttr {
    from: u64,
    to: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Elements that one call reads.
const BATCH: usize = 4096;

impl<const K: usize, const V: usize> Map<K, V> {
    /// Sets elements. Returns how many of them, from the first one on, are set: all, unless the
    /// table is full or the kernel cannot do several at a time.
    pub(crate) fn set_all(&self, keys: &[[u8; K]], values: &[[u64; V]]) -> usize {
        const BPF_MAP_UPDATE_BATCH: libc::c_long = 26;
        let count = keys.len().min(values.len());
        let Some(wanted) = u32::try_from(count).ok().filter(|count| *count > 0) else { return 0 };
        let mut attr = BatchAttr {
            keys: keys.as_ptr() as u64,
            values: values.as_ptr() as u64,
            count: wanted,
            map: self.fd().as_raw_fd().cast_unsigned(),
            ..BatchAttr::default()
        };
        // SAFETY: the kernel reads `count` keys and values, which live, and writes the number of
        // those that it set.
        match unsafe { super::bpf_mut(BPF_MAP_UPDATE_BATCH, &mut attr) } {
            Ok(_) => count,
            // Before it counts it may refuse the call as a whole.
            Err(_) if attr.count == wanted => 0,
            Err(_) => (attr.count as usize).min(count),
        }
    }

    /// Reads all elements of a hash table. One that changes its place meanwhile may be missed or
    /// come twice.
    pub(crate) fn for_each(&self, mut each: impl FnMut(&[u8; K], &[u64; V])) -> io::Result<()> {
        const BPF_MAP_LOOKUP_BATCH: libc::c_long = 24;
        let (mut keys, mut values) = (vec![[0u8; K]; BATCH], vec![[0u64; V]; BATCH]);
        let (mut from, mut to, mut is_first) = (0u32, 0u32, true);
        loop {
            let mut attr = BatchAttr {
                from: if is_first { 0 } else { std::ptr::from_mut(&mut from) as u64 },
                to: std::ptr::from_mut(&mut to) as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: u32::try_from(BATCH).expect("a few thousand"),
                map: self.fd().as_raw_fd().cast_unsigned(),
                ..BatchAttr::default()
            };
            // SAFETY: the kernel reads and writes a position each, writes at most `count` keys and
            // values, all of which live, and writes the number of them.
            let done = unsafe { super::bpf_mut(BPF_MAP_LOOKUP_BATCH, &mut attr) };
            let is_last = match done {
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                done => done.map(|_| false)?,
            };
            let count = (attr.count as usize).min(BATCH);
            keys[..count].iter().zip(&values[..count]).for_each(|(key, value)| each(key, value));
            if is_last {
                return Ok(());
            }
            (from, is_first) = (to, false);
        }
    }
}
