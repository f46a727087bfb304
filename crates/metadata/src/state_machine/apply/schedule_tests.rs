//! Schedules: each time gives one snapshot, and only what a schedule has made and doesn't keep goes.

use super::snapshot_tests::{clone, remove, take as by_hand};
use super::tests::{cluster, create, done, refused};
use super::*;
use crate::schedule::{Covered, MOST_SCHEDULES, ScheduleCommand as Of, ScheduleRecord, ScheduleRefusal, Work};
use std::collections::BTreeSet;
use tepal_model::schedule::{Ahead, Rhythm, TimeOfDay};

const HOUR: u64 = 3600;
/// When schedules are made: on the hour.
const BEGIN: u64 = 500_000 * HOUR;
const V: VolumeId = VolumeId(1);

fn hourly() -> Rhythm {
    Rhythm { every_s: HOUR, at: TimeOfDay::default(), ahead: Ahead::default() }
}

fn snapshots(of: Covered, keep: &str) -> Work {
    Work::Snapshots { of, rhythm: hourly(), keep: keep.parse().unwrap() }
}

fn make(name: &str, work: Work) -> Command {
    Command::Schedule(Of::Create { name: name.to_owned(), work, from_s: BEGIN })
}

/// A volume, of whose hourly snapshots the last two are kept.
fn scheduled() -> State {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    done(&mut state, make("h", snapshots(Covered::Volume(V), "last=2")));
    state
}

fn schedule(state: &State) -> &ScheduleRecord {
    state.schedules.named("h").unwrap()
}

fn take(state: &State, due_s: u64) -> Command {
    let record = schedule(state);
    Command::Schedule(Of::Take { schedule: record.id, volume: V, due_s, done_s: Some(record.done_s) })
}

fn ran(state: &State, due_s: u64) -> Command {
    let record = schedule(state);
    let due = Some((due_s, record.done_s));
    Command::Schedule(Of::Ran { schedule: record.id, due, at_unix_ms: due_s * 1000, missed: None, error: None })
}

fn expire(state: &State, epoch: Epoch) -> Command {
    Command::Schedule(Of::Expire { schedule: schedule(state).id, volume: V, epoch })
}

/// One run of each of these hours.
fn run_of(state: &mut State, hours: std::ops::RangeInclusive<u64>) {
    for hour in hours {
        for command in [take(state, BEGIN + hour * HOUR), ran(state, BEGIN + hour * HOUR)] {
            done(state, command);
        }
    }
}

fn names(state: &State) -> Vec<String> {
    state.snapshots_of(V).map(|kept| kept.name.clone()).collect()
}

fn told(state: &State, command: Command) -> Vec<String> {
    let applied = apply(state, &super::tests::proposal(command)).unwrap();
    let told = |change: &Change| match change {
        Change::Event(event) => Some(event.text.clone()),
        _ => None,
    };
    applied.changes.iter().filter_map(told).collect()
}

#[test]
fn a_time_gives_one_snapshot_however_often_it_is_asked_for() {
    let mut state = scheduled();
    let first = take(&state, BEGIN + HOUR);
    assert!(matches!(done(&mut state, first.clone()), Reply::SnapshotCreated { epoch: 1, .. }));
    let once = state.clone();
    assert_eq!(done(&mut state, first.clone()), Reply::Done);
    assert_eq!(state, once, "whoever leads now asks again");
    let over = ran(&state, BEGIN + HOUR);
    done(&mut state, over.clone());
    for late in [first, over] {
        let changed = Refusal::from(ScheduleRefusal::Changed("h".to_owned()));
        assert_eq!(refused(&state, late), changed, "whoever led before asks late");
    }
    assert_eq!(names(&state), ["h-2027-01-15T09-00Z"]);
    assert_eq!((schedule(&state).done_s, schedule(&state).next_s()), (BEGIN + HOUR, Some(BEGIN + 2 * HOUR)));
}

#[test]
fn only_what_it_made_and_keeps_no_more_goes() {
    let mut state = scheduled();
    done(&mut state, by_hand("v", "h-2020-01-01T00-00Z"));
    run_of(&mut state, 1..=4);
    let surplus = |state: &State| -> Vec<Epoch> {
        state.schedules.surplus(schedule(state), V).iter().map(|made| made.epoch).collect()
    };
    assert_eq!(surplus(&state), [2, 3]);
    let not_made = refused(&state, expire(&state, 1));
    assert!(matches!(not_made, Refusal::Schedule(ScheduleRefusal::NotMade { .. })), "its name says nothing");
    for kept in [4, 5] {
        let refusal = refused(&state, expire(&state, kept));
        assert!(matches!(refusal, Refusal::Schedule(ScheduleRefusal::Kept { .. })), "{refusal}");
    }
    let oldest = expire(&state, 2);
    done(&mut state, oldest);
    assert_eq!((surplus(&state), state.count_snapshots(V)), (vec![3], 4));
    let renamed =
        Command::RenameSnapshot { volume: "v".to_owned(), name: "id:3".to_owned(), new_name: "mine".to_owned() };
    done(&mut state, renamed);
    assert_eq!(surplus(&state), [0; 0], "whoever renames one has it for himself");
}

#[test]
fn one_with_clones_stays_and_is_told_once() {
    let mut state = scheduled();
    run_of(&mut state, 1..=3);
    done(&mut state, clone("v", "id:1", "c"));
    let refusal = refused(&state, expire(&state, 1));
    let Refusal::Schedule(ScheduleRefusal::HasClones { clones, .. }) = &refusal else { panic!("{refusal}") };
    assert_eq!(clones, "c");
    let hold =
        Command::Schedule(Of::Hold { schedule: schedule(&state).id, volume: V, epoch: 1, why: refusal.to_string() });
    assert_eq!(told(&state, hold.clone()).len(), 1);
    done(&mut state, hold.clone());
    assert_eq!(told(&state, hold), [""; 0]);
    done(&mut state, Command::RemoveVolume { name: "c".to_owned(), snapshots: false });
    let oldest = expire(&state, 1);
    done(&mut state, oldest);
    assert_eq!(state.count_snapshots(V), 2);
}

#[test]
fn the_newest_stays_even_if_its_time_is_not_the_latest() {
    let mut state = scheduled();
    run_of(&mut state, 1..=2);
    // The clock was a year ahead, and goes back.
    run_of(&mut state, 9000..=9001);
    let record = schedule(&state);
    let (done_s, to_s) = (record.done_s, BEGIN + 2 * HOUR);
    let back = Command::Schedule(Of::SetBack { schedule: record.id, done_s, to_s });
    assert_eq!(told(&state, back.clone()).len(), 1);
    done(&mut state, back.clone());
    assert!(matches!(refused(&state, back), Refusal::Schedule(ScheduleRefusal::Changed(_))));
    run_of(&mut state, 3..=3);
    let surplus = state.schedules.surplus(schedule(&state), V);
    let epochs: Vec<Epoch> = surplus.iter().map(|made| made.epoch).collect();
    assert_eq!(epochs, [1, 2], "those of the latest times, and the newest, stay");
}

#[test]
fn missed_times_and_what_went_wrong_are_told_once() {
    let mut state = scheduled();
    let record = schedule(&state);
    let (schedule_id, due) = (record.id, BEGIN + 5 * HOUR);
    let run = |done_s, due_s, missed, error: Option<&str>| {
        let (due, error) = (Some((due_s, done_s)), error.map(str::to_owned));
        Command::Schedule(Of::Ran { schedule: schedule_id, due, at_unix_ms: 7, missed, error })
    };
    let late = run(BEGIN, due, Some((5, due)), None);
    assert_eq!(told(&state, late.clone()), ["missed 5 times, the last 2027-01-15T13-00Z; made up for once"]);
    done(&mut state, late);
    assert_eq!((schedule(&state).missed, schedule(&state).last_missed_s), (5, Some(due)));
    let mut next = due;
    for (error, told_now) in [(Some("full"), 1), (Some("full"), 0), (Some("away"), 1), (None, 1), (None, 0)] {
        let command = run(next, next + HOUR, None, error);
        next += HOUR;
        assert_eq!(told(&state, command.clone()).len(), told_now, "{error:?}");
        done(&mut state, command);
        assert_eq!(schedule(&state).error.as_deref(), error);
    }
}

#[test]
fn one_of_a_pool_covers_the_volumes_that_it_has_now() {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    done(&mut state, make("h", snapshots(Covered::Pool(crate::DEFAULT_POOL.to_owned()), "last=2")));
    done(&mut state, create("w", "stripe"));
    for volume in [1, 2] {
        let record = schedule(&state);
        let due_s = BEGIN + HOUR;
        let command = Of::Take { schedule: record.id, volume: VolumeId(volume), due_s, done_s: Some(record.done_s) };
        done(&mut state, Command::Schedule(command));
    }
    assert_eq!(state.schedules.all_made_by(schedule(&state).id).count(), 2);
    done(&mut state, Command::CreatePool { name: "p".to_owned(), layout: None });
    done(&mut state, make("p", snapshots(Covered::Pool("p".to_owned()), "last=2")));
    let other = state.schedules.named("p").unwrap().id;
    let command = Command::Schedule(Of::Take { schedule: other, volume: V, due_s: BEGIN, done_s: None });
    assert!(matches!(refused(&state, command), Refusal::Schedule(ScheduleRefusal::NotCovered { .. })));
    done(&mut state, Command::RemovePool { name: "p".to_owned() });
    assert!(state.schedules.named("p").is_none(), "it goes with its pool");
}

#[test]
fn a_schedule_goes_with_its_volume_and_leaves_its_snapshots() {
    let mut state = scheduled();
    run_of(&mut state, 1..=2);
    let scrubbed = Of::Scrubbed { volume: V, begun_unix_ms: 5, done_unix_ms: 6 };
    done(&mut state, Command::Schedule(scrubbed));
    done(&mut state, make("other", snapshots(Covered::Volume(V), "last=1")));
    done(&mut state, Command::Schedule(Of::Remove { name: "h".to_owned() }));
    assert_eq!((state.count_snapshots(V), state.schedules.made.len()), (2, 0));
    done(&mut state, make("h", snapshots(Covered::Volume(V), "last=1")));
    assert!(state.schedules.surplus(schedule(&state), V).is_empty(), "those of one of the same name aren't its own");
    done(&mut state, Command::RemoveVolume { name: "v".to_owned(), snapshots: true });
    assert_eq!(*state.schedules, crate::Schedules::default());
}

#[test]
fn a_snapshot_that_is_removed_by_hand_is_forgotten() {
    let mut state = scheduled();
    run_of(&mut state, 1..=2);
    done(&mut state, remove("v", "id:1"));
    let left: BTreeSet<Epoch> = state.schedules.made_by(schedule(&state).id, V).map(|made| made.epoch).collect();
    assert_eq!(left, [2].into());
}

#[test]
fn one_that_rests_misses_nothing() {
    let mut state = scheduled();
    let pause = |paused, from_s| Command::Schedule(Of::Pause { name: "h".to_owned(), paused, from_s });
    done(&mut state, pause(true, BEGIN + HOUR));
    assert_eq!(schedule(&state).next_s(), None);
    assert_eq!(told(&state, pause(true, BEGIN)), [""; 0]);
    done(&mut state, pause(false, BEGIN + 9 * HOUR + 1));
    assert_eq!((schedule(&state).next_s(), schedule(&state).missed), (Some(BEGIN + 10 * HOUR), 0));
}

#[test]
fn what_it_does_changes_and_with_which_volumes_does_not() {
    let mut state = scheduled();
    let change = |work| Command::Schedule(Of::Change { name: "h".to_owned(), work, from_s: BEGIN + 7 * HOUR });
    done(&mut state, change(snapshots(Covered::Volume(V), "last=5")));
    assert_eq!(schedule(&state).done_s, BEGIN, "the times are the same");
    let rhythm = Rhythm { every_s: 2 * HOUR, ..hourly() };
    let keep = "last=5".parse().unwrap();
    done(&mut state, change(Work::Snapshots { of: Covered::Volume(V), rhythm, keep }));
    assert_eq!(schedule(&state).done_s, rhythm.latest(BEGIN + 7 * HOUR));
    let pool = Covered::Pool(crate::DEFAULT_POOL.to_owned());
    for other in [snapshots(pool, "last=5"), Work::Scrubs { pool: None, within_s: 60 }] {
        assert!(matches!(refused(&state, change(other)), Refusal::Schedule(ScheduleRefusal::Other(_))));
    }
}

#[test]
fn what_no_schedule_can_have_is_refused() {
    let state = scheduled();
    let work = |every_s, keep| Work::Snapshots { of: Covered::Volume(V), rhythm: Rhythm { every_s, ..hourly() }, keep };
    let keep = |last| tepal_model::schedule::Keep { last, ..Default::default() };
    let of = |covered| snapshots(covered, "last=1");
    let scrubs = |pool: Option<&str>, within_s| Work::Scrubs { pool: pool.map(str::to_owned), within_s };
    for (name, work, said) in [
        ("h", of(Covered::Volume(V)), "exists already"),
        ("a/b", of(Covered::Volume(V)), "not a name for a schedule"),
        (&*"a".repeat(101), of(Covered::Volume(V)), "at most 100 characters"),
        ("n", of(Covered::Volume(VolumeId(7))), "no volume with the id"),
        ("n", of(Covered::Pool("x".to_owned())), "no pool 'x'"),
        ("n", scrubs(Some("x"), 60), "no pool 'x'"),
        ("n", scrubs(None, 9), "within 9s can't be had"),
        ("n", work(0, keep(1)), "every 0s can't be had"),
        ("n", work(367 * 86_400, keep(1)), "every 367d can't be had"),
        ("n", work(1, keep(0)), "keep nothing"),
        ("n", work(1, keep(1001)), "at most 1000"),
    ] {
        let refusal = refused(&state, make(name, work)).to_string();
        assert!(refusal.contains(said), "{name}: {refusal}");
    }
    done(&mut state.clone(), make(&"a".repeat(100), work(1, keep(1000))));
}

#[test]
fn there_are_a_thousand_schedules_and_no_more() {
    let mut state = scheduled();
    for number in 1..MOST_SCHEDULES {
        done(&mut state, make(&format!("s{number}"), Work::Scrubs { pool: None, within_s: 60 }));
    }
    let refusal = refused(&state, make("one-more", snapshots(Covered::Volume(V), "last=1")));
    assert_eq!(refusal, ScheduleRefusal::TooMany { limit: MOST_SCHEDULES }.into());
}

#[test]
fn a_volume_that_is_incomplete_gets_no_snapshot() {
    let mut state = scheduled();
    done(&mut state, Command::NoteImport { name: "v".to_owned(), import: 5, done: 0 });
    assert_eq!(refused(&state, take(&state, BEGIN + HOUR)), Refusal::Incomplete("v".to_owned()));
}
