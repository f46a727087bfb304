//! Replicas, and those who write to them.

use super::{Range, described};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use tepal_codec::checksum::crc;
use tepal_model::text::shown;
use tepal_model::{ClusterId, Epoch};

/// A volume of another cluster, written `CLUSTER.VOLUME` with their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ReplicaOf {
    /// As [`ClusterInfo::id`](super::ClusterInfo::id).
    #[schemars(with = "described::ClusterText")]
    pub cluster: ClusterId,
    /// As [`VolumeInfo::id`](super::VolumeInfo::id).
    pub volume_id: u64,
}

/// A text doesn't say a volume of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a volume of a cluster: write CLUSTER.VOLUME with their ids")]
pub struct ReplicaOfError(String);

impl fmt::Display for ReplicaOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.cluster, self.volume_id)
    }
}

impl FromStr for ReplicaOf {
    type Err = ReplicaOfError;

    fn from_str(text: &str) -> Result<Self, ReplicaOfError> {
        let found = text.split_once('.');
        let read = found.and_then(|(cluster, volume)| {
            Some(ReplicaOf { cluster: cluster.parse().ok()?, volume_id: volume.parse().ok()? })
        });
        read.ok_or_else(|| ReplicaOfError(shown(text)))
    }
}

impl TryFrom<String> for ReplicaOf {
    type Error = ReplicaOfError;
    fn try_from(text: String) -> Result<Self, ReplicaOfError> {
        text.parse()
    }
}

impl From<ReplicaOf> for String {
    fn from(of: ReplicaOf) -> String {
        of.to_string()
    }
}

/// What a replica follows, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replica {
    /// The source.
    #[schemars(with = "described::ReplicaText")]
    pub of: ReplicaOf,
    /// How that was called when it began, for people.
    pub called: String,
    /// When the source held what the newest whole snapshot here holds, in milliseconds since 1970 by the source's clock; 0 before there is
    /// one.
    pub as_of_unix_ms: u64,
    /// The epoch here of the newest whole snapshot; none before there is one.
    pub base: Option<Epoch>,
    /// The epoch of the source's snapshot of which there is a part, if so. How much that is, is in
    /// [`VolumeInfo::incomplete`](super::VolumeInfo::incomplete).
    pub receives: Option<Epoch>,
}

/// The original of a snapshot that replication has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CopyOf {
    /// Of which volume that is.
    #[schemars(with = "described::ReplicaText")]
    pub of: ReplicaOf,
    /// Its epoch there.
    pub epoch: Epoch,
    /// When it was made, in milliseconds since 1970 by the clock there.
    pub taken_unix_ms: u64,
}

/// The volume is a replica of another one from now on: only replication writes to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Follow {
    /// The source.
    #[schemars(with = "described::ReplicaText")]
    pub of: ReplicaOf,
    /// How that is called, for people.
    pub called: String,
    /// The epoch of the newest snapshot here that the source has too.
    pub base: Option<Epoch>,
    /// Even while clients have it open: their writes fail from then on.
    #[serde(default)]
    pub force: bool,
}

/// Replication writes to a replica, in the place of whoever did before. Refused if the replica isn't as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Receive {
    /// What it's to be a replica of.
    #[schemars(with = "described::ReplicaText")]
    pub of: ReplicaOf,
    /// As of [`NoteImport`](super::NoteImport).
    pub import: u64,
    /// What was found as [`Replica::base`].
    pub base: Option<Epoch>,
    /// What was found as [`Incomplete::import`](super::Incomplete::import); none if nothing was incomplete.
    pub before: Option<u64>,
    /// The epoch of the source's snapshot that is sent.
    pub epoch: Epoch,
    /// From the beginning on, bytes of the volume that are as in that snapshot, on stable media.
    pub done: u64,
}

/// All of a snapshot is in the replica, on stable media: it's whole, and that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Received {
    /// As of [`Receive`].
    pub import: u64,
    /// The name of the snapshot that is made.
    pub snapshot: String,
    /// When the original was made, in milliseconds since 1970 by the clock there.
    pub taken_unix_ms: u64,
}

/// Nothing has changed at the source since the replica's newest snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NoteReplica {
    /// The source.
    #[schemars(with = "described::ReplicaText")]
    pub of: ReplicaOf,
    /// When that was so, in milliseconds since 1970 by the clock there.
    pub as_of_unix_ms: u64,
}

/// The query of what replication does with a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaQuery {
    /// Even if clients have the volume or snapshot open. False, if not said.
    #[serde(default)]
    pub force: bool,
    /// Replication of this source asks for it: of a replica, nobody else may.
    #[serde(default)]
    #[schemars(with = "Option<described::ReplicaText>")]
    pub replica_of: Option<ReplicaOf>,
}

/// Whether a volume of a replication is the one that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReplicationRole {
    /// It's sent.
    Source,
    /// It's the replica.
    Replica,
}

/// What a replication that goes on says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Replication {
    /// The volume here.
    pub volume_id: u64,
    /// What that is to it.
    pub role: ReplicationRole,
    /// The other volume, for people.
    pub other: String,
    /// When the source held what the replica's newest whole snapshot does, in milliseconds since 1970; 0 before there is one.
    pub as_of_unix_ms: u64,
    /// About so many bytes of the source were written since: none while that isn't known.
    pub lag_bytes: Option<u64>,
    /// Milliseconds between the beginnings of two rounds.
    pub every_ms: u64,
    /// Bytes of the round that goes on; none between two rounds.
    pub round: Option<Range>,
    /// Bytes a second that are sent now.
    pub bytes_per_second: u64,
    /// Why the last round didn't come to its end; none if it did.
    pub error: Option<String>,
}

/// Bytes of a volume that are to be written in one request: ranges, with the bytes of those that aren't to be zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// What is written where, with whether it's zeros.
    pub runs: Vec<(Range, bool)>,
    /// Of all that isn't zeros, one after the other.
    pub data: Vec<u8>,
}

/// Of what a request begins with: the number of runs, and the checksum of all that follows.
const PIECES_HEAD: usize = 8;
/// Of a run: offset, and length with the highest bit set for zeros.
const PIECES_RUN: usize = 16;
const ZEROS: u64 = 1 << 63;

impl Pieces {
    /// As the body of a request: see `docs/formats.md`.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(PIECES_HEAD + self.runs.len() * PIECES_RUN + self.data.len());
        bytes.extend((self.runs.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        for (range, is_zero) in &self.runs {
            bytes.extend(range.offset.to_le_bytes());
            bytes.extend((range.length | if *is_zero { ZEROS } else { 0 }).to_le_bytes());
        }
        bytes.extend(&self.data);
        let sum = crc(&bytes[PIECES_HEAD..]);
        bytes[4..PIECES_HEAD].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// The runs, and where the bytes begin of those that have some. `None` if the body is not whole.
    pub fn decode(body: &[u8]) -> Option<(Vec<(Range, bool)>, usize)> {
        let head: &[u8; PIECES_HEAD] = body.first_chunk()?;
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if crc(&body[PIECES_HEAD..]) != number(4) {
            return None;
        }
        let begins = PIECES_HEAD.checked_add((number(0) as usize).checked_mul(PIECES_RUN)?)?;
        let run = |bytes: &[u8]| {
            let (offset, length) = (bytes.first_chunk::<8>()?, bytes.last_chunk::<8>()?);
            let (offset, length) = (u64::from_le_bytes(*offset), u64::from_le_bytes(*length));
            Some((Range { offset, length: length & !ZEROS }, length & ZEROS != 0))
        };
        let runs: Vec<_> = body.get(PIECES_HEAD..begins)?.chunks(PIECES_RUN).map(run).collect::<Option<_>>()?;
        let mut with_bytes = runs.iter().filter(|(_, is_zero)| !is_zero);
        let bytes = with_bytes.try_fold(0u64, |sum, (range, _)| sum.checked_add(range.length))?;
        (bytes == (body.len() - begins) as u64).then_some((runs, begins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_written_as_it_is_read() {
        let of = ReplicaOf { cluster: ClusterId(0xabc), volume_id: 7 };
        assert_eq!(of.to_string().parse(), Ok(of));
        for text in ["", ".", "abc", "abc.", ".7", "abc.x", "zz.7"] {
            assert!(text.parse::<ReplicaOf>().is_err(), "{text}");
        }
    }

    #[test]
    fn pieces_that_are_not_whole_are_noticed() {
        let range = |offset, length| Range { offset, length };
        let runs = vec![(range(0, 3), false), (range(4096, 1 << 40), true), (range(8192, 2), false)];
        let body = Pieces { runs: runs.clone(), data: b"abcde".to_vec() }.encode();
        assert_eq!(Pieces::decode(&body), Some((runs, 8 + 3 * 16)));
        for length in 0..body.len() {
            assert_eq!(Pieces::decode(&body[..length]), None, "{length}");
        }
        for at in 0..body.len() {
            let mut damaged = body.clone();
            damaged[at] ^= 1;
            assert_eq!(Pieces::decode(&damaged), None, "{at}");
        }
        assert_eq!(Pieces::decode(&Pieces::default().encode()), Some((vec![], 8)));
    }
}
