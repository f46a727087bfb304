//! The bytes that a code makes, by hand and by law, for every size that is allowed and with every set of kernels that the processor has.

use super::*;
use crate::checksum::crc;
use rusty_erasure::kernel::Kernels;

const LENGTH: usize = BLOCK as usize;

/// Every size that is allowed.
pub(super) fn sizes() -> impl Iterator<Item = Fragments> {
    (1..=MAX_CODE as u8).flat_map(|code| (MIN_DATA as u8..=MAX_DATA as u8).map(move |data| Fragments { data, code }))
}

/// The sets of kernels that this processor has: one by tables in plain code, the others with its vector instructions.
pub(super) fn kernels() -> Vec<Kernels> {
    ["scalar", "ssse3", "avx2", "gfni", "neon"].into_iter().filter_map(rusty_erasure::kernels_named).collect()
}

fn code_of(code: &ReedSolomon, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut made = vec![vec![0xee; data[0].len()]; code.fragments().code.into()];
    let data: Vec<&[u8]> = data.iter().map(|bytes| &bytes[..]).collect();
    let mut places: Vec<&mut [u8]> = made.iter_mut().map(|bytes| &mut bytes[..]).collect();
    code.encode(&data, &mut places).unwrap();
    made
}

/// Fragments of one block, each byte of which can be told in one line: docs/formats.md.
fn told(count: u8) -> Vec<Vec<u8>> {
    (0..usize::from(count)).map(|j| (0..LENGTH).map(|b| (b * (2 * j + 3) + 7 * j * j + 1) as u8).collect()).collect()
}

/// Fragments of one block that have no pattern.
fn noise(count: u8) -> Vec<Vec<u8>> {
    let mut state = 0x0123_4567_89ab_cdef_u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| (0..LENGTH).map(|_| byte()).collect()).collect()
}

/// Golden bytes: the beginnings of the code of 4+4, from a program of another language.
const BEGINNINGS: [[u8; 8]; MAX_CODE] = [
    [0x54, 0x64, 0x6c, 0x74, 0x4c, 0x1c, 0x04, 0x0c],
    [0x5f, 0xfc, 0x25, 0x0e, 0xd6, 0x00, 0xc9, 0xba],
    [0x21, 0xfd, 0xfc, 0x12, 0xf2, 0xa2, 0x43, 0x98],
    [0x74, 0x48, 0x50, 0x8c, 0xd6, 0xe2, 0x00, 0xe0],
];

/// Golden bytes: the CRC-32C of each code fragment, by the number of data fragments, from the same program.
const CRCS: [(u8, [u32; MAX_CODE]); 15] = [
    (2, [0x3b81_9203, 0xe296_69fa, 0x83c5_c997, 0x0142_3dd4]),
    (3, [0x6262_bfa1, 0xff07_0f8c, 0x7d10_9a3d, 0x56ca_7597]),
    (4, [0x384e_5f1f, 0x8a10_1ba5, 0x1cb3_dfb6, 0xa1a9_fe24]),
    (5, [0xe8c2_be92, 0xfdcb_53ed, 0x12df_0cba, 0x8996_2665]),
    (6, [0xcdf0_89c5, 0x7c42_9516, 0xced2_dbc7, 0xe399_f28e]),
    (7, [0x46c4_3e29, 0xa2a3_392a, 0x1b2b_ed95, 0x2cae_d383]),
    (8, [0xeeb9_c7c0, 0xa338_473b, 0xf478_aed4, 0xf3e0_9a6d]),
    (9, [0xb4f3_d412, 0x3b66_ee1f, 0x6006_ad6e, 0x1052_92f7]),
    (10, [0xd063_cabc, 0x2a34_4e18, 0x33c1_63b3, 0x7fb5_492f]),
    (11, [0xc2f4_cac9, 0xe1b6_50c1, 0xe140_56ef, 0x3aa0_14ee]),
    (12, [0xc43f_a302, 0x182b_6ec1, 0x2fc9_3afd, 0xebda_6368]),
    (13, [0x7327_2cff, 0x511f_d7a6, 0xd576_db27, 0x8f98_f9b2]),
    (14, [0x0f74_ab0b, 0xdc25_ab7f, 0xad34_587a, 0xec60_022b]),
    (15, [0x3419_93eb, 0x70ba_0399, 0x4524_901f, 0xa6ac_41b7]),
    (16, [0x98a4_c9bd, 0x70e3_aa55, 0x9e44_0742, 0xcae6_ad5a]),
];

#[test]
fn the_code_has_the_golden_bytes() {
    for kernels in kernels() {
        let four = ReedSolomon::with_kernels(Fragments { data: 4, code: 4 }, kernels).unwrap();
        for (made, beginning) in code_of(&four, &told(4)).iter().zip(&BEGINNINGS) {
            assert_eq!(&made[..8], beginning, "{}", kernels.name);
        }
        for Fragments { data, code } in sizes() {
            let golden = CRCS.iter().find(|(count, _)| *count == data).unwrap().1;
            let any = ReedSolomon::with_kernels(Fragments { data, code }, kernels).unwrap();
            let made: Vec<u32> = code_of(&any, &told(data)).iter().map(|bytes| crc(bytes)).collect();
            assert_eq!(made, golden[..usize::from(code)], "{data}+{code} with {}", kernels.name);
        }
    }
}

#[test]
fn the_first_code_fragment_is_the_xor_of_the_data() {
    for fragments in sizes() {
        let data = noise(fragments.data);
        let xor: Vec<u8> = (0..LENGTH).map(|b| data.iter().fold(0, |sum, bytes| sum ^ bytes[b])).collect();
        assert!(code_of(&ReedSolomon::new(fragments).unwrap(), &data)[0] == xor, "{fragments:?}");
    }
}

#[test]
fn zeros_as_data_and_more_code_change_no_code() {
    let data = noise(MAX_DATA as u8);
    let widest = Fragments { data: MAX_DATA as u8, code: MAX_CODE as u8 };
    for fragments in sizes() {
        let narrow = &data[..fragments.data.into()];
        let mut padded = narrow.to_vec();
        padded.resize(MAX_DATA, vec![0; LENGTH]);
        let wide = code_of(&ReedSolomon::new(widest).unwrap(), &padded);
        assert!(
            code_of(&ReedSolomon::new(fragments).unwrap(), narrow) == wide[..fragments.code.into()],
            "{fragments:?}"
        );
    }
}

#[test]
fn any_m_fragments_give_back_all_others() {
    for kernels in kernels() {
        for fragments in sizes() {
            let code = ReedSolomon::with_kernels(fragments, kernels).unwrap();
            let data = noise(fragments.data);
            let made = code_of(&code, &data);
            let all: Vec<Vec<u8>> = data.into_iter().chain(made).collect();
            let losses = (0..1_u32 << all.len()).filter(|lost| lost.count_ones() == fragments.code.into());
            losses.for_each(|lost| check_loss(&code, &all, lost));
        }
    }
}

/// Those of which `lost` has the bit come back from the others: all at once, and each alone.
fn check_loss(code: &ReedSolomon, all: &[Vec<u8>], lost: u32) {
    let is_lost = |number: usize| lost >> number & 1 == 1;
    let numbers = || 0..all.len();
    let held = || numbers().filter(|n| !is_lost(*n)).map(|number| Fragment { number, bytes: &all[number][..] });
    let held: Vec<Fragment<&[u8]>> = held().collect();
    let mut found = vec![vec![0xee; LENGTH]; all.len()];
    let mut places: Vec<Fragment<&mut [u8]>> = found
        .iter_mut()
        .enumerate()
        .filter(|(number, _)| is_lost(*number))
        .map(|(number, bytes)| Fragment { number, bytes: &mut bytes[..] })
        .collect();
    code.decode(&held, &mut places).unwrap();
    for (number, bytes) in found.iter_mut().enumerate().filter(|(number, _)| is_lost(*number)) {
        assert!(*bytes == all[number], "{number} of {lost:b} of {:?}", code.fragments());
        bytes.fill(0xee);
        code.decode(&held, &mut [Fragment { number, bytes: &mut bytes[..] }]).unwrap();
        assert!(*bytes == all[number], "{number} alone of {lost:b} of {:?}", code.fragments());
    }
}

#[test]
fn other_sizes_are_refused() {
    for (data, code) in [(0, 1), (1, 1), (17, 1), (255, 4), (4, 0), (4, 5), (2, 255)] {
        let refused = ReedSolomon::new(Fragments { data, code }).unwrap_err();
        assert_eq!(refused, ErasureError::Fragments { data, code });
    }
}

#[test]
fn encoding_refuses_what_is_not_a_stripe() {
    let code = ReedSolomon::new(Fragments { data: 3, code: 2 }).unwrap();
    let (full, short, ragged) = (&[0; 2 * LENGTH][..], &[0; LENGTH][..], &[0; 2 * LENGTH - 512][..]);
    let encode = |data: &[&[u8]], lengths: &[usize]| {
        let mut made: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
        code.encode(data, &mut made.iter_mut().map(|bytes| &mut bytes[..]).collect::<Vec<_>>())
    };
    let two = [2 * LENGTH; 2];
    assert_eq!(encode(&[full; 3], &two), Ok(()));
    assert_eq!(encode(&[full; 2], &two), Err(ErasureError::DataCount { given: 2, wanted: 3 }));
    assert_eq!(encode(&[full; 3], &two[..1]), Err(ErasureError::CodeCount { given: 1, wanted: 2 }));
    let differs = |number| Err(ErasureError::Length { number, length: LENGTH, wanted: 2 * LENGTH });
    assert_eq!(encode(&[full, full, short], &two), differs(2));
    assert_eq!(encode(&[full; 3], &[2 * LENGTH, LENGTH]), differs(4));
    assert_eq!(encode(&[ragged; 3], &[ragged.len(); 2]), Err(ErasureError::Ragged { length: ragged.len() }));
}

#[test]
fn decoding_refuses_any_but_m_different_fragments() {
    let code = ReedSolomon::new(Fragments { data: 3, code: 2 }).unwrap();
    let (full, short) = (vec![0; 2 * LENGTH], vec![0; LENGTH]);
    let decode = |held: &[usize], lost: &[usize]| {
        let held: Vec<_> =
            held.iter().map(|n| Fragment { number: *n, bytes: if *n == 2 { &short[..] } else { &full } }).collect();
        let mut found = vec![vec![0; 2 * LENGTH]; lost.len()];
        let lost = found.iter_mut().zip(lost).map(|(bytes, n)| Fragment { number: *n, bytes: &mut bytes[..] });
        code.decode(&held, &mut lost.collect::<Vec<_>>())
    };
    assert_eq!(decode(&[4, 0, 1], &[3, 2]), Ok(()));
    assert_eq!(decode(&[4, 0, 1], &[]), Ok(()));
    assert_eq!(decode(&[0, 1], &[3]), Err(ErasureError::HeldCount { given: 2, wanted: 3 }));
    assert_eq!(decode(&[0, 1, 3, 4], &[2]), Err(ErasureError::HeldCount { given: 4, wanted: 3 }));
    assert_eq!(decode(&[0, 1, 1], &[3]), Err(ErasureError::Twice { number: 1 }));
    assert_eq!(decode(&[0, 1, 3], &[3]), Err(ErasureError::Twice { number: 3 }));
    assert_eq!(decode(&[0, 1, 3], &[2, 2]), Err(ErasureError::Twice { number: 2 }));
    assert_eq!(decode(&[0, 1, 3], &[5]), Err(ErasureError::Number { number: 5, data: 3, code: 2 }));
    assert_eq!(decode(&[0, 1, usize::MAX], &[2]), Err(ErasureError::Number { number: usize::MAX, data: 3, code: 2 }));
    assert_eq!(decode(&[0, 1, 2], &[3]), Err(ErasureError::Length { number: 2, length: LENGTH, wanted: 2 * LENGTH }));
}

#[test]
fn a_change_that_names_no_code_fragment_changes_nothing() {
    let code = ReedSolomon::new(Fragments { data: 3, code: 2 }).unwrap();
    let update = |data: usize, numbers: &[usize], length: usize| {
        let mut made = vec![vec![7; length]; numbers.len()];
        let places = made.iter_mut().zip(numbers).map(|(bytes, n)| Fragment { number: *n, bytes: &mut bytes[..] });
        let outcome = code.update(data, &[1; 512], &mut places.collect::<Vec<_>>());
        outcome.inspect_err(|_| assert!(made.concat().iter().all(|byte| *byte == 7)))
    };
    assert_eq!(update(2, &[4], 512), Ok(()));
    assert_eq!(update(2, &[], 512), Ok(()));
    assert_eq!(update(3, &[4], 512), Err(ErasureError::Number { number: 3, data: 3, code: 2 }));
    assert_eq!(update(2, &[3, 1], 512), Err(ErasureError::Number { number: 1, data: 3, code: 2 }));
    assert_eq!(update(2, &[3, 5], 512), Err(ErasureError::Number { number: 5, data: 3, code: 2 }));
    assert_eq!(update(2, &[4, 4], 512), Err(ErasureError::Twice { number: 4 }));
    assert_eq!(update(2, &[3, 4], 4096), Err(ErasureError::Length { number: 3, length: 4096, wanted: 512 }));
}
