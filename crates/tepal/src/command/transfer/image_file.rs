//! Images of other systems, read through QEMU's tools: `qemu-img` says what a file is, `qemu-nbd` serves what is in it.

use super::mapped::Mapped;
use super::nbd::{self, Export};
use crate::cli::IMAGE_FORMATS;
use serde::Deserialize;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tepal_gateway::nbd::address::Address;
use tepal_model::text::shown;

/// A tool that is silent for longer is given up.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error(
        "{tool} is missing, which reads images of other systems: install it (Debian: qemu-utils); a raw image needs no tool by `< FILE`"
    )]
    NoTool { tool: &'static str },
    #[error("{}: {error}", shown(&.path.display().to_string()))]
    File { path: PathBuf, error: io::Error },
    #[error("{} can't be read as an image: {said}", shown(&.path.display().to_string()))]
    Refused { path: PathBuf, said: String },
    #[error("{} has the format {format}, which isn't read: convert it by `qemu-img convert`", shown(&.path.display().to_string()))]
    Format { path: PathBuf, format: String },
    #[error("{} is encrypted: have `qemu-nbd` serve it with its key, and import from there", shown(&.path.display().to_string()))]
    Encrypted { path: PathBuf },
    #[error(
        "{} takes bytes from other files: {}. If it may read those, say so by --backing",
        shown(&.path.display().to_string()),
        .others.join(", ")
    )]
    Others { path: PathBuf, others: Vec<String> },
}

/// A file, and how it's to be read.
#[derive(Debug)]
pub struct Image {
    path: PathBuf,
    format: String,
    /// Bytes of what is in it and of a cluster, if all of that is in the file as it is.
    plain: Option<(u64, u64)>,
}

/// What `qemu-img info` says of a file.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Info {
    format: String,
    #[serde(default)]
    encrypted: bool,
    virtual_size: u64,
    #[serde(default)]
    cluster_size: u64,
    backing_filename: Option<String>,
    #[serde(default)]
    format_specific: Specific,
}

#[derive(Default, Deserialize)]
struct Specific {
    #[serde(default)]
    data: Details,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Details {
    data_file: Option<String>,
    #[serde(default)]
    extents: Vec<Extent>,
}

#[derive(Deserialize)]
struct Extent {
    filename: String,
}

impl Info {
    /// Files that a reader of this one reads too.
    fn others(self, path: &str) -> Vec<String> {
        let Specific { data: Details { data_file, extents } } = self.format_specific;
        let extents = extents.into_iter().map(|extent| extent.filename).filter(|name| name != path);
        let mut others: Vec<String> = self.backing_filename.into_iter().chain(data_file).chain(extents).collect();
        others.iter_mut().for_each(|name| *name = shown(name));
        others
    }
}

impl Image {
    /// Looks what a file is, unless that is said. Other files are read with it only if that is allowed: an image can name any.
    pub fn look(path: &Path, format: Option<&str>, with_others: bool) -> Result<Self, ImageError> {
        let of_file = |error| ImageError::File { path: path.to_owned(), error };
        // QEMU takes what is before a colon for a protocol, unless a path begins with a slash.
        let path = std::path::absolute(path).map_err(of_file)?;
        let found = std::fs::metadata(&path).map_err(of_file)?;
        let format = match format {
            None if found.file_type().is_block_device() => Some("raw"),
            said => said,
        };
        if format == Some("raw") {
            return Ok(Image { path, format: "raw".to_owned(), plain: None });
        }
        let mut command = Command::new("qemu-img");
        command.args(["info", "--output=json"]).args(format.iter().flat_map(|format| ["-f", format])).arg(&path);
        let said = run(&mut command, "qemu-img", &path)?;
        let info: Info = serde_json::from_slice(&said).map_err(|error| ImageError::Refused {
            path: path.clone(),
            said: format!("what qemu-img says isn't understood: {error}"),
        })?;
        if info.encrypted {
            return Err(ImageError::Encrypted { path });
        } else if !IMAGE_FORMATS.contains(&&*info.format) {
            return Err(ImageError::Format { path, format: shown(&info.format) });
        }
        let (format, sizes) = (info.format.clone(), (info.virtual_size, info.cluster_size));
        let others = info.others(&path.display().to_string());
        if !with_others && !others.is_empty() {
            return Err(ImageError::Others { path, others });
        }
        let checked = check(&path, &format)?;
        let end = match checked.image_end_offset {
            None if ENDS_BY_MAP.contains(&&*format) => mapped_end(&path, &format)?,
            end => end.unwrap_or(0),
        };
        // The last cluster need not be whole.
        if found.is_file() && end > found.len() + sizes.1 {
            let said =
                format!("its file ends at byte {}, and what it holds at byte {end}: it was cut off", found.len());
            return Err(ImageError::Refused { path, said });
        }
        let has_compressed = checked.has_compressed();
        let is_plain = format == "qcow2" && sizes.1 > 0 && others.is_empty() && !has_compressed;
        Ok(Image { path, format, plain: is_plain.then_some(sizes) })
    }

    /// What is in it, and how long that is, if nothing but its file has to be read.
    pub fn mapped(&self) -> Result<Option<(Mapped, u64)>, ImageError> {
        let of_file = |error| ImageError::File { path: self.path.clone(), error };
        let open = |sizes: (u64, u64)| Mapped::open(&self.path, &self.format, sizes).map(|mapped| (mapped, sizes.0));
        self.plain.map(open).transpose().map_err(of_file)
    }

    /// Its path, if nothing but the bytes of the file are in it.
    pub fn raw(&self) -> Option<&Path> {
        (self.format == "raw").then_some(&*self.path)
    }

    /// What is in it, and how long that is, served until that is dropped.
    pub fn serve(&self) -> Result<(Server, Export, u64), ImageError> {
        let of_folder = |error| ImageError::File { path: std::env::temp_dir(), error };
        let folder = tempfile::Builder::new().prefix("tepal-import-").tempdir().map_err(of_folder)?;
        let socket = folder.path().join("nbd.sock");
        let mut command = Command::new("qemu-nbd");
        command.args(["--read-only", "--format", &self.format, "--socket"]).arg(&socket).arg(&self.path);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| missing("qemu-nbd", &self.path, error))?;
        let mut server = Server { child, _folder: folder };
        let end = Instant::now() + PATIENCE;
        let address = Address::unix(socket);
        loop {
            match nbd::open(&address) {
                Ok((export, size)) => return Ok((server, export, size)),
                Err(error) => {
                    let path = self.path.clone();
                    if let Some(said) = server.ended() {
                        return Err(ImageError::Refused { path, said });
                    }
                    let is_early = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
                    if !is_early || Instant::now() > end {
                        return Err(ImageError::Refused { path, said: format!("qemu-nbd: {error}") });
                    }
                }
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

/// A `qemu-nbd`, which ends by itself when its only client has gone.
pub struct Server {
    child: Child,
    _folder: tempfile::TempDir,
}

impl Server {
    /// What it says, once it has ended.
    fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten()?;
        let mut said = String::new();
        let _ = self.child.stderr.as_mut()?.take(64 << 10).read_to_string(&mut said);
        Some(of_interest(&said))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it may have ended
        let _ = self.child.wait();
    }
}

/// What `qemu-img check` says of an image that is all right.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Checked {
    #[serde(default)]
    compressed_clusters: u64,
    /// Where the last of it ends in the file, if the check says it.
    image_end_offset: Option<u64>,
}

/// Formats of which `qemu-img check` doesn't say where they end, and `qemu-img map` does.
const ENDS_BY_MAP: [&str; 3] = ["vdi", "qcow", "vpc"];

/// A line of `qemu-img map`.
#[derive(Deserialize)]
struct Run {
    length: u64,
    data: bool,
    offset: Option<u64>,
}

/// Where the last of an image's data ends in its file, as far as its map says.
fn mapped_end(path: &Path, format: &str) -> Result<u64, ImageError> {
    let mut command = Command::new("qemu-img");
    command.args(["map", "--output=json", "-f", format]).arg(path);
    let said = run(&mut command, "qemu-img", path)?;
    let runs: Vec<Run> = serde_json::from_slice(&said).map_err(|error| ImageError::Refused {
        path: path.to_owned(),
        said: format!("qemu-img's map isn't understood: {error}"),
    })?;
    let ends = runs.iter().filter(|run| run.data).filter_map(|run| run.offset?.checked_add(run.length));
    Ok(ends.max().unwrap_or(0))
}

impl Checked {
    fn has_compressed(&self) -> bool {
        self.compressed_clusters > 0
    }
}

/// QEMU reads zeros where an image that was cut off had its data. Formats that can't be checked are taken as they are.
fn check(path: &Path, format: &str) -> Result<Checked, ImageError> {
    /// Of `qemu-img check`: the image is damaged, or the check itself failed.
    const BAD: [i32; 2] = [1, 2];
    let mut command = Command::new("qemu-img");
    command.args(["check", "--output=json", "-f", format]).arg(path).stdin(Stdio::null()).stderr(Stdio::null());
    let ended = command.output().map_err(|error| missing("qemu-img", path, error))?;
    match ended.status.code() {
        Some(code) if BAD.contains(&code) => {
            let said = format!("it's damaged or not all of it is there: `qemu-img check -f {format}` says more");
            Err(ImageError::Refused { path: path.to_owned(), said })
        }
        Some(0) => serde_json::from_slice(&ended.stdout).map_err(|error| ImageError::Refused {
            path: path.to_owned(),
            said: format!("what qemu-img says isn't understood: {error}"),
        }),
        None => {
            let said = format!("`qemu-img check -f {format}` was killed before it had looked at all of it");
            Err(ImageError::Refused { path: path.to_owned(), said })
        }
        // What isn't known isn't taken to be in the file as it is.
        _ => Ok(Checked { compressed_clusters: u64::MAX, image_end_offset: None }),
    }
}

/// What a tool writes to standard output.
fn run(command: &mut Command, tool: &'static str, path: &Path) -> Result<Vec<u8>, ImageError> {
    let ended = command.stdin(Stdio::null()).output().map_err(|error| missing(tool, path, error))?;
    match ended.status.success() {
        true => Ok(ended.stdout),
        false => {
            let said = of_interest(&String::from_utf8_lossy(&ended.stderr));
            Err(ImageError::Refused { path: path.to_owned(), said })
        }
    }
}

fn missing(tool: &'static str, path: &Path, error: io::Error) -> ImageError {
    match error.kind() {
        io::ErrorKind::NotFound => ImageError::NoTool { tool },
        _ => ImageError::Refused { path: path.to_owned(), said: format!("{tool}: {error}") },
    }
}

/// The last line of an error, without the tool's own name.
pub(super) fn of_interest(said: &str) -> String {
    let line = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("the tool says nothing");
    shown(line.split_once(": ").map_or(line, |(tool, rest)| if tool.starts_with("qemu") { rest } else { line }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_files_of_an_image_are_named() {
        let info = |text: &str| serde_json::from_str::<Info>(text).expect("readable");
        let alone = info(
            r#"{"format": "vmdk", "virtual-size": 5, "format-specific": {"type": "vmdk", "data": {"extents": [{"filename": "/a"}]}}}"#,
        );
        assert!(alone.others("/a").is_empty());
        let flat = info(
            r#"{"format": "vmdk", "virtual-size": 5, "format-specific": {"data": {"extents": [{"filename": "/a-flat"}]}}}"#,
        );
        assert_eq!(flat.others("/a"), ["/a-flat"]);
        let chain = r#"{"format": "qcow2", "backing-filename": "b", "format-specific": {"data": {"data-file": "/d"}}, "virtual-size": 5}"#;
        assert_eq!(info(chain).others("/a"), ["b", "/d"]);
    }

    #[test]
    fn an_error_of_a_tool_is_its_last_line() {
        let said = "qemu-img: warning: x\nqemu-img: Could not open '/a': Image is corrupt\n";
        assert_eq!(of_interest(said), "Could not open '/a': Image is corrupt");
        assert_eq!(of_interest("\n"), "the tool says nothing");
    }
}
