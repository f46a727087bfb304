//! The drives that hold a group's copies, and what each of them knows.
//!
//! A drive that leaves misses writes; the others keep stale marks for it, by region. When the drive returns, it notes
//! on itself what it misses. From then on the drive is up, though some regions have yet to be copied.
//!
//! It's agreed which copies of a column are *complete*: a complete copy has everything that was ever acknowledged or
//! read, except in regions that its own marks call stale. A copy stays complete while its drive is away, until it's
//! *passed over*. That is agreed before the others write anything, or resolve a difference, without the copy
//! (`counted.rs`). After any sequence of leaving and returning, three rules say whose data counts (decision 0004):
//! 1. A drive's word about itself counts. Its word about another drive counts if the other was passed over while this
//!    drive's own copy was complete. A returned drive's word about a drive that is here doesn't count while a drive with
//!    authority has been here: that one knows, and the other may have caught up meanwhile.
//! 2. Drives with complete copies have authority. Drives that say of themselves that they can't know don't count.
//! 3. A copy is clean in a region if a drive with authority is here, and no word that counts calls the copy stale.
//!
//! A drive that joins, to take another's place, gets all writes and is brought up to date; its misses aren't noted. Its
//! word doesn't count, nor does its copy for an acknowledgement: the next primary begins it anew (`join.rs`).

pub mod complaint;
pub mod counted;
pub mod health;
pub mod hearing;
pub mod join;
pub mod presence;

use crate::holder::Holder;
use crate::map::{Among, Column};
use crate::places::CopyStatus;
use crate::view::View;
use smallvec::{SmallVec, smallvec};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use tepal_drive::world::World;
use tepal_drive::{Mark, MarkKind};
use tepal_model::DriveId;

/// One drive of the group. A member and its copy have the same number.
pub struct Member<W: World> {
    pub id: DriveId,
    pub presence: Presence<W>,
    /// `None` while the drive is up. Else the view in which the drive left.
    pub left: Option<View>,
    /// Whether the copy is complete, as agreed.
    pub status: CopyStatus,
    pub missed: Missed,
    /// How often the drive was opened: tells whether the drive left in between.
    pub opening: u64,
    /// How often the drive had no room for decided data where it's behind: tells whether it must be brought up to date
    /// again.
    pub left_out: u64,
    /// Whether the drive's log says all that this drive and others miss, as far as is known here.
    pub noted: bool,
    pub role: Role,
    /// Which fragment the member keeps: its own number, or that of the member whose place it's to take.
    pub fragment: usize,
}

/// What a member is to its column, beside what is agreed of its copy. These transitions are all there are:
/// - `Holds` and `Knew` become each other whenever another member leaves ([`Member::note_whether_it_knows`]);
/// - `Knew` becomes `StandsIn` when the last complete copy has failed ([`Member::last_complete_failed`]);
/// - `StandsIn` becomes `Knew` when it's agreed that the copy is complete ([`Member::is_complete`]);
/// - `Knew` and `StandsIn` become `Holds` when the drive comes, goes or is up ([`Member::stand_for_itself`]);
/// - `Joins` stays: once the drive has its place, the column has another group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The drive has its place.
    Holds,
    /// The same. And the drive knew what it misses when the last drive with a complete copy left, and has been here
    /// since.
    Knew,
    /// The drive knew, and the last complete copy has failed: this drive's data is all there is, and is believed. But
    /// nothing is acknowledged on its word before it's agreed that its copy is complete: after a restart the drive
    /// would not be believed.
    StandsIn,
    /// The drive is to take another's place, and doesn't have it yet.
    Joins,
}

/// Regions in which a drive's copy missed writes, each with the members whose logs say so. Every drive that has taken a
/// missed write must have the mark.
#[derive(Debug, Default)]
pub struct Missed {
    regions: BTreeMap<u64, Witnesses>,
    /// The drive says itself that it can't know what it has: the drives that knew have failed.
    all: bool,
    /// The drive joins, and it isn't known yet which regions hold anything.
    unlisted: bool,
}

/// Members by number.
type Witnesses = SmallVec<[u8; 8]>;

impl Missed {
    /// For a joining drive: every region is missed, until it's known which regions hold anything.
    pub fn unlisted() -> Self {
        Missed { unlisted: true, ..Missed::default() }
    }

    pub fn is_unlisted(&self) -> bool {
        self.unlisted
    }

    /// Lists the regions that hold anything: the drive misses no others.
    pub fn list(&mut self, regions: impl IntoIterator<Item = u64>) {
        regions.into_iter().for_each(|region| self.begin(region));
        self.unlisted = false;
    }

    pub fn contains(&self, region: u64) -> bool {
        self.all || self.unlisted || self.regions.contains_key(&region)
    }

    pub fn is_empty(&self) -> bool {
        !self.all && !self.unlisted && self.regions.is_empty()
    }

    pub fn len(&self) -> u64 {
        self.regions.len() as u64
    }

    /// The regions in which the drive can be brought up to date.
    pub fn regions(&self) -> impl Iterator<Item = u64> {
        self.regions.keys().copied()
    }

    pub fn is_all(&self) -> bool {
        self.all
    }

    pub fn begin_all(&mut self) {
        self.all = true;
    }

    /// From now on the region counts as missed; no log says so yet.
    pub fn begin(&mut self, region: u64) {
        self.regions.entry(region).or_default();
    }

    /// A drive's log says that a region is missed which was begun before.
    pub fn said(&mut self, region: u64, by: usize) {
        let by = by as u8;
        if let Some(witnesses) = self.regions.get_mut(&region).filter(|witnesses| !witnesses.contains(&by)) {
            witnesses.push(by);
        }
    }

    pub fn is_said(&self, region: u64, by: usize) -> bool {
        self.regions.get(&region).is_some_and(|witnesses| witnesses.contains(&(by as u8)))
    }

    /// A drive's log won't say so any more. Returns whether it did.
    pub fn unsay_one(&mut self, region: u64, by: usize) -> bool {
        let Some(witnesses) = self.regions.get_mut(&region) else { return false };
        let before = witnesses.len();
        witnesses.retain(|witness| usize::from(*witness) != by);
        witnesses.len() < before
    }

    /// The region is up to date. Returns the drives whose logs say otherwise.
    pub fn end(&mut self, region: u64) -> Option<impl Iterator<Item = usize> + use<>> {
        let witnesses = self.regions.remove(&region)?;
        Some(witnesses.into_iter().map(usize::from))
    }

    /// The missed regions that a drive's log doesn't say, from `first` on.
    pub fn unsaid(&self, by: usize, first: u64) -> impl Iterator<Item = u64> {
        let unsaid = move |(_, witnesses): &(&u64, &Witnesses)| !witnesses.contains(&(by as u8));
        self.regions.range(first..).filter(unsaid).map(|(&region, _)| region)
    }

    /// Forgets what a drive said: the drive is heard anew.
    fn unsay(&mut self, by: usize) {
        self.regions.values_mut().for_each(|witnesses| witnesses.retain(|witness| usize::from(*witness) != by));
    }
}

pub enum Presence<W: World> {
    Here(Holder<W>),
    /// The drive is up, on another server, and hasn't been asked yet what it knows: until then all requests wait.
    Unheard,
    /// The drive is being declared down. Until that is agreed, writes to its copies wait.
    Leaving,
    /// The drive may return.
    Missing,
    /// The drive is retired for good.
    Failed,
}

impl<W: World> Member<W> {
    pub fn drive(&self) -> Option<&Holder<W>> {
        match &self.presence {
            Presence::Here(drive) => Some(drive),
            Presence::Unheard | Presence::Leaving | Presence::Missing | Presence::Failed => None,
        }
    }

    pub fn is_current(&self) -> bool {
        self.left.is_none()
    }

    /// Whether the drive has its place, and was away.
    pub fn is_behind(&self) -> bool {
        !self.is_current() && !self.joins()
    }

    fn dropped_tail(&self) -> bool {
        self.drive().is_some_and(Holder::dropped_tail)
    }

    /// A drive that can't know what it has itself knows nothing of others either.
    fn may_know(&self) -> bool {
        !self.missed.is_all() && !self.joins()
    }

    /// The drive is up, or left in that view.
    pub fn set_left(&mut self, left: Option<View>) {
        // A joining drive has never been up here.
        self.left = if self.joins() { Some(0) } else { left };
    }

    /// The drive isn't here any more. A joining drive begins anew when it's back.
    pub fn begin_anew(&mut self) {
        if self.joins() {
            self.missed = Missed::unlisted();
        }
    }

    /// Orders drives by whose word counts about whom: a later view is greater, and a complete copy's order is the
    /// greatest.
    fn order(&self) -> View {
        if self.stands_in() { View::MAX } else { self.status.order() }
    }

    /// Whether the drive won't return, and other copies may be served as they are in its place.
    fn is_given_up(&self) -> bool {
        matches!((&self.presence, self.status), (Presence::Failed, CopyStatus::GivenUp(_)))
    }

    /// Whether the drive is to take another's place.
    pub fn joins(&self) -> bool {
        self.role == Role::Joins
    }

    /// Whether the drive's copy is believed in place of the last complete one, which has failed.
    pub fn stands_in(&self) -> bool {
        self.role == Role::StandsIn
    }

    /// Of a drive with a place, before another leaves: whether it knows what it misses.
    pub fn note_whether_it_knows(&mut self, knows: bool) {
        self.role = match self.role {
            Role::Holds | Role::Knew if knows => Role::Knew,
            Role::Holds | Role::Knew => Role::Holds,
            Role::StandsIn | Role::Joins => self.role,
        };
    }

    /// The last complete copy has failed: a drive that knew stands in.
    pub fn last_complete_failed(&mut self) {
        if self.role == Role::Knew {
            self.role = Role::StandsIn;
        }
    }

    /// It's agreed that the copy is complete: the drive is believed for that.
    pub fn is_complete(&mut self) {
        self.status = CopyStatus::Complete;
        if self.stands_in() {
            self.role = Role::Knew;
        }
    }

    /// The drive has come or gone, or is up: it doesn't stand in any more.
    pub fn stand_for_itself(&mut self) {
        if !self.joins() {
            self.role = Role::Holds;
        }
    }
}

/// Stands for all regions in which no copy is behind.
pub const NOT_MISSED: u64 = u64::MAX;

/// What can be done with the fragments of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// Members with clean data. Where their copies may differ, the first decides. Members with authority come first,
    /// for their data may have been read meanwhile. A drive that dropped the end of its log comes after drives that
    /// didn't. A drive that is up, or left later, comes before a drive that left earlier. This server's drives, which
    /// know the requests that they have taken, come before others.
    Clean(SmallVec<[usize; 4]>),
    /// No clean copy is here now, but a drive may return.
    Waiting,
    /// No clean copy is left: the drive that had it is retired.
    Lost,
    /// The same of fragments, of which too few are left. And an operator has accepted that: nothing is held there any more.
    GivenUp,
}

pub struct Members<W: World> {
    pub list: SmallVec<[Member<W>; 2]>,
    /// How many clean fragments are needed to read: 1 of whole copies.
    pub needed: usize,
}

impl<W: World> Members<W> {
    pub fn of(list: impl Iterator<Item = Member<W>>, needed: usize) -> Self {
        Members { list: list.collect(), needed }
    }

    pub fn position(&self, id: DriveId) -> Option<usize> {
        self.list.iter().position(|member| member.id == id)
    }

    pub fn here(&self) -> impl Iterator<Item = &Holder<W>> {
        self.list.iter().filter_map(Member::drive)
    }

    /// The order of the members with authority.
    fn newest(&self) -> View {
        self.list.iter().filter(|member| member.may_know()).map(Member::order).max().unwrap_or(0)
    }

    /// Whether a drive other than this one is here, heard, and knows what the others miss; and no drive is yet to be heard.
    pub fn is_known_without(&self, at: usize) -> bool {
        let mut others = self.with_authority().filter(|member| member.id != self.list[at].id);
        !self.has_unheard() && others.any(|member| member.drive().is_some())
    }

    fn with_authority(&self) -> impl Iterator<Item = &Member<W>> {
        let newest = self.newest();
        self.list.iter().filter(move |member| member.may_know() && member.order() == newest)
    }

    /// Whether a drive is here that knows what the others miss.
    pub fn is_known(&self) -> bool {
        self.with_authority().any(|member| member.drive().is_some())
    }

    /// Whether all drives that knew what the others miss won't return.
    pub fn is_beyond_knowing(&self) -> bool {
        self.with_authority().all(|member| matches!(member.presence, Presence::Failed))
    }

    /// Which of the whole copies of a region are clean.
    pub fn clean_copies(&self, column: &Column, region: u64) -> RegionState {
        let keepers = column.keepers(region);
        match self.clean(region) {
            RegionState::Clean(mut clean) if keepers != Among::ALL => {
                clean.retain(|at| keepers.contains(self.list[*at].fragment));
                if clean.is_empty() { RegionState::Waiting } else { RegionState::Clean(clean) }
            }
            state => state,
        }
    }

    /// The same, also of what is left of the log of a region of which too few fragments are left.
    pub fn clean_copies_left(&self, column: &Column, region: u64) -> RegionState {
        match self.clean_copies(column, region) {
            RegionState::Lost => {
                let mut left = self.left_of(region);
                left.retain(|at| column.keepers(region).contains(self.list[*at].fragment));
                if left.is_empty() { RegionState::Lost } else { RegionState::Clean(left) }
            }
            state => state,
        }
    }

    /// Which fragments of a region are clean, at least as many as are needed. A fragment counts once, though a drive may join that is to
    /// keep it too.
    pub fn clean(&self, region: u64) -> RegionState {
        if self.has_unheard() {
            return RegionState::Waiting;
        }
        let may_return = |member: &&Member<W>| !matches!(member.presence, Presence::Failed);
        let waits = if self.is_known() {
            let is_clean = |member: &&Member<W>| !member.missed.contains(region);
            let here = |&(_, member): &(usize, &Member<W>)| member.drive().is_some() && is_clean(&member);
            let here = self.list.iter().enumerate().filter(here);
            let mut copies: SmallVec<[usize; 4]> = here.map(|(at, _)| at).collect();
            if self.are_enough(copies.iter().map(|&at| &self.list[at])) {
                self.sort_by_belief(&mut copies);
                return RegionState::Clean(copies);
            }
            if self.needed > 1 {
                let may_be_here = |member: &&Member<W>| is_clean(member) && may_return(member);
                let mut failed = self.list.iter().filter(|member| is_clean(member) && !may_return(member)).peekable();
                return match self.are_enough(self.list.iter().filter(may_be_here)) {
                    true => RegionState::Waiting,
                    false if failed.peek().is_some() && failed.all(Member::is_given_up) => RegionState::GivenUp,
                    false => RegionState::Lost,
                };
            }
            let mut clean = self.list.iter().filter(is_clean).peekable();
            if clean.peek().is_some()
                && clean.clone().all(Member::is_given_up)
                && let Some(at) = self.newest_remaining()
            {
                return RegionState::Clean(smallvec![at]);
            }
            clean.any(|member| may_return(&member))
        } else {
            self.with_authority().any(|member| may_return(&member))
        };
        if waits { RegionState::Waiting } else { RegionState::Lost }
    }

    /// The members here with clean fragments of a region that is lost: too few to decode what the others had, and right for themselves.
    pub fn left_of(&self, region: u64) -> SmallVec<[usize; 4]> {
        let is_left =
            |member: &Member<W>| member.drive().is_some() && !member.joins() && !member.missed.contains(region);
        let knows = self.is_known() && !self.has_unheard();
        (0..self.list.len()).filter(|&at| knows && is_left(&self.list[at])).collect()
    }

    fn are_enough<'a>(&self, members: impl Iterator<Item = &'a Member<W>>) -> bool
    where
        W: 'a,
    {
        let mut members = members.peekable();
        if self.needed == 1 {
            return members.peek().is_some();
        }
        let fragments: BTreeSet<usize> = members.map(|member| member.fragment).collect();
        fragments.len() >= self.needed
    }

    /// Sorts copies by belief: where they differ, the first decides.
    fn sort_by_belief(&self, copies: &mut [usize]) {
        if copies.len() > 1 {
            let newest = self.newest();
            let is_far = |member: &Member<W>| member.drive().is_some_and(|holder| holder.local().is_none());
            // Of complete copies that were away, a copy that left later may have been read later.
            let left = |member: &Member<W>| Reverse(member.left.unwrap_or(View::MAX));
            let order =
                |member: &Member<W>| (member.order() != newest, member.dropped_tail(), left(member), is_far(member));
            copies.sort_by_cached_key(|&at| order(&self.list[at]));
        }
    }

    /// Whether what no member missed is given up.
    pub fn has_given_up(&self) -> bool {
        self.clean(NOT_MISSED) == RegionState::GivenUp
    }

    /// Whether some of it may have been given up since drives that failed had their places: which regions isn't known once they are
    /// served again.
    pub fn may_have_given_up(&self) -> bool {
        self.needed > 1 && self.list.iter().any(Member::is_given_up)
    }

    /// Whether each member that holds anything of the column is here, or won't return.
    pub fn are_all_here(&self) -> bool {
        let is_told =
            |member: &Member<W>| matches!(member.presence, Presence::Here(_) | Presence::Failed) || member.joins();
        self.list.iter().all(is_told)
    }

    /// Whether the drives that are here show each region that any drive may hold something of. Fragments that are enough to read are also
    /// enough to know what any log has. With fewer, a drive that is away may have what no other has: it's waited for, and so is
    /// an operator's word if it has failed. Of what is given up, all members have to be asked: one that returned later would bring back
    /// what it held.
    pub fn show_all_that_is_held(&self) -> bool {
        match self.clean(NOT_MISSED) {
            RegionState::Clean(_) => true,
            RegionState::GivenUp => self.are_all_here(),
            RegionState::Waiting | RegionState::Lost => false,
        }
    }

    /// The copy that is served as it is, where no copy that counts is left.
    fn newest_remaining(&self) -> Option<usize> {
        let here = self.list.iter().enumerate().filter(|(_, member)| member.drive().is_some() && !member.joins());
        let mut here: SmallVec<[usize; 4]> = here.map(|(at, _)| at).collect();
        self.sort_by_belief(&mut here);
        here.first().copied()
    }

    pub fn has_unheard(&self) -> bool {
        self.list.iter().any(|member| matches!(member.presence, Presence::Unheard))
    }

    /// Whether each copy of a region is here, or called stale by all drives that are here. Whether any other copy
    /// differs is found out when it returns.
    pub fn is_decided(&self, region: u64) -> bool {
        let here = || self.list.iter().enumerate().filter(|(_, member)| member.drive().is_some());
        let is_decided = |member: &Member<W>| match member.presence {
            _ if member.joins() => true,
            Presence::Here(_) | Presence::Failed => true,
            Presence::Unheard => false,
            Presence::Leaving | Presence::Missing => {
                here().next().is_some() && here().all(|(by, _)| member.missed.is_said(region, by))
            }
        };
        self.list.iter().all(is_decided)
    }

    /// How many of these copies will be believed whichever of the others is lost.
    pub fn sure(&self, copies: &[usize]) -> usize {
        let newest = self.newest();
        let is_sure = |member: &Member<W>| member.order() == newest && !member.stands_in() && !member.joins();
        copies.iter().filter(|&&at| is_sure(&self.list[at])).count()
    }

    /// The members that have a region without a clean copy here: the region can't be read without them.
    pub fn wanted(&self, region: u64) -> impl Iterator<Item = &Member<W>> {
        let (known, newest) = (self.is_known(), self.newest());
        let has = move |member: &&Member<W>| match known {
            true => !member.missed.contains(region),
            false => member.may_know() && member.order() == newest,
        };
        self.list.iter().filter(has)
    }

    /// Whether the word of a drive with this order about another drive doesn't count, as the other knows more. Both
    /// have their places.
    fn is_overruled(&self, drive: DriveId, order: View, joins: bool) -> bool {
        let about = self.list.iter().find(|member| member.id == drive && !member.joins());
        !joins && about.is_some_and(|about| about.order() > order)
    }

    /// Takes in what a drive that is here says, in place of what the drive said before. Marks that don't count are
    /// outdated. So are marks of a drive that was away about one that is here, `if_known`: the drives that were here know
    /// what it misses, and may have brought it up to date meanwhile.
    pub fn hear(&mut self, speaker: usize, column: &Column, marks: &[Mark], if_known: bool) -> Heard {
        let (id, order) = (self.list[speaker].id, self.list[speaker].order());
        let joins = self.list[speaker].joins();
        let mut heard = Heard::default();
        for member in &mut self.list {
            member.missed.unsay(speaker);
            member.noted = false; // the member may learn something
        }
        let of_column = |mark: &&Mark| mark.map == column.map && column.has(mark.region);
        for mark in marks.iter().filter(of_column) {
            match mark.kind {
                MarkKind::Busy => {
                    heard.busy.insert(mark.region);
                }
                MarkKind::Stale(drive) => {
                    let is_overruled = self.is_overruled(drive, order, joins) && mark.region != column.every_region();
                    let about = self.list.iter_mut().find(|member| member.id == drive && !member.joins());
                    let about = about.filter(|_| !joins); // a joining drive's marks are from a time when it had another's place
                    let counts =
                        |about: &&mut Member<W>| about.order() < order && !(if_known && about.drive().is_some());
                    match about.filter(|about| about.id == id || counts(about)) {
                        Some(about) if mark.region == column.every_region() => about.missed.begin_all(),
                        Some(about) => {
                            about.missed.begin(mark.region);
                            about.missed.said(mark.region, speaker);
                        }
                        None if is_overruled => drop(heard.overruled.insert(mark.region)),
                        None => heard.outdated.push(*mark),
                    }
                }
            }
        }
        heard
    }
}

/// What a drive's marks amount to.
#[derive(Debug, Default)]
pub struct Heard {
    pub busy: BTreeSet<u64>,
    /// Regions in which a copy that isn't complete calls a complete one stale: their fragments may differ.
    pub overruled: BTreeSet<u64>,
    pub outdated: Vec<Mark>,
}

/// A region with writes under way, or whose copies aren't all known to be stable.
#[derive(Debug, Default)]
pub struct BusyRegion {
    pub under_way: usize,
    /// Writes so far: tells whether there was a write in between.
    pub writes: u64,
    /// Members on which the region's busy mark is committed.
    pub marked: BTreeSet<usize>,
}

pub type BusyRegions = BTreeMap<u64, BusyRegion>;
