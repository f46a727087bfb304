use super::*;
use crate::record::{Cleared, DEFAULT_POOL, DriveState, RebuildRecord, ServerState};
use tepal_model::layout::FailureDomain;
use tepal_model::{ClusterId, ServerId};

/// A cluster with these drives, as `(drive, server)`.
pub fn cluster(drives: &[(u64, u32)]) -> State {
    let mut state = State::before_everything();
    let (name, address) = ("c".to_owned(), "h:1".to_owned());
    done(&mut state, Command::InitCluster { id: ClusterId(1), name, server: ServerId(1), address });
    for &(drive, server) in drives {
        while !state.servers.contains_key(&ServerId(server)) {
            let folder = state.servers.len() as u64;
            done(&mut state, Command::JoinServer { folder, address: "h:1".to_owned(), claim: None });
        }
        if state.servers[&ServerId(server)].state == ServerState::Down {
            done(&mut state, Command::ServerStarted { id: ServerId(server), incarnation: 0, boot: 1 });
        }
        done(&mut state, add_drive(drive, server));
    }
    state
}

pub fn add_drive(id: u64, server: u32) -> Command {
    let (pool, path) = (DEFAULT_POOL.to_owned(), format!("/d{id}"));
    Command::AddDrive { id: DriveId(id), server: ServerId(server), pool, path, capacity: 1 << 30, spare: false }
}

pub fn create(name: &str, layout: &str) -> Command {
    let (name, pool) = (name.to_owned(), DEFAULT_POOL.to_owned());
    Command::CreateVolume { name, size: 4096, layout: Some(layout.to_owned()), pool }
}

pub fn set(id: u64, to: DriveState, expected_view: Option<u64>) -> Command {
    Command::SetDriveState { id: DriveId(id), to, reason: "because".to_owned(), expected_view }
}

pub fn server_state(id: u32, to: ServerState, expected_view: Option<u64>) -> Command {
    Command::SetServerState { id: ServerId(id), to, reason: "because".to_owned(), expected_view }
}

fn attempt(state: &mut State, command: Command) -> Result<Reply, Refusal> {
    let applied = apply(state, &proposal(command))?;
    *state = applied.state;
    Ok(applied.reply)
}

/// With volumes of one column for each drive, which can be told one by one; and those that leave others may, as in a version to come.
pub fn proposal(command: Command) -> Proposal {
    let version = match command {
        Command::CreateVolume { .. } => 1,
        _ => command.version(),
    };
    Proposal { version, ..Proposal::new(5, None, command) }
}

/// As a server asks for it that has cleared what lies past the end of the volume as it is.
pub fn resize(state: &State, name: &str, size: u64) -> Command {
    let cleared = state.volume_named(name).map(|volume| state.as_cleared(volume));
    Command::ResizeVolume { name: name.to_owned(), size, shrink: true, cleared }
}

pub fn resized(state: &mut State, name: &str, size: u64) {
    let command = resize(state, name, size);
    done(state, command);
}

pub fn done(state: &mut State, command: Command) -> Reply {
    let shown = format!("{command:?}");
    attempt(state, command).unwrap_or_else(|refusal| panic!("{shown}: {refusal}"))
}

pub fn refused(state: &State, command: Command) -> Refusal {
    let shown = format!("{command:?}");
    attempt(&mut state.clone(), command).expect_err(&shown)
}

#[test]
fn nothing_can_be_done_before_the_cluster_is_set_up_nor_can_that_be_done_twice() {
    assert_eq!(refused(&State::before_everything(), add_drive(1, 1)), Refusal::NoCluster);
    let again =
        Command::InitCluster { id: ClusterId(2), name: "d".to_owned(), server: ServerId(1), address: "h:1".to_owned() };
    assert_eq!(refused(&cluster(&[]), again), Refusal::ClusterExists { name: "c".to_owned() });
}

#[test]
fn every_change_of_drives_servers_holders_and_of_what_is_seen_of_epochs_gives_the_next_view_and_no_other_command_does()
{
    let mut state = cluster(&[(1, 1)]);
    let server_down = server_state(1, ServerState::Down, None);
    let rename = Command::RenameVolume { name: "v".to_owned(), new_name: "w".to_owned() };
    let cleared = Some(Cleared { volume: VolumeId(1), revision: 2, epoch: 1, window: 0 });
    let resize = Command::ResizeVolume { name: "w".to_owned(), size: 8192, shrink: false, cleared };
    // Two drives come before it begins.
    let since = state.view() + 3;
    let called_off = Command::CancelMove { map: MapId(1), column: 0, to: DriveId(3), since };
    for (command, steps) in [
        (add_drive(2, 1), 1),
        (create("v", "stripe;domain=drive"), 0),
        (add_drive(3, 1), 1),
        (Command::DriveGrew { id: DriveId(3), capacity: 1 << 50 }, 0),
        (Command::SetDriveUse { id: DriveId(3), to: DriveUse::Spare }, 0),
        (Command::SetServerDraining { id: ServerId(1), draining: true }, 0),
        (Command::SetServerDraining { id: ServerId(1), draining: false }, 0),
        (Command::BeginMove { map: MapId(1), column: 0, from: DriveId(1), to: DriveId(3) }, 1),
        (called_off, 1),
        (set(1, DriveState::Missing, None), 1),
        (set(1, DriveState::Behind, None), 1),
        (server_down, 1),
        (rename, 0),
        (resize, 0),
        (Command::CreateSnapshot { volume: "w".to_owned(), name: "s".to_owned() }, 1),
        (Command::RollBack { volume: "w".to_owned(), name: "s".to_owned() }, 1),
        (Command::RenameSnapshot { volume: "w".to_owned(), name: "s".to_owned(), new_name: "t".to_owned() }, 0),
        (Command::RemoveSnapshot { volume: "w".to_owned(), name: "t".to_owned() }, 1),
    ] {
        let before = state.view();
        let shown = format!("{command:?}");
        done(&mut state, command);
        assert_eq!(state.view(), before + steps, "{shown}");
    }
}

#[test]
fn a_drive_that_grew_has_the_largest_capacity_that_was_told() {
    let mut state = cluster(&[(1, 1)]);
    let grew = |capacity| Command::DriveGrew { id: DriveId(1), capacity };
    let first = state.drives[&DriveId(1)].capacity;
    for (told, has) in
        [(first + 4096, first + 4096), (first + 9000, first + 9000), (first + 4096, first + 9000), (0, first + 9000)]
    {
        done(&mut state, grew(told));
        assert_eq!(state.drives[&DriveId(1)].capacity, has);
    }
    assert_eq!(refused(&state, grew(u64::MAX)), Refusal::Capacity { capacity: u64::MAX });
    assert_eq!(refused(&state, Command::DriveGrew { id: DriveId(7), capacity: 1 }), Refusal::NoDrive(DriveId(7)));
}

#[test]
fn a_drive_is_up_only_in_the_view_in_which_all_who_lead_said_that_it_knows_what_it_misses() {
    let mut state = cluster(&[(1, 1), (2, 1)]);
    let is_up = |id, view| Command::DriveIsUp { id: DriveId(id), reason: "because".to_owned(), view };
    done(&mut state, set(1, DriveState::Missing, None));
    done(&mut state, set(1, DriveState::Behind, None));
    let view = state.view();
    done(&mut state, set(2, DriveState::Missing, None));
    assert_eq!(refused(&state, is_up(1, view)), Refusal::ViewChanged { view: view + 1 });
    let (from, to) = (DriveState::Missing, DriveState::Up);
    assert_eq!(refused(&state, is_up(2, view + 1)), Refusal::Transition { id: DriveId(2), from, to });
    done(&mut state, is_up(1, view + 1));
    assert_eq!((state.drives[&DriveId(1)].state, state.view()), (DriveState::Up, view + 2));
}

/// Story: two servers can't reach each other, and each is the primary of something that the other has a copy of. Had only one
/// drive at a time been given up, both would have ended with none that was up.
#[test]
fn of_two_servers_that_complain_of_each_other_the_first_is_heard_and_the_other_has_nothing_to_complain_of() {
    let mut state = cluster(&[(1, 1), (2, 2), (3, 2), (4, 3)]);
    let (layout, pool) = (Some("mirror:2".to_owned()), DEFAULT_POOL.to_owned());
    done(&mut state, Command::CreateVolume { name: "v".to_owned(), size: 1 << 30, layout, pool });
    let complaint = |id, by, view| {
        let (id, by) = (ServerId(id), ServerId(by));
        Command::ServerCutOff { id, by, reason: "can't be reached".to_owned(), view }
    };
    let view = state.view();
    done(&mut state, complaint(2, 1, view));
    let states = |state: &State| state.drives.values().map(|drive| drive.state).collect::<Vec<_>>();
    let (up, missing) = (DriveState::Up, DriveState::Missing);
    assert_eq!(states(&state), [up, missing, missing, up]);
    assert_eq!(state.view(), view + 1, "all at once");
    assert_eq!(refused(&state, complaint(1, 2, view)), Refusal::ViewChanged { view: view + 1 });
    // There's nothing left to be given up.
    done(&mut state, complaint(2, 1, view + 1));
    assert_eq!((states(&state), state.view()), (vec![up, missing, missing, up], view + 1));
    done(&mut state, server_state(2, ServerState::Down, None));
    let already = Refusal::ServerAlready { id: ServerId(2), state: ServerState::Down };
    assert_eq!(refused(&state, complaint(2, 1, view + 2)), already);
    assert_eq!(refused(&state, complaint(9, 1, view + 2)), Refusal::NoServer(ServerId(9)));
}

#[test]
fn a_server_that_another_cannot_reach_keeps_the_drives_that_share_nothing_with_it() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    let (layout, pool) = (Some("stripe".to_owned()), DEFAULT_POOL.to_owned());
    done(&mut state, Command::CreateVolume { name: "v".to_owned(), size: 1 << 30, layout, pool });
    let (id, by, view) = (ServerId(2), ServerId(1), state.view());
    done(&mut state, Command::ServerCutOff { id, by, reason: "because".to_owned(), view });
    assert_eq!((state.drives[&DriveId(2)].state, state.view()), (DriveState::Up, view));
}

#[test]
fn a_drive_that_went_away_comes_up_only_by_the_view_it_was_seen_to_catch_up_in() {
    let mut state = cluster(&[(1, 1), (2, 1)]);
    done(&mut state, set(1, DriveState::Missing, None));
    let missed_since = state.view();
    done(&mut state, set(1, DriveState::Behind, None));
    let behind_since = state.view();
    assert_eq!(state.drives[&DriveId(1)].missed_since, Some(missed_since));

    assert_eq!(refused(&state, set(1, DriveState::Up, None)), Refusal::ViewNeeded { id: DriveId(1) });
    // It goes away and returns while somebody is about to call it whole.
    done(&mut state, set(1, DriveState::Missing, None));
    done(&mut state, set(1, DriveState::Behind, None));
    let now = state.view();
    assert_eq!(
        refused(&state, set(1, DriveState::Up, Some(behind_since))),
        Refusal::DriveChanged { id: DriveId(1), state: DriveState::Behind, state_view: now }
    );
    assert_eq!(state.drives[&DriveId(1)].missed_since, Some(missed_since));
    done(&mut state, set(1, DriveState::Up, Some(now)));
    assert_eq!(state.drives[&DriveId(1)].missed_since, None);
}

#[test]
fn only_the_listed_transitions_of_a_drive_are_taken() {
    for from in DriveState::ALL {
        for to in DriveState::ALL {
            let mut state = cluster(&[(1, 1)]);
            match from {
                DriveState::Up => {}
                _ => drop(done(&mut state, set(1, from, None))),
            }
            let view = state.drives[&DriveId(1)].state_view;
            let legal = from.may_become().contains(&to);
            assert_eq!(attempt(&mut state, set(1, to, Some(view))).is_ok(), legal, "{from} to {to}");
        }
    }
}

#[test]
fn a_stripe_gets_every_drive_that_is_up_with_neighbours_on_different_servers() {
    for (drives, order) in [
        (vec![(1, 1), (2, 1), (3, 1)], vec![1, 2, 3]),
        (vec![(1, 1), (2, 1), (3, 2), (4, 2)], vec![1, 3, 2, 4]),
        (vec![(1, 1), (2, 1), (3, 1), (4, 2), (5, 2), (6, 3)], vec![1, 4, 2, 5, 3, 6]),
        (vec![(1, 2), (2, 1), (3, 1)], vec![2, 3, 1]),
    ] {
        let mut state = cluster(&drives);
        done(&mut state, add_drive(99, 1));
        done(&mut state, set(99, DriveState::Offline, None));
        done(&mut state, create("v", "stripe"));
        let volume = state.volume_named("v").unwrap();
        let found: Vec<u64> = state.map_of(volume).unwrap().drives().iter().map(|id| id.0).collect();
        assert_eq!(found, order, "{drives:?}");
    }
}

#[test]
fn the_failure_domain_is_servers_where_there_are_enough_else_drives() {
    use FailureDomain::{Drive, Server};
    let one_server = [(1, 1), (2, 1), (3, 1)];
    let two_servers = [(1, 1), (2, 1), (3, 2)];
    for (drives, layout, domain) in [
        (&one_server, "mirror:2", Ok(Drive)),
        (&two_servers, "mirror:2", Ok(Server)),
        (&two_servers, "mirror:3", Ok(Drive)),
        (&two_servers, "mirror:2;domain=drive", Ok(Drive)),
        (&one_server, "mirror:2;domain=server", Err("2 copies on different servers, and there are 1")),
        (&one_server, "mirror:4", Err("4 copies on different drives, and there are 3")),
        (&one_server, "chained", Err("2 copies on different servers, and there are 1")),
        (&two_servers, "chained", Ok(Server)),
        (&two_servers, "chained;domain=drive", Err("neighbouring servers")),
        (&two_servers, "mirror:2;domain=site", Err("--site")),
        (&two_servers, "raid5", Err("unknown layout")),
    ] {
        let mut state = cluster(drives);
        match (attempt(&mut state, create("v", layout)), domain) {
            (Ok(_), Ok(domain)) => {
                let volume = state.volume_named("v").unwrap();
                assert_eq!(volume.layout.to_string(), layout, "as asked for");
                assert_eq!(state.map_of(volume).unwrap().layout.domain, Some(domain), "{layout}");
            }
            (Err(refusal), Err(said)) => assert!(refusal.to_string().contains(said), "{layout}: {refusal}"),
            (outcome, _) => panic!("{layout}: {outcome:?}"),
        }
    }
}

fn site(id: u32, site: Option<&str>) -> Command {
    Command::SetServerSite { id: ServerId(id), site: site.map(str::to_owned) }
}

fn domain_of(state: &State, volume: &str) -> Option<FailureDomain> {
    state.domain_of(state.volume_named(volume).unwrap())
}

#[test]
fn servers_that_all_say_their_sites_have_the_copies_at_different_ones() {
    use FailureDomain::{Server, Site};
    let mut state = cluster(&[(1, 1), (2, 2), (3, 3), (4, 4)]);
    let view = state.view();
    for (server, name) in [(1, "attic"), (2, "attic"), (3, "cellar")] {
        done(&mut state, site(server, Some(name)));
    }
    let no_sites = Refusal::NoSites { layout: "chained;domain=site".to_owned() };
    assert_eq!(refused(&state, create("v", "chained;domain=site")), no_sites, "s4 says none");
    done(&mut state, create("mixed", "chained"));
    assert_eq!(domain_of(&state, "mixed"), Some(Server));
    done(&mut state, site(4, Some("cellar")));
    done(&mut state, create("apart", "chained"));
    let volume = state.volume_named("apart").unwrap();
    let map = state.map_of(volume).unwrap();
    let order: Vec<u64> = map.drives().iter().map(|drive| drive.0).collect();
    assert_eq!((order, map.layout.domain), (vec![1, 3, 2, 4], Some(Site)));
    assert_eq!(state.view(), view, "nobody serves otherwise for that");

    // A server that was carried elsewhere.
    done(&mut state, site(3, Some("attic")));
    assert_eq!(domain_of(&state, "apart"), Some(Server));
    done(&mut state, site(3, None));
    assert_eq!(state.servers[&ServerId(3)].site, None);
    assert!(matches!(refused(&state, site(3, Some("a b"))), Refusal::Name { what: Thing::Site, .. }));
    assert_eq!(refused(&state, site(9, Some("a"))), Refusal::NoServer(ServerId(9)));
}

#[test]
fn what_the_copies_share_is_told_as_it_is_after_drives_were_carried_to_another_server() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, create("v", "mirror:2"));
    done(&mut state, create("bare", "stripe"));
    assert_eq!((domain_of(&state, "v"), domain_of(&state, "bare")), (Some(FailureDomain::Server), None));
    carry(&mut state, 2, 1);
    assert_eq!(domain_of(&state, "v"), Some(FailureDomain::Drive));
}

fn carry(state: &mut State, drive: u64, to: u32) {
    done(state, set(drive, DriveState::Missing, None));
    done(state, moved(drive, to));
}

fn moved(drive: u64, to: u32) -> Command {
    found(drive, to, 0)
}

fn found(drive: u64, at: u32, generation: u64) -> Command {
    Command::DriveMoved { id: DriveId(drive), server: ServerId(at), path: format!("/d{drive}"), generation }
}

/// Story: while a drive was used at another server, its own one kept the image of before, and knew of no newer generation.
#[test]
fn of_two_images_of_a_drive_the_one_that_was_used_last_is_used_on_whichever_server() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    done(&mut state, found(2, 2, 4));
    done(&mut state, set(2, DriveState::Missing, None));
    let view = state.view();
    assert_eq!(refused(&state, found(2, 1, 3)), Refusal::DriveOlder { id: DriveId(2), generation: 3, newest: 4 });
    let both_raised = Refusal::DriveOlder { id: DriveId(2), generation: 4, newest: 4 };
    assert_eq!(refused(&state, found(2, 1, 4)), both_raised);
    done(&mut state, found(2, 2, 4)); // asked again
    done(&mut state, found(2, 2, 5));
    assert_eq!(state.view(), view, "nothing that anybody acts by");
    done(&mut state, found(2, 1, 6));
    assert_eq!(refused(&state, found(2, 2, 5)), Refusal::DriveOlder { id: DriveId(2), generation: 5, newest: 6 });
    assert_eq!((state.drives[&DriveId(2)].generation, state.view()), (6, view + 1));
}

/// Story: a copy of a drive was taken into use at another server, and then the drive itself again at its own: each time it stayed
/// up, as if it had everything.
#[test]
fn a_drive_that_is_in_use_is_not_taken_over_and_one_whose_server_is_down_is() {
    let mut state = cluster(&[(1, 1), (2, 2)]);
    let in_use = Refusal::DriveInUse { id: DriveId(2), server: ServerId(2) };
    assert_eq!(refused(&state, moved(2, 1)), in_use);
    done(&mut state, set(2, DriveState::Missing, None));
    done(&mut state, set(2, DriveState::Behind, None));
    assert_eq!(refused(&state, moved(2, 1)), in_use, "it takes writes there");
    let down = ServerState::Down;
    let gone = Command::SetServerState { id: ServerId(2), to: down, reason: "silent".into(), expected_view: None };
    done(&mut state, gone);
    let view = state.view();
    done(&mut state, moved(2, 1));
    let drive = &state.drives[&DriveId(2)];
    assert_eq!((drive.server, drive.state, state.view()), (ServerId(1), DriveState::Missing, view + 1));
}

/// Story: drives were counted by their servers, so two that had come to be on one server counted as one.
#[test]
fn the_last_good_copy_is_known_by_the_columns_of_the_map() {
    let remove = |id| Command::RemoveDrive { id: DriveId(id), force: false };
    let mut state = cluster(&[(1, 1), (2, 2), (3, 3), (4, 4)]);
    done(&mut state, create("v", "chained"));
    carry(&mut state, 2, 1);
    for neighbour in [1, 3] {
        assert!(matches!(refused(&state, remove(neighbour)), Refusal::LastCopy { .. }), "d{neighbour}");
    }
    assert!(matches!(done(&mut state, remove(4)), Reply::DriveRetired { .. }), "it shares nothing with d2");
}

#[test]
fn names_and_sizes_outside_the_rules_are_refused() {
    let state = cluster(&[(1, 1)]);
    let long = "x".repeat(129);
    for name in ["", "-v", ".v", "a b", "a@b", "a/b", "é", "a\0", long.as_str()] {
        assert!(matches!(refused(&state, create(name, "stripe")), Refusal::Name { .. }), "{name:?}");
    }
    for name in ["v", "0", "_", "A.b-c_d", &long[..128]] {
        done(&mut state.clone(), create(name, "stripe"));
    }
    let sized =
        |size| Command::CreateVolume { name: "v".to_owned(), size, layout: None, pool: DEFAULT_POOL.to_owned() };
    for size in [0, 1, 511, 513, (1 << 63) + 512, u64::MAX] {
        assert_eq!(refused(&state, sized(size)), Refusal::Size { size });
    }
    for size in [512, 1536, 1 << 63] {
        done(&mut state.clone(), sized(size));
    }
}

#[test]
fn a_volume_shrinks_only_if_that_is_said() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    resized(&mut state, "v", 8192);
    let shrink = |shrink| Command::ResizeVolume { name: "v".to_owned(), size: 4096, shrink, cleared: None };
    assert_eq!(refused(&state, shrink(false)), Refusal::Shrink { name: "v".to_owned(), from: 8192, to: 4096 });
    done(&mut state, shrink(true));
    assert_eq!(state.volume_named("v").map(|volume| (volume.size, volume.revision)), Some((4096, 3)));
}

/// Story: a volume was made smaller and as large again while it was exported, and the export said that it had all of it.
#[test]
fn a_volume_that_was_made_smaller_is_not_whole_since_then() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    let revision = |state: &State| state.volume_named("v").unwrap().revision;
    let (size, before) = (state.volume_named("v").unwrap().size, revision(&state));
    resized(&mut state, "v", size * 2);
    assert!(state.volume_named("v").unwrap().is_whole_since(before), "it has only grown");
    resized(&mut state, "v", size);
    let cut = revision(&state);
    resized(&mut state, "v", size * 2);
    let is_whole_since = |revision| state.volume_named("v").unwrap().is_whole_since(revision);
    assert!(!is_whole_since(before) && !is_whole_since(cut - 1) && is_whole_since(cut) && is_whole_since(cut + 1));
}

/// Story: two servers resized a volume at once. One cleared what lay past its end; the other shortened it, and what it cut off was
/// there again when the first one let it grow.
#[test]
fn a_volume_grows_only_as_it_was_when_it_was_cleared_whatever_others_did_meanwhile() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    resized(&mut state, "v", 8192);
    // A snapshot of what may have something past its end, since that wasn't cleared.
    resized(&mut state, "v", 4096);
    let name = |name: &str| name.to_owned();
    let snapshot = || Command::CreateSnapshot { volume: name("v"), name: name("s") };
    done(&mut state, snapshot());
    let another = |size| Command::CreateVolume { name: name("v"), size, layout: None, pool: name(DEFAULT_POOL) };
    let gone = || Command::RemoveVolume { name: name("v"), snapshots: true };
    let rename = |from: &str, to: &str| Command::RenameVolume { name: name(from), new_name: name(to) };
    let shrink = || Command::ResizeVolume { name: name("v"), size: 2048, shrink: true, cleared: None };
    let meanwhile: [(&str, Vec<Command>); 6] = [
        ("it was shortened", vec![shrink()]),
        ("it was shortened, and has grown again to the same size", vec![shrink(), resize(&state, "v", 4096)]),
        ("it holds what a snapshot does", vec![Command::RollBack { volume: name("v"), name: name("s") }]),
        ("it's another one", vec![gone(), another(4096)]),
        (
            "it's another one, changed as often",
            vec![gone(), another(8192), rename("v", "w"), rename("w", "v"), shrink()],
        ),
        (
            "what was cleared since belongs to the next epoch",
            vec![Command::CreateSnapshot { volume: name("v"), name: name("t") }],
        ),
    ];
    let grow = resize(&state, "v", 16384);
    done(&mut state.clone(), grow.clone());
    for (what, commands) in meanwhile {
        let mut now = state.clone();
        for command in commands {
            let command = match command {
                Command::ResizeVolume { name, size, cleared: Some(_), .. } => resize(&now, &name, size),
                other => other,
            };
            done(&mut now, command);
        }
        assert_eq!(refused(&now, grow.clone()), Refusal::NotCleared(name("v")), "{what}");
        // Done anew it's right; and so is what doesn't grow by now.
        done(&mut now.clone(), resize(&now, "v", 16384));
        let size = now.volume_named("v").map_or(0, |volume| volume.size);
        done(&mut now, Command::ResizeVolume { name: name("v"), size, shrink: false, cleared: None });
    }
    // Who thought that it would become shorter has cleared nothing.
    let short = Command::ResizeVolume { name: name("v"), size: 6144, shrink: true, cleared: None };
    assert_eq!(refused(&state, short), Refusal::NotCleared(name("v")));
}

#[test]
fn a_growth_from_the_log_of_an_earlier_build_is_what_it_was() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    let text =
        r#"{"version":1,"unix_ms":9,"from":null,"command":{"resize_volume":{"name":"v","size":8192,"shrink":false}}}"#;
    let early: Proposal = serde_json::from_str(text).unwrap();
    assert_eq!(serde_json::to_string(&early).unwrap(), text);
    let grown = apply(&state, &early).unwrap().state;
    assert_eq!(grown.volume_named("v").map(|volume| (volume.size, volume.revision)), Some((8192, 2)));
    assert_eq!(refused(&state, early.command.clone()), Refusal::NotCleared("v".to_owned()), "in the newest version");
    assert_eq!(Proposal::new(9, None, early.command).version, 6);
}

#[test]
fn a_removed_volume_s_name_is_free_at_once_and_its_ids_never_come_back() {
    let mut state = cluster(&[(1, 1)]);
    let first = done(&mut state, create("v", "stripe"));
    let remove = || Command::RemoveVolume { name: "v".to_owned(), snapshots: false };
    done(&mut state, remove());
    assert_eq!(refused(&state, remove()), Refusal::NoVolume("v".to_owned()));
    let second = done(&mut state, create("v", "stripe"));
    assert_eq!(first, Reply::VolumeCreated { id: VolumeId(1), map: MapId(1) });
    assert_eq!(second, Reply::VolumeCreated { id: VolumeId(2), map: MapId(2) });
    let finish = |id| Command::FinishRemoveVolume { id: VolumeId(id) };
    assert_eq!(refused(&state, finish(2)), Refusal::NotDeleting("v".to_owned()));
    done(&mut state, finish(1));
    assert_eq!(refused(&state, finish(1)), Refusal::NoVolumeId(VolumeId(1)));
    assert!(!state.maps.contains_key(&MapId(1)));
    assert_eq!(done(&mut state, create("w", "stripe")), Reply::VolumeCreated { id: VolumeId(3), map: MapId(3) });
}

#[test]
fn a_drive_with_the_last_good_copy_is_removed_only_by_force() {
    let remove = |id, force| Command::RemoveDrive { id: DriveId(id), force };
    let endangered = |id, names: &[&str]| Refusal::LastCopy {
        id: DriveId(id),
        volumes: names.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut state = cluster(&[(1, 1), (2, 1)]);
    done(&mut state, create("safe", "mirror:2"));
    done(&mut state, create("bare", "stripe"));
    assert_eq!(refused(&state, remove(1, false)), endangered(1, &["bare"]));
    done(&mut state, Command::RemoveVolume { name: "bare".to_owned(), snapshots: false });

    done(&mut state, set(2, DriveState::Missing, None));
    assert_eq!(refused(&state, remove(1, false)), endangered(1, &["safe"]));
    done(&mut state, set(2, DriveState::Behind, None));
    assert_eq!(refused(&state, remove(1, false)), endangered(1, &["safe"]), "a drive that is behind doesn't count");
    let view = state.view();
    done(&mut state, set(2, DriveState::Up, Some(view)));

    let retired = done(&mut state, remove(1, false));
    assert_eq!(retired, Reply::DriveRetired { volumes: vec!["bare".to_owned(), "safe".to_owned()] });
    assert_eq!(state.drives[&DriveId(1)].state, DriveState::Failed);
    assert_eq!(refused(&state, remove(2, false)), endangered(2, &["safe"]));
    assert!(matches!(done(&mut state, remove(2, true)), Reply::DriveRetired { .. }));
}

#[test]
fn a_drive_that_never_came_since_a_rebuild_is_removed_as_one_that_left_with_the_others() {
    let mut state = cluster(&[(1, 1), (2, 1), (3, 1)]);
    done(&mut state, create("v", "mirror:3"));
    let before_view = state.view();
    let rebuild = |history| RebuildRecord {
        history,
        after_view: before_view - 1,
        after_events: 1,
        before_view,
        first_map: MapId(7),
        end_map: MapId(9),
    };
    // Two of them weren't found; the cluster was rebuilt once more since.
    let later = RebuildRecord { before_view: before_view + 9, ..rebuild(2) };
    state.rebuilds = Arc::new(vec![rebuild(1), later]);
    for id in [2, 3] {
        let record = DriveRecord {
            state: DriveState::Missing,
            state_view: before_view,
            missed_since: Some(before_view + 1),
            ..DriveRecord::clone(&state.drives[&DriveId(id)])
        };
        state.drives.insert(DriveId(id), Arc::new(record));
    }
    // One comes, takes writes and fails.
    done(&mut state, set(3, DriveState::Behind, None));
    done(&mut state, set(3, DriveState::Failed, None));
    for (id, left) in [(2, before_view), (3, before_view + 1)] {
        done(&mut state, Command::RemoveDrive { id: DriveId(id), force: true });
        assert_eq!(state.drives[&DriveId(id)].missed_since, Some(left), "drive {id}");
    }
}

#[test]
fn a_drive_that_no_map_names_is_forgotten_and_may_be_added_again() {
    let mut state = cluster(&[(1, 1)]);
    assert!(matches!(refused(&state, add_drive(1, 1)), Refusal::DriveExists { .. }));
    done(&mut state, set(1, DriveState::Failed, None));
    assert_eq!(done(&mut state, Command::RemoveDrive { id: DriveId(1), force: false }), Reply::Done);
    done(&mut state, add_drive(1, 1));
}

#[test]
fn a_pool_goes_only_when_it_is_empty_and_gives_its_layout_to_volumes_without_one() {
    let mut state = cluster(&[]);
    let pool = "fast".to_owned();
    let layout = Some("mirror:2;min_copies=2".to_owned());
    done(&mut state, Command::CreatePool { name: pool.clone(), layout });
    for id in [1, 2] {
        let path = format!("/d{id}");
        let server = ServerId(1);
        done(
            &mut state,
            Command::AddDrive { id: DriveId(id), server, pool: pool.clone(), path, capacity: 1, spare: false },
        );
    }
    done(&mut state, Command::CreateVolume { name: "v".to_owned(), size: 512, layout: None, pool: pool.clone() });
    assert_eq!(state.volume_named("v").unwrap().layout.to_string(), "mirror:2;min_copies=2");
    let remove = Command::RemovePool { name: pool.clone() };
    assert_eq!(refused(&state, remove), Refusal::PoolInUse { name: pool, drives: 2, volumes: 1 });
}

#[test]
fn hostile_text_is_refused_or_clipped() {
    let mut state = cluster(&[(1, 1)]);
    for address in ["", "h", ":1", "h:", "h:99999", "unix:", "h\n:1"] {
        let add = Command::JoinServer { folder: 9, address: address.to_owned(), claim: None };
        assert!(matches!(refused(&state, add), Refusal::Address(_)), "{address:?}");
    }
    for path in ["", "a\nb", &"x".repeat(4097)] {
        let moved = Command::DriveMoved { id: DriveId(1), server: ServerId(1), path: path.to_owned(), generation: 0 };
        assert!(matches!(refused(&state, moved), Refusal::Path(_)));
    }
    let reason = "é".repeat(60_000);
    let gone = Command::SetDriveState { id: DriveId(1), to: DriveState::Missing, reason, expected_view: None };
    done(&mut state, gone);
    assert_eq!(state.drives[&DriveId(1)].reason.chars().count(), 800);
}

#[test]
fn a_layout_that_names_drives_has_its_columns_there_and_nothing_else_has_their_bytes() {
    let mut state = cluster(&[(1, 1), (2, 1), (3, 1)]);
    let on = |drive: u64, offset: &str| format!("{drive:016x}:{offset}+4K");
    let mirrored = format!("plexes:concat({},{})|concat({})", on(1, "0"), on(2, "0"), on(3, "0"));
    done(&mut state, create("v", &mirrored));
    let map = state.map_of(state.volume_named("v").unwrap()).unwrap();
    let holders = |column: usize| map.columns[column].holders.iter().map(|it| it.drive.0).collect::<Vec<_>>();
    assert_eq!((holders(0), holders(1), map.geometry().columns()), (vec![1, 3], vec![2], 2));
    for (layout, said) in [
        (
            format!("plexes:concat({})", on(3, "0")),
            "a subdisk of volume 'v' has 4K of drive 0000000000000003 from 0 on",
        ),
        (format!("plexes:concat({})", on(9, "0")), "drive 0000000000000009 has 0"),
        (format!("plexes:concat({})", on(3, "1G")), "a subdisk ends at"),
    ] {
        let refusal = refused(&state, create("w", &layout)).to_string();
        assert!(refusal.contains(said), "{layout}: {refusal}");
    }
    for (min_copies, fits) in [(1, true), (2, false)] {
        let mut fresh = cluster(&[(1, 1), (2, 1), (3, 1)]);
        let made = attempt(&mut fresh, create("w", &format!("{mirrored};min_copies={min_copies}")));
        assert_eq!(made.is_ok(), fits, "{made:?}");
    }
    let layout = Some(mirrored);
    let (name, pool) = ("w".to_owned(), DEFAULT_POOL.to_owned());
    let longer =
        refused(&cluster(&[(1, 1), (2, 1), (3, 1)]), Command::CreateVolume { name, size: 12288, layout, pool });
    assert_eq!(longer, Refusal::SizeOfPlexes { size: 12288, room: 8192 });
    done(&mut state, set(3, DriveState::Missing, None));
    let away = refused(&state, create("w", &format!("plexes:concat({})", on(3, "4K")))).to_string();
    assert!(away.contains("isn't there, up and in use"), "{away}");
}

#[test]
fn drives_names_are_unique_and_can_be_taken_away() {
    let mut state = cluster(&[(1, 1), (2, 1)]);
    let name = |id, name: Option<&str>| Command::NameDrive { id: DriveId(id), name: name.map(str::to_owned) };
    done(&mut state, name(1, Some("a")));
    assert_eq!(refused(&state, name(2, Some("a"))), Refusal::DriveNameTaken { name: "a".to_owned(), id: DriveId(1) });
    done(&mut state, name(1, Some("a")));
    assert!(refused(&state, name(2, Some("-a"))).to_string().contains("use 1 to 128"));
    done(&mut state, name(1, None));
    done(&mut state, name(2, Some("a")));
    assert_eq!(state.drive_named("a").map(|drive| drive.id), Some(DriveId(2)));
}
