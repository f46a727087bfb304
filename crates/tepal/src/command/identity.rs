//! `tepal identity`, and `tepal volume grant`, `revoke`, `rights` and `fence`.

use super::{CommandError, limit};
use crate::cli::{AuthorityCommand, FilesArguments, Global, IdentityCommand};
use crate::client::Client;
use crate::locate;
use crate::output::{self, Outcome, Output};
use rcgen::{KeyPair, PublicKeyData};
use serde::Serialize;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use tepal_server::api::types::{
    AuthoritiesInfo, CreateIdentity, CreateOutsideIdentity, Done, Grant, IdentityCertificate, IdentityInfo,
    OutsideAuthority, OutsideSubject, RenewIdentity, Right, RightInfo, Role, ScopeRightInfo, path, route,
};

#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} holds the key of an identity already: name another folder", .0.display())]
    Occupied(PathBuf),
    #[error("a key can't be made: {0}")]
    Key(#[from] rcgen::Error),
    #[error(
        "identity '{name}' has its certificate, but it can't be written: {error}. `tepal identity renew {name}` makes another one"
    )]
    Unwritten { name: String, error: Box<IdentityError> },
}

/// What a command prints that has written files.
#[derive(Serialize)]
struct Written<'a> {
    name: &'a str,
    folder: &'a Path,
}

/// A bundle on standard output.
#[derive(Serialize)]
struct Bundle {
    certificate: String,
    key: String,
    authority: String,
}

pub fn run(global: &Global, output: Output, command: IdentityCommand) -> Result<Outcome, CommandError> {
    let client = locate::client(global)?;
    match command {
        IdentityCommand::Create(arguments) => {
            let (name, role, groups) = (arguments.name.clone(), arguments.role(), arguments.groups.clone());
            if let (Some(authority), Some(subject)) = (arguments.authority, arguments.subject) {
                create_outside(&client, output, (name, role, groups), OutsideSubject { authority, subject })?;
                return Ok(Outcome::Done);
            }
            let (days, addresses) = (arguments.files.days, arguments.files.addresses.clone());
            let asked = |key| CreateIdentity { name: arguments.name.clone(), role, groups, key, days, addresses };
            issue(&client, output, (&name, route::IDENTITIES), &arguments.files, asked)?;
        }
        IdentityCommand::Ls => {
            let identities: Vec<IdentityInfo> = client.get(route::IDENTITIES)?;
            output.show(&identities, |identities| list(identities))?;
        }
        IdentityCommand::Renew { name, files } => {
            let (days, addresses) = (files.days, files.addresses.clone());
            let asked = |key| RenewIdentity { key, days, addresses };
            issue(&client, output, (&name, &path(route::IDENTITY_RENEW, &name)), &files, asked)?;
        }
        IdentityCommand::Limit { name, limits, connections } => {
            limit::identity(&client, output, &name, (&limits, connections))?;
        }
        IdentityCommand::Ca(command) => authority(&client.patient(), output, command)?,
        IdentityCommand::Revoke { name } => {
            let done: Done = client.delete(&path(route::IDENTITY, &name))?;
            output.show(&done, |_| format!("identity {name} is revoked: it may do nothing any more"))?;
        }
    }
    Ok(Outcome::Done)
}

fn create_outside(
    client: &Client,
    output: Output,
    (name, role, groups): (String, Role, Vec<String>),
    outside: OutsideSubject,
) -> Result<(), CommandError> {
    let asked = CreateOutsideIdentity { name, role, groups, outside: outside.clone() };
    let made: IdentityInfo = client.post(route::OUTSIDE_IDENTITIES, &asked)?;
    output.show(&made, |made| {
        format!(
            "identity {} is who has a certificate of authority {} for '{}'",
            made.name, outside.authority, outside.subject
        )
    })?;
    Ok(())
}

fn authority(client: &Client, output: Output, command: AuthorityCommand) -> Result<(), CommandError> {
    let own = |info: &AuthoritiesInfo| info.own.last().map_or(0, |newest| newest.number);
    match command {
        AuthorityCommand::Ls => {
            let info: AuthoritiesInfo = client.get(route::AUTHORITIES)?;
            output.show(&info, authorities)?;
        }
        AuthorityCommand::Rotate => {
            let info: AuthoritiesInfo = client.post(route::AUTHORITIES_ROTATE, &serde_json::json!({}))?;
            output.show(&info, |info| {
                format!(
                    "authority {} is made and trusted: renew the identities (`tepal identity renew`), then `tepal identity ca finish`",
                    own(info)
                )
            })?;
        }
        AuthorityCommand::Finish => {
            let info: AuthoritiesInfo = client.post(route::AUTHORITIES_FINISH, &serde_json::json!({}))?;
            output.show(&info, |info| format!("authority {} is the only one that is trusted", own(info)))?;
        }
        AuthorityCommand::Add { name, file } => {
            let certificate = std::fs::read_to_string(&file);
            let certificate = certificate.map_err(|error| IdentityError::File { path: file, error })?;
            let asked = OutsideAuthority { name: name.clone(), certificate };
            let done: Done = client.post(route::OUTSIDE_AUTHORITIES, &asked)?;
            output.show(&done, |_| format!("authority {name} says who people are, once identities name them"))?;
        }
        AuthorityCommand::Rm { name } => {
            let done: Done = client.delete(&path(route::OUTSIDE_AUTHORITY, &name))?;
            output.show(&done, |_| format!("authority {name} isn't trusted any more"))?;
        }
    }
    Ok(())
}

fn authorities(info: &AuthoritiesInfo) -> String {
    let own = info.own.iter().map(|own| {
        let is_presented = Some(own.number) == info.presented;
        let state = match (own.leaving, is_presented) {
            (true, _) => "leaving",
            (false, true) => "signs for servers",
            (false, false) => "trusted",
        };
        vec![own.number.to_string(), format!("key on {}", own.server), state.to_owned(), own.fingerprint.clone()]
    });
    let fingerprint =
        |authority: &OutsideAuthority| tepal_server::fingerprint(&authority.certificate).unwrap_or_default();
    let others = info.outside.iter().map(|other| {
        vec![other.name.clone(), "of others".to_owned(), "says who people are".to_owned(), fingerprint(other)]
    });
    output::table(&["authority", "whose", "state", "fingerprint"], own.chain(others))
}

/// Where rights on more than a volume are told and changed.
pub fn scope_route(pool: Option<&str>) -> String {
    pool.map_or_else(|| route::CLUSTER_RIGHTS.to_owned(), |pool| path(route::POOL_RIGHTS, pool))
}

/// On a pool, or on the whole cluster.
pub fn grant_on(
    client: &Client,
    output: Output,
    pool: Option<&str>,
    (right, to): (Right, String),
) -> Result<(), CommandError> {
    let done: Done = client.post(&scope_route(pool), &Grant { to: to.clone(), right })?;
    let on = pool.map_or_else(|| "every volume".to_owned(), |pool| format!("every volume of pool {pool}"));
    output.show(&done, |_| format!("{to} may {right} {on}, also those to come"))?;
    Ok(())
}

pub fn revoke_on(client: &Client, output: Output, pool: Option<&str>, to: &str) -> Result<(), CommandError> {
    let done: Done = client.delete(&(scope_route(pool) + &path("?to={to}", to)))?;
    let on = pool.map_or_else(|| "the cluster".to_owned(), |pool| format!("pool {pool}"));
    output.show(&done, |_| format!("what was granted to {to} on {on} is taken away"))?;
    Ok(())
}

pub fn rights_on(client: &Client, output: Output, pool: Option<&str>) -> Result<(), CommandError> {
    let rights: Vec<ScopeRightInfo> = client.get(&scope_route(pool))?;
    let row = |right: &ScopeRightInfo| vec![right.to.clone(), right.right.to_string()];
    output.show(&rights, |rights| output::table(&["who", "right"], rights.iter().map(row)))?;
    Ok(())
}

/// Makes a key here, has it certified, and leaves both where they were asked for.
fn issue<T: Serialize>(
    client: &Client,
    output: Output,
    (name, route): (&str, &str),
    files: &FilesArguments,
    asked: impl FnOnce(String) -> T,
) -> Result<(), CommandError> {
    if let Some(folder) = &files.to {
        prepare(folder)?;
    }
    let pair = KeyPair::generate().map_err(IdentityError::from)?;
    let IdentityCertificate { certificate, authority } = client.post(route, &asked(public_digits(&pair)))?;
    let bundle = Bundle { certificate, key: pair.serialize_pem(), authority };
    match &files.to {
        None => output.show(&bundle, |Bundle { certificate, key, authority }| {
            format!("{}\n{}\n{}", certificate.trim_end(), key.trim_end(), authority.trim_end())
        })?,
        Some(folder) => {
            let unwritten = |error| IdentityError::Unwritten { name: name.to_owned(), error: Box::new(error) };
            write(folder, &bundle).map_err(unwritten)?;
            output.show(&Written { name, folder }, |Written { name, folder }| {
                format!("identity {name} has its certificate and key in {}", folder.display())
            })?;
        }
    }
    Ok(())
}

/// The public key, as the API takes it.
pub fn public_digits(pair: &KeyPair) -> String {
    pair.der_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

const KEY: &str = "client-key.pem";

/// Before the cluster knows anybody whose key can't be kept.
fn prepare(folder: &Path) -> Result<(), IdentityError> {
    let failed = |error| IdentityError::File { path: folder.to_owned(), error };
    match DirBuilder::new().mode(0o700).recursive(true).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(failed(error)),
        _ if folder.join(KEY).exists() => Err(IdentityError::Occupied(folder.to_owned())),
        _ => tempfile::tempfile_in(folder).map(drop).map_err(failed),
    }
}

fn write(folder: &Path, bundle: &Bundle) -> Result<(), IdentityError> {
    let files = [("ca-cert.pem", &bundle.authority), ("client-cert.pem", &bundle.certificate), (KEY, &bundle.key)];
    for (name, text) in files {
        let path = folder.join(name);
        let mode = if name == KEY { 0o600 } else { 0o644 };
        let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&path);
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        written.map_err(|error| IdentityError::File { path, error })?;
    }
    Ok(())
}

pub fn grant(client: &Client, output: Output, volume: &str, right: Right, to: String) -> Result<(), CommandError> {
    let asked = Grant { to: to.clone(), right };
    let done: Done = client.post(&path(route::VOLUME_RIGHTS, volume), &asked)?;
    output.show(&done, |_| format!("{to} may {right} volume {volume}"))?;
    Ok(())
}

pub fn revoke(client: &Client, output: Output, volume: &str, to: &str) -> Result<(), CommandError> {
    let asked = path(route::VOLUME_RIGHTS, volume) + &path("?to={to}", to);
    let done: Done = client.delete(&asked)?;
    output.show(&done, |_| format!("{to} has no right to volume {volume} any more"))?;
    Ok(())
}

pub fn fence(client: &Client, output: Output, volume: &str, from: Option<&str>) -> Result<(), CommandError> {
    let asked =
        path(route::VOLUME_RESERVATION, volume) + &from.map_or(String::new(), |from| path("?from={from}", from));
    let done: Done = client.delete(&asked)?;
    output.show(&done, |_| format!("whoever used volume {volume} is cut off"))?;
    Ok(())
}

pub fn rights(client: &Client, output: Output, volume: &str) -> Result<(), CommandError> {
    let rights: Vec<RightInfo> = client.get(&path(route::VOLUME_RIGHTS, volume))?;
    let row = |right: &RightInfo| vec![right.to.clone(), right.right.to_string()];
    output.show(&rights, |rights| output::table(&["who", "right"], rights.iter().map(row)))?;
    Ok(())
}

fn list(identities: &[IdentityInfo]) -> String {
    let row = |identity: &IdentityInfo| {
        let rights = match identity.role {
            Role::Host => {
                let on_volumes = identity.rights.iter().map(|right| format!("{}:{}", right.volume, right.right));
                let on_scopes = identity.scope_rights.iter().map(|right| format!("{}:{}", right.scope, right.right));
                on_volumes.chain(on_scopes).collect()
            }
            Role::Operator | Role::Server => vec!["all".to_owned()],
            Role::Revoked => vec![],
        };
        let made = output::time(identity.created_unix_ms);
        vec![identity.name.clone(), identity.role.to_string(), identity.groups.join(" "), rights.join(" "), made]
    };
    output::table(&["name", "role", "groups", "rights", "created (utc)"], identities.iter().map(row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_its_owners_alone_and_never_overwritten() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("web1");
        prepare(&folder).expect("made");
        let [certificate, key, authority] = ["c", "k", "a"].map(str::to_owned);
        write(&folder, &Bundle { certificate, key, authority }).expect("space");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&folder.join(KEY))), (0o700, 0o600));
        assert!(matches!(prepare(&folder), Err(IdentityError::Occupied(_))));
        assert_eq!(std::fs::read_to_string(folder.join("client-cert.pem")).expect("there"), "c");
    }
}
