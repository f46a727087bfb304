use super::snapshots::MAX_SNAPSHOTS;
use super::tests::{cluster, create, done, refused, resized};
use super::*;
use crate::state_machine::digest::Digest;
use proptest::prelude::*;
use std::collections::BTreeMap;
use tepal_model::{History, Lineage};

pub fn take(volume: &str, name: &str) -> Command {
    Command::CreateSnapshot { volume: volume.to_owned(), name: name.to_owned() }
}

pub fn remove(volume: &str, name: &str) -> Command {
    Command::RemoveSnapshot { volume: volume.to_owned(), name: name.to_owned() }
}

pub fn roll_back(volume: &str, name: &str) -> Command {
    Command::RollBack { volume: volume.to_owned(), name: name.to_owned() }
}

fn rename(volume: &str, name: &str, new_name: &str) -> Command {
    let (volume, name, new_name) = (volume.to_owned(), name.to_owned(), new_name.to_owned());
    Command::RenameSnapshot { volume, name, new_name }
}

pub fn clone(volume: &str, snapshot: &str, name: &str) -> Command {
    let (volume, snapshot, name) = (volume.to_owned(), snapshot.to_owned(), name.to_owned());
    Command::CloneVolume { volume, snapshot, name }
}

fn with_volume() -> State {
    let mut state = cluster(&[(1, 1)]);
    done(&mut state, create("v", "stripe"));
    state
}

fn volume(state: &State) -> &VolumeRecord {
    state.volume_named("v").unwrap()
}

/// The lineages of the volume and of its snapshots, in order.
fn lineages(state: &State) -> (String, Vec<(String, String)>) {
    let snapshots = state.snapshots_of(VolumeId(1)).map(|kept| (kept.name.clone(), kept.lineage.to_string()));
    (volume(state).lineage.to_string(), snapshots.collect())
}

fn named(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, lineage)| ((*name).to_owned(), (*lineage).to_owned())).collect()
}

#[test]
fn a_snapshot_keeps_what_the_volume_sees_and_the_volume_goes_on_in_the_next_epoch_and_view() {
    let mut state = with_volume();
    assert_eq!((volume(&state).epoch, volume(&state).epoch_since), (1, state.view()));
    assert_eq!(state.history_of(MapId(1)), History::default());
    let view = state.view();
    assert_eq!(done(&mut state, take("v", "a")), Reply::SnapshotCreated { epoch: 1, view: view + 1 });
    resized(&mut state, "v", 8192);
    assert_eq!(done(&mut state, take("v", "b")), Reply::SnapshotCreated { epoch: 2, view: view + 2 });
    assert_eq!(lineages(&state), ("0-3".to_owned(), named(&[("a", "0-1"), ("b", "0-2")])));
    let record = volume(&state);
    assert_eq!((record.epoch, record.epoch_since, state.view()), (3, view + 2, view + 2));
    assert_eq!(record.revision, 2, "by the resize alone");
    let sizes: Vec<u64> = state.snapshots_of(record.id).map(|kept| kept.size).collect();
    assert_eq!(sizes, [4096, 8192]);
    assert_eq!(state.snapshot_named(record.id, "b").map(|kept| (kept.epoch, kept.created_unix_ms)), Some((2, 5)));
    let history = state.history_of(MapId(1));
    let readers: Vec<String> = history.readers().iter().map(Lineage::to_string).collect();
    assert_eq!(readers, ["0-1", "0-2", "0-3"]);
}

#[test]
fn a_removed_snapshot_is_read_by_nobody_and_its_epoch_never_comes_back() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, take("v", "b"));
    let (view, revision) = (state.view(), volume(&state).revision);
    assert_eq!(done(&mut state, remove("v", "b")), Reply::Done);
    assert_eq!(done(&mut state, remove("v", "a")), Reply::Done);
    assert_eq!((state.view(), volume(&state).revision), (view + 2, revision), "drives wait until all know it");
    assert_eq!(lineages(&state), ("0-3".to_owned(), vec![]));
    assert_eq!(state.count_snapshots(VolumeId(1)), 0);
    let history = state.history_of(MapId(1));
    assert_eq!(history.reader(3).map(Lineage::own), Some(0));
    assert!(history.reader(1).is_none() && !history.is_unknown(3) && history.is_unknown(4));
    assert_eq!(done(&mut state, take("v", "a")), Reply::SnapshotCreated { epoch: 3, view: view + 3 });
}

#[test]
fn a_volume_that_is_rolled_back_sees_what_the_snapshot_does_and_has_its_size() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, take("v", "b"));
    let (view, revision) = (state.view(), volume(&state).revision);
    assert_eq!(done(&mut state, roll_back("v", "a")), Reply::RolledBack { epoch: 4, view: view + 1 });
    assert_eq!(volume(&state).revision, revision + 1, "requests of before must not read what is there now");
    assert_eq!(lineages(&state), ("0-1,4-4".to_owned(), named(&[("a", "0-1"), ("b", "0-2")])));
    assert_eq!(state.history_of(MapId(1)).line_of(3), None, "what it held before is nobody's");

    // And forward again, with a volume that has grown.
    resized(&mut state, "v", 8192);
    assert_eq!(done(&mut state, roll_back("v", "b")), Reply::RolledBack { epoch: 5, view: view + 2 });
    let record = volume(&state);
    assert_eq!((record.size, record.revision, record.epoch_since), (4096, revision + 3, view + 2));
    assert_eq!(lineages(&state), ("0-2,5-5".to_owned(), named(&[("a", "0-1"), ("b", "0-2")])));
    done(&mut state, take("v", "c"));
    assert_eq!(lineages(&state).0, "0-2,5-6");
}

#[test]
fn a_snapshot_gets_another_name_and_is_the_same() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, take("v", "b"));
    let (before, view) = (state.snapshot_named(VolumeId(1), "a").unwrap().clone(), state.view());
    done(&mut state, rename("v", "a", "c"));
    assert_eq!(state.snapshot_named(VolumeId(1), "a"), None);
    let after = state.snapshot_named(VolumeId(1), "c").unwrap();
    assert_eq!(**after, SnapshotRecord { name: "c".to_owned(), ..(*before).clone() });
    assert_eq!((state.count_snapshots(VolumeId(1)), state.view()), (2, view));
    done(&mut state, Command::RenameVolume { name: "v".to_owned(), new_name: "w".to_owned() });
    done(&mut state, remove("w", "c"));
}

#[test]
fn what_cannot_be_done_with_snapshots_is_refused_by_name() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, take("v", "b"));
    let exists = |name: &str| Refusal::SnapshotExists { volume: "v".to_owned(), name: name.to_owned() };
    let none = |name: &str| Refusal::NoSnapshot { volume: "v".to_owned(), name: name.to_owned() };
    for (command, refusal) in [
        (take("v", "a"), exists("a")),
        (rename("v", "a", "b"), exists("b")),
        (rename("v", "c", "d"), none("c")),
        (remove("v", "c"), none("c")),
        (roll_back("v", "c"), none("c")),
        (take("w", "a"), Refusal::NoVolume("w".to_owned())),
        (remove("w", "a"), Refusal::NoVolume("w".to_owned())),
    ] {
        assert_eq!(refused(&state, command), refusal);
    }
    for name in ["", "a@b", "@", "v@a", "a/b", "-a", "é"] {
        for command in [take("v", name), rename("v", "a", name)] {
            assert!(matches!(refused(&state, command), Refusal::Name { what: Thing::Snapshot, .. }), "{name:?}");
        }
    }
}

#[test]
fn a_volume_is_removed_with_its_snapshots_only_if_that_is_said() {
    let mut state = with_volume();
    done(&mut state, take("v", "a"));
    done(&mut state, take("v", "b"));
    let gone = |snapshots| Command::RemoveVolume { name: "v".to_owned(), snapshots };
    let refusal = refused(&state, gone(false));
    assert_eq!(refusal, Refusal::VolumeHasSnapshots { name: "v".to_owned(), snapshots: 2 });
    assert_eq!(refusal.to_string(), "volume 'v' still has 2 snapshots: remove them first, or with it by --snapshots");
    done(&mut state, gone(true));
    assert_eq!(state.count_snapshots(VolumeId(1)), 0);
    assert_eq!(state.history_of(MapId(1)), History::new([], 3), "nobody reads it any more");
    assert_eq!(refused(&state, take("v", "c")), Refusal::NoVolume("v".to_owned()));
    // Another volume of this name has nothing of it.
    done(&mut state, create("v", "stripe"));
    assert_eq!((volume(&state).id, volume(&state).lineage.to_string()), (VolumeId(2), "0-1".to_owned()));
    done(&mut state, gone(false));
    assert_eq!(state.history_of(MapId(9)), History::default(), "what isn't known isn't thought to be free");
}

#[test]
fn a_volume_has_only_so_many_snapshots_and_epochs() {
    let mut state = with_volume();
    for nth in 0..MAX_SNAPSHOTS {
        done(&mut state, take("v", &format!("s{nth}")));
    }
    let full = Refusal::TooManySnapshots { volume: "v".to_owned(), limit: MAX_SNAPSHOTS };
    assert_eq!(refused(&state, take("v", "more")), full);
    done(&mut state, remove("v", "s0"));
    done(&mut state, take("v", "more"));

    let mut state = with_volume();
    done(&mut state, take("v", "s1"));
    let map = MapRecord { newest_epoch: Epoch::MAX, ..(*state.maps[&MapId(1)]).clone() };
    state.maps.insert(map.id, Arc::new(map));
    for command in [take("v", "more"), roll_back("v", "s1")] {
        assert_eq!(refused(&state, command), Refusal::NoEpochsLeft("v".to_owned()));
    }
}

/// What somebody does with volumes; numbers are snapshots, taken modulo those that there are.
#[derive(Clone, Debug)]
enum Step {
    Write,
    Take,
    Clone(usize),
    Remove(usize),
    RollBack(usize),
    Rename(usize),
    RemoveVolume,
    CloseGaps,
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let what = prop_oneof![
        4 => Just(Step::Write),
        4 => Just(Step::Take),
        2 => any::<usize>().prop_map(Step::Clone),
        2 => any::<usize>().prop_map(Step::Remove),
        3 => any::<usize>().prop_map(Step::RollBack),
        1 => any::<usize>().prop_map(Step::Rename),
        1 => Just(Step::RemoveVolume),
        2 => Just(Step::CloseGaps),
    ];
    (any::<usize>(), what)
}

/// One volume as its user knows it: what was last written, there and in each snapshot.
#[derive(Default)]
struct Model {
    held: u64,
    snapshots: BTreeMap<String, u64>,
    /// Epochs in which it wrote, each with the rollbacks that there had been by then.
    epochs: BTreeMap<Epoch, usize>,
    rollbacks: usize,
}

/// Drives, which keep what was written in each epoch of each map.
#[derive(Default)]
struct Layers(BTreeMap<(MapId, Epoch), u64>);

impl Layers {
    fn read(&self, map: MapId, lineage: &Lineage) -> u64 {
        let mut layers = self.0.range((map, 0)..=(map, Epoch::MAX)).rev();
        layers.find(|((_, epoch), _)| lineage.sees(*epoch)).map_or(0, |(_, written)| *written)
    }

    /// Frees what the history says is nobody's.
    fn reclaim(&mut self, state: &State) {
        self.0.retain(|(map, epoch), _| {
            let history = state.history_of(*map);
            history.line_of(*epoch).is_some() || history.is_unknown(*epoch)
        });
    }
}

impl Model {
    /// Everybody reads what was written.
    fn check(&self, state: &State, layers: &Layers, name: &str) {
        let volume = state.volume_named(name).expect("it's there");
        let read = |lineage: &Lineage| layers.read(volume.map, lineage);
        let kept = state.snapshots_of(volume.id).map(|kept| (kept.name.clone(), read(&kept.lineage)));
        assert_eq!(kept.collect::<BTreeMap<_, _>>(), self.snapshots);
        assert_eq!(read(&volume.lineage), self.held, "{name}");
        for (epoch, rollbacks) in &self.epochs {
            assert_eq!(volume.goes_on_from(*epoch), *rollbacks == self.rollbacks, "{name} from {epoch} on");
        }
    }
}

/// Each reader's lineage is one, ends with an epoch of its own that was handed out, and is in the history.
pub fn check_readers(state: &State) {
    for map in state.maps.values() {
        let history = state.history_of(map.id);
        let volumes: Vec<_> = state.readers_of(map.id).collect();
        let heads = volumes.iter().map(|volume| (volume.epoch, volume.lineage.clone()));
        let kept = volumes.iter().flat_map(|volume| state.snapshots_of(volume.id));
        let all: Vec<(Epoch, Lineage)> = kept.map(|kept| (kept.epoch, kept.lineage.clone())).chain(heads).collect();
        let readers: BTreeMap<Epoch, Lineage> = all.iter().cloned().collect();
        assert_eq!((readers.len(), history.readers().len()), (all.len(), all.len()), "each has an epoch of its own");
        for (epoch, lineage) in readers {
            assert_eq!(lineage.to_string().parse(), Ok(lineage.clone()), "as it's read back");
            assert!(lineage.newest() == epoch && epoch <= map.newest_epoch, "{lineage}");
            assert_eq!(history.reader(epoch).map(Lineage::spans), Some(lineage.spans()));
        }
        assert!(history.is_unknown(map.newest_epoch + 1) && !history.is_unknown(map.newest_epoch));
        assert!(volumes.iter().all(|volume| volume.epoch_since <= state.view()));
    }
    for (id, snapshots) in &state.snapshots {
        assert!(!snapshots.is_empty() && state.volumes[id].state == VolumeState::Active);
        let named: std::collections::BTreeSet<&str> = snapshots.values().map(|kept| kept.name.as_str()).collect();
        assert_eq!(named.len(), snapshots.len());
        assert!(snapshots.iter().all(|(epoch, kept)| *epoch == kept.epoch && *id == kept.volume));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn volumes_and_snapshots_hold_what_was_written_whatever_is_done(steps in prop::collection::vec(step(), 1..80)) {
        let begin = {
            let mut state = cluster(&[(1, 1)]);
            done(&mut state, create("v0", "stripe"));
            done(&mut state, create("v1", "stripe"));
            state
        };
        let (mut state, mut digest, mut log) = (begin.clone(), Digest::of(&begin), Vec::new());
        let (mut models, mut layers) = (BTreeMap::from(["v0", "v1"].map(|name| (name.to_owned(), Model::default()))), Layers::default());
        for (nth, (which, step)) in (1u64..).zip(steps) {
            let name = models.keys().nth(which % models.len()).unwrap().clone();
            let model = models.get_mut(&name).unwrap();
            let chosen = |nth: usize| model.snapshots.keys().nth(nth % model.snapshots.len().max(1)).cloned();
            let volume = state.volume_named(&name).unwrap().clone();
            model.epochs.insert(volume.epoch, model.rollbacks);
            let new_name = format!("s{nth}");
            let commands = match step {
                Step::Write => {
                    layers.0.insert((volume.map, volume.epoch), nth);
                    model.held = nth;
                    vec![]
                }
                Step::Take => {
                    model.snapshots.insert(new_name.clone(), model.held);
                    vec![take(&name, &new_name)]
                }
                Step::Clone(nth) => match chosen(nth) {
                    None => vec![],
                    Some(from) => {
                        let held = model.snapshots[&from];
                        models.insert(new_name.clone(), Model { held, ..Model::default() });
                        vec![clone(&name, &from, &new_name)]
                    }
                },
                Step::Remove(nth) => chosen(nth).map_or(vec![], |gone| {
                    model.snapshots.remove(&gone);
                    vec![remove(&name, &gone)]
                }),
                Step::RollBack(nth) => chosen(nth).map_or(vec![], |to| {
                    model.held = model.snapshots[&to];
                    model.rollbacks += 1;
                    vec![roll_back(&name, &to)]
                }),
                Step::Rename(nth) => chosen(nth).map_or(vec![], |from| {
                    let held = model.snapshots.remove(&from).unwrap();
                    model.snapshots.insert(new_name.clone(), held);
                    vec![rename(&name, &from, &new_name)]
                }),
                Step::CloseGaps => {
                    let (map, gaps, view) = (volume.map, state.gaps_to_close(volume.map), state.view());
                    if gaps.is_empty() { vec![] } else { vec![Command::CloseGaps { map, gaps, view }] }
                }
                Step::RemoveVolume => {
                    models.remove(&name);
                    let gone = Command::RemoveVolume { name: name.clone(), snapshots: true };
                    let mut commands = vec![gone, Command::FinishRemoveVolume { id: volume.id }];
                    if models.len() < 2 {
                        models.insert(new_name.clone(), Model::default());
                        commands.push(create(&new_name, "stripe"));
                    }
                    commands
                }
            };
            for command in commands {
                let proposal = Proposal::new(5, None, command);
                let before = state.clone();
                let applied = apply(&state, &proposal).unwrap();
                digest = digest.after(&state, &applied.changes, &applied.state.counters);
                state = applied.state;
                for now in state.volumes.values() {
                    let newest = before.maps.get(&now.map).map_or(0, |map| map.newest_epoch);
                    let earlier = before.volumes.get(&now.id);
                    let is_same = earlier.is_some_and(|earlier| {
                        check_since(now, earlier);
                        earlier.epoch == now.epoch
                    });
                    prop_assert!(is_same || now.epoch == newest + 1, "an epoch is handed out once");
                }
                log.push(proposal);
            }
            prop_assert_eq!(digest, Digest::of(&state));
            layers.reclaim(&state);
            models.iter().for_each(|(name, model)| model.check(&state, &layers, name));
            check_readers(&state);
        }
        let again = log.iter().fold(begin, |state, proposal| apply(&state, proposal).unwrap().state);
        prop_assert_eq!(Digest::of(&again), digest);
        prop_assert_eq!(again, state);
    }
}

/// A volume in the same epoch has written there since the same view.
fn check_since(now: &VolumeRecord, earlier: &VolumeRecord) {
    assert_eq!(now.epoch != earlier.epoch, now.epoch_since != earlier.epoch_since);
}
