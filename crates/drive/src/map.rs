//! The physical map: which slot holds which extent, and which of its blocks hold anything.
//!
//! Kept whole in memory in at most 32 bytes for each mapped extent: 16 for the slot's entry, and a slot number in a hash
//! index whose keys are the entries themselves. Invariants: an extent has at most one slot and a slot at most one extent;
//! the index holds exactly the slots that have an owner.

use crate::log::change::ExtentKey;
use hashbrown::HashTable;
use std::collections::BTreeMap;
use tepal_model::MapId;

/// Entries are kept in chunks, so that growing copies nothing.
const CHUNK: usize = 4096;
/// The index is split, so that growing it needs little room beside it.
const SHARDS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 for a slot without an owner: no map has that number.
    map: u32,
    /// Counts a volume's snapshots; 0 until there are any.
    epoch: u32,
    index_low: u32,
    index_high: u16,
    present: u16,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    fn key(self) -> Option<ExtentKey> {
        let index = u64::from(self.index_high) << 32 | u64::from(self.index_low);
        (self.map != 0).then_some(ExtentKey { map: MapId(self.map), index })
    }
}

/// What a slot holds: the extent, and a bit for each block that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub key: ExtentKey,
    pub present: u16,
}

#[derive(Debug)]
pub struct PhysicalMap {
    chunks: Vec<Box<[Entry; CHUNK]>>,
    index: Vec<HashTable<u32>>,
    extents_of: BTreeMap<MapId, u64>,
}

impl Default for PhysicalMap {
    fn default() -> Self {
        PhysicalMap {
            chunks: Vec::new(),
            index: (0..SHARDS).map(|_| HashTable::new()).collect(),
            extents_of: BTreeMap::new(),
        }
    }
}

fn hash(key: ExtentKey) -> u64 {
    let mut bits =
        key.index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(key.map.0).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ (bits >> 29)
}

fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

fn entry(chunks: &[Box<[Entry; CHUNK]>], slot: u32) -> Entry {
    chunks.get(slot as usize / CHUNK).map_or(Entry::default(), |chunk| chunk[slot as usize % CHUNK])
}

impl PhysicalMap {
    /// The extent's slot and its present blocks.
    pub fn get(&self, key: ExtentKey) -> Option<(u32, u16)> {
        let hash = hash(key);
        let slot = *self.index[shard(hash)].find(hash, |&slot| entry(&self.chunks, slot).key() == Some(key))?;
        Some((slot, entry(&self.chunks, slot).present))
    }

    pub fn owner(&self, slot: u32) -> Option<Owner> {
        let entry = entry(&self.chunks, slot);
        entry.key().map(|key| Owner { key, present: entry.present })
    }

    /// Gives a slot without an owner to an extent without a slot.
    pub fn insert(&mut self, key: ExtentKey, slot: u32, present: u16) {
        assert!(self.get(key).is_none() && self.owner(slot).is_none(), "{key:?} or slot {slot} is mapped already");
        assert!(key.map.0 != 0 && key.index >> ExtentKey::INDEX_BITS == 0, "{key:?} is no extent");
        while self.chunks.len() <= slot as usize / CHUNK {
            self.chunks.push(Box::new([Entry::default(); CHUNK]));
        }
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Entry {
            map: key.map.0,
            epoch: 0,
            index_low: key.index as u32,
            index_high: (key.index >> 32) as u16,
            present,
        };
        let hash_of = hash(key);
        let chunks = &self.chunks;
        let rehash = |&slot: &u32| hash(entry(chunks, slot).key().expect("the index holds slots with owners"));
        self.index[shard(hash_of)].insert_unique(hash_of, slot, rehash);
        *self.extents_of.entry(key.map).or_default() += 1;
    }

    /// Marks blocks of a mapped slot as present or not; what is present afterwards.
    pub fn change_present(&mut self, slot: u32, set: u16, clear: u16) -> u16 {
        let entry = &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK];
        assert!(entry.map != 0, "slot {slot} has no owner");
        entry.present = (entry.present | set) & !clear;
        entry.present
    }

    /// Takes the extent's slot away from it.
    pub fn remove(&mut self, key: ExtentKey) -> Option<u32> {
        let hash = hash(key);
        let chunks = &self.chunks;
        let found = self.index[shard(hash)].find_entry(hash, |&slot| entry(chunks, slot).key() == Some(key)).ok()?;
        let (slot, _) = found.remove();
        self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Entry::default();
        if let Some(extents) = self.extents_of.get_mut(&key.map) {
            *extents -= 1;
            if *extents == 0 {
                self.extents_of.remove(&key.map);
            }
        }
        Some(slot)
    }

    /// How many extents of each map are here.
    pub fn extents_of(&self) -> &BTreeMap<MapId, u64> {
        &self.extents_of
    }

    /// The map's extents within `first..end`, in no order. Looks at each extent asked for or each slot, whichever are
    /// fewer.
    pub fn extents_within(&self, map: MapId, first: u64, end: u64) -> Vec<(ExtentKey, u32)> {
        let slots = (self.chunks.len() * CHUNK) as u32;
        if end.saturating_sub(first) <= u64::from(slots) {
            let keys = (first..end).map(|index| ExtentKey { map, index });
            return keys.filter_map(|key| self.get(key).map(|(slot, _)| (key, slot))).collect();
        }
        let owned = (0..slots).filter_map(|slot| self.owner(slot).map(|owner| (owner.key, slot)));
        owned.filter(|(key, _)| key.map == map && (first..end).contains(&key.index)).collect()
    }

    /// Writes the slot's record of the map table.
    pub fn encode(&self, slot: u32, record: &mut [u8]) {
        let mut entry = entry(&self.chunks, slot);
        if entry.present == 0 {
            entry = Entry::default(); // reserved for a write that isn't committed yet
        }
        record[0..4].copy_from_slice(&entry.map.to_le_bytes());
        record[4..8].copy_from_slice(&entry.epoch.to_le_bytes());
        record[8..12].copy_from_slice(&entry.index_low.to_le_bytes());
        record[12..14].copy_from_slice(&entry.index_high.to_le_bytes());
        record[14..16].copy_from_slice(&entry.present.to_le_bytes());
    }

    /// Reads a record of the map table.
    pub fn decode(record: &[u8]) -> Option<Owner> {
        let u32_at = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().expect("4 bytes"));
        let u16_at = |at: usize| u16::from_le_bytes(record[at..at + 2].try_into().expect("2 bytes"));
        let entry = Entry {
            map: u32_at(0),
            epoch: u32_at(4),
            index_low: u32_at(8),
            index_high: u16_at(12),
            present: u16_at(14),
        };
        entry.key().map(|key| Owner { key, present: entry.present })
    }

    /// Bytes of memory that the map takes.
    pub fn memory(&self) -> u64 {
        let chunks = self.chunks.len() * CHUNK * size_of::<Entry>();
        let index: usize = self.index.iter().map(HashTable::allocation_size).sum();
        (chunks + index) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u64) -> ExtentKey {
        ExtentKey { map: MapId(1), index }
    }

    #[test]
    fn extents_are_found_by_key_and_slots_by_owner() {
        let mut map = PhysicalMap::default();
        map.insert(key(1 << 47), 9000, 0b11);
        assert_eq!(map.get(key(1 << 47)), Some((9000, 0b11)));
        assert_eq!(map.owner(9000), Some(Owner { key: key(1 << 47), present: 0b11 }));
        assert_eq!(map.get(key(0)), None);
        assert_eq!(map.change_present(9000, 0b100, 0b1), 0b110);
        assert_eq!(map.remove(key(1 << 47)), Some(9000));
        assert_eq!((map.get(key(1 << 47)), map.owner(9000), map.extents_of().len()), (None, None, 0));
    }

    #[test]
    fn records_read_back() {
        let mut map = PhysicalMap::default();
        map.insert(key((1 << 40) + 5), 3, 0x8001);
        let mut record = [0; 16];
        map.encode(3, &mut record);
        assert_eq!(PhysicalMap::decode(&record), map.owner(3));
        map.encode(4, &mut record);
        assert_eq!(PhysicalMap::decode(&record), None);
    }

    #[test]
    fn a_mapped_extent_takes_at_most_32_bytes_of_memory() {
        // 100 GiB mapped of a sparse 1 TiB volume: every tenth extent.
        let extents = (100 << 30) / tepal_model::EXTENT;
        let mut map = PhysicalMap::default();
        for slot in 0..extents {
            map.insert(key(slot * 10), slot as u32, 1);
            if slot % 100_000 == 99_999 {
                let each = map.memory() as f64 / (slot + 1) as f64;
                assert!(each <= 32.0, "{each} bytes for each of {slot} extents");
            }
        }
        assert!(map.memory() <= (512 << 20) / 1024 * 100);
    }

    #[test]
    fn the_extents_of_a_range_are_found_however_wide_it_is() {
        let mut map = PhysicalMap::default();
        for index in [3, 5, 1 << 40] {
            map.insert(key(index), index as u32 % 7, 1);
        }
        let within = |first, end| {
            let mut found: Vec<u64> = map.extents_within(MapId(1), first, end).iter().map(|(k, _)| k.index).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(within(0, 5), [3]);
        assert_eq!(within(4, u64::MAX), [5, 1 << 40]);
        assert_eq!(map.extents_within(MapId(2), 0, u64::MAX), []);
    }
}
