//! A drive in memory, for tests. Everything is done at once.

use std::sync::{Mutex, MutexGuard, PoisonError};
use tepal_drive::world::Gather;

#[derive(Debug)]
pub(super) struct Memory {
    bytes: Mutex<Vec<u8>>,
}

impl Memory {
    pub fn new(size: u64) -> Self {
        Memory { bytes: Mutex::new(vec![0; size as usize]) }
    }

    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.bytes()[offset as usize..][..buffer.len()]);
    }

    pub fn write(&self, offset: u64, data: &Gather) {
        let mut at = offset as usize;
        let mut bytes = self.bytes();
        for piece in data {
            bytes[at..][..piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }

    pub fn discard(&self, offset: u64, length: u64) {
        self.bytes()[offset as usize..][..length as usize].fill(0);
    }

    fn bytes(&self) -> MutexGuard<'_, Vec<u8>> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
