//! What requests bring along, with errors as the API answers them.

use super::failure::Failure;
use super::types::{BY_ID, ProblemType, SnapshotName};
use crate::nbd::exports::Wanted;
use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

/// The longest JSON body, in bytes.
pub const LONGEST: usize = 256 << 10;
/// For a body to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(30);

/// What stands in the path in braces.
pub struct Named(pub String);

impl Named {
    pub fn parse<T: FromStr<Err: std::fmt::Display>>(&self) -> Result<T, Failure> {
        self.0.parse().map_err(Failure::bad)
    }

    /// By its names, or by what stands for them.
    pub fn snapshot(&self) -> Result<SnapshotName, Failure> {
        match Wanted::of(&self.0) {
            Some(Wanted::Id(volume, Some(epoch))) => {
                Ok(SnapshotName { volume: format!("{BY_ID}{}", volume.0), snapshot: format!("{BY_ID}{epoch}") })
            }
            _ => self.parse(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        path.map(|Path(name)| Named(name)).map_err(|rejection| Failure::bad(rejection.body_text()))
    }
}

/// What stands behind the question mark.
pub struct Options<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Options<T> {
    type Rejection = Failure;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(options)| Options(options)).map_err(|rejection| Failure::bad(rejection.body_text()))
    }
}

/// A JSON body.
pub struct Input<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Input<T> {
    type Rejection = Failure;
    async fn from_request(request: Request, _state: &S) -> Result<Self, Failure> {
        let body = body(request, LONGEST).await?;
        serde_json::from_slice(&body)
            .map(Input)
            .map_err(|error| Failure::bad(format!("the body is not right: {error}")))
    }
}

/// The whole body, if it arrives in time and isn't longer than this.
pub async fn body(request: Request, longest: usize) -> Result<axum::body::Bytes, Failure> {
    match tokio::time::timeout(BODY_WITHIN, to_bytes(request.into_body(), longest)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if is_too_long(&error) => {
            let text = format!("the body is longer than {longest} bytes: send less at a time");
            Err(Failure::of_type(ProblemType::TooLarge, text))
        }
        Ok(Err(_)) => Err(Failure::bad("the body was cut short")),
        Err(_) => Err(Failure::bad("the body took too long to arrive")),
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    error.source().is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}
