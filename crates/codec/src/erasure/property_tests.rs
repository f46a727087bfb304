//! The code against another library, which is given the same matrix and shares no line with the one in use.

use super::tests::kernels;
use super::*;
use proptest::prelude::*;
use proptest::sample::{Index, subsequence};

/// The code of `code` fragments by the other library.
fn other_code(data: &[Vec<u8>], code: usize) -> Vec<Vec<u8>> {
    let mut made = vec![vec![0; data[0].len()]; code];
    other(data.len(), code).encode_sep(data, &mut made).unwrap();
    made
}

fn other(data: usize, code: usize) -> fec_rs::ReedSolomon {
    let mut other = fec_rs::ReedSolomon::new(data, code).unwrap();
    let matrix: Vec<u8> = (0..code).flat_map(|c| (0..data).map(move |d| coefficient(c, d))).collect();
    other.set_parity_matrix(&matrix).unwrap();
    other
}

/// All fragments of a stripe, data and code, with places of the same length.
#[derive(Clone, Debug)]
struct Stripe {
    data: Vec<Vec<u8>>,
    code: usize,
    kernels: Index,
}

impl Stripe {
    fn coder(&self) -> ReedSolomon {
        let fragments = Fragments { data: self.data.len() as u8, code: self.code as u8 };
        ReedSolomon::with_kernels(fragments, *self.kernels.get(&kernels())).unwrap()
    }

    fn encoded(&self) -> Vec<Vec<u8>> {
        let mut made = vec![vec![0xee; self.data[0].len()]; self.code];
        let data: Vec<&[u8]> = self.data.iter().map(|bytes| &bytes[..]).collect();
        self.coder().encode(&data, &mut made.iter_mut().map(|bytes| &mut bytes[..]).collect::<Vec<_>>()).unwrap();
        made
    }
}

fn stripe() -> impl Strategy<Value = Stripe> {
    (MIN_DATA..=MAX_DATA, 1..=MAX_CODE, 1..=3_usize, any::<Index>()).prop_flat_map(|(data, code, blocks, kernels)| {
        let bytes =
            prop_oneof![9 => prop::collection::vec(any::<u8>(), blocks * 4096), 1 => Just(vec![0; blocks * 4096])];
        prop::collection::vec(bytes, data).prop_map(move |data| Stripe { data, code, kernels })
    })
}

/// A stripe, and in any order the M fragments that are left of it.
fn damaged() -> impl Strategy<Value = (Stripe, Vec<usize>)> {
    stripe().prop_flat_map(|stripe| {
        let (data, count) = (stripe.data.len(), stripe.data.len() + stripe.code);
        (Just(stripe), subsequence((0..count).collect::<Vec<_>>(), data).prop_shuffle())
    })
}

/// A change of one data fragment: which, where, and the new bytes. Most are short, at any place.
fn change() -> impl Strategy<Value = (Index, Index, Vec<u8>)> {
    let length = prop_oneof![1..200_usize, Just(512), Just(4096)];
    (any::<Index>(), any::<Index>(), length.prop_flat_map(|length| prop::collection::vec(any::<u8>(), length)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn encodes_as_the_other_library_does(stripe in stripe()) {
        prop_assert!(stripe.encoded() == other_code(&stripe.data, stripe.code));
    }

    #[test]
    fn decodes_as_the_other_library_does((stripe, left) in damaged()) {
        let all: Vec<Vec<u8>> = stripe.data.iter().cloned().chain(stripe.encoded()).collect();
        let held: Vec<_> = left.iter().map(|number| Fragment { number: *number, bytes: &all[*number][..] }).collect();
        let mut found: Vec<Vec<u8>> = all.iter().map(|bytes| vec![0xee; bytes.len()]).collect();
        let lost = found.iter_mut().enumerate().filter(|(number, _)| !left.contains(number));
        let mut lost: Vec<_> = lost.map(|(number, bytes)| Fragment { number, bytes: &mut bytes[..] }).rev().collect();
        stripe.coder().decode(&held, &mut lost).unwrap();

        let mut others: Vec<Option<Vec<u8>>> = vec![None; all.len()];
        left.iter().for_each(|number| others[*number] = Some(all[*number].clone()));
        other(stripe.data.len(), stripe.code).reconstruct(&mut others).unwrap();
        for number in (0..all.len()).filter(|number| !left.contains(number)) {
            prop_assert!(found[number] == all[number], "fragment {number}");
            prop_assert!(others[number].as_ref() == Some(&all[number]), "fragment {number} by the other library");
        }
    }

    #[test]
    fn small_changes_give_the_code_of_a_new_encode(
        mut stripe in stripe(),
        changes in prop::collection::vec(change(), 1..30),
    ) {
        let (coder, mut code, length) = (stripe.coder(), stripe.encoded(), stripe.data[0].len());
        for (which, place, new) in changes {
            let number = which.index(stripe.data.len());
            let range = place.index(length - new.len() + 1)..;
            let old = &mut stripe.data[number][range.clone()][..new.len()];
            let change: Vec<u8> = old.iter().zip(&new).map(|(old, new)| old ^ new).collect();
            old.copy_from_slice(&new);
            let parts = code.iter_mut().enumerate().map(|(row, bytes)| Fragment {
                number: stripe.data.len() + row,
                bytes: &mut bytes[range.clone()][..new.len()],
            });
            let mut parts: Vec<_> = parts.collect();
            if place.index(2) == 1 {
                coder.update(number, &change, &mut parts).unwrap();
            } else {
                parts.iter_mut().rev().for_each(|part| {
                    coder.update(number, &change, &mut [Fragment { number: part.number, bytes: &mut *part.bytes }]).unwrap()
                });
            }
        }
        prop_assert!(code == other_code(&stripe.data, stripe.code));
    }
}
