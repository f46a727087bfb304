//! What another server has to do, passed on to it: so every command works through any server.
//!
//! Whatever is about one drive is done where it is; volumes, every server serves. A list is put together from what each server
//! says of its own things. A request that was passed on goes no further.

use super::conditions::{passed, tags};
use super::extract::{LONGEST as LONGEST_JSON, body};
use super::failure::Failure;
use super::types::{ErrorKind, PROBLEM_JSON};
use super::{Context, Shared};
use crate::relay::{Asked, PassedOn, RelayError};
use axum::extract::{FromRequestParts, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::DeserializeOwned;
use std::time::Duration;
use tepal_metadata::{ServerRecord, ServerState};
use tepal_model::ServerId;

/// The longest that another server is waited for when it does something. Less than what clients wait.
const DONE_WITHIN: Duration = Duration::from_secs(50);
/// The longest that another server is waited for when it says what there is.
const SAID_WITHIN: Duration = Duration::from_secs(3);
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
        // What is agreed of one: it may be gone, or away.
        ["v1", "drives", _, "replace" | "name" | "use"] => None,
        ["v1", "drives", _] => None,
        ["v1", "drives", id, ..] => state.drives.get(&id.parse().ok()?).map(|drive| drive.server),
        _ => None,
    }
}

impl Context {
    async fn pass_on(&self, server: ServerId, request: Request) -> Result<Response, Failure> {
        let method = request.method().to_string();
        let path = request.uri().path_and_query().map_or_else(String::new, ToString::to_string);
        let only_if = tags(request.headers());
        let body = body(request, LONGEST_JSON).await?;
        let body = String::from_utf8(body.into()).map_err(|_| Failure::bad("the body is not JSON"))?;
        self.have_done_if(server, (method, path), body, only_if).await
    }

    /// Has another server do what this one was asked.
    pub async fn have_done(
        &self,
        server: ServerId,
        method: String,
        path: String,
        body: String,
    ) -> Result<Response, Failure> {
        self.have_done_if(server, (method, path), body, Vec::new()).await
    }

    /// The same if what it's done to has one of these tags; whatever it has, if there are none.
    async fn have_done_if(
        &self,
        server: ServerId,
        (method, path): (String, String),
        body: String,
        only_if: Vec<String>,
    ) -> Result<Response, Failure> {
        let state = self.parts.metadata.state();
        let unavailable = |why: String| Failure::new(ErrorKind::Unavailable, format!("server {server} {why}"));
        let record = state.servers.get(&server).ok_or_else(|| unavailable("is gone".to_owned()))?;
        if record.state == ServerState::Down {
            return Err(unavailable("is down, and has what this is about: start it".to_owned()));
        }
        let asked =
            Asked { method, path, authorization: format!("Bearer {}", self.token), body, once: passed(), only_if };
        let said = self.relay.ask(record, &asked, DONE_WITHIN).await;
        let said = said.map_err(|error| match error {
            RelayError::Unreached(_) => unavailable(format!("doesn't answer: {error}")),
            error => Failure::new(error.kind(), format!("server {server}: {error}")),
        })?;
        let status = StatusCode::from_u16(said.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let content = if status.is_success() { "application/json" } else { PROBLEM_JSON };
        Ok((status, [(CONTENT_TYPE, content)], said.body).into_response())
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
        let asked = Asked {
            method,
            path: path.to_owned(),
            authorization,
            body: String::new(),
            once: None,
            only_if: Vec::new(),
        };
        match self.relay.ask(record, &asked, SAID_WITHIN).await? {
            said if said.status == 200 => serde_json::from_str(&said.body).map_err(RelayError::Answer),
            said => Err(RelayError::Refused { status: said.status, said: said.body }),
        }
    }
}
