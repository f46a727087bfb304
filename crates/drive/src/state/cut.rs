//! What a checkpoint brings to the drive.

use crate::log::header::Header;
use crate::table::TableKind;
use bytes::Bytes;

/// A page as it must be on the drive.
#[derive(Clone, Debug)]
pub struct Image {
    pub kind: TableKind,
    pub number: u32,
    pub bytes: Bytes,
}

/// Everything that a checkpoint writes, as it was at one moment at which all that was applied was stable.
#[derive(Debug)]
pub struct Cut {
    pub images: Vec<Image>,
    pub header: Header,
    pub trimmed: Vec<u32>,
}
