//! Cross checksums (Gong 1989; Ursa Minor, section 3.2.3): the digests of all fragments of a block go along with each of them, so that a
//! fragment that a drive has changed is told from the others.
//!
//! Digests are BLAKE3, without a key: the content of fragments isn't secret from the drives that have them, and nobody can find
//! another content of the same digest.

use tepal_model::Digest;

/// The digest of a fragment.
pub fn digest(fragment: &[u8]) -> Digest {
    *blake3::hash(fragment).as_bytes()
}

/// The digest of some digests, in order: what the version of a block names. `first` is the block, so that a fragment of another block
/// isn't taken for one of this block.
pub fn cross(first: u64, digests: &[Digest]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&first.to_le_bytes());
    digests.iter().for_each(|digest| {
        hasher.update(digest);
    });
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_blake3() {
        let of_nothing = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        let digits: String = digest(b"").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digits, of_nothing, "the test vector of the BLAKE3 paper's repository");
    }

    #[test]
    fn another_fragment_order_or_block_has_another_cross_checksum() {
        let [one, other] = [digest(b"one"), digest(b"other")];
        let all = [cross(1, &[one, other]), cross(1, &[other, one]), cross(2, &[one, other]), cross(1, &[one])];
        for (at, first) in all.iter().enumerate() {
            assert!(all[at + 1..].iter().all(|second| second != first));
        }
    }
}
