//! The matrix of the code, and what decodes by it: arithmetic on a few coefficients, none on data.
//!
//! Bytes are polynomials over GF(2) modulo x^8 + x^4 + x^3 + x^2 + 1 (0x11d), and 2 is x. Code fragment i is the sum over all data
//! fragments j of 2^(i j) times fragment j. So the first code fragment is the XOR of the data, the first two are P and Q of RAID-6
//! (Anvin 2004), and all are those of ISA-L's `gf_gen_rs_matrix`. A coefficient depends neither on M nor on K: a code fragment stays as it
//! is when others are added, and when data fragments of zeros are.
//!
//! Any M fragments must give back the data, which is so just if every square part of the matrix can be inverted. That isn't so for any
//! rows of powers below an identity (Plank 1997, with the correction of Plank and Ding 2003). It's so for these up to 21 data
//! fragments, and for the sizes that are allowed a test tries every loss.

use super::{Fragment, MAX_CODE, MAX_DATA};
use rusty_erasure::{gf, matrix::invert_gauss_jordan};

/// By which data fragment `data` (second index) is multiplied in code fragment `code` (first index, from 0). It's written out since
/// data on drives depends on it: docs/formats.md.
const MATRIX: [[u8; MAX_DATA]; MAX_CODE] = [
    [0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01],
    [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0x1d, 0x3a, 0x74, 0xe8, 0xcd, 0x87, 0x13, 0x26],
    [0x01, 0x04, 0x10, 0x40, 0x1d, 0x74, 0xcd, 0x13, 0x4c, 0x2d, 0xb4, 0xea, 0x8f, 0x06, 0x18, 0x60],
    [0x01, 0x08, 0x40, 0x3a, 0xcd, 0x26, 0x2d, 0x75, 0x8f, 0x0c, 0x60, 0x27, 0x25, 0x35, 0xb5, 0xc1],
];

/// By which a data fragment, numbered from 0, is multiplied in a code fragment, which is numbered from 0 here.
///
/// # Panics
///
/// If there is no such fragment in any code.
pub const fn coefficient(code: usize, data: usize) -> u8 {
    MATRIX[code][data]
}

/// By which each of the M fragments that are held is multiplied, to give one fragment.
pub(super) type Row = [u8; MAX_DATA];

/// What all data fragments are, as sums of the M fragments that are held.
pub(super) struct Decoding {
    /// Which data fragments aren't held, and the row of each.
    missing: [(usize, Row); MAX_CODE],
    missing_count: usize,
    /// Which of those that are held has which number, by its place among them.
    held: [usize; MAX_DATA],
    data: usize,
}

impl Decoding {
    /// Solves for the data fragments that aren't among `held`, of which there are exactly `data`, all different.
    ///
    /// As many code fragments are held as data fragments are missing. The equations of these code fragments are solved for the missing
    /// fragments, so what is inverted has at most MAX_CODE rows.
    pub fn new(data: usize, held: &[Fragment<&[u8]>]) -> Self {
        let mut numbers = [0; MAX_DATA];
        let mut is_held = [false; MAX_DATA];
        let mut codes = [(0, 0); MAX_CODE]; // place among the held, and number among the code
        let mut code_count = 0;
        for (place, fragment) in held.iter().enumerate() {
            numbers[place] = fragment.number;
            match fragment.number.checked_sub(data) {
                None => is_held[fragment.number] = true,
                Some(code) => {
                    codes[code_count] = (place, code);
                    code_count += 1;
                }
            }
        }
        let codes = &codes[..code_count];
        let mut missing = [(0, Row::default()); MAX_CODE];
        for (slot, number) in missing.iter_mut().zip((0..data).filter(|number| !is_held[*number])) {
            slot.0 = number;
        }

        let square = code_count * code_count;
        let (mut part, mut inverse) = ([0; MAX_CODE * MAX_CODE], [0; MAX_CODE * MAX_CODE]);
        for (row, (_, code)) in codes.iter().enumerate() {
            for (column, (number, _)) in missing[..code_count].iter().enumerate() {
                part[row * code_count + column] = coefficient(*code, *number);
            }
        }
        if code_count > 0 {
            invert_gauss_jordan(&mut part[..square], &mut inverse[..square], code_count)
                .expect("every square part of the matrix can be inverted");
        }
        for (column, (_, row)) in missing[..code_count].iter_mut().enumerate() {
            for (equation, (own_place, code)) in codes.iter().enumerate() {
                let by = inverse[column * code_count + equation];
                row[*own_place] = by;
                for (place, number) in numbers[..data].iter().enumerate().filter(|(_, number)| **number < data) {
                    row[place] ^= gf::mul(by, coefficient(*code, *number));
                }
            }
        }
        Decoding { missing, missing_count: code_count, held: numbers, data }
    }

    /// The row that gives fragment `number`, which isn't held.
    pub fn row(&self, number: usize) -> Row {
        let missing = &self.missing[..self.missing_count];
        let Some(code) = number.checked_sub(self.data) else {
            let found = missing.iter().find(|(data, _)| *data == number);
            return found.expect("a data fragment that isn't held is missing").1;
        };
        let mut row = Row::default();
        for (place, held) in self.held[..self.data].iter().enumerate().filter(|(_, held)| **held < self.data) {
            row[place] = coefficient(code, *held);
        }
        for (data, from) in missing {
            for (sum, by) in row.iter_mut().zip(from) {
                *sum ^= gf::mul(coefficient(code, *data), *by);
            }
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplication by its definition: add up shifted copies, and take the polynomial away where they leave the byte.
    fn product(a: u8, b: u8) -> u8 {
        (0..8).rev().fold(0, |sum, bit| {
            let doubled = (sum << 1) ^ if sum & 0x80 == 0 { 0 } else { 0x1d };
            doubled ^ if b >> bit & 1 == 0 { 0 } else { a }
        })
    }

    fn power(base: u8, exponent: usize) -> u8 {
        (0..exponent).fold(1, |sum, _| product(sum, base))
    }

    #[test]
    fn coefficients_are_the_powers_that_the_format_says() {
        for (code, row) in MATRIX.iter().enumerate() {
            for (data, found) in row.iter().enumerate() {
                assert_eq!(*found, power(2, code * data), "code {code}, data {data}");
            }
        }
    }

    #[test]
    fn the_library_multiplies_in_the_field_of_the_format() {
        for (a, b) in (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
            assert_eq!(gf::mul(a, b), product(a, b), "{a} times {b}");
        }
    }

    #[test]
    fn the_document_has_the_matrix() {
        let document = include_str!("../../../../docs/formats.md");
        for (code, row) in MATRIX.iter().enumerate() {
            let cells: Vec<String> = row.iter().map(|by| format!("{by:02x}")).collect();
            let line = format!("| {code} | {} |", cells.join(" | "));
            assert!(document.contains(&line), "{line}");
        }
    }
}
