//! Commands that are carried out only while a thing is as its proposer saw it.

use super::Draft;
use crate::command::{Command, Reply};
use crate::conditions::Versioned;
use crate::refusal::Refusal;

impl Draft {
    /// Of commands that have another one inside; others are refused.
    pub(super) fn carry_out_conditional(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::Once { command, .. } => self.carry_out(command),
            Command::IfMatch { thing, expected, command } => self.carry_out_if(thing, expected, command),
            _ => Err(Refusal::NoAuthority),
        }
    }

    /// A thing that isn't there has no tag: the command itself says what is missing.
    fn carry_out_if(&mut self, thing: &Versioned, expected: &[String], command: &Command) -> Result<Reply, Refusal> {
        match self.state.tag_of(thing) {
            Some(current) if !expected.contains(&current) => {
                Err(Refusal::OtherRevision { expected: expected.join(", "), current })
            }
            _ => self.carry_out(command),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{cluster, create, done, refused};
    use super::*;
    use crate::access::Right;
    use crate::state::State;
    use tepal_model::VolumeId;

    fn only_if(thing: Versioned, expected: &str, command: Command) -> Command {
        Command::IfMatch { thing, expected: vec![expected.to_owned()], command: Box::new(command) }
    }

    fn rename(new_name: &str) -> Command {
        Command::RenameVolume { name: "id:1".to_owned(), new_name: new_name.to_owned() }
    }

    fn with_volume() -> State {
        let mut state = cluster(&[(1, 1)]);
        done(&mut state, create("v", "stripe"));
        state
    }

    #[test]
    fn of_two_who_change_what_they_saw_the_second_is_refused() {
        let mut state = with_volume();
        let volume = Versioned::Volume(VolumeId(1));
        let seen = state.tag_of(&volume).expect("it's there");
        assert_eq!(seen, "\"v1-1\"");
        done(&mut state, only_if(volume.clone(), &seen, rename("first")));
        let second = refused(&state, only_if(volume.clone(), &seen, rename("second")));
        assert_eq!(second, Refusal::OtherRevision { expected: seen, current: "\"v1-2\"".to_owned() });
        assert_eq!(state.volumes[&VolumeId(1)].name, "first");
        let seen = state.tag_of(&volume).expect("it's there");
        done(&mut state, only_if(volume, &seen, rename("third")));
    }

    #[test]
    fn rights_have_another_tag_after_each_grant() {
        let mut state = with_volume();
        let grant = |to: &str| Command::Grant { volume: "v".to_owned(), to: format!("@{to}"), right: Right::Read };
        let rights = Versioned::Rights(VolumeId(1));
        let empty = state.tag_of(&rights).expect("it's there");
        done(&mut state, only_if(rights.clone(), &empty, grant("a")));
        assert_ne!(state.tag_of(&rights), Some(empty.clone()));
        let refused = refused(&state, only_if(rights, &empty, grant("b")));
        assert!(matches!(refused, Refusal::OtherRevision { .. }), "{refused}");
    }

    #[test]
    fn drives_snapshots_pools_and_their_rights_have_other_tags_after_each_change() {
        let mut state = with_volume();
        let text = str::to_owned;
        done(&mut state, Command::CreateSnapshot { volume: text("v"), name: text("s") });
        let epoch = state.snapshots_of(VolumeId(1)).next().expect("just made").epoch;
        let id = *state.drives.keys().next().expect("a drive");
        let (pool, key) = (crate::DEFAULT_POOL.to_owned(), Some(text("k")));
        let on = |scope: &str| Command::GrantOn { scope: text(scope), to: text("@g"), right: Right::Read };
        let pools = format!("pool:{pool}");
        let drive = Versioned::Drive(id);
        let changes = [
            (drive.clone(), Command::NameDrive { id, name: Some(text("shelf")) }),
            (drive, Command::SetDriveUse { id, to: crate::DriveUse::Draining }),
            (
                Versioned::Snapshot(VolumeId(1), epoch),
                Command::RenameSnapshot { volume: text("v"), name: text("s"), new_name: text("t") },
            ),
            (Versioned::Pool(pool.clone()), Command::SetPoolKey { pool: pool.clone(), key }),
            (Versioned::PoolRights(pool), on(&pools)),
            (Versioned::ClusterRights, on("cluster")),
        ];
        for (thing, change) in changes {
            let seen = state.tag_of(&thing).unwrap_or_else(|| panic!("{thing:?} is there"));
            done(&mut state, only_if(thing.clone(), &seen, change.clone()));
            let refused = refused(&state, only_if(thing.clone(), &seen, change));
            assert!(matches!(refused, Refusal::OtherRevision { .. }), "{thing:?}: {refused}");
        }
    }

    #[test]
    fn what_is_not_there_is_refused_by_the_command_itself() {
        let state = with_volume();
        let gone = Command::RenameVolume { name: "id:9".to_owned(), new_name: "w".to_owned() };
        let refused = refused(&state, only_if(Versioned::Volume(VolumeId(9)), "\"v9-1\"", gone));
        assert_eq!(refused, Refusal::NoVolume("id:9".to_owned()));
    }
}
