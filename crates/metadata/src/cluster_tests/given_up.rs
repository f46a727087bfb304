//! Commands of servers that are cut off: what was said not to be done, or was given up, isn't done when the network is back.

use super::rig::{Cluster, has_pool, pool};
use crate::ProposeError;
use crate::command::Proposal;
use crate::record::ServerState;
use openraft::errors::{ClientWriteError, RaftError};
use std::time::{Duration, Instant};

/// Nobody is asked for long who can do nothing.
const SOON: Duration = Duration::from_secs(25);

/// Who leads, and the two others.
fn roles(cluster: &Cluster) -> (u32, [u32; 2]) {
    (1..=3).for_each(|server| cluster.eventually("it may serve", |cluster| cluster.may_serve(server)));
    cluster.eventually("one leads", |cluster| cluster.leader().is_some());
    let leader = cluster.leader().unwrap();
    (leader, [leader % 3 + 1, (leader + 1) % 3 + 1])
}

/// All is as before, and everybody has what was asked for last.
fn back(cluster: &Cluster, server: u32) {
    cluster.isolate(server, false);
    (1..=3).for_each(|server| cluster.eventually("it may serve again", |cluster| cluster.may_serve(server)));
    cluster.propose(server, pool("the-last")).unwrap();
    cluster.agree();
}

/// Story: a leader that was cut off took commands into its log, and answered nobody for as long as it was. Its clients gave up; when
/// the network was back their volumes were gone.
#[test]
fn a_leader_that_is_cut_off_refuses_commands_and_does_none_later() {
    let cluster = Cluster::of(3);
    let (leader, [other, _]) = roles(&cluster);
    cluster.isolate(leader, true);
    cluster.eventually("it's declared down", |cluster| cluster.is(other, leader, ServerState::Down));
    let asked = Instant::now();
    let (metadata, member) = (cluster.metadata(leader).clone(), cluster.metadata(leader).member.clone());
    let (by_client, by_server) = cluster.run(leader, |_| async move {
        tokio::join!(metadata.propose(pool("by-client")), member.propose(pool("by-server")))
    });
    assert!(matches!(by_client, Err(ProposeError::NoMajority { .. })), "{by_client:?}");
    assert!(matches!(by_server, Err(ProposeError::NoMajority { .. })), "{by_server:?}");
    assert!(asked.elapsed() < SOON, "it took {:?}", asked.elapsed());
    back(&cluster, leader);
    for name in ["by-client", "by-server"] {
        assert!(!has_pool(&cluster.state(other), name), "'{name}' was said not to be made");
    }
}

#[test]
fn a_server_that_is_cut_off_and_does_not_lead_refuses_commands_soon() {
    let cluster = Cluster::of(3);
    let (leader, [cut_off, _]) = roles(&cluster);
    cluster.isolate(cut_off, true);
    cluster.eventually("it's declared down", |cluster| cluster.is(leader, cut_off, ServerState::Down));
    let asked = Instant::now();
    let refused = cluster.propose(cut_off, pool("refused"));
    assert!(matches!(refused, Err(ProposeError::NoMajority { .. })), "{refused:?}");
    assert!(asked.elapsed() < SOON, "it took {:?}", asked.elapsed());
    back(&cluster, cut_off);
    assert!(!has_pool(&cluster.state(leader), "refused"));
}

/// Story: an orchestrator asked a server that was cut off, without knowing, whose volume it was, and went by an answer of before.
#[test]
fn a_server_that_was_cut_off_has_caught_up_only_when_it_is_heard_again() {
    let cluster = Cluster::of(3);
    let (leader, [cut_off, other]) = roles(&cluster);
    for (number, server) in [leader, other, cut_off].into_iter().enumerate() {
        let made = format!("made-{number}");
        cluster.propose(leader, pool(&made)).unwrap();
        cluster.run(server, crate::Metadata::catch_up).unwrap();
        assert!(has_pool(&cluster.state(server), &made));
    }
    cluster.isolate(cut_off, true);
    cluster.propose(leader, pool("new")).unwrap();
    let asked = Instant::now();
    let outcome = cluster.run(cut_off, crate::Metadata::catch_up);
    assert!(matches!(outcome, Err(ProposeError::NoMajority { .. })), "{outcome:?}");
    assert!(asked.elapsed() < SOON, "it took {:?}", asked.elapsed());
    assert!(!has_pool(&cluster.state(cut_off), "new"), "it was cut off");
    back(&cluster, cut_off);
    cluster.run(cut_off, crate::Metadata::catch_up).unwrap();
    assert!(has_pool(&cluster.state(cut_off), "new"));
}

/// What a cut-off server had sent, the kernel sends again when the network is back, long after its client has given up.
#[test]
fn a_command_that_arrives_after_its_server_was_declared_down_is_not_done() {
    let cluster = Cluster::of(3);
    let (leader, [cut_off, _]) = roles(&cluster);
    cluster.isolate(cut_off, true);
    let member = cluster.metadata(cut_off).member.clone();
    let asking = cluster.begin(cut_off, async move { member.propose(pool("late")).await });
    cluster.eventually("it's declared down", |cluster| cluster.is(leader, cut_off, ServerState::Down));
    asking.abort();
    cluster.run(cut_off, |_| asking).expect_err("it has given up");
    cluster.deliver(leader);
    back(&cluster, cut_off);
    assert!(!has_pool(&cluster.state(leader), "late"));
}

/// The same command, of a server that nobody took for gone: it's done, so it was kept and does arrive.
#[test]
fn a_command_that_arrives_late_from_a_server_that_is_up_is_done() {
    let cluster = Cluster::of(3);
    let (leader, [sender, _]) = roles(&cluster);
    cluster.cut(sender, leader, true);
    let member = cluster.metadata(sender).member.clone();
    let asking = cluster.begin(sender, async move { member.propose(pool("kept")).await });
    cluster.eventually("it's sent", |cluster| cluster.is_kept(leader, "kept"));
    asking.abort();
    cluster.cut(sender, leader, false);
    cluster.deliver(leader);
    cluster.eventually("it's done", |cluster| has_pool(&cluster.state(leader), "kept"));
}

#[test]
fn what_only_a_deposed_leader_has_in_its_log_is_dropped() {
    let cluster = Cluster::of(3);
    let (leader, [other, _]) = roles(&cluster);
    cluster.isolate(leader, true);
    let member = cluster.metadata(leader).member.clone();
    let write = async move { member.raft.client_write(Proposal::new(0, None, pool("alone"))).await };
    let writing = cluster.begin(leader, write);
    cluster.eventually("it's declared down", |cluster| cluster.is(other, leader, ServerState::Down));
    back(&cluster, leader);
    // Who writes is told that it was begun, or a second attempt would be taken for the first.
    let outcome = cluster.run(leader, |_| writing).unwrap();
    let is_told = matches!(&outcome, Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))));
    assert!(is_told, "{outcome:?}");
    assert!(!has_pool(&cluster.state(other), "alone"));
}
