//! Loop devices (`drivers/block/loop.c` of Linux, since 5.8): a file as a block device.

use linux_raw_sys::loop_device::{
    LO_FLAGS_DIRECT_IO, LO_FLAGS_PARTSCAN, LO_FLAGS_READ_ONLY, LOOP_CLR_FD, LOOP_CONFIGURE, LOOP_CTL_GET_FREE,
    LOOP_SET_CAPACITY, loop_config, loop_info64,
};
use nix::errno::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

nix::ioctl_none_bad!(ctl_get_free, LOOP_CTL_GET_FREE);
nix::ioctl_none_bad!(clr_fd, LOOP_CLR_FD);
nix::ioctl_none_bad!(set_capacity, LOOP_SET_CAPACITY);
nix::ioctl_write_ptr_bad!(configure, LOOP_CONFIGURE, loop_config);

pub const CONTROL: &str = "/dev/loop-control";

/// Others may take the free device that the kernel named before we do.
const ATTEMPTS: usize = 32;
/// How long the kernel may take to let go of a device, once it was told to.
const RELEASE_LIMIT: Duration = Duration::from_secs(5);

/// Puts a free loop device on `file`, and gives its path.
///
/// The logical block is `block` bytes. 512 is what other ways to attach a volume have too, and it must be the same in
/// all of them, since partition tables count in it. Direct I/O avoids a second cache, and a second copy of dirty data.
pub fn attach(file: &File, read_only: bool, block: u32) -> io::Result<PathBuf> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    let mut flags = LO_FLAGS_DIRECT_IO as u32 | LO_FLAGS_PARTSCAN as u32;
    if read_only {
        flags |= LO_FLAGS_READ_ONLY as u32;
    }
    for _ in 0..ATTEMPTS {
        // SAFETY: takes no argument; the descriptor is open.
        let index = unsafe { ctl_get_free(control.as_raw_fd()) }?;
        let path = PathBuf::from(format!("/dev/loop{index}"));
        let device = OpenOptions::new().read(true).write(!read_only).open(&path)?;
        let config = config(file, flags, block);
        // SAFETY: `config` is a loop_config, which the kernel only reads.
        match unsafe { configure(device.as_raw_fd(), &config) } {
            Ok(_) => return Ok(path),
            Err(Errno::EBUSY) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "every free loop device was taken by somebody else"))
}

fn config(file: &File, flags: u32, block_size: u32) -> loop_config {
    let info = loop_info64 {
        lo_device: 0,
        lo_inode: 0,
        lo_rdevice: 0,
        lo_offset: 0,
        lo_sizelimit: 0,
        lo_number: 0,
        lo_encrypt_type: 0,
        lo_encrypt_key_size: 0,
        lo_flags: flags,
        lo_file_name: [0; 64],
        lo_crypt_name: [0; 64],
        lo_encrypt_key: [0; 32],
        lo_init: [0; 2],
    };
    loop_config { fd: file.as_raw_fd() as u32, block_size, info, __reserved: [0; 8] }
}

/// Makes the device as large as its file is now.
pub fn grow(device: &Path) -> io::Result<()> {
    let device = File::open(device)?;
    // SAFETY: takes no argument; the descriptor is open.
    unsafe { set_capacity(device.as_raw_fd()) }?;
    Ok(())
}

/// Whether the device has direct I/O. Without it, it still works: one request at a time, and cached twice.
pub fn is_direct(device: &Path) -> bool {
    attribute(device, "loop/dio").is_some_and(|value| value == "1")
}

/// The file under the device, if it has one.
pub fn backing_file(device: &Path) -> Option<PathBuf> {
    attribute(device, "loop/backing_file").map(PathBuf::from)
}

/// Takes the file from the device. `exclusive` is the device, opened with O_EXCL: so nobody has it mounted. The kernel
/// does it when the last user is gone, which this waits for.
pub fn detach(device: &Path, exclusive: File) -> io::Result<()> {
    // SAFETY: takes no argument; the descriptor is open.
    match unsafe { clr_fd(exclusive.as_raw_fd()) } {
        Ok(_) | Err(Errno::ENXIO) => {}
        Err(error) => return Err(error.into()),
    }
    drop(exclusive);
    let deadline = Instant::now() + RELEASE_LIMIT;
    while backing_file(device).is_some() {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "somebody keeps the device open"));
        }
        std::thread::sleep(Duration::from_millis(5)); // there's no way to wait for it
    }
    Ok(())
}

/// Has the kernel take the file from the device when its last user is gone.
pub fn detach_on_last_close(device: &Path) -> io::Result<()> {
    let device = File::open(device)?;
    // SAFETY: takes no argument; the descriptor is open.
    match unsafe { clr_fd(device.as_raw_fd()) } {
        Ok(_) | Err(Errno::ENXIO) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn attribute(device: &Path, name: &str) -> Option<String> {
    let folder = Path::new("/sys/block").join(device.file_name()?);
    fs::read_to_string(folder.join(name)).ok().map(|text| text.trim_end().to_owned())
}
