//! Who is the primary of a column, as far as is known here, and how it's reached.

use crate::authority::View;
use crate::engine::Engine;
use crate::peers::{Question, Reply};
use crate::protocol::primary::Group;
use crate::volume::Volume;
use futures_channel::oneshot;
use futures_util::future::select;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tepal_drive::world::{Gather, World};
use tepal_model::{IoError, Segments, ServerId};
use tepal_wire::Payload;
use tepal_wire::message::{Answer, Request, Run, VolumeAnswer, VolumeFailure, VolumeOperation, VolumeRequest};

/// How long to wait until a primary is asked again that didn't serve, if nothing new is heard.
const AGAIN: Duration = Duration::from_millis(100);

/// The place of a column's primary.
pub(crate) struct Seat<W: World>(Mutex<Inner<W>>);

struct Inner<W: World> {
    taken: Taken<W>,
    /// What this server had, and may still do something.
    ending: Vec<Group<W>>,
    bell: Vec<oneshot::Sender<()>>,
}

/// Who has it.
pub(crate) enum Taken<W: World> {
    Here(Group<W>),
    There(ServerId, View),
    /// Nobody now.
    Vacant,
}

impl<W: World> Clone for Taken<W> {
    fn clone(&self) -> Self {
        match self {
            Taken::Here(group) => Taken::Here(group.clone()),
            Taken::There(server, view) => Taken::There(*server, *view),
            Taken::Vacant => Taken::Vacant,
        }
    }
}

impl<W: World> Default for Seat<W> {
    fn default() -> Self {
        Seat(Mutex::new(Inner { taken: Taken::Vacant, ending: Vec::new(), bell: Vec::new() }))
    }
}

impl<W: World> Seat<W> {
    fn lock(&self) -> MutexGuard<'_, Inner<W>> {
        self.0.lock().expect("nothing panics while it holds a seat")
    }

    pub fn now(&self) -> Taken<W> {
        self.lock().taken.clone()
    }

    /// If it's this server's.
    pub fn group(&self) -> Option<Group<W>> {
        match &self.lock().taken {
            Taken::Here(group) => Some(group.clone()),
            Taken::There(..) | Taken::Vacant => None,
        }
    }

    /// From now on it's theirs. A group of this server that had it serves nobody any more.
    pub fn take(&self, taken: Taken<W>) {
        let bell = {
            let mut inner = self.lock();
            if let Taken::Here(group) = std::mem::replace(&mut inner.taken, taken) {
                group.cut_off();
                inner.ending.push(group);
            }
            std::mem::take(&mut inner.bell)
        };
        for sender in bell {
            let _ = sender.send(()); // who has given up waiting needs no answer
        }
    }

    pub fn ending(&self) -> Vec<Group<W>> {
        self.lock().ending.clone()
    }

    pub fn has_ended(&self, group: &Group<W>) {
        self.lock().ending.retain(|ending| !Arc::ptr_eq(&ending.shared, &group.shared));
    }

    pub fn is_still(&self, group: &Group<W>) -> bool {
        self.group().is_some_and(|now| Arc::ptr_eq(&now.shared, &group.shared))
    }

    fn change(&self) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let mut inner = self.lock();
        inner.bell.retain(|waiting| !waiting.is_canceled());
        inner.bell.push(sender);
        receiver
    }
}

impl<W: World> Volume<W> {
    /// Has the column's primary do something: `here` if that's this server, else it's asked, and `take` finds the answer.
    /// Waits while nobody is, or until somebody else is.
    pub(crate) async fn at_primary<T>(
        &self,
        column: usize,
        here: impl AsyncFn(&Group<W>, Option<View>) -> Result<T, IoError>,
        ask: impl Fn(Option<View>) -> (VolumeOperation, Payload),
        take: impl Fn(Reply) -> Option<T>,
    ) -> Result<T, IoError> {
        let seat = &self.seats()[column];
        // The view in which it may have been carried out for the first time.
        let mut doubt: Option<View> = None;
        loop {
            let change = match seat.now() {
                Taken::Here(group) => {
                    let known = group.shared.view;
                    match here(&group, doubt).await {
                        Err(IoError::Fenced) if !seat.is_still(&group) => {}
                        outcome if known == 0 => return outcome,
                        outcome => {
                            if Box::pin(self.may_tell(seat, &group)).await {
                                return outcome;
                            }
                        }
                    }
                    doubt = doubt.or(Some(known));
                    continue;
                }
                Taken::Vacant => {
                    let change = seat.change();
                    if let Taken::Vacant = seat.now() {
                        let _ = change.await; // dropped unsent only when the volume goes
                    }
                    continue;
                }
                Taken::There(server, view) => {
                    let change = seat.change();
                    match Box::pin(self.ask(server, view, column, ask(doubt))).await? {
                        Asked::Answered(reply) => return take(reply).ok_or_else(|| senseless(server)),
                        Asked::Refused => change,
                        Asked::Unknown => {
                            doubt = doubt.or(Some(view));
                            change
                        }
                    }
                }
            };
            let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
            select(Box::pin(engine.world().sleep(AGAIN)), change).await;
        }
    }

    /// Waits until it's sure that nobody had taken this server's place when it did something; `false` if somebody has.
    async fn may_tell(&self, seat: &Seat<W>, group: &Group<W>) -> bool {
        loop {
            let Some(engine) = self.engine() else { return false };
            if !seat.is_still(group) {
                return false;
            }
            if engine.shared.authority.may_serve() {
                return true;
            }
            engine.world().sleep(AGAIN).await;
        }
    }

    async fn ask(
        &self,
        server: ServerId,
        view: View,
        column: usize,
        (operation, payload): (VolumeOperation, Payload),
    ) -> Result<Asked, IoError> {
        let Some(engine) = self.engine() else { return Err(IoError::Stopping) };
        let request = Request::Volume(VolumeRequest { volume: self.id(), column: column as u32, operation });
        match engine.shared.peers.ask(server, Question { view, request, payload }).await {
            Ok(Reply { answer: Answer::Volume(VolumeAnswer::Failed(failure)), .. }) => match failure {
                VolumeFailure::Io(error) => Err(error),
                VolumeFailure::Unsure => Ok(Asked::Unknown),
                VolumeFailure::Stale { .. } | VolumeFailure::NotPrimary { .. } | VolumeFailure::Busy => {
                    Ok(Asked::Refused)
                }
            },
            Ok(reply) => Ok(Asked::Answered(reply)),
            Err(_) => Ok(Asked::Unknown),
        }
    }
}

/// What became of a request to another server.
enum Asked {
    Answered(Reply),
    /// It doesn't serve the column now, and has done nothing.
    Refused,
    Unknown,
}

fn senseless(server: ServerId) -> IoError {
    IoError::Unavailable { reason: format!("the answer of server {server} makes no sense") }
}

impl<W: World> Engine<W> {
    /// What a gateway asks of this server as the primary of a column.
    pub(crate) async fn answer_for_volume(&self, request: VolumeRequest, payload: Payload) -> Reply {
        let not_here = || VolumeAnswer::Failed(VolumeFailure::NotPrimary { server: None });
        let volume = self.volume(request.volume);
        let seat = volume.as_ref().and_then(|volume| volume.seats().get(request.column as usize));
        let Some((seat, group)) = seat.and_then(|seat| Some((seat, seat.group()?))) else {
            return Answer::Volume(not_here()).into();
        };
        let outcome = serve(&group, request.operation, payload).await;
        if let Some(volume) = &volume
            && !volume.may_tell(seat, &group).await
        {
            return Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Unsure)).into();
        }
        match outcome {
            Ok(reply) => reply,
            Err(error) => Answer::Volume(VolumeAnswer::Failed(VolumeFailure::Io(error))).into(),
        }
    }
}

async fn serve<W: World>(group: &Group<W>, operation: VolumeOperation, payload: Payload) -> Result<Reply, IoError> {
    let answer = match operation {
        VolumeOperation::Read { offset, length } => {
            let payload = Payload::seal(offset, group.read(offset, length.into()).await?);
            return Ok(Reply { answer: Answer::Volume(VolumeAnswer::Read), payload });
        }
        VolumeOperation::Write { offset, fua, tag } => {
            let (data, _) = payload.verify().map_err(|corrupt| IoError::Unavailable { reason: corrupt.to_string() })?;
            group.write(offset, data.into_iter().collect::<Gather>(), fua, Some(tag)).await?;
            VolumeAnswer::Written
        }
        VolumeOperation::Zero { offset, length, allocate, tag, .. } => {
            group.zero(offset..offset + length, allocate, Some(tag)).await?;
            VolumeAnswer::Zeroed
        }
        // What was acknowledged is stable: of volumes on several servers, always.
        VolumeOperation::Flush => {
            group.lock().serves()?;
            VolumeAnswer::Flushed
        }
        VolumeOperation::Status { offset, length, limit } => {
            let mut runs = group.status(offset, length).await?;
            runs.truncate(limit as usize);
            VolumeAnswer::Status { runs: runs.into_iter().map(|(length, holds)| Run { length, holds }).collect() }
        }
    };
    Ok(Answer::Volume(answer).into())
}

/// The data of an answer to a read, if it's that and undamaged.
pub(crate) fn data_of(reply: Reply, length: u64) -> Option<Segments> {
    let Answer::Volume(VolumeAnswer::Read) = reply.answer else { return None };
    let (data, _) = reply.payload.verify().ok()?;
    (data.iter().map(|piece| piece.len() as u64).sum::<u64>() == length).then_some(data)
}
