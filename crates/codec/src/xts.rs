//! XTS-AES-256 (IEEE 1619-2018), by which the sectors of encrypted volumes are enciphered. Which key a volume has, and why this mode:
//! [decision 0017](https://github.com/tepal/tepal/blob/main/docs/decisions/0017-encryption-at-rest.md).
//!
//! Invariants:
//! 1. A sector's ciphertext depends on the key, the sector's number and its plaintext alone, and is as long as the plaintext.
//! 2. A sector of zeros counts as one that was never written: it deciphers to zeros. No plaintext is enciphered to it, but for one of
//!    2^4096.

#[cfg(target_arch = "x86_64")]
mod wide;

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};

/// Bytes of a sector, each of which is enciphered by itself.
pub const SECTOR: usize = 512;
/// Bytes of a key: one half for the data, one for the sectors' numbers.
pub const KEY: usize = 64;

/// The blocks of the cipher in a sector.
const BLOCKS: usize = SECTOR / 16;
/// So many sectors go through the processor's pipeline at once: twice as fast as one after the other.
const AT_ONCE: usize = 8;

/// Enciphers and deciphers the sectors of one volume. Its keys are wiped from memory when it's dropped.
pub struct SectorCipher {
    way: Way,
}

/// By which instructions.
enum Way {
    #[cfg(target_arch = "x86_64")]
    Wide(Box<wide::WideCipher>),
    /// By those that the library finds.
    Library { data: Box<Aes256>, tweak: Box<Aes256> },
}

/// The halves of a key are the same, which IEEE 1619 forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the halves of the key are the same")]
pub struct WeakKey;

impl SectorCipher {
    /// By this key, of which both halves were drawn at random.
    pub fn new(key: &[u8; KEY]) -> Result<Self, WeakKey> {
        let (data, tweak) = key.split_at(KEY / 2);
        if data == tweak {
            return Err(WeakKey);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(cipher) = wide::WideCipher::new(key) {
            return Ok(SectorCipher { way: Way::Wide(Box::new(cipher)) });
        }
        Ok(SectorCipher { way: of_library(key) })
    }

    /// Enciphers whole sectors, of which the first has this number.
    ///
    /// # Panics
    /// If the last sector isn't whole.
    pub fn encrypt(&self, first: u64, data: &mut [u8]) {
        let (cipher, tweak) = match &self.way {
            #[cfg(target_arch = "x86_64")]
            Way::Wide(cipher) => return cipher.encrypt_in_place(first, sectors_mut(data)),
            Way::Library { data, tweak } => (data, tweak),
        };
        for (number, some) in (first..).step_by(AT_ONCE).zip(blocks(data).chunks_mut(AT_ONCE * BLOCKS)) {
            mixed(tweak, number, some, |blocks| cipher.encrypt_blocks(blocks));
        }
    }

    /// The same from one place to another.
    ///
    /// # Panics
    /// If the last sector isn't whole, or the places differ in length.
    pub fn encrypt_to(&self, first: u64, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "what is enciphered is as long as before");
        match &self.way {
            #[cfg(target_arch = "x86_64")]
            Way::Wide(cipher) => cipher.encrypt(first, sectors(from), sectors_mut(to)),
            Way::Library { .. } => {
                to.copy_from_slice(from);
                self.encrypt(first, to);
            }
        }
    }

    /// Deciphers whole sectors, of which the first has this number. Those of zeros stay zeros.
    ///
    /// # Panics
    /// If the last sector isn't whole.
    pub fn decrypt(&self, first: u64, data: &mut [u8]) {
        let (cipher, tweak) = match &self.way {
            #[cfg(target_arch = "x86_64")]
            Way::Wide(cipher) => return cipher.decrypt_in_place(first, sectors_mut(data)),
            Way::Library { data, tweak } => (data, tweak),
        };
        for (number, some) in (first..).step_by(AT_ONCE).zip(blocks(data).chunks_mut(AT_ONCE * BLOCKS)) {
            if !some.chunks(BLOCKS).any(was_never_written) {
                mixed(tweak, number, some, |blocks| cipher.decrypt_blocks(blocks));
                continue;
            }
            for (number, sector) in (number..).zip(some.chunks_mut(BLOCKS)) {
                if !was_never_written(sector) {
                    mixed(tweak, number, sector, |blocks| cipher.decrypt_blocks(blocks));
                }
            }
        }
    }

    /// The same from one place to another.
    ///
    /// # Panics
    /// If the last sector isn't whole, or the places differ in length.
    pub fn decrypt_to(&self, first: u64, from: &[u8], to: &mut [u8]) {
        assert_eq!(from.len(), to.len(), "what is deciphered is as long as before");
        match &self.way {
            #[cfg(target_arch = "x86_64")]
            Way::Wide(cipher) => cipher.decrypt(first, sectors(from), sectors_mut(to)),
            Way::Library { .. } => {
                to.copy_from_slice(from);
                self.decrypt(first, to);
            }
        }
    }
}

fn of_library(key: &[u8; KEY]) -> Way {
    let (data, tweak) = key.split_at(KEY / 2);
    let half = |half: &[u8]| Box::new(Aes256::new_from_slice(half).expect("half of a key has 32 bytes"));
    Way::Library { data: half(data), tweak: half(tweak) }
}

/// Mixes some sectors with their tweaks before and after the cipher.
fn mixed(tweak: &Aes256, first: u64, sectors: &mut [Block], cipher: impl FnOnce(&mut [Block])) {
    let count = sectors.len() / BLOCKS;
    let number = |at: usize| u128::from(first.wrapping_add(at as u64));
    let mut begins: [Block; AT_ONCE] = std::array::from_fn(|at| Array(number(at).to_le_bytes()));
    tweak.encrypt_blocks(&mut begins[..count]);
    let mut tweaks = [[0; BLOCKS]; AT_ONCE];
    tweaks.iter_mut().zip(&begins[..count]).for_each(|(tweaks, begin)| *tweaks = tweaks_of(begin));
    sectors.chunks_mut(BLOCKS).zip(&tweaks).for_each(|(sector, tweaks)| apply(sector, tweaks));
    cipher(sectors);
    sectors.chunks_mut(BLOCKS).zip(&tweaks).for_each(|(sector, tweaks)| apply(sector, tweaks));
}

/// What the blocks of a sector are mixed with: each is twice the one before, in the field of 2^128 elements.
fn tweaks_of(begin: &Block) -> [u128; BLOCKS] {
    let mut tweak = u128::from_le_bytes(begin.0);
    std::array::from_fn(|_| {
        let own = tweak;
        tweak = (tweak << 1) ^ ((tweak >> 127) * 0x87);
        own
    })
}

fn was_never_written(sector: &[Block]) -> bool {
    sector.iter().all(|block| u128::from_ne_bytes(block.0) == 0)
}

fn blocks(data: &mut [u8]) -> &mut [Block] {
    assert!(data.len().is_multiple_of(SECTOR), "a sector isn't whole");
    Array::slice_as_chunks_mut(data).0
}

#[cfg(target_arch = "x86_64")]
fn sectors(data: &[u8]) -> &[[u8; SECTOR]] {
    let (sectors, rest) = data.as_chunks();
    assert!(rest.is_empty(), "a sector isn't whole");
    sectors
}

#[cfg(target_arch = "x86_64")]
fn sectors_mut(data: &mut [u8]) -> &mut [[u8; SECTOR]] {
    let (sectors, rest) = data.as_chunks_mut();
    assert!(rest.is_empty(), "a sector isn't whole");
    sectors
}

fn apply(sector: &mut [Block], tweaks: &[u128; BLOCKS]) {
    for (block, tweak) in sector.iter_mut().zip(tweaks) {
        block.0 = (u128::from_le_bytes(block.0) ^ tweak).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use xts_mode::Xts128;

    fn key(seed: u8) -> [u8; KEY] {
        std::array::from_fn(|at| (at as u8).wrapping_mul(31).wrapping_add(seed))
    }

    /// By each way that this processor has.
    fn ciphers(key: &[u8; KEY]) -> [SectorCipher; 2] {
        [SectorCipher::new(key).unwrap(), SectorCipher { way: of_library(key) }]
    }

    /// IEEE 1619-2018, annex B, vector 10: XTS-AES-256 of the sector 0xff.
    #[test]
    fn the_standards_own_sector_is_enciphered_as_it_says() {
        let hex = |text: &str| -> Vec<u8> {
            (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..][..2], 16).unwrap()).collect()
        };
        let halves = "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502\
             88419716939937510582097494459230781640628620899862803482534211706798";
        let key = hex(&halves.replace(char::is_whitespace, ""));
        let begins = "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b5d31e276f8fe4a8d66b317f9ac683f44";
        let plain: Vec<u8> = (0..SECTOR).map(|at| at as u8).collect();
        for cipher in ciphers(&key[..KEY].try_into().unwrap()) {
            let mut data = plain.clone();
            cipher.encrypt(0xff, &mut data);
            assert_eq!(data[..48], hex(begins));
            cipher.decrypt(0xff, &mut data);
            assert_eq!(data, plain);
        }
    }

    #[test]
    fn a_key_of_two_equal_halves_is_refused() {
        assert!(SectorCipher::new(&[7; KEY]).is_err());
    }

    #[test]
    fn sectors_never_written_read_as_zeros_between_others() {
        for cipher in ciphers(&key(1)) {
            let mut data = vec![0; 3 * SECTOR];
            cipher.encrypt(8, &mut data[..SECTOR]);
            cipher.encrypt(10, &mut data[2 * SECTOR..]);
            assert!(data[..SECTOR] != data[2 * SECTOR..] && data[..SECTOR].iter().any(|byte| *byte != 0));
            let mut elsewhere = vec![7; 3 * SECTOR];
            cipher.decrypt_to(8, &data, &mut elsewhere);
            cipher.decrypt(8, &mut data);
            assert_eq!((&data, &elsewhere), (&vec![0; 3 * SECTOR], &vec![0; 3 * SECTOR]));
        }
    }

    proptest! {
        #[test]
        fn it_is_what_another_library_makes_and_comes_back(
            seed: u8, first in any::<u64>().prop_map(|first| first >> 1), count in 1usize..20, fill: u8,
        ) {
            let key = key(seed);
            let (data, tweak) = key.split_at(KEY / 2);
            let half = |half: &[u8]| Aes256::new_from_slice(half).unwrap();
            let other = Xts128::new(half(data), half(tweak));
            let plain: Vec<u8> = (0..count * SECTOR).map(|at| (at as u8).wrapping_mul(fill | 1)).collect();
            let mut others = plain.clone();
            other.encrypt_area(&mut others, SECTOR, first.into(), xts_mode::get_tweak_default);
            for cipher in ciphers(&key) {
                let (mut own, mut elsewhere) = (plain.clone(), vec![0; plain.len()]);
                cipher.encrypt(first, &mut own);
                cipher.encrypt_to(first, &plain, &mut elsewhere);
                prop_assert_eq!(&own, &others);
                prop_assert_eq!(&elsewhere, &others);
                cipher.decrypt(first, &mut own);
                prop_assert_eq!(&own, &plain);
                cipher.decrypt_to(first, &others, &mut elsewhere);
                prop_assert_eq!(&elsewhere, &plain);
            }
        }
    }
}
