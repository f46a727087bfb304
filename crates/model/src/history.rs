//! A map's epochs: which of the data that drives keep of different times a reader sees.
//!
//! A volume writes in its newest epoch. A snapshot keeps what the volume saw up to some epoch, and the volume goes on in another, as
//! Petal's snapshots do (section 2.2); a clone goes on from a snapshot in an epoch of its own, and so does a volume that is rolled
//! back. So the epochs of a map are a tree, and who reads sees those on the way from one of them to the root. Drives keep a *layer* of
//! an extent for each epoch in which some of it was written; of each block a reader sees the newest layer that it sees at all.
//!
//! Invariants:
//! 1. Epochs are never used again. One that a reader is made with is higher than all before it.
//! 2. A reader sees all epochs of the reader that it was made from, besides its own. So a reader that is made later sees of earlier
//!    epochs exactly what some earlier reader saw: what no reader could tell apart once, no later one can.

use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

/// Counts a map's snapshots, clones and rollbacks. The first that is written in is 1; what drives of earlier builds hold is of 0.
pub type Epoch = u32;

/// The epoch that every map begins with.
pub const FIRST_EPOCH: Epoch = 1;

/// No higher view gives its number to an epoch: the rest of them is for those that are counted.
const MOST_OF_VIEWS: Epoch = 1 << 31;

/// Spans that one lineage may have: one more than gaps between them. What lies in a gap others see, or it's still to be closed.
pub const MAX_SPANS: usize = 256;

/// First and last of a run of epochs.
pub type Span = (Epoch, Epoch);

/// The epochs that one reader sees, and those that only it sees.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lineage {
    /// First and last of each run: ascending, with a gap between any two.
    spans: SmallVec<[(Epoch, Epoch); 1]>,
    /// What this reader sees of this epoch and later ones nobody else does: it's changed in place.
    own: Epoch,
}

impl Default for Lineage {
    /// Of a map that has never had a snapshot.
    fn default() -> Self {
        Lineage { spans: SmallVec::from_iter([(0, FIRST_EPOCH)]), own: 0 }
    }
}

impl Lineage {
    /// `None` if these are no spans, ascending and apart, or too many; or the newest epoch isn't the reader's own.
    pub fn new(spans: impl IntoIterator<Item = (Epoch, Epoch)>, own: Epoch) -> Option<Self> {
        let spans: SmallVec<[(Epoch, Epoch); 1]> = spans.into_iter().take(MAX_SPANS + 1).collect();
        let ascends = spans.windows(2).all(|pair| pair[1].0 > pair[0].1 && pair[1].0 - pair[0].1 > 1);
        let is_one = ascends && spans.iter().all(|(first, last)| first <= last) && spans.len() <= MAX_SPANS;
        let newest = spans.last()?.1;
        (is_one && own <= newest).then_some(Lineage { spans, own })
    }

    /// First and last of each run of epochs that are seen, ascending.
    pub fn spans(&self) -> &[(Epoch, Epoch)] {
        &self.spans
    }

    /// The newest epoch that is seen: that of new layers.
    pub fn newest(&self) -> Epoch {
        self.spans.last().map_or(0, |span| span.1)
    }

    /// What this reader sees of this epoch and later ones nobody else does.
    pub fn own(&self) -> Epoch {
        self.own
    }

    /// Whether layers of this epoch are seen.
    pub fn sees(&self, epoch: Epoch) -> bool {
        self.spans.iter().rev().any(|&(first, last)| (first..=last).contains(&epoch))
    }

    /// Whether layers of this epoch are seen by nobody else.
    pub fn owns(&self, epoch: Epoch) -> bool {
        epoch >= self.own && self.sees(epoch)
    }

    /// Of what is seen, that which nobody else sees; `None` if that isn't one.
    pub fn own_part(&self) -> Option<Lineage> {
        let spans = self.spans.iter().filter(|span| span.1 >= self.own);
        Lineage::new(spans.map(|&(first, last)| (first.max(self.own), last)), self.own)
    }

    /// The rest; `None` if there's none.
    pub fn older_part(&self) -> Option<Lineage> {
        let last = self.own.checked_sub(1)?;
        let spans = self.spans.iter().filter(|span| span.0 <= last);
        Lineage::new(spans.map(|&(first, end)| (first, end.min(last))), 0)
    }

    /// Of what is seen, that which the other sees too; `None` if there's none.
    pub fn shared_with(&self, other: &Lineage) -> Option<Lineage> {
        Lineage::new(self.upto(shared_up_to(self, other)?), 0)
    }

    /// Of what is seen, that which the other doesn't see; `None` if there's none.
    pub fn unshared_with(&self, other: &Lineage) -> Option<Lineage> {
        let first = shared_up_to(self, other).map_or(0, |last| last.saturating_add(1));
        let spans = self.spans.iter().filter(|span| span.1 >= first);
        Lineage::new(spans.map(|&(from, last)| (from.max(first), last)), 0)
    }

    /// The same epochs and a new one, which is higher than all.
    #[must_use]
    pub fn with(&self, epoch: Epoch) -> Option<Lineage> {
        self.with_run(epoch, epoch)
    }

    /// The same with a run of new ones. Only the last is written in: no other was or will be handed out.
    #[must_use]
    pub fn with_run(&self, first: Epoch, newest: Epoch) -> Option<Lineage> {
        let mut spans = self.spans.clone();
        match spans.last_mut() {
            Some(last) if last.1.checked_add(1) == Some(first) => last.1 = newest,
            _ => spans.push((first, newest)),
        }
        Lineage::new(spans, self.own)
    }

    /// The same, and each of these gaps that lies between two of its spans: see [`gaps`].
    #[must_use]
    pub fn closing(&self, gaps: &[Span]) -> Lineage {
        let mut spans: SmallVec<[Span; 1]> = SmallVec::new();
        for &(first, last) in &self.spans {
            match spans.last_mut() {
                Some(before) if gaps.binary_search(&(before.1 + 1, first - 1)).is_ok() => before.1 = last,
                _ => spans.push((first, last)),
            }
        }
        Lineage { spans, own: self.own }
    }

    /// The first epoch that is seen after this one.
    fn first_after(&self, epoch: Epoch) -> Epoch {
        let next = self.spans.iter().find(|span| span.1 > epoch);
        next.map_or(self.newest(), |span| span.0.max(epoch.saturating_add(1)))
    }

    /// Those of the epochs that are at most this one.
    fn upto(&self, epoch: Epoch) -> SmallVec<[(Epoch, Epoch); 1]> {
        let seen = self.spans.iter().filter(|span| span.0 <= epoch);
        seen.map(|&(first, last)| (first, last.min(epoch))).collect()
    }
}

/// As in `0-4,7-9`; what is its own isn't said.
impl fmt::Display for Lineage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, (first, last)) in self.spans.iter().enumerate() {
            write!(f, "{}{first}-{last}", if nth == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A text isn't a lineage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a list of spans of epochs, such as 0-4,7-9")]
pub struct LineageError;

impl FromStr for Lineage {
    type Err = LineageError;

    fn from_str(text: &str) -> Result<Self, LineageError> {
        let span = |part: &str| {
            let (first, last) = part.split_once('-')?;
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        let spans: Option<Vec<(Epoch, Epoch)>> = text.split(',').map(span).collect();
        let spans = spans.ok_or(LineageError)?;
        let newest = spans.last().map_or(0, |span| span.1);
        Lineage::new(spans, newest).ok_or(LineageError)
    }
}

/// All readers of a map, as agreed at some time: its volumes and their snapshots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// By their newest epochs, which differ.
    readers: Vec<Lineage>,
    /// For each set of epochs that the same readers see: what may be seen at the end of it. Ascending.
    lines: Vec<Lineage>,
    /// No epoch that is known of is higher.
    newest: Epoch,
}

impl Default for History {
    /// Of a map that has never had a snapshot.
    fn default() -> Self {
        History::new([Lineage::default()], FIRST_EPOCH)
    }
}

impl History {
    /// `newest` is the last epoch that any reader was made with, whether it's still there or not. What the readers say of
    /// which epochs are their own isn't heeded: it follows from all of them.
    pub fn new(readers: impl IntoIterator<Item = Lineage>, newest: Epoch) -> Self {
        let mut readers: Vec<Lineage> = readers.into_iter().collect();
        readers.sort_by_key(Lineage::newest);
        readers.dedup_by_key(|reader| reader.newest());
        // Whoever sees one epoch of such a set sees all of it, so the sets of one reader are ranges of what it sees.
        let mut lines: BTreeMap<Epoch, Lineage> = BTreeMap::new();
        for at in 0..readers.len() {
            let mut own = 0;
            for end in ends_of_sets(&readers, at) {
                lines.entry(end).or_insert_with(|| Lineage { spans: readers[at].upto(end), own });
                own = readers[at].first_after(end);
            }
        }
        let lines: Vec<Lineage> = lines.into_values().collect();
        let newest = readers.iter().map(Lineage::newest).max().unwrap_or(0).max(newest);
        History { readers, lines, newest }
    }

    /// What a reader sees whose newest epoch is this, and what of it nobody else does. `None` if there's no such reader.
    pub fn reader(&self, newest: Epoch) -> Option<&Lineage> {
        self.readers.binary_search_by_key(&newest, Lineage::newest).ok()?;
        self.lines.binary_search_by_key(&newest, Lineage::newest).ok().map(|at| &self.lines[at])
    }

    /// What copies must agree on, in the order in which they are made equal: each line sees what the readers of one set of
    /// epochs have in common up to its end, and owns that set. Of a copy that is made equal along all of them no reader sees a
    /// difference, and nothing is kept twice.
    pub fn lines(&self) -> &[Lineage] {
        &self.lines
    }

    /// What is seen by a writer whose newest epoch is this, whether or not there's still a reader of that; `None` if nobody sees layers of
    /// the epoch.
    pub fn seen_in(&self, epoch: Epoch) -> Option<Lineage> {
        let of_line = || {
            let line = self.line_of(epoch)?;
            Some(Lineage { spans: line.upto(epoch), own: line.own.min(epoch) })
        };
        self.reader(epoch).cloned().or_else(of_line)
    }

    /// The line that owns an epoch; `None` if nobody sees layers of it.
    pub fn line_of(&self, epoch: Epoch) -> Option<&Lineage> {
        let from = self.lines.partition_point(|line| line.newest() < epoch);
        self.lines[from..].iter().find(|line| line.owns(epoch))
    }

    /// The only reader that tells what two lines own apart, by its newest epoch: it sees what one of them owns, and not what the other
    /// one does. Without it nobody could. `None` if several readers can.
    pub fn parted_by(&self, one: &Lineage, other: &Lineage) -> Option<Epoch> {
        // Earlier ones see neither.
        let from = self.readers.partition_point(|reader| reader.newest() < one.newest().min(other.newest()));
        let mut apart = self.readers[from..].iter().filter(|it| it.sees(one.newest()) != it.sees(other.newest()));
        apart.next().filter(|_| apart.next().is_none()).map(Lineage::newest)
    }

    /// The only reader that sees what a line owns, by its newest epoch. `None` if several do.
    pub fn only_reader_of(&self, line: &Lineage) -> Option<Epoch> {
        let from = self.readers.partition_point(|reader| reader.newest() < line.newest());
        let mut seeing = self.readers[from..].iter().filter(|reader| reader.sees(line.newest()));
        seeing.next().filter(|_| seeing.next().is_none()).map(Lineage::newest)
    }

    /// Whether readers may be made that this history doesn't know of and that see this epoch: nothing is known of its layers.
    pub fn is_unknown(&self, epoch: Epoch) -> bool {
        epoch > self.newest
    }

    /// Each reader, by its newest epoch.
    pub fn readers(&self) -> &[Lineage] {
        &self.readers
    }
}

/// Runs of epochs of which nobody sees any, each between two spans of some reader; ascending. Once no drive has anything of one, nor ever
/// will, it's as if all had been written that sees it who sees the next epoch: [`Lineage::closing`] says so, and no more is to be kept
/// of it.
pub fn gaps<'a>(readers: impl IntoIterator<Item = &'a Lineage>) -> Vec<Span> {
    let readers: Vec<&Lineage> = readers.into_iter().collect();
    let mut spans: Vec<Span> = readers.iter().flat_map(|reader| reader.spans.iter().copied()).collect();
    spans.sort_unstable();
    let (mut unseen, mut end) = (BTreeSet::new(), None::<Epoch>);
    for (first, last) in spans {
        match end.and_then(|end| end.checked_add(1)) {
            Some(next) if next < first => drop(unseen.insert((next, first - 1))),
            _ => {}
        }
        end = end.max(Some(last));
    }
    let between = readers.iter().flat_map(|reader| reader.spans.windows(2)).map(|pair| (pair[0].1 + 1, pair[1].0 - 1));
    between.filter(|gap| unseen.contains(gap)).collect::<BTreeSet<Span>>().into_iter().collect()
}

/// The run of epochs with which a reader goes on that is made in a view: the last is the one that it writes in, and no epoch was handed out
/// that is higher than `newest`. While drives are away its number is that of the view: so what was handed out later than a drive
/// left is known by its number, and that drive has nothing of it. `None` if all are used up.
pub fn next_epochs(newest: Epoch, view: u64, drives_are_away: bool) -> Option<Span> {
    let first = newest.checked_add(1)?;
    let of_view = Epoch::try_from(view).ok().filter(|&epoch| drives_are_away && epoch <= MOST_OF_VIEWS);
    Some((first, of_view.map_or(first, |epoch| epoch.max(first))))
}

/// No epoch was handed out with a higher number in a view up to this one, but for those that were counted.
pub fn last_of_views(view: u64) -> Epoch {
    Epoch::try_from(view).map_or(MOST_OF_VIEWS, |epoch| epoch.min(MOST_OF_VIEWS))
}

/// The last epoch of each set of those that one reader sees and that are seen by the same readers.
fn ends_of_sets(readers: &[Lineage], at: usize) -> BTreeSet<Epoch> {
    let reader = &readers[at];
    let mut ends = BTreeSet::from_iter([reader.newest()]);
    for other in readers.iter().filter(|other| other.newest() != reader.newest()) {
        // They see the same up to where they part, by invariant 2.
        let parted = shared_up_to(reader, other);
        ends.extend(parted);
    }
    ends
}

/// The newest epoch that both see.
fn shared_up_to(one: &Lineage, other: &Lineage) -> Option<Epoch> {
    let (mut ones, mut others) = (one.spans.iter().rev().peekable(), other.spans.iter().rev().peekable());
    while let (Some(&&(first, last)), Some(&&(other_first, other_last))) = (ones.peek(), others.peek()) {
        if first > other_last {
            ones.next();
        } else if other_first > last {
            others.next();
        } else {
            return Some(last.min(other_last));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lineage(text: &str) -> Lineage {
        text.parse().unwrap()
    }

    fn lines(readers: &[&str]) -> Vec<(String, Epoch)> {
        let history = History::new(readers.iter().map(|text| lineage(text)), 0);
        history.lines().iter().map(|line| (line.to_string(), line.own())).collect()
    }

    #[test]
    fn of_two_readers_each_sees_what_they_share_and_the_rest() {
        let parts = |one: &str, other: &str| {
            let (one, other) = (lineage(one), lineage(other));
            let text = |part: Option<Lineage>| part.map(|part| part.to_string()).unwrap_or_default();
            assert_eq!(one.shared_with(&other), other.shared_with(&one));
            [one.shared_with(&other), one.unshared_with(&other), other.unshared_with(&one)].map(text)
        };
        assert_eq!(parts("0-3", "0-7"), ["0-3", "", "4-7"]);
        assert_eq!(parts("0-2,5-6", "0-4"), ["0-2", "5-6", "3-4"], "one was rolled back");
        assert_eq!(parts("0-1,4-4,8-9", "0-1,4-6"), ["0-1,4-4", "8-9", "5-6"]);
        assert_eq!(parts("0-3", "0-3"), ["0-3", "", ""]);
    }

    #[test]
    fn a_volume_without_snapshots_owns_all_that_it_sees() {
        let history = History::default();
        assert_eq!(history.reader(FIRST_EPOCH), Some(&Lineage::default()));
        assert_eq!(history.lines(), [Lineage::default()]);
        assert!(Lineage::default().owns(0) && Lineage::default().owns(1) && !Lineage::default().sees(2));
    }

    #[test]
    fn a_snapshot_parts_what_it_sees_from_what_is_written_later() {
        assert_eq!(lines(&["0-1", "0-2"]), [("0-1".to_owned(), 0), ("0-2".to_owned(), 2)]);
        assert_eq!(lines(&["0-2"]), [("0-2".to_owned(), 0)], "once it's gone, nobody can tell what it parted");
        let history = History::new([lineage("0-1"), lineage("0-2")], 2);
        assert_eq!(history.reader(2).map(Lineage::own), Some(2));
        assert_eq!(history.line_of(1), history.reader(1));
        assert!(history.is_unknown(3) && !history.is_unknown(2));
    }

    #[test]
    fn what_a_clone_and_its_origin_share_is_nobodys_own_even_without_the_snapshot() {
        let expected = [("0-1".to_owned(), 0), ("0-4".to_owned(), 2), ("0-1,5-5".to_owned(), 5)];
        assert_eq!(lines(&["0-4", "0-1,5-5"]), expected);
        assert_eq!(lines(&["0-1", "0-4", "0-1,5-5"]), expected);
        let history = History::new([lineage("0-4"), lineage("0-1,5-5")], 5);
        assert_eq!(history.reader(1), None, "it's a line, and no reader");
    }

    #[test]
    fn what_was_rolled_back_belongs_to_nobody() {
        let history = History::new([lineage("0-1"), lineage("0-1,4-4")], 4);
        assert_eq!(history.line_of(2), None);
        assert!(!history.is_unknown(2));
        assert_eq!(history.line_of(4), history.reader(4));
    }

    #[test]
    fn who_alone_keeps_something_is_known_of_each_line() {
        let only = |readers: &[&str], epoch| {
            let history = History::new(readers.iter().map(|text| lineage(text)), 0);
            history.only_reader_of(history.line_of(epoch).unwrap())
        };
        let parted = |readers: &[&str], one, other| {
            let history = History::new(readers.iter().map(|text| lineage(text)), 0);
            let line = |epoch| history.line_of(epoch).unwrap();
            assert_eq!(history.parted_by(line(one), line(other)), history.parted_by(line(other), line(one)));
            history.parted_by(line(one), line(other))
        };
        let row = ["0-1", "0-2", "0-3"];
        assert_eq!([1, 2, 3].map(|epoch| only(&row, epoch)), [None, None, Some(3)]);
        assert_eq!([(1, 2), (2, 3), (1, 3)].map(|(one, other)| parted(&row, one, other)), [Some(1), Some(2), None]);
        let tree = ["0-1", "0-2", "0-1,4-4"];
        assert_eq!([1, 2, 4].map(|epoch| only(&tree, epoch)), [None, Some(2), Some(4)], "one was rolled back");
        assert_eq!([(1, 2), (1, 4), (2, 4)].map(|(one, other)| parted(&tree, one, other)), [None; 3]);
        let forked = ["0-2", "0-1,4-4"];
        assert_eq!([(1, 2), (1, 4)].map(|(one, other)| parted(&forked, one, other)), [Some(4), Some(2)]);
    }

    fn gaps_among(readers: &[&str]) -> Vec<Span> {
        gaps(&readers.iter().map(|text| lineage(text)).collect::<Vec<_>>())
    }

    #[test]
    fn what_lies_between_a_readers_spans_is_a_gap_if_nobody_sees_it() {
        assert_eq!(gaps_among(&["0-4"]), []);
        assert_eq!(gaps_among(&["0-1,3-3,7-9"]), [(2, 2), (4, 6)]);
        assert_eq!(gaps_among(&["0-1", "0-2", "0-1,4-4"]), [], "there's a snapshot of what was rolled back");
        assert_eq!(gaps_among(&["0-1,3-3", "0-1,5-5"]), [(2, 2)], "nobody sees both sides of the other one");
        assert_eq!(gaps_among(&["0-1,5-5", "0-1,5-6,9-9"]), [(2, 4), (7, 8)]);
    }

    #[test]
    fn a_closed_gap_is_seen_by_whoever_sees_what_follows() {
        let closed = |text: &str, gaps: &[Span]| lineage(text).closing(gaps).to_string();
        assert_eq!(closed("0-1,3-3,7-9", &[(2, 2), (4, 6)]), "0-9");
        assert_eq!(closed("0-1,3-3,7-9", &[(4, 6)]), "0-1,3-9");
        assert_eq!(closed("0-1,5-5", &[(2, 2)]), "0-1,5-5", "it's a part of what others see");
        assert_eq!(closed("0-1", &[(2, 4)]), "0-1");
    }

    #[test]
    fn epochs_are_counted_and_are_views_while_drives_are_away() {
        assert_eq!(next_epochs(4, 90, false), Some((5, 5)));
        assert_eq!(next_epochs(4, 90, true), Some((5, 90)));
        assert_eq!(next_epochs(90, 90, true), Some((91, 91)));
        assert_eq!(next_epochs(4, 1 << 40, true), Some((5, 5)), "views go on without end");
        assert_eq!(next_epochs(Epoch::MAX, 90, true), None);
        assert_eq!([90, 1 << 31, 1 << 40].map(last_of_views), [90, 1 << 31, 1 << 31]);
        let with_run = |text: &str| lineage(text).with_run(5, 90).expect("there's room").to_string();
        assert_eq!(["0-4", "0-2"].map(with_run), ["0-90", "0-2,5-90"]);
    }

    #[test]
    fn lineages_read_back_as_they_print_and_nothing_else_does() {
        for text in ["0-1", "0-4,7-9", "3-3"] {
            assert_eq!(lineage(text).to_string(), text);
        }
        for text in ["", "1", "4-0", "0-4,5-9", "0-4,2-9", "a-b", "0-1,"] {
            assert_eq!(text.parse::<Lineage>(), Err(LineageError), "{text}");
        }
        let many: Vec<String> = (0..300).map(|nth| format!("{0}-{0}", nth * 2)).collect();
        assert_eq!(many.join(",").parse::<Lineage>(), Err(LineageError));
    }

    /// Any history that can come about: each new reader goes on from an earlier one, and some are taken away.
    #[test]
    fn each_epoch_that_is_seen_is_owned_by_one_line_and_all_of_it_is_seen_by_the_same_readers() {
        for seed in 0..500u64 {
            let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut draw = |below: usize| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) as usize % below
            };
            let mut readers = vec![Lineage::default()];
            for epoch in 2..14 {
                let from = draw(readers.len());
                let new = readers[from].with(epoch).unwrap();
                if draw(2) == 0 {
                    readers[from] = new; // it was rolled back, or what it was is forgotten
                } else {
                    readers.push(new);
                }
                if readers.len() > 1 && draw(3) == 0 {
                    readers.remove(draw(readers.len()));
                }
            }
            let history = History::new(readers.clone(), 14);
            let seen_by = |epoch| readers.iter().map(|reader| reader.sees(epoch)).collect::<Vec<_>>();
            for epoch in 0..14 {
                let owners: Vec<_> = history.lines().iter().filter(|line| line.owns(epoch)).collect();
                let is_seen = seen_by(epoch).contains(&true);
                assert_eq!(owners.len(), usize::from(is_seen), "seed {seed}, epoch {epoch}: {history:?}");
                let Some(line) = owners.first() else { continue };
                for other in (0..14).filter(|other| line.owns(*other)) {
                    assert_eq!(seen_by(epoch), seen_by(other), "seed {seed}: {epoch} and {other}");
                }
            }
            let gaps = gaps(&readers);
            let closed: Vec<Lineage> = readers.iter().map(|reader| reader.closing(&gaps)).collect();
            for (before, after) in readers.iter().zip(&closed) {
                let seen = (0..14).filter(|epoch| seen_by(*epoch).contains(&true));
                seen.for_each(|epoch| assert_eq!(before.sees(epoch), after.sees(epoch), "seed {seed}: {epoch}"));
            }
            assert_eq!(super::gaps(&closed), [], "seed {seed}");
            let ends = |history: &History| history.lines().iter().map(Lineage::newest).collect::<Vec<_>>();
            assert_eq!(ends(&History::new(closed, 14)), ends(&history), "seed {seed}: the lines are the same");
            for reader in &readers {
                let line = history.reader(reader.newest()).expect("each reader has a line");
                assert_eq!(line.spans(), reader.spans());
                let ahead = history.lines().iter().take_while(|other| *other != line);
                let made_before: Vec<_> = ahead.map(Lineage::newest).collect();
                for (first, last) in reader.spans() {
                    for epoch in *first..=*last {
                        let owner = history.line_of(epoch).expect("it's seen");
                        assert!(owner == line || made_before.contains(&owner.newest()), "in the order of lines");
                    }
                }
            }
        }
    }
}
