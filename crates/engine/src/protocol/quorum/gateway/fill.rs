//! A drive gets a fragment of the column that another drive has, or had: of each block the latest version.

use super::answers::{Candidate, classify};
use super::ask::why;
use super::read::{Seen, Wanted, of_block, told};
use super::write::Versioned;
use super::{Column, Nodes};
use bytes::Bytes;
use futures_util::future::try_join;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{IoError, Version};
use tepal_wire::Payload;
use tepal_wire::message::{Complete, NodeAnswer, NodeOperation, Which};

/// So long the drive has to answer.
const PATIENCE: Duration = Duration::from_secs(5);

impl<W: World, N: Nodes> Column<W, N> {
    /// Has the drive that joins keep the latest versions of these blocks, as N - T of the other nodes tell of them. How many blocks it
    /// lacked.
    pub async fn fill(&self, first: u64, count: u32) -> Result<u32, IoError> {
        let node = self.nodes.joining().ok_or(IoError::NotNow)?;
        let (mut filled, most) = (0, self.shape.most_blocks());
        for start in (0..count).step_by(most as usize) {
            let (first, count) = (first + u64::from(start), (count - start).min(most));
            for run in self.lacking(node, first, count).await? {
                let count = run.end - run.start;
                self.hand_over(node, first + u64::from(run.start), count).await?;
                filled += count;
            }
        }
        Ok(filled)
    }

    /// Runs of blocks, counted from the first, of which the node may lack the latest version.
    async fn lacking(&self, node: usize, first: u64, count: u32) -> Result<Vec<Range<u32>>, IoError> {
        let none = BTreeSet::new();
        let others = self.ask_all(first, count, Wanted::EnoughVersions, &none);
        let (others, own) = try_join(others, self.versions_at(node, first, count)).await?;
        let has_latest = |index: u32| {
            let Candidate::Complete(version) = classify(&told(&others.seen, index), self.shape.quorum) else {
                return false;
            };
            let own = own.as_ref().map(|own| &own[index as usize]);
            version.is_none() || own.is_some_and(|own| own.version == version && !own.is_damaged)
        };
        let mut runs: Vec<Range<u32>> = Vec::new();
        for index in (0..count).filter(|index| !has_latest(*index)) {
            match runs.last_mut() {
                Some(run) if run.end == index => run.end += 1,
                _ => runs.push(index..index + 1),
            }
        }
        Ok(runs)
    }

    /// What a node says of its latest versions; `None` if it doesn't know.
    async fn versions_at(&self, node: usize, first: u64, count: u32) -> Result<Option<Vec<Seen>>, IoError> {
        let complete = Vec::new();
        let question = NodeOperation::Read { first, count, which: Which::Latest, data: false, complete };
        let mut asked = self.ask(vec![(node, self.nodes.drives()[node], question, Payload::none())]);
        match self.within(PATIENCE, &mut asked).await.map(|said| said.what) {
            Some(Ok((NodeAnswer::Versions { versions }, bytes))) => {
                Ok(self.blocks_of(first, count, versions, bytes, false).ok())
            }
            Some(Err(failure)) => Err(why(&[failure])),
            Some(Ok(_)) | None => Err(IoError::NotNow),
        }
    }

    /// Writes the latest versions of blocks to a node. Those that may be complete are made so before.
    async fn hand_over(&self, node: usize, first: u64, count: u32) -> Result<(), IoError> {
        let seen = self.ask_all(first, count, Wanted::Enough, &BTreeSet::new()).await?.seen;
        let mut latest = Vec::new();
        for (version, run) in self.runs_of_versions(count, &seen) {
            let blocks = first + u64::from(run.start)..first + u64::from(run.end);
            let data = version.and_then(|_| self.decode_run(&run, &seen));
            match (version, data) {
                (Some(version), Some(data)) => latest.push(self.versioned(blocks, version, Some(&data))),
                // One by one: some are of clients that write now, hold nothing, or have damaged fragments.
                _ => {
                    for (index, block) in run.zip(blocks) {
                        let (version, content) = self.settle_block(block, of_block(&seen, index)).await?;
                        let version = Version { cross: [0; 32], ..version };
                        latest.extend(
                            (!version.is_none()).then(|| self.versioned(block..block + 1, version, content.as_ref())),
                        );
                    }
                }
            }
        }
        self.give(node, &latest).await
    }

    /// Runs of blocks that have one complete version which holds something, and of others.
    fn runs_of_versions(&self, count: u32, seen: &BTreeMap<usize, Vec<Seen>>) -> Vec<(Option<Version>, Range<u32>)> {
        let mut runs: Vec<(Option<Version>, Range<u32>)> = Vec::new();
        for index in 0..count {
            let version = match classify(&told(seen, index), self.shape.quorum) {
                Candidate::Complete(version) if holds(seen, index, version) => {
                    Some(Version { cross: [0; 32], ..version })
                }
                _ => None,
            };
            match runs.last_mut() {
                Some((of, run)) if *of == version => run.end = index + 1,
                _ => runs.push((version, index..index + 1)),
            }
        }
        runs
    }

    /// A version of blocks; they hold nothing without data.
    fn versioned(&self, blocks: Range<u64>, version: Version, data: Option<&Bytes>) -> Versioned {
        let fragments = data.map(|data| self.shape.encode(data));
        let digests = fragments.as_ref().map_or(Vec::new(), |fragments| self.shape.digests_of(fragments));
        Versioned { first: blocks.start, count: (blocks.end - blocks.start) as u32, version, fragments, digests }
    }

    async fn give(&self, node: usize, latest: &[Versioned]) -> Result<(), IoError> {
        let drive = self.nodes.drives()[node];
        let question = |one: &Versioned| (node, drive, one.question(Vec::new()), one.payload(node));
        let mut asked = self.ask(latest.iter().map(question).collect());
        for _ in latest {
            match self.within(PATIENCE, &mut asked).await.map(|said| said.what) {
                Some(Ok((NodeAnswer::Written, _))) => {}
                Some(Err(failure)) => return Err(why(&[failure])),
                Some(Ok(_)) | None => return Err(IoError::NotNow),
            }
        }
        let complete =
            latest.iter().map(|one| Complete { first: one.first, count: one.count, version: one.version }).collect();
        drop(self.ask(vec![(node, drive, NodeOperation::Complete { complete }, Payload::none())]));
        Ok(())
    }
}

fn holds(seen: &BTreeMap<usize, Vec<Seen>>, index: u32, version: Version) -> bool {
    seen.values().map(|seen| &seen[index as usize]).any(|seen| seen.version == version && seen.holds)
}
