//! Scrubs of volumes, asked for and looked at. Each server scrubs the columns that it leads; this puts them together.

use super::extract::{Named, Options};
use super::failure::Failure;
use super::relay::Scope;
use super::schedules::Steward;
use super::types::{BY_ID, Scrub, ScrubQuery, ScrubState, path, route};
use super::{Context, Shared, conditions, volumes};
use crate::damage::union;
use axum::Json;
use axum::extract::State;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use std::collections::BTreeSet;
use std::time::Duration;
use tepal_metadata::{self as metadata, DriveState};
use tepal_model::{DriveId, VolumeId};

pub async fn start(
    State(context): State<Shared>,
    scope: Scope,
    name: Named,
    Options(query): Options<ScrubQuery>,
) -> Result<Response, Failure> {
    let begun = begin(&context, scope, &name.0, query).await?;
    Ok(match scope {
        Scope::Cluster => {
            crate::tasks::spawn(Steward::new(&context).note_scrub(VolumeId(begun.volume_id), begun.begun_unix_ms));
            let place = path(route::VOLUME_SCRUB, &format!("{BY_ID}{}", begun.volume_id));
            conditions::begun(place, Json(begun))
        }
        // Servers of earlier versions know no other answer than 200.
        Scope::Own => Json(begun).into_response(),
    })
}

/// Has it begin at all servers of the scope.
pub async fn begin(context: &Context, scope: Scope, name: &str, query: ScrubQuery) -> Result<Scrub, Failure> {
    let volume = volumes::served(context, name).await?;
    let id = volume.id();
    let called = volume.spec().name;
    context.scrubs.start(volume, query.take_ms.map(Duration::from_millis));
    let own = context.scrubs.report(id, &called);
    Ok(with_others(context, scope, (Method::POST, query), own).await)
}

pub async fn show(State(context): State<Shared>, scope: Scope, name: Named) -> Result<Json<Scrub>, Failure> {
    look(&context, scope, &name.0).await.map(Json)
}

/// The one that runs, or the last one, of all servers of the scope.
pub async fn look(context: &Context, scope: Scope, name: &str) -> Result<Scrub, Failure> {
    let volume = volumes::served(context, name).await?;
    let own = context.scrubs.report(volume.id(), &volume.spec().name);
    let all = with_others(context, scope, (Method::GET, ScrubQuery::default()), own).await;
    let state = context.parts.metadata.state();
    let recorded = state.schedules.scrubs.get(&volume.id()).map(|record| record.begun_unix_ms);
    Ok(Scrub { recorded_unix_ms: recorded, ..all })
}

async fn with_others(context: &Context, scope: Scope, (method, query): (Method, ScrubQuery), own: Scrub) -> Scrub {
    if scope == Scope::Own {
        return own;
    }
    let take = query.take_ms.map(|ms| format!("?take_ms={ms}")).unwrap_or_default();
    let asked = path(route::VOLUME_SCRUB, &format!("{BY_ID}{}", own.volume_id)) + &take;
    let others = context.have_others_do::<Scrub>(method, &asked).await;
    let all = others.into_iter().filter_map(|(_, said)| said).fold(own, put_together);
    Scrub { unchecked_drives: of_those_that_count(&context.parts.metadata.state(), &all), ..all }
}

/// The drives, of those that a scrub that is done didn't read, that have copies of the volume still.
fn of_those_that_count(state: &metadata::State, scrub: &Scrub) -> Vec<DriveId> {
    let volume = state.volumes.get(&VolumeId(scrub.volume_id)).filter(|_| scrub.state == ScrubState::Done);
    let Some(volume) = volume else { return Vec::new() };
    let drives: BTreeSet<DriveId> = state.maps_of(volume).flat_map(|map| map.drives()).collect();
    let hasnt_failed = |drive: &DriveId| state.drives.get(drive).is_some_and(|it| it.state != DriveState::Failed);
    let unchecked = scrub.unchecked_drives.iter().copied();
    unchecked.filter(|drive| drives.contains(drive) && hasnt_failed(drive)).collect()
}

fn put_together(mut all: Scrub, other: Scrub) -> Scrub {
    // Each server says which drives had copies when it began and weren't read by it: who else didn't?
    match (all.state, other.state) {
        (_, ScrubState::Never) => {}
        (ScrubState::Never, _) => all.unchecked_drives = other.unchecked_drives,
        _ => all.unchecked_drives.retain(|drive| other.unchecked_drives.contains(drive)),
    }
    let rank = |state| match state {
        ScrubState::Never => 0,
        ScrubState::Done => 1,
        ScrubState::Failed => 2,
        ScrubState::Running => 3,
    };
    if rank(other.state) > rank(all.state) {
        all.state = other.state;
    }
    all.checked_bytes += other.checked_bytes;
    all.total_bytes += other.total_bytes;
    all.repaired_blocks += other.repaired_blocks;
    all.checked_drives.extend(other.checked_drives);
    // Servers with copies of the same find the same.
    all.damaged = union([all.damaged, other.damaged].concat());
    all.unrepaired = union([all.unrepaired, other.unrepaired].concat());
    for said in other.damaged_snapshots {
        match all.damaged_snapshots.iter_mut().find(|one| one.name == said.name) {
            Some(one) => one.damaged = union([std::mem::take(&mut one.damaged), said.damaged].concat()),
            None => all.damaged_snapshots.push(said),
        }
    }
    all.error = all.error.or(other.error);
    all.done_unix_ms = all.done_unix_ms.max(other.done_unix_ms);
    all.begun_unix_ms = [all.begun_unix_ms, other.begun_unix_ms].into_iter().flatten().min();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api_types::Range;

    fn part(state: ScrubState, offset: u64) -> Scrub {
        Scrub {
            volume: "v".to_owned(),
            volume_id: 1,
            state,
            checked_bytes: 10,
            total_bytes: 20,
            repaired_blocks: 1,
            checked_drives: Vec::new(),
            unchecked_drives: Vec::new(),
            damaged: vec![Range { offset, length: 4096 }],
            unrepaired: Vec::new(),
            damaged_snapshots: Vec::new(),
            error: (state == ScrubState::Failed).then(|| "no".to_owned()),
            done_unix_ms: (state == ScrubState::Done).then_some(offset),
            begun_unix_ms: (state != ScrubState::Never).then_some(offset / 2),
            recorded_unix_ms: None,
        }
    }

    #[test]
    fn a_scrub_over_several_servers_runs_until_the_last_has_done_its_part_and_fails_if_one_does() {
        use ScrubState::{Done, Failed, Never, Running};
        for (parts, state) in [
            ([Done, Running, Done], Running),
            ([Done, Failed, Running], Running),
            ([Done, Failed, Never], Failed),
            ([Never, Done, Done], Done),
        ] {
            let all = parts.into_iter().zip([16384, 0, 8192]).map(|(state, offset)| part(state, offset));
            let all = all.reduce(put_together).expect("three");
            assert_eq!((all.state, all.checked_bytes, all.total_bytes, all.repaired_blocks), (state, 30, 60, 3));
            assert_eq!(all.damaged.iter().map(|range| range.offset).collect::<Vec<_>>(), [0, 8192, 16384]);
            assert_eq!(all.error.is_some(), parts.contains(&Failed));
            assert_eq!(all.done_unix_ms.is_some(), parts.contains(&Done));
            assert_eq!(all.begun_unix_ms, Some(0), "the first part's");
        }
    }

    /// Story: a copy had moved to a drive between the scrub's end and its report, and was said to be on a drive that is away.
    #[test]
    fn a_drive_is_unchecked_if_every_server_began_with_it_and_none_read_it() {
        let of = |state, drives: &[u64]| Scrub {
            unchecked_drives: drives.iter().copied().map(DriveId).collect(),
            ..part(state, 0)
        };
        let all = [
            of(ScrubState::Never, &[]),
            of(ScrubState::Done, &[2, 3, 4]),
            of(ScrubState::Never, &[]),
            of(ScrubState::Done, &[1, 3]),
        ];
        assert_eq!(all.into_iter().reduce(put_together).expect("four").unchecked_drives, [DriveId(3)]);
    }

    #[test]
    fn what_several_servers_find_damaged_is_told_once() {
        let range = |(offset, length)| Range { offset, length };
        let told = union([(8192, 4096), (0, 4096), (8192, 8192), (4096, 0)].map(range).to_vec());
        assert_eq!(
            told.iter().map(|range| (range.offset, range.length)).collect::<Vec<_>>(),
            [(0, 4096), (8192, 8192)]
        );
    }
}
