//! Logical time of the writes of quorum layouts (Ursa Minor, section 3.2.3): it orders all writes of a block, and tells which fragments
//! are of one write.

/// A digest of some bytes that nobody finds other bytes for.
pub type Digest = [u8; 32];

/// Which write of a block. Later writes are greater. Several blocks that one write has changed have the same time and writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Higher than that of each write that was complete when this one began. 0: nothing was written yet.
    pub time: u64,
    /// Whose write: no two gateways that run have the same number, and none uses a time twice for a block.
    pub writer: u64,
    /// The digest of the digests of all fragments, where drives may lie; else zeros. So a fragment of another content is of another
    /// version.
    pub cross: Digest,
}

impl Version {
    /// Before any write.
    pub const NONE: Version = Version { time: 0, writer: 0, cross: [0; 32] };

    /// Whether nothing was written yet.
    pub fn is_none(&self) -> bool {
        self.time == 0
    }
}
