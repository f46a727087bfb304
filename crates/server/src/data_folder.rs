//! The server's data folder, beside what the metadata keeps in it: the token that the API asks for, and the addresses where
//! the server is. All of it is its owner's alone.

use crate::private_file;
use crate::world::ServerWorld;
use serde::Serialize;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tepal_drive::world::Random;
use tepal_model::ServerId;

const TOKEN: &str = "token";
const ADDRESSES: &str = "addresses.json";
const STARTING: &str = "starting.json";
/// Hexadecimal digits: 256 random bits.
const TOKEN_LENGTH: usize = 64;

#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    #[error("{}: {error}", path.display())]
    Io { path: PathBuf, error: io::Error },
    #[error("{} is not a folder", .0.display())]
    NotAFolder(PathBuf),
    #[error("{} holds other things and no cluster, and is open to others: name an empty folder, or a new one", .0.display())]
    Occupied(PathBuf),
    #[error("{} belongs to user {owner}, and this server runs as user {user}", path.display())]
    NotOurs { path: PathBuf, owner: u32, user: u32 },
    #[error("{} is damaged: it should hold {TOKEN_LENGTH} hexadecimal digits. Remove it, and a new one is made", .0.display())]
    Token(PathBuf),
}

/// Where a running server is, as `addresses.json` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Addresses {
    pub server: ServerId,
    pub pid: u32,
    /// HOST:PORT.
    pub api: String,
    /// Each as `unix:PATH` or HOST:PORT.
    pub nbd: Vec<String>,
}

/// A server that runs and doesn't serve yet, as `starting.json` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Starting {
    pub server: ServerId,
    pub pid: u32,
    /// Where other servers find it.
    pub address: String,
    /// Where they look for it, as far as it knows.
    pub looked_for_at: String,
    /// Other servers that vote, of which too few have answered; none once enough have.
    pub waits_for: Vec<Elsewhere>,
}

/// Another server, and where it's looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    pub server: ServerId,
    pub address: String,
}

/// Makes the folder if it isn't there; keeps others out of it in any case.
pub fn prepare(folder: &Path) -> Result<(), FolderError> {
    let io = |error| FolderError::Io { path: folder.to_owned(), error };
    if let Some(parent) = folder.parent() {
        fs::create_dir_all(parent).map_err(io)?;
    }
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
        _ => {}
    }
    let found = fs::metadata(folder).map_err(io)?;
    if !found.is_dir() {
        return Err(FolderError::NotAFolder(folder.to_owned()));
    }
    let user = rustix::process::geteuid().as_raw();
    if found.uid() != user {
        return Err(FolderError::NotOurs { path: folder.to_owned(), owner: found.uid(), user });
    }
    if found.mode() & 0o077 != 0 {
        if !may_be_closed(folder).map_err(io)? {
            return Err(FolderError::Occupied(folder.to_owned()));
        }
        fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(io)?;
    }
    Ok(())
}

/// Whether others lose nothing when they are kept out: a mistyped path could be a folder of the system's.
fn may_be_closed(folder: &Path) -> io::Result<bool> {
    if fs::exists(folder.join("cluster.db"))? {
        return Ok(true);
    }
    for entry in fs::read_dir(folder)? {
        if entry?.file_name() != "lost+found" {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The token that the API asks for; made anew if there is none.
pub fn token(folder: &Path) -> Result<String, FolderError> {
    let path = folder.join(TOKEN);
    let io = |error| FolderError::Io { path: path.clone(), error };
    match fs::read_to_string(&path) {
        Ok(text) => {
            let token = text.trim();
            if token.len() != TOKEN_LENGTH || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(FolderError::Token(path));
            }
            fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(io)?;
            Ok(token.to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token: String = (0..TOKEN_LENGTH / 16).map(|_| format!("{:016x}", ServerWorld.next_u64())).collect();
            private_file::replace(&path, token.as_bytes()).map_err(io)?;
            Ok(token)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(FolderError::Token(path)),
        Err(error) => Err(io(error)),
    }
}

pub fn write_addresses(folder: &Path, addresses: &Addresses) -> Result<(), FolderError> {
    let path = folder.join(ADDRESSES);
    let text = serde_json::to_vec_pretty(addresses).expect("texts and numbers");
    private_file::replace(&path, &text).map_err(|error| FolderError::Io { path, error })
}

/// A server that stops is nowhere. One that was killed leaves its addresses; nobody answers there.
pub fn remove_addresses(folder: &Path) {
    // Whoever reads them finds nobody there; so a file that stays does no harm.
    let _ = fs::remove_file(folder.join(ADDRESSES));
}

/// Says so to whoever looks into the folder, for as long as what this returns is kept. What a process before said isn't so any more.
pub fn write_starting(folder: &Path, starting: &Starting) -> io::Result<StartingFile> {
    let path = folder.join(STARTING);
    let text = serde_json::to_vec_pretty(starting).expect("texts and numbers");
    private_file::replace(&path, &text)?;
    remove_addresses(folder);
    Ok(StartingFile(path))
}

/// Gone with this.
#[derive(Debug)]
pub struct StartingFile(PathBuf);

impl Drop for StartingFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0); // it names a process that nobody finds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).expect("there").permissions().mode() & 0o777
    }

    #[test]
    fn a_folder_of_others_is_left_open_to_them() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("ours");
        fs::write(folder.join("passwd"), "").expect("ours");
        assert!(matches!(prepare(folder), Err(FolderError::Occupied(_))));
        assert_eq!(mode(folder), 0o755);
        fs::rename(folder.join("passwd"), folder.join("cluster.db")).expect("ours");
        prepare(folder).expect("a cluster's");
        assert_eq!(mode(folder), 0o700);
    }

    #[test]
    fn the_folder_and_what_is_in_it_are_their_owners_alone() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path().join("data");
        prepare(&folder).expect("made");
        assert_eq!(mode(&folder), 0o700);
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).expect("ours");
        prepare(&folder).expect("there already");
        assert_eq!(mode(&folder), 0o700);
        let made = token(&folder).expect("made");
        assert_eq!(token(&folder).expect("read"), made);
        assert_eq!(mode(&folder.join(TOKEN)), 0o600);
        let addresses =
            Addresses { server: ServerId(1), pid: 2, api: "127.0.0.1:3".into(), nbd: vec!["unix:/s".into()] };
        write_addresses(&folder, &addresses).expect("space");
        assert_eq!(mode(&folder.join(ADDRESSES)), 0o600);
        let text = fs::read_to_string(folder.join(ADDRESSES)).expect("there");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((&value["server"], &value["api"]), (&"s1".into(), &"127.0.0.1:3".into()));
        remove_addresses(&folder);
        assert!(!folder.join(ADDRESSES).exists());
    }

    #[test]
    fn a_token_that_is_none_is_refused_and_left_alone() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        for text in ["", "short", &"g".repeat(TOKEN_LENGTH), "\u{0}"] {
            fs::write(folder.join(TOKEN), text).expect("ours");
            assert!(matches!(token(folder), Err(FolderError::Token(_))), "{text:?}");
            assert_eq!(fs::read_to_string(folder.join(TOKEN)).expect("there"), text);
        }
    }

    #[test]
    fn a_file_in_the_place_of_the_folder_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        fs::write(&file, "").expect("ours");
        assert!(matches!(prepare(&file), Err(FolderError::NotAFolder(_))));
    }
}
