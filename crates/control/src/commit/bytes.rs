//! Bounded reading and writing of bytes: big-endian numbers, byte strings with their length.
//!
//! A reader never allocates more than the input holds, and never reads beyond its end.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Bytes that are not a valid encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    what: &'static str,
    /// Version of the bytes, and the newest one that is read.
    versions: Option<(u8, u8)>,
}

impl Malformed {
    pub(super) const fn of(what: &'static str) -> Self {
        Self { what, versions: None }
    }

    /// Checks the version of an encoding of which this program knows those up to `newest`.
    pub(super) const fn unless_known(
        what: &'static str,
        version: u8,
        newest: u8,
    ) -> Result<(), Self> {
        if 1 <= version && version <= newest {
            Ok(())
        } else {
            Err(Self { what, versions: Some((version, newest)) })
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.versions {
            None => write!(f, "malformed: {}", self.what),
            Some((version, newest)) => write!(
                f,
                "{} of version {version}, and this program reads those up to {newest}: upgrade \
                 this host",
                self.what
            ),
        }
    }
}

impl core::error::Error for Malformed {}

/// Appends values to a byte string.
#[derive(Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn u8(&mut self, value: u8) -> &mut Self {
        self.0.push(value);
        self
    }

    pub(super) fn flag(&mut self, value: bool) -> &mut Self {
        self.u8(u8::from(value))
    }

    pub(super) fn u16(&mut self, value: u16) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn u32(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Writes a number of items. Every collection of this module is bounded far below 2^32.
    pub(super) fn count(&mut self, count: usize) -> &mut Self {
        self.u32(u32::try_from(count).expect("collections are bounded"))
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
        self
    }

    pub(super) fn take(&mut self) -> Vec<u8> {
        core::mem::take(&mut self.0)
    }
}

/// Takes values off the front of a byte string.
#[derive(Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Malformed::of("it ends early"))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed::of("a flag is 0 or 1")),
        }
    }

    pub(super) fn u16(&mut self) -> Result<u16, Malformed> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a number of items, each of at least `size_min` bytes, which the input must have room
    /// for.
    pub(super) fn count(&mut self, size_min: usize) -> Result<usize, Malformed> {
        let count = self.u32()? as usize;
        let fits = count.checked_mul(size_min).is_some_and(|size| size <= self.0.len());
        if fits { Ok(count) } else { Err(Malformed::of("more items than bytes")) }
    }

    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let count = self.count(1)?;
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        Ok(head)
    }

    pub(super) fn text(&mut self) -> Result<String, Malformed> {
        let text =
            core::str::from_utf8(self.bytes()?).map_err(|_| Malformed::of("text not UTF-8"))?;
        Ok(text.into())
    }

    /// Reads items, each of at least `size_min` bytes.
    pub(super) fn items<T>(
        &mut self,
        size_min: usize,
        item: impl Fn(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let count = self.count(size_min)?;
        (0..count).map(|_| item(self)).collect()
    }

    pub(super) const fn end(&self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::of("bytes after its end")) }
    }
}
