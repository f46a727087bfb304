//! Checksums and erasure codes. All arithmetic that wants SIMD lives here.

#![warn(missing_docs)]

pub mod checksum;
pub mod erasure;
