//! The physical map: which slot holds which layer of which extent, and which of its blocks hold anything.
//!
//! Kept whole in memory in at most 32 bytes for each mapped extent: 16 for the slot's entry, a bit that tells whether there are
//! older layers, and a slot number in a hash index whose keys are the entries themselves. Besides, there's a count for each GiB of
//! a map that has any layers. Invariants: a layer has at most one slot and a slot at most one layer; the index holds the slot of the
//! newest layer of each extent that has any; `older` holds those of all others, and speaks of no extent that has only one.

use crate::extent::{BLOCKS, ExtentKey};
use hashbrown::HashTable;
use smallvec::SmallVec;
use std::collections::{BTreeMap, btree_map};
use std::ops::Range;
use tepal_model::{Epoch, MapId};

/// Entries are kept in leaves of so many, so that growing copies nothing.
const LEAF: usize = 4096;
/// Layers are counted in stretches of so many extents, so that a search passes what holds nothing.
const STRETCH: u64 = 1 << 14;
/// The index is split, so that growing it needs little room beside it.
const SHARDS: usize = 64;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// 0 for a slot without an owner: no map has that number.
    map: u32,
    epoch: Epoch,
    index_low: u32,
    index_high: u16,
    present: u16,
}

const _: () = assert!(size_of::<Entry>() == 16);

impl Entry {
    fn key(self) -> Option<ExtentKey> {
        let index = u64::from(self.index_high) << 32 | u64::from(self.index_low);
        (self.map != 0).then_some(ExtentKey { map: MapId(self.map), index, epoch: self.epoch })
    }

    fn is_of(self, map: MapId, index: u64) -> bool {
        self.key().is_some_and(|key| key.map == map && key.index == index)
    }
}

#[derive(Debug)]
struct Leaf {
    entries: [Entry; LEAF],
    /// A bit for each slot: its layer is the newest of its extent, and there are older ones.
    stacked: [u64; LEAF / 64],
}

/// What a slot holds: a layer of an extent, and a bit for each block that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub key: ExtentKey,
    pub present: u16,
}

/// One layer of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer {
    pub epoch: Epoch,
    pub slot: u32,
    /// A bit for each block that holds something.
    pub present: u16,
}

#[derive(Debug)]
pub struct PhysicalMap {
    leaves: Vec<Box<Leaf>>,
    index: Vec<HashTable<u32>>,
    /// The newest first.
    older: BTreeMap<(MapId, u64), SmallVec<[u32; 4]>>,
    layers_of: BTreeMap<(MapId, Epoch), u64>,
    /// How many layers each stretch of a map has, if it has any.
    stretches: BTreeMap<(MapId, u64), u64>,
    /// Of how many extents a layer of the first epoch lies next below one of the second.
    neighbours: BTreeMap<(MapId, Epoch, Epoch), u64>,
}

impl Default for PhysicalMap {
    fn default() -> Self {
        PhysicalMap {
            leaves: Vec::new(),
            index: (0..SHARDS).map(|_| HashTable::new()).collect(),
            older: BTreeMap::new(),
            layers_of: BTreeMap::new(),
            stretches: BTreeMap::new(),
            neighbours: BTreeMap::new(),
        }
    }
}

fn hash(map: MapId, index: u64) -> u64 {
    let mut bits = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(map.0).wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits ^ (bits >> 29)
}

fn shard(hash: u64) -> usize {
    (hash >> 40) as usize % SHARDS
}

fn count_one_less<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K) {
    if let btree_map::Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

fn entry(leaves: &[Box<Leaf>], slot: u32) -> Entry {
    leaves.get(slot as usize / LEAF).map_or(Entry::default(), |leaf| leaf.entries[slot as usize % LEAF])
}

/// The layers of one extent, the newest first.
#[derive(Clone, Debug)]
pub struct Layers<'a> {
    leaves: &'a [Box<Leaf>],
    newest: Option<u32>,
    older: std::slice::Iter<'a, u32>,
}

impl Iterator for Layers<'_> {
    type Item = Layer;

    fn next(&mut self) -> Option<Layer> {
        let slot = self.newest.take().or_else(|| self.older.next().copied())?;
        let Entry { epoch, present, .. } = entry(self.leaves, slot);
        Some(Layer { epoch, slot, present })
    }
}

impl PhysicalMap {
    /// The layers of an extent, the newest first.
    pub fn layers(&self, map: MapId, index: u64) -> Layers<'_> {
        let newest = self.newest(map, index);
        let older = match newest {
            Some(slot) if self.is_stacked(slot) => self.older.get(&(map, index)).map_or(&[][..], SmallVec::as_slice),
            _ => &[],
        };
        Layers { leaves: &self.leaves, newest, older: older.iter() }
    }

    /// The layer's slot and its present blocks.
    pub fn get(&self, key: ExtentKey) -> Option<(u32, u16)> {
        let layer = self.layers(key.map, key.index).find(|layer| layer.epoch == key.epoch)?;
        Some((layer.slot, layer.present))
    }

    pub fn owner(&self, slot: u32) -> Option<Owner> {
        let entry = entry(&self.leaves, slot);
        entry.key().map(|key| Owner { key, present: entry.present })
    }

    fn newest(&self, map: MapId, index: u64) -> Option<u32> {
        let hash = hash(map, index);
        self.index[shard(hash)].find(hash, |&slot| entry(&self.leaves, slot).is_of(map, index)).copied()
    }

    fn is_stacked(&self, slot: u32) -> bool {
        let at = slot as usize % LEAF;
        self.leaves[slot as usize / LEAF].stacked[at / 64] >> (at % 64) & 1 == 1
    }

    fn set_stacked(&mut self, slot: u32, is_stacked: bool) {
        let at = slot as usize % LEAF;
        let word = &mut self.leaves[slot as usize / LEAF].stacked[at / 64];
        *word = *word & !(1 << (at % 64)) | u64::from(is_stacked) << (at % 64);
    }

    /// Gives a slot without an owner to a layer without a slot.
    pub fn insert(&mut self, key: ExtentKey, slot: u32, present: u16) {
        assert!(self.get(key).is_none() && self.owner(slot).is_none(), "{key:?} or slot {slot} is mapped already");
        assert!(key.map.0 != 0 && key.index >> ExtentKey::INDEX_BITS == 0, "{key:?} is no extent");
        while self.leaves.len() <= slot as usize / LEAF {
            self.leaves.push(Box::new(Leaf { entries: [Entry::default(); LEAF], stacked: [0; LEAF / 64] }));
        }
        self.leaves[slot as usize / LEAF].entries[slot as usize % LEAF] = Entry {
            map: key.map.0,
            epoch: key.epoch,
            index_low: key.index as u32,
            index_high: (key.index >> 32) as u16,
            present,
        };
        match self.newest(key.map, key.index) {
            Some(newest) => self.stack(key, slot, newest),
            None => {
                let hash_of = hash(key.map, key.index);
                let leaves = &self.leaves;
                let of = |slot| entry(leaves, slot).key().expect("the index holds slots with owners");
                let rehash = |&slot: &u32| hash(of(slot).map, of(slot).index);
                self.index[shard(hash_of)].insert_unique(hash_of, slot, rehash);
            }
        }
        *self.layers_of.entry((key.map, key.epoch)).or_default() += 1;
        *self.stretches.entry((key.map, key.index / STRETCH)).or_default() += 1;
    }

    /// Puts a layer among the others of its extent.
    fn stack(&mut self, key: ExtentKey, slot: u32, newest: u32) {
        let leaves = &self.leaves;
        let older = self.older.entry((key.map, key.index)).or_default();
        let epoch_of = |slot: u32| entry(leaves, slot).epoch;
        if epoch_of(newest) > key.epoch {
            let at = older.partition_point(|&other| epoch_of(other) > key.epoch);
            let above = at.checked_sub(1).map_or(newest, |at| older[at]);
            let (below, above) = (older.get(at).copied().map(epoch_of), epoch_of(above));
            older.insert(at, slot);
            self.set_stacked(newest, true);
            self.count_neighbours(key, (below, Some(above)), true);
        } else {
            let below = epoch_of(newest);
            older.insert(0, newest);
            self.set_newest(key, newest, slot);
            self.set_stacked(newest, false);
            self.set_stacked(slot, true);
            self.count_neighbours(key, (Some(below), None), true);
        }
    }

    /// A layer came between these two, or was taken from there.
    fn count_neighbours(&mut self, key: ExtentKey, (below, above): (Option<Epoch>, Option<Epoch>), comes: bool) {
        let own = Some(key.epoch);
        for (below, above, comes) in [(below, above, !comes), (below, own, comes), (own, above, comes)] {
            let (Some(below), Some(above)) = (below, above) else { continue };
            let pair = (key.map, below, above);
            let extents = self.neighbours.entry(pair).or_default();
            *extents = if comes { *extents + 1 } else { *extents - 1 };
            if *extents == 0 {
                self.neighbours.remove(&pair);
            }
        }
    }

    fn set_newest(&mut self, key: ExtentKey, from: u32, to: u32) {
        let hash = hash(key.map, key.index);
        let found = self.index[shard(hash)].find_mut(hash, |&slot| slot == from);
        *found.expect("the index holds the newest layer") = to;
    }

    /// Marks blocks of a mapped slot as present or not; what is present afterwards.
    pub fn change_present(&mut self, slot: u32, set: u16, clear: u16) -> u16 {
        let entry = &mut self.leaves[slot as usize / LEAF].entries[slot as usize % LEAF];
        assert!(entry.map != 0, "slot {slot} has no owner");
        entry.present = (entry.present | set) & !clear;
        entry.present
    }

    /// Takes the layer's slot away from it.
    pub fn remove(&mut self, key: ExtentKey) -> Option<u32> {
        let (slot, _) = self.get(key)?;
        let newest = self.newest(key.map, key.index)?;
        if self.is_stacked(newest) {
            self.unstack(key, slot, newest);
        } else {
            let hash = hash(key.map, key.index);
            let found = self.index[shard(hash)].find_entry(hash, |&other| other == slot);
            found.expect("the index holds the newest layer").remove();
        }
        self.leaves[slot as usize / LEAF].entries[slot as usize % LEAF] = Entry::default();
        count_one_less(&mut self.layers_of, (key.map, key.epoch));
        count_one_less(&mut self.stretches, (key.map, key.index / STRETCH));
        Some(slot)
    }

    /// Takes a layer from among the others of its extent.
    fn unstack(&mut self, key: ExtentKey, slot: u32, mut newest: u32) {
        let older = self.older.get_mut(&(key.map, key.index)).expect("a stacked layer has older ones");
        let at = older.iter().position(|&other| other == slot);
        let epoch_of = |slot: u32| entry(&self.leaves, slot).epoch;
        let above = at.map(|at| at.checked_sub(1).map_or(newest, |at| older[at]));
        let below = at.map_or(0, |at| at + 1);
        let beside = (older.get(below).copied().map(epoch_of), above.map(epoch_of));
        let removed = older.remove(at.unwrap_or(0));
        let is_alone = older.is_empty();
        self.count_neighbours(key, beside, false);
        if at.is_none() {
            self.set_newest(key, newest, removed);
            self.set_stacked(newest, false);
            newest = removed;
        }
        self.set_stacked(newest, !is_alone);
        if is_alone {
            self.older.remove(&(key.map, key.index));
        }
    }

    /// How many layers there are of each epoch of each map.
    pub fn layers_of(&self) -> &BTreeMap<(MapId, Epoch), u64> {
        &self.layers_of
    }

    /// The epochs of a map of which there are layers, ascending, and how many of each.
    pub fn epochs_of(&self, map: MapId) -> impl Iterator<Item = (Epoch, u64)> {
        self.layers_of.range((map, 0)..=(map, Epoch::MAX)).map(|(&(_, epoch), &layers)| (epoch, layers))
    }

    /// Of how many extents of a map a layer of one epoch lies next below one of another: both epochs, the older one first.
    pub fn neighbours_of(&self, map: MapId) -> impl Iterator<Item = (Epoch, Epoch, u64)> {
        let all = self.neighbours.range((map, 0, 0)..=(map, Epoch::MAX, Epoch::MAX));
        all.map(|(&(_, below, above), &extents)| (below, above, extents))
    }

    /// The extents of a map that have more than one layer, in order, from `first` on.
    pub fn stacked(&self, map: MapId, first: u64) -> impl Iterator<Item = u64> {
        self.older.range((map, first)..=(map, u64::MAX)).map(|(&(_, index), _)| index)
    }

    /// Those of these extents of a map outside of which there are no layers: runs of them, in order.
    pub fn inhabited(&self, map: MapId, extents: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let stretches = extents.start / STRETCH..extents.end.max(extents.start).div_ceil(STRETCH);
        let found = self.stretches.range((map, stretches.start)..(map, stretches.end));
        found.map(move |(&(_, stretch), _)| {
            extents.start.max(stretch * STRETCH)..extents.end.min((stretch + 1) * STRETCH)
        })
    }

    /// All layers of these extents of the map, in no order. Looks at each extent that may have one or each slot, whichever
    /// are fewer.
    pub fn layers_within(&self, map: MapId, extents: Range<u64>) -> impl Iterator<Item = (ExtentKey, Layer)> {
        let slots = (self.leaves.len() * LEAF) as u32;
        let inhabited: u64 = self.inhabited(map, extents.clone()).map(|extents| extents.end - extents.start).sum();
        let is_narrow = inhabited <= u64::from(slots);
        let (by_index, by_slot) = if is_narrow { (extents.clone(), 0..0) } else { (0..0, 0..slots) };
        let by_index = self.inhabited(map, by_index).flatten();
        let owned = by_slot.filter_map(|slot| self.owner(slot).map(|owner| (slot, owner)));
        let within = owned.filter(move |(_, Owner { key, .. })| key.map == map && extents.contains(&key.index));
        let layer = |(slot, Owner { key, present })| (key, Layer { epoch: key.epoch, slot, present });
        let key = move |index, layer: Layer| (ExtentKey { map, index, epoch: layer.epoch }, layer);
        by_index
            .flat_map(move |index| self.layers(map, index).map(move |layer| key(index, layer)))
            .chain(within.map(layer))
    }

    /// All layers, in no order.
    pub fn keys(&self) -> impl Iterator<Item = ExtentKey> {
        self.leaves.iter().flat_map(|leaf| leaf.entries.iter().filter_map(|entry| entry.key()))
    }

    /// The same of the extents that have any of these blocks.
    pub fn layers_of_blocks(&self, map: MapId, blocks: Range<u64>) -> impl Iterator<Item = (ExtentKey, Layer)> {
        self.layers_within(map, blocks.start / u64::from(BLOCKS)..blocks.end.div_ceil(BLOCKS.into()))
    }

    /// Writes the slot's record of the map table.
    pub fn encode(&self, slot: u32, record: &mut [u8]) {
        let mut entry = entry(&self.leaves, slot);
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
        let leaves = self.leaves.len() * size_of::<Leaf>();
        let index: usize = self.index.iter().map(HashTable::allocation_size).sum();
        // A tree's nodes are half full at least.
        let older = self.older.len() * 2 * size_of::<((MapId, u64), SmallVec<[u32; 4]>)>();
        let neighbours = self.neighbours.len() * 2 * size_of::<((MapId, Epoch, Epoch), u64)>();
        let stretches = self.stretches.len() * 2 * size_of::<((MapId, u64), u64)>();
        (leaves + index + older + neighbours + stretches) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(index: u64) -> ExtentKey {
        ExtentKey { map: MapId(1), index, epoch: 0 }
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
        assert_eq!((map.get(key(1 << 47)), map.owner(9000), map.layers_of().len()), (None, None, 0));
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
            let mut found: Vec<u64> = map.layers_within(MapId(1), first..end).map(|(k, _)| k.index).collect();
            found.sort_unstable();
            found
        };
        assert_eq!(within(0, 5), [3]);
        assert_eq!(within(4, u64::MAX), [5, 1 << 40]);
        assert_eq!(map.layers_within(MapId(2), 0..u64::MAX).count(), 0);
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one run of several")]
    fn stretches_without_layers_are_passed() {
        let (mut map, far) = (PhysicalMap::default(), 1 << 40);
        [3, 5, far].into_iter().for_each(|index| map.insert(key(index), index as u32 % 7, 1));
        let inhabited = |map: &PhysicalMap, extents| map.inhabited(MapId(1), extents).collect::<Vec<_>>();
        assert_eq!(inhabited(&map, 0..u64::MAX), [0..STRETCH, far..far + STRETCH]);
        assert_eq!(inhabited(&map, 4..far + 1), [4..STRETCH, far..far + 1]);
        assert_eq!(inhabited(&map, STRETCH..far), []);
        for index in [3, far] {
            map.remove(key(index));
        }
        assert_eq!(inhabited(&map, 0..u64::MAX), [0..STRETCH]);
        map.remove(key(5));
        assert_eq!(map.inhabited(MapId(1), 0..u64::MAX).count(), 0);
    }

    proptest! {
        #[test]
        fn the_layers_of_an_extent_are_found_the_newest_first_whatever_came_and_went(
            steps in prop::collection::vec((any::<bool>(), 0u64..3, 0u32..6), 0..200),
        ) {
            let (mut map, mut expected) = (PhysicalMap::default(), BTreeMap::new());
            for (slot, (adds, index, epoch)) in steps.into_iter().enumerate() {
                let key = ExtentKey { map: MapId(1), index, epoch };
                prop_assert_eq!(map.remove(key), expected.remove(&key));
                if adds {
                    map.insert(key, slot as u32 * 100, 1 << epoch);
                    expected.insert(key, slot as u32 * 100);
                }
                let layers_of = |index: u64| expected.iter().filter(move |(key, _)| key.index == index).rev();
                for index in 0..3 {
                    let layer = |(key, &slot): (&ExtentKey, &u32)| Layer { epoch: key.epoch, slot, present: 1 << key.epoch };
                    let layers: Vec<Layer> = layers_of(index).map(layer).collect();
                    prop_assert_eq!(map.layers(MapId(1), index).collect::<Vec<_>>(), layers);
                }
                let stacked: Vec<u64> = (1..3).filter(|&index| layers_of(index).count() > 1).collect();
                prop_assert_eq!(map.stacked(MapId(1), 1).collect::<Vec<_>>(), stacked);
                for end in [2, u64::MAX] {
                    let mut found: Vec<_> = map.layers_within(MapId(1), 1..end).map(|(key, _)| key).collect();
                    found.sort_unstable();
                    let within: Vec<_> = expected.keys().filter(|key| (1..end).contains(&key.index)).copied().collect();
                    prop_assert_eq!(found, within);
                }
                let layers = map.epochs_of(MapId(1)).map(|(_, layers)| layers).sum::<u64>();
                prop_assert_eq!(layers, expected.len() as u64);
                let mut neighbours = BTreeMap::<(Epoch, Epoch), u64>::new();
                for index in 0..3 {
                    let epochs: Vec<Epoch> = layers_of(index).map(|(key, _)| key.epoch).collect();
                    epochs.windows(2).for_each(|pair| *neighbours.entry((pair[1], pair[0])).or_default() += 1);
                }
                let counted = map.neighbours_of(MapId(1)).map(|(below, above, extents)| ((below, above), extents));
                prop_assert_eq!(counted.collect::<BTreeMap<_, _>>(), neighbours);
            }
        }
    }
}
