//! Drives that leave: the leaving is agreed, then every map marks what the drives miss, then writes go on.

use super::{AGREE_SOON, Engine, Entry, Standing, Status};
use crate::column::Group;
use crate::servers::follow::DriveStatus;
use crate::view::View;
use crate::volume::Map;
use futures_channel::oneshot;
use futures_util::future::join_all;
use tepal_drive::Loss;
use tepal_drive::world::World;
use tepal_model::DriveId;

/// How far a drive's leaving is.
enum Leave {
    /// The drive had left before.
    Gone,
    UnderWay(oneshot::Receiver<()>),
    /// The leaving begins, for this reason.
    Begun(Loss),
}

impl<W: World> Engine<W> {
    /// The drive serves no more. First that is agreed, then every volume marks what the drive misses, then writes go
    /// on. Returns when all that is done, whoever began it.
    pub async fn lose_drive(&self, id: DriveId, loss: Loss) {
        self.leave(id, loss, None).await;
    }

    /// The same where it's agreed already that the drive left in that view.
    pub(crate) async fn lose_as_agreed(&self, id: DriveId, loss: Loss, left: View) {
        self.leave(id, loss, Some(left)).await;
    }

    async fn leave(&self, id: DriveId, loss: Loss, agreed: Option<View>) {
        let end = match self.begin_leave(id, &loss) {
            Leave::Gone => return self.left_later(id, agreed),
            Leave::UnderWay(end) => end,
            Leave::Begun(loss) => {
                self.shared.nodes.forget_drive(id);
                let (over, end) = oneshot::channel();
                let engine = self.clone();
                // A task of its own: the loss may have been noticed by the request of a client that goes away.
                self.world().spawn(Box::pin(async move {
                    engine.finish_leave(id, loss, agreed).await;
                    let _ = over.send(()); // nobody may wait any more
                    if agreed.is_none() {
                        engine.take_again(id).await;
                    }
                }));
                end
            }
        };
        let _ = end.await; // dropped unsent when the leaving can't be agreed, or the engine goes
    }

    /// A server that is cut off doesn't hear of all returns: a drive may have been up since it left here, and know what
    /// it would otherwise miss.
    fn left_later(&self, id: DriveId, agreed: Option<View>) {
        let groups: Vec<Group<W>> = {
            let mut state = self.lock();
            let Some(entry) = state.drives.get_mut(&id).filter(|entry| entry.left < agreed) else { return };
            entry.left = agreed;
            state.maps.values().flat_map(Map::groups).collect()
        };
        groups.iter().for_each(|group| group.member_left_later(id, agreed));
    }

    /// Another server's drive that was given up here may have been back already, as agreed: then no further news of the
    /// drive will come.
    async fn take_again(&self, id: DriveId) {
        self.world().sleep(AGREE_SOON).await;
        let Some((me, now)) = self.followed_state() else { return };
        let Some(agreed) = now.drives.get(&id).filter(|agreed| agreed.server != me && self.awaits_drive(id)) else {
            return;
        };
        if let DriveStatus::Behind(left, _) = agreed.status {
            self.add_remote_drive(id, agreed.server, Standing::Behind(left));
        }
    }

    /// A drive that left before won't return: requests that wait for it end, with an error where only it had the data.
    /// The failure must have been agreed, and the view in which the drive left. That view may be earlier than the one
    /// that was assumed while the drive might have returned and known more.
    pub fn retire_absent(&self, id: DriveId, left: View) {
        {
            let mut state = self.lock();
            match state.drives.get_mut(&id) {
                Some(entry) if matches!(entry.status, Status::Missing) => {
                    entry.status = Status::Failed;
                    entry.left = entry.left.map(|known| known.min(left));
                }
                _ => return,
            }
        }
        self.maps().iter().for_each(|map| map.member_retired(id, left));
    }

    async fn finish_leave(&self, id: DriveId, loss: Loss, agreed: Option<View>) {
        let may_return = matches!(loss, Loss::Gone { .. });
        tracing::debug!(drive = %id, %loss, "drive left");
        self.maps().iter().for_each(|map| map.member_leaving(id));
        // By agreement, whatever was known here: it may just have been agreed that the drive is up.
        let agreed = match agreed {
            Some(left) => Some(left),
            None => self.shared.authority.drive_down(id, loss).await,
        };
        let Some(left) = agreed else {
            // The leaving can't be agreed: this server is stopping, or cut off. Nothing is acknowledged meanwhile.
            if let Some(Entry { status: Status::Leaving(waiting), .. }) = self.lock().drives.get_mut(&id) {
                waiting.clear(); // these tasks needn't wait any more
            }
            return;
        };
        let waiting = loop {
            let maps: Vec<Map<W>> = self.maps().into_iter().filter(|map| map.is_leaving(id)).collect();
            for map in &maps {
                if let Some((places, view)) = self.shared.authority.copies(map.id()) {
                    map.set_copies(&places, view);
                }
            }
            join_all(maps.iter().map(|map| map.member_left(id, left, may_return))).await;
            let mut state = self.lock();
            if state.maps.values().any(|map| map.is_leaving(id)) {
                continue; // a map was opened meanwhile
            }
            let Some(entry) = state.drives.get_mut(&id) else { return };
            let Status::Leaving(waiting) = &mut entry.status else { break Vec::new() }; // the drive is back
            let waiting = std::mem::take(waiting);
            entry.left = Some(left);
            entry.status = if may_return { Status::Missing } else { Status::Failed };
            break waiting;
        };
        for sender in waiting {
            let _ = sender.send(()); // a task that has given up waiting needs no answer
        }
        self.maps().iter().for_each(Map::wake);
        // Columns that this server can lead, now that the leaving is agreed.
        if let Some((me, now)) = self.followed_state() {
            self.take_columns(me, &now);
        }
    }

    /// The same for a loss that a request met: it may be of an earlier opening of a drive that has returned since.
    pub(crate) async fn lose_met(&self, id: DriveId, loss: Loss) {
        if self.drive(id).is_none_or(|drive| drive.loss().is_some()) {
            self.lose_drive(id, loss).await;
        }
    }

    fn begin_leave(&self, id: DriveId, loss: &Loss) -> Leave {
        let mut state = self.lock();
        let state = &mut *state;
        let Some(entry) = state.drives.get_mut(&id) else { return Leave::Gone };
        match &mut entry.status {
            Status::Missing | Status::Failed => Leave::Gone,
            Status::Leaving(waiting) => {
                let (sender, receiver) = oneshot::channel();
                waiting.push(sender);
                Leave::UnderWay(receiver)
            }
            Status::Here(drive) => {
                drive.pull(&loss.to_string());
                // The drive may have failed before: then it won't return, however it's taken out.
                let failed = drive.loss().filter(|own| matches!(**own, Loss::Retired { .. }));
                let loss = failed.map_or_else(|| loss.clone(), |own| Loss::clone(&own));
                entry.status = Status::Leaving(Vec::new());
                Leave::Begun(loss)
            }
            Status::There(_) => {
                entry.status = Status::Leaving(Vec::new());
                Leave::Begun(loss.clone())
            }
        }
    }
}
