//! Checksums, and later erasure codes. All arithmetic that wants SIMD lives here.

#![warn(missing_docs)]

pub mod checksum;
