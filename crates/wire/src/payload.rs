//! Data that travels with a message, where it lies, with a CRC for each block of it that was computed where the data
//! entered. The [`crate::Inbox`] that receives it verifies that, once; whoever passes it on passes the CRCs on.
//!
//! Bytes needn't start or end with a block: the payload is cut where blocks end, so its first and last piece may be
//! shorter, and the CRCs between them are those of whole blocks, as drives want them.

use bytes::Bytes;
use smallvec::SmallVec;
use tepal_codec::checksum::crc_append;
use tepal_model::{BLOCK, Segments};

/// The CRC of each piece. Those of up to 64 KiB take no memory of their own.
pub type Sums = SmallVec<[u32; 16]>;

/// Data and its checksums. They match: it was made here, or verified when it was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload {
    cut: u16,
    sums: Sums,
    data: Segments,
    length: u64,
}

/// The data isn't what the checksums are of: the connection, or somebody's memory, has changed it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("data was damaged on its way: block {piece} of {pieces} doesn't match its checksum")]
pub struct Corrupt {
    /// The first piece that is wrong.
    pub piece: usize,
    /// Of how many.
    pub pieces: usize,
}

impl Payload {
    /// Nothing.
    pub fn none() -> Self {
        Payload::default()
    }

    /// Computes the checksums. The data starts `offset` bytes into something: where its blocks end follows from that.
    pub fn seal(offset: u64, data: Segments) -> Self {
        let length = length_of(&data);
        let cut = if length == 0 { 0 } else { (offset % BLOCK) as u16 };
        let mut sums = Sums::with_capacity(Payload::pieces(cut, length) as usize);
        each_sum(cut, &data, |sum| {
            sums.push(sum);
            true
        });
        Payload { cut, sums, data, length }
    }

    /// Whole blocks with the CRC of each.
    pub fn of_blocks(data: Segments, crcs: &[u32]) -> Self {
        let length = length_of(&data);
        assert_eq!(length, crcs.len() as u64 * BLOCK, "there's a checksum for each block");
        Payload { cut: 0, sums: crcs.into(), data, length }
    }

    /// As it came, if that is what was sent.
    pub(crate) fn received(cut: u16, sums: Sums, data: Bytes) -> Result<Self, Corrupt> {
        let length = data.len() as u64;
        let data = if data.is_empty() { Segments::new() } else { Segments::from_iter([data]) };
        let payload = Payload { cut, sums, data, length };
        payload.verify().map(|()| payload)
    }

    /// Into how many pieces so many bytes are cut that start so far into a block.
    pub(crate) fn pieces(cut: u16, length: u64) -> u64 {
        if length == 0 { 0 } else { (u64::from(cut) + length).div_ceil(BLOCK) }
    }

    /// How far into a block it starts.
    pub fn cut(&self) -> u16 {
        self.cut
    }

    /// The CRC of each piece.
    pub fn sums(&self) -> &[u32] {
        &self.sums
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Whether it's whole blocks, or nothing.
    pub fn is_blocks(&self) -> bool {
        self.cut == 0 && self.length.is_multiple_of(BLOCK)
    }

    /// The data.
    pub fn data(&self) -> &Segments {
        &self.data
    }

    /// The data and its checksums.
    pub fn into_parts(self) -> (Segments, Sums) {
        (self.data, self.sums)
    }

    /// Computes the checksums again: they differ if the data has been changed in memory meanwhile.
    pub fn verify(&self) -> Result<(), Corrupt> {
        let mut piece = 0;
        let mut right = true;
        each_sum(self.cut, &self.data, |sum| {
            right = self.sums.get(piece) == Some(&sum);
            piece += usize::from(right);
            right
        });
        if right && piece == self.sums.len() {
            return Ok(());
        }
        Err(Corrupt { piece, pieces: self.sums.len() })
    }
}

fn length_of(data: &Segments) -> u64 {
    data.iter().map(|segment| segment.len() as u64).sum()
}

/// Tells the CRC of each piece, until told to stop.
fn each_sum(cut: u16, data: &Segments, mut tell: impl FnMut(u32) -> bool) {
    let block = BLOCK as usize;
    let (mut left, mut sum, mut begun) = (block - usize::from(cut), 0, false);
    for segment in data {
        let mut rest = &segment[..];
        while !rest.is_empty() {
            let (here, after) = rest.split_at(left.min(rest.len()));
            sum = crc_append(sum, here);
            (left, begun, rest) = (left - here.len(), true, after);
            if left == 0 {
                if !tell(sum) {
                    return;
                }
                (left, sum, begun) = (block, 0, false);
            }
        }
    }
    if begun {
        tell(sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use tepal_codec::checksum::{block_crcs, crc};
    use tepal_model::buffer::join;

    /// The bytes in segments of these lengths, over and over.
    fn split(bytes: &[u8], lengths: &[usize]) -> Segments {
        let (mut rest, mut segments) = (Bytes::copy_from_slice(bytes), Segments::new());
        for &length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            segments.push(rest.split_to(length.min(rest.len())));
        }
        segments
    }

    #[test]
    fn pieces_end_where_blocks_end() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| (i / 7) as u8).collect();
        let payload = Payload::seal(8192 + 4000, split(&bytes, &[3000]));
        assert_eq!((payload.cut(), payload.length(), payload.is_blocks()), (4000, 10_000, false));
        assert_eq!(
            payload.sums(),
            [crc(&bytes[..96]), crc(&bytes[96..4192]), crc(&bytes[4192..8288]), crc(&bytes[8288..])]
        );
        assert_eq!(Payload::seal(77, Segments::new()), Payload::none());
        assert_eq!(Payload::seal(5, split(&[1, 2], &[1])).sums(), [crc(&[1, 2])]);
    }

    #[test]
    fn whole_blocks_have_the_checksums_that_drives_keep() {
        let bytes = [vec![1; 4096], vec![2; 4096]].concat();
        let crcs: Vec<u32> = block_crcs(&bytes).collect();
        let payload = Payload::of_blocks(split(&bytes, &[4096]), &crcs);
        assert_eq!(payload, Payload::seal(4096, split(&bytes, &[4096])));
        assert!(payload.is_blocks());
    }

    proptest! {
        #[test]
        fn what_was_sealed_verifies_and_a_changed_bit_is_found_in_its_block(
            offset in 0u64..9000,
            bytes in prop::collection::vec(any::<u8>(), 1..20_000),
            lengths in prop::collection::vec(1usize..6000, 1..5),
            at in any::<prop::sample::Index>(),
            bit in 0u32..8,
        ) {
            let payload = Payload::seal(offset, split(&bytes, &lengths));
            prop_assert_eq!(payload.verify(), Ok(()));
            let (data, sums) = payload.clone().into_parts();
            prop_assert_eq!(&join(&data)[..], &bytes[..]);
            let mut changed = bytes.clone();
            let at = at.index(bytes.len());
            changed[at] ^= 1 << bit;
            let received = Payload::received(payload.cut(), sums.clone(), changed.into());
            let piece = (at + usize::from(payload.cut())) / BLOCK as usize;
            prop_assert_eq!(received.unwrap_err(), Corrupt { piece, pieces: sums.len() });
        }

        #[test]
        fn as_many_checksums_as_pieces(offset in 0u64..9000, length in 0usize..20_000) {
            let payload = Payload::seal(offset, split(&vec![7; length], &[5000]));
            prop_assert_eq!(payload.sums().len() as u64, Payload::pieces(payload.cut(), length as u64));
        }
    }
}
