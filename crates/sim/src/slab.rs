//! Items by number; the number that was freed last is used next.

/// A list whose places are used again, the one freed last first.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds an item; returns its number.
    pub(crate) fn insert(&mut self, thing: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.places[at as usize] = Some(thing);
            return at;
        }
        self.places.push(Some(thing));
        u32::try_from(self.places.len() - 1).expect("fewer than 2^32 of a kind")
    }

    /// Takes an item out, and frees its number.
    ///
    /// # Panics
    /// If there is no item of this number.
    pub(crate) fn remove(&mut self, at: u32) -> T {
        let thing = self.places[at as usize].take().expect("it is there");
        self.free.push(at);
        thing
    }

    /// Returns the item of a number.
    ///
    /// # Panics
    /// If there is no item of this number.
    pub(crate) fn get_mut(&mut self, at: u32) -> &mut T {
        self.places[at as usize].as_mut().expect("it is there")
    }

    /// Iterates over all items.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}
