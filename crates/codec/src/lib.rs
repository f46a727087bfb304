//! Checksums, erasure codes, and the cipher of encrypted volumes. All arithmetic that wants SIMD lives here.

#![warn(missing_docs)]

pub mod checksum;
pub mod cross;
pub mod erasure;
pub mod xts;
