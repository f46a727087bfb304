//! What a volume holds before anybody has written to it: zeros, or what another disk has, from which it's imported.

use super::content::Content;
use super::pattern::{self, OpId, Value};
use crate::random::mix;
use std::ops::Range;
use tepal_model::BLOCK;

/// Nobody's write: what the other disk has.
pub const ORIGIN: OpId = OpId(0);

/// A disk with holes, drawn from a seed. Past its end are zeros.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    seed: u64,
    length: u64,
    /// Bytes at multiples of it are all a hole or all not.
    grain: u64,
}

impl Origin {
    /// Its bytes are those of a checker with the same seed.
    pub fn disk(seed: u64, length: u64, grain: u64) -> Self {
        Origin { seed, length, grain }
    }

    /// The lengths of runs of these bytes, and whether they are nothing but zeros.
    pub fn runs(&self, bytes: Range<u64>) -> Vec<(u64, bool)> {
        let (mut at, mut runs): (u64, Vec<(u64, bool)>) = (bytes.start, Vec::new());
        while at < bytes.end {
            let (end, is_zero) = match at < self.length {
                true => {
                    let number = at / self.grain;
                    (((number + 1) * self.grain).min(self.length), mix(self.seed ^ mix(number)).is_multiple_of(3))
                }
                false => (bytes.end, true),
            };
            let end = end.min(bytes.end);
            match runs.last_mut() {
                Some((length, same)) if *same == is_zero => *length += end - at,
                _ => runs.push((end - at, is_zero)),
            }
            at = end;
        }
        runs
    }

    pub fn bytes(&self, bytes: Range<u64>) -> Vec<u8> {
        let (mut data, mut at) = (vec![0; (bytes.end - bytes.start) as usize], 0);
        for (length, is_zero) in self.runs(bytes.clone()) {
            let run = at..at + length as usize;
            if !is_zero {
                pattern::fill(self.seed, ORIGIN, bytes.start + at as u64, &mut data[run.clone()]);
            }
            at = run.end;
        }
        data
    }

    pub(super) fn content(&self, block: u64) -> Content {
        let (mut content, mut at) = (Content::of(Value::Zero), 0);
        for (length, is_zero) in self.runs(block * BLOCK..(block + 1) * BLOCK) {
            let end = at + length as u16;
            if !is_zero {
                content = content.overlaid(&(at..end), Value::Written(ORIGIN));
            }
            at = end;
        }
        content
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::WHOLE;
    use super::*;

    #[test]
    fn the_bytes_of_a_disk_are_what_its_blocks_may_show() {
        let disk = Origin::disk(3, 10 * BLOCK - 512, 512);
        let data = disk.bytes(0..12 * BLOCK);
        for (block, bytes) in data.chunks(BLOCK as usize).enumerate() {
            assert!(disk.content(block as u64).shows(3, block as u64 * BLOCK, &WHOLE, bytes));
            let has_any = bytes.iter().any(|byte| *byte != 0);
            assert_eq!(has_any, block < 10, "block {block} has its holes, and not only those");
        }
        assert!(data.chunks(512).take(79).any(|sector| sector.iter().all(|byte| *byte == 0)), "there are holes");
        assert_eq!(disk.bytes(5_000..9_000)[..], data[5_000..9_000]);
        assert_eq!(Origin::default().runs(7..9), [(2, true)]);
    }
}
