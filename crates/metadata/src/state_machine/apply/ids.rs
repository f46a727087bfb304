//! Commands that say the id of what they are about: whoever asks for several things of one volume means that one, whatever it's called
//! by then, and never another one that has got its name.

use crate::command::{Command, IDS, Proposal};
use crate::record::BY_ID;
use crate::state::State;
use std::borrow::Cow;

/// The command with the names that volume and snapshot have now. What isn't there stays as it is, which is no name of anything.
pub fn spelled_out<'a>(state: &State, proposal: &'a Proposal) -> Cow<'a, Command> {
    if proposal.version < IDS {
        return Cow::Borrowed(&proposal.command);
    }
    let mut command = proposal.command.clone();
    if let Some(subject) = command.subject()
        && let Some(record) = state.volume_called(subject.volume)
    {
        if let Some(text) = subject.snapshot
            && text.starts_with(BY_ID)
            && let Some(snapshot) = state.snapshot_called(record.id, text)
        {
            text.clone_from(&snapshot.name);
        }
        subject.volume.clone_from(&record.name);
    }
    Cow::Owned(command)
}

#[cfg(test)]
mod tests {
    use super::super::snapshot_tests::{clone, remove, roll_back, take};
    use super::super::tests::{cluster, create, done, refused};
    use super::*;
    use crate::command::Reply;
    use crate::refusal::Refusal;
    use tepal_model::VolumeId;

    fn rename(name: &str, new_name: &str) -> Command {
        Command::RenameVolume { name: name.to_owned(), new_name: new_name.to_owned() }
    }

    /// Story: a command of several requests went on with the volume that had got the name of the one that it began with.
    #[test]
    fn an_id_means_the_same_volume_under_any_name() {
        let mut state = cluster(&[(1, 1)]);
        done(&mut state, create("v", "stripe"));
        done(&mut state, rename("v", "old"));
        done(&mut state, create("v", "stripe"));
        done(&mut state, take("id:1", "a"));
        assert_eq!(state.snapshots_of(VolumeId(1)).count(), 1);
        done(&mut state, rename("id:1", "older"));
        assert_eq!(state.volumes[&VolumeId(1)].name, "older");
        done(&mut state, Command::RemoveVolume { name: "id:2".to_owned(), snapshots: false });
        assert!(state.volume_named("v").is_none() && state.volume_named("older").is_some());
        for gone in ["id:2", "id:3", "id:", "id:x"] {
            assert_eq!(refused(&state, rename(gone, "w")), Refusal::NoVolume(gone.to_owned()));
        }
    }

    #[test]
    fn an_epoch_means_the_same_snapshot_under_any_name() {
        let mut state = cluster(&[(1, 1)]);
        done(&mut state, create("v", "stripe"));
        done(&mut state, take("v", "a"));
        done(&mut state, remove("v", "a"));
        done(&mut state, take("v", "a"));
        for command in [roll_back("id:1", "id:1"), remove("v", "id:1"), clone("id:1", "id:1", "w")] {
            let gone = refused(&state, command);
            assert_eq!(gone, Refusal::NoSnapshot { volume: "v".to_owned(), name: "id:1".to_owned() });
        }
        assert!(matches!(done(&mut state, clone("id:1", "id:2", "w")), Reply::VolumeCloned { .. }));
        done(&mut state, remove("v", "id:2"));
        assert_eq!(state.count_snapshots(VolumeId(1)), 0);
    }

    #[test]
    fn before_there_were_ids_one_was_no_name_of_anything() {
        let mut state = cluster(&[(1, 1)]);
        done(&mut state, create("v", "stripe"));
        let newer = Proposal::new(5, None, rename("id:1", "w"));
        assert_eq!(newer.version, IDS);
        let older = Proposal { version: IDS - 1, ..newer };
        assert_eq!(*spelled_out(&state, &older), older.command);
    }
}
