//! The cluster's say in who is up. In production it's the replicated metadata; in simulation a small fake of it.

use crate::places::{CopyChange, Places, Placing};
use crate::view::View;
use futures_util::future::{BoxFuture, ready};
use std::sync::Arc;
use tepal_drive::Loss;
use tepal_model::{DriveId, MapId, ServerId};
use tepal_wire::message::DriveFailure;

/// The first two answers come when the change is agreed and on stable media, that of a drive that is down also not before this
/// server follows that and what was agreed earlier; `None` if it can't be agreed now.
pub trait Authority: Send + Sync + 'static {
    /// The drive isn't up any more. The answer is the view in which it left, the first in which it isn't up: from then on others know more.
    fn drive_down(&self, drive: DriveId, loss: Loss) -> BoxFuture<'static, Option<View>>;
    /// The drive knows by itself what it misses of what the others have: it's up again. That was found in this view, the one
    /// that was followed last: in a later one it may be wrong. (0 if nothing is followed: this server is alone.)
    fn up_again(&self, drive: DriveId, view: View) -> BoxFuture<'static, Option<View>>;

    /// A server that is up can't be reached from here: whether it's agreed, if nothing has changed since that view, that its drives
    /// that have copies along with drives of this server aren't up any more. Of two servers that say so of each other, one is heard.
    fn cut_off(&self, _: ServerId, _: View) -> BoxFuture<'static, bool> {
        Box::pin(ready(false))
    }

    /// Whether that server is the primary of that column in that view: answered when the view is known here, or it's clear that
    /// it won't be soon.
    fn heeds(&self, _: ServerId, _: View, _: MapId, _: usize) -> BoxFuture<'static, Result<(), DriveFailure>> {
        Box::pin(ready(Err(DriveFailure::NotPrimary)))
    }

    /// Of a column that this server leads, which copies have everything from now on: that was found in this view, the one that was
    /// followed last. The view in which it's agreed, on stable media; `None` if it can't be now, or is wrong by now. From then on nobody
    /// who leads the column later believes a copy that was passed over.
    fn count_copies(&self, _: MapId, _: usize, _: CopyChange, _: View) -> BoxFuture<'static, Option<View>> {
        Box::pin(ready(None))
    }

    /// What is agreed of a map's copies, and the newest view, where this server is told of no states: looked up when it's agreed that a
    /// drive is down. `None` if what was agreed before is followed by then.
    fn copies(&self, _: MapId) -> Option<(Arc<Places>, View)> {
        None
    }

    /// A drive that joins a column, since that view, has everything of it: that was found in this view, the one that was followed
    /// last. Whether it's agreed that it has its place, in a later view.
    fn joined(&self, _: MapId, _: usize, _: Placing, _: View) -> BoxFuture<'static, bool> {
        Box::pin(ready(false))
    }

    /// A drive that joins a column can't have it. Whether it's agreed that it doesn't join any more, or found that it doesn't.
    fn cannot_join(&self, _: MapId, _: usize, _: Placing) -> BoxFuture<'static, bool> {
        Box::pin(ready(false))
    }

    /// Of a column of a map that volumes go to, everything of the window that is agreed since this view has been taken over. It's
    /// said again every second or so until there's another window: it stays true, also when this server isn't the column's primary
    /// any more. Whether it's agreed, or noted by who moves windows on.
    fn taken_over(&self, _: MapId, _: usize, _: View) -> BoxFuture<'static, bool> {
        Box::pin(ready(false))
    }

    /// Answered when no other server acts in an earlier view than this any more: each knows it, or may not serve. Until then, one
    /// that is up may still lead what another is to lead from here on.
    fn adopted(&self, _: View) -> BoxFuture<'static, ()> {
        Box::pin(ready(()))
    }

    /// Whether this server may answer its clients: nobody can have taken its place. Asked after the work is done.
    fn may_serve(&self) -> bool {
        true
    }
}
