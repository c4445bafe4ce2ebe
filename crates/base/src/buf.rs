//! Frame handles and batches of them.

use alloc::vec::Vec;

/// Treatment of a frame's outermost 802.1Q tag by its driver (clause 9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VlanTag {
    /// The driver did nothing: a tag of the frame is still in it.
    #[default]
    AsIs,
    /// The driver took the tag off and chose the port by it. The value is the tag control
    /// information: PCP in the highest three bits, VID in the lowest twelve.
    TakenOff(u16),
    /// The frame is of no VLAN that its device has: it is untagged although every frame must have a
    /// tag, or it has another tag, which is still in it. The switch ends the frame.
    NotAllowed,
}

/// A handle to a frame in some other memory: a slot of a pool, a guest's descriptor chain, a
/// simulated frame. The switch never sees more of it than its head and its length.
///
/// A handle has one owner. The switch hands every handle it took back to the driver it came from,
/// whether the frame was sent or dropped.
pub trait Buf {
    /// Upper bound of the bytes that [`Self::head`] shows.
    const HEAD_SIZE_MAX: usize = 128;

    /// Returns the first bytes of the frame, from the destination MAC on: the whole frame if it is
    /// shorter than [`Self::HEAD_SIZE_MAX`], that many bytes otherwise. They must not change while
    /// the switch owns the handle.
    fn head(&self) -> &[u8];

    /// Returns the size of the whole frame in bytes, without frame check sequence; for a
    /// super-frame, that of all its segments together, as they will be on the wire.
    fn size(&self) -> u32;

    /// Cuts the frame after its first `size` bytes. The rest is not part of the frame, such as the
    /// padding of its link (RFC 894). Called only by the switch, with less than [`Self::size`], on
    /// a frame of an underlay port.
    fn truncate(&mut self, size: u32);

    /// Returns the number of frames into which the output driver has to cut it, if its receiver
    /// does not take it whole: one, unless it is a super-frame. Each segment of a super-frame from
    /// an underlay has outer headers; the first segment's are in [`Self::head`].
    #[inline]
    fn segments(&self) -> u16 {
        1
    }

    /// Returns the size of a super-frame's largest segment. All but the last one have it, and the
    /// last one is not larger.
    #[inline]
    fn segment_size(&self) -> u32 {
        self.size()
    }

    /// Returns the size of a frame that is one frame on the wire; for a super-frame, a size above
    /// that of any frame. A driver may know it without finding out which of the two it has.
    #[inline]
    fn plain_size(&self) -> u32 {
        if self.segments() == 1 { self.size() } else { u32::MAX }
    }

    /// Returns the driver's treatment of the tag. The switch asks only for frames that came in at a
    /// port whose driver takes tags off.
    #[inline]
    fn vlan_tag(&self) -> VlanTag {
        VlanTag::AsIs
    }
}

impl Buf for &[u8] {
    fn head(&self) -> &[u8] {
        &self[..self.len().min(Self::HEAD_SIZE_MAX)]
    }

    fn size(&self) -> u32 {
        u32::try_from(self.len()).expect("a frame is smaller than 4 GiB")
    }

    fn truncate(&mut self, size: u32) {
        *self = &self[..size as usize];
    }
}

impl Buf for Vec<u8> {
    fn head(&self) -> &[u8] {
        &self[..self.len().min(Self::HEAD_SIZE_MAX)]
    }

    fn size(&self) -> u32 {
        u32::try_from(self.len()).expect("a frame is smaller than 4 GiB")
    }

    fn truncate(&mut self, size: u32) {
        self.truncate(size as usize);
    }
}

/// The batch is full; the item comes back.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<B>(pub B);

/// A bounded list of handles. Its memory is taken once, when it is made.
#[derive(Debug)]
pub struct Batch<B> {
    items: Vec<B>,
    limit: usize,
}

impl<B> Batch<B> {
    /// Returns an empty batch for at most `limit` items.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        Self { items: Vec::with_capacity(limit), limit }
    }

    /// Adds an item at the end.
    ///
    /// # Errors
    /// [`Full`] with the item if the batch holds its limit.
    pub fn push(&mut self, item: B) -> Result<(), Full<B>> {
        if self.items.len() == self.limit {
            return Err(Full(item));
        }
        self.items.push(item);
        Ok(())
    }

    /// Takes over items from the end of another batch: at most `count_max`, and no more than fit.
    /// Returns their number. Moves them all at once, where [`Self::push`] and [`Self::pop`] would
    /// ask about room for each.
    #[inline]
    pub fn refill(&mut self, from: &mut Self, count_max: usize) -> usize {
        let count = count_max.min(self.room()).min(from.len());
        let kept = from.len() - count;
        if kept == 0 {
            // One copy of memory, and no item is looked at.
            self.items.append(&mut from.items);
        } else {
            self.items.extend(from.items.drain(kept..));
        }
        count
    }

    /// Returns the number of items it may hold.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the number of items that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit - self.items.len()
    }

    /// Returns the number of items it holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns true if it holds nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Takes all items out, first one first.
    pub fn drain(&mut self) -> impl Iterator<Item = B> + '_ {
        self.items.drain(..)
    }

    /// Takes the last item out.
    pub fn pop(&mut self) -> Option<B> {
        self.items.pop()
    }

    /// Returns the items, first one first.
    #[must_use]
    pub fn as_slice(&self) -> &[B] {
        &self.items
    }
}

#[cfg(test)]
mod tests;
