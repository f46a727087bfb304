//! Checksums, and later erasure codes. All arithmetic that wants SIMD lives here.

pub mod checksum;
