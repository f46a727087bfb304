//! A volume's key, enciphered by another key.
//!
//! ```text
//! version  1 byte    1
//! nonce   12 bytes   drawn at random
//! key     64 bytes   enciphered by AES-256-GCM (NIST SP 800-38D)
//! tag     16 bytes   its tag, over the additional data "tepal volume key" and the cluster's id too
//! ```
//!
//! The wrapping key is derived from the secret that its file has, by HKDF (RFC 5869) with SHA-256. A passphrase becomes such a secret by
//! PBKDF2 (RFC 8018) first. Cluster's id and key's name are the salt, so the same passphrase gives other keys elsewhere.

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use ring::{hkdf, pbkdf2};
use std::num::NonZeroU32;
use tepal_codec::xts::{KEY, SectorCipher};
use tepal_model::ClusterId;
use zeroize::Zeroizing;

const VERSION: u8 = 1;
const USE: &[u8] = b"tepal volume key";
/// As OWASP recommends for PBKDF2 with SHA-256.
const ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).expect("it's not 0");
/// Bytes of a secret.
pub const SECRET: usize = 32;

/// Why a wrapped key can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnwrapError {
    /// It was wrapped by another secret, or bits of it have changed.
    #[error("it isn't the key by which the volume's was wrapped: put that one in its place")]
    AnotherKey,
    /// A later build has wrapped it.
    #[error("the volume's key is wrapped in a form that this build doesn't know")]
    Form,
}

/// A key that wraps the keys of volumes. Whatever it was made of isn't kept.
#[derive(Clone)]
pub struct WrappingKey {
    key: LessSafeKey,
    cluster: ClusterId,
}

/// A volume's own key, wiped when it's dropped.
pub struct VolumeKey(Zeroizing<[u8; KEY]>);

impl VolumeKey {
    /// A new one.
    pub fn draw() -> Self {
        let mut key = Zeroizing::new([0; KEY]);
        fill(&mut *key);
        VolumeKey(key)
    }

    pub fn cipher(&self) -> SectorCipher {
        SectorCipher::new(&self.0).expect("halves that were drawn apart differ")
    }
}

/// Random bytes, of the system's.
pub fn fill(bytes: &mut [u8]) {
    SystemRandom::new().fill(bytes).expect("the system has random bytes");
}

impl WrappingKey {
    /// Of a secret that was drawn at random.
    pub fn of_secret(secret: &[u8; SECRET], cluster: ClusterId) -> Self {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, &cluster.0.to_be_bytes());
        let derived = salt.extract(secret);
        let derived = derived.expand(&[USE], &AES_256_GCM).expect("AES has short keys");
        WrappingKey { key: LessSafeKey::new(UnboundKey::from(derived)), cluster }
    }

    /// Of words that people remember. This takes a good part of a second, so that nobody tries many.
    pub fn of_passphrase(passphrase: &[u8], name: &str, cluster: ClusterId) -> Self {
        let salt = [&cluster.0.to_be_bytes()[..], name.as_bytes()].concat();
        let mut secret = Zeroizing::new([0; SECRET]);
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, ITERATIONS, &salt, passphrase, &mut *secret);
        WrappingKey::of_secret(&secret, cluster)
    }

    fn associated(&self) -> Aad<Vec<u8>> {
        Aad::from([USE, &self.cluster.0.to_be_bytes()[..]].concat())
    }

    /// In hexadecimal digits. Of the same key, other ones each time.
    pub fn wrap(&self, key: &VolumeKey) -> String {
        let mut nonce = [0; NONCE_LEN];
        fill(&mut nonce);
        let mut bytes = Zeroizing::new(key.0.to_vec());
        let tag = self
            .key
            .seal_in_place_separate_tag(Nonce::assume_unique_for_key(nonce), self.associated(), &mut bytes)
            .expect("a key isn't too long for the cipher");
        let whole = [&[VERSION][..], &nonce, &bytes, tag.as_ref()].concat();
        whole.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub fn unwrap(&self, wrapped: &str) -> Result<VolumeKey, UnwrapError> {
        let bytes = from_hex(wrapped).ok_or(UnwrapError::Form)?;
        let (version, rest) = bytes.split_first().ok_or(UnwrapError::Form)?;
        let (nonce, sealed) = rest.split_at_checked(NONCE_LEN).ok_or(UnwrapError::Form)?;
        if *version != VERSION {
            return Err(UnwrapError::Form);
        }
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| UnwrapError::Form)?;
        let mut sealed = Zeroizing::new(sealed.to_vec());
        let opened = self.key.open_in_place(nonce, self.associated(), &mut sealed);
        let opened = opened.map_err(|_| UnwrapError::AnotherKey)?;
        let mut key = Zeroizing::new([0; KEY]);
        if opened.len() != KEY {
            return Err(UnwrapError::Form);
        }
        key.copy_from_slice(opened);
        Ok(VolumeKey(key))
    }
}

/// `None` if something isn't a digit, or one is missing.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        &[high, low] => Some(digit(high)? << 4 | digit(low)?),
        _ => None,
    };
    text.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ClusterId = ClusterId(7);

    #[test]
    fn a_wrapped_key_opens_by_its_own_key_alone() {
        let own = WrappingKey::of_secret(&[1; SECRET], CLUSTER);
        let key = VolumeKey::draw();
        let (one, other) = (own.wrap(&key), own.wrap(&key));
        assert_ne!(one, other);
        assert_eq!((one.len(), *own.unwrap(&one).ok().unwrap().0), (186, *key.0));
        for stranger in [
            WrappingKey::of_secret(&[2; SECRET], CLUSTER),
            WrappingKey::of_secret(&[1; SECRET], ClusterId(8)),
            WrappingKey::of_passphrase(&[1; SECRET], "main", CLUSTER),
        ] {
            assert_eq!(stranger.unwrap(&one).err(), Some(UnwrapError::AnotherKey));
        }
    }

    proptest::proptest! {
        #[test]
        fn hostile_text_opens_nothing(text: String, bytes: Vec<u8>) {
            let own = WrappingKey::of_secret(&[1; SECRET], CLUSTER);
            let digits: String = [VERSION].iter().chain(&bytes).map(|byte| format!("{byte:02x}")).collect();
            proptest::prop_assert!(own.unwrap(&text).is_err() && own.unwrap(&digits).is_err());
        }
    }

    #[test]
    fn a_changed_digit_or_length_is_noticed() {
        let own = WrappingKey::of_secret(&[1; SECRET], CLUSTER);
        let wrapped = own.wrap(&VolumeKey::draw());
        for at in 0..wrapped.len() {
            let mut changed = wrapped.clone().into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            assert!(own.unwrap(&String::from_utf8(changed).unwrap()).is_err(), "digit {at}");
            assert!(own.unwrap(&wrapped[..at]).is_err(), "{at} digits");
        }
        assert_eq!(own.unwrap("02").err(), Some(UnwrapError::Form));
        assert_eq!(own.unwrap("xx").err(), Some(UnwrapError::Form));
    }

    #[test]
    fn a_passphrase_gives_another_key_under_another_name() {
        let [one, again, other] =
            ["a", "a", "b"].map(|name| WrappingKey::of_passphrase(b"four words are better", name, CLUSTER));
        let wrapped = one.wrap(&VolumeKey::draw());
        assert!(again.unwrap(&wrapped).is_ok() && other.unwrap(&wrapped).is_err());
    }
}
