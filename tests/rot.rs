//! Blocks that are told apart by their bytes, wherever they are on a drive, and that rot there.

use crate::cluster::overwrite;
use crate::nbd::{BLOCK, Nbd, noise};
use std::path::Path;

pub fn block(number: usize) -> Vec<u8> {
    noise(1 + number as u64, BLOCK)
}

/// Fills a volume with so many blocks, a multiple of 64, all different.
pub fn fill(volume: &mut Nbd, blocks: usize) {
    assert!(blocks.is_multiple_of(64));
    for first in (0..blocks).step_by(64) {
        let bytes: Vec<u8> = (first..first + 64).flat_map(block).collect();
        volume.write((first * BLOCK) as u64, &bytes).expect("written");
    }
    volume.flush().expect("flushed");
}

/// Where on the drive each of these blocks is, as known by its bytes.
pub fn places(drive: &Path, numbers: &[usize]) -> Vec<Option<u64>> {
    let bytes = std::fs::read(drive).expect("our own drive");
    let of = |number: &usize| {
        let block = block(*number);
        bytes.chunks(BLOCK).position(|found| found == block).map(|place| (place * BLOCK) as u64)
    };
    numbers.iter().map(of).collect()
}

/// Some bytes of a block are others from now on.
pub fn rot(drive: &Path, place: u64) {
    overwrite(drive, place + 100, &[0x5a; 8]);
}
