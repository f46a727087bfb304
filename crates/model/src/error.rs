//! What can become of a read or a write. Each kind tells the caller what to do next. Offsets, lengths and sizes are bytes of the
//! volume.

/// The outcome of an I/O request that wasn't done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoError {
    /// Fix the request: it reaches past the volume's end.
    #[error("the request {offset}+{length} reaches past the volume's end at {size}")]
    OutOfRange {
        /// Where the request begins.
        offset: u64,
        /// How long it is.
        length: u64,
        /// The volume's size when it came.
        size: u64,
    },
    /// Fix the request: an encrypted volume is written in whole sectors.
    #[error("the volume is encrypted: it's written in multiples of {multiple} bytes")]
    Unaligned {
        /// Of what offset and length have to be multiples, in bytes.
        multiple: u64,
    },
    /// Fix the request: the volume is attached read-only.
    #[error("the volume is attached read-only")]
    ReadOnly,
    /// Have it granted: the client has no right to it, or not any more.
    #[error("this client has no right to that")]
    NotAllowed,
    /// Free space or add drives, then try again. Nothing was written.
    #[error("no space is left on the drives of this volume")]
    OutOfSpace,
    /// Restore these bytes from elsewhere: no copy of them is right. Nothing else is affected.
    #[error("bytes {offset}+{length} are damaged on every copy that there is")]
    Damaged {
        /// Where the first damaged block begins.
        offset: u64,
        /// How far damage reaches at most.
        length: u64,
    },
    /// Restore these bytes from elsewhere, or accept that they are lost: what held them has failed for good, and no drive that may return
    /// has them.
    #[error("bytes {offset}+{length} are lost: the drives that held them have failed")]
    Lost {
        /// Where the first lost byte is that the request touches.
        offset: u64,
        /// How far what is lost reaches from there, at least as far as the request's extent.
        length: u64,
    },
    /// Bring drives or servers back: fewer copies are up than the layout wants.
    #[error("too few copies are available: {reason}")]
    Unavailable {
        /// Which are away, for people.
        reason: String,
    },
    /// Attach again: the volume was removed, or another client took it over.
    #[error("the volume is gone, or another client has taken it over")]
    Fenced,
    /// Ask again, as one that may have been done: it has begun, or parts of it are done. It may go on by itself.
    #[error("the request has begun, and isn't done yet")]
    Unsure,
    /// Ask again: nothing was done, as that would have taken too long, or what it was about has changed meanwhile.
    #[error("the request has to be made again")]
    NotNow,
    /// Connect again: the server is stopping.
    #[error("the server is stopping")]
    Stopping,
}
