//! Other drives in place of those that layouts name.

use super::tests::{add_drive, cluster, create, done, refused};
use super::*;
use crate::record::DriveUse;
use tepal_model::size::exact;

const GIB: u64 = 1 << 30;

fn on(drive: u64, offset: u64) -> String {
    format!("{drive:016x}:{}+16M", exact(offset))
}

fn mirror(one: u64, other: u64) -> String {
    format!("plexes:concat({})|concat({})", on(one, 0), on(other, 0))
}

fn replace(from: u64, to: u64) -> Command {
    Command::ReplaceDrive { from: DriveId(from), to: DriveId(to) }
}

fn layout(state: &State, volume: &str) -> String {
    state.volume_named(volume).unwrap().layout.to_string()
}

/// Three drives of one server, and a spare.
fn with_spare() -> State {
    let mut state = cluster(&[(1, 1), (2, 1), (3, 1)]);
    done(&mut state, add_drive(4, 1));
    done(&mut state, Command::SetDriveUse { id: DriveId(4), to: DriveUse::Spare });
    state
}

#[test]
fn a_layout_names_the_other_drive_and_columns_stay_till_moved() {
    let mut state = with_spare();
    done(&mut state, create("v", &mirror(1, 2)));
    let (view, revision) = (state.view(), state.volume_named("v").unwrap().revision);
    done(&mut state, replace(1, 4));
    assert_eq!(layout(&state, "v"), mirror(4, 2));
    let map = &state.maps[&MapId(1)];
    assert!(map.layout.names(DriveId(4)) && !map.layout.names(DriveId(1)) && map.columns[0].is_held_by(DriveId(1)));
    assert_eq!((state.view(), state.volume_named("v").unwrap().revision), (view + 1, revision + 1));
    assert_eq!(state.drives[&DriveId(4)].purpose, DriveUse::Active);
    done(&mut state, Command::BeginMove { map: MapId(1), column: 0, from: DriveId(1), to: DriveId(4) });
    let (since, view) = (state.maps[&MapId(1)].columns[0].joining.unwrap().since, state.view());
    done(&mut state, Command::FinishMove { map: MapId(1), column: 0, to: DriveId(4), since, view });
    assert!(!state.maps[&MapId(1)].uses(DriveId(1)));
}

#[test]
fn subdisks_of_two_volumes_get_places_apart_on_the_other_drive() {
    let mut state = with_spare();
    done(&mut state, create("v", &mirror(1, 2)));
    let second = format!("plexes:concat({})|concat({})", on(1, 16 << 20), on(3, 0));
    done(&mut state, create("w", &second));
    let third = format!("plexes:concat({})|concat({})", on(4, 0), on(3, 16 << 20));
    done(&mut state, Command::SetDriveUse { id: DriveId(4), to: DriveUse::Active });
    done(&mut state, create("x", &third));
    done(&mut state, replace(1, 4));
    let places = ["v", "w"].map(|volume| {
        let layout = state.volume_named(volume).unwrap().layout.clone();
        layout.plexes().unwrap().subdisks().next().unwrap().drive_offset
    });
    let mut sorted = places;
    sorted.sort_unstable();
    assert_eq!(sorted, [16 << 20, 32 << 20], "drive 4 has volume x from 0 on");
}

#[test]
fn a_drive_that_cannot_take_the_place_is_refused_with_the_reason() {
    let mut state = with_spare();
    assert!(refused(&state, replace(1, 4)).to_string().contains("no volume's layout names drive"));
    done(&mut state, create("v", &mirror(1, 2)));
    assert!(refused(&state, replace(1, 2)).to_string().contains("a part of the volume already"));
    assert!(refused(&state, replace(1, 9)).to_string().contains("there is no drive"));
    let capacity = state.drives[&DriveId(4)].capacity;
    assert!(capacity < 64 * GIB);
    done(
        &mut state,
        Command::BeginMigration {
            volume: "v".to_owned(),
            layout: Some("mirror:2".to_owned()),
            alone: false,
            pool: None,
            range: None,
            seed: 7,
            rate: None,
        },
    );
    assert!(refused(&state, replace(1, 4)).to_string().contains("on its way to another layout"));
}
