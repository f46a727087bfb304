//! A server among others.

use super::two_servers::{Carries, Two};
use super::*;
use crate::servers::peers::{Peers, Question, Reply, Unreachable};
use crate::{Agreed as Drives, ClusterView, DriveStatus, Trouble};
use futures_util::future::{Either, LocalBoxFuture, join_all, pending, select};
use std::sync::Mutex;
use tepal_model::ServerId;
use tepal_sim::device::Faults;
use tepal_wire::Payload;
use tepal_wire::message::{Answer, Request, VolumeAnswer, VolumeFailure, VolumeOperation, VolumeRequest};

const ME: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
/// A drive of another server.
const ELSEWHERE: DriveId = DriveId(9);
const THIRD: ServerId = ServerId(3);

/// Peers that never answer; the servers that are asked are noted.
#[derive(Default)]
struct Silent(Mutex<Vec<ServerId>>);

impl Peers for Silent {
    fn ask(&self, server: ServerId, _: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        self.0.lock().unwrap().push(server);
        Box::pin(pending())
    }
}

/// This server, with drives of its own, and a first drive at another server.
struct Among {
    world: SimWorld,
    disks: Vec<SimDisk>,
    authority: Arc<Agrees>,
    peers: Arc<Silent>,
    engine: Engine<SimWorld>,
}

impl Among {
    async fn new(world: SimWorld, drives: usize) -> Self {
        let (authority, peers) = (Arc::new(Agrees::default()), Arc::new(Silent::default()));
        let engine = Engine::among(world.clone(), authority.clone(), peers.clone());
        let disks = join_all((1..=drives as u64).map(|id| formatted(&world, id))).await;
        for disk in &disks {
            engine.add_drive(opened(&world, disk).await, Standing::Current);
        }
        Among { world, disks, authority, peers, engine }
    }

    fn spec(&self, id: u32, drives: &[u64]) -> VolumeSpec {
        spec(id, "mirror:2", places(drives.iter().copied(), "mirror:2"))
    }

    /// The drives here are up since view 2.
    fn view(&self, view: View, server: ServerId, status: DriveStatus) -> Arc<ClusterView> {
        let here = (1..=self.disks.len() as u64).map(|id| (DriveId(id), ME, DriveStatus::Up(2)));
        let all = here.chain([(ELSEWHERE, server, status)]);
        let drives = all.map(|(id, server, status)| (id, Drives { server, status })).collect();
        Arc::new(ClusterView { view, drives, ..ClusterView::default() })
    }

    /// The servers that were asked for something since.
    async fn asked(&self) -> Vec<ServerId> {
        self.world.sleep(Duration::from_secs(1)).await;
        std::mem::take(&mut *self.peers.0.lock().unwrap())
    }
}

#[test]
fn a_drive_is_asked_at_its_new_server() {
    told(|world| async move {
        let rig = Among::new(world, 1).await;
        rig.engine.open_volume_among(rig.spec(1, &[1, 9])).unwrap();
        rig.engine.all_volumes_opened();
        let behind = rig.view(4, OTHER, DriveStatus::Behind(2, 4));
        rig.engine.follow(ME, &ClusterView::default(), &behind);
        assert_eq!(rig.asked().await.first(), Some(&OTHER));
        // The drive was away, came back at another server, and was found to know what it misses.
        rig.engine.follow(ME, &behind, &rig.view(7, THIRD, DriveStatus::Up(7)));
        let now = rig.asked().await;
        assert!(now.contains(&THIRD) && !now.contains(&OTHER), "asked {now:?}");
    });
}

/// Story: a server was started during a migration. Only the source map was open, in which a drive could miss nothing:
/// the drive was said to be up, and served blocks of the target that it had missed.
#[test]
fn a_drive_stays_behind_until_target_maps_are_known() {
    told(|world| async move {
        let rig = Among::new(world, 2).await;
        rig.engine.lose_drive(DriveId(2), Loss::Gone { drive: DriveId(2), reason: "pulled".into() }).await;
        let drive = opened(&rig.world, &rig.disks[1]).await;
        rig.engine.add_drive(drive, Standing::Behind(3));
        rig.engine.open_volume_among(rig.spec(1, &[1, 9])).unwrap();
        let last_said = || rig.authority.0.lock().unwrap().view;
        let before = last_said();
        rig.engine.all_volumes_opened();
        rig.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(last_said(), before, "a map in which it's behind may not be open yet");
        rig.engine.follow(ME, &ClusterView::default(), &rig.view(4, OTHER, DriveStatus::Up(1)));
        rig.world.sleep(Duration::from_secs(1)).await;
        assert!(last_said() > before, "there's none");
    });
}

/// Story: a volume was made while a drive was behind. The drive's server followed the state that says so, and hadn't
/// opened the volume yet: nobody was asked what the drive may have missed there, and it was said to be up.
#[test]
fn a_drive_stays_behind_until_new_volumes_are_open() {
    told(|world| async move {
        let rig = Among::new(world, 2).await;
        rig.engine.lose_drive(DriveId(2), Loss::Gone { drive: DriveId(2), reason: "pulled".into() }).await;
        let drive = opened(&rig.world, &rig.disks[1]).await;
        rig.engine.add_drive(drive, Standing::Behind(3));
        let spec = rig.spec(1, &[1, 9]);
        rig.engine.open_volume_among(spec.clone()).unwrap();
        rig.engine.all_volumes_opened();
        let made = rig.spec(2, &[1, 2]);
        let mut now = ClusterView::clone(&rig.view(4, OTHER, DriveStatus::Up(1)));
        now.places = [&spec, &made].map(|spec| (spec.map, spec.places.clone())).into();
        let last_said = || rig.authority.0.lock().unwrap().view;
        let before = last_said();
        rig.engine.follow(ME, &ClusterView::default(), &Arc::new(now));
        rig.world.sleep(Duration::from_secs(1)).await;
        assert_eq!(last_said(), before, "it may be behind in what was made");
        rig.engine.open_volume_among(made).unwrap();
        rig.world.sleep(Duration::from_secs(1)).await;
        assert!(last_said() > before, "it isn't");
    });
}

#[test]
fn a_drive_with_a_column_led_elsewhere_stays_unretired() {
    told(|world| async move {
        let rig = Among::new(world, 2).await;
        // Only the other server, which leads the column, knows whether the copy there has everything.
        rig.engine.open_volume_among(rig.spec(2, &[9, 1])).unwrap();
        let volume = rig.engine.open_volume(rig.spec(1, &[1, 2])).await.unwrap();
        rig.engine.all_volumes_opened();
        rig.engine.follow(ME, &ClusterView::default(), &rig.view(3, OTHER, DriveStatus::Up(1)));
        volume.write(0, Bytes::from(vec![1; 256 * BLOCK as usize]), false).await.unwrap();
        let drive = rig.engine.drive(DriveId(1)).unwrap();
        drive.checkpoint().await.unwrap();
        let unreadable = std::iter::once(drive.geometry().slots_start..16 << 20).collect();
        rig.disks[0].set_faults(Faults { unreadable, ..Faults::default() });
        for block in (0..256).step_by(4) {
            assert_eq!(join(&volume.read(block * BLOCK, BLOCK).await.unwrap())[0], 1);
            rig.world.sleep(Duration::from_secs(1)).await;
        }
        assert!(drive.usage().read_errors >= 64);
        assert!(rig.engine.drive(DriveId(1)).is_some(), "it may have the only good copy of what is led elsewhere");
    });
}

/// A request by an older record must not be done after the change. A request by a newer record than the primary's waits
/// for the primary.
#[test]
fn a_primary_answers_only_requests_of_its_own_revision() {
    told(|world| async move {
        let rig = Among::new(world, 2).await;
        let volume = rig.engine.open_volume_among(rig.spec(1, &[1, 2])).unwrap();
        rig.engine.all_volumes_opened();
        rig.engine.follow(ME, &ClusterView::default(), &rig.view(3, OTHER, DriveStatus::Up(1)));
        volume.write(0, Bytes::from(vec![7; BLOCK as usize]), false).await.unwrap();
        let ask = async |revision| {
            let operation = VolumeOperation::Read { offset: 0, length: BLOCK as u32, at: None };
            let request = Request::Volume(VolumeRequest { volume: VolumeId(1), map: MapId(1), column: 0, operation });
            rig.engine.answer(OTHER, Question { view: 3, revision, request, payload: Payload::none() }).await.answer
        };
        let failed = |failure| Answer::Volume(VolumeAnswer::Failed(failure));
        assert_eq!(ask(0).await, failed(VolumeFailure::Stale { view: 3, revision: 1 }));
        assert_eq!(ask(1).await, Answer::Volume(VolumeAnswer::Read));
        assert_eq!(ask(2).await, failed(VolumeFailure::Busy));
        volume.changed("v1", (4 << 20, false), 2, None);
        assert_eq!(ask(2).await, Answer::Volume(VolumeAnswer::Read));
        assert_eq!(ask(1).await, failed(VolumeFailure::Stale { view: 3, revision: 2 }));
        volume.changed("v1", (8 << 20, false), 1, None);
        assert_eq!((volume.size(), ask(2).await), (4 << 20, Answer::Volume(VolumeAnswer::Read)), "news that is old");
        // Story: the last piece of an export, asked of a server that hadn't heard of a rollback, showed what the rollback had brought.
        rig.engine.drive(DriveId(1)).unwrap().checkpoint().await.unwrap();
        let mut under_way = Box::pin(ask(2));
        assert_eq!((&mut under_way).now_or_never(), None, "drives take their time");
        volume.changed("v1", (4 << 20, false), 3, None);
        assert_eq!(under_way.await, failed(VolumeFailure::Stale { view: 3, revision: 3 }));
    });
}

/// Story: requests for data that only a failed drive had waited for a server to lead the column.
#[test]
fn data_lost_with_its_drive_fails_without_any_primary() {
    told(|world| async move {
        let rig = Among::new(world, 1).await;
        let (geometry, places) = (round(&places([9, 1], "stripe")), places([9, 1], "stripe"));
        let spec = VolumeSpec { layout: "stripe".parse().unwrap(), geometry, places, ..rig.spec(1, &[9, 1]) };
        let volume = rig.engine.open_volume_among(spec).unwrap();
        rig.engine.all_volumes_opened();
        let away = rig.view(4, OTHER, DriveStatus::Away(2));
        rig.engine.follow(ME, &ClusterView::default(), &away);
        let at = volume.map().striping().offset_of(0, 0);
        let mut read = Box::pin(volume.read(at, BLOCK));
        let waits = select(&mut read, Box::pin(rig.world.sleep(Duration::from_secs(5)))).await;
        assert!(matches!(waits, Either::Right(_)), "it may return");
        drop(waits);
        rig.engine.follow(ME, &away, &rig.view(5, OTHER, DriveStatus::Retired(2)));
        // Asking again is of no use, and what is lost is named by its place in the volume.
        assert_eq!(read.await.map(drop), Err(IoError::Lost { offset: at, length: BLOCK }));
        let health = volume.health();
        let is_said = matches!(&health, VolumeHealth::Unavailable(troubles) if troubles.contains(&Trouble::Lost { drives: vec![ELSEWHERE] }));
        assert!(is_said, "{health:?}");
    });
}

/// Story: a server's answer to a write that only a read can have ended the server that had asked.
#[test]
fn an_impossible_answer_to_writes_only_loses_the_drive() {
    told(|world| async move {
        let two = Two::new(world, Standing::Current, Arc::default()).await;
        two.follow(3, DriveStatus::Up(2), |_| {});
        let write = async |byte: u8| two.volume.write(0, Bytes::from(vec![byte; BLOCK as usize]), true).await;
        write(1).await.unwrap();
        two.post.carry_on(Carries::ButWrites);
        let told = async {
            while two.authority.losses.lock().unwrap().is_empty() {
                two.world.sleep(Duration::from_millis(1)).await;
            }
        };
        // It isn't agreed to go on without the drive, so the write waits.
        match select(Box::pin(write(2)), Box::pin(told)).await {
            Either::Left((outcome, _)) => panic!("one copy alone has it: {outcome:?}"),
            Either::Right(_) => {}
        }
        let losses = two.authority.losses.lock().unwrap().clone();
        assert!(losses.iter().all(|(id, why)| *id == DriveId(2) && why.contains("makes no sense")), "{losses:?}");
    });
}
