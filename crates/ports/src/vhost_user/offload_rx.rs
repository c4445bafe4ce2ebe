//! Unfinished frames from a guest: frames that leave a checksum or their segmentation to the port.
//!
//! They have a path of their own, so that the usual one needs only one check for them. Their chain
//! is read anew from its beginning, and only values read here count.

use super::header::{copy_all, copy_piece};
use super::incoming::{Incoming, Taken};
use super::ring::{Chain, Fault};
use crate::frame::{HEAD_SIZE, MORE_PIECES_MAX, More, PLAIN_SIZE_MAX, Piece, Record};
use crate::net_header::{self, HEADER_SIZE, ask_of};
use crate::offload::Offload;
use crate::pool::{LARGE_FRAME_SIZE_MAX, Pool};

/// Result of reading a chain.
enum Found {
    Frame(Offload),
    /// A frame in too many pieces.
    Scattered,
    Oversize,
    Nonsense,
}

impl Incoming {
    /// Makes a handle of the chain of `head`. `None` if it needs a slot of the pool, and there is
    /// none.
    #[cold]
    pub(super) fn take_unfinished(
        &mut self,
        head: u16,
        pool: &mut Pool,
    ) -> Result<Option<Taken>, Fault> {
        let agreed = self.agreed;
        let mut chain = Chain::new(&self.ring, &self.memory, head, 0);
        if !net_header::may_leave(agreed) {
            // Walk to its end: a chain without one is a fault.
            while chain.next()?.is_some() {}
            return Ok(Some(self.refuse_offload(head)));
        }
        let (record, more) = self.records.next_with_more();
        match look(chain, record, more, head, agreed)? {
            Found::Frame(offload) => {
                more.offload = offload;
                let buf = self.handle(head, if offload.is_super() { 0 } else { offload.size() });
                // SAFETY: record and more were just written.
                let buf = unsafe { buf.unfinished(offload.is_super()) };
                Ok(Some(Taken::Frame(buf, offload.wire_size() as usize)))
            }
            Found::Scattered => self.copy_unfinished(head, pool),
            Found::Oversize => {
                self.refused.oversize += 1;
                self.end_at_once(head);
                Ok(Some(Taken::Nothing))
            }
            Found::Nonsense => Ok(Some(self.refuse_offload(head))),
        }
    }

    fn refuse_offload(&mut self, head: u16) -> Taken {
        self.refused.offload += 1;
        self.end_at_once(head);
        Taken::Nothing
    }

    /// Copies a frame in too many pieces into the pool. `None` if there is no slot.
    fn copy_unfinished(&mut self, head: u16, pool: &mut Pool) -> Result<Option<Taken>, Fault> {
        if pool.large_slots() == 0 {
            return Ok(Some(self.refuse_offload(head)));
        }
        let Some(mut slot) = pool.take_large() else { return Ok(None) };
        let chain = Chain::new(&self.ring, &self.memory, head, 0);
        let copied = copy_all(chain, slot.bytes_mut()).map(|copied| {
            let (header, size) = copied?;
            let ask = ask_of(&header, self.agreed).ok()?;
            let bytes = &slot.bytes_mut()[..size.min(HEAD_SIZE)];
            let offload = Offload::check(ask, bytes, size).ok()?;
            (offload.is_super() || size <= PLAIN_SIZE_MAX).then_some(offload)
        });
        let taken = match copied {
            Ok(Some(offload)) => {
                let size = offload.wire_size() as usize;
                Taken::Frame(slot.freeze(&offload), size)
            }
            Ok(None) => {
                pool.cancel_large(&slot);
                return Ok(Some(self.refuse_offload(head)));
            }
            Err(fault) => {
                pool.cancel_large(&slot);
                return Err(fault);
            }
        };
        self.end_at_once(head);
        Ok(Some(taken))
    }
}

/// Reads a chain: the header, the head of the frame, and the places of the rest.
fn look(
    mut chain: Chain<'_>,
    record: &mut Record,
    more: &mut More,
    head: u16,
    agreed: u64,
) -> Result<Found, Fault> {
    let mut net_header = [0; HEADER_SIZE];
    let (mut header_size, mut head_size, mut size, mut count) = (0, 0, 0, 0);
    while let Some((mut at, mut left)) = chain.next()? {
        header_size += copy_piece(&mut at, &mut left, &mut net_header[header_size..]);
        let copied = copy_piece(&mut at, &mut left, &mut record.head[head_size..]);
        head_size += copied;
        size += copied + left as usize;
        if left > 0 {
            if let Some(piece) = more.pieces.get_mut(count) {
                *piece = Piece { at: at.as_ptr(), size: left };
            }
            count += 1;
        }
    }
    if header_size < HEADER_SIZE {
        return Err(Fault::Short(head));
    }
    if size > LARGE_FRAME_SIZE_MAX {
        return Ok(Found::Oversize);
    }
    // A handle shows a whole head even for a shorter super-frame.
    record.head[head_size..].fill(0);
    let checked = ask_of(&net_header, agreed)
        .and_then(|ask| Offload::check(ask, &record.head[..head_size], size));
    Ok(match checked {
        Err(_) => Found::Nonsense,
        Ok(offload) if !offload.is_super() && size > PLAIN_SIZE_MAX => Found::Oversize,
        Ok(_) if count > MORE_PIECES_MAX => Found::Scattered,
        Ok(offload) => {
            record.count = u8::try_from(count).expect("at most `MORE_PIECES_MAX`");
            Found::Frame(offload)
        }
    })
}
