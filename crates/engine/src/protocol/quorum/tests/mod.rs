//! Stories of quorum layouts: gateways and nodes, with faults of all kinds, under many schedules.

mod history;
mod rig;

use super::heal::Look;
use bytes::Bytes;
use history::{Done, check};
use rig::{Client, Rig, versioned};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_model::{BLOCK, buffer::join};
use tepal_sim::executor::Limits;
use tepal_sim::random::Stream;
use tepal_sim::{Executor, SimWorld};
use tepal_wire::message::{Found, Which};

const LAYOUTS: [&str; 6] =
    ["1/3,t=1,async", "1/5,t=2,async", "3/5,t=1,async", "1/5,t=1,b=1,async", "2/5,t=1,b=1,async", "2/6,t=1,b=1,async"];
/// Runs of each layout.
const SEEDS: u64 = 6;
/// Blocks that clients use.
const BLOCKS: u64 = 12;

fn told<F: Future<Output = ()> + 'static>(seeds: std::ops::Range<u64>, story: impl Fn(SimWorld, u64) -> F) {
    for seed in seeds {
        let executor = Executor::new(seed, Limits::default(), false);
        let world = SimWorld::boot(executor.core(), "story");
        if let Err(failure) = executor.run(story(world, seed)) {
            panic!("seed {seed}: {failure}");
        }
    }
}

/// The content of a block by its number and the write's.
fn content(block: u64, value: u64) -> Vec<u8> {
    if value == 0 {
        return vec![0; BLOCK as usize];
    }
    let mut stream = Stream::new(value << 8 | block);
    let words = (0..BLOCK / 16).flat_map(|_| [value, stream.draw()]);
    words.flat_map(u64::to_le_bytes).collect()
}

/// Which write the content is of.
fn value_of(block: u64, bytes: &[u8]) -> u64 {
    let value = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(bytes == content(block, value), "block {block} is mixed: it begins as {value}");
    value
}

type Histories = Rc<RefCell<BTreeMap<u64, Vec<Done>>>>;

/// One client reads and writes for a while.
async fn use_blocks(client: Client, histories: Histories, mut random: Stream, requests: u64, number: u64) {
    for request in 0..requests {
        let first = random.below(BLOCKS);
        let count = 1 + random.below(3).min(BLOCKS - first - 1);
        let value = number << 32 | (request + 1) << 8;
        let is_write = random.one_in(2);
        let begun = client.world.now().0;
        let places: Vec<(u64, usize)> = {
            let mut histories = histories.borrow_mut();
            let begin = |block: u64| {
                let history = histories.entry(block).or_default();
                history.push(Done { is_write, value, begun, ended: None });
                (block, history.len() - 1)
            };
            (first..first + count).map(begin).collect()
        };
        let column = client.column();
        let read = if is_write {
            let data: Bytes = (first..first + count).flat_map(|block| content(block, value)).collect();
            column.write(first * BLOCK, [data].into_iter().collect()).await.expect("written");
            None
        } else {
            Some(join(&column.read(first * BLOCK, count * BLOCK).await.expect("read")))
        };
        let ended = Some(client.world.now().0);
        for (block, at) in places {
            let mut histories = histories.borrow_mut();
            let done = &mut histories.get_mut(&block).expect("begun")[at];
            done.ended = ended;
            if let Some(read) = &read {
                let from = ((block - first) * BLOCK) as usize;
                done.value = value_of(block, &read[from..from + BLOCK as usize]);
            }
        }
        client.world.sleep(Duration::from_micros(random.below(2_000))).await;
    }
}

/// Cuts servers off, kills them, and lets them come back; never more at once than may be faulty.
async fn trouble(rig: Rc<Rig>, mut random: Stream, faults: usize, rounds: u64) {
    let count = rig.servers.borrow().len();
    for _ in 0..rounds {
        rig.world.sleep(Duration::from_millis(random.below(40))).await;
        if random.one_in(4) {
            // The power goes everywhere.
            let with_power = random.one_in(2);
            (0..count).for_each(|number| rig.kill(number, with_power));
            for number in 0..count {
                rig.start(number).await;
            }
            continue;
        }
        let honest: Vec<usize> = (0..count).filter(|number| !rig.servers.borrow()[*number].lies).collect();
        let some: Vec<usize> = (0..faults).map(|_| honest[random.index(honest.len())]).collect();
        let kills = random.one_in(2);
        for &number in &some {
            if kills {
                let with_power = random.one_in(2);
                if rig.servers.borrow()[number].node.is_some() {
                    rig.kill(number, with_power);
                }
            } else {
                rig.servers.borrow_mut()[number].is_cut_off = true;
            }
        }
        rig.world.sleep(Duration::from_millis(random.below(60))).await;
        for &number in &some {
            rig.servers.borrow_mut()[number].is_cut_off = false;
            if rig.servers.borrow()[number].node.is_none() {
                rig.start(number).await;
            }
        }
    }
}

/// With so many fragments that move to other drives.
async fn a_run(world: SimWorld, layout: &'static str, seed: u64, (requests, moves): (u64, u64)) {
    let rig = Rig::new(world.clone(), layout, seed).await;
    let quorum = rig.shape.quorum;
    let mut random = Stream::new(seed ^ 0x7175);
    for liar in 0..quorum.liars() {
        let number = (seed as usize + usize::from(liar)) % usize::from(quorum.count());
        rig.servers.borrow_mut()[number].lies = true;
    }
    let histories: Histories = Rc::default();
    let clients: Vec<(SimWorld, Client)> = (1..=3).map(|writer| rig.gateway(writer)).collect();
    let ended: Rc<RefCell<BTreeSet<usize>>> = Rc::default();
    for (number, (world, client)) in clients.iter().enumerate() {
        let work = use_blocks(client.clone(), histories.clone(), random.fork(), requests, number as u64 + 1);
        let ended = ended.clone();
        world.spawn_named("client", async move {
            work.await;
            ended.borrow_mut().insert(number);
        });
    }
    let (faults, fork) = (usize::from(quorum.faults() - quorum.liars()), random.fork());
    // A client's machine may fail as well: what it has begun may be done, or not.
    if random.one_in(2) {
        let (victim, clock, ended) = (clients[0].0.clone(), world.clone(), ended.clone());
        let after = Duration::from_millis(random.below(200));
        world.spawn_named("gateway's end", async move {
            clock.sleep(after).await;
            victim.kill();
            ended.borrow_mut().insert(0);
        });
    }
    let moving = async {
        for _ in 0..moves {
            rig.world.sleep(Duration::from_millis(random.below(120))).await;
            rig.move_a_fragment().await;
        }
    };
    let trouble = trouble(rig.clone(), fork, faults, 8);
    futures_util::future::join(trouble, moving).await;
    while ended.borrow().len() < clients.len() {
        world.sleep(Duration::from_millis(10)).await;
    }
    // All is well again: every block can be read, and all honest nodes have the same.
    let (_, last) = rig.gateway(9);
    for block in 0..BLOCKS {
        let begun = last.world.now().0;
        let read = join(&last.column().read(block * BLOCK, BLOCK).await.expect("read"));
        let (value, ended) = (value_of(block, &read), Some(last.world.now().0));
        histories.borrow_mut().entry(block).or_default().push(Done { is_write: false, value, begun, ended });
    }
    for (block, history) in histories.borrow().iter() {
        if let Err(why) = check(history) {
            panic!("{layout}, block {block}: {why}");
        }
    }
    last.column().heal(0, BLOCKS as u32, Look::AtFragments, &BTreeSet::new()).await.expect("healed");
    let honest = rig.honest_nodes();
    for block in 0..BLOCKS {
        let mut latest = BTreeSet::new();
        for node in &honest {
            let (versions, _) = node.read((block, 1), Which::Latest, true, &[]).await.expect("read");
            let Found::Has { version, holds, .. } = versions[0].found else { panic!("{versions:?}") };
            latest.insert((version, holds));
        }
        assert_eq!(latest.len(), 1, "{layout}, block {block}: {latest:?}");
    }
    if quorum.liars() == 0 {
        assert!(clients.iter().all(|(_, client)| client.gateway.lies().is_empty()), "{layout}: nobody lies");
    }
}

#[test]
fn clients_of_a_quorum_see_one_register_for_each_block_under_faults() {
    for (nth, layout) in LAYOUTS.into_iter().enumerate() {
        let nth = nth as u64;
        told(100_000 * nth..100_000 * nth + SEEDS, move |world, seed| a_run(world, layout, seed, (60, 0)));
    }
}

/// Story: a read had heard of a version that may have been complete, from a drive that then took long to give its fragment. The read took
/// the version for one that isn't complete, returned the version before it, and wrote that one to all drives.
#[test]
fn a_version_whose_fragment_comes_late_is_not_passed_over() {
    told(5..6, move |world, seed| a_run(world, "1/3,t=1,async", seed, (60, 0)));
}

#[test]
fn clients_of_a_quorum_see_one_register_while_fragments_move() {
    for (nth, layout) in LAYOUTS.into_iter().enumerate() {
        let first = 1_000_000 + 100_000 * nth as u64;
        told(first..first + SEEDS, move |world, seed| a_run(world, layout, seed, (60, 2)));
    }
}

#[test]
fn a_node_keeps_older_versions_until_a_later_one_is_complete() {
    told(0..4, |world, seed| async move {
        let rig = Rig::new(world.clone(), "1/3,t=1,async", seed).await;
        let node = rig.servers.borrow()[0].node.clone().expect("it's up");
        let data = |byte: u8| Some(Bytes::from(vec![byte; BLOCK as usize]));
        for (time, byte) in [(5, 5u8), (3, 3), (8, 8)] {
            node.write(versioned(7, time, data(byte), 1), &(Rc::new(|| true) as Rc<dyn Fn() -> bool>))
                .await
                .expect("written");
        }
        let at = |time| versioned(7, time, None, 1).version;
        let found = |which| {
            let node = node.clone();
            async move {
                let (versions, data) = node.read((7, 1), which, true, &[]).await.expect("read");
                match &versions[0].found {
                    Found::Has { version, .. } => Some((version.time, data.first().map(|bytes| bytes[0]))),
                    _ => None,
                }
            }
        };
        for (which, expected) in [
            (Which::Latest, Some((8, Some(8)))),
            (Which::Before(at(8)), Some((5, Some(5)))),
            (Which::Before(at(5)), Some((3, Some(3)))),
            (Which::Before(at(3)), Some((0, None))),
            (Which::At(at(3)), Some((3, Some(3)))),
            (Which::At(at(4)), None),
        ] {
            assert_eq!(found(which).await, expected, "{which:?}");
        }
        assert_eq!(node.time(&[]).await, Ok(8));
        node.complete(&[tepal_wire::message::Complete { first: 7, count: 1, version: at(5) }]);
        node.settle().await;
        for (which, expected) in [
            (Which::Latest, Some((8, Some(8)))),
            (Which::Before(at(8)), Some((5, Some(5)))),
            (Which::Before(at(5)), None),
            (Which::At(at(3)), None),
        ] {
            assert_eq!(found(which).await, expected, "{which:?} after 5 was complete");
        }
    });
}

/// Story: the log has room for so many entries; what is complete goes home and makes room, also after the node was opened anew.
#[test]
fn three_thousand_writes_go_through_a_log_of_a_thousand_entries() {
    told(0..1, |world, seed| async move {
        let rig = Rig::new(world.clone(), "1/3,t=1,async", seed).await;
        rig.delay.set(1);
        let (_, client) = rig.gateway(1);
        for round in 0..3_000u64 {
            let block = round * 7 % 640;
            let data = Bytes::from(content(block, round + 1));
            client.column().write(block * BLOCK, [data].into_iter().collect()).await.expect("written");
            if round % 1_000 == 500 {
                let number = (round / 1_000 % 3) as usize;
                rig.kill(number, true);
                rig.start(number).await;
            }
        }
        for block in 0..640 {
            let read = join(&client.column().read(block * BLOCK, BLOCK).await.expect("read"));
            let last = (0..3_000u64).rev().find(|round| round * 7 % 640 == block).map_or(0, |round| round + 1);
            assert_eq!(value_of(block, &read), last);
        }
    });
}

#[test]
fn parts_of_blocks_and_what_is_taken_out_are_as_a_plain_disk_has_them() {
    told(0..6, |world, seed| async move {
        let layout = LAYOUTS[seed as usize % LAYOUTS.len()];
        let rig = Rig::new(world.clone(), layout, seed).await;
        let (_, client) = rig.gateway(1);
        let mut random = Stream::new(seed);
        let mut plain = vec![0u8; (BLOCKS * BLOCK) as usize];
        for round in 0..80u64 {
            let from = random.below(plain.len() as u64);
            let length = (1 + random.skewed(3 * BLOCK)).min(plain.len() as u64 - from);
            let range = from as usize..(from + length) as usize;
            if random.one_in(4) {
                client.column().zero(from..from + length).await.expect("taken out");
                plain[range].fill(0);
            } else {
                let data: Vec<u8> = (0..length).map(|at| (at * 13 + round) as u8).collect();
                client.column().write(from, [Bytes::from(data.clone())].into_iter().collect()).await.expect("written");
                plain[range].copy_from_slice(&data);
            }
            let from = random.below(plain.len() as u64);
            let length = (1 + random.skewed(3 * BLOCK)).min(plain.len() as u64 - from);
            let read = join(&client.column().read(from, length).await.expect("read"));
            assert!(read[..] == plain[from as usize..(from + length) as usize], "{layout}, round {round}");
        }
    });
}
