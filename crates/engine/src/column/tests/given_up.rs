//! What an operator gives up of a column with an erasure code: too few of its fragments are left.

use super::*;
use crate::places::{CopyStatus, Placed};
use crate::servers::follow::{Agreed as Drives, ClusterView, DriveStatus};
use crate::{Trouble, Within};
use futures_util::future::Either;
use tepal_model::{Segments, ServerId};
use tepal_sim::SimWorld;

const ME: ServerId = ServerId(1);
const LAYOUT: &str = "ec:2+1";
/// Drives, and as many columns: column n is on the drives n + 1 to n + 3.
const DRIVES: u64 = 4;
/// An extent of three columns, and a part of one of the fourth.
const BLOCKS: u64 = 3 * 256 + 20;
/// Columns of which a single drive is left, without the drives 3 and 4.
const LOST: [usize; 2] = [1, 2];

/// A volume that has lost two of its drives.
struct GivingUp {
    rig: Rig,
    now: Arc<ClusterView>,
}

impl GivingUp {
    async fn new(world: SimWorld) -> Self {
        Self::of(world, LAYOUT, DRIVES).await
    }

    async fn of(world: SimWorld, layout: &'static str, drives: u64) -> Self {
        let rig = Rig::new(world, layout, drives as usize).await;
        let mut told = GivingUp { rig, now: Arc::default() };
        told.rig.write(0, 1, BLOCKS as usize).await.unwrap();
        told.rig.world.sleep(Duration::from_secs(10)).await;
        told.rig.agree(&["0-1", "0-2"]);
        told.follow(|_| {}, &[]);
        told.rig.write(3, 2, BLOCKS as usize - 6).await.unwrap(); // and stays in the log for now
        told
    }

    /// Follows the next state, in which these drives have failed.
    fn follow(&mut self, change: impl Fn(&mut Places), failed: &[u64]) {
        let known = self.now.places.get(&MapId(1)).cloned();
        let mut places = Places::clone(&known.unwrap_or_else(|| self.rig.volume.spec().places));
        change(&mut places);
        let status = |id| if failed.contains(&id) { DriveStatus::Retired(2) } else { DriveStatus::Up(1) };
        let now = Arc::new(ClusterView {
            view: self.now.view + 1,
            drives: (1..=self.rig.disks.len() as u64)
                .map(|id| (DriveId(id), Drives { server: ME, status: status(id) }))
                .collect(),
            places: [(MapId(1), Arc::new(places))].into(),
            epochs: [(MapId(1), self.rig.epochs.clone())].into(),
            ..ClusterView::default()
        });
        self.rig.engine.follow(ME, &self.now, &now);
        self.now = now;
    }

    async fn loses(&mut self, drives: &[u64]) {
        for &drive in drives {
            self.rig.lose(drive as usize - 1).await;
        }
        drives.iter().for_each(|&drive| self.rig.engine.retire_absent(DriveId(drive), u64::MAX));
    }

    fn accepts(&mut self, failed: &[u64]) {
        let view = self.now.view + 1;
        let given_up = |places: &mut Places| {
            for column in 0..places.columns.len() {
                let held = failed.iter().filter(|&&drive| places.columns[column].drives().any(|it| it.0 == drive));
                let held: Vec<u64> = held.copied().collect();
                held.into_iter().for_each(|drive| {
                    places.incomplete.insert((column, DriveId(drive)), CopyStatus::GivenUp(view));
                });
            }
        };
        self.follow(given_up, failed);
    }

    /// A block of column 0 that only the logs of the drives 2 and 3 have, and that isn't known to be on its way: another region of the
    /// column is written to meanwhile.
    async fn only_logged(&self) -> u64 {
        let place = |block: u64| {
            let map = self.rig.engine.map(MapId(1)).unwrap();
            let (column, offset) = map.striping().locate(block * BLOCK);
            (column, map.column(column).region_of(offset / BLOCK))
        };
        let is_fresh = |block: &u64| place(*block).0 == 0 && place(*block).1 != place(0).1;
        let fresh = (BLOCKS..self.rig.volume.size() / BLOCK).find(is_fresh).unwrap();
        self.rig.write(fresh, 9, 1).await.unwrap();
        for _ in 0..20 {
            self.rig.write(0, 1, 1).await.unwrap();
            self.rig.world.sleep(Duration::from_millis(500)).await;
        }
        let group = self.rig.volume.groups().into_iter().find(|group| group.shared.column.number == 0).unwrap();
        assert!(!group.lock().busy.contains_key(&place(fresh).1));
        fresh
    }

    /// A drive joins column 0, to take a member's place there.
    fn joins(&mut self, drive: u64, in_place_of: usize, failed: &[u64]) {
        let joins = Some(Placing { drive: DriveId(drive), since: self.now.view + 1 });
        let begins =
            |places: &mut Places| places.columns[0] = Placed { joins, in_place_of, ..places.columns[0].clone() };
        self.follow(begins, failed);
    }

    /// It takes the place, once it has everything.
    async fn has_joined(&mut self, drive: u64, in_place_of: usize, failed: &[u64]) {
        let view = self.now.view;
        while !self.rig.authority.0.lock().unwrap().joined.contains(&(0, DriveId(drive), view)) {
            self.rig.world.sleep(Duration::from_millis(1)).await;
        }
        let has_its_place = |places: &mut Places| {
            let gone = places.columns[0].holders[in_place_of].drive;
            places.incomplete.remove(&(0, gone));
            places.columns[0].joins = None;
            places.columns[0].holders[in_place_of] = Placing { drive: DriveId(drive), since: view + 1 };
        };
        self.follow(has_its_place, failed);
    }

    /// A read that hasn't been answered after some seconds.
    async fn waiting_read(&self, block: u64) -> impl Future<Output = Result<Segments, IoError>> + use<> {
        let volume = self.rig.volume.clone();
        let read = Box::pin(async move { volume.read(block * BLOCK, BLOCK).await });
        let waits = Box::pin(self.rig.world.sleep(Duration::from_secs(5)));
        match futures_util::future::select(read, waits).await {
            Either::Left((answer, _)) => panic!("{:?}", answer.map(|data| join(&data)[0])),
            Either::Right(((), read)) => read,
        }
    }

    fn column_of(&self, block: u64) -> usize {
        self.rig.engine.map(MapId(1)).unwrap().striping().locate(block * BLOCK).0
    }

    /// Each block, and what it was before drives failed.
    fn blocks(&self) -> impl Iterator<Item = (usize, u64, u8)> {
        (0..BLOCKS).map(|block| {
            let is_newer = (3..BLOCKS - 3).contains(&block);
            (self.column_of(block), block, if is_newer { 2 } else { 1 })
        })
    }

    /// What a drive holds of a column.
    fn held(&self, drive: u64, column: usize) -> usize {
        let map = self.rig.engine.map(MapId(1)).unwrap();
        let (first, count) = map.column(column).places();
        self.rig.engine.drive(DriveId(drive)).unwrap().extents_of(MapId(1), first, count, true).len()
    }
}

#[test]
fn what_is_given_up_of_a_code_is_zeros_and_takes_no_room() {
    told(|world| async move {
        let mut told = GivingUp::new(world).await;
        told.loses(&[3, 4]).await;
        let mut left = 0;
        for (column, block, byte) in told.blocks() {
            let is_lost = LOST.contains(&column);
            match told.rig.read(block).await {
                Ok(found) => {
                    assert_eq!(found, byte, "{block}");
                    left += u64::from(is_lost);
                }
                Err(IoError::Lost { offset, .. }) => assert!(is_lost && offset == block * BLOCK, "{block}: {offset}"),
                Err(error) => panic!("{block}: {error}"),
            }
        }
        assert_eq!(left, 256 / 2, "a data fragment of one lost column is left, with its log");
        assert!(!told.rig.volume.lost().is_empty());
        let VolumeHealth::Unavailable(troubles) = told.rig.volume.health() else { panic!("some of it is lost") };
        assert_eq!(troubles[0], Trouble::Lost { drives: vec![DriveId(3), DriveId(4)] });
        assert!(told.held(2, 1) > 0 && told.held(1, 2) > 0);

        told.accepts(&[3, 4]);
        assert_eq!(told.rig.volume.lost(), []);
        for (column, block, byte) in told.blocks() {
            let (now, before) = if LOST.contains(&column) { (0, 0) } else { (byte, 1) };
            assert_eq!((told.rig.read(block).await, told.rig.shown(1, block).await), (Ok(now), Ok(before)), "{block}");
        }
        let older = told.rig.volume.snapshot(1, told.rig.volume.size());
        let all = Within { offset: 0, length: BLOCKS * BLOCK, limit: usize::MAX };
        let mut at = 0;
        for run in told.rig.volume.changed_since(&older, all).await.unwrap() {
            let blocks = at / BLOCK..(at + run.length) / BLOCK;
            at += run.length;
            for block in blocks {
                let is_as_it_was = !LOST.contains(&told.column_of(block)) && !(3..BLOCKS - 3).contains(&block);
                assert!(run.mapped || is_as_it_was, "{block}: whoever has the snapshot has what was given up");
            }
        }
        while told.held(2, 1) + told.held(1, 2) > 0 {
            told.rig.world.sleep(Duration::from_millis(10)).await;
        }
        assert!(told.held(1, 0) > 0 && told.held(2, 3) > 0);
    });
}

#[test]
fn what_is_given_up_is_written_again_once_enough_drives_hold_it() {
    told(|world| async move {
        let mut told = GivingUp::new(world).await;
        told.loses(&[3, 4]).await;
        told.accepts(&[3, 4]);
        let (_, block, _) = told.blocks().find(|(column, ..)| *column == 1).unwrap();
        let volume = told.rig.volume.clone();
        let write = Box::pin(async move { volume.write(block * BLOCK, Bytes::from(vec![7; 4096]), false).await });
        let waits = Box::pin(told.rig.world.sleep(Duration::from_secs(5)));
        let Either::Right((_, write)) = futures_util::future::select(write, waits).await else {
            panic!("one drive alone keeps no code")
        };
        let VolumeHealth::Unavailable(troubles) = told.rig.volume.health() else { panic!("it isn't served in full") };
        let writes_wait = Trouble::WritesWait { wanted: 2, here: 1, drives: vec![DriveId(3), DriveId(4)] };
        assert_eq!(troubles[0], writes_wait);
        let joins = Some(Placing { drive: DriveId(1), since: told.now.view + 1 });
        told.follow(
            |places| places.columns[1] = Placed { joins, in_place_of: 1, ..places.columns[1].clone() },
            &[3, 4],
        );
        let (volume, part) = (told.rig.volume.clone(), Bytes::from(vec![5; 512]));
        let in_part = Box::pin(async move { volume.write((block + 1) * BLOCK + 512, part, false).await });
        let waits = Box::pin(told.rig.world.sleep(Duration::from_secs(5)));
        let Either::Right((_, in_part)) = futures_util::future::select(in_part, waits).await else {
            panic!("it's merged with nothing")
        };
        let view = told.now.view;
        while !told.rig.authority.0.lock().unwrap().joined.contains(&(1, DriveId(1), view)) {
            told.rig.world.sleep(Duration::from_millis(1)).await;
        }
        let has_its_place = |places: &mut Places| {
            places.incomplete.remove(&(1, DriveId(3)));
            places.columns[1].joins = None;
            places.columns[1].holders[1] = Placing { drive: DriveId(1), since: view + 1 };
        };
        told.follow(has_its_place, &[3, 4]);
        write.await.unwrap();
        in_part.await.unwrap();
        let merged = join(&told.rig.volume.read((block + 1) * BLOCK, BLOCK).await.unwrap());
        assert!((0..).zip(&merged[..]).all(|(at, byte)| *byte == if (512..1024).contains(&at) { 5 } else { 0 }));
        for (column, at, byte) in told.blocks().filter(|(_, at, _)| *at != block + 1) {
            let now = if LOST.contains(&column) { 0 } else { byte };
            assert_eq!(told.rig.read(at).await, Ok(if at == block { 7 } else { now }), "{at}");
        }
        assert_eq!(told.rig.shown(1, block).await, Ok(0));
    });
}

#[test]
fn a_drive_that_is_away_is_waited_for_before_its_part_is_given_up() {
    told(|world| async move {
        let mut told = GivingUp::new(world).await;
        told.loses(&[3, 4]).await;
        told.rig.lose(1).await; // all that is left of column 1
        told.accepts(&[3, 4]);
        let (_, block, _) = told.blocks().find(|(column, ..)| *column == 1).unwrap();
        let read = told.waiting_read(block).await; // the drive may have written something
        told.rig.bring_back(1).await;
        assert_eq!(join(&read.await.unwrap())[0], 0);
        while told.held(2, 1) > 0 {
            told.rig.world.sleep(Duration::from_millis(10)).await;
        }
    });
}

/// One drive missed writes to a region, and another one failed before the region was copied.
#[test]
fn a_region_that_is_given_up_is_written_at_once_where_enough_drives_are_left() {
    told(|world| async move {
        let rig = Rig::new(world, LAYOUT, 3).await;
        let mut told = GivingUp { rig, now: Arc::default() };
        told.follow(|_| {}, &[]);
        told.rig.write(0, 1, 3 * 32).await.unwrap();
        told.rig.world.sleep(Duration::from_secs(10)).await;
        told.rig.lose(2).await;
        told.rig.write(0, 2, 3 * 32).await.unwrap();
        told.rig.world.sleep(Duration::from_secs(10)).await;
        let drive = told.rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        let (slots, start) = (u64::from(drive.geometry().slots), drive.geometry().slots_start);
        (0..slots * 16).for_each(|block| told.rig.disks[0].rot(start + block * BLOCK)); // so nothing can be decoded
        drop(drive);
        told.rig.bring_back(2).await;
        told.rig.world.sleep(Duration::from_secs(10)).await;
        told.loses(&[1]).await;
        let column = told.column_of(0);
        assert!(matches!(told.rig.read(0).await, Err(IoError::Lost { .. })), "{:?}", told.rig.read(0).await);
        told.accepts(&[1]);
        let read = told.rig.read(0).await;
        assert_eq!(read, Ok(0), "column {column}");
        told.rig.write(1, 3, 2).await.unwrap();
        assert_eq!((told.rig.read(0).await, told.rig.read(1).await), (Ok(0), Ok(3)));
        assert_eq!(told.rig.volume.lost(), []);
    });
}

/// Story: one of three drives had failed, another one was away, and the third one had nothing of what only the log of the others had. A
/// drive that joined seemed to complete the code, and zeros were read in place of acknowledged data.
#[test]
fn a_joining_drive_waits_for_logs_of_absent_ones() {
    told(|world| async move {
        let mut told = GivingUp::new(world).await;
        let block = told.only_logged().await;
        told.loses(&[2]).await;
        told.rig.lose(2).await;
        told.joins(4, 1, &[2]);
        let read = told.waiting_read(block).await;
        told.rig.bring_back(2).await;
        assert_eq!(join(&read.await.unwrap())[0], 9);
        told.has_joined(4, 1, &[2]).await;
        told.rig.world.sleep(Duration::from_secs(10)).await; // all is in place
        told.rig.lose(2).await;
        assert_eq!(told.rig.read(block).await, Ok(9));
        for (column, block, byte) in told.blocks().filter(|(column, ..)| *column == 0) {
            assert_eq!(told.rig.read(block).await, Ok(byte), "{column} {block}");
        }
    });
}

/// Story: a drive was away while another one joined what was given up. It returned, and what its log held was read again.
#[test]
fn a_drive_returning_after_another_joined_brings_nothing_back() {
    told(|world| async move {
        let mut told = GivingUp::of(world, "ec:3+1", 5).await;
        let block = told.only_logged().await;
        told.loses(&[2, 4]).await;
        told.rig.lose(2).await;
        told.accepts(&[2, 4]);
        told.joins(5, 1, &[2, 4]);
        told.rig.world.sleep(Duration::from_secs(10)).await;
        told.rig.bring_back(2).await;
        told.has_joined(5, 1, &[2, 4]).await;
        assert_eq!((told.rig.read(block).await, told.rig.shown(1, block).await), (Ok(0), Ok(0)));
        assert_eq!((told.held(1, 0), told.held(3, 0)), (0, 0));
        told.rig.write(block, 7, 1).await.unwrap();
        assert_eq!((told.rig.read(block).await, told.rig.shown(1, block).await), (Ok(7), Ok(0)));
    });
}

/// Story: a drive left between two looks at the members while a stripe was emptied, and returned with half of the stripe.
#[test]
fn a_drive_that_leaves_while_it_is_emptied_is_emptied_later() {
    told(|world| async move {
        for delay in [0, 20, 60, 150, 400, 1000, 3000, 10_000] {
            let mut told = GivingUp::of(world.clone(), "ec:3+1", 5).await;
            told.loses(&[2, 4]).await;
            told.accepts(&[2, 4]);
            told.rig.world.sleep(Duration::from_micros(delay)).await;
            told.rig.lose(0).await;
            told.rig.world.sleep(Duration::from_millis(1)).await;
            told.rig.bring_back(0).await;
            told.joins(5, 1, &[2, 4]);
            told.has_joined(5, 1, &[2, 4]).await;
            assert_eq!((told.held(1, 0), told.held(3, 0)), (0, 0), "{delay}");
        }
    });
}
