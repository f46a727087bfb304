//! Why a call has no answer: a gRPC code, which says what the orchestrator should do, and one line for people.

use tepal_server::api::types::ErrorKind;
use tonic::{Code, Status};

/// A call that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the orchestrator goes by.
    pub code: Code,
    /// What failed on which thing, and what to do.
    pub message: String,
}

impl Failure {
    /// Of this code.
    pub fn new(code: Code, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    /// The request itself isn't right.
    pub fn invalid(message: impl Into<String>) -> Failure {
        Failure::new(Code::InvalidArgument, message)
    }

    /// There's no such thing.
    pub fn not_found(message: impl Into<String>) -> Failure {
        Failure::new(Code::NotFound, message)
    }

    /// The name is taken by something else than what was asked for.
    pub fn exists(message: impl Into<String>) -> Failure {
        Failure::new(Code::AlreadyExists, message)
    }

    /// Something else has to be done first.
    pub fn precondition(message: impl Into<String>) -> Failure {
        Failure::new(Code::FailedPrecondition, message)
    }

    /// No size that was asked for can be had.
    pub fn out_of_range(message: impl Into<String>) -> Failure {
        Failure::new(Code::OutOfRange, message)
    }

    /// It may be done later.
    pub fn unavailable(message: impl Into<String>) -> Failure {
        Failure::new(Code::Unavailable, message)
    }

    /// Something that should work doesn't.
    pub fn internal(message: impl Into<String>) -> Failure {
        Failure::new(Code::Internal, message)
    }

    /// What a server of the cluster refused.
    pub fn refused(kind: ErrorKind, message: impl Into<String>) -> Failure {
        let code = match kind {
            ErrorKind::BadRequest => Code::InvalidArgument,
            ErrorKind::Unauthorized => Code::Unauthenticated,
            ErrorKind::Forbidden => Code::PermissionDenied,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Conflict => Code::FailedPrecondition,
            ErrorKind::OutOfSpace => Code::ResourceExhausted,
            ErrorKind::Lost => Code::DataLoss,
            ErrorKind::Unavailable => Code::Unavailable,
            ErrorKind::Internal => Code::Internal,
        };
        Failure::new(code, message)
    }

    /// Whether it's that there's no such thing.
    pub fn is_not_found(&self) -> bool {
        self.code == Code::NotFound
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        Status::new(failure.code, failure.message)
    }
}
