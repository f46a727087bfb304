//! Which slots are free: a bit each, the lowest first, so that a drive fills from its start and its tables stay short.

/// Slots are numbered from 0. A slot is used, or free.
#[derive(Debug)]
pub struct Space {
    /// A set bit is a used slot.
    used: Vec<u64>,
    slots: u32,
    free: u32,
    /// No slot below this is free.
    lowest: u32,
}

impl Space {
    pub fn new(slots: u32) -> Self {
        Space { used: vec![0; slots.div_ceil(64) as usize], slots, free: slots, lowest: 0 }
    }

    pub fn free(&self) -> u32 {
        self.free
    }

    pub fn slots(&self) -> u32 {
        self.slots
    }

    pub fn is_used(&self, slot: u32) -> bool {
        self.used[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    /// Takes this very slot; false if it's used.
    pub fn take(&mut self, slot: u32) -> bool {
        let was_free = !self.is_used(slot);
        if was_free {
            self.used[slot as usize / 64] |= 1 << (slot % 64);
            self.free -= 1;
        }
        was_free
    }

    /// Takes the lowest free slots: a run of at most `most`, as start and length.
    pub fn take_run(&mut self, most: u32) -> Option<(u32, u32)> {
        let start = self.lowest_free()?;
        let mut length = 0;
        while length < most && start + length < self.slots && self.take(start + length) {
            length += 1;
        }
        self.lowest = start + length;
        Some((start, length))
    }

    fn lowest_free(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        let mut word = self.lowest as usize / 64;
        let mut bits = !self.used[word] & (!0 << (self.lowest % 64));
        while bits == 0 {
            word += 1;
            bits = !*self.used.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    pub fn put(&mut self, slot: u32) {
        assert!(self.is_used(slot), "slot {slot} is freed twice");
        self.used[slot as usize / 64] &= !(1 << (slot % 64));
        self.free += 1;
        self.lowest = self.lowest.min(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_given_once_and_comes_back() {
        let mut space = Space::new(130);
        let mut given = Vec::new();
        while let Some((start, length)) = space.take_run(7) {
            given.extend(start..start + length);
        }
        assert_eq!(given, (0..130).collect::<Vec<_>>());
        assert_eq!(space.free(), 0);
        for slot in [3, 4, 5, 129] {
            space.put(slot);
        }
        assert_eq!(space.take_run(2), Some((3, 2)));
        assert_eq!(space.take_run(2), Some((5, 1)));
        assert_eq!(space.take_run(9), Some((129, 1)));
        assert_eq!(space.take_run(1), None);
    }

    #[test]
    #[should_panic(expected = "freed twice")]
    fn a_slot_freed_twice_is_a_bug() {
        let mut space = Space::new(4);
        space.take(1);
        space.put(1);
        space.put(1);
    }
}
