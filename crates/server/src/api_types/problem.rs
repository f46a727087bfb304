//! Answers that aren't a success: problems as RFC 9457 has them, as `application/problem+json`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The content type of a [`Problem`].
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Before the name of a [`ProblemType`]: the page where each is described.
const DESCRIBED_AT: &str = "/v1/docs#";

/// What clients have to know of a [`Problem`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiError {
    /// One line: what failed on which thing, and what to do.
    pub error: String,
    /// For programs.
    pub kind: ErrorKind,
}

/// The body of every answer that isn't a success.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// Stays the same for problems of one type: a reference to where that is described.
    #[serde(rename = "type")]
    pub described_at: String,
    /// The type in a few words, the same for all problems of it.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// One line: what failed on which thing, and what to do.
    pub detail: String,
    /// As `detail`.
    pub error: String,
    /// What the caller should do: several types are of one kind.
    pub kind: ErrorKind,
    /// Of `precondition-failed`: what was expected, and what is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revisions: Option<Revisions>,
}

/// Two states of one thing, as in `ETag` and `If-Match`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Revisions {
    /// As the request says it.
    pub expected: String,
    /// As it's agreed now.
    pub current: String,
}

impl Problem {
    /// Of this type; `detail` is one line.
    pub fn new(of: ProblemType, detail: String) -> Self {
        Problem {
            described_at: format!("{DESCRIBED_AT}{}", of.name()),
            title: of.title().to_owned(),
            status: of.http_status(),
            error: detail.clone(),
            detail,
            kind: of.kind(),
            revisions: None,
        }
    }
}

/// What the caller should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// 400, 405, 413, 422: fix the request.
    BadRequest,
    /// 401: send the right token.
    Unauthorized,
    /// 403: have it granted, or ask as somebody else.
    Forbidden,
    /// 404: there is no such thing.
    NotFound,
    /// 409, 412: it exists, is in use, or is in a state that doesn't allow this.
    Conflict,
    /// 507: free space, or add drives.
    OutOfSpace,
    /// 410: restore it from elsewhere, or accept that it's lost: waiting brings nothing back.
    Lost,
    /// 503: wait, or bring drives or servers back.
    Unavailable,
    /// 500: call an operator. Also what this client doesn't know yet.
    #[serde(other)]
    Internal,
}

impl ErrorKind {
    /// The status of an answer of this kind, if nothing more is said of it.
    pub const fn http_status(self) -> u16 {
        ProblemType::of(self).http_status()
    }
}

/// What is wrong, as [`Problem::described_at`] names it. Types are only added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "`meaning` says it")]
pub enum ProblemType {
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    NoSuchPath,
    MethodNotAllowed,
    Conflict,
    PreconditionFailed,
    TooLarge,
    KeyReused,
    OutOfSpace,
    Lost,
    Unavailable,
    Internal,
}

impl ProblemType {
    /// Each.
    pub const ALL: [ProblemType; 14] = [
        ProblemType::BadRequest,
        ProblemType::Unauthorized,
        ProblemType::Forbidden,
        ProblemType::NotFound,
        ProblemType::NoSuchPath,
        ProblemType::MethodNotAllowed,
        ProblemType::Conflict,
        ProblemType::PreconditionFailed,
        ProblemType::TooLarge,
        ProblemType::KeyReused,
        ProblemType::OutOfSpace,
        ProblemType::Lost,
        ProblemType::Unavailable,
        ProblemType::Internal,
    ];

    /// The type of a problem of which only the kind is known.
    pub const fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::BadRequest => ProblemType::BadRequest,
            ErrorKind::Unauthorized => ProblemType::Unauthorized,
            ErrorKind::Forbidden => ProblemType::Forbidden,
            ErrorKind::NotFound => ProblemType::NotFound,
            ErrorKind::Conflict => ProblemType::Conflict,
            ErrorKind::OutOfSpace => ProblemType::OutOfSpace,
            ErrorKind::Lost => ProblemType::Lost,
            ErrorKind::Unavailable => ProblemType::Unavailable,
            ErrorKind::Internal => ProblemType::Internal,
        }
    }

    /// The fragment of its reference.
    pub const fn name(self) -> &'static str {
        match self {
            ProblemType::BadRequest => "bad-request",
            ProblemType::Unauthorized => "unauthorized",
            ProblemType::Forbidden => "forbidden",
            ProblemType::NotFound => "not-found",
            ProblemType::NoSuchPath => "no-such-path",
            ProblemType::MethodNotAllowed => "method-not-allowed",
            ProblemType::Conflict => "conflict",
            ProblemType::PreconditionFailed => "precondition-failed",
            ProblemType::TooLarge => "too-large",
            ProblemType::KeyReused => "key-reused",
            ProblemType::OutOfSpace => "out-of-space",
            ProblemType::Lost => "lost",
            ProblemType::Unavailable => "unavailable",
            ProblemType::Internal => "internal",
        }
    }

    /// As in [`Problem::title`].
    pub const fn title(self) -> &'static str {
        match self {
            ProblemType::BadRequest => "The request isn't right",
            ProblemType::Unauthorized => "The token is missing or wrong",
            ProblemType::Forbidden => "Not allowed",
            ProblemType::NotFound => "There is no such thing",
            ProblemType::NoSuchPath => "The API has no such path",
            ProblemType::MethodNotAllowed => "The path doesn't take this method",
            ProblemType::Conflict => "The state doesn't allow this",
            ProblemType::PreconditionFailed => "It was changed meanwhile",
            ProblemType::TooLarge => "The body is too long",
            ProblemType::KeyReused => "The idempotency key belongs to another request",
            ProblemType::OutOfSpace => "There is no room",
            ProblemType::Lost => "What held it has failed for good",
            ProblemType::Unavailable => "It can't be done now",
            ProblemType::Internal => "The server failed",
        }
    }

    /// What is wrong, and what to do about it, for the page where types are described.
    pub const fn meaning(self) -> &'static str {
        match self {
            ProblemType::BadRequest => {
                "A parameter or the body can't be read, or asks for what can't be. Fix the request."
            }
            ProblemType::Unauthorized => {
                "Send the token of the server's data folder as a bearer token, or a client certificate."
            }
            ProblemType::Forbidden => {
                "The certificate doesn't allow this, is revoked, or TLS is needed here. Have it granted, or ask as somebody else."
            }
            ProblemType::NotFound => "What the path names isn't there, or not any more. List what there is.",
            ProblemType::NoSuchPath => "Look the path up in the document of the API, and the server's version.",
            ProblemType::MethodNotAllowed => "The header Allow says which methods the path takes.",
            ProblemType::Conflict => {
                "It exists already, is in use, or is in a state that doesn't allow this. The detail says what has to change first."
            }
            ProblemType::PreconditionFailed => {
                "The thing has another revision than If-Match says, and nothing was changed. Get it again, look, and ask again."
            }
            ProblemType::TooLarge => "The detail says how many bytes a body may have. Send less at a time.",
            ProblemType::KeyReused => {
                "Another request has had this Idempotency-Key. Nothing was done. Use a new key for each thing that is to be done."
            }
            ProblemType::OutOfSpace => "Free space, or add drives.",
            ProblemType::Lost => {
                "The drives that held these bytes have failed, and no other has them. Restore them from elsewhere, put such a drive back, \
                 or accept the loss. To wait and ask again is of no use."
            }
            ProblemType::Unavailable => {
                "Drives or servers are away, or a majority of the servers can't be reached. Wait, or bring them back, and ask again."
            }
            ProblemType::Internal => "Look into the server's log. Some damage has to be repaired first.",
        }
    }

    /// The status of an answer of this type.
    pub const fn http_status(self) -> u16 {
        match self {
            ProblemType::BadRequest => 400,
            ProblemType::Unauthorized => 401,
            ProblemType::Forbidden => 403,
            ProblemType::NotFound | ProblemType::NoSuchPath => 404,
            ProblemType::MethodNotAllowed => 405,
            ProblemType::Conflict => 409,
            ProblemType::PreconditionFailed => 412,
            ProblemType::TooLarge => 413,
            ProblemType::Lost => 410,
            ProblemType::KeyReused => 422,
            ProblemType::Internal => 500,
            ProblemType::Unavailable => 503,
            ProblemType::OutOfSpace => 507,
        }
    }

    /// What programs know that don't know types. Kinds stay as they were before there were types.
    pub const fn kind(self) -> ErrorKind {
        match self {
            ProblemType::BadRequest
            | ProblemType::MethodNotAllowed
            | ProblemType::TooLarge
            | ProblemType::KeyReused => ErrorKind::BadRequest,
            ProblemType::Unauthorized => ErrorKind::Unauthorized,
            ProblemType::Forbidden => ErrorKind::Forbidden,
            ProblemType::NotFound | ProblemType::NoSuchPath => ErrorKind::NotFound,
            ProblemType::Conflict | ProblemType::PreconditionFailed => ErrorKind::Conflict,
            ProblemType::OutOfSpace => ErrorKind::OutOfSpace,
            ProblemType::Lost => ErrorKind::Lost,
            ProblemType::Unavailable => ErrorKind::Unavailable,
            ProblemType::Internal => ErrorKind::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_of_error_that_a_client_does_not_know_is_taken_as_internal() {
        let error: ApiError = serde_json::from_str(r#"{"error": "no", "kind": "tired", "more": 1}"#).expect("readable");
        assert_eq!(error.kind, ErrorKind::Internal);
    }

    #[test]
    fn a_problem_is_readable_by_clients_that_know_no_problems() {
        for of in ProblemType::ALL {
            let text = serde_json::to_string(&Problem::new(of, "no".to_owned())).expect("text");
            let error: ApiError = serde_json::from_str(&text).expect("readable");
            assert_eq!(error, ApiError { error: "no".to_owned(), kind: of.kind() });
        }
    }

    #[test]
    fn problems_are_written_as_they_were_first_released() {
        let text = serde_json::to_value(Problem::new(ProblemType::NotFound, "no volume 'v'".to_owned())).expect("text");
        let released = serde_json::json!({
            "type": "/v1/docs#not-found", "title": "There is no such thing", "status": 404, "detail": "no volume 'v'",
            "error": "no volume 'v'", "kind": "not_found"
        });
        assert_eq!(text, released);
    }
}
