//! Many ranges of a volume in one request, as replication reads and writes them: over a link with latency, a request for each would take
//! most of the time.

use super::data::{is_awaited, on_data_thread, place, written};
use super::extract::{Input, Named, Options, body};
use super::failure::Failure;
use super::front::Caller;
use super::types::{Done, ErrorKind, ImportQuery, MAX_DATA, Pieces, Range};
use super::{Shared, sectors, snapshots, volumes};
use crate::nbd::reader::Reader;
use crate::world::ServerWorld;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::convert::Infallible;
use tepal_engine::Volume;
use tepal_model::layout::Durability;

/// Ranges of one request that are read or written at a time.
const AT_A_TIME: usize = 64;
/// What a request's ranges take besides their bytes, at most.
const LONGEST_RUNS: usize = 1 << 20;

pub async fn read(
    State(context): State<Shared>,
    name: Named,
    Input(ranges): Input<Vec<Range>>,
) -> Result<Response, Failure> {
    let name = name.snapshot()?;
    let sum = ranges.iter().try_fold(0u64, |sum, range| sum.checked_add(range.length));
    if sum.is_none_or(|sum| sum > MAX_DATA) {
        return Err(Failure::bad(format!("that is too much: ask for at most {MAX_DATA} bytes at a time")));
    }
    let reader = Reader::Snapshot(snapshots::served(&context, &name).await?);
    let _place = place(&context).await?;
    let observations = context.observations.clone();
    let read = move |reader: Reader| async move {
        let of_range = |Range { offset, length }: Range| {
            let (reader, observations) = (reader.clone(), observations.clone());
            async move {
                let read = reader.read(offset, length).await;
                observations.damaged(reader.damage_of()).learn(offset, length, &read);
                read
            }
        };
        let all = stream::iter(ranges).map(of_range).buffered(AT_A_TIME);
        all.try_collect::<Vec<_>>().await
    };
    match on_data_thread(&context, reader, read).await {
        Ok(segments) => {
            let pieces = stream::iter(segments.into_iter().flatten().map(Ok::<_, Infallible>));
            Ok(([(CONTENT_TYPE, "application/octet-stream")], Body::from_stream(pieces)).into_response())
        }
        // That it's gone says more than that it can't be read.
        Err(failure) => Err(snapshots::gone(&context, &name).unwrap_or(failure)),
    }
}

pub async fn write(
    State(context): State<Shared>,
    name: Named,
    Options(ImportQuery { import }): Options<ImportQuery>,
    request: Request,
) -> Result<Json<Done>, Failure> {
    let _place = place(&context).await?;
    let caller = request.extensions().get::<Caller>().cloned();
    let data = body(request, MAX_DATA as usize + LONGEST_RUNS).await?;
    let not_whole =
        || Failure::new(ErrorKind::Unavailable, "the pieces didn't arrive as they were sent: send them again");
    let (runs, begins) = Pieces::decode(&data).ok_or_else(not_whole)?;
    let volume = volumes::unlocked(&context, &name.0).await?;
    is_awaited(caller.as_ref())?;
    let mut at = begins;
    let place_of = |(range, is_zero): (Range, bool)| {
        let from = at;
        at += if is_zero { 0 } else { range.length as usize };
        (range, (!is_zero).then(|| data.slice(from..at)))
    };
    let runs: Vec<_> = runs.into_iter().map(place_of).collect();
    let observed = context.observations.of(volume.id());
    // Who sends doesn't hear of it if this server ends before it's asked to flush.
    let state = context.parts.metadata.state();
    let is_strict = state.volumes.get(&volume.id()).is_none_or(|it| it.layout.durability == Durability::Strict);
    let work = || {
        let (runs, observed) = (runs.clone(), observed.clone());
        move |volume: Volume<ServerWorld>| async move {
            let change = |(Range { offset, length }, data)| {
                let (volume, observed) = (volume.clone(), observed.clone());
                async move {
                    let changed = match data {
                        Some(data) => sectors::write(&volume, offset, data).await,
                        None => sectors::zero(&volume, offset, length).await,
                    };
                    observed.damaged(None).learn(offset, length, &changed);
                    changed
                }
            };
            stream::iter(runs).map(change).buffer_unordered(AT_A_TIME).try_collect::<()>().await?;
            if is_strict { Ok(()) } else { volume.flush().await }
        }
    };
    written(&context, &volume, import, work).await
}
