//! The standing of other servers' drives as states are followed.

use super::*;
use crate::servers::follow::{Agreed, DriveStatus};
use crate::view::View;
use futures_util::future::{BoxFuture, ready};
use tepal_drive::Loss;
use tepal_drive::world::Clock;
use tepal_sim::executor::Limits;
use tepal_sim::{Executor, SimWorld};

const ME: ServerId = ServerId(1);
const OTHER: ServerId = ServerId(2);
const DRIVE: DriveId = DriveId(7);

struct Silent;

impl Authority for Silent {
    fn drive_down(&self, _: DriveId, _: Loss) -> BoxFuture<'static, Option<View>> {
        Box::pin(ready(None))
    }
    fn up_again(&self, _: DriveId, _: View) -> BoxFuture<'static, Option<View>> {
        Box::pin(ready(None))
    }
}

/// Story: another server's drive went, came back, and was up. A server that learned of all of that at once took the
/// drive for one that is behind, for ever: it led without having heard the drive.
#[test]
fn a_drive_is_known_as_up_however_late() {
    let executor = Executor::new(1, Limits::default(), false);
    let world = SimWorld::boot(executor.core(), "server");
    let story = async move {
        let engine = Engine::among(world.clone(), Arc::new(Silent), Arc::new(Alone));
        let mut before = Arc::new(ClusterView::default());
        let statuses = [DriveStatus::Up(1), DriveStatus::Away(7), DriveStatus::Behind(7, 8), DriveStatus::Up(9)];
        for (status, view) in statuses.into_iter().zip([6, 7, 8, 9]) {
            let drives = [(DRIVE, Agreed { server: OTHER, status })].into();
            let now = Arc::new(ClusterView { view, drives, ..ClusterView::default() });
            engine.follow(ME, &before, &now);
            before = now;
        }
        world.sleep(Duration::from_secs(1)).await;
        let (presence, left) = engine.lock().presence(DRIVE);
        assert!(matches!(presence, Presence::Unheard) && left.is_none());
    };
    if let Err(failure) = executor.run(story) {
        panic!("{failure}");
    }
}
