//! What is opened as a drive, what is refused, and what is noticed later.

use super::{LoopDevice, Scratch, WRITABLE};
use crate::device::{Backend, BackendReason, CreateError, DriveDevice, OpenError, OpenOptions, Presence, create_file};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use tepal_drive::world::Device;
use tepal_model::BLOCK;

const SIZE: u64 = 1 << 20;
const READ_ONLY: OpenOptions = OpenOptions { writable: false, backend: None };

fn refusal(path: impl AsRef<std::path::Path>, options: OpenOptions) -> OpenError {
    DriveDevice::open(path, options).expect_err("it should have been refused")
}

#[test]
fn a_file_in_memory_and_a_file_on_a_disk_get_their_back_ends_and_say_why() {
    let in_memory = Scratch::file("/dev/shm", SIZE);
    let drive = DriveDevice::open(&in_memory.0, WRITABLE).expect("a drive");
    assert!(matches!((drive.backend(), drive.backend_reason()), (Backend::MemoryFile, BackendReason::InMemory)));
    let on_disk = Scratch::file("/var/tmp", SIZE);
    let drive = DriveDevice::open(&on_disk.0, WRITABLE).expect("a drive");
    // As the kernel says to whoever asks it, and not the device.
    let expected = if has_uring() && has_direct(&on_disk.0) { Backend::Uring } else { Backend::Plain };
    assert_eq!(drive.backend(), expected, "{}", drive.backend_reason());
}

fn has_uring() -> bool {
    io_uring::IoUring::new(8).is_ok()
}

fn has_direct(path: &std::path::Path) -> bool {
    use rustix::fs::{Mode, OFlags, open};
    open(path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty()).is_ok()
}

#[test]
fn only_files_and_block_devices_are_drives() {
    let folder = Scratch::new("/tmp");
    fs::create_dir(&folder.0).expect("a folder");
    let pipe = Scratch::new("/tmp");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe.0, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
    let socket = Scratch::new("/tmp");
    let _listener = std::os::unix::net::UnixListener::bind(&socket.0).expect("a socket");
    for (path, expected) in [
        (folder.0.as_path(), "a directory"),
        (pipe.0.as_path(), "a pipe"),
        (socket.0.as_path(), "a socket"),
        ("/dev/zero".as_ref(), "a character device"),
    ] {
        assert!(matches!(refusal(path, WRITABLE), OpenError::NotADrive { what, .. } if what == expected), "{expected}");
    }
    fs::remove_dir(&folder.0).expect("the folder is still there");
}

#[test]
fn what_is_not_there_is_not_made() {
    let nothing = Scratch::new("/tmp");
    assert!(matches!(refusal(&nothing.0, WRITABLE), OpenError::NotFound { .. }));
    assert!(!nothing.0.exists());
    let below_a_file = Scratch::file("/tmp", SIZE);
    assert!(matches!(refusal(below_a_file.0.join("x"), WRITABLE), OpenError::NotFound { .. }));
    assert!(matches!(refusal("", WRITABLE), OpenError::NotFound { .. }));
}

#[test]
fn a_drive_that_is_written_to_is_open_nowhere_else() {
    let file = Scratch::file("/tmp", SIZE);
    let link = Scratch::new("/tmp");
    symlink(&file.0, &link.0).expect("a link");
    let drive = DriveDevice::open(&file.0, WRITABLE).expect("a drive");
    for path in [&file.0, &link.0] {
        assert!(matches!(refusal(path, WRITABLE), OpenError::InUse { .. }));
        assert!(matches!(refusal(path, READ_ONLY), OpenError::InUse { .. }));
    }
    let clone = drive.clone();
    drop(drive);
    assert!(matches!(refusal(&file.0, WRITABLE), OpenError::InUse { .. }), "a clone has it");
    drop(clone);
    let readers = [(); 2].map(|()| DriveDevice::open(&file.0, READ_ONLY).expect("a reader"));
    assert!(matches!(refusal(&file.0, WRITABLE), OpenError::InUse { .. }), "others read it");
    drop(readers);
    DriveDevice::open(&file.0, WRITABLE).expect("free again");
}

#[test]
fn a_block_device_in_use_is_refused() {
    let Some(device) = LoopDevice::new(SIZE) else { return };
    let drive = DriveDevice::open(&device.path, WRITABLE).expect("a drive");
    assert_eq!(drive.size(), SIZE);
    assert_eq!(drive.still_there(), Presence::Here);
    assert!(matches!(refusal(&device.path, WRITABLE), OpenError::InUse { .. }));
    drop(drive);
    DriveDevice::open(&device.path, WRITABLE).expect("free again");
}

#[test]
fn a_mounted_block_device_is_refused() {
    let Some(device) = LoopDevice::new(64 << 20) else { return };
    let folder = Scratch::new("/tmp");
    fs::create_dir(&folder.0).expect("a folder");
    let run = |program: &str, arguments: &[&std::ffi::OsStr]| {
        std::process::Command::new(program).args(arguments).output().is_ok_and(|output| output.status.success())
    };
    let (path, at) = (device.path.as_os_str(), folder.0.as_os_str());
    if run("mkfs.ext4", &["-q".as_ref(), path]) && run("mount", &[path, at]) {
        let refused = DriveDevice::open(&device.path, WRITABLE);
        assert!(run("umount", &[at]));
        assert!(matches!(refused, Err(OpenError::InUse { .. })), "{refused:?}");
        DriveDevice::open(&device.path, WRITABLE).expect("free again");
    } else {
        eprintln!("skipped: nothing can be mounted here");
    }
    fs::remove_dir(&folder.0).expect("the folder is still there");
}

#[test]
fn a_size_counts_whole_blocks_and_at_least_one() {
    for (bytes, size) in [(0, None), (BLOCK - 1, None), (BLOCK, Some(BLOCK)), (3 * BLOCK - 1, Some(2 * BLOCK))] {
        let file = Scratch::new("/tmp");
        fs::write(&file.0, vec![0; bytes as usize]).expect("a file");
        match (DriveDevice::open(&file.0, WRITABLE), size) {
            (Ok(drive), Some(size)) => assert_eq!(drive.size(), size),
            (Err(OpenError::TooSmall { size, .. }), None) => assert_eq!(size, bytes),
            other => panic!("{bytes}: {other:?}"),
        }
    }
}

#[test]
fn a_wanted_back_end_that_does_not_fit_is_refused_with_the_reason() {
    let on_disk = Scratch::file("/var/tmp", SIZE);
    for backend in [Backend::MemoryFile, Backend::Memory] {
        let error = refusal(&on_disk.0, OpenOptions { backend: Some(backend), ..WRITABLE });
        assert!(matches!(error, OpenError::BackendRefused { .. }), "{error}");
    }
}

#[test]
fn a_drive_open_for_reading_is_not_written_to() {
    for folder in ["/dev/shm", "/var/tmp"] {
        let file = Scratch::file(folder, SIZE);
        let drive = DriveDevice::open(&file.0, READ_ONLY).expect("a drive");
        let block = tepal_model::Buffer::zeroed(BLOCK as usize).freeze();
        super::on_data_thread(async {
            assert!(drive.write(0, [block].into_iter().collect()).await.is_err());
            assert!(drive.discard(0, BLOCK).await.is_err());
            assert!(drive.read(0, super::spoiled(BLOCK as usize)).await.is_ok());
        });
    }
}

#[test]
fn a_drive_that_is_removed_replaced_or_cut_short_is_noticed() {
    let file = Scratch::file("/tmp", SIZE);
    let aside = Scratch::new("/tmp");
    let drive = DriveDevice::open(&file.0, WRITABLE).expect("a drive");
    assert_eq!(drive.still_there(), Presence::Here);
    fs::rename(&file.0, &aside.0).expect("moved");
    assert_eq!(drive.still_there(), Presence::Missing);
    create_file(&file.0, SIZE).expect("another file");
    assert_eq!(drive.still_there(), Presence::Replaced);
    fs::rename(&aside.0, &file.0).expect("moved back");
    assert_eq!(drive.still_there(), Presence::Here);
    let handle = fs::OpenOptions::new().write(true).open(&file.0).expect("the file");
    handle.set_len(2 * SIZE).expect("longer");
    assert_eq!(drive.still_there(), Presence::Here, "longer is no loss");
    handle.set_len(SIZE - 1).expect("shorter");
    assert_eq!(drive.still_there(), Presence::CutShort { size: SIZE - 1, expected: SIZE });
}

#[test]
fn a_new_drive_file_is_sparse_and_its_owners_alone() {
    let file = Scratch::file("/tmp", 1 << 40);
    let metadata = fs::metadata(&file.0).expect("the file");
    assert_eq!(metadata.len(), 1 << 40);
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::os::unix::fs::MetadataExt::blocks(&metadata), 0);
}

#[test]
fn a_new_drive_file_never_takes_the_place_of_anything() {
    let file = Scratch::new("/tmp");
    fs::write(&file.0, "precious").expect("a file");
    let dangling = Scratch::new("/tmp");
    symlink("/tmp/tepal-device-test-nowhere", &dangling.0).expect("a link");
    for path in [&file.0, &dangling.0] {
        assert!(matches!(create_file(path, SIZE), Err(CreateError::Exists { .. })));
    }
    assert_eq!(fs::read(&file.0).expect("the file"), b"precious");
}

#[test]
fn a_drive_file_that_can_not_be_leaves_nothing_behind() {
    let file = Scratch::new("/tmp");
    for size in [0, 1, BLOCK + 1] {
        assert!(matches!(create_file(&file.0, size), Err(CreateError::BadSize { .. })), "{size}");
    }
    let too_large = u64::MAX - u64::MAX % BLOCK;
    assert!(matches!(create_file(&file.0, too_large), Err(CreateError::TooLarge { .. })));
    assert!(matches!(create_file(&file.0, 1 << 62), Err(CreateError::TooLarge { .. })));
    assert!(!file.0.exists());
    assert!(matches!(create_file(file.0.join("x"), SIZE), Err(CreateError::NoFolder { .. })));
}
