//! What another server has to do, passed on to it: so every command works through any server.
//!
//! Whatever is about one drive is done where it is; volumes, every server serves. A list is put together from what each server
//! says of its own things. A request that was passed on goes no further.

use super::extract::{LONGEST as LONGEST_JSON, body};
use super::failure::Failure;
use super::types::{ApiError, ErrorKind};
use super::{Context, Shared};
use crate::gaps::{self, Answering, Question};
use crate::migrating::{Reports, TakenOver};
use crate::peers::{LONGEST, PeerLinks, Subject};
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::string::FromUtf8Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tepal_metadata::{ServerRecord, ServerState, TransportError};
use tepal_model::ServerId;

/// The longest that another server is waited for when it does something. Less than what clients wait.
const DONE_WITHIN: Duration = Duration::from_secs(50);
/// The longest that another server is waited for when it says what there is.
const SAID_WITHIN: Duration = Duration::from_secs(3);
/// Room for what goes along with an answer's body.
const ROOM: usize = 64 << 10;

/// A request to a server's API, on its way to another one's.
#[derive(Serialize, Deserialize)]
struct Asked {
    method: String,
    path: String,
    authorization: String,
    body: String,
}

/// What the other server answered.
#[derive(Serialize, Deserialize)]
struct Said {
    status: u16,
    body: String,
}

/// Why there's no answer to what was passed on.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayError {
    #[error("what was passed on can't be read: {0}")]
    Unreadable(#[source] serde_json::Error),
    #[error("what was passed on is no request: {0}")]
    NoRequest(#[from] axum::http::Error),
    #[error(transparent)]
    Unreached(#[from] TransportError),
    #[error("the server has only begun: ask again")]
    Begun,
    #[error("its answer is too long to be passed on: ask that server itself")]
    Long,
    #[error("its answer can't be read: {0}")]
    Answer(#[source] serde_json::Error),
    #[error("its answer is no text: {0}")]
    NoText(#[from] FromUtf8Error),
    #[error("{said}")]
    Refused { status: u16, said: String },
}

impl RelayError {
    fn kind(&self) -> ErrorKind {
        match self {
            RelayError::Unreadable(_) | RelayError::NoRequest(_) => ErrorKind::BadRequest,
            RelayError::Begun | RelayError::Unreached(_) => ErrorKind::Unavailable,
            RelayError::Long | RelayError::Answer(_) | RelayError::NoText(_) | RelayError::Refused { .. } => {
                ErrorKind::Internal
            }
        }
    }
}

/// The way between the APIs of servers.
#[derive(Clone)]
pub struct Relay {
    links: Arc<PeerLinks>,
    /// Once this server serves.
    router: Arc<OnceLock<Router>>,
    reports: Reports,
    /// Once this server serves.
    gaps: Arc<OnceLock<Answering>>,
}

/// Not of the API for clients: what primaries have taken over, for the server that leads the metadata.
const TAKEN_OVER: &str = "taken-over";
/// The same of what that server asks about gaps in histories.
const GAPS: &str = "gaps";

impl Relay {
    /// Answers others that the server has only begun, until its API is served.
    pub fn new(links: Arc<PeerLinks>) -> Relay {
        Relay { links, router: Arc::default(), reports: Reports::default(), gaps: Arc::default() }
    }

    /// What primaries have said to this server.
    pub fn reports(&self) -> &Reports {
        &self.reports
    }

    /// Says it to another server. Whether that has heard it.
    pub async fn report(&self, server: &ServerRecord, reports: &[TakenOver], within: Duration) -> bool {
        let (method, path, authorization) = (String::new(), TAKEN_OVER.to_owned(), String::new());
        let Ok(body) = serde_json::to_string(reports) else { return false };
        let said = self.ask(server, &Asked { method, path, authorization, body }, within).await;
        said.is_ok_and(|said| said.status == 200)
    }

    fn hear(&self, body: &str) -> Result<Said, RelayError> {
        let reports: Vec<TakenOver> = serde_json::from_str(body).map_err(RelayError::Unreadable)?;
        self.reports.hear(&reports);
        Ok(Said { status: 200, body: String::new() })
    }

    /// Asks another server; `None` if it doesn't say.
    pub async fn ask_about_gaps(
        &self,
        server: &ServerRecord,
        question: &Question,
        within: Duration,
    ) -> Option<gaps::Said> {
        let (method, path, authorization) = (String::new(), GAPS.to_owned(), String::new());
        let body = serde_json::to_string(question).ok()?;
        let said = self.ask(server, &Asked { method, path, authorization, body }, within).await.ok()?;
        (said.status == 200).then(|| serde_json::from_str(&said.body).ok())?
    }

    /// Who answers that here, from now on.
    pub fn answer_about_gaps(&self, answering: Answering) {
        let _ = self.gaps.set(answering);
    }

    async fn say_about_gaps(&self, body: &str) -> Result<Said, RelayError> {
        let question: Question = serde_json::from_str(body).map_err(RelayError::Unreadable)?;
        let said = self.gaps.get().ok_or(RelayError::Begun)?.answer(question).await;
        Ok(Said { status: 200, body: serde_json::to_string(&said).map_err(RelayError::Answer)? })
    }

    /// From now on others are answered.
    pub(super) fn open(&self, router: Router) {
        let _ = self.router.set(router);
    }

    /// What this server answers to a request that another one has passed on.
    pub async fn answer(self, call: Vec<u8>) -> Vec<u8> {
        let failed = |error: &RelayError| {
            let (kind, error) = (error.kind(), error.to_string());
            let said = serde_json::to_string(&ApiError { error, kind }).unwrap_or_default();
            Said { status: kind.http_status(), body: said }
        };
        let said = self.said(&call).await.unwrap_or_else(|error| failed(&error));
        match serde_json::to_vec(&said).unwrap_or_default() {
            said if said.len() <= LONGEST => said,
            _ => serde_json::to_vec(&failed(&RelayError::Long)).unwrap_or_default(),
        }
    }

    async fn said(&self, call: &[u8]) -> Result<Said, RelayError> {
        let asked: Asked = serde_json::from_slice(call).map_err(RelayError::Unreadable)?;
        match self.router.get() {
            _ if asked.path == TAKEN_OVER => self.hear(&asked.body),
            _ if asked.path == GAPS => self.say_about_gaps(&asked.body).await,
            None => Err(RelayError::Begun),
            Some(router) => said_by(router, asked).await,
        }
    }

    async fn ask(&self, server: &ServerRecord, asked: &Asked, within: Duration) -> Result<Said, RelayError> {
        let call = serde_json::to_vec(asked).map_err(RelayError::Unreadable)?;
        let said = self.links.call(&server.address, Some(server.id), Subject::Api, call, within).await?;
        serde_json::from_slice(&said).map_err(RelayError::Answer)
    }
}

async fn said_by(router: &Router, asked: Asked) -> Result<Said, RelayError> {
    let Asked { method, path, authorization, body } = asked;
    let request = Request::builder().method(&*method).uri(path).extension(PassedOn);
    let request = request.header(AUTHORIZATION, authorization).header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body))?;
    let response = match TowerToHyperService::new(router.clone()).call(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let status = response.status().as_u16();
    // It's made here, so nothing else can be wrong with it.
    let body = axum::body::to_bytes(response.into_body(), LONGEST - ROOM).await.map_err(|_| RelayError::Long)?;
    Ok(Said { status, body: String::from_utf8(body.into())? })
}

/// Marks a request that another server has passed on.
#[derive(Clone, Copy)]
struct PassedOn;

/// Of which servers a list is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    Cluster,
    /// Of this one alone: another one puts the list together.
    Own,
}

impl<S: Send + Sync> FromRequestParts<S> for Scope {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Self::Rejection> {
        Ok(if parts.extensions.get::<PassedOn>().is_some() { Scope::Own } else { Scope::Cluster })
    }
}

/// Hands a request about one thing to the server that has it.
pub async fn pass_on(State(context): State<Shared>, request: Request, next: Next) -> Response {
    let is_here = request.extensions().get::<PassedOn>().is_some();
    match owner(&context, request.method(), request.uri().path()).filter(|server| *server != context.server && !is_here)
    {
        None => next.run(request).await,
        Some(server) => context.pass_on(server, request).await.unwrap_or_else(IntoResponse::into_response),
    }
}

/// The server that alone can do what is asked at this path.
fn owner(context: &Context, method: &Method, path: &str) -> Option<ServerId> {
    let state = context.parts.metadata.state();
    let is_down = |id| state.servers.get(&id).is_some_and(|server| server.state == ServerState::Down);
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    match parts[..] {
        // One that is gone for good can't be asked to give its drives up.
        ["v1", "drives", id] if method == Method::DELETE => {
            state.drives.get(&id.parse().ok()?).map(|drive| drive.server).filter(|server| !is_down(*server))
        }
        ["v1", "drives", id, ..] => state.drives.get(&id.parse().ok()?).map(|drive| drive.server),
        _ => None,
    }
}

impl Context {
    async fn pass_on(&self, server: ServerId, request: Request) -> Result<Response, Failure> {
        let method = request.method().to_string();
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        let body = body(request, LONGEST_JSON).await?;
        let body = String::from_utf8(body.into()).map_err(|_| Failure::bad("the body is not JSON"))?;
        self.have_done(server, method, path, body).await
    }

    /// Has another server do what this one was asked.
    pub async fn have_done(
        &self,
        server: ServerId,
        method: String,
        path: String,
        body: String,
    ) -> Result<Response, Failure> {
        let state = self.parts.metadata.state();
        let unavailable = |why: String| Failure::new(ErrorKind::Unavailable, format!("server {server} {why}"));
        let record = state.servers.get(&server).ok_or_else(|| unavailable("is gone".to_owned()))?;
        if record.state == ServerState::Down {
            return Err(unavailable("is down, and has what this is about: start it".to_owned()));
        }
        let asked = Asked { method, path, authorization: format!("Bearer {}", self.token), body };
        let said = self.relay.ask(record, &asked, DONE_WITHIN).await;
        let said = said.map_err(|error| match error {
            RelayError::Unreached(_) => unavailable(format!("doesn't answer: {error}")),
            error => Failure::new(error.kind(), format!("server {server}: {error}")),
        })?;
        let status = StatusCode::from_u16(said.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Ok((status, [(CONTENT_TYPE, "application/json")], said.body).into_response())
    }

    /// What each other server says of its own things; `None` of one that is down or doesn't answer.
    pub async fn ask_others<T: DeserializeOwned>(&self, path: &str) -> Vec<(ServerId, Option<T>)> {
        self.have_others_do(Method::GET, path).await
    }

    /// What each other server says when it has done its own part of something, for which it takes no time.
    pub async fn have_others_do<T: DeserializeOwned>(&self, method: Method, path: &str) -> Vec<(ServerId, Option<T>)> {
        let state = self.parts.metadata.state();
        let others = state.servers.values().filter(|record| record.id != self.server);
        let method = &method;
        let asking = others.map(|record| async move {
            if record.state == ServerState::Down {
                return (record.id, None);
            }
            let said = self.ask(record, method, path).await;
            if let Err(error) = &said {
                tracing::debug!(server = %record.id, %error, "another server doesn't say what it has");
            }
            (record.id, said.ok())
        });
        futures_util::future::join_all(asking).await
    }

    /// What one server says.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        record: &ServerRecord,
        method: &Method,
        path: &str,
    ) -> Result<T, RelayError> {
        let (method, authorization) = (method.to_string(), format!("Bearer {}", self.token));
        let asked = Asked { method, path: path.to_owned(), authorization, body: String::new() };
        match self.relay.ask(record, &asked, SAID_WITHIN).await? {
            said if said.status == 200 => serde_json::from_str(&said.body).map_err(RelayError::Answer),
            said => Err(RelayError::Refused { status: said.status, said: said.body }),
        }
    }
}
