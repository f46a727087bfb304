//! The bytes of volumes and snapshots.

use super::extract::{Input, Named, Options, body};
use super::failure::Failure;
use super::front::Caller;
use super::types::{Done, ErrorKind, ImportQuery, MAX_DATA, MapRun, OffsetQuery, Range, RangeQuery, ZeroRange};
use super::{Context, Shared, imports, live_imports, sectors, snapshots, volumes};
use crate::nbd::reader::Reader;
use crate::world::ServerWorld;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use futures_util::stream;
use std::convert::Infallible;
use tepal_engine::{Volume, Within};
use tepal_model::{Epoch, IoError, VolumeId};
use tokio::sync::SemaphorePermit;

/// How many runs of a map are told at once.
const MOST_RUNS: usize = 4096;

pub async fn read(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Response, Failure> {
    let volume = volumes::unlocked(&context, &name.0).await?;
    let id = volume.id();
    let read = read_of(&context, Reader::Volume(volume), range).await;
    let read = read.map_err(|failure| live_imports::told(&context, id, failure))?;
    goes_on_from(&context, id, (range.epoch, range.revision))?;
    Ok(read)
}

pub async fn read_snapshot(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Response, Failure> {
    let name = name.snapshot()?;
    let snapshot = snapshots::served(&context, &name).await?;
    match read_of(&context, Reader::Snapshot(snapshot), range).await {
        Ok(read) => Ok(read),
        // That it's gone says more than that it can't be read.
        Err(failure) => Err(snapshots::gone(&context, &name).unwrap_or(failure)),
    }
}

async fn read_of(context: &Context, reader: Reader, range: RangeQuery) -> Result<Response, Failure> {
    let RangeQuery { offset, length, .. } = range;
    if length > MAX_DATA {
        return Err(Failure::bad(format!("{length} bytes are too many: ask for at most {MAX_DATA} at a time")));
    }
    let _place = place(context).await?;
    let observations = context.observations.clone();
    let read = move |reader: Reader| async move {
        let read = reader.read(offset, length).await;
        observations.damaged(reader.damage_of()).learn(offset, length, &read);
        read
    };
    let segments = on_data_thread(context, reader, read).await?;
    let pieces = stream::iter(segments.into_iter().map(Ok::<_, Infallible>));
    Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::from_stream(pieces)).into_response())
}

pub async fn write(
    State(context): State<Shared>,
    name: Named,
    Options(OffsetQuery { offset, import }): Options<OffsetQuery>,
    request: Request,
) -> Result<Json<Done>, Failure> {
    let _place = place(&context).await?;
    let caller = request.extensions().get::<Caller>().cloned();
    // Also of what is refused: who still sends doesn't hear why.
    let data = body(request, MAX_DATA as usize).await?;
    let volume = volumes::unlocked(&context, &name.0).await?;
    is_awaited(caller.as_ref())?;
    let observed = context.observations.of(volume.id());
    let write = || {
        let (data, observed) = (data.clone(), observed.clone());
        move |volume: Volume<ServerWorld>| async move {
            let length = data.len() as u64;
            let written = sectors::write(&volume, offset, data).await;
            observed.damaged(None).learn(offset, length, &written);
            written
        }
    };
    written(&context, &volume, import, write).await
}

pub async fn zero(
    State(context): State<Shared>,
    name: Named,
    caller: Option<Extension<Caller>>,
    Input(ZeroRange { range: Range { offset, length }, import }): Input<ZeroRange>,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::unlocked(&context, &name.0).await?;
    is_awaited(caller.as_deref())?;
    let observed = context.observations.of(volume.id());
    let trim = || {
        let observed = observed.clone();
        move |volume: Volume<ServerWorld>| async move {
            let trimmed = sectors::zero(&volume, offset, length).await;
            observed.damaged(None).learn(offset, length, &trimmed);
            trimmed
        }
    };
    written(&context, &volume, import, trim).await
}

pub async fn flush(
    State(context): State<Shared>,
    name: Named,
    Options(ImportQuery { import }): Options<ImportQuery>,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::served(&context, &name.0).await?;
    let flush = || |volume: Volume<ServerWorld>| async move { volume.flush().await };
    written(&context, &volume, import, flush).await
}

/// Whether somebody still waits for it. While this server stood still, what was asked of it may have been done by another one, and written
/// over since.
pub fn is_awaited(caller: Option<&Caller>) -> Result<(), Failure> {
    match caller.is_some_and(Caller::has_left) {
        false => Ok(()),
        true => Err(Failure::new(ErrorKind::Unavailable, "who asked for it has left")),
    }
}

/// Of an import, only as long as it's that of the volume: what is written by a revision of the volume's record in which it's that comes
/// before what another import writes by a later one, or not at all. Whatever else has changed of the record, it's written again: an import
/// writes one thing at a time.
pub async fn written<W, F>(
    context: &Context,
    volume: &Volume<ServerWorld>,
    import: Option<u64>,
    work: impl Fn() -> W,
) -> Result<Json<Done>, Failure>
where
    W: FnOnce(Volume<ServerWorld>) -> F + Send + 'static,
    F: Future<Output = Result<(), IoError>> + 'static,
{
    loop {
        let revision = imports::check(context, volume.id(), import).await?;
        let volume = revision.map_or_else(|| volume.clone(), |revision| volume.as_of(revision));
        match on_data_thread(context, volume.clone(), work()).await {
            Err(_) if !volume.is_current() => {}
            outcome => {
                outcome?;
                imports::check(context, volume.id(), import).await?;
                return Ok(Json(Done {}));
            }
        }
    }
}

/// Fails if what the caller has read of it before isn't in it any more.
pub fn goes_on_from(
    context: &Context,
    id: VolumeId,
    (epoch, revision): (Option<Epoch>, Option<u64>),
) -> Result<(), Failure> {
    let state = context.parts.metadata.state();
    let record = state.volumes.get(&id).ok_or_else(|| Failure::from(IoError::Fenced))?;
    let what = if !epoch.is_none_or(|epoch| record.goes_on_from(epoch)) {
        "rolled back"
    } else if !revision.is_none_or(|revision| record.is_whole_since(revision)) {
        "made smaller"
    } else {
        return Ok(());
    };
    Err(Failure::new(ErrorKind::Conflict, format!("volume '{}' was {what} meanwhile", record.name)))
}

pub async fn map(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Json<Vec<MapRun>>, Failure> {
    let volume = volumes::served(&context, &name.0).await?;
    let id = volume.id();
    let map = map_of(&context, Reader::Volume(volume), range).await?;
    goes_on_from(&context, id, (range.epoch, range.revision))?;
    Ok(map)
}

pub async fn map_snapshot(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Json<Vec<MapRun>>, Failure> {
    let snapshot = snapshots::served(&context, &name.snapshot()?).await?;
    map_of(&context, Reader::Snapshot(snapshot), range).await
}

async fn map_of(context: &Context, reader: Reader, range: RangeQuery) -> Result<Json<Vec<MapRun>>, Failure> {
    let within = Within { offset: range.offset, length: range.length, limit: MOST_RUNS };
    let ask = move |reader: Reader| async move { reader.block_status(within).await };
    let runs = on_data_thread(context, reader, ask).await?;
    Ok(Json(runs.into_iter().map(|run| MapRun { length: run.length, mapped: run.mapped }).collect()))
}

/// For one request that holds bytes.
pub async fn place(context: &Context) -> Result<SemaphorePermit<'_>, Failure> {
    context.data.acquire().await.map_err(|_| Failure::new(ErrorKind::Unavailable, IoError::Stopping))
}

/// Has a data thread do something with a volume or what is read of it, as long as somebody waits for it: requests may wait long for
/// a drive, and whoever hangs up leaves no data behind.
pub async fn on_data_thread<R, F, T>(
    context: &Context,
    what: R,
    work: impl FnOnce(R) -> F + Send + 'static,
) -> Result<T, Failure>
where
    R: Send + 'static,
    F: Future<Output = Result<T, IoError>> + 'static,
    T: Send + 'static,
{
    let threads = &context.parts.threads;
    let seat = threads.seat();
    Ok(threads.run_while_awaited(seat.thread(), move || work(what)).await??)
}
