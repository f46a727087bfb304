//! Checksums of the blocks in the slots, cached by page within a budget; the table is on the drive.

use crate::table::{PAGE, Table};
use std::collections::{BTreeMap, VecDeque};
use tepal_model::Buffer;

#[derive(Debug)]
struct CachedPage {
    bytes: Buffer,
    /// Differs from the drive, or from one of its copies there.
    dirty: bool,
    /// Both copies were looked at: this is the newer one. What isn't sure may be checked against, and nothing more.
    sure: bool,
    /// A checkpoint is writing it; until that is done the drive has an older one.
    writing: bool,
    /// Asked for since the eviction hand last passed.
    recent: bool,
}

/// Pages of the checksum table in memory. Dirty pages and those being written are never dropped.
#[derive(Debug)]
pub struct SumCache {
    table: Table,
    pages: BTreeMap<u32, CachedPage>,
    /// Order of eviction: second chance.
    hand: VecDeque<u32>,
    most_pages: usize,
    dirty: usize,
    /// How often pages have been written.
    writes: u64,
}

impl SumCache {
    pub fn new(table: Table, budget: u64) -> Self {
        SumCache {
            table,
            pages: BTreeMap::new(),
            hand: VecDeque::new(),
            most_pages: (budget as usize / PAGE).max(16),
            dirty: 0,
            writes: 0,
        }
    }

    pub fn page_of(&self, slot: u32) -> u32 {
        self.table.page_of(slot)
    }

    pub fn has(&self, page: u32, surely: bool) -> bool {
        self.pages.get(&page).is_some_and(|cached| cached.sure || !surely)
    }

    /// The bound checksum of a block, if its page is here.
    pub fn get(&mut self, slot: u32, block: usize) -> Option<u32> {
        let page = self.pages.get_mut(&self.table.page_of(slot))?;
        page.recent = true;
        let at = self.table.at(slot) + 4 * block;
        Some(u32::from_le_bytes(page.bytes[at..at + 4].try_into().expect("4 bytes")))
    }

    /// False if the page isn't here, or isn't sure.
    pub fn set(&mut self, slot: u32, block: usize, sum: u32) -> bool {
        let page = self.pages.get_mut(&self.table.page_of(slot)).filter(|page| page.sure);
        let Some(page) = page else { return false };
        let at = self.table.at(slot) + 4 * block;
        page.bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        self.dirty += usize::from(!page.dirty);
        page.dirty = true;
        true
    }

    /// Has both copies of a page written anew that is here and isn't about to be. Whether it is so.
    pub fn rewrite(&mut self, page: u32) -> bool {
        let clean = self.pages.get_mut(&page).filter(|page| !page.dirty && !page.writing);
        let Some(page) = clean else { return false };
        (page.dirty, page.sure) = (true, true);
        self.dirty += 1;
        true
    }

    /// To be asked before a page is read.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// Adds a page read from the drive, unless there is one: that is newer. False if pages were written since the read began:
    /// this may be how it was before.
    pub fn offer(&mut self, page: u32, bytes: Buffer, sure: bool, writes: u64) -> bool {
        if self.has(page, sure) {
            return true;
        }
        if writes != self.writes {
            return false;
        }
        let new = CachedPage { bytes, dirty: false, sure, writing: false, recent: true };
        if let Some(unsure) = self.pages.get_mut(&page) {
            *unsure = new;
            return true;
        }
        while self.pages.len() >= self.most_pages && self.evict() {}
        self.pages.insert(page, new);
        self.hand.push_back(page);
        true
    }

    /// Forgets a clean page, so that it's read again.
    pub fn forget(&mut self, page: u32) {
        if self.pages.get(&page).is_some_and(|cached| !cached.dirty && !cached.writing) {
            self.pages.remove(&page);
            self.hand.retain(|&other| other != page);
        }
    }

    fn evict(&mut self) -> bool {
        for _ in 0..2 * self.hand.len() {
            let Some(number) = self.hand.pop_front() else { return false };
            let Some(page) = self.pages.get_mut(&number) else { continue };
            if page.dirty || page.writing || page.recent {
                page.recent = false;
                self.hand.push_back(number);
                continue;
            }
            self.pages.remove(&number);
            return true;
        }
        false
    }

    pub fn dirty(&self) -> usize {
        self.dirty
    }

    pub fn dirty_pages(&self) -> Vec<u32> {
        self.pages.iter().filter(|(_, page)| page.dirty).map(|(&number, _)| number).collect()
    }

    /// Copies of these dirty pages, which count as clean from here on but stay until `written`.
    pub fn capture(&mut self, numbers: &[u32]) -> Vec<(u32, Buffer)> {
        let mut images = Vec::new();
        for number in numbers {
            if let Some(page) = self.pages.get_mut(number).filter(|page| page.dirty) {
                page.dirty = false;
                page.writing = true;
                self.dirty -= 1;
                images.push((*number, Buffer::copy_of(&page.bytes)));
            }
        }
        images
    }

    /// The captured pages are on the drive.
    pub fn written(&mut self) {
        self.pages.values_mut().for_each(|page| page.writing = false);
        self.writes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::blank;

    fn cache() -> SumCache {
        SumCache::new(Table::empty(64), 16 * PAGE as u64)
    }

    fn offer_all(cache: &mut SumCache, pages: std::ops::Range<u32>) {
        for page in pages {
            assert!(cache.offer(page, blank(), true, cache.writes()));
        }
    }

    #[test]
    fn a_page_that_was_read_before_a_newer_one_was_written_and_dropped_is_refused() {
        let mut cache = cache();
        let before = cache.writes();
        assert!(cache.offer(0, blank(), true, before));
        assert!(cache.set(0, 0, 5));
        cache.capture(&[0]);
        cache.written();
        offer_all(&mut cache, 1..40);
        assert!(!cache.has(0, false));
        assert!(!cache.offer(0, blank(), true, before), "what was read then is older than what was dropped");
        assert!(cache.offer(0, blank(), true, cache.writes()));
    }

    #[test]
    fn sums_are_kept_by_slot_and_block() {
        let mut cache = cache();
        assert_eq!(cache.get(70, 3), None, "not loaded");
        cache.offer(1, blank(), false, 0);
        assert!(!cache.set(0, 0, 1), "not loaded");
        assert!(!cache.set(70, 3, 77), "not sure");
        cache.offer(1, blank(), true, 0);
        assert!(cache.set(70, 3, 77));
        assert_eq!((cache.get(70, 3), cache.get(70, 4), cache.get(71, 3)), (Some(77), Some(0), Some(0)));
        cache.offer(1, blank(), true, 0);
        assert_eq!(cache.get(70, 3), Some(77), "what the drive has is older");
    }

    #[test]
    fn dirty_pages_stay_whatever_the_budget_says() {
        let mut cache = cache();
        cache.offer(0, blank(), true, 0);
        assert!(cache.set(0, 0, 5));
        offer_all(&mut cache, 1..200);
        assert_eq!(cache.get(0, 0), Some(5));
        assert_eq!(cache.pages.len(), 16);
        assert_eq!(cache.dirty_pages(), [0]);
        assert_eq!(cache.capture(&[0]).len(), 1);
        assert_eq!(cache.dirty(), 0);
        offer_all(&mut cache, 200..400);
        assert_eq!(cache.get(0, 0), Some(5), "being written");
        cache.written();
        offer_all(&mut cache, 400..600);
        assert_eq!(cache.get(0, 0), None);
    }
}
