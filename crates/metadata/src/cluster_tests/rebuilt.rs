//! Clusters whose folders are all lost, begun again from what a drive has kept.

use super::rig::{CLUSTER, Cluster, add_drive, address, has_pool, pool};
use crate::record::{DriveState, ServerState};
use crate::{Command, FoundDrive, Metadata, OpenError, ProposeError, Rebuild, RebuildError, State};
use std::collections::BTreeMap;
use std::path::Path;
use tepal_model::{DriveId, ServerId};

fn block_on<R>(work: impl Future<Output = R>) -> R {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn rebuild(folder: &Path, copy: &[u8], server: u32, found: &[u64]) -> Result<(), RebuildError> {
    let found = found.iter().map(|id| (DriveId(*id), found_at(server, *id)));
    let (server, address, found) = (ServerId(server), address(server), found.collect());
    begin(folder, copy, &Rebuild { server, address, found, given_up: BTreeMap::new() })
}

fn found_at(server: u32, id: u64) -> FoundDrive {
    FoundDrive { server: ServerId(server), path: format!("/now/{id}"), generation: 9, keeps_view: true }
}

fn begin(folder: &Path, copy: &[u8], how: &Rebuild) -> Result<(), RebuildError> {
    std::fs::create_dir_all(folder).unwrap();
    block_on(Metadata::rebuild(folder, &State::from_copy(copy).unwrap(), how))
}

/// Three servers with a drive each, and a volume with a snapshot.
fn busy() -> Cluster {
    let cluster = Cluster::of(3);
    for drive in 1..=3 {
        cluster.propose(1, add_drive(drive, drive as u32)).unwrap();
    }
    let (name, layout, pool) = ("v".to_owned(), Some("mirror:2".to_owned()), "default".to_owned());
    cluster.propose(2, Command::CreateVolume { name, size: 1 << 30, layout, pool }).unwrap();
    cluster.propose(3, Command::CreateSnapshot { volume: "v".to_owned(), name: "s".to_owned() }).unwrap();
    cluster.agree();
    cluster
}

fn lose(cluster: &mut Cluster) {
    for server in 1..=3 {
        cluster.kill(server);
        std::fs::remove_dir_all(cluster.folder(server)).unwrap();
    }
}

fn left(state: &State) -> BTreeMap<u64, (DriveState, Option<u64>)> {
    state.drives.values().map(|record| (record.id.0, (record.state, record.missed_since))).collect()
}

#[test]
fn a_cluster_that_lost_all_folders_goes_on_from_a_saved_state_with_every_server_under_its_id() {
    let mut cluster = busy();
    let before = cluster.state(2);
    let copy = before.to_copy();
    let old = cluster.folder(90);
    std::fs::create_dir(&old).unwrap();
    cluster.kill(3);
    for entry in std::fs::read_dir(cluster.folder(3)).unwrap().map(Result::unwrap) {
        std::fs::copy(entry.path(), old.join(entry.file_name())).unwrap();
    }
    cluster.start(3).unwrap();
    lose(&mut cluster);

    rebuild(&cluster.folder(2), &copy, 2, &[1, 2]).unwrap();
    let again = rebuild(&cluster.folder(2), &copy, 2, &[1, 2]);
    assert!(matches!(again, Err(RebuildError::Open(OpenError::AlreadyThere(_)))), "{again:?}");
    cluster.start(2).unwrap();
    let now = cluster.state(2);
    assert!(now.view() > before.view() && now.cluster.id == CLUSTER);
    assert_eq!((now.volumes.len(), now.count_snapshots(now.volume_named("v").unwrap().id)), (1, 1));
    let rebuilt_in = now.rebuilds[0].before_view;
    let history = now.history();
    assert!(now.has_past(0, before.view(), before.events()) && now.has_past(history, now.view() + 5, 0));
    for (history, view, events) in
        [(0, before.view(), before.events() + 1), (0, before.view() + 1, 0), (history ^ 2, 1, 1)]
    {
        assert!(!now.has_past(history, view, events), "{history} {view} {events}");
    }
    // Who wasn't found may have gone on alone.
    let missing = |left| (DriveState::Missing, Some(left));
    let expected = [(1, missing(rebuilt_in)), (2, missing(rebuilt_in)), (3, missing(rebuilt_in + 1))];
    assert_eq!(left(&now), expected.into());
    assert_eq!((now.drives[&DriveId(1)].server, now.drives[&DriveId(1)].generation), (ServerId(2), 9));
    cluster.propose(2, pool("alone")).unwrap();

    for server in [3, 1] {
        cluster.join(server, &[2], Some(ServerId(server))).unwrap();
        cluster.run(server, Metadata::wait_for_its_place).unwrap();
    }
    cluster.eventually("three vote", |cluster| (1..=3).all(|server| cluster.agreed_voters(server) == 3));
    cluster.propose(1, pool("after")).unwrap();
    cluster.agree();
    assert!(has_pool(&cluster.state(3), "alone") && cluster.state(3).rebuilds == now.rebuilds);
    // Who comes with a folder of before isn't heard, and stops nobody.
    cluster.kill(3);
    std::fs::rename(cluster.folder(3), cluster.folder(91)).unwrap();
    std::fs::rename(&old, cluster.folder(3)).unwrap();
    cluster.start(3).unwrap();
    cluster.propose(1, pool("without-it")).unwrap();
    cluster.eventually("the other one knows", |cluster| has_pool(&cluster.state(2), "without-it"));
    assert!(!has_pool(&cluster.state(3), "without-it"));
    // All of this is there after a restart.
    for server in [1, 2] {
        cluster.kill(server);
    }
    cluster.kill(3);
    std::fs::remove_dir_all(cluster.folder(3)).unwrap();
    std::fs::rename(cluster.folder(91), cluster.folder(3)).unwrap();
    for server in [2, 1, 3] {
        cluster.start(server).unwrap();
    }
    cluster.eventually("they vouch for each other", |cluster| has_pool(&cluster.state(1), "after"));
    assert_eq!(cluster.state(2).rebuilds, now.rebuilds);
}

#[test]
fn a_rebuild_that_was_interrupted_is_begun_again_and_what_agreed_upon_anything_is_not_overwritten() {
    let mut cluster = busy();
    let copy = cluster.state(1).to_copy();
    lose(&mut cluster);
    let folder = cluster.folder(1);
    rebuild(&folder, &copy, 1, &[1]).unwrap();
    std::fs::remove_file(folder.join("raft.db")).unwrap();
    rebuild(&folder, &copy, 1, &[1, 2, 3]).unwrap();
    cluster.start(1).unwrap();
    cluster.propose(1, add_drive(4, 1)).unwrap();
    cluster.kill(1);
    std::fs::remove_file(folder.join("raft.db")).unwrap();
    let refused = rebuild(&folder, &copy, 1, &[1]);
    assert!(matches!(refused, Err(RebuildError::Open(OpenError::Damaged { .. }))), "{refused:?}");
    let none = rebuild(&cluster.folder(7), &copy, 7, &[1]);
    assert!(matches!(none, Err(RebuildError::NoServer(ServerId(7)))), "{none:?}");
}

#[test]
fn what_may_have_been_given_out_after_the_saved_state_is_not_given_out_again() {
    let cluster = busy();
    let before = cluster.state(1);
    let folder = cluster.folder(80);
    rebuild(&folder, &before.to_copy(), 1, &[1, 2, 3]).unwrap();
    let rebuilt = block_on(async {
        let opened = Metadata::open(&folder).await.unwrap();
        opened.propose(Command::CreateSnapshot { volume: "v".to_owned(), name: "t".to_owned() }).await.unwrap();
        let (name, layout, pool) = ("w".to_owned(), Some("stripe".to_owned()), "default".to_owned());
        let refused = opened.propose(Command::CreateVolume { name, size: 512, layout, pool }).await;
        assert!(matches!(refused, Err(ProposeError::Refused(_))), "no drive is up");
        let state = opened.state();
        opened.shutdown().await;
        state
    });
    let (old, new) = (before.volume_named("v").unwrap(), rebuilt.volume_named("v").unwrap());
    assert!(new.revision > old.revision + 1000 && new.epoch > old.epoch + 1000);
    let first_map = before.next_map();
    assert!(
        rebuilt.is_map_of_another_past(first_map)
            && !rebuilt.is_map_of_another_past(old.map)
            && rebuilt.next_map() > first_map
    );
    assert_eq!(rebuilt.servers[&ServerId(1)].state, ServerState::Up);
    assert_eq!(rebuilt.servers[&ServerId(2)].state, ServerState::Down);
}

/// Story: two rebuilds from one state gave their servers the same numbers, so that each sent the other its log.
#[test]
fn two_clusters_that_were_rebuilt_from_one_state_do_not_hear_each_other_and_both_go_on() {
    let mut cluster = busy();
    let copy = cluster.state(1).to_copy();
    lose(&mut cluster);
    for server in [1, 2] {
        rebuild(&cluster.folder(server), &copy, server, &[1, 2, 3]).unwrap();
        cluster.start(server).unwrap();
        cluster.propose(server, pool(&format!("of-s{server}"))).unwrap();
    }
    // Each is a learner to the other, by the number that it has.
    let has_noticed =
        |cluster: &Cluster, server| !cluster.metadata(server).member.peers.apart.lock().unwrap().is_empty();
    cluster.eventually("both have noticed", |cluster| has_noticed(cluster, 1) && has_noticed(cluster, 2));
    for (server, other) in [(1, 2), (2, 1)] {
        cluster.propose(server, pool("later")).unwrap();
        let state = cluster.state(server);
        assert!(has_pool(&state, &format!("of-s{server}")) && !has_pool(&state, &format!("of-s{other}")));
    }
    assert_ne!(cluster.state(1).history(), cluster.state(2).history());
    // A third one is of that which it has joined, also before it knows anything else.
    cluster.join(3, &[2], Some(ServerId(3))).unwrap();
    cluster.run(3, Metadata::wait_for_its_place).unwrap();
    assert!(has_pool(&cluster.state(3), "of-s2"));
}

#[test]
fn drives_count_as_having_left_when_they_may_have_been_up_last() {
    let cluster = busy();
    let drive = |id, to| Command::SetDriveState { id: DriveId(id), to, reason: String::new(), expected_view: None };
    for (id, to) in [(4, DriveState::Missing), (5, DriveState::Missing), (6, DriveState::Failed)] {
        cluster.propose(1, add_drive(id, 1)).unwrap();
        cluster.propose(1, drive(id, to)).unwrap();
    }
    let before = cluster.state(1);
    let found = [(1, true), (2, false), (4, false), (6, true)];
    let found = found.map(|(id, keeps_view)| (DriveId(id), FoundDrive { keeps_view, ..found_at(1, id) }));
    let given_up = [(DriveId(5), "gone".to_owned())].into();
    let (folder, server) = (cluster.folder(80), ServerId(1));
    begin(&folder, &before.to_copy(), &Rebuild { server, address: address(1), found: found.into(), given_up }).unwrap();
    let (rebuilt, left_before) = block_on(async {
        let opened = Metadata::open(&folder).await.unwrap();
        let state = opened.state();
        opened.shutdown().await;
        let left_before = left(&before);
        (state, left_before)
    });
    let view = rebuilt.rebuilds[0].before_view;
    let expected = [
        (1, (DriveState::Missing, Some(view))),
        // It's here, and what it did since nobody knows.
        (2, (DriveState::Missing, Some(view + 1))),
        (3, (DriveState::Missing, Some(view + 1))),
        // Those that had left before, left then.
        (4, left_before[&4]),
        (5, (DriveState::Failed, left_before[&5].1)),
        (6, left_before[&6]),
    ];
    assert_eq!(left(&rebuilt), expected.into());
    assert_eq!(rebuilt.drives[&DriveId(5)].reason, "gone");
}
