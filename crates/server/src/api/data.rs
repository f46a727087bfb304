//! The bytes of volumes and snapshots.

use super::extract::{Input, Named, Options, body};
use super::failure::Failure;
use super::types::{Done, ErrorKind, MAX_DATA, MapRun, OffsetQuery, Range, RangeQuery};
use super::{Context, Shared, snapshots, volumes};
use crate::nbd::reader::Reader;
use crate::world::ServerWorld;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use std::convert::Infallible;
use tepal_engine::{Volume, Within};
use tepal_model::IoError;
use tokio::sync::SemaphorePermit;

/// How many runs of a map are told at once.
const MOST_RUNS: usize = 4096;

pub async fn read(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Response, Failure> {
    let volume = volumes::served(&context, &name.0).await?;
    read_of(&context, Reader::Volume(volume), range).await
}

pub async fn read_snapshot(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Response, Failure> {
    let snapshot = snapshots::served(&context, &name.parse()?).await?;
    read_of(&context, Reader::Snapshot(snapshot), range).await
}

async fn read_of(context: &Context, reader: Reader, range: RangeQuery) -> Result<Response, Failure> {
    let RangeQuery { offset, length } = range;
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
    Options(OffsetQuery { offset }): Options<OffsetQuery>,
    request: Request,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::served(&context, &name.0).await?;
    let _place = place(&context).await?;
    let data = body(request, MAX_DATA as usize).await?;
    let observed = context.observations.of(volume.id());
    let write = move |volume: Volume<ServerWorld>| async move {
        let length = data.len() as u64;
        let written = volume.write(offset, data, false).await;
        observed.damaged(None).learn(offset, length, &written);
        written
    };
    on_data_thread(&context, volume, write).await?;
    Ok(Json(Done {}))
}

pub async fn zero(
    State(context): State<Shared>,
    name: Named,
    Input(Range { offset, length }): Input<Range>,
) -> Result<Json<Done>, Failure> {
    let volume = volumes::served(&context, &name.0).await?;
    let observed = context.observations.of(volume.id());
    let trim = move |volume: Volume<ServerWorld>| async move {
        let trimmed = volume.trim(offset, length).await;
        observed.damaged(None).learn(offset, length, &trimmed);
        trimmed
    };
    on_data_thread(&context, volume, trim).await?;
    Ok(Json(Done {}))
}

pub async fn flush(State(context): State<Shared>, name: Named) -> Result<Json<Done>, Failure> {
    let volume = volumes::served(&context, &name.0).await?;
    on_data_thread(&context, volume, |volume: Volume<ServerWorld>| async move { volume.flush().await }).await?;
    Ok(Json(Done {}))
}

pub async fn map(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Json<Vec<MapRun>>, Failure> {
    let volume = volumes::served(&context, &name.0).await?;
    map_of(&context, Reader::Volume(volume), range).await
}

pub async fn map_snapshot(
    State(context): State<Shared>,
    name: Named,
    Options(range): Options<RangeQuery>,
) -> Result<Json<Vec<MapRun>>, Failure> {
    let snapshot = snapshots::served(&context, &name.parse()?).await?;
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
