//! What people and programs are told of a rebuild.

use super::look::{PassedOver, Seen};
use super::{Others, Plan};
use serde::Serialize;
use tepal_metadata::{ColumnRecord, VolumeRecord};
use tepal_model::{ClusterId, DriveId, ServerId};

/// What a rebuild would do, or has done.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// As drives say it.
    pub cluster: ClusterId,
    /// Its name.
    pub name: String,
    /// The view of the state from which it's rebuilt.
    pub view: u64,
    /// How many events there had been.
    pub events: u64,
    /// The random number of the rebuild before that state, in hexadecimal; 0 if there was none.
    pub history: String,
    /// The servers that it had.
    pub servers: Vec<ServerId>,
    /// The one that begins.
    pub server: ServerId,
    /// Its data folder.
    pub folder: String,
    /// All drives that were found, and those of the cluster that weren't.
    pub drives: Vec<DriveReport>,
    /// The volumes that there were.
    pub volumes: Vec<VolumeReport>,
    /// What people should know.
    pub notes: Vec<String>,
    /// Whether it was done.
    pub done: bool,
}

/// One drive of it.
#[derive(Clone, Debug, Serialize)]
pub struct DriveReport {
    /// Its id.
    pub id: DriveId,
    /// Whether it counts.
    pub standing: Standing,
    /// The server that had it; none if the state doesn't know it.
    pub server: Option<ServerId>,
    /// Where it is; none if it wasn't found.
    pub path: Option<String>,
    /// Where it was.
    pub was_at: Option<String>,
    /// The view of the latest state that it keeps whole.
    pub view: Option<u64>,
    /// How many events there had been then.
    pub events: Option<u64>,
    /// The random number of the rebuild before that state.
    pub history: Option<String>,
}

/// Whether a drive counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It does.
    Found,
    /// It isn't here.
    NotFound,
    /// What is here is older than the drive.
    OlderImage,
    /// It's given up, as it was used by a state that doesn't go on.
    OtherPast,
}

/// One volume of it.
#[derive(Clone, Debug, Serialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// How many it has.
    pub snapshots: usize,
    /// Its parts, which are on the same drives throughout.
    pub parts: usize,
    /// Those of which a drive with a copy was found.
    pub parts_found: usize,
}

impl Plan {
    /// For people and programs.
    pub fn report(&self, done: bool) -> Report {
        let order = self.copy.order();
        Report {
            cluster: self.state.cluster.id,
            name: self.state.cluster.name.clone(),
            view: order.view,
            events: order.events,
            history: format!("{:x}", order.history),
            servers: self.state.servers.keys().copied().collect(),
            server: self.server,
            folder: self.request.folder.display().to_string(),
            drives: self.drives(),
            volumes: self.volumes(),
            notes: self.notes(),
            done,
        }
    }

    fn drives(&self) -> Vec<DriveReport> {
        let here = |one: &Seen, standing| {
            let record = self.state.drives.get(&one.label.drive);
            let keeps = one.copy().map(|copy| copy.order());
            DriveReport {
                id: one.label.drive,
                standing,
                server: record.map(|record| record.server),
                path: Some(one.path.display().to_string()),
                was_at: record.map(|record| record.path.clone()),
                view: keeps.map(|order| order.view),
                events: keeps.map(|order| order.events),
                history: keeps.map(|order| format!("{:x}", order.history)),
            }
        };
        let found = self.found.iter().map(|one| here(one, Standing::Found));
        let passed_over = self.passed_over.iter().map(|(one, why)| match why {
            PassedOver::OlderImage { .. } => here(one, Standing::OlderImage),
            PassedOver::OtherPast(_) => here(one, Standing::OtherPast),
        });
        let is_here = |drive: DriveId| self.passed_over.iter().any(|(one, _)| one.label.drive == drive);
        let absent = self.absent.iter().filter(|absent| !is_here(absent.drive)).map(|absent| DriveReport {
            id: absent.drive,
            standing: Standing::NotFound,
            server: Some(absent.server),
            path: None,
            was_at: Some(absent.path.clone()),
            view: None,
            events: None,
            history: None,
        });
        found.chain(passed_over).chain(absent).collect()
    }

    fn volumes(&self) -> Vec<VolumeReport> {
        let is_found = |drive: DriveId| self.found.iter().any(|one| one.label.drive == drive);
        let report = |volume: &VolumeRecord| {
            let columns: Vec<&ColumnRecord> = self.state.maps_of(volume).flat_map(|map| &map.columns).collect();
            let has_copy = |column: &&&ColumnRecord| column.holders.iter().any(|holder| is_found(holder.drive));
            VolumeReport {
                name: volume.name.clone(),
                size: volume.size,
                snapshots: self.state.count_snapshots(volume.id),
                parts: columns.len(),
                parts_found: columns.iter().filter(has_copy).count(),
            }
        };
        self.state.active_volumes().map(|volume| report(volume)).collect()
    }

    fn notes(&self) -> Vec<String> {
        let of_found = self.found.iter().flat_map(|one| self.notes_of(one));
        let of_others = self.passed_over.iter().map(|(one, why)| {
            let path = one.path.display();
            match why {
                PassedOver::OlderImage { newest } => format!(
                    "{path}: it's an older image of drive {}, of generation {}, which was last used in {newest}: it counts as not found",
                    one.label.drive, one.label.generation
                ),
                PassedOver::OtherPast(order) => {
                    format!("{path}: it keeps a state that doesn't go on ({order}): what it holds is given up")
                }
            }
        });
        let unreadable = self.unreadable.iter().map(|error| format!("passed over: {error}"));
        of_found.chain(of_others).chain(unreadable).chain(self.note_of_absent()).chain(self.note_of_servers()).collect()
    }

    fn notes_of(&self, one: &Seen) -> Vec<String> {
        let (path, last) = (one.path.display(), self.copy.order());
        let may_be_later = one.copies.damaged.iter().filter(|order| order.is_none_or(|order| order > last));
        let mut notes: Vec<String> = may_be_later
            .map(|order| match order {
                Some(order) => format!(
                    "{path}: its copy of a later state ({order}) is damaged, or was being written when the drive stopped: what was agreed \
                     since {last} isn't known"
                ),
                None => format!("{path}: a copy of the state is damaged, and may be of a later one: it counts as having been up last"),
            })
            .collect();
        let was_in_use = self.state.drives.get(&one.label.drive).is_some_and(|record| record.state.takes_writes());
        match one.copy() {
            None => notes.push(format!(
                "{path}: it keeps no whole copy of the cluster's state, so it counts as having been up last: nobody knows what it did since"
            )),
            Some(copy) if was_in_use && !self.has_view(one) => notes.push(format!(
                "{path}: it keeps an earlier state ({}), so it counts as having been up last: nobody knows what it did since",
                copy.order()
            )),
            Some(copy) if copy.order() == last && *copy != self.copy => notes.push(format!(
                "{path}: its copy of {last} isn't the same as the one that is used; they differ in nothing that has an event, as a setting"
            )),
            Some(_) => {}
        }
        notes
    }

    fn note_of_absent(&self) -> Option<String> {
        let in_use = self.absent.iter().filter(|absent| absent.state.takes_writes()).count();
        let what = match self.request.others {
            Others::AreGivenUp => "they are given up, and what only they held is lost",
            Others::WillCome => {
                "all of which they had a copy waits for them, or until they are removed by `tepal drive rm ID --force`"
            }
            Others::MustBeFound => "name them by --drive, or say --partial or --without-missing",
        };
        (in_use > 0).then(|| format!("drives that were in use and weren't found: {in_use}; {what}"))
    }

    fn note_of_servers(&self) -> Option<String> {
        let others = self.state.servers.len() - 1;
        let how = "each under its id: `tepal serve --server ID --join ADDR`";
        (others > 0).then(|| format!("{others} other servers are to join with empty folders, {how}"))
    }
}
