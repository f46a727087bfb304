//! The one erasure code that there is: the matrix is Tepal's, and the arithmetic on data is a library's.

use super::matrix::{Decoding, Row, coefficient};
use super::{ErasureCode, ErasureError, Fragment, MAX_CODE, MAX_DATA, MIN_DATA};
use rusty_erasure::kernel::Kernels;
use std::array::from_fn;
use std::ops::Range;
use tepal_model::{BLOCK, Fragments};

/// Reed-Solomon code over bytes (Reed and Solomon 1960), with the matrix of docs/formats.md. It's made once for a volume, and any thread
/// may use it.
#[derive(Clone, Debug)]
pub struct ReedSolomon {
    data: usize,
    code: usize,
    kernels: Kernels,
    /// The coefficients as the kernels take them, code fragment after code fragment.
    tables: Vec<u8>,
}

impl ReedSolomon {
    /// With the fastest kernels that the processor has; all write the same bytes.
    ///
    /// # Errors
    ///
    /// [`ErasureError::Fragments`], unless there are [`MIN_DATA`] to [`MAX_DATA`] data and 1 to [`MAX_CODE`] code fragments.
    pub fn new(fragments: Fragments) -> Result<Self, ErasureError> {
        Self::with_kernels(fragments, rusty_erasure::best_kernels())
    }

    pub(super) fn with_kernels(fragments: Fragments, kernels: Kernels) -> Result<Self, ErasureError> {
        let (data, code) = (usize::from(fragments.data), usize::from(fragments.code));
        if !(MIN_DATA..=MAX_DATA).contains(&data) || !(1..=MAX_CODE).contains(&code) {
            return Err(ErasureError::Fragments { data: fragments.data, code: fragments.code });
        }
        let coefficients: Vec<u8> = (0..code).flat_map(|c| (0..data).map(move |d| coefficient(c, d))).collect();
        Ok(ReedSolomon { data, code, kernels, tables: (kernels.init)(&coefficients) })
    }

    /// What data fragment `data` is multiplied by in code fragment `code`, both numbered from 0, as the kernels take it.
    fn table(&self, code: usize, data: usize) -> &[u8] {
        let start = (code * self.data + data) * self.kernels.table_bytes;
        &self.tables[start..][..self.kernels.table_bytes]
    }

    fn no_such(&self, number: usize) -> ErasureError {
        ErasureError::Number { number, data: self.data as u8, code: self.code as u8 }
    }

    /// Refuses numbers outside of `allowed`, and any that is there twice or in `seen`, to which the numbers are added.
    fn note(&self, seen: &mut u32, allowed: Range<usize>, number: usize) -> Result<(), ErasureError> {
        if !allowed.contains(&number) {
            return Err(self.no_such(number));
        }
        if *seen >> number & 1 == 1 {
            return Err(ErasureError::Twice { number });
        }
        *seen |= 1 << number;
        Ok(())
    }
}

impl ErasureCode for ReedSolomon {
    fn fragments(&self) -> Fragments {
        Fragments { data: self.data as u8, code: self.code as u8 }
    }

    fn encode(&self, data: &[&[u8]], code: &mut [&mut [u8]]) -> Result<(), ErasureError> {
        if data.len() != self.data {
            return Err(ErasureError::DataCount { given: data.len(), wanted: self.data });
        }
        if code.len() != self.code {
            return Err(ErasureError::CodeCount { given: code.len(), wanted: self.code });
        }
        let lengths = data.iter().map(|bytes| bytes.len()).chain(code.iter().map(|bytes| bytes.len()));
        whole_blocks(lengths.enumerate())?;
        (self.kernels.encode)(&self.tables, data, code);
        Ok(())
    }

    fn decode(&self, held: &[Fragment<&[u8]>], lost: &mut [Fragment<&mut [u8]>]) -> Result<(), ErasureError> {
        if held.len() != self.data {
            return Err(ErasureError::HeldCount { given: held.len(), wanted: self.data });
        }
        let mut seen = 0;
        for number in held.iter().map(|fragment| fragment.number).chain(lost.iter().map(|fragment| fragment.number)) {
            self.note(&mut seen, 0..self.data + self.code, number)?;
        }
        let lengths = held.iter().map(|fragment| (fragment.number, fragment.bytes.len()));
        whole_blocks(lengths.chain(lost.iter().map(|fragment| (fragment.number, fragment.bytes.len()))))?;
        if lost.is_empty() {
            return Ok(()); // some of the library's kernels panic when there is nothing to write
        }

        let decoding = Decoding::new(self.data, held);
        let mut coefficients = [0; MAX_DATA * MAX_CODE];
        for (row, fragment) in coefficients.chunks_exact_mut(self.data).zip(lost.iter()) {
            let found: Row = decoding.row(fragment.number);
            row.copy_from_slice(&found[..self.data]);
        }
        let tables = (self.kernels.init)(&coefficients[..lost.len() * self.data]);
        let from: [&[u8]; MAX_DATA] = from_fn(|place| held.get(place).map_or(&[][..], |fragment| fragment.bytes));
        let count = lost.len();
        let mut into: [&mut [u8]; MAX_CODE] = from_fn(|_| Default::default());
        for (place, fragment) in into.iter_mut().zip(lost) {
            *place = fragment.bytes;
        }
        (self.kernels.encode)(&tables, &from[..self.data], &mut into[..count]);
        Ok(())
    }

    fn update(&self, data: usize, change: &[u8], code: &mut [Fragment<&mut [u8]>]) -> Result<(), ErasureError> {
        if data >= self.data {
            return Err(self.no_such(data));
        }
        let mut seen = 0;
        for fragment in code.iter() {
            self.note(&mut seen, self.data..self.data + self.code, fragment.number)?;
            let (number, length) = (fragment.number, fragment.bytes.len());
            if length != change.len() {
                return Err(ErasureError::Length { number, length, wanted: change.len() });
            }
        }
        for fragment in code {
            (self.kernels.mad)(self.table(fragment.number - self.data, data), change, fragment.bytes);
        }
        Ok(())
    }
}

/// Refuses lengths, each with the number of its fragment, that differ or aren't whole blocks.
fn whole_blocks(mut lengths: impl Iterator<Item = (usize, usize)>) -> Result<(), ErasureError> {
    let wanted = lengths.next().map_or(0, |(_, length)| length);
    if let Some((number, length)) = lengths.find(|(_, length)| *length != wanted) {
        return Err(ErasureError::Length { number, length, wanted });
    }
    if !(wanted as u64).is_multiple_of(BLOCK) {
        return Err(ErasureError::Ragged { length: wanted });
    }
    Ok(())
}
