//! Records of captured frames, as a worker writes them and a client reads them: a head of
//! [`HEAD_SIZE`] bytes, little-endian, and a body.
//!
//! ```text
//!    0  size of head and body  u32        8  port           u16
//!    4  kind                   u8        10  zero           u16
//!    5  way                    u8        12  size of frame  u32
//!    6  priority               u8        16  time           u64, CLOCK_MONOTONIC
//!    7  drop reason            u8        24  body
//! ```
//!
//! | kind | body |
//! |---|---|
//! | frame | its first bytes |
//! | port | a `sluice_api::capture::PortName` in JSON, before the first frame of the port |
//! | counts | frames that were to be captured, and those that found no room: two u64 |

/// Size of the head of a record.
pub(crate) const HEAD_SIZE: usize = 24;
/// The largest record.
pub(crate) const RECORD_SIZE_MAX: usize = HEAD_SIZE + sluice_api::capture::SNAPLEN_MAX as usize;

/// Number of no port: the counts of dropped frames of any port that the switch did not keep.
pub(crate) const NO_PORT: u16 = u16::MAX;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Frame = 1,
    Port = 2,
    Counts = 3,
}

/// Way of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// It enters by the port.
    In = 0,
    /// It leaves by the port.
    Out = 1,
    /// It came in by the port, and was dropped.
    Dropped = 2,
}

/// Head of a record, without its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) way: Way,
    pub(crate) priority: u8,
    pub(crate) reason: u8,
    pub(crate) port: u16,
    /// Size of the frame.
    pub(crate) size: u32,
    pub(crate) at_ns: u64,
}

impl Head {
    /// Returns a head without a frame.
    pub(crate) const fn of(kind: Kind, port: u16) -> Self {
        Self { kind, way: Way::In, priority: 0, reason: 0, port, size: 0, at_ns: 0 }
    }

    /// Returns the head's bytes, in front of a body of so many bytes.
    pub(crate) fn bytes(&self, body: usize) -> [u8; HEAD_SIZE] {
        let whole = u32::try_from(HEAD_SIZE + body).expect("below the largest record");
        let mut bytes = [0; HEAD_SIZE];
        bytes[..4].copy_from_slice(&whole.to_le_bytes());
        bytes[4..8].copy_from_slice(&[self.kind as u8, self.way as u8, self.priority, self.reason]);
        bytes[8..10].copy_from_slice(&self.port.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.size.to_le_bytes());
        bytes[16..].copy_from_slice(&self.at_ns.to_le_bytes());
        bytes
    }
}

/// A record that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    pub(crate) head: Head,
    pub(crate) body: &'a [u8],
    /// Bytes of both.
    pub(crate) size: usize,
}

/// Returns the first record; `None` if there is not all of it yet.
///
/// # Errors
/// If it is no record.
pub(crate) fn first(bytes: &[u8]) -> Result<Option<Record<'_>>, String> {
    let Some(head) = bytes.first_chunk::<HEAD_SIZE>() else { return Ok(None) };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let whole = word(0) as usize;
    if !(HEAD_SIZE..=RECORD_SIZE_MAX).contains(&whole) {
        return Err(format!("a record of {whole} bytes"));
    }
    let Some(record) = bytes.get(..whole) else { return Ok(None) };
    let kind = match head[4] {
        1 => Kind::Frame,
        2 => Kind::Port,
        3 => Kind::Counts,
        other => return Err(format!("a record of kind {other}")),
    };
    let way = match head[5] {
        0 => Way::In,
        1 => Way::Out,
        2 => Way::Dropped,
        other => return Err(format!("a frame of way {other}")),
    };
    let at_ns = u64::from(word(16)) | u64::from(word(20)) << 32;
    let port = u16::from_le_bytes([head[8], head[9]]);
    let (priority, reason, size) = (head[6], head[7], word(12));
    let head = Head { kind, way, priority, reason, port, size, at_ns };
    Ok(Some(Record { head, body: &record[HEAD_SIZE..], size: whole }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_read_as_it_was_written() {
        let head = Head {
            kind: Kind::Frame,
            way: Way::Dropped,
            priority: 5,
            reason: 7,
            port: 300,
            size: 70_000,
            at_ns: u64::MAX - 3,
        };
        let mut bytes = head.bytes(3).to_vec();
        bytes.extend([1, 2, 3, 99]);
        let record = Record { head, body: &[1, 2, 3], size: HEAD_SIZE + 3 };
        assert_eq!(first(&bytes), Ok(Some(record)));
        for size in 0..HEAD_SIZE + 3 {
            assert_eq!(first(&bytes[..size]), Ok(None), "{size} bytes of it");
        }
    }

    #[test]
    fn record_that_makes_no_sense_refused() {
        let good = Head::of(Kind::Counts, 1).bytes(16);
        for (at, value) in [(0, 3), (3, 0xff), (4, 9), (5, 3)] {
            let mut bytes = [good.to_vec(), vec![0; 16]].concat();
            bytes[at] = value;
            assert!(first(&bytes).is_err(), "byte {at}");
        }
    }
}
