//! Gaps in maps' histories that are closed: epochs that nobody sees any more, and that no drive has anything of.
//!
//! The server that leads the metadata asks all others that have drives of such a map, in this order: which columns they lead with nothing
//! of before under way, and which of their drives have nothing of these epochs any more. When all columns and drives were named it has it
//! agreed. Whatever is in the way, it asks again; nothing waits for it but a volume that was rolled back hundreds of times in a moment.

use crate::agreed::Followed;
use crate::drives::Parts;
use crate::relay::Relay;
use crate::relay::gaps::{About, Answering, Question, Said};
use futures_util::future::join_all;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tepal_metadata::{ColumnRecord, Command, ProposeError, ServerRecord, State, VolumeRecord};
use tepal_model::history::Span;
use tepal_model::{DriveId, MapId, ServerId};

/// How often it's looked whether there are gaps.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// So many of a map are closed at a time.
const CLOSED_AT_ONCE: usize = 256;
/// So many maps are asked about at a time.
const AT_ONCE: usize = 64;
/// The longest that a server is waited for.
const SAID_WITHIN: Duration = Duration::from_secs(3);

/// Until the server stops.
pub async fn keep_closing(parts: Parts, relay: Relay, followed: Followed) {
    let answering = Answering::new(parts.engine.clone(), parts.threads.clone(), followed);
    relay.answer_about_gaps(answering.clone());
    loop {
        tokio::time::sleep(LOOK_AGAIN).await;
        if parts.metadata.leader() != Some(parts.metadata.server()) {
            continue;
        }
        let state = parts.metadata.state();
        let open: Vec<(MapId, Vec<Span>)> = open_gaps(&state);
        for some in open.chunks(AT_ONCE) {
            let asking = Asking { parts: &parts, relay: &relay, answering: &answering, state: &state };
            for command in asking.close(some.iter().cloned().collect()).await {
                match parts.authority.propose(command.clone()).await {
                    Ok(_) => {}
                    Err(ProposeError::Refused(refusal)) => tracing::debug!(?command, %refusal, "gaps stay for now"),
                    Err(error) => tracing::debug!(?command, %error, "gaps stay for now"),
                }
            }
        }
    }
}

/// Of maps that have some which may be closed.
fn open_gaps(state: &State) -> Vec<(MapId, Vec<Span>)> {
    let is_parted = |volume: &&Arc<VolumeRecord>| {
        let mut kept = state.snapshots_of(volume.id).map(|snapshot| &snapshot.lineage);
        volume.lineage.spans().len() > 1 || kept.any(|lineage| lineage.spans().len() > 1)
    };
    let maps: BTreeSet<MapId> = state.active_volumes().filter(is_parted).map(|volume| volume.map).collect();
    let some = |map: MapId| state.gaps_to_close(map).into_iter().take(CLOSED_AT_ONCE).collect();
    let gaps = maps.into_iter().map(|map| (map, some(map)));
    gaps.filter(|(_, gaps): &(MapId, Vec<Span>)| !gaps.is_empty()).collect()
}

/// What is asked, by one state.
struct Asking<'a> {
    parts: &'a Parts,
    relay: &'a Relay,
    answering: &'a Answering,
    state: &'a State,
}

impl Asking<'_> {
    /// What is to be agreed of these maps.
    async fn close(&self, gaps: BTreeMap<MapId, Vec<Span>>) -> Vec<Command> {
        let by_number =
            |gaps: &BTreeMap<MapId, Vec<Span>>| gaps.iter().map(|(map, gaps)| (map.0, gaps.clone())).collect();
        let view = self.state.view();
        let quiet = self.ask(&gaps, Question { about: About::Columns, view, gaps: by_number(&gaps) }).await;
        let is_quiet = |map: &MapId| {
            let said = quiet.columns.get(&map.0);
            self.columns_to_ask(*map).iter().all(|column| said.is_some_and(|said| said.contains(column)))
        };
        let gaps: BTreeMap<MapId, Vec<Span>> = gaps.into_iter().filter(|(map, _)| is_quiet(map)).collect();
        if gaps.is_empty() {
            return Vec::new();
        }
        let empty = self.ask(&gaps, Question { about: About::Drives, view, gaps: by_number(&gaps) }).await;
        let is_empty = |map: &MapId| {
            let said = empty.drives.get(&map.0);
            self.drives_to_ask(*map).iter().all(|drive| said.is_some_and(|said| said.contains(drive)))
        };
        let closed = gaps.into_iter().filter(|(map, _)| is_empty(map));
        closed.map(|(map, gaps)| Command::CloseGaps { map, gaps, view }).collect()
    }

    /// What all say together that have drives of these maps.
    async fn ask(&self, maps: &BTreeMap<MapId, Vec<Span>>, question: Question) -> Said {
        let drives = maps.keys().flat_map(|map| self.drives_to_ask(*map));
        let servers: BTreeSet<ServerId> =
            drives.filter_map(|drive| self.state.drives.get(&drive)).map(|record| record.server).collect();
        let records: Vec<&ServerRecord> =
            servers.iter().filter_map(|id| self.state.servers.get(id)).map(|record| &**record).collect();
        let asked = records.into_iter().map(|record| async {
            match record.id == self.parts.metadata.server() {
                true => Some(self.answering.answer(question.clone()).await),
                false => self.relay.ask_about_gaps(record, &question, SAID_WITHIN).await,
            }
        });
        let mut all = Said::default();
        for said in join_all(asked).await.into_iter().flatten() {
            said.columns.into_iter().for_each(|(map, columns)| all.columns.entry(map).or_default().extend(columns));
            said.drives.into_iter().for_each(|(map, drives)| all.drives.entry(map).or_default().extend(drives));
        }
        all
    }

    /// Those of a map that take writes.
    fn drives_to_ask(&self, map: MapId) -> BTreeSet<DriveId> {
        let columns = self.state.maps.get(&map).into_iter().flat_map(|map| &map.columns);
        columns.flat_map(|column| self.take_writes(column)).collect()
    }

    /// Those of a map that somebody leads.
    fn columns_to_ask(&self, map: MapId) -> Vec<u32> {
        let columns = self.state.maps.get(&map).into_iter().flat_map(|map| &map.columns);
        let led = (0..).zip(columns).filter(|(_, column)| self.take_writes(column).next().is_some());
        led.map(|(number, _)| number).collect()
    }

    fn take_writes(&self, column: &ColumnRecord) -> impl Iterator<Item = DriveId> {
        let all = column.holders.iter().map(|holder| holder.drive).chain(column.joining.map(|join| join.to));
        all.filter(|drive| self.state.drives.get(drive).is_some_and(|record| record.state.takes_writes()))
    }
}
