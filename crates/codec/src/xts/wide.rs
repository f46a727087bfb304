//! The same cipher for processors that encipher four blocks with one instruction (VAES and AVX-512): the tweaks of a sector, its cipher and
//! the copy from one place to another are one pass, with everything in registers.
//!
//! Invariant: [`WideCipher::new`] makes one only where the processor has all the instructions that the functions here are compiled for.

#![allow(unsafe_code, reason = "instructions that not every processor has can't be called otherwise")]

use super::{KEY, SECTOR};
use std::arch::x86_64::{
    __m128i, __m512i, _mm_aesimc_si128, _mm_aeskeygenassist_si128, _mm_shuffle_epi32, _mm_slli_si128, _mm_xor_si128,
    _mm512_aesdec_epi128, _mm512_aesdeclast_epi128, _mm512_aesenc_epi128, _mm512_aesenclast_epi128,
    _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_maskz_slli_epi64, _mm512_or_si512, _mm512_set_epi64,
    _mm512_setzero_si512, _mm512_shuffle_epi32, _mm512_slli_epi64, _mm512_srli_epi64, _mm512_storeu_si512,
    _mm512_test_epi64_mask, _mm512_xor_si512,
};
use zeroize::Zeroize;

/// Keys of the rounds of AES-256 (FIPS 197, 5.2).
const ROUNDS: usize = 15;
/// Registers that a sector fills.
const WIDE: usize = SECTOR / 64;
/// Sectors whose numbers are enciphered at once.
const AT_ONCE: usize = 8;
/// The half of each number of 128 bits that has its lower digits.
const LOW: u8 = 0b0101_0101;

/// Keys of rounds, as bytes.
type Schedule = [[u64; 2]; ROUNDS];

pub struct WideCipher {
    encrypt: Schedule,
    decrypt: Schedule,
    tweak: Schedule,
}

impl Drop for WideCipher {
    fn drop(&mut self) {
        for schedule in [&mut self.encrypt, &mut self.decrypt, &mut self.tweak] {
            schedule.iter_mut().for_each(Zeroize::zeroize);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Encrypt,
    Decrypt,
}

impl WideCipher {
    /// `None` where the processor lacks an instruction.
    pub fn new(key: &[u8; KEY]) -> Option<Self> {
        let is_there = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("aes");
        // SAFETY: the processor has all that these functions are compiled for.
        is_there.then(|| unsafe {
            let (data, tweak) = key.split_at(KEY / 2);
            let encrypt = schedule(data);
            WideCipher { encrypt, decrypt: inverse(&encrypt), tweak: schedule(tweak) }
        })
    }

    /// Enciphers whole sectors from one place to another.
    pub fn encrypt(&self, first: u64, from: &[[u8; SECTOR]], to: &mut [[u8; SECTOR]]) {
        // SAFETY: as there's a cipher, the processor has all that this function is compiled for.
        unsafe { self.carry(Way::Encrypt, first, Places::Apart(from, to)) }
    }

    /// Deciphers whole sectors from one place to another. Those of zeros stay zeros.
    pub fn decrypt(&self, first: u64, from: &[[u8; SECTOR]], to: &mut [[u8; SECTOR]]) {
        // SAFETY: as in `encrypt`.
        unsafe { self.carry(Way::Decrypt, first, Places::Apart(from, to)) }
    }

    /// The same where they are.
    pub fn encrypt_in_place(&self, first: u64, sectors: &mut [[u8; SECTOR]]) {
        // SAFETY: as in `encrypt`.
        unsafe { self.carry(Way::Encrypt, first, Places::Same(sectors)) }
    }

    pub fn decrypt_in_place(&self, first: u64, sectors: &mut [[u8; SECTOR]]) {
        // SAFETY: as in `encrypt`.
        unsafe { self.carry(Way::Decrypt, first, Places::Same(sectors)) }
    }

    #[target_feature(enable = "avx512f,avx512bw,vaes,aes")]
    fn carry(&self, way: Way, first: u64, mut places: Places<'_>) {
        let tweak_keys = wide(&self.tweak);
        let mut begins = [0; AT_ONCE];
        let keys = wide(if way == Way::Encrypt { &self.encrypt } else { &self.decrypt });
        for at in 0..places.count() {
            if at % AT_ONCE == 0 {
                begins = begin(&tweak_keys, first.wrapping_add(at as u64));
            }
            let mut blocks = load(places.from(at));
            if way == Way::Decrypt && are_zeros(&blocks) {
                store(&blocks, places.to(at));
                continue;
            }
            let tweaks = tweaks(begins[at % AT_ONCE]);
            for (block, tweak) in blocks.iter_mut().zip(&tweaks) {
                *block = _mm512_xor_si512(*block, _mm512_xor_si512(*tweak, keys[0]));
            }
            match way {
                Way::Encrypt => {
                    for key in &keys[1..ROUNDS - 1] {
                        blocks.iter_mut().for_each(|block| *block = _mm512_aesenc_epi128(*block, *key));
                    }
                    blocks.iter_mut().for_each(|block| *block = _mm512_aesenclast_epi128(*block, keys[ROUNDS - 1]));
                }
                Way::Decrypt => {
                    for key in &keys[1..ROUNDS - 1] {
                        blocks.iter_mut().for_each(|block| *block = _mm512_aesdec_epi128(*block, *key));
                    }
                    blocks.iter_mut().for_each(|block| *block = _mm512_aesdeclast_epi128(*block, keys[ROUNDS - 1]));
                }
            }
            for (block, tweak) in blocks.iter_mut().zip(&tweaks) {
                *block = _mm512_xor_si512(*block, *tweak);
            }
            store(&blocks, places.to(at));
        }
    }
}

/// Where sectors are, and where they go.
enum Places<'a> {
    Same(&'a mut [[u8; SECTOR]]),
    Apart(&'a [[u8; SECTOR]], &'a mut [[u8; SECTOR]]),
}

impl Places<'_> {
    fn count(&self) -> usize {
        match self {
            Places::Same(sectors) => sectors.len(),
            Places::Apart(from, to) => from.len().min(to.len()),
        }
    }

    #[inline(always)]
    fn from(&self, at: usize) -> &[u8; SECTOR] {
        match self {
            Places::Same(sectors) => &sectors[at],
            Places::Apart(from, _) => &from[at],
        }
    }

    #[inline(always)]
    fn to(&mut self, at: usize) -> &mut [u8; SECTOR] {
        match self {
            Places::Same(to) | Places::Apart(_, to) => &mut to[at],
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(sector: &[u8; SECTOR]) -> [__m512i; WIDE] {
    let from = sector.as_ptr().cast::<__m512i>();
    // SAFETY: the sector has `WIDE` times 64 bytes, and this load wants no alignment.
    std::array::from_fn(|at| unsafe { _mm512_loadu_si512(from.add(at)) })
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(blocks: &[__m512i; WIDE], sector: &mut [u8; SECTOR]) {
    let to = sector.as_mut_ptr().cast::<__m512i>();
    for (at, block) in blocks.iter().enumerate() {
        // SAFETY: as in `load`.
        unsafe { _mm512_storeu_si512(to.add(at), *block) }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn are_zeros(blocks: &[__m512i; WIDE]) -> bool {
    let mut any = _mm512_setzero_si512();
    for block in blocks {
        any = _mm512_or_si512(any, *block);
    }
    _mm512_test_epi64_mask(any, any) == 0
}

/// With which the first blocks of some sectors are mixed.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn begin(keys: &[__m512i; ROUNDS], first: u64) -> [u128; AT_ONCE] {
    let number = |at: u64| first.wrapping_add(at) as i64;
    let mut blocks = [0, 4].map(|at| {
        let numbers = _mm512_set_epi64(0, number(at + 3), 0, number(at + 2), 0, number(at + 1), 0, number(at));
        _mm512_xor_si512(numbers, keys[0])
    });
    for key in &keys[1..ROUNDS - 1] {
        blocks = blocks.map(|block| _mm512_aesenc_epi128(block, *key));
    }
    blocks = blocks.map(|block| _mm512_aesenclast_epi128(block, keys[ROUNDS - 1]));
    // SAFETY: both are 128 bytes, of which every value is one.
    unsafe { std::mem::transmute::<[__m512i; 2], [u128; AT_ONCE]>(blocks) }
}

/// Those of all blocks of the sector: each is twice the one before, in the field of 2^128 elements.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn tweaks(begin: u128) -> [__m512i; WIDE] {
    let double = |tweak: u128| (tweak << 1) ^ ((tweak >> 127) * 0x87);
    let (one, two) = (double(begin), double(double(begin)));
    let three = double(two);
    let (low, high) = (|tweak: u128| tweak as i64, |tweak: u128| (tweak >> 64) as i64);
    let mut four =
        _mm512_set_epi64(high(three), low(three), high(two), low(two), high(one), low(one), high(begin), low(begin));
    let mut all = [four; WIDE];
    for next in &mut all[1..] {
        // Times 2^4: what leaves the lower half enters the upper one, and what leaves that comes back as 0x87 times itself.
        let left = _mm512_shuffle_epi32::<0x4e>(_mm512_srli_epi64::<60>(four));
        let back = _mm512_xor_si512(_mm512_maskz_slli_epi64::<1>(LOW, left), _mm512_maskz_slli_epi64::<2>(LOW, left));
        let back = _mm512_xor_si512(back, _mm512_maskz_slli_epi64::<7>(LOW, left));
        four = _mm512_xor_si512(_mm512_slli_epi64::<4>(four), _mm512_xor_si512(left, back));
        *next = four;
    }
    all
}

#[inline]
fn narrow(schedule: &Schedule) -> [__m128i; ROUNDS] {
    schedule.map(|[low, high]| as_register(u128::from(low) | u128::from(high) << 64))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn wide(schedule: &Schedule) -> [__m512i; ROUNDS] {
    let narrow = narrow(schedule);
    let mut wide = [_mm512_setzero_si512(); ROUNDS];
    for (to, key) in wide.iter_mut().zip(narrow) {
        *to = _mm512_broadcast_i32x4(key);
    }
    wide
}

#[inline]
fn as_register(number: u128) -> __m128i {
    // SAFETY: both are 16 bytes, of which every value is one.
    unsafe { std::mem::transmute::<u128, __m128i>(number) }
}

#[inline]
fn as_number(register: __m128i) -> u128 {
    // SAFETY: both are 16 bytes, of which every value is one.
    unsafe { std::mem::transmute::<__m128i, u128>(register) }
}

fn kept(register: __m128i) -> [u64; 2] {
    let number = as_number(register);
    [number as u64, (number >> 64) as u64]
}

/// FIPS 197, 5.2: two keys of rounds at a time follow from the two before.
#[target_feature(enable = "aes")]
fn schedule(key: &[u8]) -> Schedule {
    let half = |at: usize| {
        let mut half = [0; 16];
        half.copy_from_slice(&key[at..at + 16]);
        as_register(u128::from_le_bytes(half))
    };
    let (mut even, mut odd) = (half(0), half(16));
    let mut all = [[0; 2]; ROUNDS];
    (all[0], all[1]) = (kept(even), kept(odd));
    macro_rules! even {
        ($at:literal, $constant:literal) => {
            let other = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(odd));
            even = _mm_xor_si128(spread(even), other);
            all[$at] = kept(even);
        };
    }
    macro_rules! pair {
        ($at:literal, $constant:literal) => {
            even!($at, $constant);
            odd = _mm_xor_si128(spread(odd), _mm_shuffle_epi32::<0xaa>(_mm_aeskeygenassist_si128::<0>(even)));
            all[$at + 1] = kept(odd);
        };
    }
    pair!(2, 0x01);
    pair!(4, 0x02);
    pair!(6, 0x04);
    pair!(8, 0x08);
    pair!(10, 0x10);
    pair!(12, 0x20);
    even!(14, 0x40);
    all
}

/// Each word of four bytes, with all words below it.
#[inline]
#[target_feature(enable = "sse2")]
fn spread(key: __m128i) -> __m128i {
    let key = _mm_xor_si128(key, _mm_slli_si128::<4>(key));
    _mm_xor_si128(key, _mm_slli_si128::<8>(key))
}

/// The keys by which the same is deciphered (FIPS 197, 5.3.5).
#[target_feature(enable = "aes")]
fn inverse(encrypt: &Schedule) -> Schedule {
    let keys = narrow(encrypt);
    let mut all = *encrypt;
    all.reverse();
    for (to, key) in all[1..ROUNDS - 1].iter_mut().zip(keys[1..ROUNDS - 1].iter().rev()) {
        *to = kept(_mm_aesimc_si128(*key));
    }
    all
}
