//! What a front-end needs of a volume: the one trait that every protocol adapts to.

use bytes::Bytes;
use std::future::Future;
use tepal_model::{IoError, Segments};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// A virtual disk, as one client connection sees it. Offsets and lengths are bytes, of any alignment; the front-end has
/// already refused or cut lengths past [`tepal_model::MAX_REQUEST`], but for what takes space away: that is up to 4 GiB.
///
/// Requests may run concurrently. Dropping a future abandons the request: a write may then be done or not.
pub trait VirtualDisk: 'static {
    /// Bytes, as of now: a volume can be resized while it is attached.
    fn size(&self) -> u64;
    /// Whether clients may only read. Writing is refused before it gets here, so this must not change.
    fn read_only(&self) -> bool;
    /// The smallest piece that can be written or zeroed, in bytes: a power of two, at most 4096.
    fn least_write(&self) -> u32 {
        1
    }
    /// What it's called now, where that can differ from the name that it was opened by.
    fn name(&self) -> Option<String> {
        None
    }
    /// The bytes, in pieces that joined are `length` long.
    fn read(&self, offset: u64, length: u64) -> impl Future<Output = Result<Segments, IoError>>;
    /// Writes all of `data` at `offset`. With `fua`, what was written is on stable media before this returns, whatever the layout's
    /// durability.
    fn write(&self, offset: u64, data: Bytes, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    /// Puts every write that was acknowledged on any connection on stable media.
    fn flush(&self) -> impl Future<Output = Result<(), IoError>>;
    /// Gives the space back; reads as zeros afterwards.
    fn trim(&self, offset: u64, length: u64, fua: bool) -> impl Future<Output = Result<(), IoError>>;
    /// Zeros; `allocate` keeps the space (NBD's NO_HOLE).
    fn write_zeroes(
        &self,
        offset: u64,
        length: u64,
        allocate: bool,
        fua: bool,
    ) -> impl Future<Output = Result<(), IoError>>;
    /// What is allocated, from `offset`, in order and without gaps; at least one run, at most `limit` runs and `length`
    /// bytes. Neighbouring runs differ.
    fn block_status(&self, offset: u64, length: u64, limit: usize) -> impl Future<Output = Result<Vec<Run>, IoError>>;
}

/// A run of bytes that are all mapped, or all a hole that reads as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Bytes, at least one.
    pub length: u64,
    /// Whether drives hold it.
    pub mapped: bool,
}

/// The volumes that a front-end can offer.
pub trait Exports: 'static {
    /// What an opened volume is.
    type Disk: VirtualDisk;
    /// Names, in order.
    fn names(&self) -> Vec<String>;
    /// What a client gets that names none: if there is only one thing to have, that.
    fn unnamed(&self) -> Option<String> {
        <[String; 1]>::try_from(self.names()).ok().map(|[only]| only)
    }
    /// The same, as far as a client may have it that has shown these certificates and has the key of the
    /// first; the others lead to an authority.
    fn shown_to(&self, certificates: &[CertificateDer<'static>]) -> Result<Self, OpenError>
    where
        Self: Sized;
    /// The volume of this name, for one connection.
    fn open(&self, name: &str) -> impl Future<Output = Result<Self::Disk, OpenError>>;
}

/// Why a client doesn't get a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Fix the name.
    #[error("there is no volume '{0}'")]
    Unknown(String),
    /// Fix the snapshot's name.
    #[error("there is no snapshot '{snapshot}' of volume '{volume}'")]
    NoSnapshot {
        /// There is this one.
        volume: String,
        /// As the client gave it.
        snapshot: String,
    },
    /// Somebody must grant it, or the client shows another certificate.
    #[error("{0}")]
    NotAllowed(String),
    /// Ask again once what `reason` names is mended.
    #[error("volume '{name}' can't be served now: {reason}")]
    Unavailable {
        /// As the client gave it.
        name: String,
        /// For people.
        reason: String,
    },
}
