//! The way between servers for what one asks another: requests to the API, what primaries have taken over, questions about gaps.

pub mod gaps;
mod reporter;
mod reports;

pub use reporter::Reporter;
pub use reports::{Reports, TakenOver};

use crate::api::Passed;
use crate::api_types::{ErrorKind, Problem, ProblemType};
use crate::connection::LONGEST;
use crate::peers::{PeerLinks, Subject};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, IF_MATCH};
use gaps::{Answering, Question};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde::{Deserialize, Serialize};
use std::string::FromUtf8Error;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tepal_metadata::{ServerRecord, TransportError};

/// Room for what goes along with an answer's body.
const ROOM: usize = 64 << 10;

/// A request to a server's API, on its way to another one's.
#[derive(Serialize, Deserialize)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub authorization: String,
    pub body: String,
    /// A client's key, and a digest of what it asks for. Servers of earlier versions don't say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub once: Option<(String, String)>,
    /// What the request said of tags, of which the thing has to have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub only_if: Vec<String>,
}

/// What the other server answered.
#[derive(Serialize, Deserialize)]
pub struct Said {
    pub status: u16,
    pub body: String,
}

/// Why there's no answer to what was passed on.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
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
    pub fn kind(&self) -> ErrorKind {
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
        let said = self
            .ask(server, &Asked { method, path, authorization, body, once: None, only_if: Vec::new() }, within)
            .await;
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
        let said = self
            .ask(server, &Asked { method, path, authorization, body, once: None, only_if: Vec::new() }, within)
            .await
            .ok()?;
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
    pub fn open(&self, router: Router) {
        let _ = self.router.set(router);
    }

    /// What this server answers to a request that another one has passed on.
    pub async fn answer(self, call: Vec<u8>) -> Vec<u8> {
        let failed = |error: &RelayError| {
            let (kind, error) = (error.kind(), error.to_string());
            let said = serde_json::to_string(&Problem::new(ProblemType::of(kind), error)).unwrap_or_default();
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

    pub async fn ask(&self, server: &ServerRecord, asked: &Asked, within: Duration) -> Result<Said, RelayError> {
        let call = serde_json::to_vec(asked).map_err(RelayError::Unreadable)?;
        let said = self.links.call(&server.address, Some(server.id), Subject::Api, call, within).await?;
        serde_json::from_slice(&said).map_err(RelayError::Answer)
    }
}

async fn said_by(router: &Router, asked: Asked) -> Result<Said, RelayError> {
    let Asked { method, path, authorization, body, once, only_if } = asked;
    let request = Request::builder().method(&*method).uri(path).extension(PassedOn).extension(Passed(once));
    let request = request.header(AUTHORIZATION, authorization).header(CONTENT_TYPE, "application/json");
    let request = only_if.iter().fold(request, |request, tag| request.header(IF_MATCH, tag));
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
pub struct PassedOn;
