//! A drive that was carried to another server.

use super::*;
use crate::servers::peers::{Peers, Question, Reply, Unreachable};
use crate::{Agreed as Drives, ClusterView, DriveStatus};
use futures_util::future::{LocalBoxFuture, pending};
use tepal_model::ServerId;

const ME: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const THIRD: ServerId = ServerId(3);

/// Nobody answers; who is asked is noted.
#[derive(Default)]
struct Silent(Mutex<Vec<ServerId>>);

impl Peers for Silent {
    fn ask(&self, server: ServerId, _: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        self.0.lock().unwrap().push(server);
        Box::pin(pending())
    }
}

/// The first drive is here, and up for the longest.
fn view(view: View, server: ServerId, status: DriveStatus) -> Arc<ClusterView> {
    let here = Drives { server: ME, status: DriveStatus::Up(1) };
    let drives = [(DriveId(1), here), (DriveId(2), Drives { server, status })].into();
    Arc::new(ClusterView { view, drives })
}

#[test]
fn a_drive_that_has_come_up_at_another_server_is_asked_there_though_its_move_was_not_seen() {
    told(|world| async move {
        let disk = SimDisk::new(world.core(), NAMES[0], 16 << 20);
        let new = NewDrive { cluster: ClusterId(1), drive: DriveId(1), pool: "p".into(), log_length: None };
        format(&disk.open(), None, new).await.unwrap();
        let peers = Arc::new(Silent::default());
        let engine = Engine::among(world.clone(), Arc::new(Agrees::default()), peers.clone());
        let drive = Drive::open(world.clone(), disk.open(), None, Options::default()).await.unwrap();
        engine.add_drive(drive, Standing::Current);
        let (id, name, layout) = (VolumeId(1), "v".into(), "mirror:2".parse().unwrap());
        let spec = VolumeSpec { id, name, size: 8 << 20, layout, map: MapId(1), drives: vec![DriveId(1), DriveId(2)] };
        engine.open_volume_among(spec).unwrap();
        engine.all_volumes_opened();
        let asked = || std::mem::take(&mut *peers.0.lock().unwrap());

        let behind = view(4, OTHER, DriveStatus::Behind(2, 4));
        engine.follow(ME, &ClusterView::default(), &behind);
        world.sleep(Duration::from_secs(1)).await;
        assert_eq!(asked().first(), Some(&OTHER));
        // It was away, came back elsewhere, and was found to know what it misses.
        engine.follow(ME, &behind, &view(7, THIRD, DriveStatus::Up(7)));
        world.sleep(Duration::from_secs(1)).await;
        let now = asked();
        assert!(now.contains(&THIRD) && !now.contains(&OTHER), "asked {now:?}");
    });
}
