//! Servers come and go.

use super::rig::{Cluster, PATIENCE, add_drive, has_pool, pool};
use crate::command::{Command, Reply};
use crate::leases::held::Lease;
use crate::record::{DEFAULT_POOL, ServerState};
use crate::{ProposeError, Refusal};
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::time::Duration;
use tepal_model::ServerId;

#[test]
fn servers_join_through_any_server_vote_and_carry_out_commands_wherever_they_are_asked() {
    let mut cluster = Cluster::new();
    cluster.propose(1, pool("before")).unwrap();
    assert_eq!(cluster.metadata(1).lease(), Lease::Alone);
    cluster.join(2, &[1], None).unwrap();
    cluster.run(2, |metadata| metadata.wait_for_its_place()).unwrap();
    assert_eq!(cluster.voters(2), [1].into());
    cluster.join(3, &[7, 2], None).unwrap();
    for server in [2, 3] {
        cluster.run(server, |metadata| metadata.wait_for_its_place()).unwrap();
        let name = format!("through-{server}");
        cluster.propose(server, pool(&name)).unwrap();
        assert!(has_pool(&cluster.state(server), &name), "what was acknowledged shows where it was asked");
        assert!(has_pool(&cluster.state(server), "before"));
        let refused = cluster.propose(server, pool(&name));
        assert!(matches!(refused, Err(ProposeError::Refused(Refusal::PoolExists(_)))), "{refused:?}");
    }
    cluster.eventually("three vote", |cluster| cluster.voters(3).len() == 3);
    cluster.eventually("all hold a lease that ends", |cluster| {
        (1..=3).all(|server| matches!(cluster.metadata(server).lease(), Lease::Held { .. }))
    });
    cluster.agree();
    let state = cluster.state(1);
    assert!(state.servers.values().all(|server| server.state == ServerState::Up), "{:?}", state.servers);
}

/// Story: who joined a server that was elsewhere than when the cluster was made, as after a rebuild, was told where it had been, asked
/// there for ever, and had no place in the cluster.
#[test]
fn who_joins_is_told_where_servers_are_now() {
    let mut cluster = Cluster::of(1);
    cluster.move_to(1, 7);
    cluster.join(2, &[7], None).unwrap();
    cluster.run(2, |metadata| metadata.wait_for_its_place()).unwrap();
    cluster.propose(2, pool("through-2")).unwrap();
}

#[test]
fn a_server_that_joins_long_after_gets_a_snapshot() {
    let mut cluster = Cluster::of(1);
    for n in 0..20 {
        cluster.propose(1, pool(&format!("p{n}"))).unwrap();
    }
    cluster.propose(1, add_drive(1, 1)).unwrap();
    let (size, pool, volume, name) = (4096, DEFAULT_POOL.to_owned(), "v".to_owned(), "s".to_owned());
    cluster.propose(1, Command::CreateVolume { name: volume.clone(), size, layout: None, pool }).unwrap();
    cluster.propose(1, Command::CreateSnapshot { volume: volume.clone(), name: name.clone() }).unwrap();
    cluster.propose(1, Command::RollBack { volume: volume.clone(), name }).unwrap();
    cluster.run(1, |metadata| async {
        let raft = &metadata.member.raft;
        raft.trigger().snapshot().await.unwrap();
        raft.wait(None).metrics(|m| m.snapshot.is_some(), "a snapshot").await.unwrap();
        let last = raft.metrics().borrow_watched().last_applied.map(|id| id.index).unwrap();
        raft.trigger().purge_log(last).await.unwrap();
        raft.wait(None).metrics(|m| m.purged.is_some(), "a purge").await.unwrap();
    });
    cluster.join(2, &[1], None).unwrap();
    cluster.run(2, |metadata| metadata.wait_for_its_place()).unwrap();
    assert!(has_pool(&cluster.state(2), "p19"));
    let installed = cluster.run(2, |metadata| async { metadata.member.raft.metrics().borrow_watched().snapshot });
    assert!(installed.is_some(), "it came by a snapshot");
    cluster.agree();
    let name = "t".to_owned();
    let taken = cluster.propose(2, Command::CreateSnapshot { volume, name }).unwrap();
    assert!(matches!(taken, Reply::SnapshotCreated { epoch: 3, .. }), "{taken:?}");
    cluster.agree();
}

#[test]
fn a_voter_that_is_gone_for_good_is_replaced_and_a_removed_server_leaves() {
    let mut cluster = Cluster::of(4);
    let voters = cluster.voters(1);
    let lost = *voters.iter().find(|node| **node != 1).unwrap() as u32;
    cluster.kill(lost);
    cluster.eventually("another one votes instead", |cluster| {
        let now = cluster.voters(1);
        now.len() == 3 && !now.contains(&u64::from(lost))
    });
    cluster.propose(1, Command::RemoveServer { id: ServerId(lost) }).unwrap();
    let others: Vec<u32> = (1..=4).filter(|server| *server != lost).collect();
    cluster.eventually("it's no member any more", |cluster| {
        others.iter().all(|server| {
            let member = &cluster.metadata(*server).member;
            let metrics = member.raft.server_metrics();
            metrics.borrow_watched().membership_config.nodes().all(|(node, _)| *node != u64::from(lost))
        })
    });
    // It comes back, and is told.
    cluster.start(lost).unwrap();
    let why = cluster.run(lost, |metadata| metadata.failed());
    assert!(matches!(&why, ProposeError::Expelled(why) if why.contains("removed")), "{why}");
}

#[test]
fn the_leader_itself_can_be_removed() {
    let cluster = Cluster::of(4);
    let leader = cluster.leader().unwrap();
    let other = (1..=4).find(|server| *server != leader).unwrap();
    let refused = {
        cluster.propose(other, add_drive(5, leader)).unwrap();
        cluster.propose(other, Command::RemoveServer { id: ServerId(leader) })
    };
    assert!(matches!(refused, Err(ProposeError::Refused(Refusal::ServerHasDrives { .. }))), "{refused:?}");
    cluster.propose(other, Command::RemoveDrive { id: tepal_model::DriveId(5), force: true }).unwrap();
    cluster.propose(other, Command::RemoveServer { id: ServerId(leader) }).unwrap();
    cluster.eventually("others lead and vote", |cluster| {
        let now = cluster.voters(other);
        now.len() == 3 && !now.contains(&u64::from(leader))
    });
    cluster.propose(other, pool("after")).unwrap();
    let why = cluster.run(leader, |metadata| metadata.failed());
    assert!(matches!(why, ProposeError::Expelled(_)), "{why}");
}

#[test]
fn a_view_is_known_to_be_adopted_by_all_once_they_said_so() {
    let cluster = Cluster::of(3);
    cluster.propose(2, add_drive(1, 2)).unwrap();
    let view = cluster.state(2).view();
    let adopted = cluster
        .run(2, |metadata| async move { tokio::time::timeout(PATIENCE, metadata.adopted_everywhere(view)).await });
    assert!(matches!(adopted, Ok(Ok(()))));
    cluster.eventually("all act in it", |cluster| (1..=3).all(|server| cluster.state(server).view() >= view));
}

/// Story: the leader dies between the steps by which servers become members and get their votes. Whoever leads then
/// goes on from what is there.
#[test]
fn the_members_become_what_they_should_be_at_whatever_step_the_leader_dies() {
    for delay in [0, 40, 80, 160] {
        let mut cluster = Cluster::new();
        for server in [2, 3] {
            cluster.join(server, &[1], None).unwrap();
        }
        std::thread::sleep(Duration::from_millis(delay));
        cluster.kill(1);
        std::thread::sleep(Duration::from_millis(delay));
        cluster.start(1).unwrap();
        cluster.all_up_and_agreed(3, 3);
        cluster.propose(2, pool("after")).unwrap();
        cluster.agree();
    }
}
