//! Who uses a volume or a snapshot: what would hurt them is done by force only.

use super::failure::Failure;
use super::types::{ErrorKind, HoldsKnown, SnapshotInfo, VolumeInfo, route};
use super::{Context, volumes};
use std::time::{Duration, Instant};
use tepal_metadata::{ServerState, VolumeRecord};
use tepal_model::ServerId;

/// How long a client that hung up may take to be noticed, at a gateway too.
const HANG_UP: Duration = Duration::from_millis(2500);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// How long a server that neither answers nor is declared down is waited for, and one that was just started.
const BE_HEARD: Duration = Duration::from_secs(6);

/// What becomes of them if what they use is removed.
pub const GET_ERRORS: &str = "they get errors";

/// Of all servers, and of gateways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Users {
    /// Over NBD.
    clients: u64,
    imports: u64,
    exports: u64,
}

impl Users {
    /// Of the volume itself.
    pub fn of_volume(volume: &VolumeInfo) -> Self {
        Users { clients: volume.clients, imports: volume.imports, exports: volume.exports }
    }

    pub fn of_snapshot(snapshot: &SnapshotInfo) -> Self {
        Users { clients: snapshot.clients, imports: 0, exports: snapshot.exports }
    }

    pub fn and(self, other: Users) -> Self {
        Users {
            clients: self.clients + other.clients,
            imports: self.imports + other.imports,
            exports: self.exports + other.exports,
        }
    }

    fn said(self) -> Vec<String> {
        let uses = [
            (self.clients, "a client is connected", "clients are connected"),
            (self.imports, "an import writes to it", "imports write to it"),
            (self.exports, "an export or comparison reads it", "exports or comparisons read it"),
        ];
        let said = |(count, one, many): (u64, &str, &str)| match count {
            0 => None,
            1 => Some(one.to_owned()),
            _ => Some(format!("{count} {many}")),
        };
        uses.into_iter().filter_map(said).collect()
    }

    /// As a reason.
    pub fn told(self) -> String {
        format!("it's in use, {}", self.said().join(" and "))
    }

    /// `forced`: what becomes of them otherwise.
    pub fn refuse(self, what: &str, forced: &str) -> Result<(), Failure> {
        if self == Users::default() {
            return Ok(());
        }
        let uses = self.said().join(" and ");
        let error = format!("{what} is in use, {uses}: have that end first, or use --force, and {forced}");
        Err(Failure::new(ErrorKind::Conflict, error))
    }
}

/// Who has the volume itself open.
pub async fn of_volume(context: &Context, volume: &VolumeRecord) -> Result<Users, Failure> {
    Ok(Users::of_volume(&volumes::everywhere(context, &volume.by_id()).await?))
}

/// Who there is, once those are gone that have just hung up, and those are heard that a server has just begun to serve.
pub async fn that_stay<F: Future<Output = Result<Users, Failure>>>(
    context: &Context,
    users: impl Fn() -> F,
) -> Result<Users, Failure> {
    let begun = Instant::now();
    loop {
        let are_known = are_known(context).await; // before they are asked for
        let users = users().await?;
        let patience = match users == Users::default() {
            true if are_known => Duration::ZERO,
            true => BE_HEARD,
            false => HANG_UP,
        };
        if begun.elapsed() >= patience {
            return Ok(users);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Whether every server that is up, as it's agreed, has said that it knows who uses what. What a server knew that was killed is said to
/// another one by the time that the server is declared down.
async fn are_known(context: &Context) -> bool {
    let others = context.ask_others::<HoldsKnown>(route::HOLDS).await;
    let state = context.parts.metadata.state();
    let is_down = |id| state.servers.get(&id).is_none_or(|record| record.state == ServerState::Down);
    let is_known = |(id, said): (ServerId, Option<HoldsKnown>)| said.map_or_else(|| is_down(id), |said| said.known);
    context.holds.are_known() && others.into_iter().all(is_known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_stands_in_the_way_is_named() {
        let users = |clients, imports, exports| Users { clients, imports, exports };
        assert!(users(0, 0, 0).refuse("volume 'v'", GET_ERRORS).is_ok());
        for (users, said) in [
            (users(1, 0, 0), "a client is connected"),
            (users(2, 1, 0), "2 clients are connected and an import writes to it"),
            (users(0, 0, 3), "3 exports or comparisons read it"),
        ] {
            assert_eq!(users.said().join(" and "), said);
            assert!(users.refuse("volume 'v'", GET_ERRORS).is_err());
        }
    }
}
