//! Snapshots where several servers act by the agreed state, each as soon as it hears of the snapshot.

use super::two_servers::Two;
use super::*;
use crate::{DriveStatus, Head};
use futures_util::future::{Either, select};
use std::sync::atomic::Ordering;
use tepal_drive::world::Gather;
use tepal_model::{History, Origin};
use tepal_wire::message::Tag;

const MOMENT: Duration = Duration::from_secs(1);

/// A snapshot has been taken.
fn epochs(view: View) -> Arc<Epochs> {
    let history = History::new(["0-1", "0-2"].map(|text| text.parse().unwrap()), 0);
    let heads = [(VolumeId(1), Head { epoch: 2, since: view })].into();
    Arc::new(Epochs { history, heads, snapshots: [(1, VolumeId(1))].into(), view })
}

impl Two {
    /// The first server leads all columns.
    async fn led(world: SimWorld) -> Self {
        let two = Two::new(world, Standing::Current, Arc::default()).await;
        two.follow(3, DriveStatus::Up(2), |_| {});
        two.fill(1).await.unwrap();
        two
    }

    fn hears_of_the_snapshot(&self, view: View) {
        self.follow(view, DriveStatus::Up(2), |now| now.epochs = [(MapId(1), epochs(view))].into());
    }

    fn fill(&self, byte: u8) -> impl Future<Output = Result<(), IoError>> + use<> {
        let volume = self.volume.clone();
        async move { volume.write(0, Bytes::from(vec![byte; BLOCK as usize]), false).await }
    }

    async fn now(&self) -> u8 {
        join(&self.volume.read(0, BLOCK).await.unwrap())[0]
    }

    async fn shown(&self) -> u8 {
        let snapshot = self.volume.snapshot(1, self.volume.size());
        join(&snapshot.read(0, BLOCK).await.unwrap())[0]
    }

    /// The outcome of work that ends within a moment, or else the work.
    async fn soon<F: Future + Unpin>(&self, work: F) -> Result<F::Output, F> {
        match select(work, Box::pin(self.world.sleep(MOMENT))).await {
            Either::Left((output, _)) => Ok(output),
            Either::Right((_, work)) => Err(work),
        }
    }
}

/// Story: a server heard of a snapshot before it followed the state in which the snapshot was agreed, and wrote in the
/// new epoch at once. By that state another server led: the other knew of earlier states only, and didn't see the
/// write.
#[test]
fn no_write_uses_an_epoch_before_following_its_view() {
    told(|world| async move {
        let two = Two::led(world).await;
        two.home.map(MapId(1)).unwrap().go_on_with(epochs(5));
        let write = two.soon(Box::pin(two.fill(2))).await.expect_err("it has only heard of the epoch");
        two.follow(4, DriveStatus::Up(2), |_| {});
        let write = two.soon(write).await.expect_err("nor does it act by it yet");
        two.hears_of_the_snapshot(5);
        write.await.unwrap();
        assert_eq!((two.now().await, two.shown().await), (2, 1));
    });
}

/// Story: a snapshot was answered while a primary had no lease, as nobody waits for such a primary. The primary read
/// for a client that came after the snapshot, had a lease again, and answered with data older than a write that the
/// snapshot showed.
#[test]
fn a_primary_without_a_lease_reads_nothing() {
    told(|world| async move {
        let mut were_under_way = 0;
        for _ in 0..30 {
            let two = Two::led(SimWorld::boot(world.core(), "server")).await;
            two.disk.set_faults(Faults { slowdown: 20, ..Faults::default() });
            let write = two.fill(5);
            two.world.spawn_named("write", async move { write.await.unwrap() });
            let random = || Duration::from_micros(world.core().draw() % 2_000);
            two.world.sleep(random()).await;
            two.authority.has_no_lease.store(true, Ordering::Relaxed);
            let read = two.now();
            let later = async {
                two.world.sleep(random()).await;
                two.hears_of_the_snapshot(4);
                two.authority.has_no_lease.store(false, Ordering::Relaxed);
            };
            let (read, ()) = futures_util::future::join(read, later).await;
            let shown = two.shown().await;
            assert!(read == shown || read == 5, "the snapshot shows {shown}, and {read} was read after it");
            were_under_way += usize::from(shown == 5);
        }
        assert!(were_under_way > 0, "all writes came after the snapshots");
    });
}

/// Story: a retried request that had been done was answered while another primary still wrote in the epoch before.
#[test]
fn a_retry_is_answered_when_all_know_its_epoch() {
    told(|world| async move {
        let two = Two::led(world).await;
        let origin = Origin { gateway: 9, slot: 1, number: 1, view: 3 };
        let ask = |is_in_doubt| {
            let group = two.volume.groups().into_iter().find(|group| group.shared.column.number == 0).unwrap();
            let data = Gather::from_iter([Bytes::from(vec![2; BLOCK as usize])]);
            Box::pin(group.write(VolumeId(1), 0, data.into(), false, Some(Tag { origin, is_in_doubt })))
        };
        ask(false).await.unwrap();
        two.authority.hold_back_from(4);
        two.hears_of_the_snapshot(4);
        let answer = two.soon(ask(true)).await.expect_err("another one may act in view 3 yet");
        two.authority.let_go();
        assert_eq!(answer.await, Ok(()));
    });
}
