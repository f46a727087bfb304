//! The files of a package as they will lie on the machine that installs it, each with its mode.

use crate::failure::Failure;
use crate::process;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const GZIP: Duration = Duration::from_secs(60);

pub struct Contents {
    pub root: PathBuf,
}

impl Contents {
    /// An empty folder; what an earlier run has left there goes.
    pub fn empty(root: PathBuf) -> Result<Contents, Failure> {
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).map_err(Failure::file(&root))?;
        let contents = Contents { root };
        contents.folder("")?;
        Ok(contents)
    }

    /// A folder and those above it, which anybody may enter, whatever the umask is here.
    pub fn folder(&self, path: &str) -> Result<PathBuf, Failure> {
        let mut folder = self.root.clone();
        for part in [""].into_iter().chain(path.split('/').filter(|part| !part.is_empty())) {
            folder.push(part);
            fs::create_dir_all(&folder).map_err(Failure::file(&folder))?;
            fs::set_permissions(&folder, Permissions::from_mode(0o755)).map_err(Failure::file(&folder))?;
        }
        Ok(folder)
    }

    pub fn file(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), Failure> {
        let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
        let file = self.folder(folder)?.join(name);
        fs::write(&file, content).map_err(Failure::file(&file))?;
        fs::set_permissions(&file, Permissions::from_mode(mode)).map_err(Failure::file(&file))
    }

    pub fn copy(&self, from: &Path, path: &str, mode: u32) -> Result<(), Failure> {
        self.file(path, mode, &fs::read(from).map_err(Failure::file(from))?)
    }

    /// A file that is compressed, without a name or a time inside: `path` names it before.
    pub fn compressed(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        self.file(path, 0o644, content)?;
        self.compress(&[self.root.join(path)])
    }

    pub fn compress(&self, files: &[PathBuf]) -> Result<(), Failure> {
        let mut gzip = Command::new("gzip");
        process::succeed(gzip.args(["--best", "--no-name", "--force"]).args(files), GZIP)?;
        Ok(())
    }

    /// Every file, in order, relative to the root.
    pub fn files(&self) -> Result<Vec<PathBuf>, Failure> {
        let (mut found, mut next) = (Vec::new(), vec![self.root.clone()]);
        while let Some(folder) = next.pop() {
            for entry in fs::read_dir(&folder).map_err(Failure::file(&folder))? {
                let path = entry.map_err(Failure::file(&folder))?.path();
                if path.is_dir() {
                    next.push(path);
                } else {
                    found.push(path.strip_prefix(&self.root).unwrap_or(&path).to_owned());
                }
            }
        }
        found.sort();
        Ok(found)
    }
}
