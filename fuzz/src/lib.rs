//! Code shared by the fuzz targets.

/// The remaining bytes of an input; zeros once there are none.
pub struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    /// Makes a source of all bytes of an input.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Returns true if no byte is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub fn u32(&mut self) -> u32 {
        u32::from_le_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    pub fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// Returns true once in `count` byte values.
    pub fn one_in(&mut self, count: u8) -> bool {
        self.byte().is_multiple_of(count)
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::from(self.byte()) % of.len()]
    }

    /// Returns as many bytes as the next byte says, or all remaining ones if fewer.
    pub fn bytes(&mut self) -> &'a [u8] {
        let count = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(count);
        self.0 = rest;
        bytes
    }
}
