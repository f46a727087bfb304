//! Servers that are killed, cut off, paused and restarted, while commands are asked for on all of them.

use super::rig::{Cluster, PATIENCE, add_drive, has_pool, pool, timing};
use crate::command::Command;
use crate::leases::held::Lease;
use crate::record::{DriveState, ServerState};
use crate::{Metadata, ProposeError, QueryLimits, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tepal_model::{DriveId, ServerId};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

/// For what depends on who leads afterwards.
const ATTEMPTS: usize = 5;

/// Asks for one event after the other, each told apart by its subject, and notes which were acknowledged.
struct Writers {
    runtime: Runtime,
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    tasks: BTreeMap<u32, JoinHandle<()>>,
    count: u32,
}

impl Writers {
    fn new() -> Writers {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Writers { runtime, acknowledged: Arc::default(), tasks: BTreeMap::new(), count: 0 }
    }

    fn start(&mut self, server: u32, metadata: Metadata) {
        self.count += 1;
        let (acknowledged, writer) = (self.acknowledged.clone(), self.count);
        let task = self.runtime.spawn(async move {
            for n in 0.. {
                let subject = format!("{writer}-{n}");
                let command =
                    Command::RecordEvent { kind: "test".to_owned(), subject: subject.clone(), text: String::new() };
                if metadata.propose(command).await.is_ok() {
                    acknowledged.lock().unwrap().insert(subject);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        self.tasks.insert(server, task);
    }

    /// Before its server is killed, or nothing would let go of the folder.
    fn stop(&mut self, server: u32) {
        if let Some(task) = self.tasks.remove(&server) {
            task.abort();
            let _ = self.runtime.block_on(task);
        }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    /// Whatever was acknowledged was done, and nothing twice, in the eyes of every server.
    fn check(mut self, cluster: &Cluster) {
        for server in self.tasks.keys().copied().collect::<Vec<_>>() {
            self.stop(server);
        }
        let first = *cluster.running.keys().next().unwrap();
        cluster.propose(first, pool("the-last")).unwrap();
        cluster.eventually("all have everything", |cluster| {
            cluster.running.keys().all(|server| has_pool(&cluster.state(*server), "the-last"))
        });
        cluster.agree();
        let acknowledged = self.acknowledged.lock().unwrap();
        for server in cluster.running.keys() {
            let sql = "SELECT subject, count(*) FROM events WHERE kind = 'test' GROUP BY subject";
            let limits = QueryLimits { rows: 100_000, ..QueryLimits::default() };
            let rows = cluster.run(*server, |metadata| metadata.query(sql, limits)).unwrap();
            let mut done = BTreeSet::new();
            for row in rows.rows {
                let [Value::Text(subject), Value::Integer(times)] = &row[..] else { panic!("{row:?}") };
                assert_eq!(*times, 1, "{subject} was carried out {times} times");
                done.insert(subject.clone());
            }
            let lost: Vec<_> = acknowledged.difference(&done).collect();
            assert!(lost.is_empty(), "server {server} lost {lost:?}");
        }
        assert!(acknowledged.len() > 20, "only {} acknowledgements mean nothing", acknowledged.len());
    }
}

fn restart(cluster: &mut Cluster, writers: &mut Writers, server: u32) {
    cluster.start(server).unwrap();
    writers.start(server, cluster.metadata(server).clone());
}

fn kill(cluster: &mut Cluster, writers: &mut Writers, server: u32) {
    writers.stop(server);
    cluster.kill(server);
}

#[test]
fn nothing_acknowledged_is_lost_and_nothing_done_twice_while_servers_die_and_messages_are_lost() {
    let mut cluster = Cluster::of(3);
    let mut writers = Writers::new();
    for server in 1..=3 {
        writers.start(server, cluster.metadata(server).clone());
    }
    cluster.net.faulty(Some(20));
    for victim in [None, Some(2), None, Some(1), None] {
        // The leader, every other time.
        let victim = victim.unwrap_or_else(|| cluster.leader().unwrap_or(3));
        let before = writers.acknowledged();
        let until = Instant::now() + PATIENCE;
        while writers.acknowledged() < before + 20 {
            assert!(Instant::now() < until, "nothing goes on any more");
            std::thread::sleep(Duration::from_millis(5));
        }
        kill(&mut cluster, &mut writers, victim);
        std::thread::sleep(Duration::from_millis(300));
        restart(&mut cluster, &mut writers, victim);
    }
    cluster.net.faulty(None);
    writers.check(&cluster);
}

#[test]
fn five_servers_go_on_with_two_dead_and_come_back_in_any_order_after_all_died() {
    let mut cluster = Cluster::of(5);
    let leader = cluster.leader().unwrap();
    let other = (1..=5).find(|server| *server != leader).unwrap();
    cluster.kill(leader);
    cluster.kill(other);
    let alive = *cluster.running.keys().next().unwrap();
    cluster.propose(alive, pool("with-three")).unwrap();
    for server in cluster.running.keys().copied().collect::<Vec<_>>() {
        cluster.kill(server);
    }
    for server in [4, 2, 5, 1, 3] {
        cluster.start(server).unwrap();
    }
    for server in 1..=5 {
        cluster.run(server, |metadata| metadata.wait_for_its_place()).unwrap();
        assert!(has_pool(&cluster.state(server), "with-three"));
    }
    cluster.agree();
}

/// While `server` is silent the others declare it down, and at no moment somebody sees it down while it may serve.
fn declared_down_without_a_lease(cluster: &Cluster, server: u32, seen_by: u32) {
    let silent = cluster.metadata(server);
    cluster.eventually("it's declared down", |cluster| {
        // In this order: what it may do now, it may have been able to do before.
        let down = cluster.is(seen_by, server, ServerState::Down);
        let serves = silent.lease().allows(u64::MAX, silent.now());
        assert!(!(down && serves), "it is down, and may serve");
        down
    });
}

#[test]
fn a_server_that_is_cut_off_stops_before_it_is_down_and_returns_when_it_is_heard_again() {
    for one_way in [None, Some(true), Some(false)] {
        let cluster = Cluster::of(3);
        let leader = cluster.leader().unwrap();
        // The leader, in one of the cases.
        let server = if one_way == Some(true) { leader } else { leader % 3 + 1 };
        let seen_by = server % 3 + 1;
        cluster.propose(seen_by, add_drive(1, server)).unwrap();
        cluster.eventually("it may serve", |cluster| cluster.may_serve(server));
        match one_way {
            None => cluster.isolate(server, true),
            Some(out) => (1..=3).filter(|other| *other != server).for_each(|other| {
                let (from, to) = if out { (server, other) } else { (other, server) };
                cluster.cut(from, to, true);
            }),
        }
        declared_down_without_a_lease(&cluster, server, seen_by);
        let view = cluster.state(seen_by).view();
        let drive = cluster.state(seen_by).drives[&DriveId(1)].clone();
        assert_eq!((drive.state, drive.missed_since), (DriveState::Missing, Some(drive.state_view)));
        assert!(drive.state_view <= view);
        cluster.propose(seen_by, pool("meanwhile")).unwrap();
        cluster.isolate(server, false);
        cluster.eventually("it knows", |cluster| matches!(cluster.metadata(server).lease(), Lease::Down { .. }));
        cluster.eventually("it may serve again", |cluster| cluster.may_serve(server));
        assert!(has_pool(&cluster.state(server), "meanwhile"));
        cluster.agree();
    }
}

/// Story: a leader's network was gone for a moment. It took the silence of all others for their end, and as it still led when it was
/// heard again, that was agreed: with one server cut off, all but that one were down.
#[test]
fn a_leader_that_was_cut_off_for_a_moment_has_declared_nobody_down() {
    let cluster = Cluster::of(3);
    for round in 0..4 {
        cluster.eventually("one leads", |cluster| cluster.leader().is_some());
        let leader = cluster.leader().unwrap();
        let [one, other] = [leader % 3 + 1, (leader + 1) % 3 + 1];
        (1..=3).for_each(|server| cluster.eventually("it may serve", |cluster| cluster.may_serve(server)));
        let up_since = || [one, other].map(|id| cluster.state(one).servers[&ServerId(id)].state_view);
        let before = up_since();
        cluster.isolate(leader, true);
        // The others' leases have ended then, and they haven't elected anybody yet.
        std::thread::sleep(super::rig::timing().lease.wait());
        cluster.isolate(leader, false);
        // What it had decided before is agreed before this.
        cluster.propose(leader, pool(&format!("after{round}"))).unwrap();
        assert_eq!(up_since(), before, "round {round}, led by {leader}");
        cluster.eventually("all are up", |cluster| (1..=3).all(|id| cluster.is(one, id, ServerState::Up)));
        cluster.agree();
    }
}

#[test]
fn a_leader_that_is_paused_may_not_serve_when_it_wakes() {
    let cluster = Cluster::of(3);
    let leader = cluster.leader().unwrap();
    let other = leader % 3 + 1;
    let (wake, woken) = std::sync::mpsc::channel::<()>();
    let asleep = cluster.metadata(leader).clone();
    let waking = cluster.running[&leader].0.spawn(async move {
        // All of the server stands still: its runtime has one thread.
        let _ = woken.recv();
        asleep.lease().allows(u64::MAX, asleep.now())
    });
    declared_down_without_a_lease(&cluster, leader, other);
    cluster.propose(other, pool("meanwhile")).unwrap();
    drop(wake);
    assert!(!cluster.run(other, |_| waking).unwrap(), "it slept past its lease");
    cluster.eventually("it knows", |cluster| matches!(cluster.metadata(leader).lease(), Lease::Down { .. }));
    cluster.agree();
}

/// Story: it leads and so hears itself, it held no lease for long, and counted as one that is heard and doesn't hear: it got no
/// lease any more, and nobody declared it down for that.
#[test]
fn a_leader_that_reached_no_majority_for_longer_than_its_lease_may_serve_again_when_it_does() {
    let mut cluster = Cluster::of(3);
    for _ in 0..ATTEMPTS {
        cluster.eventually("one leads", |cluster| cluster.leader().is_some());
        let leader = cluster.leader().unwrap();
        cluster.eventually("it may serve", |cluster| cluster.may_serve(leader));
        let led = cluster.metadata(leader).member.leads();
        let others: Vec<u32> = (1..=3).filter(|server| *server != leader).collect();
        others.iter().for_each(|other| cluster.kill(*other));
        let alone = cluster.metadata(leader);
        cluster.eventually("its lease ends", |_| !alone.lease().allows(u64::MAX, alone.now()));
        std::thread::sleep(timing().lease.wait());
        for other in &others {
            cluster.start(*other).unwrap();
        }
        for other in &others {
            cluster.run(*other, |metadata| metadata.wait_for_its_place()).unwrap();
        }
        cluster.eventually("it may serve again", |cluster| cluster.may_serve(leader));
        // Another leadership than before knows of nothing.
        if led.is_some() && cluster.metadata(leader).member.leads() == led {
            return;
        }
    }
    panic!("another one led each time");
}

#[test]
fn a_server_whose_data_folder_is_full_holds_nobody_up_and_goes_on_once_there_is_room() {
    let cluster = Cluster::of(3);
    let full = cluster.leader().unwrap() % 3 + 1;
    let other = full % 3 + 1;
    cluster.metadata(full).member.log.room().fill(true);
    for n in 0..40 {
        let (kind, subject, text) = ("test".to_owned(), n.to_string(), "x".repeat(1_000));
        cluster.propose(other, Command::RecordEvent { kind, subject, text }).unwrap();
    }
    cluster.propose(other, pool("meanwhile")).unwrap();
    cluster.eventually("it says so", |cluster| cluster.metadata(full).lack_of_room().is_some());
    let refused = cluster.propose(full, pool("there"));
    assert!(matches!(refused, Err(ProposeError::NoRoom { .. })), "{refused:?}");
    cluster.metadata(full).member.log.room().fill(false);
    cluster.eventually("it catches up", |cluster| has_pool(&cluster.state(full), "meanwhile"));
    cluster.agree();
}

#[test]
fn of_two_servers_the_one_that_doesn_t_vote_may_die_and_comes_back() {
    let mut cluster = Cluster::of(2);
    cluster.kill(2);
    cluster.eventually("it's declared down", |cluster| cluster.is(1, 2, ServerState::Down));
    cluster.propose(1, pool("alone")).unwrap();
    cluster.start(2).unwrap();
    cluster.run(2, |metadata| metadata.wait_for_its_place()).unwrap();
    assert!(cluster.is(2, 2, ServerState::Up) && has_pool(&cluster.state(2), "alone"));
    // And the other one.
    cluster.kill(1);
    let metadata = cluster.metadata(2);
    cluster.eventually("nobody serves", |_| !metadata.lease().allows(u64::MAX, metadata.now()));
    cluster.start(1).unwrap();
    cluster.run(1, |metadata| metadata.wait_for_its_place()).unwrap();
    cluster.propose(2, pool("together")).unwrap();
    cluster.agree();
}

/// A server that knew a view and still acted by the one before, as its lease of then allowed, once answered a read from what it
/// had, while another that led since had acknowledged a write.
#[test]
fn nobody_counts_as_having_adopted_a_view_that_it_knows_and_does_not_act_by_yet() {
    let cluster = Cluster::of(3);
    let leader = cluster.leader().unwrap();
    let (slow, asker) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.eventually("it may serve", |cluster| cluster.may_serve(slow));
    cluster.metadata(slow).act_by(cluster.state(slow).view());
    cluster.propose(asker, add_drive(1, asker)).unwrap();
    let view = cluster.state(asker).view();
    cluster.eventually("it knows", |cluster| cluster.state(slow).view() >= view);
    cluster.run(asker, |metadata| metadata.adopted_everywhere(view)).unwrap();
    let metadata = cluster.metadata(slow);
    assert!(!metadata.lease().allows(view - 1, metadata.now()), "it may still act in the view before");
    cluster.eventually("it's declared down, as it serves nobody", |cluster| !cluster.is(asker, slow, ServerState::Up));
    cluster.eventually("it's back", |cluster| {
        cluster.metadata(slow).act_by(cluster.state(slow).view());
        cluster.may_serve(slow)
    });
    let view = cluster.state(asker).view();
    cluster.run(asker, |metadata| metadata.adopted_everywhere(view)).unwrap();
}
