//! Unsure regions after a crash, and all readers that want them meanwhile.

use super::late::put;
use super::two_servers::{Carries, Two};
use super::*;
use crate::DriveStatus;
use futures_util::future::{self, Either, join_all, join3, select};
use tepal_model::Lineage;

/// A write has reached only the drive of that server when both servers were killed. Both are up again.
async fn left_on(world: SimWorld, server: usize) -> Two {
    let two = Two::new(world, Standing::Current, Arc::default()).await;
    let drive = &two.drives()[server];
    let (_, first) = *two.volume.copies_at(0).iter().find(|(id, _)| *id == drive.id()).unwrap();
    put(drive, first, 1, &Lineage::default(), true).await;
    two.follow(3, DriveStatus::Up(2), |_| {});
    two.post.take_asked();
    two
}

/// The outcomes of so many reads at once, and how often the other server was asked for them.
async fn letters(two: &Two, readers: usize) -> (Vec<Result<(), IoError>>, usize) {
    let reads = join_all((0..readers).map(|_| two.volume.read(0, BLOCK))).await;
    (reads.into_iter().map(|read| read.map(drop)).collect(), two.post.take_asked())
}

/// Story: after a crash each of many reads compared all copies of its region, from end to end, though another read did
/// so already.
#[test]
fn an_unsure_region_is_resolved_once_for_all_readers() {
    told(|world| async move {
        let (by_one, by_many) =
            (letters(&left_on(world.clone(), 1).await, 1).await, letters(&left_on(world, 1).await, 16).await);
        assert!(by_one.0.iter().chain(&by_many.0).all(Result::is_ok));
        let (by_one, by_many) = (by_one.1, by_many.1);
        assert!(by_one > 16, "it asks for what the other drive has: {by_one}");
        assert!(by_many <= by_one + 16, "{by_many} letters, {by_one} if there's only one reader");
    });
}

/// The attempt's obstacle may be over.
#[test]
fn a_failed_attempt_fails_no_read_that_joined() {
    told(|world| async move {
        let two = left_on(world, 0).await;
        two.post.carry_on(Carries::ButComparisons);
        let is_over = async {
            while !two.post.has_answered_itself() {
                two.world.sleep(Duration::from_micros(1)).await;
            }
            two.post.carry_on(Carries::All);
        };
        let (first, second, ()) = join3(two.volume.read(0, BLOCK), two.volume.read(0, BLOCK), is_over).await;
        // The attempt is the server's own, or that of one of the reads.
        let read: Vec<_> = [first, second].into_iter().flatten().collect();
        assert!(!read.is_empty() && read.iter().all(|data| join(data).iter().all(|&byte| byte == 1)));
    });
}

#[test]
fn all_readers_hear_of_an_attempt_that_failed_twice() {
    told(|world| async move {
        let (one, many) = (left_on(world.clone(), 0).await, left_on(world, 0).await);
        [&one, &many].into_iter().for_each(|two| two.post.carry_on(Carries::ButComparisons));
        let ((_, by_one), (reads, by_many)) = (letters(&one, 1).await, letters(&many, 16).await);
        assert!(reads.iter().all(|read| matches!(read, Err(IoError::Unavailable { .. }))), "{reads:?}");
        assert!(by_many <= 2 * by_one + 16, "{by_many} letters, {by_one} if there's only one reader");
    });
}

#[test]
fn another_reader_resolves_a_region_whose_resolver_gives_up() {
    told(|world| async move {
        let two = left_on(world, 1).await;
        let (first, second) = (Box::pin(two.volume.read(0, BLOCK)), two.volume.read(0, BLOCK));
        let gives_up = async {
            let soon = Box::pin(two.world.sleep(Duration::from_micros(50)));
            assert!(matches!(select(first, soon).await, Either::Right(_)), "it's resolved already");
        };
        let ((), second) = future::join(gives_up, second).await;
        second.unwrap();
    });
}
