//! What a client may say of when a request is to be carried out: once for each key (`Idempotency-Key`), and only while a thing is as the
//! client saw it (`If-Match`). Both go along with the commands that are agreed on, which look at them: nothing comes between.

use super::extract::{LONGEST, Named, body};
use super::failure::Failure;
use super::types::{BY_ID, VolumeInfo, route};
use super::{Context, Shared, snapshots, volumes};
use axum::Json;
use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ETAG, HeaderMap, IF_MATCH, LOCATION};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use ring::digest::{SHA256, digest};
use std::fmt::Write as _;
use tepal_metadata::{self as metadata, Command, ScheduleCommand, Versioned, volume_tag};
use tepal_model::VolumeId;

/// The header with the key.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// Bytes of a key.
const LONGEST_KEY: usize = 128;
/// Tags in one `If-Match`.
const MOST_TAGS: usize = 16;

/// What is created by POST there is created once for each key.
pub const KEYED: [&str; 6] =
    [route::POOLS, route::VOLUMES, route::SNAPSHOTS, route::SNAPSHOT_CLONE, route::IDENTITIES, route::SCHEDULES];

/// What is changed there by POST or DELETE is changed only if it has the tag that `If-Match` says.
pub const CONDITIONAL: [&str; 20] = [
    route::VOLUME,
    route::VOLUME_RESIZE,
    route::VOLUME_RENAME,
    route::VOLUME_RELAYOUT,
    route::VOLUME_FLATTEN,
    route::VOLUME_KEY,
    route::VOLUME_RIGHTS,
    route::SCHEDULE,
    route::SCHEDULE_PAUSE,
    route::SCHEDULE_RESUME,
    route::DRIVE,
    route::DRIVE_NAME,
    route::DRIVE_USE,
    route::SNAPSHOT,
    route::SNAPSHOT_RENAME,
    route::SNAPSHOT_ROLLBACK,
    route::POOL,
    route::POOL_KEY,
    route::POOL_RIGHTS,
    route::CLUSTER_RIGHTS,
];

tokio::task_local! {
    /// Of the request that this task carries out.
    static CONDITIONS: Conditions;
}

#[derive(Clone, Debug, Default)]
struct Conditions {
    /// The key, and a digest of what is asked for.
    once: Option<(String, String)>,
    /// What is to be changed, and the tags of which it has to have one.
    only_if: Option<(Versioned, Vec<String>)>,
}

/// The command, as the request that this task carries out wants it.
pub fn with(command: Command) -> Command {
    let Ok(Conditions { once, only_if }) = CONDITIONS.try_with(Conditions::clone) else { return command };
    let command = match only_if {
        Some((thing, expected)) => Command::IfMatch { thing, expected, command: Box::new(command) },
        None => command,
    };
    match once.filter(|_| creates(&command)) {
        Some((key, content)) => Command::Once { key, content, command: Box::new(command) },
        None => command,
    }
}

/// Whether the command does what its request is for: others only prepare it.
fn creates(command: &Command) -> bool {
    matches!(
        command,
        Command::CreatePool { .. }
            | Command::CreateVolume { .. }
            | Command::CreateEncrypted { .. }
            | Command::CreateForImport { .. }
            | Command::CreateSnapshot { .. }
            | Command::CloneVolume { .. }
            | Command::AddIdentity { .. }
            | Command::Schedule(ScheduleCommand::Create { .. })
    )
}

/// What of that goes along with a request that another server carries out in this one's place.
#[derive(Clone)]
pub struct Passed(pub Option<(String, String)>);

pub fn passed() -> Option<(String, String)> {
    CONDITIONS.try_with(|conditions| conditions.once.clone()).ok().flatten()
}

/// Has the request carried out under the conditions that its head says.
pub async fn attend(State(context): State<Shared>, path: MatchedPath, request: Request, next: Next) -> Response {
    let changes = request.method() != Method::GET && request.method() != Method::HEAD;
    if let Some(Passed(Some(once))) = request.extensions().get::<Passed>().cloned() {
        let conditions = Conditions { once: Some(once), only_if: None };
        return CONDITIONS.scope(conditions, next.run(request)).await;
    }
    let once = match request.method() {
        &Method::POST if KEYED.contains(&path.as_str()) => key(request.headers()),
        _ => Ok(None),
    };
    let only_if = match changes {
        true => {
            let called = called(request.uri().path());
            expected(&context, path.as_str(), called, tags(request.headers())).await
        }
        false => Ok(None),
    };
    let attended = async {
        let (once, only_if) = (once?, only_if?);
        let Some(key) = once else { return Ok((Conditions { once: None, only_if }, request)) };
        let (head, whole) = request.into_parts();
        let whole = body(Request::new(whole), LONGEST).await?;
        let asked = head.uri.path_and_query().map_or("", |asked| asked.as_str());
        let content = content(asked, &whole);
        let conditions = Conditions { once: Some((key, content)), only_if };
        Ok((conditions, Request::from_parts(head, Body::from(whole))))
    };
    match attended.await {
        Ok((conditions, request)) => CONDITIONS.scope(conditions, next.run(request)).await,
        Err(failure) => Failure::into_response(failure),
    }
}

/// A digest of what is asked for, in hexadecimal digits.
fn content(asked: &str, body: &[u8]) -> String {
    let whole = [asked.as_bytes(), b"\n", body].concat();
    digest(&SHA256, &whole).as_ref()[..16].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// With or without quotation marks: the draft of the header wants them, most clients send none.
fn key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default();
    let key = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    match (1..=LONGEST_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(Some(key.to_owned())),
        false => Err(Failure::bad(format!(
            "Idempotency-Key is not right: draw 1 to {LONGEST_KEY} letters, digits or signs without spaces, as a UUID"
        ))),
    }
}

/// What `If-Match` says, if it says something.
pub fn tags(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(IF_MATCH).iter().map(|value| value.to_str().unwrap_or("?"));
    values.flat_map(|list| list.split(',')).map(|tag| tag.trim().to_owned()).collect()
}

/// What is to be changed, and the tags of which it has to have one, if there is such a condition.
async fn expected(
    context: &Context,
    path: &str,
    called: Option<String>,
    tags: Vec<String>,
) -> Result<Option<(Versioned, Vec<String>)>, Failure> {
    if tags.is_empty() || tags == ["*"] {
        return Ok(None); // what isn't there isn't changed anyway
    }
    let unquoted = |tag: &String| tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).map(str::to_owned);
    let is_tag = |tag: &String| tag.len() <= LONGEST_KEY && unquoted(tag).is_some_and(|tag| !tag.contains('"'));
    if tags.len() > MOST_TAGS || !tags.iter().all(is_tag) {
        return Err(Failure::bad(
            "If-Match is not right: send the ETag of an earlier answer, with its quotation marks",
        ));
    }
    if !CONDITIONAL.contains(&path) {
        return Err(Failure::bad("If-Match isn't looked at here: leave it out"));
    }
    let called = called.ok_or_else(|| Failure::bad("the path has a name that is no text"))?;
    Ok(Some((thing(context, path, called).await?, tags)))
}

/// What a request to one of [`CONDITIONAL`] would change.
async fn thing(context: &Context, path: &str, called: String) -> Result<Versioned, Failure> {
    Ok(match path {
        route::SCHEDULE | route::SCHEDULE_PAUSE | route::SCHEDULE_RESUME => Versioned::Schedule(called),
        route::DRIVE | route::DRIVE_NAME | route::DRIVE_USE => Versioned::Drive(Named(called).parse()?),
        route::SNAPSHOT | route::SNAPSHOT_RENAME => {
            let (volume, snapshot) = snapshots::record(context, &Named(called).snapshot()?).await?;
            Versioned::Snapshot(volume.id, snapshot.epoch)
        }
        // It's the volume that would hold something else.
        route::SNAPSHOT_ROLLBACK => {
            Versioned::Volume(snapshots::record(context, &Named(called).snapshot()?).await?.0.id)
        }
        route::POOL | route::POOL_KEY => Versioned::Pool(called),
        route::POOL_RIGHTS => Versioned::PoolRights(called),
        route::CLUSTER_RIGHTS => Versioned::ClusterRights,
        route::VOLUME_RIGHTS => Versioned::Rights(volumes::record(context, &called).await?.id),
        _ => Versioned::Volume(volumes::record(context, &called).await?.id),
    })
}

/// The name in a path, as `/v1/volumes/{name}/resize` has it.
fn called(path: &str) -> Option<String> {
    super::host::decoded(path.split('/').nth(3)?)
}

/// An answer that says the tag of what it shows.
pub struct Tagged<T>(pub T);

impl IntoResponse for Tagged<VolumeInfo> {
    fn into_response(self) -> Response {
        let tag = volume_tag(VolumeId(self.0.id), self.0.revision);
        ([(ETAG, tag)], Json(self.0)).into_response()
    }
}

/// An answer about a thing whose tag is agreed.
pub fn tagged<T: IntoResponse>(state: &metadata::State, thing: &Versioned, answer: T) -> Response {
    let mut response = answer.into_response();
    let tag = state.tag_of(thing).and_then(|tag| HeaderValue::try_from(tag).ok());
    if let Some(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

/// 202: it goes on, and may be looked at there.
pub fn begun(location: String, answer: impl IntoResponse) -> Response {
    (StatusCode::ACCEPTED, [(LOCATION, location)], answer).into_response()
}

/// Where a volume is, whatever it's called by then.
pub fn place_of(volume: &VolumeInfo) -> String {
    super::types::path(route::VOLUME, &format!("{BY_ID}{}", volume.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name.parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))])
    }

    #[test]
    fn keys_are_read_with_and_without_quotation_marks() {
        for (value, read) in [("abc-1", Some("abc-1")), ("\"abc-1\"", Some("abc-1")), ("", None), ("a b", None)] {
            assert_eq!(key(&head(IDEMPOTENCY_KEY, value)).ok().flatten().as_deref(), read, "{value}");
        }
        assert!(key(&head(IDEMPOTENCY_KEY, &"k".repeat(LONGEST_KEY + 1))).is_err());
        assert!(key(&HeaderMap::new()).is_ok_and(|key| key.is_none()));
    }

    #[test]
    fn requests_for_other_things_have_other_contents() {
        let one = content("/v1/volumes", b"{}");
        assert_eq!((one.len(), &one), (32, &content("/v1/volumes", b"{}")));
        assert_ne!(one, content("/v1/volumes", b"{ }"));
        assert_ne!(one, content("/v1/pools", b"{}"));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn only_the_command_that_creates_takes_the_key() {
        let conditions = Conditions { once: Some(("k".to_owned(), "c".to_owned())), only_if: None };
        let both = CONDITIONS.scope(conditions, async {
            let authority = Command::AddAuthority { certificate: String::new(), server: tepal_model::ServerId(1) };
            (with(authority), with(Command::CreatePool { name: "p".to_owned(), layout: None }))
        });
        let (prepares, creates) = both.await;
        assert!(matches!(prepares, Command::AddAuthority { .. }));
        assert!(matches!(creates, Command::Once { key, .. } if key == "k"));
    }
}
