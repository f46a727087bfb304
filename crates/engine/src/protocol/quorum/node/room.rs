//! Room in a node's log: places for entries, and blocks for fragments.

/// Which numbers below some end are taken.
#[derive(Clone, Debug)]
pub struct Room {
    taken: Vec<bool>,
    used: usize,
    /// Where the search for room goes on.
    next: usize,
}

impl Room {
    pub fn new(end: u32) -> Self {
        Room { taken: vec![false; end as usize], used: 0, next: 0 }
    }

    /// How many are taken.
    pub fn used(&self) -> usize {
        self.used
    }

    /// How many there are.
    pub fn all(&self) -> usize {
        self.taken.len()
    }

    /// Takes so many side by side, if they are free anywhere: the first of them.
    pub fn take(&mut self, count: u32) -> Option<u32> {
        let first = self.find(self.next, count).or_else(|| self.find(0, count))?;
        self.mark(first, count);
        self.next = (first + count) as usize;
        Some(first)
    }

    fn find(&self, from: usize, count: u32) -> Option<u32> {
        let (mut first, mut at) = (from, from);
        while at < self.taken.len() {
            match self.taken[at] {
                true => first = at + 1,
                false if at + 1 - first == count as usize => return Some(first as u32),
                false => {}
            }
            at += 1;
        }
        None
    }

    /// Takes these; `false` if one of them is taken, or there are none such.
    pub fn take_these(&mut self, first: u32, count: u32) -> bool {
        let range = first as usize..(first as usize).saturating_add(count as usize);
        let are_free = self.taken.get(range).is_some_and(|taken| taken.iter().all(|taken| !taken));
        if are_free {
            self.mark(first, count);
        }
        are_free
    }

    fn mark(&mut self, first: u32, count: u32) {
        self.taken[first as usize..(first + count) as usize].fill(true);
        self.used += count as usize;
    }

    pub fn give_back(&mut self, first: u32, count: u32) {
        let taken = &mut self.taken[first as usize..(first + count) as usize];
        assert!(taken.iter().all(|taken| *taken), "what is given back was taken");
        taken.fill(false);
        self.used -= count as usize;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_is_taken_once_and_all_comes_back() {
        let mut room = Room::new(10);
        let first = room.take(4).expect("room");
        let second = room.take(6).expect("room");
        assert_eq!((first, second, room.take(1)), (0, 4, None));
        room.give_back(0, 4);
        assert_eq!((room.take(5), room.take(4), room.used()), (None, Some(0), 10));
        assert!(!room.take_these(2, 1));
        room.give_back(0, 4);
        room.give_back(4, 6);
        assert!(room.take_these(2, 8) && !room.take_these(9, 2) && !room.take_these(u32::MAX, u32::MAX));
        assert_eq!(room.used(), 8);
    }
}
