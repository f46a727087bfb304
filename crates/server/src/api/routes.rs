//! Which handler answers which path and method. The document of the API ([`super::document`]) has each of them.

use super::failure::Failure;
use super::types::{Done, ProblemType, route};
use super::{
    METRICS, SHUTDOWN, Shared, check_token, cluster, conditions, console, counters, creating, data, diff, directory,
    document, drives, holds, identities, imports, in_touch, joining, live, live_imports, loss, metrics, migrations,
    pieces, plexes, pools, realm, relay, replication, resizing, schedules, scrub, see_through, snapshots, sql, traces,
    up_to_date, usage, volumes,
};
use crate::access::CERTIFICATES;
use axum::extract::State;
use axum::handler::Handler;
use axum::http::Method;
use axum::middleware;
use axum::routing::{MethodFilter, on};
use axum::{Json, Router};

/// Handlers by path and method, and a list of these.
#[derive(Default)]
struct Routes {
    router: Router<Shared>,
    listed: Vec<(Method, &'static str)>,
}

impl Routes {
    fn on<H, T>(mut self, (filter, method): (MethodFilter, Method), path: &'static str, handler: H) -> Self
    where
        H: Handler<T, Shared>,
        T: 'static,
    {
        self.listed.push((method, path));
        Routes { router: self.router.route(path, on(filter, handler)), listed: self.listed }
    }

    fn get<H: Handler<T, Shared>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on((MethodFilter::GET, Method::GET), path, handler)
    }

    fn post<H: Handler<T, Shared>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on((MethodFilter::POST, Method::POST), path, handler)
    }

    fn put<H: Handler<T, Shared>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on((MethodFilter::PUT, Method::PUT), path, handler)
    }

    fn delete<H: Handler<T, Shared>, T: 'static>(self, path: &'static str, handler: H) -> Self {
        self.on((MethodFilter::DELETE, Method::DELETE), path, handler)
    }
}

/// Each path and method that wants a token, in no order.
#[cfg(test)]
pub fn listed() -> Vec<(Method, &'static str)> {
    [managing(), content(), looking()].into_iter().flat_map(|routes| routes.listed).collect()
}

pub fn router(context: Shared) -> Router {
    let managing = managing()
        .router
        .layer(middleware::from_fn_with_state(context.clone(), conditions::attend))
        .layer(middleware::from_fn(see_through))
        .layer(middleware::from_fn_with_state(context.clone(), in_touch));
    Router::new()
        .merge(managing)
        .merge(content().router)
        .merge(looking().router)
        .layer(middleware::from_fn_with_state(context.clone(), up_to_date))
        .layer(middleware::from_fn_with_state(context.clone(), relay::pass_on))
        .fallback(no_such_path)
        .method_not_allowed_fallback(no_such_method)
        .layer(middleware::from_fn_with_state(context.clone(), check_token))
        .merge(for_newcomers().router)
        .with_state(context)
        .merge(console::router())
        .merge(document::router())
}

/// For who has neither an identity nor the token.
fn for_newcomers() -> Routes {
    Routes::default().post(route::JOIN, joining::join).get(route::AUTHORITY, joining::authority)
}

/// What tells how things stand, and some of what needs no agreement.
fn looking() -> Routes {
    Routes::default()
        .get(route::STATUS, cluster::status)
        .get(route::CLUSTER, cluster::show)
        .post(route::CLUSTER, cluster::change)
        .get(route::SERVERS, cluster::servers)
        .get(route::DIRECTORY, directory::show)
        .post(route::DIRECTORY, directory::follow)
        .get(route::DRIVE_KEPT, drives::kept)
        .get(route::DRIVES_SCAN, drives::scan)
        .get(route::VOLUME_LOSS, loss::show)
        .post(route::VOLUME_LOSS, loss::accept)
        .get(route::PLEXES, plexes::list)
        .get(route::VOLUME_PLEXES, plexes::show)
        .post(route::VOLUME_PARITY, plexes::check_parity)
        .get(route::VOLUME_SCRUB, scrub::show)
        .post(route::VOLUME_SCRUB, scrub::start)
        .get(route::REMOVALS, volumes::removals)
        .get(route::MIGRATIONS, migrations::list)
        .get(route::COUNTERS, counters::show)
        .get(route::USAGE, usage::show)
        .get(route::SLOW, traces::show)
        .post(route::SLOW, traces::watch)
        .delete(route::SLOW, traces::end)
        .get(route::LIVE, live::follow)
        .post(route::SQL, sql::query)
        .post(SHUTDOWN, shutdown)
        .get(METRICS, metrics::show)
}

/// What holds beyond single volumes.
fn realm_routes(routes: Routes) -> Routes {
    routes
        .get(route::POOL_RIGHTS, realm::pool_rights)
        .post(route::POOL_RIGHTS, realm::grant_on_pool)
        .delete(route::POOL_RIGHTS, realm::withdraw_on_pool)
        .post(route::POOL_KEY, realm::set_pool_key)
        .get(route::CLUSTER_RIGHTS, realm::cluster_rights)
        .post(route::CLUSTER_RIGHTS, realm::grant_on_cluster)
        .delete(route::CLUSTER_RIGHTS, realm::withdraw_on_cluster)
        .get(route::AUTHORITIES, realm::authorities)
        .post(route::AUTHORITIES_ROTATE, realm::rotate)
        .post(route::AUTHORITIES_FINISH, realm::finish)
        .post(route::OUTSIDE_AUTHORITIES, realm::add_outside)
        .delete(route::OUTSIDE_AUTHORITY, realm::remove_outside)
        .post(route::OUTSIDE_IDENTITIES, realm::create_outside)
}

/// What is agreed on, and changed.
fn managing() -> Routes {
    realm_routes(Routes::default())
        .get(route::SERVER, cluster::server)
        .delete(route::SERVER, cluster::remove)
        .get(route::DRIVES, drives::list)
        .post(route::DRIVES, drives::add)
        .get(route::DRIVE, drives::show)
        .delete(route::DRIVE, drives::remove)
        .post(route::DRIVE_OFFLINE, drives::offline)
        .post(route::DRIVE_ONLINE, drives::online)
        .post(route::DRIVE_GROW, drives::grow)
        .post(route::DRIVE_NAME, drives::set_name)
        .post(route::DRIVE_REPLACE, drives::replace)
        .post(route::DRIVE_USE, drives::set_use)
        .post(route::SERVER_DRAINING, cluster::set_draining)
        .get(route::POOLS, pools::list)
        .post(route::POOLS, pools::create)
        .get(route::POOL, pools::show)
        .delete(route::POOL, pools::remove)
        .get(route::VOLUMES, volumes::list)
        .post(route::VOLUMES, creating::create)
        .get(route::VOLUME, volumes::show)
        .delete(route::VOLUME, volumes::remove)
        .post(route::VOLUME_RESIZE, resizing::resize)
        .post(route::VOLUME_RENAME, volumes::rename)
        .get(route::IDENTITIES, identities::list)
        .post(route::IDENTITIES, identities::create)
        .delete(route::IDENTITY, identities::remove)
        .post(route::IDENTITY_RENEW, identities::renew)
        .post(CERTIFICATES, identities::sign_server)
        .get(route::VOLUME_RIGHTS, identities::rights)
        .post(route::VOLUME_RIGHTS, identities::grant)
        .delete(route::VOLUME_RIGHTS, identities::withdraw)
        .post(route::VOLUME_KEY, volumes::rewrap_key)
        .post(route::VOLUME_LIMITS, volumes::limit)
        .post(route::IDENTITY_LIMITS, identities::limit)
        .get(route::JOIN_TOKENS, joining::list)
        .post(route::JOIN_TOKENS, joining::create)
        .delete(route::JOIN_TOKEN, joining::remove)
        .post(route::VOLUME_RESERVATION, identities::reserve)
        .delete(route::VOLUME_RESERVATION, identities::fence)
        .post(route::VOLUME_IMPORT, imports::note)
        .post(route::LIVE_IMPORTS, live_imports::begin)
        .post(route::VOLUME_IMPORTED, imports::finish)
        .post(route::VOLUME_FOLLOW, replication::follow)
        .post(route::VOLUME_PROMOTE, replication::promote)
        .post(route::VOLUME_RECEIVE, replication::receive)
        .post(route::VOLUME_RECEIVED, replication::received)
        .post(route::VOLUME_REPLICA, replication::note)
        .post(route::VOLUME_RELAYOUT, migrations::relayout)
        .post(route::VOLUME_FLATTEN, migrations::flatten)
        .post(route::VOLUME_PAUSE, migrations::pause)
        .post(route::VOLUME_RESUME, migrations::resume)
        .post(route::VOLUME_RATE, migrations::set_rate)
        .post(route::VOLUME_CANCEL, migrations::cancel)
        .get(route::SNAPSHOTS, snapshots::list)
        .post(route::SNAPSHOTS, snapshots::create)
        .get(route::SNAPSHOT, snapshots::show)
        .delete(route::SNAPSHOT, snapshots::remove)
        .post(route::SNAPSHOT_RENAME, snapshots::rename)
        .post(route::SNAPSHOT_ROLLBACK, snapshots::roll_back)
        .post(route::SNAPSHOT_CLONE, snapshots::clone)
        .get(route::SCHEDULES, schedules::list)
        .post(route::SCHEDULES, schedules::create)
        .get(route::SCHEDULE, schedules::show)
        .post(route::SCHEDULE, schedules::change)
        .delete(route::SCHEDULE, schedules::remove)
        .post(route::SCHEDULE_PAUSE, schedules::pause)
        .post(route::SCHEDULE_RESUME, schedules::resume)
        .post(route::SCHEDULE_RUN, schedules::run)
}

/// The bytes of volumes and snapshots, and who goes on to read or write them.
fn content() -> Routes {
    Routes::default()
        .get(route::VOLUME_DATA, data::read)
        .put(route::VOLUME_DATA, data::write)
        .post(route::VOLUME_ZERO, data::zero)
        .post(route::VOLUME_FLUSH, data::flush)
        .get(route::VOLUME_MAP, data::map)
        .put(route::VOLUME_PIECES, pieces::write)
        .post(route::SNAPSHOT_PIECES, pieces::read)
        .get(route::REPLICATIONS, holds::replications)
        .get(route::SNAPSHOT_DIFF, diff::show)
        .get(route::SNAPSHOT_DATA, data::read_snapshot)
        .get(route::SNAPSHOT_MAP, data::map_snapshot)
        .get(route::HOLDS, holds::known)
        .post(route::HOLDS, holds::hold)
}

async fn shutdown(State(context): State<Shared>) -> Json<Done> {
    context.stop.notify_one();
    Json(Done {})
}

async fn no_such_path() -> Failure {
    Failure::of_type(ProblemType::NoSuchPath, "the API has no such path: /v1/docs lists those that there are")
}

pub async fn no_such_method() -> Failure {
    Failure::of_type(
        ProblemType::MethodNotAllowed,
        "this path of the API doesn't take this method: the header Allow says which",
    )
}
