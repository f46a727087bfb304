//! Which copy is read, where one is another server's.

use super::*;
use crate::servers::peers::{Peers, Question, Reply, Unreachable};
use crate::{Agreed as Drives, ClusterView, DriveStatus};
use futures_util::future::{BoxFuture, LocalBoxFuture, join_all, ready};
use tepal_model::ServerId;
use tepal_sim::device::Faults;
use tepal_wire::message::{DriveFailure, DriveOperation, DriveRequest, Request};

const HOME: ServerId = ServerId(1);
const THERE: ServerId = ServerId(2);
const BLOCKS: u64 = 256;

/// Nothing changes; whoever asks as the primary is it.
struct Settled;

impl Authority for Settled {
    fn drive_down(&self, _: DriveId, _: Loss) -> BoxFuture<'static, Option<View>> {
        Box::pin(ready(None))
    }

    fn up_again(&self, _: DriveId, _: View) -> BoxFuture<'static, Option<View>> {
        Box::pin(ready(None))
    }

    fn heeds(&self, _: ServerId, _: View, _: MapId, _: usize) -> BoxFuture<'static, Result<(), DriveFailure>> {
        Box::pin(ready(Ok(())))
    }
}

type Letter = (Question, oneshot::Sender<Result<Reply, Unreachable>>);

/// What one server asks the other.
#[derive(Default)]
struct Post {
    letters: Mutex<Vec<Letter>>,
    /// How often a drive was to be read.
    reads: Mutex<usize>,
}

impl Peers for Post {
    fn ask(&self, _: ServerId, question: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        if let Request::Drive(DriveRequest { operation: DriveOperation::Read { .. }, .. }) = question.request {
            *self.reads.lock().unwrap() += 1;
        }
        let (sender, answer) = oneshot::channel();
        self.letters.lock().unwrap().push((question, sender));
        Box::pin(async move { answer.await.unwrap() })
    }
}

impl Post {
    fn take_reads(&self) -> usize {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }

    /// Brings it, for as long as the run lasts.
    async fn carry(self: Arc<Self>, world: SimWorld, to: Engine<SimWorld>) {
        loop {
            for (question, sender) in std::mem::take(&mut *self.letters.lock().unwrap()) {
                let work = to.answer(HOME, question);
                world.spawn_named("answer", async move {
                    let _ = sender.send(Ok(work.await)); // whoever asked may have given up
                });
            }
            world.sleep(Duration::from_micros(20)).await;
        }
    }
}

async fn server(world: &SimWorld, peers: &Arc<Post>, nth: usize) -> (Engine<SimWorld>, SimDisk) {
    let engine = Engine::among(world.clone(), Arc::new(Settled), peers.clone());
    let (disk, drive) = (SimDisk::new(world.core(), NAMES[nth], 16 << 20), DriveId(nth as u64 + 1));
    let new = NewDrive { cluster: ClusterId(1), drive, pool: "p".into(), log_length: None };
    format(&disk.open(), None, new).await.unwrap();
    let drive = Drive::open(world.clone(), disk.open(), None, Options::default()).await.unwrap();
    engine.add_drive(drive, Standing::Current);
    (engine, disk)
}

#[test]
fn reads_stay_at_home_until_fewer_are_under_way_on_the_other_drive() {
    told(|world| async move {
        let post = Arc::new(Post::default());
        let (home, disk) = server(&world, &post, 0).await;
        let (there, _) = server(&world, &post, 1).await;
        world.spawn_named("post", post.clone().carry(world.clone(), there.clone()));
        let layout = "mirror:2".parse().unwrap();
        let spec = VolumeSpec {
            id: VolumeId(1),
            name: "v".into(),
            size: 8 << 20,
            layout,
            map: MapId(1),
            geometry: round(&places([1, 2], "mirror:2")),
            places: places([1, 2], "mirror:2"),
            revision: 1,
            epochs: std::sync::Arc::default(),
        };
        there.open_volume_among(spec.clone()).unwrap();
        let volume = home.open_volume_among(spec).unwrap();
        [&home, &there].into_iter().for_each(Engine::all_volumes_opened);
        let up = |id, server, since| (DriveId(id), Drives { server, status: DriveStatus::Up(since) });
        let now = Arc::new(ClusterView {
            view: 3,
            drives: [up(1, HOME, 1), up(2, THERE, 2)].into(),
            ..ClusterView::default()
        });
        home.follow(HOME, &ClusterView::default(), &now);
        there.follow(THERE, &ClusterView::default(), &now);
        volume.write(0, Bytes::from(vec![1; (BLOCKS * BLOCK) as usize]), false).await.unwrap();
        home.drive(DriveId(1)).unwrap().checkpoint().await.unwrap();
        there.drive(DriveId(2)).unwrap().checkpoint().await.unwrap();

        for block in 0..BLOCKS {
            volume.read(block * BLOCK, BLOCK).await.unwrap();
        }
        assert_eq!(post.take_reads(), 0, "both drives were idle each time");

        let all_at_once = || join_all((0..64).map(|block| volume.read(block * 4 * BLOCK, BLOCK)));
        disk.set_faults(Faults { slowdown: 10, ..Faults::default() });
        all_at_once().await.into_iter().for_each(|read| drop(read.unwrap()));
        let shared = post.take_reads();
        assert!(shared >= 16, "{shared} of 64 went there");
    });
}
