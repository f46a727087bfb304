//! Whether others have all that a drive holds. Only the primary of a column knows, as of a drive that is up the cluster doesn't
//! agree on what it has yet to copy.

use super::Drives;
use std::collections::BTreeSet;
use tepal_engine::Authority;
use tepal_metadata::{MapRecord, State, VolumeState};
use tepal_model::{DriveId, MapId};

/// Columns of maps of which something else than a certain drive has everything.
pub type Kept = BTreeSet<(MapId, usize)>;

impl Drives {
    /// The columns that this server leads and that have another whole copy than on this drive.
    pub fn kept_without(&self, id: DriveId) -> Kept {
        let kept = self.parts.engine.columns_kept_without(id).into_iter().collect();
        // Looked at afterwards: who isn't the primary any more says nothing.
        if self.parts.authority.may_serve() { kept } else { Kept::new() }
    }

    /// The volumes of which the drive may have the last good copy of something, as far as this server can tell.
    pub fn endangered_without(&self, id: DriveId, kept_elsewhere: &Kept) -> Vec<String> {
        let kept = self.kept_without(id).union(kept_elsewhere).copied().collect();
        endangered(&self.parts.metadata.state(), id, &kept)
    }
}

/// The active volumes, by name, with a copy on the drive of a column of which nobody says that it's kept.
fn endangered(state: &State, id: DriveId, kept: &Kept) -> Vec<String> {
    let is_at_risk = |map: &MapRecord| {
        let mut columns = map.columns.iter().enumerate();
        columns.any(|(column, record)| record.is_held_by(id) && !kept.contains(&(map.id, column)))
    };
    let active = state.volumes_on(id).filter(|volume| volume.state == VolumeState::Active);
    let at_risk = active.filter(|volume| state.maps_of(volume).any(|map| is_at_risk(map)));
    at_risk.map(|volume| volume.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Rig;
    use super::*;
    use crate::drives::DriveOperationError;
    use tepal_metadata::{Command, DEFAULT_POOL, ProposeError, Refusal};
    use tepal_model::ServerId;

    /// A drive that was up held the only good copy of what another one, which was up too, had yet to copy. Its server led
    /// nothing and knew nothing of that: the drive was removed and emptied.
    #[tokio::test(flavor = "current_thread")]
    async fn a_drive_is_removed_only_if_whoever_leads_its_columns_says_that_others_have_everything() {
        let rig = Rig::new().await;
        let here = rig.add("a").await;
        // It's up on record, and nobody here leads what is on both.
        let (id, pool, path) = (DriveId(9), DEFAULT_POOL.to_owned(), "/nothing".to_owned());
        rig.propose(Command::AddDrive { id, server: ServerId(1), pool, path, capacity: 1 << 20, spare: false }).await;
        assert!(rig.create("mirror:2").await.is_none());

        let refused = rig.drives.remove(here, false, &Kept::new(), |command| command).await;
        let Err(DriveOperationError::Metadata(ProposeError::Refused(Refusal::LastCopy { volumes, .. }))) = refused
        else {
            panic!("{refused:?}")
        };
        assert_eq!(volumes, ["v"]);
        assert!(rig.is_used(here));

        let map = rig.state().volume_named("v").expect("made").map;
        let said = |columns: &[usize]| columns.iter().map(|&column| (map, column)).collect::<Kept>();
        let all: Vec<usize> = (0..rig.state().maps[&map].columns.len()).collect();
        for (columns, names) in
            [(&[][..], &["v"][..]), (&all[1..], &["v"]), (&all[..all.len() - 1], &["v"]), (&all, &[])]
        {
            assert_eq!(endangered(&rig.state(), here, &said(columns)), names, "{} columns", columns.len());
        }
        rig.end().await;
    }
}
