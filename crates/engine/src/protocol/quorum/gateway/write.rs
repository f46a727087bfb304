//! Writing, and taking blocks out, which is writing a version that holds nothing.

use super::ask::why;
use super::{Column, Nodes};
use bytes::Bytes;
use futures_util::future::join_all;
use std::ops::Range;
use tepal_drive::world::{Gather, World};
use tepal_model::{BLOCK, Buffer, Digest, IoError, Version};
use tepal_wire::Payload;
use tepal_wire::message::{NodeAnswer, NodeFailure, NodeOperation};

/// Blocks that are to have one version.
pub(super) struct Versioned {
    pub first: u64,
    pub count: u32,
    /// Without a cross checksum.
    pub version: Version,
    /// For each node; none if the blocks hold nothing.
    pub fragments: Option<Vec<Bytes>>,
    pub digests: Vec<Digest>,
}

impl Versioned {
    pub(super) fn question(&self, complete: Vec<tepal_wire::message::Complete>) -> NodeOperation {
        let Versioned { first, count, version, digests, .. } = self;
        NodeOperation::Write { first: *first, count: *count, version: *version, digests: digests.clone(), complete }
    }

    /// What one node is to have.
    pub(super) fn payload(&self, node: usize) -> Payload {
        match &self.fragments {
            Some(fragments) => Payload::seal(0, [fragments[node].clone()].into_iter().collect()),
            None => Payload::none(),
        }
    }
}

impl<W: World, N: Nodes> Column<W, N> {
    /// Writes bytes of the column; on stable media when it returns.
    pub async fn write(&self, offset: u64, data: Gather) -> Result<(), IoError> {
        let length: u64 = data.iter().map(|piece| piece.len() as u64).sum();
        if length == 0 {
            return Ok(());
        }
        let blocks = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        let _turn = self.state.turns.take(&blocks).await;
        let whole = self.whole_blocks(offset, length, &data).await?;
        let time = self.next_time().await?;
        self.write_blocks(&blocks, Some(&whole), time).await
    }

    /// Takes bytes of the column out: they read as zeros. Parts of blocks are overwritten with zeros.
    pub async fn zero(&self, range: Range<u64>) -> Result<(), IoError> {
        let (first, end) = (range.start.div_ceil(BLOCK), range.end / BLOCK);
        let zeros =
            |range: Range<u64>| Gather::from_iter([Buffer::zeroed((range.end - range.start) as usize).freeze()]);
        if first >= end {
            // Within one block, or within two.
            return self.write(range.start, zeros(range)).await;
        }
        let edges = [range.start..first * BLOCK, end * BLOCK..range.end];
        for edge in edges.into_iter().filter(|edge| !edge.is_empty()) {
            self.write(edge.start, zeros(edge)).await?;
        }
        // Blocks of which no node has anything stay as they are.
        let mut at = first;
        while at < end {
            for run in self.present(at..end).await? {
                let blocks = at..(at + run.length).min(end);
                at = blocks.end;
                if run.holds {
                    let _turn = self.state.turns.take(&blocks).await;
                    let time = self.next_time().await?;
                    self.write_blocks(&blocks, None, time).await?;
                }
            }
        }
        Ok(())
    }

    /// Writes zeros over bytes of the column.
    pub async fn write_zeros(&self, range: Range<u64>) -> Result<(), IoError> {
        let zeros = Buffer::zeroed((range.end - range.start) as usize).freeze();
        self.write(range.start, Gather::from_iter([zeros])).await
    }

    /// Takes out everything from this byte of the column on.
    pub async fn clear_from(&self, offset: u64) -> Result<(), IoError> {
        self.zero(offset..self.room * BLOCK).await
    }

    /// The data with what is around it in its first and last block.
    async fn whole_blocks(&self, offset: u64, length: u64, data: &Gather) -> Result<Bytes, IoError> {
        let (start, end) = (offset / BLOCK * BLOCK, (offset + length).next_multiple_of(BLOCK));
        if let ([piece], true) = (data.as_slice(), (start, end) == (offset, offset + length)) {
            return Ok(piece.clone());
        }
        let mut whole = Buffer::zeroed((end - start) as usize);
        let head = (start < offset).then_some(start);
        let tail = (end > offset + length).then_some(end - BLOCK).filter(|tail| head != Some(*tail));
        for edge in [head, tail].into_iter().flatten() {
            let block = self.read_blocks(edge / BLOCK, 1).await?;
            let place = (edge - start) as usize;
            whole[place..place + BLOCK as usize].copy_from_slice(&block);
        }
        let mut at = (offset - start) as usize;
        for piece in data {
            whole[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        Ok(whole.freeze())
    }

    /// The caller has the blocks' turn.
    async fn write_blocks(&self, blocks: &Range<u64>, data: Option<&Bytes>, time: u64) -> Result<(), IoError> {
        let version = Version { time, writer: self.writer, cross: [0; 32] };
        let most = u64::from(self.shape.most_blocks());
        let parts = (blocks.start..blocks.end).step_by(most as usize).map(|first| async move {
            let count = (blocks.end - first).min(most) as u32;
            let fragments = data.map(|data| {
                let from = ((first - blocks.start) * BLOCK) as usize;
                self.shape.encode(&data.slice(from..from + count as usize * BLOCK as usize))
            });
            let digests = fragments.as_ref().map_or(Vec::new(), |fragments| self.shape.digests_of(fragments));
            let versioned = Versioned { first, count, version, fragments, digests };
            // A node that has the version keeps it once.
            self.with_same_drives(async |column: &Self| column.keep(&versioned, &[]).await).await
        });
        join_all(parts).await.into_iter().collect()
    }

    /// Has nodes keep a version, until it's complete. Some of them have it already.
    pub(super) async fn keep(&self, versioned: &Versioned, have: &[usize]) -> Result<(), IoError> {
        let question =
            |node: usize, drive| (node, drive, versioned.question(self.hints(drive)), versioned.payload(node));
        let lacking = self.voters().filter(|(node, _)| !have.contains(node));
        let mut asked = self.ask(lacking.map(|(node, drive)| question(node, drive)).collect());
        if let Some(joining) = self.nodes.joining() {
            drop(self.ask(vec![question(joining, self.nodes.drives()[joining])]));
        }
        let needed = usize::from(self.shape.quorum.thresholds().complete);
        let (mut kept, mut refused) = (have.len(), Vec::new());
        // Those that may still keep it are too few once so many have refused.
        while kept < needed {
            if refused.len() > self.count_voters() - needed {
                return Err(why(&refused));
            }
            match asked.next().await.map(|said| said.what) {
                Some(Ok((NodeAnswer::Written, _))) => kept += 1,
                Some(Ok(_)) => refused.push(NodeFailure::Lost),
                Some(Err(failure)) => refused.push(failure),
                None => {
                    self.nodes.goes_on()?;
                    return Err(why(&refused));
                }
            }
        }
        self.is_complete(versioned.first, versioned.count, versioned.version);
        Ok(())
    }
}
