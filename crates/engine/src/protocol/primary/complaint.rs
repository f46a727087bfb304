//! What a primary does about a drive whose server it can't reach, though that one is up as agreed: the way between them is cut,
//! while both reach the others.
//!
//! It complains. If that is heard, the other server's drives aren't up any more, and writes go on without them; they return at once,
//! and are behind until the way is open again. If not, something has changed meanwhile: perhaps the other server's complaint was heard,
//! and this one isn't the primary any more.

use super::Group;
use crate::holder::Holder;
use crate::servers::follow::DriveStatus;
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::DriveId;

/// How soon to look again whether what has changed is known here.
const AGAIN: Duration = Duration::from_millis(50);

impl<W: World> Group<W> {
    /// Whether it's a drive that was lost here only because its server can't be reached.
    pub(super) fn is_cut_off(&self, id: DriveId) -> bool {
        let state = self.lock();
        let member = state.members.list.iter().find(|member| member.id == id);
        let drive = member.and_then(|member| member.drive());
        !state.removed && matches!(drive, Some(Holder::There(remote)) if remote.is_cut_off())
    }

    /// Whether it's agreed that the drive isn't up any more. `false` once that makes no difference here.
    pub(super) async fn complain(&self, id: DriveId, matters: impl Fn() -> bool) -> bool {
        while matters() {
            let Some(engine) = self.engine() else { return false };
            let Some((me, now)) = engine.followed_state() else { return true };
            let agreed = now.drives.get(&id);
            let Some(agreed) =
                agreed.filter(|agreed| matches!(agreed.status, DriveStatus::Up(_) | DriveStatus::Behind(..)))
            else {
                return true;
            };
            // Only whoever leads by the same state may: in a later one it may be the other that can't be reached.
            let Some(map) = engine.map(self.shared.column.map) else { return false };
            let leads = now.primary(&map.placed(self.shared.column.number)) == Some(me);
            if leads && engine.shared.authority.cut_off(agreed.server, now.view).await {
                return matters();
            }
            self.shared.world.sleep(AGAIN).await;
        }
        false
    }
}
