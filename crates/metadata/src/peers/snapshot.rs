//! A snapshot on its way to another server: pieces of bounded size, each with the checksum of its message. The
//! receiver says where to go on, so a transfer that was interrupted resumes, and a new one begins at its start.
//!
//! What arrived is believed only once the whole of it was checked as a database ([`StateMachine::install_snapshot`]).
//!
//! [`StateMachine::install_snapshot`]: crate::state_machine::StateMachine

use super::message::{Answer, Piece, Request};
use super::network::{Peer, unexpected};
use crate::consensus::{SnapshotMeta, Types, Vote};
use crate::database;
use crate::format::{EntryId, MembershipForm};
use crate::state_machine::SnapshotFile;
use openraft::errors::{ReplicationClosed, StreamingError};
use openraft::raft::SnapshotResponse;
use openraft::type_config::alias::SnapshotOf;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one piece. Both sides hold one at a time.
const PIECE: usize = 256 << 10;
/// What has arrived of a snapshot.
const ARRIVING: &str = "arriving.db";

pub async fn send(
    peer: &Peer,
    vote: Vote,
    snapshot: SnapshotOf<Types, SnapshotFile>,
    cancel: impl Future<Output = ReplicationClosed>,
    within: Duration,
) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
    let mut cancel = pin!(cancel);
    let file = Arc::new(snapshot.snapshot.file);
    let total = file.metadata().map_err(|error| unreadable(&error))?.len();
    let last = snapshot.meta.last_log_id.as_ref().map(EntryId::from);
    let members = MembershipForm::from(&snapshot.meta.last_membership);
    let mut offset = 0;
    loop {
        let bytes = read(&file, offset, total).await.map_err(|error| unreadable(&error))?;
        let piece = Piece { vote: (&vote).into(), last, members: members.clone(), offset, total };
        let sending = pin!(peer.call(Request::Snapshot(piece), &bytes, within));
        let answer = match futures_util::future::select(cancel.as_mut(), sending).await {
            futures_util::future::Either::Left((closed, _)) => return Err(StreamingError::Closed(closed)),
            futures_util::future::Either::Right((answer, _)) => answer?,
        };
        match answer {
            Answer::Snapshot { vote: theirs, .. } if Vote::from(theirs) > vote => {
                return Ok(SnapshotResponse::new(theirs.into()));
            }
            Answer::Snapshot { vote: theirs, next } if next >= total => {
                peer.peers.witness.note_entries(peer.id, &(&vote).into(), last);
                return Ok(SnapshotResponse::new(theirs.into()));
            }
            Answer::Snapshot { next, .. } => offset = next,
            _ => return Err(unexpected().into()),
        }
    }
}

fn unreadable(error: &io::Error) -> StreamingError<Types> {
    openraft::errors::Unreachable::new(error).into()
}

async fn read(file: &Arc<File>, offset: u64, total: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(total.saturating_sub(offset)).unwrap_or(PIECE).min(PIECE);
    let file = file.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).map(|()| bytes)
    });
    reading.await.map_err(io::Error::other)?
}

/// The one snapshot that is arriving.
#[derive(Debug)]
pub struct Arriving {
    path: PathBuf,
    under_way: Option<UnderWay>,
}

#[derive(Debug)]
struct UnderWay {
    /// Of the first piece, with offset 0: what the others must agree with.
    what: Piece,
    file: Arc<File>,
    next: u64,
}

/// What a piece came to.
#[derive(Debug)]
pub enum Arrived {
    /// The sender is to go on from there.
    Wanted(u64),
    Whole(SnapshotMeta, SnapshotFile),
}

impl Arriving {
    pub fn new(folder: &Path) -> Arriving {
        Arriving { path: folder.join(ARRIVING), under_way: None }
    }

    pub async fn take(&mut self, piece: Piece, bytes: &[u8]) -> io::Result<Arrived> {
        let what = Piece { offset: 0, ..piece.clone() };
        let known = self.under_way.as_ref().filter(|under_way| under_way.what == what);
        let (file, next) = match known {
            Some(under_way) => (under_way.file.clone(), under_way.next),
            None => (self.begin().await?, 0),
        };
        let end = piece.offset.checked_add(bytes.len() as u64).filter(|&end| end <= piece.total);
        let (true, Some(end)) = (piece.offset == next, end) else {
            self.under_way = Some(UnderWay { what, file, next });
            return Ok(Arrived::Wanted(next));
        };
        let (target, owned) = (file.clone(), bytes.to_vec());
        // If it's dropped or fails here, the next piece begins anew.
        self.under_way = None;
        tokio::task::spawn_blocking(move || target.write_all_at(&owned, next)).await.map_err(io::Error::other)??;
        if end < piece.total {
            self.under_way = Some(UnderWay { what, file, next: end });
            return Ok(Arrived::Wanted(end));
        }
        let membership = piece.members.try_into().map_err(io::Error::other)?;
        let meta = SnapshotMeta { last_log_id: piece.last.map(Into::into), last_membership: membership };
        Ok(Arrived::Whole(meta, SnapshotFile { file: file.try_clone()? }))
    }

    async fn begin(&self) -> io::Result<Arc<File>> {
        let path = self.path.clone();
        let making = tokio::task::spawn_blocking(move || {
            database::remove_database(&path)?;
            let file = database::make_private(&path)?;
            // It needs no name: only this process uses it, and a crash shall leave nothing.
            std::fs::remove_file(&path)?;
            io::Result::Ok(Arc::new(file))
        });
        making.await.map_err(io::Error::other)?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Members, VoteForm};
    use crate::scratch::Scratch;
    use std::io::Read;

    fn piece(index: u64, offset: u64, total: u64) -> Piece {
        let members = Members { voters: vec![[1].into()], addresses: [(1, "h:1".to_owned())].into() };
        let last = Some(EntryId { term: 2, node: 1, index });
        Piece {
            vote: VoteForm { term: 2, node: 1, committed: true },
            last,
            members: MembershipForm { since: last, members },
            offset,
            total,
        }
    }

    #[test]
    fn pieces_make_up_the_snapshot_whatever_is_lost_repeated_or_begun_anew() {
        let scratch = Scratch::new();
        let mut arriving = Arriving::new(scratch.path());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut take = |index, offset, total, bytes: &[u8]| {
            runtime.block_on(arriving.take(piece(index, offset, total), bytes)).unwrap()
        };
        // (entry, offset, bytes, the offset that is wanted next), of 9 bytes.
        let steps: [(u64, u64, &[u8], u64); 8] = [
            (7, 3, b"def", 0),
            (7, 0, b"abc", 3),
            // The answer was lost, and it's sent again.
            (7, 0, b"abc", 3),
            // A newer one comes instead.
            (8, 6, b"ghi", 0),
            (8, 0, b"123", 3),
            (8, u64::MAX, b"x", 3),
            (8, 3, b"4567890", 3),
            (8, 3, b"456", 6),
        ];
        for (index, offset, bytes, wanted) in steps {
            let arrived = take(index, offset, 9, bytes);
            assert!(matches!(arrived, Arrived::Wanted(next) if next == wanted), "{index} {offset}: {arrived:?}");
        }
        let Arrived::Whole(meta, mut snapshot) = take(8, 6, 9, b"789") else { panic!("it's whole") };
        assert_eq!(meta.last_log_id.map(|id| id.index), Some(8));
        let mut content = String::new();
        io::Seek::rewind(&mut snapshot.file).unwrap();
        snapshot.file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "123456789");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "a crash would leave nothing");
    }
}
