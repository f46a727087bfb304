//! Small files that are read whole and replaced whole, and that only their owner may read.

use serde::de::DeserializeOwned;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Puts `content` in the place of what is there, as one step that a crash either shows or doesn't. On stable media when
/// this returns.
///
/// # Errors
///
/// If there's no room for it, or no way to it: what was there is there still.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let new = path.with_file_name(name);
    // One left by a crash may have been made by anybody's rules.
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// What a file says, in JSON; the default if there's none.
///
/// # Errors
///
/// If it can't be read, or isn't what was asked for.
pub fn recall<T: DeserializeOwned + Default>(path: &Path) -> io::Result<T> {
    match std::fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_whole_and_is_its_owners_alone() {
        let scratch = tempfile::tempdir().expect("a folder");
        let folder = scratch.path();
        let path = folder.join("token");
        std::fs::write(folder.join("token.new"), "left by a crash").expect("ours");
        for content in ["first, and longer", "second"] {
            replace(&path, content.as_bytes()).expect("space");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), content);
            assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(std::fs::read_dir(folder).expect("ours").count(), 1);
    }
}
