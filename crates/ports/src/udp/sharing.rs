//! Several sockets at one address, of which the kernel chooses by the frame inside a datagram.
//!
//! The outer source port would do as well if every peer filled it from the inner flow; RFC 7348
//! section 5 recommends that only. So the choice is made by a classic BPF program of ours: a hash
//! of the inner addresses says the *bucket*, and a table says the socket of each bucket. A pair of
//! machines is always in one bucket. The program sees a datagram from its payload on, which begins
//! with the VXLAN header. The table is compiled into it, since classic BPF has no maps, and needs
//! neither a compiler nor a privilege; another table is another program ([`Selector::set`]).

use std::io;
use std::net::{SocketAddrV4, UdpSocket};

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::sys::{self, Instruction};

/// How many buckets there are.
pub const BUCKETS: usize = 256;

/// The socket of each bucket, in the order of binding.
pub type BucketTable = [u8; BUCKETS];

/// Where the last four bytes of the inner destination and source address are.
const DESTINATION_AT: u32 = 8 + 2;
const SOURCE_AT: u32 = 8 + 6 + 2;
/// Of Fibonacci hashing: addresses that count up come to different buckets.
const FACTOR: u32 = 0x9e37_79b1;
/// The upper eight bits of the product are the bucket.
const HASH_SHIFT: u32 = 24;
const _: () = assert!(BUCKETS == 1 << (u32::BITS - HASH_SHIFT));

/// The buckets of one word in the program, each with eight bits.
const PER_WORD: usize = 4;
const WORDS: usize = BUCKETS / PER_WORD;

/// The bucket of a datagram. `None`: it is too short to be a frame.
#[inline]
pub(super) fn bucket_of(datagram: &[u8]) -> Option<u8> {
    let word = |at: u32| {
        let bytes = datagram.get(at as usize..)?.first_chunk::<4>()?;
        Some(u32::from_be_bytes(*bytes))
    };
    let hash = (word(DESTINATION_AT)? ^ word(SOURCE_AT)?).wrapping_mul(FACTOR) >> HASH_SHIFT;
    Some(hash as u8)
}

/// The table at start, of so many sockets.
pub(super) fn evenly(sharers: usize) -> BucketTable {
    let sharers = sharers.clamp(1, BUCKETS);
    std::array::from_fn(|bucket| u8::try_from(bucket % sharers).expect("at most 256 sharers"))
}

/// A socket at `at`, one of so many. Its number among them is the order of binding.
pub(super) fn bind(at: SocketAddrV4, sharers: usize) -> io::Result<UdpSocket> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    sys::choose_socket(&socket, &mut program(&evenly(sharers)))?;
    Ok(UdpSocket::from(socket))
}

/// What gives the datagrams of an address to its sockets.
#[derive(Debug)]
pub struct Selector(UdpSocket);

impl Selector {
    /// That of the sockets to which this one belongs.
    pub(super) fn of(socket: &UdpSocket) -> io::Result<Self> {
        socket.try_clone().map(Self)
    }

    /// Whether the kernel can tell when a table that was replaced is not in use any more.
    #[must_use]
    pub fn can_change() -> bool {
        sys::knows_grace_period()
    }

    /// Another table. When this returns, all datagrams are given by it, and those that were given
    /// by an older one are in their sockets. It takes some tens of milliseconds.
    ///
    /// A CPU that handles a datagram may have chosen its socket by the old program and not put it
    /// there yet; it does so within one read-side section of RCU, so it is waited for one grace
    /// period. Since Linux 6.18 a CPU may leave a datagram to another one that is just filling the
    /// same socket, and whose section may have begun after the grace period did; but before it
    /// ended, so a second one waits for that.
    ///
    /// # Errors
    /// What the kernel said. The old table may be in use, or either.
    pub fn set(&self, table: &BucketTable) -> io::Result<()> {
        sys::choose_socket(&self.0, &mut program(table))?;
        sys::grace_period()?;
        sys::grace_period()
    }
}

/// Says the number of a socket. A datagram that is too short ends the program with 0: the first one
/// counts it as malformed. If there is no socket of the number yet, the kernel takes another one.
///
/// ```text
///   A = hash >> 24;  X = 8 * (A & 3)
///   a tree of comparisons finds the word of A:  A = (word >> X) & 0xff
/// ```
pub(super) fn program(table: &BucketTable) -> Vec<Instruction> {
    use crate::sys::bpf::*;
    let plain = |code, k| Instruction::new(code, k);
    let mut program = vec![
        plain(LOAD_WORD, DESTINATION_AT),
        plain(MISC_TAX, 0),
        plain(LOAD_WORD, SOURCE_AT),
        plain(ALU_X | XOR, 0),
        plain(ALU_K | MUL, FACTOR),
        plain(ALU_K | RSH, HASH_SHIFT),
        plain(STORE, 0),
        plain(ALU_K | AND, 3),
        plain(ALU_K | LSH, 3),
        plain(MISC_TAX, 0),
        plain(LOAD_STORED, 0),
    ];
    let words: Vec<u32> = table
        .chunks_exact(PER_WORD)
        .map(|four| u32::from_le_bytes(four.try_into().expect("four of them")))
        .collect();
    program.extend(tree(&words, 0));
    program
}

/// Finds the word of the bucket in A, of those from `first` on.
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

const _: () = assert!(WORDS.is_power_of_two() && WORDS <= 64);
