#!/usr/bin/env bash
# xts-mode 0.6.0 with aes 0.9.4 (crates.io), on x86-64 with AES-NI and AVX2, built by `cargo build --release`.
#
# One would guess: a mode of operation costs little beside its block cipher, and a library of a mode uses the cipher's way of
# taking many blocks at once, which the processor needs to be fast.
#
# What is so: `Xts128::encrypt_area` and `decrypt_area` hand the cipher one block of 16 bytes after the other. `aes` chooses its
# implementation at run time, and so each of these blocks is a call that can't be inlined. Sectors of 4096 bytes are enciphered
# at about a tenth of the speed, or less, at which `aes` alone enciphers the same bytes by `encrypt_blocks`.
#
# Whom it hurts: who enciphers disks or images with it at the default target. `-C target-cpu=native` hides most of it, for
# binaries that run on one kind of machine only.
#
# Prints both speeds, and fails if the mode has become at least a third as fast as the cipher.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat > Cargo.toml <<'TOML'
[package]
name = "speed"
version = "0.1.0"
edition = "2024"

[dependencies]
aes = "=0.9.4"
xts-mode = "=0.6.0"
TOML
cat > src/main.rs <<'RUST'
use aes::Aes256;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use std::time::Instant;
use xts_mode::{Xts128, get_tweak_default};

const SECTOR: usize = 4096;
const BYTES: usize = 8 << 20;

/// The best of some rounds, in MB/s.
fn speed(mut work: impl FnMut(&mut [u8])) -> f64 {
    let mut data = vec![7; BYTES];
    let round = || {
        let begun = Instant::now();
        work(&mut data);
        BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64()
    };
    std::iter::repeat_with(round).take(8).fold(0.0, f64::max)
}

fn main() {
    let [data, tweak] = [1, 2].map(|byte| Aes256::new(&[byte; 32].into()));
    let mode = Xts128::new(data.clone(), tweak);
    let of_mode = speed(|bytes| mode.encrypt_area(bytes, SECTOR, 0, get_tweak_default));
    let of_cipher = speed(|bytes| {
        for sector in bytes.chunks_exact_mut(SECTOR) {
            let (blocks, _) = Array::slice_as_chunks_mut(sector);
            data.encrypt_blocks(blocks);
        }
    });
    println!("xts-mode: {of_mode:.0} MB/s; its cipher, many blocks at once: {of_cipher:.0} MB/s");
    if of_mode * 3.0 >= of_cipher {
        eprintln!("the mode is no longer far slower than its cipher");
        std::process::exit(1);
    }
}
RUST
RUSTFLAGS="" CARGO_TARGET_DIR="$folder/target" cargo run --quiet --release
