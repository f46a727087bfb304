//! Errors as the API answers them: one line for people, a kind for programs.

use super::types::{ErrorKind, PROBLEM_JSON, Problem, ProblemType, Revisions};
use crate::access::{AccessError, AuthorityError};
use crate::data_threads::Stopped;
use crate::device;
use crate::drives::DriveOperationError;
use crate::keys::KeyError;
use axum::http::header::{CONTENT_TYPE, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use tepal_drive::GrowError;
use tepal_metadata::{ProposeError, QueryError, Refusal, ScheduleRefusal};
use tepal_model::IoError;

#[derive(Debug)]
pub struct Failure {
    of: ProblemType,
    text: String,
    revisions: Option<Box<Revisions>>,
}

impl Failure {
    pub fn new(kind: ErrorKind, error: impl ToString) -> Self {
        Failure::of_type(ProblemType::of(kind), error)
    }

    pub fn of_type(of: ProblemType, error: impl ToString) -> Self {
        Failure { of, text: error.to_string().replace(['\n', '\r'], " "), revisions: None }
    }

    /// As [`Refusal::OtherRevision`].
    fn of_other_revision(expected: &str, current: &str, text: impl ToString) -> Self {
        let both = Revisions { expected: expected.to_owned(), current: current.to_owned() };
        Failure { revisions: Some(Box::new(both)), ..Failure::of_type(ProblemType::PreconditionFailed, text) }
    }

    pub fn kind(&self) -> ErrorKind {
        self.of.kind()
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn bad(error: impl ToString) -> Self {
        Failure::new(ErrorKind::BadRequest, error)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let Failure { of, text, revisions } = self;
        let status = StatusCode::from_u16(of.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let problem = Problem { revisions: revisions.map(|both| *both), ..Problem::new(of, text) };
        let mut response = (status, axum::Json(problem)).into_response();
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if of == ProblemType::Unauthorized {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::OtherRevision { expected, current } => Failure::of_other_revision(expected, current, &refusal),
            Refusal::KeyReused(_) => Failure::of_type(ProblemType::KeyReused, refusal),
            _ => Failure::new(kind_of_refusal(&refusal), said_of(&refusal)),
        }
    }
}

/// With what to type, where the rule alone doesn't say that.
fn said_of(refusal: &Refusal) -> String {
    match refusal {
        Refusal::NoSnapshot { volume, name } => {
            format!("there is no snapshot '{name}' of volume '{volume}': `tepal snapshot ls {volume}` lists them")
        }
        Refusal::VolumeHasSnapshots { name, .. } => {
            format!("{refusal}: `tepal snapshot rm {name}@SNAP`, or `tepal volume rm {name} --snapshots`")
        }
        Refusal::TooManySnapshots { volume, .. } => format!("{refusal}: `tepal snapshot rm {volume}@SNAP`"),
        _ => refusal.to_string(),
    }
}

#[expect(clippy::too_many_lines, reason = "a table: a line for each refusal")]
fn kind_of_refusal(refusal: &Refusal) -> ErrorKind {
    match refusal {
        Refusal::NoServer(_)
        | Refusal::NoDrive(_)
        | Refusal::NoPool(_)
        | Refusal::NoVolume(_)
        | Refusal::NoVolumeId(_)
        | Refusal::NoSnapshot { .. }
        | Refusal::NoIdentity(_)
        | Refusal::NoJoinToken
        | Refusal::NoGrant { .. }
        | Refusal::NoGrantOn { .. }
        | Refusal::NoSuchAuthority(_)
        | Refusal::NoOutsideAuthority(_)
        | Refusal::NoMap(_)
        | Refusal::NoColumn { .. }
        | Refusal::NoMove { .. }
        | Refusal::Schedule(ScheduleRefusal::None(_))
        | Refusal::NoMigration(_) => ErrorKind::NotFound,
        Refusal::ClusterExists { .. }
        | Refusal::NoCluster
        | Refusal::ServerIsUp(_)
        | Refusal::ServerChanged { .. }
        | Refusal::ServerHasDrives { .. }
        | Refusal::LastServer(_)
        | Refusal::ServerAlready { .. }
        | Refusal::DriveExists { .. }
        | Refusal::DriveNameTaken { .. }
        | Refusal::NotNamed(_)
        | Refusal::LayoutUnderWay { .. }
        | Refusal::NoReplacement { .. }
        | Refusal::DriveInUse { .. }
        | Refusal::DriveOlder { .. }
        | Refusal::Transition { .. }
        | Refusal::ViewNeeded { .. }
        | Refusal::DriveChanged { .. }
        | Refusal::ViewChanged { .. }
        | Refusal::LastCopy { .. }
        | Refusal::LastCompleteCopy { .. }
        | Refusal::NothingLost { .. }
        | Refusal::NotHolder { .. }
        | Refusal::HolderAlready { .. }
        | Refusal::ColumnMoves { .. }
        | Refusal::SharesDomain { .. }
        | Refusal::DriveNotUp { .. }
        | Refusal::DriveDraining(_)
        | Refusal::PoolExists(_)
        | Refusal::AuthorityExists { .. }
        | Refusal::NoAuthority
        | Refusal::Rotating { .. }
        | Refusal::NotLeaving(_)
        | Refusal::OutsideAuthorityExists(_)
        | Refusal::TooManyOutside { .. }
        | Refusal::TooManyGrantsOn { .. }
        | Refusal::IsOutside(_)
        | Refusal::IdentityExists(_)
        | Refusal::IdentityRevoked(_)
        | Refusal::Reserved { .. }
        | Refusal::Fenced { .. }
        | Refusal::OfMember { .. }
        | Refusal::NotHolding { .. }
        | Refusal::TooManyIdentities { .. }
        | Refusal::TooManyGrants { .. }
        | Refusal::KeyTaken { .. }
        | Refusal::NotEncrypted(_)
        | Refusal::JoinTokenUsed
        | Refusal::JoinTokenExpired
        | Refusal::TooManyJoinTokens { .. }
        | Refusal::KeyChanged(_)
        | Refusal::PoolInUse { .. }
        | Refusal::VolumeExists(_)
        | Refusal::NotDeleting(_)
        | Refusal::Shrink { .. }
        | Refusal::NotCleared(_)
        | Refusal::ImportChanged(_)
        | Refusal::Live(_)
        | Refusal::NotLive(_)
        | Refusal::LiveCancelled(_)
        | Refusal::LiveHalfway(_)
        | Refusal::Incomplete(_)
        | Refusal::SnapshotExists { .. }
        | Refusal::TooManySnapshots { .. }
        | Refusal::VolumeHasSnapshots { .. }
        | Refusal::ClonesTooDeep { .. }
        | Refusal::GapsStay { .. }
        | Refusal::GapsWaitForMigration(_)
        | Refusal::GapsWaitForRanges(_)
        | Refusal::HasRanges { .. }
        | Refusal::FlattenOfRanges(_)
        | Refusal::RangeOfPlexes(_)
        | Refusal::RangeOfSeveral { .. }
        | Refusal::TooManyRanges { .. }
        | Refusal::NoEpochsLeft(_)
        | Refusal::NoDrives(_)
        | Refusal::MigratesAlready { .. }
        | Refusal::ComesBack { .. }
        | Refusal::SameLayout { .. }
        | Refusal::NotShared(_)
        | Refusal::CannotLeave(_)
        | Refusal::Flattening(_)
        | Refusal::NotOfQuorum { .. }
        | Refusal::DriveOfQuorum { .. }
        | Refusal::FlattenedFrom(_)
        | Refusal::WindowChanged { .. }
        | Refusal::MigrationStage(_)
        | Refusal::GrownSince(_)
        | Refusal::IsReplica { .. }
        | Refusal::OtherReplica { .. }
        | Refusal::NoReplica(_)
        | Refusal::NothingWhole(_)
        | Refusal::NoMapsLeft
        | Refusal::NoServersLeft
        | Refusal::StateTooLong { .. }
        | Refusal::ServerReplaced(_)
        | Refusal::FolderOld(_)
        | Refusal::Schedule(
            ScheduleRefusal::Exists(_)
            | ScheduleRefusal::TooMany { .. }
            | ScheduleRefusal::Other(_)
            | ScheduleRefusal::Changed(_)
            | ScheduleRefusal::NotCovered { .. }
            | ScheduleRefusal::NotMade { .. }
            | ScheduleRefusal::Kept { .. }
            | ScheduleRefusal::HasClones { .. },
        )
        | Refusal::OtherRevision { .. }
        | Refusal::Late => ErrorKind::Conflict,
        Refusal::ClusterId
        | Refusal::Lease { .. }
        | Refusal::Address(_)
        | Refusal::Capacity { .. }
        | Refusal::Path(_)
        | Refusal::Name { .. }
        | Refusal::WrappedKey { .. }
        | Refusal::Limits(_)
        | Refusal::Scope(_)
        | Refusal::Subject { .. }
        | Refusal::OutsideServer
        | Refusal::JoinTokenTime { .. }
        | Refusal::ConnectionsOfVolume
        | Refusal::LimitOfRole { .. }
        | Refusal::Size { .. }
        | Refusal::SizeOfStripes { .. }
        | Refusal::SizeOfPlexes { .. }
        | Refusal::NoSuchRange { .. }
        | Refusal::RangeNotWhole { .. }
        | Refusal::Layout { .. }
        | Refusal::SyncQuorum(_)
        | Refusal::NoSites { .. }
        | Refusal::ChainedDomain { .. }
        | Refusal::NoWindow { .. }
        | Refusal::Rate
        | Refusal::Certificate { .. }
        | Refusal::TooManyGroups { .. }
        | Refusal::NotReplicated
        | Refusal::KeyReused(_)
        | Refusal::Schedule(ScheduleRefusal::Name { .. } | ScheduleRefusal::Rule { .. })
        | Refusal::LiveLayout(_)
        | Refusal::LiveAddress { .. }
        | Refusal::TooLong { .. } => ErrorKind::BadRequest,
    }
}

impl From<ProposeError> for Failure {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::Refused(refusal) => refusal.into(),
            ProposeError::NoMajority { .. } | ProposeError::Unknown | ProposeError::Stopped => {
                Failure::new(ErrorKind::Unavailable, error)
            }
            ProposeError::NoRoom { .. } => Failure::new(ErrorKind::OutOfSpace, error),
            ProposeError::Storage(_) | ProposeError::Expelled(_) => Failure::new(ErrorKind::Internal, error),
        }
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Propose(error) => error.into(),
            AccessError::Authority(AuthorityError::PublicKey | AuthorityError::Name(_)) => Failure::bad(error),
            AccessError::NoKey { .. } => Failure::new(ErrorKind::Unavailable, error),
            error => Failure::new(ErrorKind::Internal, error),
        }
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        let kind = match error {
            KeyError::Name(_) => ErrorKind::BadRequest,
            _ => ErrorKind::Conflict,
        };
        Failure::new(kind, error)
    }
}

impl From<Stopped> for Failure {
    fn from(stopped: Stopped) -> Self {
        Failure::new(ErrorKind::Unavailable, stopped)
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        let kind = match error {
            IoError::OutOfRange { .. } | IoError::Unaligned { .. } => ErrorKind::BadRequest,
            IoError::ReadOnly | IoError::NotAllowed => ErrorKind::Conflict,
            IoError::OutOfSpace => ErrorKind::OutOfSpace,
            IoError::Damaged { .. } => ErrorKind::Internal,
            IoError::Lost { .. } => ErrorKind::Lost,
            IoError::Unavailable { .. } | IoError::Unsure | IoError::NotNow | IoError::Stopping => {
                ErrorKind::Unavailable
            }
            IoError::Fenced => ErrorKind::NotFound,
        };
        Failure::new(kind, error)
    }
}

impl From<QueryError> for Failure {
    fn from(error: QueryError) -> Self {
        let kind = match error {
            QueryError::Empty
            | QueryError::LongQuery(_)
            | QueryError::Invalid(_)
            | QueryError::NotReading
            | QueryError::TooMuch { .. }
            | QueryError::TooLong(_) => ErrorKind::BadRequest,
            QueryError::Stopped => ErrorKind::Unavailable,
            QueryError::Storage(_) => ErrorKind::Internal,
        };
        Failure::new(kind, error)
    }
}

impl From<DriveOperationError> for Failure {
    fn from(error: DriveOperationError) -> Self {
        use DriveOperationError as E;
        let kind = match error {
            E::Metadata(error) => return error.into(),
            E::Path(_) | E::TooSmall { .. } => ErrorKind::BadRequest,
            E::Create(device::CreateError::Exists { .. }) => ErrorKind::Conflict,
            E::Create(device::CreateError::TooLarge { .. }) => ErrorKind::OutOfSpace,
            E::Create(_) => ErrorKind::BadRequest,
            E::Device(device::OpenError::InUse { .. }) => ErrorKind::Conflict,
            E::Device(device::OpenError::NotFound { .. }) | E::Unknown(_) | E::NoPool(_) => ErrorKind::NotFound,
            E::Device(_) | E::Open { .. } => ErrorKind::BadRequest,
            E::Refused { .. }
            | E::Ahead { .. }
            | E::Later { .. }
            | E::NoRoomForState { .. }
            | E::NotEmpty { .. }
            | E::IsLog { .. }
            | E::LabelLost { .. }
            | E::InUse { .. }
            | E::Recorded { .. }
            | E::NotThere { .. }
            | E::OnOtherServer { .. }
            | E::OfAbsent { .. }
            | E::NotInUse { .. }
            | E::NotOffline { .. } => ErrorKind::Conflict,
            E::Grow { why: GrowError::Device(_), .. } => ErrorKind::Internal,
            E::Grow { .. } => ErrorKind::Conflict,
            E::Stopped(_) => ErrorKind::Unavailable,
            E::Io { .. } | E::Generations(_) => ErrorKind::Internal,
        };
        Failure::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_that_could_be_better_is_called_a_bad_one() {
        let name = || "v0".to_owned();
        let cases = [
            (Refusal::NoVolume(name()), ErrorKind::NotFound),
            (Refusal::VolumeExists(name()), ErrorKind::Conflict),
            (Refusal::NoDrives(name()), ErrorKind::Conflict),
            (Refusal::NoMapsLeft, ErrorKind::Conflict),
            (Refusal::Size { size: 1 }, ErrorKind::BadRequest),
            (Refusal::SnapshotExists { volume: name(), name: "a".to_owned() }, ErrorKind::Conflict),
        ];
        for (refusal, kind) in cases {
            let text = refusal.to_string();
            let answer: Failure = ProposeError::Refused(refusal).into();
            assert_eq!((answer.kind(), answer.text()), (kind, &*text));
        }
        let answer: Failure = Refusal::VolumeHasSnapshots { name: name(), snapshots: 3 }.into();
        assert!(answer.text().contains("3 snapshots") && answer.text().contains("`tepal volume rm v0 --snapshots`"));
        let answer: Failure = Refusal::NoSnapshot { volume: name(), name: "a".to_owned() }.into();
        assert_eq!(answer.kind(), ErrorKind::NotFound);
        assert!(answer.text().starts_with("there is no snapshot 'a' of volume 'v0': `tepal snapshot ls v0`"));
        let answer: Failure = ProposeError::Storage("the disk\nis gone".into()).into();
        assert_eq!(answer.kind(), ErrorKind::Internal);
        assert!(!answer.text().contains('\n'), "one line for people: {}", answer.text());
    }
}
