//! Encrypted volumes: bytes are enciphered before they are dealt out to columns, and deciphered after they were put together. So drives,
//! logs, code fragments and other servers have ciphertext only, and nothing below this module knows of it.
//!
//! Invariant: without the volume's key, no byte of an encrypted volume is read or written by this server as if it were plaintext.

use super::Volume;
use bytes::Bytes;
use std::sync::OnceLock;
use tepal_codec::xts::{SECTOR, SectorCipher};
use tepal_drive::world::World;
use tepal_model::{Buffer, Epoch, IoError, Segments};

/// Whether a volume is encrypted, and by what.
pub(super) enum Secrecy {
    Plain,
    /// Empty until the key is known here.
    Encrypted(OnceLock<Box<SectorCipher>>),
}

impl Secrecy {
    pub fn new(is_encrypted: bool) -> Self {
        if is_encrypted { Secrecy::Encrypted(OnceLock::new()) } else { Secrecy::Plain }
    }

    /// `None` if it's not encrypted.
    fn cipher(&self) -> Result<Option<&SectorCipher>, IoError> {
        match self {
            Secrecy::Plain => Ok(None),
            Secrecy::Encrypted(cipher) => cipher.get().map(|cipher| Some(&**cipher)).ok_or_else(|| {
                IoError::Unavailable { reason: "the volume is encrypted, and its key isn't known here".to_owned() }
            }),
        }
    }
}

impl<W: World> Volume<W> {
    /// Whether clients' bytes are enciphered.
    pub fn is_encrypted(&self) -> bool {
        matches!(self.shared.secrecy, Secrecy::Encrypted(_))
    }

    /// Whether the volume is encrypted, and can't be read or written here before [`Volume::unlock`].
    pub fn is_locked(&self) -> bool {
        self.shared.secrecy.cipher().is_err()
    }

    /// Reads and writes of an encrypted volume go by this cipher from now on, unless they go by one already: a volume's key never changes.
    pub fn unlock(&self, cipher: SectorCipher) {
        if let Secrecy::Encrypted(known) = &self.shared.secrecy {
            let _ = known.set(Box::new(cipher));
        }
    }

    /// The smallest piece that can be written or zeroed, in bytes: pieces begin and end at multiples of it.
    pub fn least_write(&self) -> u64 {
        if self.is_encrypted() { SECTOR as u64 } else { 1 }
    }

    pub(super) fn check_written(&self, offset: u64, length: u64) -> Result<(), IoError> {
        let multiple = self.least_write();
        if offset.is_multiple_of(multiple) && length.is_multiple_of(multiple) {
            return Ok(());
        }
        Err(IoError::Unaligned { multiple })
    }

    /// What's stored for data that is written at an offset.
    pub(super) fn enciphered(&self, offset: u64, data: Bytes) -> Result<Bytes, IoError> {
        let Some(cipher) = self.shared.secrecy.cipher()? else { return Ok(data) };
        self.check_written(offset, data.len() as u64)?;
        let mut buffer = Buffer::take(data.len());
        cipher.encrypt_to(offset / SECTOR as u64, &data, &mut buffer);
        Ok(buffer.freeze())
    }

    /// Bytes of a snapshot, or of the volume as it is now.
    pub(super) async fn read_at(&self, offset: u64, length: u64, at: Option<Epoch>) -> Result<Segments, IoError> {
        let cipher = self.shared.secrecy.cipher()?;
        // Of an encrypted volume, whole sectors; its size is one of them.
        let multiple = self.least_write();
        let first = offset / multiple * multiple;
        let end = (offset + length).next_multiple_of(multiple);
        let stored = self.read_stored(first, end - first, at).await?;
        Ok(match cipher {
            None => stored,
            Some(cipher) => {
                let mut buffer = Buffer::take((end - first) as usize);
                decipher(cipher, first / SECTOR as u64, stored, &mut buffer);
                let from = (offset - first) as usize;
                Segments::from_iter([buffer.freeze().slice(from..from + length as usize)])
            }
        })
    }

    /// Reads as [`Volume::read`] does, and says only whether that can be done: without the key of an encrypted volume too.
    pub async fn can_read(&self, offset: u64, length: u64) -> Result<(), IoError> {
        self.check_range(offset, length)?;
        self.read_stored(offset, length, None).await.map(drop)
    }
}

/// In one pass over the bytes, where pieces end with sectors.
fn decipher(cipher: &SectorCipher, first: u64, stored: Segments, buffer: &mut [u8]) {
    let (mut at, mut deciphered) = (0, 0);
    for segment in stored {
        let piece = &mut buffer[at..at + segment.len()];
        if at == deciphered && segment.len().is_multiple_of(SECTOR) {
            cipher.decrypt_to(first + (at / SECTOR) as u64, &segment, piece);
            deciphered += segment.len();
        } else {
            piece.copy_from_slice(&segment);
        }
        at += segment.len();
    }
    cipher.decrypt(first + (deciphered / SECTOR) as u64, &mut buffer[deciphered..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_are_deciphered_as_one() {
        let cipher = SectorCipher::new(&std::array::from_fn(|at| at as u8)).expect("a key");
        let plain: Vec<u8> = (0..16 * SECTOR).map(|at| (at / 7) as u8).collect();
        let mut stored = plain.clone();
        cipher.encrypt(40, &mut stored);
        for lengths in [&[16 * SECTOR][..], &[8 * SECTOR, 8 * SECTOR], &[SECTOR, 100, 412, 14 * SECTOR], &[1, 8191]] {
            let (mut rest, mut pieces) = (Bytes::from(stored.clone()), Vec::new());
            lengths.iter().for_each(|&length| pieces.push(rest.split_to(length)));
            let mut buffer = vec![0; plain.len()];
            decipher(&cipher, 40, Segments::from_iter(pieces), &mut buffer);
            assert!(buffer == plain, "{lengths:?}");
        }
    }
}
