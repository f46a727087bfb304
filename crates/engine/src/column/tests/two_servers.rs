//! Two servers, each with a drive, and the post between them. The first server leads the shared columns.

use super::*;
use crate::CopyChange;
use crate::servers::peers::{Peers, Question, Reply, Unreachable};
use crate::{Agreed as Drives, Authority, ClusterView, DriveStatus};
use futures_util::future::{BoxFuture, LocalBoxFuture, ready};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tepal_model::ServerId;
use tepal_wire::message::{Answer, DriveAnswer, DriveFailure, DriveOperation, DriveRequest, Request};

pub const HOME: ServerId = ServerId(1);
const THERE: ServerId = ServerId(2);

/// Nothing changes; any server that asks as the primary is the primary.
#[derive(Default)]
pub struct Settled {
    /// The views in which a drive was found to know what it misses.
    pub found_up: Mutex<Vec<View>>,
    /// Losses that a server wanted agreed: the drive, and why it can't be reached.
    pub losses: Mutex<Vec<(DriveId, String)>>,
    pub has_no_lease: AtomicBool,
    held_back: Mutex<HeldBack>,
}

/// No server is known to act by this view or a later one; these wait for that.
#[derive(Default)]
struct HeldBack {
    from: Option<View>,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Settled {
    pub fn hold_back_from(&self, view: View) {
        self.held_back.lock().unwrap().from = Some(view);
    }

    pub fn let_go(&self) {
        *self.held_back.lock().unwrap() = HeldBack::default(); // dropping the senders tells the tasks that wait
    }
}

impl Authority for Settled {
    fn drive_down(&self, id: DriveId, loss: Loss) -> BoxFuture<'static, Option<View>> {
        self.losses.lock().unwrap().push((id, loss.to_string()));
        Box::pin(ready(None))
    }

    fn up_again(&self, _: DriveId, view: View) -> BoxFuture<'static, Option<View>> {
        self.found_up.lock().unwrap().push(view);
        Box::pin(ready(None))
    }

    fn count_copies(&self, _: MapId, _: usize, _: CopyChange, view: View) -> BoxFuture<'static, Option<View>> {
        Box::pin(ready(Some(view)))
    }

    fn adopted(&self, view: View) -> BoxFuture<'static, ()> {
        let mut held_back = self.held_back.lock().unwrap();
        if held_back.from.is_none_or(|from| view < from) {
            return Box::pin(ready(()));
        }
        let (sender, receiver) = oneshot::channel();
        held_back.waiting.push(sender);
        Box::pin(async move { receiver.await.unwrap_or_default() })
    }

    fn may_serve(&self) -> bool {
        !self.has_no_lease.load(Ordering::Relaxed)
    }

    fn heeds(&self, _: ServerId, _: View, _: MapId, _: usize) -> BoxFuture<'static, Result<(), DriveFailure>> {
        Box::pin(ready(Ok(())))
    }
}

type Letter = (Question, oneshot::Sender<Result<Reply, Unreachable>>);

/// Which letters the post carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Carries {
    #[default]
    All,
    /// Letters before an uncovering.
    UntilUncover,
    /// All, but the post itself answers writes: they found damage.
    ButWrites,
    /// All, but the post itself answers questions for the checksums by which copies are compared.
    ButComparisons,
    Nothing,
}

/// The letters from one server to the other.
#[derive(Default)]
pub struct Post {
    letters: Mutex<Vec<Letter>>,
    /// How many letters there were.
    asked: Mutex<usize>,
    /// How many reads of a drive there were.
    reads: Mutex<usize>,
    /// The post has answered something itself.
    has_answered: AtomicBool,
    carries: Mutex<Carries>,
}

impl Peers for Post {
    fn ask(&self, _: ServerId, question: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        *self.asked.lock().unwrap() += 1;
        if let Request::Drive(DriveRequest { operation: DriveOperation::Read { .. }, .. }) = question.request {
            *self.reads.lock().unwrap() += 1;
        }
        let (sender, answer) = oneshot::channel();
        self.letters.lock().unwrap().push((question, sender));
        Box::pin(async move { answer.await.unwrap() })
    }
}

impl Post {
    pub fn take_reads(&self) -> usize {
        std::mem::take(&mut *self.reads.lock().unwrap())
    }

    pub fn take_asked(&self) -> usize {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    pub fn has_answered_itself(&self) -> bool {
        self.has_answered.load(Ordering::Relaxed)
    }

    pub fn carry_on(&self, how: Carries) {
        *self.carries.lock().unwrap() = how;
    }

    /// Whether a letter has to wait, and so all later letters.
    pub fn stands_still(&self) -> bool {
        *self.carries.lock().unwrap() == Carries::Nothing
    }

    /// The post's own answer, where the other server doesn't get to answer.
    fn own_answer(&self, question: &Question) -> Option<Reply> {
        let Request::Drive(DriveRequest { operation, .. }) = &question.request else { return None };
        let is_kept_back = match *self.carries.lock().unwrap() {
            Carries::ButWrites => matches!(operation, DriveOperation::Write { .. }),
            Carries::ButComparisons => matches!(operation, DriveOperation::Checksums { .. }),
            Carries::All | Carries::UntilUncover | Carries::Nothing => false,
        };
        let damaged = || Answer::Drive(DriveAnswer::Failed(DriveFailure::Damaged { blocks: vec![0] }));
        is_kept_back.then(|| damaged().into())
    }

    /// Stops if this is the letter to stop before.
    fn stop_before(&self, question: &Question) {
        let uncovers =
            matches!(question.request, Request::Drive(DriveRequest { operation: DriveOperation::Uncover { .. }, .. }));
        let mut carries = self.carries.lock().unwrap();
        if uncovers && *carries == Carries::UntilUncover {
            *carries = Carries::Nothing;
        }
    }

    /// Carries letters, for as long as the run lasts.
    async fn carry(self: Arc<Self>, world: SimWorld, to: Engine<SimWorld>) {
        loop {
            let letters = std::mem::take(&mut *self.letters.lock().unwrap());
            for (question, sender) in letters {
                self.stop_before(&question);
                while self.stands_still() {
                    world.sleep(Duration::from_micros(20)).await;
                }
                if let Some(reply) = self.own_answer(&question) {
                    self.has_answered.store(true, Ordering::Relaxed);
                    let _ = sender.send(Ok(reply));
                    continue;
                }
                let work = to.answer(HOME, question);
                world.spawn_named("answer", async move {
                    let _ = sender.send(Ok(work.await)); // the asker may have given up
                });
            }
            world.sleep(Duration::from_micros(20)).await;
        }
    }
}

/// The drives 1 and 2, and a volume of two columns on both.
pub struct Two {
    pub world: SimWorld,
    pub post: Arc<Post>,
    pub authority: Arc<Settled>,
    pub home: Engine<SimWorld>,
    pub there: Engine<SimWorld>,
    /// The first server's disk.
    pub disk: SimDisk,
    pub volume: Volume<SimWorld>,
    now: Mutex<Arc<ClusterView>>,
}

impl Two {
    /// The second drive has this standing.
    pub async fn new(world: SimWorld, standing: Standing, epochs: Arc<Epochs>) -> Self {
        Self::standing(world, [Standing::Current, standing], epochs).await
    }

    /// The drives have these standings.
    pub async fn standing(world: SimWorld, [first, second]: [Standing; 2], epochs: Arc<Epochs>) -> Self {
        let (post, authority) = (Arc::new(Post::default()), Arc::new(Settled::default()));
        let (home, disk) = server(&world, &post, &authority, (1, first)).await;
        let (there, _) = server(&world, &post, &authority, (2, second)).await;
        world.spawn_named("post", post.clone().carry(world.clone(), there.clone()));
        let spec = VolumeSpec { epochs, ..spec(1, "mirror:2", places([1, 2], "mirror:2")) };
        there.open_volume_among(spec.clone()).unwrap();
        let volume = home.open_volume_among(spec).unwrap();
        [&home, &there].into_iter().for_each(Engine::all_volumes_opened);
        Two { world, post, authority, home, there, disk, volume, now: Mutex::default() }
    }

    /// Both servers follow the next state: the first drive is up since view 1, the second drive as given, and other
    /// changes as given.
    pub fn follow(&self, view: View, second: DriveStatus, change: impl FnOnce(&mut ClusterView)) {
        let before = self.now.lock().unwrap().clone();
        let drive = |id, server, status| (DriveId(id), Drives { server, status });
        let drives = [drive(1, HOME, DriveStatus::Up(1)), drive(2, THERE, second)].into();
        let places = [(MapId(1), self.volume.spec().places)].into();
        let mut now = ClusterView { view, drives, places, ..ClusterView::default() };
        change(&mut now);
        let now = Arc::new(now);
        self.home.follow(HOME, &before, &now);
        self.there.follow(THERE, &before, &now);
        *self.now.lock().unwrap() = now;
    }

    /// Each server's drive.
    pub fn drives(&self) -> [Drive<SimWorld>; 2] {
        [(&self.home, 1), (&self.there, 2)].map(|(server, id)| server.drive(DriveId(id)).unwrap())
    }
}

async fn server(
    world: &SimWorld,
    peers: &Arc<Post>,
    authority: &Arc<Settled>,
    (id, standing): (u64, Standing),
) -> (Engine<SimWorld>, SimDisk) {
    let engine = Engine::among(world.clone(), authority.clone(), peers.clone());
    let disk = formatted(world, id).await;
    engine.add_drive(opened(world, &disk).await, standing);
    (engine, disk)
}
