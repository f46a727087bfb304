//! Erasure codes: of M data fragments, K code fragments, so that any M of the M + K give back all of them.
//!
//! What every [`ErasureCode`] keeps, since data on drives depends on it:
//!
//! - Data fragments are kept as they are. A read that misses none of them decodes nothing.
//! - Byte b of a code fragment depends on the bytes b of the data fragments alone. So a change of some bytes is a change of the same
//!   bytes of the code, wherever they are and however few, and a part of the fragments is decoded as the whole would be.
//! - A code fragment is a sum: the code of `old xor new` is what the code has to be changed by.
//!
//! Fragments are numbered: data from 0 to M - 1, code from M to M + K - 1. Checksums say which fragments are right; a code believes
//! what it's given.

mod matrix;
mod reed_solomon;

#[cfg(test)]
mod property_tests;
#[cfg(test)]
mod tests;

pub use matrix::coefficient;
pub use reed_solomon::ReedSolomon;

use tepal_model::{BLOCK, Fragments};

/// Fewest data fragments of an erasure code: with one, the others are copies.
pub const MIN_DATA: usize = 2;
/// Most data fragments of an erasure code.
pub const MAX_DATA: usize = tepal_model::layout::MAX_DATA as usize;
/// Most code fragments of an erasure code: so many losses can be made good.
pub const MAX_CODE: usize = tepal_model::layout::MAX_CODE as usize;

/// A fragment, or the same range of each fragment, with its number.
#[derive(Debug)]
pub struct Fragment<B> {
    /// From 0: first the data fragments, then the code fragments.
    pub number: usize,
    /// What is in it, or a place for that.
    pub bytes: B,
}

/// A code of M data and K code fragments. Each function that refuses something has written nothing.
pub trait ErasureCode {
    /// M and K.
    fn fragments(&self) -> Fragments;

    /// Writes all K code fragments of all M data fragments, each in order. All have one length in bytes, which is whole blocks.
    ///
    /// # Errors
    ///
    /// The counts aren't M and K, or the lengths differ or aren't whole blocks.
    fn encode(&self, data: &[&[u8]], code: &mut [&mut [u8]]) -> Result<(), ErasureError>;

    /// Writes lost fragments, data or code, from exactly M others in any order. All have one length in bytes, which is whole blocks.
    ///
    /// # Errors
    ///
    /// There aren't exactly M held ones, a number is out of range or named twice, or the lengths differ or aren't whole blocks.
    fn decode(&self, held: &[Fragment<&[u8]>], lost: &mut [Fragment<&mut [u8]>]) -> Result<(), ErasureError>;

    /// Brings code fragments up to date when a range of data fragment `data` changes, by `change`, which is the range's old bytes xor its
    /// new ones. Of each code fragment it takes the same range: any one, of any length in bytes. Code fragments may be missing: a
    /// fragment that isn't named isn't changed.
    ///
    /// # Errors
    ///
    /// A number isn't that of a data fragment, or of a code fragment, or is named twice, or the lengths differ.
    fn update(&self, data: usize, change: &[u8], code: &mut [Fragment<&mut [u8]>]) -> Result<(), ErasureError>;
}

/// Why an erasure code wasn't made, or wrote nothing. The caller has to ask for something else.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message states the rule")]
pub enum ErasureError {
    #[error("an erasure code has {MIN_DATA} to {MAX_DATA} data and 1 to {MAX_CODE} code fragments, not {data}+{code}")]
    Fragments { data: u8, code: u8 },
    #[error("{given} data fragments are given to a code that is made of exactly {wanted}")]
    DataCount { given: usize, wanted: usize },
    #[error("places for {given} code fragments are given to a code that has {wanted}")]
    CodeCount { given: usize, wanted: usize },
    #[error("{given} fragments are given to decode what takes exactly {wanted}")]
    HeldCount { given: usize, wanted: usize },
    #[error("fragment {number} isn't one of {data}+{code}, or isn't of the kind that is asked for")]
    Number { number: usize, data: u8, code: u8 },
    #[error("fragment {number} is named twice")]
    Twice { number: usize },
    #[error("fragment {number} has {length} bytes and another has {wanted}")]
    Length { number: usize, length: usize, wanted: usize },
    #[error("fragments of {length} bytes aren't whole blocks of {BLOCK}")]
    Ragged { length: usize },
}
