//! Drives that no server uses, opened by a command.

use crate::device::{self, DriveDevice, OpenOptions};
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tepal_drive::Label;
use tepal_drive::label::LabelError;
use tepal_metadata::State;
use tepal_model::{BLOCK, MapId};

/// Why a drive can't be used by a command. Nothing was written to it.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it is, and what to do")]
pub enum UnservedError {
    #[error(
        "{} is in use, likely by a running server: stop that first. While it runs, `tepal drive ls` and `tepal volume scrub` ask it, and \
         servers that have lost their data folders join it", .0.display()
    )]
    InUse(PathBuf),
    #[error(transparent)]
    Device(device::OpenError),
    #[error("{}: {error}", path.display())]
    Label { path: PathBuf, error: LabelError },
    #[error("{}: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
}

/// Nobody else may have it open for writing; if it's to be written to, nobody at all.
pub fn open(path: &Path, writable: bool) -> Result<DriveDevice, UnservedError> {
    DriveDevice::open(path, OpenOptions { writable, backend: None }).map_err(|error| match error {
        device::OpenError::InUse { path } => UnservedError::InUse(path),
        error => UnservedError::Device(error),
    })
}

/// What its label says.
pub async fn read_label(path: &Path, device: &DriveDevice) -> Result<Label, UnservedError> {
    Label::read(device).await.map_err(|error| UnservedError::Label { path: path.to_owned(), error })
}

/// The label of a drive that a server has open: read past its lock, so only this one block, which it doesn't write.
pub fn peek(path: &Path) -> Result<Label, UnservedError> {
    let mut block = vec![0; BLOCK as usize];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut block, 0));
    read.map_err(|error| UnservedError::Read { path: path.to_owned(), error })?;
    Label::decode(&block).map_err(|error| UnservedError::Label { path: path.to_owned(), error })
}

/// Bytes of a device that a server has open.
pub fn size(path: &Path) -> Result<u64, UnservedError> {
    let end = File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
    end.map_err(|error| UnservedError::Read { path: path.to_owned(), error })
}

/// The latest state of the cluster that the drive keeps, if it has one that can be read.
pub async fn kept_state(device: &DriveDevice, label: &Label) -> Option<State> {
    let copies = tepal_drive::read_state_copies(device, label).await.ok()?;
    copies.whole.iter().find_map(|copy| State::from_copy(copy.content()).ok())
}

/// Of which volumes a block is that a drive holds of a map, and where in them it begins, as this state has it. Clones of one map share
/// what they have in common.
pub fn volumes_of(state: &State, map: MapId, block: u64) -> Option<(Vec<String>, u64)> {
    let record = state.maps.get(&map)?;
    let offset = tepal_engine::byte_of_volume(&record.geometry(), &record.layout, block)?;
    let names: Vec<String> = state.readers_of(map).map(|volume| volume.name.clone()).collect();
    (!names.is_empty()).then_some((names, offset))
}

/// Runs it like a data thread, as devices need it.
pub fn block_on<T, E: From<io::Error>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, work)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_drive_in_use_only_the_label_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("drive");
        device::create_file(&path, 64 << 20).expect("space");
        let formatted = block_on(async {
            let device = DriveDevice::open(&path, OpenOptions { writable: true, backend: None }).expect("ours");
            let (cluster, drive) = (tepal_model::ClusterId(1), tepal_model::DriveId(2));
            let new = tepal_drive::NewDrive { cluster, drive, pool: "default".into(), log_length: None };
            tepal_drive::format(&device, None, new).await.expect("blank");
            Ok::<_, io::Error>(device)
        });
        let _server = formatted.expect("a runtime");
        assert!(matches!(open(&path, false), Err(UnservedError::InUse(_))));
        assert_eq!(peek(&path).expect("readable").drive, tepal_model::DriveId(2));
    }
}
