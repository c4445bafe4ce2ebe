//! Several sockets at one address; the kernel selects one by the frame inside a datagram.
//!
//! The outer source port would do as well if every peer filled it from the inner flow; RFC 7348
//! section 5 recommends that only. So the choice is made by a classic BPF program of ours: a hash
//! of the inner addresses gives the *bucket*, and a table gives the socket of each bucket. A pair
//! of machines is always in one bucket, but for its flows of high priority ([`HighFlows`]), which
//! have buckets of their own, by the upper bits of the same hash. The program sees a datagram from
//! its payload on, which begins with the VXLAN header. The table is compiled into it, since classic
//! BPF has no maps, and needs neither a compiler nor a privilege; a change of the table is a new
//! program ([`Selector::set`]).

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use super::program::Program;
use crate::buckets::{BucketTable, HIGH_BUCKETS, HIGH_SHIFT, HighFlows, LOW_BUCKETS};
use crate::sys::{self, Instruction};

/// Offsets of the last four bytes of the inner destination and source address.
const DESTINATION_AT: u32 = 8 + 2;
const SOURCE_AT: u32 = 8 + 6 + 2;
/// Factor of Fibonacci hashing: consecutive addresses come to different buckets.
const FACTOR: u32 = 0x9e37_79b1;
/// The upper eight bits of the product are the low bucket.
const HASH_SHIFT: u32 = 24;
const _: () = assert!(LOW_BUCKETS == 1 << (u32::BITS - HASH_SHIFT));

/// Buckets of one word in the program, each with eight bits.
const PER_WORD: usize = 4;

/// Returns the bucket of a datagram; `None` if it is too short to be a frame.
#[inline]
pub(super) fn bucket_of(datagram: &[u8], high: &HighFlows) -> Option<u16> {
    let word = |at: u32| {
        let bytes = datagram.get(at as usize..)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*bytes))
    };
    let hash = (word(DESTINATION_AT)? ^ word(SOURCE_AT)?).wrapping_mul(FACTOR) >> HASH_SHIFT;
    let low = hash as u16;
    let is_high = high.contain(datagram);
    Some(if is_high { LOW_BUCKETS + (low >> HIGH_SHIFT) } else { low })
}

/// The initial table for this number of sockets.
pub(super) fn evenly(sharers: usize) -> BucketTable {
    let sharers = sharers.clamp(1, LOW_BUCKETS.into());
    std::array::from_fn(|bucket| u8::try_from(bucket % sharers).expect("at most 256 sharers"))
}

/// The table with the longest program: its words differ.
fn unlike() -> BucketTable {
    std::array::from_fn(|bucket| bucket.to_le_bytes()[0])
}

/// Binds a socket to `at`, one of `sharers`. Its number among them is the order of binding.
pub(super) fn bind(socket: OwnedFd, at: SocketAddrV4, sharers: usize) -> io::Result<UdpSocket> {
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    sys::choose_socket(&socket, &mut program(&evenly(sharers), &HighFlows::default()))?;
    Ok(UdpSocket::from(socket))
}

/// Sets the table of the sockets to which this one belongs, without flows of high priority.
pub(super) fn choose_by(socket: &UdpSocket, table: &BucketTable) -> io::Result<()> {
    sys::choose_socket(socket, &mut program(table, &HighFlows::default()))
}

/// Selector of the socket for each datagram of an address.
#[derive(Debug)]
pub struct Selector(UdpSocket);

/// The kernel refuses a program; the older one stays in use.
#[derive(Debug, thiserror::Error)]
#[error("{}the kernel refuses {instructions} instructions: {source}", self.advice())]
pub struct SelectError {
    /// Number of its instructions.
    pub instructions: usize,
    /// The kernel's error.
    pub source: io::Error,
}

impl SelectError {
    fn advice(&self) -> &'static str {
        let too_large = self.source.raw_os_error() == Some(libc::ENOMEM);
        if too_large { "raise net.core.optmem_max, or give fewer matches: " } else { "" }
    }
}

/// Wait in the place of two grace periods on a kernel without them.
const LONG: Duration = Duration::from_secs(1);

impl Selector {
    /// Selector of the sockets to which this one belongs.
    pub(super) fn of(socket: &UdpSocket) -> io::Result<Self> {
        socket.try_clone().map(Self)
    }

    /// Returns true if the kernel can tell when a table that was replaced is not in use any more.
    #[must_use]
    pub fn can_change() -> bool {
        sys::knows_grace_period()
    }

    /// Sets another table, or other flows of high priority. When this returns, the kernel selects
    /// every datagram's socket by it, and datagrams that were selected by an older one are in their
    /// sockets. It takes some tens of milliseconds.
    ///
    /// A CPU that handles a datagram may have chosen its socket by the old program and not put it
    /// there yet; it does so within one read-side section of RCU, so this waits for one grace
    /// period. Since Linux 6.18 a CPU may leave a datagram to another one that is just filling the
    /// same socket, and whose section may have begun after the grace period did, but before it
    /// ended. A second grace period covers that section.
    ///
    /// # Errors
    /// A kernel may allow a socket less memory than a program with many matches takes (20 KiB
    /// before Linux 6.7).
    pub fn set(&self, table: &BucketTable, high: &HighFlows) -> Result<(), SelectError> {
        let mut program = program(table, high);
        sys::choose_socket(&self.0, &mut program)
            .map_err(|source| SelectError { instructions: program.len(), source })?;
        // The wait cannot fail if `can_change` is true; the new program is in use in any case.
        if sys::grace_period().and_then(|()| sys::grace_period()).is_err() {
            std::thread::sleep(LONG);
        }
        Ok(())
    }

    /// Checks that the kernel would take these matches with any table, as far as their size goes:
    /// it tries the table with the longest program. So matches that passed are not refused later,
    /// when buckets have moved. With 32 matches on all fields that program has 1,783 instructions;
    /// the kernel takes 4,096.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub fn would_take(high: &HighFlows) -> Result<(), SelectError> {
        let mut program = program(&unlike(), high);
        let attach = |program: &mut Vec<Instruction>| {
            let (family, flags) = (AddressFamily::INET, SocketFlags::CLOEXEC);
            let trial = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
            sockopt::set_socket_reuseport(&trial, true)?;
            sys::choose_socket(&trial, program)
        };
        attach(&mut program).map_err(|source| SelectError { instructions: program.len(), source })
    }

    /// Makes the kernel refuse every other program from now on. For tests of the consequences.
    #[doc(hidden)]
    pub fn lock(&self) -> io::Result<()> {
        sys::lock_filter(&self.0)
    }
}

/// Builds the program, which returns the number of a socket. A datagram that is too short ends it
/// with 0: the first socket counts it as malformed. If there is no socket of the number yet, the
/// kernel takes another one.
///
/// ```text
///   A = hash >> 24
///   of high priority:  A = A >> 2, and the words of the high buckets
///   X = 8 * (A & 3)
///   a tree of comparisons finds the word of A:  A = (word >> X) & 0xff
/// ```
pub(super) fn program(table: &BucketTable, high: &HighFlows) -> Vec<Instruction> {
    use crate::sys::bpf::*;
    let mut program = Program::default();
    program.plain(&[(LOAD_WORD, DESTINATION_AT), (MISC_TAX, 0), (LOAD_WORD, SOURCE_AT)]);
    program.plain(&[(ALU_X | XOR, 0), (ALU_K | MUL, FACTOR), (ALU_K | RSH, HASH_SHIFT)]);
    program.plain(&[(STORE, 0)]);
    let (is_high, (low_table, high_table)) = (program.label(), table.split_at(LOW_BUCKETS.into()));
    high.compile(&mut program, is_high);
    look_up(low_table, &mut program);
    program.here(is_high);
    if !high.is_empty() {
        program.plain(&[(LOAD_STORED, 0), (ALU_K | RSH, HIGH_SHIFT), (STORE, 0)]);
        look_up(high_table, &mut program);
    }
    program.finish()
}

/// Ends the program with the entry of a table; its index is the first word of memory.
fn look_up(table: &[u8], program: &mut Program) {
    use crate::sys::bpf::*;
    program.plain(&[(LOAD_STORED, 0), (ALU_K | AND, 3), (ALU_K | LSH, 3), (MISC_TAX, 0)]);
    program.plain(&[(LOAD_STORED, 0)]);
    let four = table.as_chunks::<PER_WORD>().0;
    let words: Vec<u32> = four.iter().map(|four| u32::from_le_bytes(*four)).collect();
    program.whole(tree(&words, 0));
}

/// Finds the word of the bucket in A, among the words from `first` on.
fn tree(words: &[u32], first: usize) -> Vec<Instruction> {
    use crate::sys::bpf::*;
    if words.iter().all(|word| *word == words[0]) {
        return vec![
            Instruction::new(LOAD_CONSTANT, words[0]),
            Instruction::new(ALU_X | RSH, 0),
            Instruction::new(ALU_K | AND, 0xff),
            Instruction::new(RET_A, 0),
        ];
    }
    let (low, high) = words.split_at(words.len() / 2);
    let middle = first + low.len();
    let (low, high) = (tree(low, first), tree(high, middle));
    let bucket = u32::try_from(middle * PER_WORD).expect("a bucket");
    let over = u8::try_from(low.len()).expect("half a tree of 64 leaves has 159 instructions");
    let mut all = vec![Instruction::jump(JUMP_IF_NOT_BELOW, bucket, over, 0)];
    all.extend(low);
    all.extend(high);
    all
}

const _: () = assert!(LOW_BUCKETS as usize / PER_WORD <= 64 && LOW_BUCKETS.is_power_of_two());
const _: () = assert!(HIGH_BUCKETS.is_power_of_two() && HIGH_BUCKETS as usize >= PER_WORD);

#[cfg(test)]
mod tests;
