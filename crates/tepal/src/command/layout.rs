//! `tepal layout`: what layouts promise and cost, said without a cluster.

use super::CommandError;
use crate::cli::LayoutCommand;
use crate::output::{self, Outcome, Output};
use serde::Serialize;
use tepal_model::layout::quorum::Quorum;
use tepal_model::layout::{Durability, FailureDomain, Layout, Protection};
use tepal_placement::explicit;

/// What follows from a layout alone.
#[derive(Debug, Serialize, PartialEq)]
struct Explanation {
    /// The layout with everything that was said of it.
    layout: String,
    /// Of whole copies it's 1.
    data_fragments: u8,
    /// Of copies, those besides the first.
    code_fragments: u8,
    /// So many failure domains are needed, or drives if the layout names them.
    places: usize,
    /// `drive`, `server` or `site`; none: the widest of which the cluster has enough.
    domain: Option<String>,
    /// So many of the places that have a part of the volume may be lost for good, whichever, and no content is.
    losses: u8,
    /// Bytes on drives for each byte of content.
    space: f64,
    /// Reads of a part need so many of its places.
    reads_need: u8,
    /// Writes to a part need so many of its places; with fewer they wait.
    writes_need: u8,
    /// A small write is answered once so many places have it, where all are there.
    small_write_on: u8,
    /// So many of the places may answer whatever they like: what they say is found out and passed over.
    liars: u8,
    /// `strict` or `flush`.
    durability: String,
    /// The unit of placement, in bytes.
    extent: u32,
}

impl Explanation {
    fn of(layout: &Layout) -> Result<Self, CommandError> {
        let fragments = layout.fragments();
        let quorum = layout.quorum();
        let answers = quorum.map(|quorum| quorum.thresholds().answers);
        let (mut losses, mut places) = (fragments.code, usize::from(fragments.count()));
        let mut space = f64::from(fragments.count()) / f64::from(fragments.data);
        if let Some(quorum) = quorum {
            losses = quorum.faults();
        }
        if let Some(plexes) = layout.plexes() {
            places = plexes.drives().len();
            if fragments.are_copies() {
                // A stretch may lie in fewer plexes, or twice on one drive.
                let (_, columns) = explicit(plexes)?;
                let fewest = columns.iter().map(|holders| holders.len()).min().unwrap_or(1);
                losses = fewest.saturating_sub(1) as u8;
                let held: u64 = plexes.subdisks().map(|subdisk| subdisk.length).sum();
                space = held as f64 / plexes.size().max(1) as f64;
            }
        }
        Ok(Explanation {
            layout: layout.to_string(),
            data_fragments: fragments.data,
            code_fragments: fragments.code,
            places,
            domain: layout.domain.map(|domain| domain.to_string()),
            losses,
            space,
            reads_need: answers.unwrap_or(fragments.data),
            writes_need: answers.unwrap_or(layout.min_copies),
            small_write_on: answers.unwrap_or(losses + 1),
            liars: quorum.map_or(0, Quorum::liars),
            durability: durability(layout).to_owned(),
            extent: layout.extent,
        })
    }

    fn page(&self, layout: &Layout) -> String {
        let (data, all) = (self.data_fragments, self.data_fragments + self.code_fragments);
        let what = if data == 1 { "copies" } else { "fragments" };
        let place = match (&layout.protection, layout.domain) {
            (Protection::Plexes(_), _) | (_, Some(FailureDomain::Drive)) => "drives",
            (Protection::Chained, None) | (_, Some(FailureDomain::Server)) => "servers",
            (_, Some(FailureDomain::Site)) => "sites",
            (_, None) => "failure domains",
        };
        let needs = match &layout.protection {
            Protection::Plexes(_) => format!("{} {place}, as it names them", self.places),
            Protection::Stripe => "1 drive or more".to_owned(),
            _ => format!("{} {place} or more{}", self.places, widest(layout)),
        };
        let outlives = match (self.losses, &layout.protection) {
            (0, _) => "no loss: what is on a drive is lost with the drive".to_owned(),
            (losses, Protection::Plexes(_)) => format!("the loss of any {losses} of its {place}"),
            (losses, Protection::Quorum(quorum)) if quorum.liars() > 0 => format!(
                "the loss of any {losses} of the {all} {place} that have a part, of which {} may answer what isn't so",
                quorum.liars()
            ),
            (losses, Protection::Erasure(_)) => format!(
                "the loss of any {losses} of the {all} {place} that have a part, for good; what is written while some are away, of {}",
                layout.min_copies.saturating_sub(data)
            ),
            (losses, _) => format!("the loss of any {losses} of the {all} {place} that have a part, for good"),
        };
        let needed = |needed: u8| format!("{needed} of {all} {what}");
        let answered = match counted(layout) {
            Durability::Strict => "on stable media",
            Durability::Flush => "outlives any process; on stable media after a flush",
        };
        output::facts(&[
            ("layout", self.layout.clone()),
            ("needs", needs),
            ("outlives", outlives),
            ("space", format!("{:.2} bytes on drives for each byte of content", self.space)),
            ("reads", format!("go on with {}", needed(self.reads_need))),
            ("writes", format!("go on with {}; with fewer they wait", needed(self.writes_need))),
            ("small write", format!("answered once {} have it, {answered}", places_of(self.small_write_on))),
            ("placed by", output::size(self.extent.into())),
        ])
    }
}

fn widest(layout: &Layout) -> &'static str {
    match (&layout.protection, layout.domain) {
        (Protection::Chained, _) | (_, Some(_)) => "",
        _ => ": sites, servers or drives, the widest of which there are enough",
    }
}

fn places_of(count: u8) -> String {
    match count {
        1 => "1 drive".to_owned(),
        count => format!("{count} drives"),
    }
}

/// Erasure codes have no other than strict durability.
fn counted(layout: &Layout) -> Durability {
    if layout.fragments().are_copies() { layout.durability } else { Durability::Strict }
}

fn durability(layout: &Layout) -> &'static str {
    match counted(layout) {
        Durability::Strict => "strict",
        Durability::Flush => "flush",
    }
}

pub fn run(output: Output, command: &LayoutCommand) -> Result<Outcome, CommandError> {
    let LayoutCommand::Explain { layout } = command;
    output.show(&Explanation::of(layout)?, |explanation| explanation.page(layout).trim_end().to_owned())?;
    Ok(Outcome::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(text: &str) -> Explanation {
        Explanation::of(&text.parse().expect("a layout")).expect("explained")
    }

    #[test]
    fn losses_and_needs_follow_from_the_layout() {
        // Losses, what reads and writes need, drives that a small write is on, bytes for a byte.
        for (text, numbers, space) in [
            ("stripe", (0, 1, 1, 1), 1.0),
            ("chained", (1, 1, 1, 2), 2.0),
            ("mirror:3", (2, 1, 1, 3), 3.0),
            ("mirror:3;min_copies=2", (2, 1, 2, 3), 3.0),
            ("ec:4+2", (2, 4, 5, 3), 1.5),
            ("ec:4+2;min_extra=0", (2, 4, 4, 3), 1.5),
            ("ec:5+1", (1, 5, 5, 2), 1.2),
            ("quorum:1/3,t=1,async", (1, 2, 2, 2), 3.0),
            ("quorum:2/5,t=1,b=1,async", (1, 4, 4, 4), 2.5),
        ] {
            let found = explained(text);
            let of = (found.losses, found.reads_need, found.writes_need, found.small_write_on);
            assert_eq!((of, found.space), (numbers, space), "{text}");
        }
    }

    #[test]
    fn a_stretch_in_one_plex_alone_outlives_no_loss() {
        let plexes = |second: &str| format!("plexes:concat(0000000000000001:0+1M)|concat(0000000000000002:0+{second})");
        let (whole, half) = (plexes("1M"), plexes("512K"));
        for (text, losses, space) in [(whole, 1, 2.0), (half, 0, 1.5)] {
            let found = explained(&text);
            assert_eq!((found.losses, found.space, found.places), (losses, space, 2), "{text}");
        }
    }
}
