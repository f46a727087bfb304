//! How a server with an empty folder comes into the cluster: through any server.

use crate::command::{Command, Reply};
use crate::facade::propose::ProposeError;
use crate::folder::{self, FolderError};
use crate::log_store::Identity;
use crate::member::Member;
use crate::peers::Transport;
use crate::peers::message::{Answer, Envelope, Join, Joined, Reason, Request};
use crate::peers::network::{self, CallError};
use crate::refusal::Refusal;
use openraft::type_config::async_runtime::watch::WatchReceiver;
use std::path::Path;
use std::time::Duration;
use tepal_model::{ClusterId, ServerId};

/// Who wants to join what.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// The cluster that is meant, if it matters which one answers.
    pub cluster: Option<ClusterId>,
    /// Its name, as a second check.
    pub name: Option<String>,
    /// Servers of the cluster, by address: the first that answers is asked.
    pub through: Vec<String>,
    /// Where this server will be reached.
    pub address: String,
    /// Join as this server: the next one that the cluster would have, or one that is down and whose folder is lost.
    pub claim: Option<ServerId>,
}

/// Why a server didn't join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Fix the request, or the folder.
    #[error("the cluster doesn't take this server: {0}")]
    Refused(String),
    /// Ask again: what was begun is gone on with.
    #[error("no server of the cluster answers: {0}")]
    Unreachable(String),
    /// Ask again: a server is found to be down only when it has been silent for a while.
    #[error("the cluster doesn't take this server yet: {0}")]
    StillUp(Refusal),
    /// The folder can't be used.
    #[error(transparent)]
    Open(#[from] crate::facade::OpenError),
}

/// How long a server is waited for; it may have to find a leader first.
const WITHIN: Duration = Duration::from_secs(8);

/// Asks to be let in, and makes the folder of a server of that cluster.
pub async fn join(dir: &Path, request: &JoinRequest, transport: &dyn Transport) -> Result<(), JoinError> {
    let folder = blocking(dir, folder::reserve).await?;
    let join = Join { name: request.name.clone(), folder, address: request.address.clone(), claim: request.claim };
    let asked = Envelope { cluster: request.cluster, from: None, to: None, request: Request::Join(join) };
    let joined = ask(&asked, &request.through, transport).await?;
    let identity = Identity {
        cluster: joined.cluster,
        name: joined.name,
        server: joined.server,
        incarnation: joined.incarnation,
        folder,
        history: joined.history,
        address: request.address.clone(),
        created_unix_ms: joined.created_unix_ms,
        joined: Some(joined.voters),
    };
    blocking(dir, move |dir| folder::create(dir, &identity)).await?;
    Ok(())
}

async fn blocking<R: Send + 'static>(
    dir: &Path,
    body: impl FnOnce(&Path) -> Result<R, FolderError> + Send + 'static,
) -> Result<R, JoinError> {
    let owned = dir.to_owned();
    Ok(crate::facade::blocking(dir, move || body(&owned)).await?)
}

async fn ask(asked: &Envelope, through: &[String], transport: &dyn Transport) -> Result<Joined, JoinError> {
    let mut unreachable = Vec::new();
    for address in through {
        match network::call(transport, address, asked, &[], WITHIN).await {
            Ok(Answer::Joined(joined)) => return Ok(joined),
            Err(CallError::Refused(Reason::Command(refusal @ Refusal::ServerIsUp(_)))) => {
                return Err(JoinError::StillUp(refusal));
            }
            Err(CallError::Refused(
                reason @ (Reason::OtherCluster { .. } | Reason::Command(_) | Reason::Unreadable(_)),
            )) => {
                return Err(JoinError::Refused(reason.to_string()));
            }
            Ok(_) => unreachable.push(format!("{address}: {}", CallError::Unexpected)),
            Err(error) => unreachable.push(format!("{address}: {error}")),
        }
    }
    Err(JoinError::Unreachable(unreachable.join("; ")))
}

/// Lets a server in, on its behalf.
pub async fn answer(member: &Member, join: Join) -> Result<Answer, Reason> {
    let identity = &member.identity;
    if join.name.as_ref().is_some_and(|name| *name != identity.name) {
        return Err(Reason::OtherCluster { id: identity.cluster, name: identity.name.clone() });
    }
    if !*member.vouched.borrow() || !member.state.borrow().is_set_up() {
        return Err(Reason::NotReady);
    }
    let command = Command::JoinServer { folder: join.folder, address: join.address, claim: join.claim };
    let (server, incarnation) = match tokio::time::timeout(WITHIN, member.propose(command)).await {
        Ok(Ok(Reply::ServerJoined { id, incarnation })) => (id, incarnation),
        Ok(Err(ProposeError::Refused(refusal))) => return Err(Reason::Command(refusal)),
        _ => return Err(Reason::NotReady),
    };
    let metrics = member.raft.server_metrics();
    let voters: Vec<u64> = metrics.borrow_watched().membership_config.membership().voter_ids().collect();
    let voters = voters.into_iter().map(|node| (node, member.newest_address(node)));
    Ok(Answer::Joined(Joined {
        cluster: identity.cluster,
        name: identity.name.clone(),
        created_unix_ms: identity.created_unix_ms,
        history: identity.history,
        server,
        incarnation,
        voters: voters.collect(),
    }))
}
