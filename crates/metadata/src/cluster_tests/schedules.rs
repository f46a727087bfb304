//! Runs of schedules, asked for by several servers at once, and by one that leads no more.

use super::rig::{Cluster, add_drive};
use crate::command::{Command, Reply};
use crate::record::DEFAULT_POOL;
use crate::schedule::{Covered, ScheduleCommand, ScheduleRefusal, Work};
use crate::{ProposeError, Refusal};
use tepal_model::VolumeId;
use tepal_model::schedule::{Ahead, Keep, Rhythm, TimeOfDay};

const V: VolumeId = VolumeId(1);

/// With a volume, of which a snapshot is due each second from 101 on.
fn scheduled() -> (Cluster, u64) {
    let cluster = Cluster::of(3);
    cluster.propose(1, add_drive(1, 1)).unwrap();
    let (name, pool, layout) = ("v".to_owned(), DEFAULT_POOL.to_owned(), Some("stripe".to_owned()));
    cluster.propose(1, Command::CreateVolume { name, size: 4096, layout, pool }).unwrap();
    let rhythm = Rhythm { every_s: 1, at: TimeOfDay::default(), ahead: Ahead::default() };
    let work = Work::Snapshots { of: Covered::Volume(V), rhythm, keep: Keep { last: 3, ..Keep::default() } };
    let create = ScheduleCommand::Create { name: "s".to_owned(), work, from_s: 100 };
    cluster.propose(2, Command::Schedule(create)).unwrap();
    let id = cluster.state(2).schedules.named("s").unwrap().id;
    (cluster, id)
}

fn take(schedule: u64, due_s: u64) -> Command {
    Command::Schedule(ScheduleCommand::Take { schedule, volume: V, due_s, done_s: Some(due_s - 1) })
}

fn ran(schedule: u64, due_s: u64) -> Command {
    let due = Some((due_s, due_s - 1));
    Command::Schedule(ScheduleCommand::Ran { schedule, due, at_unix_ms: 5, missed: None, error: None })
}

#[test]
fn all_servers_take_what_is_due_and_one_snapshot_comes_of_it() {
    let (cluster, id) = scheduled();
    for due_s in 101..105 {
        let propose = |server| {
            let (command, metadata) = (take(id, due_s), cluster.metadata(server).clone());
            cluster.begin(server, async move { metadata.propose(command).await })
        };
        let asked: Vec<_> = (1..=3).map(propose).collect();
        let answers = asked.into_iter().map(|one| cluster.run(1, |_| one).unwrap());
        let (made, others): (Vec<_>, Vec<_>) =
            answers.partition(|answer| matches!(answer, Ok(Reply::SnapshotCreated { .. })));
        assert_eq!(made.len(), 1, "{made:?}");
        assert!(others.iter().all(|answer| matches!(answer, Ok(Reply::Done))), "{others:?}");
        cluster.propose(1, ran(id, due_s)).unwrap();
    }
    cluster.agree();
    assert_eq!(cluster.state(3).count_snapshots(V), 4);
}

#[test]
fn whoever_leads_after_a_crash_between_snapshot_and_end_finishes_the_same_run() {
    let (mut cluster, id) = scheduled();
    let leader = cluster.leader().unwrap();
    cluster.propose(leader, take(id, 101)).unwrap();
    cluster.kill(leader);
    let other = leader % 3 + 1;
    assert_eq!(cluster.propose(other, take(id, 101)).unwrap(), Reply::Done);
    cluster.propose(other, ran(id, 101)).unwrap();
    cluster.start(leader).unwrap();
    cluster.agree();
    // What it had begun, it asks for again.
    let late = cluster.propose(leader, take(id, 101));
    let changed = Refusal::from(ScheduleRefusal::Changed("s".to_owned()));
    assert!(matches!(&late, Err(ProposeError::Refused(refusal)) if *refusal == changed), "{late:?}");
    assert_eq!(cluster.state(leader).count_snapshots(V), 1);
}
