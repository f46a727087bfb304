//! What a primary does about a drive whose server it can't reach, while that server is up as agreed: the way between
//! the two servers is cut, while both reach the others.
//!
//! The primary complains. If the complaint is heard, the other server's drives aren't up any more, and writes go on
//! without them. The drives return at once, and are behind until the way is open again. If the complaint isn't heard,
//! something has changed meanwhile: perhaps the other server's complaint was heard, and this server isn't the primary
//! any more.
//!
//! The primary of a target map does the same about the server that leads the source. Its requests there are about a
//! volume, and wait for as long as the volume's changes take. So after a while the primary also asks about a drive, and
//! looks whether that question is answered.

use crate::column::Group;
use crate::engine::Engine;
use crate::holder::Holder;
use crate::servers::follow::DriveStatus;
use crate::servers::peers::{Question, Reply};
use crate::servers::seat::Seat;
use crate::view::View;
use futures_util::future::{Either, select};
use std::time::Duration;
use tepal_drive::world::World;
use tepal_model::{DriveId, MapId, ServerId};
use tepal_wire::Payload;
use tepal_wire::message::{DriveOperation, DriveRequest, Request, VolumeRequest};

/// How soon to look again whether the change is known here.
const AGAIN: Duration = Duration::from_millis(50);
/// A question that takes longer may never be answered.
const SLOW: Duration = Duration::from_secs(1);

impl<W: World> Group<W> {
    /// Whether the drive was lost here only because its server can't be reached.
    pub fn is_cut_off(&self, id: DriveId) -> bool {
        let state = self.lock();
        let member = state.members.list.iter().find(|member| member.id == id);
        let drive = member.and_then(|member| member.drive());
        !state.served.removed && matches!(drive, Some(Holder::There(remote)) if remote.is_cut_off())
    }

    /// Complains until it's agreed that the drive isn't up any more. `false` once the complaint makes no difference
    /// here.
    pub async fn complain(&self, id: DriveId, matters: impl Fn() -> bool) -> bool {
        while matters() {
            let Some(engine) = self.engine() else { return false };
            let Some((me, now)) = engine.followed_state() else { return true };
            let agreed = now.drives.get(&id);
            let Some(agreed) =
                agreed.filter(|agreed| matches!(agreed.status, DriveStatus::Up(_) | DriveStatus::Behind(..)))
            else {
                return true;
            };
            // Only a server that leads by the same state may complain: in a later state the other server may be the one
            // that can't be reached.
            let Some(map) = engine.map(self.shared.column.map) else { return false };
            let leads = now.primary(&map.placed(self.shared.column.number)) == Some(me);
            if leads && engine.shared.authority.cut_off(agreed.server, now.view).await {
                return matters();
            }
            self.shared.world.sleep(AGAIN).await;
        }
        false
    }

    /// The answer of a source column's primary; `None` if the request has to be asked again, of whatever primary there
    /// is then.
    pub async fn answer_of(
        &self,
        engine: &Engine<W>,
        seat: &Seat<W>,
        (server, view): (ServerId, View),
        request: VolumeRequest,
    ) -> Option<Reply> {
        let about = (request.map, request.column);
        let mut waiting = select(Box::pin(engine.ask_primary_once((server, view), request)), seat.change());
        loop {
            match select(&mut waiting, Box::pin(self.shared.world.sleep(SLOW))).await {
                Either::Left((Either::Left((reply, _)), _)) => return reply,
                Either::Left((Either::Right(_), _)) => return None,
                Either::Right(_) => self.complain_of_silence(engine, server, about).await,
            }
        }
    }

    /// Complains of a server that answers nothing.
    async fn complain_of_silence(&self, engine: &Engine<W>, server: ServerId, (map, column): (MapId, u32)) {
        let Some((me, now)) = engine.followed_state() else { return };
        let column_of =
            |map: MapId, column: u32| now.places.get(&map).and_then(|table| table.columns.get(column as usize));
        let is_there = |id: &DriveId| now.drives.get(id).is_some_and(|agreed| agreed.server == server);
        let Some(drive) = column_of(map, column).and_then(|placed| placed.all().find(is_there)) else { return };
        let own = &self.shared.column;
        let leads = column_of(own.map, own.number as u32).is_some_and(|placed| now.primary(placed) == Some(me));
        let operation = DriveOperation::Epochs { first: 0, count: 1 };
        let request = Request::Drive(DriveRequest { drive, opening: 0, map, column, operation });
        let question = Question { view: now.view, revision: 0, request, payload: Payload::none() };
        let answered = engine.shared.peers.ask(server, question).await;
        if leads && answered.is_err_and(|unreachable| unreachable.is_cut_off) {
            // Whether the complaint is heard or not, the change is known here soon.
            let _ = engine.shared.authority.cut_off(server, now.view).await;
        }
    }
}
