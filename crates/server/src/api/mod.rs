//! The admin API over HTTP: handlers on the control runtime. What touches a volume's or a drive's bytes runs on a data
//! thread.

mod cluster;
mod conditions;
mod console;
mod counters;
mod creating;
mod data;
mod diff;
mod directory;
mod document;
mod drives;
mod exposition;
mod extract;
mod failure;
mod front;
mod health_text;
mod holds;
mod host;
mod identities;
mod imports;
mod joining;
mod live;
mod live_imports;
mod loss;
mod metrics;
mod migrations;
mod missing_copies;
#[cfg(test)]
mod openapi;
mod pieces;
mod plexes;
mod pools;
mod realm;
mod relay;
mod replication;
mod requests;
mod resizing;
mod routes;
mod schedules;
mod scrub;
mod sectors;
mod snapshots;
mod sql;
mod traces;
mod usage;
mod users;
mod volumes;

pub use crate::api_types as types;
pub use conditions::Passed;
pub use front::Front;
pub use schedules::{Steward, TakeError};

use crate::access::Access;
use crate::damage::Scrubs;
use crate::data_links::Links;
use crate::drives::{Drives, Parts};
use crate::migrating::Migrations;
use crate::observed::Observations;
use crate::relay::Relay;
use crate::volumes::Volumes;
use axum::extract::Request;
use axum::http::Method;
use axum::http::header::{AUTHORIZATION, HeaderMap};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use directory::Gateways;
use failure::Failure;
use holds::Holds;
use live::Live;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tepal_gateway::nbd::Surplus;
use tepal_metadata::{
    Command, IdentityRecord, KeyHash, LiveCommand, ProposeError, Refusal, Reply, Role, State, asked_by,
};
use tepal_model::ServerId;
use tokio::sync::{Notify, Semaphore, watch};
use types::{ErrorKind, LATEST, READ};

/// Requests of `data` under way at a time: each may hold 32 MiB.
const DATA_REQUESTS: usize = 8;
/// What was left out is given back by then, if no drive is in the way.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(10);
/// Less than another server waits that has passed the request on.
const ACTED_BY_WITHIN: Duration = Duration::from_secs(40);

/// Stops the server. Not for the `tepal` command, which sends a signal.
const SHUTDOWN: &str = "/v1/shutdown";
/// Who asked, as events say it.
pub(super) const TOKEN_HOLDER: &str = "token";
/// Prometheus text.
const METRICS: &str = "/metrics";

/// What handlers need of the server.
pub struct Api {
    /// This one.
    pub server: ServerId,
    /// What this server's drives and volumes are made with.
    pub parts: Parts,
    /// This server's.
    pub drives: Arc<Drives>,
    /// Those that this server serves.
    pub volumes: Arc<Volumes>,
    /// What was seen of volumes here: clients, requests, damage.
    pub observations: Observations,
    /// How volumes get on that go to another layout, as seen here.
    pub migrations: Migrations,
    /// This server's parts of them.
    pub scrubs: Scrubs,
    /// Who may do what.
    pub access: Access,
    /// When the server was started.
    pub started: Instant,
    /// Where this API itself listens.
    pub address: SocketAddr,
    /// The way to other servers' APIs.
    pub relay: Relay,
    /// The way to other servers' data.
    pub links: Links,
    /// Where NBD clients find the volumes, each as `unix:PATH` or HOST:PORT.
    pub nbd: Vec<String>,
    /// Who is turned away at other doors than the API's.
    pub surplus: Vec<Arc<Surplus>>,
    /// Notified when the API is asked to stop the server.
    pub stop: Arc<Notify>,
}

/// [`Api`] with what only handlers know of.
struct Context {
    api: Api,
    data: Semaphore,
    gateways: Gateways,
    /// Callers of the API itself that were turned away.
    surplus_here: Arc<Surplus>,
    holds: Holds,
    live: Live,
    /// How much of this server's drives was used, over time.
    used: Mutex<usage::History>,
    /// True when the API is about to end.
    stopping: watch::Receiver<bool>,
    token: String,
}

type Shared = Arc<Context>;

impl std::ops::Deref for Context {
    type Target = Api;
    fn deref(&self) -> &Api {
        &self.api
    }
}

impl Context {
    fn new(api: Api, token: String, stopping: watch::Receiver<bool>) -> Self {
        let surplus_here = Arc::new(Surplus::new("callers of the API"));
        Context {
            api,
            data: Semaphore::new(DATA_REQUESTS),
            gateways: Gateways::default(),
            surplus_here,
            holds: Holds::default(),
            live: Live::default(),
            used: Mutex::default(),
            stopping,
            token,
        }
    }

    /// Has the cluster carry out a command, for a client that doesn't wait for ever: what it was told isn't done is never done later.
    async fn propose(&self, command: Command) -> Result<Reply, Failure> {
        let command = conditions::with(command);
        let shown_by = shown_by(&command, &self.parts.metadata.state());
        let (began, mut proposed) = (Instant::now(), self.parts.metadata.propose(command.clone()).await);
        while let Err(ProposeError::Refused(Refusal::GapsStay { .. })) = proposed
            && began.elapsed() < GIVEN_BACK_WITHIN
        {
            tokio::time::sleep(GIVEN_BACK_WITHIN / 100).await;
            proposed = self.parts.metadata.propose(command.clone()).await;
        }
        proposed.map_err(|error| match error {
            ProposeError::Unknown | ProposeError::Stopped => {
                let text = format!("{error}; `{shown_by}` shows it");
                Failure::new(ErrorKind::Unavailable, text)
            }
            error => error.into(),
        })
    }

    /// Once every server acts by this view, no request is carried out by an earlier one. `late`: what that means which isn't so yet.
    async fn acted_by(&self, view: u64, late: impl Fn() -> String) -> Result<(), Failure> {
        match tokio::time::timeout(ACTED_BY_WITHIN, self.parts.authority.acted_by(view)).await {
            Ok(acted) => Ok(acted?),
            Err(_) => {
                let metadata = &self.parts.metadata;
                let why = match metadata.lease().allows(u64::MAX, metadata.now()) {
                    true => "not every server has taken up what was agreed, as `tepal status` may say",
                    false => "this server reaches no majority of the servers that vote any more",
                };
                let error = format!("{}; {why}", late());
                Err(Failure::new(ErrorKind::Unavailable, error))
            }
        }
    }
}

/// Who asks, as far as the connection tells.
#[derive(Clone)]
pub enum Who {
    /// A token has to tell.
    Nobody,
    /// From another machine without TLS, where a token would be told to everybody on the way.
    InTheClear,
    /// By a certificate.
    Identity(KeyHash, Arc<IdentityRecord>),
}

/// Answers only an identity, and who knows the token: other users of this machine and pages in its browsers can do nothing here.
async fn check_token(
    axum::extract::State(context): axum::extract::State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    match request.extensions().get::<Who>() {
        Some(Who::InTheClear) => {
            let text = "this address wants TLS: name the folder of an identity by --identity (`tepal identity create` makes one)";
            return Failure::new(ErrorKind::Forbidden, text).into_response();
        }
        Some(Who::Identity(key, _)) => {
            // As it's now: the connection may be older than a revocation.
            let known = context.parts.metadata.state().access.identity_of(key).cloned();
            return match known {
                Some(known) if known.role == Role::Operator => asked_by(known.name.clone(), next.run(request)).await,
                Some(known) if known.role == Role::Host => {
                    let state = context.parts.metadata.state();
                    match host::may(&state, &known, request.method(), request.uri().path()) {
                        Ok(()) => asked_by(known.name.clone(), next.run(request)).await,
                        Err(refused) => refused.into_response(),
                    }
                }
                Some(known) => {
                    let text = format!("identity '{}' is a {}'s, which doesn't ask that", known.name, known.role);
                    Failure::new(ErrorKind::Forbidden, text).into_response()
                }
                None => Failure::new(ErrorKind::Forbidden, "this identity is revoked").into_response(),
            };
        }
        Some(Who::Nobody) | None => {}
    }
    match bearer(request.headers()) {
        Some(shown) if is_same(shown.as_bytes(), context.token.as_bytes()) => {
            asked_by(TOKEN_HOLDER.to_owned(), next.run(request)).await
        }
        _ => Failure::new(ErrorKind::Unauthorized, "send the token of the server's data folder as a bearer token")
            .into_response(),
    }
}

/// What was begun is done to its end, also if the client hangs up: its steps belong together.
async fn see_through(request: Request, next: Next) -> Response {
    let who = match request.extensions().get::<Who>() {
        Some(Who::Identity(_, record)) => record.name.clone(),
        Some(Who::Nobody | Who::InTheClear) | None => TOKEN_HOLDER.to_owned(),
    };
    let answer = tokio::spawn(asked_by(who, next.run(request))).await;
    answer.unwrap_or_else(|error| Failure::new(ErrorKind::Internal, error).into_response())
}

/// A server that is cut off begins nothing: what it's to do would wait in it, and be done when its client has long given up.
async fn in_touch(
    axum::extract::State(context): axum::extract::State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::GET
        && let Err(error) = context.parts.metadata.get_in_touch().await
    {
        return Failure::from(error).into_response();
    }
    next.run(request).await
}

/// Who wants the latest is answered by all that was agreed before it asked, or told that this server can't say.
async fn up_to_date(
    axum::extract::State(context): axum::extract::State<Shared>,
    request: Request,
    next: Next,
) -> Response {
    let caught_up = match request.headers().get(READ) {
        None => Ok(()),
        Some(what) if what == LATEST => context.parts.metadata.catch_up().await.map_err(Failure::from),
        Some(_) => {
            Err(Failure::new(ErrorKind::BadRequest, format!("the header {READ} says `{LATEST}`, or isn't sent")))
        }
    };
    match caught_up {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

/// What shows whether a command was carried out.
fn shown_by(command: &Command, state: &State) -> String {
    // Handlers ask by id, users by name.
    let called =
        |volume: &str| state.volume_called(volume).map_or_else(|| volume.to_owned(), |record| record.name.clone());
    match command {
        Command::Once { command, .. } | Command::IfMatch { command, .. } => shown_by(command, state),
        Command::CreateSnapshot { volume, .. }
        | Command::RemoveSnapshot { volume, .. }
        | Command::RenameSnapshot { volume, .. } => format!("tepal snapshot ls {}", called(volume)),
        Command::ResizeVolume { name: volume, .. }
        | Command::Live(LiveCommand::Set { name: volume, .. })
        | Command::Follow { name: volume, .. }
        | Command::Promote { name: volume, .. } => format!("tepal volume show {}", called(volume)),
        Command::RollBack { .. } => NEWEST_EVENTS.to_owned(),
        Command::CreateVolume { .. }
        | Command::CreateEncrypted { .. }
        | Command::CreateForImport { .. }
        | Command::Live(_)
        | Command::CloneVolume { .. }
        | Command::RenameVolume { .. }
        | Command::RemoveVolume { .. } => "tepal volume ls".to_owned(),
        Command::BeginMigration { .. }
        | Command::PauseMigration { .. }
        | Command::SetMigrationRate { .. }
        | Command::TurnMigration { .. } => "tepal volume migrations".to_owned(),
        Command::CreatePool { .. } | Command::RemovePool { .. } => "tepal pool ls".to_owned(),
        Command::AddDrive { .. }
        | Command::SetDriveUse { .. }
        | Command::NameDrive { .. }
        | Command::ReplaceDrive { .. }
        | Command::SetDriveState { .. }
        | Command::RemoveDrive { .. } => "tepal drive ls".to_owned(),
        Command::RemoveServer { .. } | Command::SetServerDraining { .. } => "tepal server ls".to_owned(),
        Command::SetLease { .. } => "tepal cluster show".to_owned(),
        Command::Schedule(_) => "tepal schedule ls".to_owned(),
        Command::AddIdentity { .. }
        | Command::RenewIdentity { .. }
        | Command::RemoveIdentity { .. }
        | Command::LimitIdentity { .. } => "tepal identity ls".to_owned(),
        Command::AddJoinToken { .. } | Command::RemoveJoinToken { .. } => "tepal server token ls".to_owned(),
        Command::Reserve { volume, .. }
        | Command::Release { volume, .. }
        | Command::RewrapKey { volume, .. }
        | Command::LimitVolume { volume, .. } => format!("tepal volume show {}", called(volume)),
        Command::Grant { volume, .. } | Command::Withdraw { volume, .. } => {
            format!("tepal volume rights {}", called(volume))
        }
        _ => "tepal status".to_owned(),
    }
}

/// Tells of what no listing shows.
const NEWEST_EVENTS: &str = "tepal sql 'select * from events order by seq desc limit 5'";

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

/// Takes as long for a wrong text as for the right one.
fn is_same(shown: &[u8], token: &[u8]) -> bool {
    shown.len() == token.len() && shown.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::HeaderValue;
    use axum::middleware;
    use axum::routing::post;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread")]
    async fn what_a_client_asked_for_is_done_to_its_end_though_it_hangs_up() {
        let [begun, go_on, done] = [(); 3].map(|()| Arc::new(Notify::new()));
        let steps = (begun.clone(), go_on.clone(), done.clone());
        let handler = || async move {
            let (begun, go_on, done) = steps;
            begun.notify_one();
            go_on.notified().await;
            done.notify_one();
        };
        let router = Router::new().route("/", post(handler)).layer(middleware::from_fn(see_through));
        let request = Request::post("/").body(axum::body::Body::empty()).expect("a request");
        tokio::select! {
            biased;
            () = begun.notified() => {}
            _ = TowerToHyperService::new(router).call(request) => panic!("it waits"),
        }
        go_on.notify_one();
        let done = tokio::time::timeout(Duration::from_secs(10), done.notified()).await;
        done.expect("it goes on without its client");
    }

    #[test]
    fn only_the_whole_token_opens() {
        let token = b"0123456789abcdef";
        for (header, opens) in [
            ("Bearer 0123456789abcdef", true),
            ("Bearer 0123456789abcdee", false),
            ("Bearer 0123456789abcde", false),
            ("Bearer 0123456789abcdef0", false),
            ("Bearer ", false),
            ("bearer 0123456789abcdef", false),
            ("Basic 0123456789abcdef", false),
            ("0123456789abcdef", false),
        ] {
            let headers = HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(header))]);
            assert_eq!(bearer(&headers).is_some_and(|shown| is_same(shown.as_bytes(), token)), opens, "{header}");
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }
}
