//! Reading: the greatest version that may have been complete, repaired if need be.

use super::super::heal::Look;
use super::answers::{Candidate, Fragments, Told, classify, suffice};
use super::ask::{Asked, Said, why};
use super::write::Versioned;
use super::{Column, Nodes};
use bytes::{Bytes, BytesMut};
use futures_util::future::{Either, join_all, select};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;
use tepal_codec::cross::{cross, digest};
use tepal_drive::world::World;
use tepal_model::buffer::{join, zeros};
use tepal_model::{BLOCK, Digest, DriveId, IoError, Segments, Version};
use tepal_wire::Payload;
use tepal_wire::message::{Found, NodeAnswer, NodeOperation, Versions, Which};

/// Before a block is looked at again whose versions have changed meanwhile.
const MOMENT: Duration = Duration::from_millis(2);
/// How often all nodes are asked again, too many of which don't know just now which version they have: it's on its way home.
const MOST_ATTEMPTS: usize = 500;
/// So many versions that too few nodes have are looked at, before nodes that tell of them aren't believed any more.
const MOST_UNSUPPORTED: usize = 8;

/// So long the nodes that others wait for in vain have to answer: of the rest, there are enough.
const PATIENCE: Duration = Duration::from_millis(100);
/// So long a node has to answer that is to be healed.
const HEALING: Duration = Duration::from_secs(5);

/// No drive is to be healed.
const NONE: BTreeSet<DriveId> = BTreeSet::new();

/// How many answers are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// As many as decide, with the fragments that suffice.
    Enough,
    /// The same without.
    EnoughVersions,
    /// Those of all nodes that answer soon, with their fragments.
    All,
    /// The same without.
    AllVersions,
}

/// What one node has said of one block.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub version: Version,
    pub holds: bool,
    is_complete: bool,
    /// The fragment can't be read.
    pub is_damaged: bool,
    digests: Vec<Digest>,
    /// If it was asked for, and can be read.
    fragment: Option<Bytes>,
}

/// Why an answer isn't counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// The node doesn't know what it had, or has forgotten it.
    Gone,
    /// No honest node says that.
    Nonsense,
}

/// What nodes have said of some blocks.
pub(super) struct Answers {
    pub seen: BTreeMap<usize, Vec<Seen>>,
    /// A node doesn't know what it had of one of them.
    has_gone: bool,
}

/// What has become of looking for the fragments of a version.
enum Fetched {
    /// The block, and the digests of all its fragments.
    Whole(Bytes, Vec<Digest>),
    /// Some fragments haven't come, can't be read, or aren't there any more.
    NotNow,
    /// All have come that nodes told of, and too few are right.
    Wrong,
}

/// The content of a block: `None` if it holds nothing.
type Content = Option<Bytes>;

impl<W: World, N: Nodes> Column<W, N> {
    /// Bytes of the column.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        let blocks = offset / BLOCK..(offset + length).div_ceil(BLOCK);
        let most = u64::from(self.shape.most_blocks());
        let starts = (blocks.start..blocks.end).step_by(most as usize);
        let parts = starts.map(|first| self.read_settled(first, (blocks.end - first).min(most) as u32));
        let mut whole = Segments::new();
        for part in join_all(parts).await {
            whole.extend(part?);
        }
        let (start, end) = (offset - blocks.start * BLOCK, offset + length - blocks.start * BLOCK);
        Ok(cut(whole, start..end))
    }

    /// Whole blocks.
    pub(super) async fn read_blocks(&self, first: u64, count: u32) -> Result<Bytes, IoError> {
        Ok(join(&self.read_settled(first, count).await?))
    }

    async fn read_settled(&self, first: u64, count: u32) -> Result<Segments, IoError> {
        self.with_same_drives(async |column: &Self| column.read_part(first, count).await).await
    }

    async fn read_part(&self, first: u64, count: u32) -> Result<Segments, IoError> {
        let seen = self.ask_all(first, count, Wanted::Enough, &NONE).await?.seen;
        if let Some(content) = self.all_at_once(count, &seen) {
            return Ok(content);
        }
        let mut whole = Segments::new();
        for index in 0..count {
            let (_, content) = self.settle_block(first + u64::from(index), of_block(&seen, index)).await?;
            whole.extend(content.map_or_else(|| zeros(BLOCK), |bytes| Segments::from_iter([bytes])));
        }
        Ok(whole)
    }

    /// Has a block made whole: all nodes that answer have its latest version. For nodes that look after themselves.
    pub async fn resolve(&self, block: u64) -> Result<(), IoError> {
        self.with_same_drives(async |column: &Self| column.resolve_now(block).await).await
    }

    async fn resolve_now(&self, block: u64) -> Result<(), IoError> {
        let seen = self.look(block, Wanted::Enough).await?;
        self.settle_block(block, seen).await?;
        let seen = self.look(block, Wanted::Enough).await?;
        let told: Vec<Told> = seen.values().map(Seen::told).collect();
        if let Candidate::Complete(version) = classify(&told, self.shape.quorum)
            && !version.is_none()
        {
            self.is_complete(block, 1, version);
        }
        Ok(())
    }

    /// Asks all nodes for the latest version of some blocks, M of them for fragments too.
    /// Of the drives in `healed`, answers are waited for longer, and are needed.
    pub(super) async fn ask_all(
        &self,
        first: u64,
        count: u32,
        wanted: Wanted,
        healed: &BTreeSet<DriveId>,
    ) -> Result<Answers, IoError> {
        let mut attempts = 0;
        while attempts < MOST_ATTEMPTS {
            match self.ask_once((first, count), wanted, healed).await? {
                Ok(answers) => return Ok(answers),
                Err(Unheard::Gone) => attempts += 1,
                // As if that node didn't answer.
                Err(Unheard::Nonsense) => {}
            }
            self.world.sleep(MOMENT).await;
        }
        Err(why(&[]))
    }

    /// `Ok(Err)` if all nodes have answered, and too many of them don't know just now, or can't be believed.
    async fn ask_once(
        &self,
        (first, count): (u64, u32),
        wanted: Wanted,
        healed: &BTreeSet<DriveId>,
    ) -> Result<Result<Answers, Unheard>, IoError> {
        let drives = self.nodes.drives();
        let data = match wanted {
            Wanted::Enough => self.nodes_for_data(&drives),
            Wanted::All => (0..drives.len()).collect(),
            Wanted::EnoughVersions | Wanted::AllVersions => Vec::new(),
        };
        let takes_all = matches!(wanted, Wanted::All | Wanted::AllVersions);
        let question = |(node, drive): (usize, DriveId)| {
            let (which, complete) = (Which::Latest, self.hints(drive));
            let question = NodeOperation::Read { first, count, which, data: data.contains(&node), complete };
            (node, drive, question, Payload::none())
        };
        let mut asked = self.ask(self.voters().map(question).collect());
        let (voters, needed) = (self.count_voters(), usize::from(self.shape.quorum.thresholds().answers));
        let (mut seen, mut has_gone): (BTreeMap<usize, Vec<Seen>>, bool) = (BTreeMap::new(), false);
        let (mut refused, mut has_lied) = (Vec::new(), false);
        let mut silent: BTreeSet<DriveId> =
            self.voters().map(|(_, drive)| drive).filter(|drive| healed.contains(drive)).collect();
        while seen.len() < voters && (seen.len() < needed || takes_all) {
            let patience = if silent.is_empty() { PATIENCE } else { HEALING };
            let said = match seen.len() < needed {
                true => asked.next().await,
                false => match self.within(patience, &mut asked).await {
                    Some(said) => Some(said),
                    None => break,
                },
            };
            let Some(said) = said else {
                self.nodes.goes_on()?;
                let unheard = if has_gone { Some(Unheard::Gone) } else { has_lied.then_some(Unheard::Nonsense) };
                return unheard.map(Err).ok_or_else(|| why(&refused));
            };
            silent.remove(&drives[said.node]);
            refused.extend(said.what.as_ref().err());
            if refused.len() > voters - needed {
                return Err(why(&refused));
            }
            if let Ok((NodeAnswer::Versions { versions }, bytes)) = said.what {
                match self.blocks_of(first, count, versions, bytes, data.contains(&said.node)) {
                    Ok(blocks) => drop(seen.insert(said.node, blocks)),
                    Err(Unheard::Gone) => has_gone = true,
                    Err(Unheard::Nonsense) => {
                        has_lied = true;
                        self.has_lied(drives[said.node]);
                    }
                }
            }
        }
        all_have_answered(&silent)?;
        Ok(Ok(Answers { seen, has_gone }))
    }

    /// The next answer of nodes that have answered before, and may have failed since.
    async fn soon(&self, asked: &mut Asked) -> Option<Said> {
        self.within(PATIENCE, asked).await
    }

    pub(super) async fn within(&self, patience: Duration, asked: &mut Asked) -> Option<Said> {
        match select(Box::pin(asked.next()), Box::pin(self.world.sleep(patience))).await {
            Either::Left((said, _)) => said,
            Either::Right(_) => None,
        }
    }

    /// The first M fragments are the data as it is; but a copy is read here if one is here.
    fn nodes_for_data(&self, drives: &[DriveId]) -> Vec<usize> {
        let count = usize::from(self.shape.quorum.data());
        let voters: SmallVec<[usize; 8]> = self.voters().map(|(node, _)| node).collect();
        if count > 1 {
            return voters.into_iter().take(count).collect();
        }
        let here = voters.iter().find(|node| self.nodes.is_here(drives[**node]));
        vec![here.copied().unwrap_or_else(|| voters[(self.writer % voters.len().max(1) as u64) as usize])]
    }

    /// What a node says of each block.
    pub(super) fn blocks_of(
        &self,
        first: u64,
        count: u32,
        versions: Vec<Versions>,
        bytes: Segments,
        has_data: bool,
    ) -> Result<Vec<Seen>, Unheard> {
        let (fragment, each) = (self.shape.fragment(), self.shape.digests());
        let bytes = join(&bytes);
        let (mut blocks, mut at) = (Vec::with_capacity(count as usize), 0);
        for Versions { count: run, found } in versions {
            for _ in 0..run {
                let block = first + blocks.len() as u64;
                blocks.push(match &found {
                    Found::Gone => return Err(Unheard::Gone),
                    Found::Damaged { version } => {
                        let (version, digests) = (*version, Vec::new());
                        Seen { version, holds: true, is_complete: false, is_damaged: true, digests, fragment: None }
                    }
                    Found::Has { version, holds, is_complete, digests } => {
                        let mut of_block = Seen {
                            version: *version,
                            holds: *holds,
                            is_complete: *is_complete,
                            is_damaged: false,
                            digests: digests.clone(),
                            fragment: None,
                        };
                        if *holds && has_data {
                            let end = at + fragment;
                            of_block.fragment =
                                Some(bytes.get(at..end).map(|_| bytes.slice(at..end)).ok_or(Unheard::Nonsense)?);
                            at = end;
                        }
                        // A version without digests is one of a block that holds nothing.
                        if each > 0 && *holds != (version.cross != [0; 32]) {
                            return Err(Unheard::Nonsense);
                        }
                        if *holds && each > 0 && (has_data || !digests.is_empty()) {
                            let is_one = digests.len() == each && cross(block, digests) == version.cross;
                            is_one.then_some(()).ok_or(Unheard::Nonsense)?;
                        }
                        of_block
                    }
                });
                if blocks.len() > count as usize {
                    return Err(Unheard::Nonsense);
                }
            }
        }
        (blocks.len() == count as usize && at == bytes.len()).then_some(blocks).ok_or(Unheard::Nonsense)
    }

    /// The common case: all nodes that answer have the same complete versions, and M fragments of them have come.
    fn all_at_once(&self, count: u32, seen: &BTreeMap<usize, Vec<Seen>>) -> Option<Segments> {
        let mut parts: Vec<(bool, Range<u32>)> = Vec::new();
        for index in 0..count {
            let Candidate::Complete(version) = classify(&told(seen, index), self.shape.quorum) else { return None };
            let of_version = |seen: &&Seen| seen.version == version;
            let holds = seen.values().map(|seen| &seen[index as usize]).find(of_version)?.holds;
            match parts.last_mut() {
                Some((held, run)) if *held == holds => run.end = index + 1,
                _ => parts.push((holds, index..index + 1)),
            }
        }
        let mut whole = Segments::new();
        for (holds, run) in parts {
            if holds {
                whole.push(self.decode_run(&run, seen)?);
            } else {
                whole.extend(zeros(u64::from(run.end - run.start) * BLOCK));
            }
        }
        Some(whole)
    }

    /// Of blocks that all hold something.
    pub(super) fn decode_run(&self, run: &Range<u32>, seen: &BTreeMap<usize, Vec<Seen>>) -> Option<Bytes> {
        let newest = |index: u32| seen.values().map(|seen| seen[index as usize].version).max();
        let mut fragments: Vec<(usize, Bytes)> = Vec::new();
        for (node, seen) in seen {
            let of_run = &seen[run.start as usize..run.end as usize];
            let has_all = (run.start..run.end).zip(of_run).all(|(index, seen)| {
                Some(seen.version) == newest(index)
                    && seen.fragment.as_ref().is_some_and(|bytes| self.is_right(*node, bytes, &seen.digests))
            });
            if has_all {
                fragments.push((*node, side_by_side(of_run.iter().filter_map(|seen| seen.fragment.as_ref()))));
            }
        }
        (fragments.len() >= self.shape.quorum.data().into()).then(|| self.shape.decode(run.end - run.start, &fragments))
    }

    /// Whether a fragment is the one whose digest goes along with the version.
    fn is_right(&self, node: usize, bytes: &Bytes, digests: &[Digest]) -> bool {
        self.shape.digests() == 0 || digests.get(node) == Some(&digest(bytes))
    }

    /// The latest version of one block that each later read sees, and its content, by the protocol step by step.
    pub(super) async fn settle_block(
        &self,
        block: u64,
        mut seen: BTreeMap<usize, Seen>,
    ) -> Result<(Version, Content), IoError> {
        let drives = self.nodes.drives();
        let (mut unsupported, mut passed_over) = (0, BTreeSet::new());
        loop {
            self.nodes.goes_on()?;
            let told: Vec<Told> = seen.values().map(Seen::told).collect();
            let (version, is_complete) = match classify(&told, self.shape.quorum) {
                Candidate::Complete(version) => (version, true),
                Candidate::Repairable(version) => (version, false),
                Candidate::Incomplete(version) => {
                    unsupported += 1;
                    let tellers = || seen.iter().filter(|(_, seen)| seen.version == version).map(|(node, _)| *node);
                    if unsupported > MOST_UNSUPPORTED && tellers().count() <= self.shape.quorum.liars().into() {
                        // Without end they tell of versions that nobody else has: the others suffice.
                        tellers().for_each(|node| self.has_lied(drives[node]));
                        passed_over.extend(tellers());
                        seen = self.look_again(block, Wanted::All).await?;
                        seen.retain(|node, _| !passed_over.contains(node));
                        continue;
                    }
                    if !self.look_before(block, version, &mut seen).await {
                        seen = self.look_again(block, Wanted::Enough).await?;
                    }
                    continue;
                }
                Candidate::Unknown => {
                    seen = self.look_again(block, Wanted::Enough).await?;
                    continue;
                }
            };
            let holds = seen.values().any(|seen| seen.version == version && seen.holds);
            if version.is_none() || !holds {
                match self.spread(block, version, None, &seen, is_complete).await {
                    Err(IoError::NotNow) => seen = self.look_again(block, Wanted::Enough).await?,
                    spread => return spread.map(|()| (version, None)),
                }
                continue;
            }
            let content = self.content(block, version, &mut seen).await;
            if let Fetched::Whole(content, digests) = content {
                match self.spread(block, version, Some((&content, digests)), &seen, is_complete).await {
                    Err(IoError::NotNow) => seen = self.look_again(block, Wanted::Enough).await?,
                    spread => return spread.map(|()| (version, Some(content))),
                }
                continue;
            }
            // Of a complete version, the nodes that told of it have enough right fragments: so this one isn't.
            if !is_complete && matches!(content, Fetched::Wrong) && self.look_before(block, version, &mut seen).await {
                continue;
            }
            seen = self.look_again(block, Wanted::All).await?;
            if let Some(error) = self.damage(block, &seen) {
                return Err(error);
            }
            if self.is_surely_incomplete(version, &seen) && !self.look_before(block, version, &mut seen).await {
                seen = self.look_again(block, Wanted::Enough).await?;
            }
        }
    }

    /// Whether all nodes have answered, and fewer have a version than have each complete one.
    fn is_surely_incomplete(&self, version: Version, seen: &BTreeMap<usize, Seen>) -> bool {
        let holders = seen.values().filter(|seen| seen.version == version).count();
        seen.len() == self.count_voters() && (1..self.fewest_holders()).contains(&holders)
    }

    /// So many nodes at least tell of a version that is complete, if all are asked: some may lie, and one may be of no account as its
    /// fragment moves.
    fn fewest_holders(&self) -> usize {
        let honest = self.shape.quorum.thresholds().complete - self.shape.quorum.liars();
        usize::from(honest) - usize::from(self.nodes.joining().is_some())
    }

    /// Sees to it that a version is complete before it's told. Nodes whose fragments are damaged get them again.
    async fn spread(
        &self,
        block: u64,
        version: Version,
        content: Option<(&Bytes, Vec<Digest>)>,
        seen: &BTreeMap<usize, Seen>,
        is_complete: bool,
    ) -> Result<(), IoError> {
        let is_damaged = |seen: &Seen| seen.holds && seen.is_damaged;
        let of_version = seen.iter().filter(|(_, seen)| seen.version == version);
        let have: Vec<usize> =
            of_version.clone().filter(|(_, seen)| !is_damaged(seen)).map(|(node, _)| *node).collect();
        if version.is_none() || (is_complete && of_version.clone().all(|(_, seen)| !is_damaged(seen))) {
            return Ok(());
        }
        let (fragments, digests) = match content {
            Some((content, digests)) => (Some(self.shape.encode(content)), digests),
            None => (None, Vec::new()),
        };
        let versioned = Versioned { first: block, count: 1, version, fragments, digests };
        if is_complete {
            let column = self.clone();
            self.world.spawn(Box::pin(async move { drop(column.keep(&versioned, &have).await) }));
            return Ok(());
        }
        match self.keep(&versioned, &have).await {
            // Who may only read waits until others have done it: the nodes see to that by themselves.
            Err(IoError::NotAllowed) => Err(IoError::NotNow),
            kept => kept,
        }
    }

    async fn look_again(&self, block: u64, wanted: Wanted) -> Result<BTreeMap<usize, Seen>, IoError> {
        self.world.sleep(MOMENT).await;
        self.look(block, wanted).await
    }

    async fn look(&self, block: u64, wanted: Wanted) -> Result<BTreeMap<usize, Seen>, IoError> {
        let seen = self.ask_all(block, 1, wanted, &NONE).await?.seen;
        Ok(seen.into_iter().filter_map(|(node, mut seen)| Some((node, seen.pop()?))).collect())
    }

    /// Has nodes that told of this version tell of the one before it. `false` if one of them has forgotten it: a later version is
    /// complete.
    async fn look_before(&self, block: u64, version: Version, seen: &mut BTreeMap<usize, Seen>) -> bool {
        let drives = self.nodes.drives();
        let tellers: Vec<usize> =
            seen.iter().filter(|(_, seen)| seen.version == version).map(|(node, _)| *node).collect();
        let question = |node: &usize| {
            let which = Which::Before(version);
            let question = NodeOperation::Read { first: block, count: 1, which, data: true, complete: Vec::new() };
            (*node, drives[*node], question, Payload::none())
        };
        let mut asked = self.ask(tellers.iter().map(question).collect());
        let mut left = tellers.len();
        while left > 0 {
            let Some(said) = self.soon(&mut asked).await else { return false };
            left -= 1;
            let Ok((NodeAnswer::Versions { versions }, bytes)) = said.what else { return false };
            match self.blocks_of(block, 1, versions, bytes, true).map(|mut blocks| blocks.pop()) {
                Ok(Some(before)) if before.version < version => drop(seen.insert(said.node, before)),
                Err(Unheard::Gone) => return false,
                _ => {
                    self.has_lied(drives[said.node]);
                    return false;
                }
            }
        }
        true
    }

    /// The content of a version, of as many right fragments as suffice: those that have come, and those of other holders.
    async fn content(&self, block: u64, version: Version, seen: &mut BTreeMap<usize, Seen>) -> Fetched {
        let drives = self.nodes.drives();
        let mut fragments = self.right_ones(version, seen, &drives);
        if !suffice(&fragments, &self.shape) {
            let without = |(node, seen): (&usize, &Seen)| {
                (seen.version == version && !fragments.contains_key(node)).then_some(*node)
            };
            let others: Vec<usize> = seen.iter().filter_map(without).collect();
            let question = |node: &usize| {
                let which = Which::At(version);
                let question = NodeOperation::Read { first: block, count: 1, which, data: true, complete: Vec::new() };
                (*node, drives[*node], question, Payload::none())
            };
            let mut asked = self.ask(others.iter().map(question).collect());
            let mut left = others.len();
            while left > 0 && !suffice(&fragments, &self.shape) {
                let Some(said) = self.soon(&mut asked).await else { return Fetched::NotNow };
                left -= 1;
                let Ok((NodeAnswer::Versions { versions }, bytes)) = said.what else { continue };
                if let Ok(Some(of_block)) = self.blocks_of(block, 1, versions, bytes, true).map(|mut all| all.pop())
                    && of_block.version == version
                {
                    seen.insert(said.node, of_block);
                    fragments = self.right_ones(version, seen, &drives);
                }
            }
        }
        let mut holders = seen.values().filter(|seen| seen.version == version);
        if !suffice(&fragments, &self.shape) {
            let have_come = holders.all(|seen| seen.fragment.is_some());
            return if have_come { Fetched::Wrong } else { Fetched::NotNow };
        }
        let Some(digests) = holders.find(|seen| seen.fragment.is_some()).map(|seen| seen.digests.clone()) else {
            return Fetched::NotNow;
        };
        let fragments: Vec<(usize, Bytes)> = fragments.into_iter().collect();
        Fetched::Whole(self.shape.decode(1, &fragments), digests)
    }

    fn right_ones(&self, version: Version, seen: &BTreeMap<usize, Seen>, drives: &[DriveId]) -> Fragments {
        let mut fragments = Fragments::new();
        for (node, seen) in seen.iter().filter(|(_, seen)| seen.version == version) {
            let Some(bytes) = &seen.fragment else { continue };
            match self.is_right(*node, bytes, &seen.digests) {
                true => drop(fragments.insert(*node, bytes.clone())),
                false => self.has_lied(drives[*node]),
            }
        }
        fragments
    }

    /// The block can't be read at all if all nodes have answered, so many have its latest version that it may be complete, and too few of
    /// their fragments are right.
    fn damage(&self, block: u64, seen: &BTreeMap<usize, Seen>) -> Option<IoError> {
        let version = seen.values().map(|seen| seen.version).max()?;
        let of_version = seen.iter().filter(|(_, seen)| seen.version == version && seen.holds);
        let is_right = |node: usize, seen: &Seen| {
            seen.fragment.as_ref().is_some_and(|bytes| self.is_right(node, bytes, &seen.digests))
        };
        let right = of_version.clone().filter(|(node, seen)| is_right(**node, seen)).count();
        let all = seen.len() == self.count_voters();
        let may_be_complete = of_version.count() >= self.fewest_holders().max(1);
        let error = IoError::Damaged { offset: block * BLOCK, length: BLOCK };
        (all && may_be_complete && right < self.shape.quorum.data().into()).then_some(error)
    }

    /// Has all nodes that can be reached keep the latest versions of some blocks. How many blocks were written to nodes that lacked
    /// them, or had them damaged. It fails if one of the drives in `healed_drives` doesn't answer.
    pub async fn heal(
        &self,
        first: u64,
        count: u32,
        look: Look,
        healed_drives: &BTreeSet<DriveId>,
    ) -> Result<u32, IoError> {
        let mut healed = 0;
        let most = self.shape.most_blocks();
        for start in (0..count).step_by(most as usize) {
            let (first, count) = (first + u64::from(start), (count - start).min(most));
            let wanted = if look == Look::AtFragments { Wanted::All } else { Wanted::AllVersions };
            let Answers { seen: all, has_gone } = self.ask_all(first, count, wanted, healed_drives).await?;
            for index in 0..count {
                let of_block = of_block(&all, index);
                let newest = of_block.values().map(|seen| seen.version).max();
                let wrong = |(node, seen): (&usize, &Seen)| {
                    let is_right = |bytes: &Bytes| self.is_right(*node, bytes, &seen.digests);
                    let is_whole = || !seen.holds || seen.fragment.as_ref().is_some_and(is_right);
                    Some(seen.version) != newest || seen.is_damaged || (look == Look::AtFragments && !is_whole())
                };
                if has_gone || of_block.iter().any(wrong) {
                    healed += u32::from(self.heal_block(first + u64::from(index), of_block, healed_drives).await?);
                }
            }
        }
        Ok(healed)
    }

    async fn heal_block(
        &self,
        block: u64,
        seen: BTreeMap<usize, Seen>,
        healed_drives: &BTreeSet<DriveId>,
    ) -> Result<bool, IoError> {
        self.settle_block(block, seen).await?;
        let mut seen = self.look_again(block, Wanted::All).await?;
        let told: Vec<Told> = seen.values().map(Seen::told).collect();
        // Else somebody writes it now, to all nodes that can be reached.
        let Candidate::Complete(version) = classify(&told, self.shape.quorum) else { return Ok(false) };
        let holds = seen.values().any(|seen| seen.version == version && seen.holds);
        let content = match holds {
            true => match self.content(block, version, &mut seen).await {
                Fetched::Whole(content, digests) => Some((content, digests)),
                Fetched::NotNow | Fetched::Wrong => None,
            },
            false => None,
        };
        if version.is_none() || holds != content.is_some() {
            return Ok(false);
        }
        let is_right = |node: &usize, seen: &Seen| {
            let is_right = |bytes: &Bytes| self.is_right(*node, bytes, &seen.digests);
            seen.version == version && (!seen.holds || seen.fragment.as_ref().is_some_and(is_right))
        };
        let all = self.voters().map(|(node, _)| node);
        let lacking: Vec<usize> = all.filter(|node| !seen.get(node).is_some_and(|seen| is_right(node, seen))).collect();
        let (fragments, digests) = match &content {
            Some((content, digests)) => (Some(self.shape.encode(content)), digests.clone()),
            None => (None, Vec::new()),
        };
        self.hand_out(&Versioned { first: block, count: 1, version, fragments, digests }, &lacking, healed_drives)
            .await?;
        Ok(!lacking.is_empty())
    }

    /// Writes a version to these nodes: to those of `healed_drives` for certain, to the others as far as they answer soon.
    async fn hand_out(
        &self,
        versioned: &Versioned,
        nodes: &[usize],
        healed_drives: &BTreeSet<DriveId>,
    ) -> Result<(), IoError> {
        let drives = self.nodes.drives();
        let question = |node: &usize| (*node, drives[*node], versioned.question(Vec::new()), versioned.payload(*node));
        let mut asked = self.ask(nodes.iter().map(question).collect());
        let lacks_it = |node: &usize| healed_drives.contains(&drives[*node]).then_some(drives[*node]);
        let mut silent: BTreeSet<DriveId> = nodes.iter().filter_map(lacks_it).collect();
        for _ in nodes {
            let patience = if silent.is_empty() { PATIENCE } else { HEALING };
            let Some(said) = self.within(patience, &mut asked).await else { break };
            silent.remove(&drives[said.node]);
            if let Err(failure) = said.what
                && healed_drives.contains(&drives[said.node])
            {
                return Err(why(&[failure]));
            }
        }
        all_have_answered(&silent)
    }
}

fn all_have_answered(silent: &BTreeSet<DriveId>) -> Result<(), IoError> {
    let Some(drive) = silent.first() else { return Ok(()) };
    Err(IoError::Unavailable { reason: format!("drive {drive} doesn't answer") })
}

impl Seen {
    fn told(&self) -> Told {
        Told { version: self.version, is_complete: self.is_complete }
    }
}

/// What nodes have said of one of several blocks, counted from the first.
pub(super) fn told(seen: &BTreeMap<usize, Vec<Seen>>, index: u32) -> Vec<Told> {
    seen.values().map(|seen| seen[index as usize].told()).collect()
}

/// The same with all that they said.
pub(super) fn of_block(seen: &BTreeMap<usize, Vec<Seen>>, index: u32) -> BTreeMap<usize, Seen> {
    seen.iter().map(|(node, seen)| (*node, seen[index as usize].clone())).collect()
}

/// The fragments one after another; without copying where they lie so.
fn side_by_side<'a>(fragments: impl Iterator<Item = &'a Bytes>) -> Bytes {
    let fragments: Vec<&Bytes> = fragments.collect();
    match fragments.as_slice() {
        [one] => (*one).clone(),
        fragments => {
            let mut all = BytesMut::with_capacity(fragments.iter().map(|bytes| bytes.len()).sum());
            fragments.iter().for_each(|bytes| all.extend_from_slice(bytes));
            all.freeze()
        }
    }
}

/// A part of the pieces.
fn cut(pieces: Segments, range: Range<u64>) -> Segments {
    let mut at = 0u64;
    let mut parts = Segments::new();
    for piece in pieces {
        let (from, to) = (range.start.clamp(at, at + piece.len() as u64), range.end.clamp(at, at + piece.len() as u64));
        if from < to {
            parts.push(piece.slice((from - at) as usize..(to - at) as usize));
        }
        at += piece.len() as u64;
    }
    parts
}
