//! A volume that is used while it's imported, from a place that takes its time.

use super::*;
use crate::{Later, Live, OldPlace, Within};
use std::ops::Range;
use std::sync::Mutex;

/// What is looked at of the volume; the old place has nothing but zeros behind, except for the last byte of all.
const PART: usize = 512 << 10;
const SIZE: u64 = 8 << 20;
/// Copied at once.
const STEP: u64 = 64 << 10;

type Asked = (Range<u64>, oneshot::Sender<Bytes>);

/// An old place that answers when it's told to.
#[derive(Clone, Default)]
struct Old(Arc<Mutex<Vec<Asked>>>);

fn content(bytes: Range<u64>) -> Vec<u8> {
    let byte = |at: u64| match at {
        _ if at == SIZE - 1 => 0xee,
        // Every fourth block is a hole.
        _ if at < PART as u64 && !(at / BLOCK).is_multiple_of(4) => (at / 512 % 251) as u8 + 1,
        _ => 0,
    };
    bytes.map(byte).collect()
}

impl OldPlace for Old {
    fn read(&self, bytes: Range<u64>) -> Later<Bytes> {
        let (sender, receiver) = oneshot::channel();
        self.0.lock().unwrap().push((bytes, sender));
        Box::pin(async move { receiver.await.map_err(|_| IoError::Fenced) })
    }

    fn zeros(&self, bytes: Range<u64>) -> Later<Vec<(u64, bool)>> {
        let runs = content(bytes)
            .chunk_by(|one, other| (*one == 0) == (*other == 0))
            .map(|run| (run.len() as u64, run[0] == 0))
            .collect();
        Box::pin(async move { Ok(runs) })
    }
}

impl Old {
    /// Answers as long as the world stands.
    fn serve(&self, world: &SimWorld) {
        let (own, world) = (self.clone(), world.clone());
        world.clone().spawn_named("the old place", async move {
            loop {
                world.sleep(Duration::from_micros(50 + world.core().draw() % 800)).await;
                let asked = std::mem::take(&mut *own.0.lock().unwrap());
                for (bytes, answer) in asked {
                    let _ = answer.send(content(bytes).into());
                }
            }
        });
    }

    fn live(&self, copied: u64) -> Arc<Live> {
        Arc::new(Live::new(Box::new(self.clone()), 1, copied))
    }
}

/// Copies from there on, as long as the world stands. What `agreed` says is there for good.
fn copies(rig: &Rig, live: &Arc<Live>, agreed: &Arc<Mutex<u64>>) {
    let (volume, live, agreed) = (rig.volume.clone(), live.clone(), agreed.clone());
    rig.world.spawn_named("the copier", async move {
        let steps = *agreed.lock().unwrap()..PART as u64;
        for at in steps.step_by(STEP as usize) {
            let Ok(data) = live.old_place().read(at..at + STEP).await else { return };
            if volume.fill(at, data).await.is_err() || volume.flush().await.is_err() {
                return;
            }
            live.is_copied(1, at + STEP);
            *agreed.lock().unwrap() = at + STEP;
        }
    });
}

/// One client's requests, one after the other, and what it expects to read.
struct Client {
    model: Vec<u8>,
}

impl Client {
    async fn acts(&mut self, rig: &Rig) {
        let draw = |below: usize| (rig.world.core().draw() % below as u64) as usize;
        let (at, kind, byte) = (draw(PART), draw(8), draw(250) as u8);
        let mut length = [1, 511, BLOCK as usize, 3 * BLOCK as usize, 100_000][draw(5)].min(PART - at);
        let mut at = at;
        if draw(2) == 0 {
            at = at / BLOCK as usize * BLOCK as usize;
            length = length.next_multiple_of(BLOCK as usize).min(PART - at);
        }
        match kind {
            0..3 => {
                self.model[at..at + length].fill(byte);
                rig.volume.write(at as u64, vec![byte; length].into(), false).await.expect("room");
            }
            3 | 4 => {
                self.model[at..at + length].fill(0);
                rig.volume.write_zeroes(at as u64, length as u64, kind == 3).await.expect("room");
            }
            5 => rig.volume.trim(at as u64, length as u64).await.expect("nothing is done"),
            _ => self.reads(rig, at, length).await,
        }
    }

    async fn reads(&self, rig: &Rig, at: usize, length: usize) {
        let found = join(&rig.volume.read(at as u64, length as u64).await.expect("readable"));
        let differs = found.iter().zip(&self.model[at..at + length]).position(|(one, other)| one != other);
        assert_eq!(differs.map(|differs| at + differs), None, "of {length} bytes at {at}");
    }
}

#[test]
fn clients_read_what_they_wrote_and_the_old_places_bytes_elsewhere() {
    told(|world| async move {
        for (layout, drives) in [("stripe", 2), ("mirror:2", 3), ("mirror:2;extent=4K;durability=flush", 2)] {
            let rig = Rig::new(SimWorld::boot(world.core(), "server"), layout, drives).await;
            let (old, agreed) = (Old::default(), Arc::new(Mutex::new(0)));
            old.serve(&rig.world);
            let live = old.live(0);
            rig.volume.imports(live.clone());
            let mut client = Client { model: content(0..PART as u64) };
            for step in 0..40 {
                client.acts(&rig).await;
                if step == 10 {
                    copies(&rig, &live, &agreed);
                }
            }
            while *agreed.lock().unwrap() < PART as u64 {
                client.acts(&rig).await;
                rig.world.sleep(Duration::from_micros(500)).await;
            }
            let last = rig.volume.read(SIZE - 2, 2).await.unwrap();
            assert_eq!(join(&last)[..], [0, 0xee], "beyond what is copied");
            rig.volume.fill(SIZE - STEP, content(SIZE - STEP..SIZE).into()).await.unwrap();
            rig.volume.changed("v", (SIZE, false), 2, None);
            client.reads(&rig, 0, PART).await;
            assert_eq!(join(&rig.volume.read(SIZE - 2, 2).await.unwrap())[..], [0, 0xee]);
            rig.volume.trim(0, PART as u64).await.unwrap();
            client.model.fill(0);
            client.reads(&rig, 0, PART).await;
        }
    });
}

#[test]
fn what_was_acknowledged_is_there_after_a_loss_of_power_and_the_import_goes_on() {
    told(|world| async move {
        let mut rig = Rig::new(SimWorld::boot(world.core(), "server"), "mirror:2", 3).await;
        let agreed = Arc::new(Mutex::new(0));
        let mut client = Client { model: content(0..PART as u64) };
        for life in 0..4 {
            let old = Old::default();
            old.serve(&rig.world);
            let live = old.live(*agreed.lock().unwrap());
            rig.volume.imports(live.clone());
            copies(&rig, &live, &agreed);
            for _ in 0..8 {
                client.acts(&rig).await;
                rig.world.sleep(Duration::from_micros(world.core().draw() % 2000)).await;
            }
            rig.world.kill();
            if life % 2 == 0 {
                rig.disks.iter().for_each(SimDisk::cut_power);
            }
            rig.restart(|_| true).await;
        }
        let old = Old::default();
        old.serve(&rig.world);
        let live = old.live(*agreed.lock().unwrap());
        rig.volume.imports(live.clone());
        copies(&rig, &live, &agreed);
        while *agreed.lock().unwrap() < PART as u64 {
            client.acts(&rig).await;
            rig.world.sleep(Duration::from_micros(500)).await;
        }
        rig.volume.changed("v", (SIZE, false), 2, None);
        client.reads(&rig, 0, PART).await;
    });
}

/// The old place stands still: whole blocks are written all the same, and read again; whatever needs it waits and is right then.
#[test]
fn what_needs_an_old_place_that_stands_still_waits_and_all_else_goes_on() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2", 2).await;
        let old = Old::default();
        rig.volume.imports(old.live(0));
        rig.write(1, 7, 2).await.unwrap();
        assert_eq!(rig.read(1).await, Ok(7));
        rig.volume.write(BLOCK + 5, vec![8; 10].into(), false).await.expect("the rest of the block is here");
        let (reader, writer) = (rig.volume.clone(), rig.volume.clone());
        let mut read = Box::pin(async move { reader.read(0, 4 * BLOCK).await });
        let mut write = Box::pin(async move { writer.write(5 * BLOCK + 1, vec![9; 1].into(), false).await });
        rig.world.sleep(Duration::from_secs(60)).await;
        assert!(read.as_mut().now_or_never().is_none() && write.as_mut().now_or_never().is_none());
        old.serve(&rig.world);
        let mut expected = content(0..4 * BLOCK);
        expected[BLOCK as usize..3 * BLOCK as usize].fill(7);
        expected[BLOCK as usize + 5..BLOCK as usize + 15].fill(8);
        assert!(join(&read.await.unwrap())[..] == expected[..]);
        write.await.unwrap();
        let mut expected = content(5 * BLOCK..6 * BLOCK);
        expected[1] = 9;
        assert_eq!(join(&rig.volume.read(5 * BLOCK, BLOCK).await.unwrap())[..], expected[..]);
    });
}

/// Story: an export of a volume that was imported left out what no drive held yet, as if it were zeros.
#[test]
fn what_is_not_copied_yet_is_no_hole() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2", 2).await;
        let live = Old::default().live(0);
        rig.volume.imports(live.clone());
        let holds = |volume: Volume<SimWorld>| async move {
            let within = Within { offset: 0, length: 16 * BLOCK, limit: 9 };
            let runs = volume.block_status(within).await.unwrap();
            runs.iter().map(|run| (run.length / BLOCK, run.mapped)).collect::<Vec<_>>()
        };
        assert_eq!(holds(rig.volume.clone()).await, [(16, true)]);
        rig.write(1, 7, 1).await.unwrap();
        live.is_copied(1, 8 * BLOCK);
        assert_eq!(holds(rig.volume.clone()).await, [(1, false), (1, true), (6, false), (8, true)]);
    });
}

/// Story: a primary knew of the end of an import before it knew of the revision in which that was agreed. It discarded, and told a server
/// that knew of neither that nothing was held there, which then read what the old place had.
#[test]
fn the_end_of_an_import_is_known_with_its_revision() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2", 2).await;
        rig.volume.imports(Old::default().live(SIZE));
        rig.write(1, 7, 1).await.unwrap();
        let of_before = rig.volume.as_of(1);
        rig.volume.changed("v", (SIZE, false), 1, None);
        assert!(rig.volume.live().is_some(), "its end is another revision");
        rig.volume.changed("v", (SIZE, false), 2, None);
        assert!(rig.volume.live().is_none());
        rig.volume.trim(0, 4 * BLOCK).await.unwrap();
        let within = Within { offset: 0, length: 4 * BLOCK, limit: 9 };
        assert_eq!(of_before.block_status(within).await, Err(IoError::Fenced), "nobody is told of what was discarded");
    });
}

/// Story: drives that failed for good took along what had been copied. Their operator accepted that, and it was zeros from then on, though
/// the old place had it.
#[test]
fn what_is_to_be_copied_anew_comes_from_the_old_place_until_then() {
    told(|world| async move {
        let rig = Rig::new(world.clone(), "mirror:2", 2).await;
        let old = Old::default();
        old.serve(&rig.world);
        let live = old.live(8 * BLOCK); // and no drive holds any of it
        rig.volume.imports(live.clone());
        let begins = async || join(&rig.volume.read(0, 8 * BLOCK).await.unwrap());
        assert!(begins().await.iter().all(|byte| *byte == 0));
        rig.volume.changed("v", (SIZE, false), 2, Some(0));
        live.is_copied(1, 8 * BLOCK); // it's news of before that comes late
        assert!(begins().await[..] == content(0..8 * BLOCK)[..]);
        rig.volume.write(BLOCK + 5, vec![8; 10].into(), false).await.unwrap();
        live.is_copied(2, BLOCK);
        let mut expected = content(0..8 * BLOCK);
        expected[..BLOCK as usize].fill(0);
        expected[BLOCK as usize + 5..BLOCK as usize + 15].fill(8);
        assert!(begins().await[..] == expected[..]);
    });
}
