//! The drives of a server: files and block devices, by the fastest way that the machine allows.
//!
//! | back-end | where | how |
//! | --- | --- | --- |
//! | [`Backend::Uring`] | disks | io_uring with O_DIRECT, a ring for each data thread |
//! | [`Backend::MemoryFile`] | files on tmpfs | system calls at once: memory makes nobody wait, and rings would hand them to threads |
//! | [`Backend::Plain`] | where io_uring or O_DIRECT is refused | system calls on a few threads |
//! | [`Backend::Memory`] | tests | a vector |
//!
//! Any of them can be slowed to the pace of a stated model, see [`emulate`].
//!
//! Invariants:
//! 1. The memory of an operation outlives what the kernel does with it, also when its future is dropped.
//! 2. A drive that is open for writing is open nowhere else.
//! 3. Nothing outside of a drive's size is read or written.

mod alarm;
mod backend;
mod create;
pub mod emulate;
mod file;
mod memory;
mod open;
mod plain;
mod presence;
mod transfer;
mod uring;

#[cfg(test)]
mod tests;

pub use backend::{Backend, BackendReason};
pub use create::{CreateError, create_file};
pub use open::{OpenError, OpenOptions};
pub use presence::Presence;

use emulate::{Access, Model, Pace};
use file::DriveFile;
use memory::Memory;
use plain::Threads;
use presence::Identity;
use std::path::Path;
use std::sync::Arc;
use tepal_drive::world::{Device, DeviceError, Gather};
use tepal_model::{BLOCK, Buffer};
use uring::Ring;

/// A write to memory of more bytes is left to another thread, for others wait for this one: about 250 us of copying. What
/// is shorter costs less CPU here than the way to another thread and back, with the data gone from this core's caches.
const COPIED_AT_ONCE: usize = 1 << 20;

/// An open drive. Clones are the same drive; any data thread may use any of them.
#[derive(Clone, Debug)]
pub struct DriveDevice {
    size: u64,
    store: Arc<Store>,
    pace: Option<Arc<Pace>>,
}

#[derive(Debug)]
enum Store {
    File(FileStore),
    Memory(Memory),
}

#[derive(Debug)]
struct FileStore {
    file: Arc<DriveFile>,
    identity: Identity,
    threads: Threads,
    backend: Backend,
    reason: BackendReason,
}

impl DriveDevice {
    /// Opens a drive that exists, and keeps everybody else from writing to it.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> Result<Self, OpenError> {
        let (store, size) = open::open(path.as_ref(), options)?;
        Ok(DriveDevice { size, store: Arc::new(Store::File(store)), pace: None })
    }

    /// A drive of `size` zeros in memory.
    pub fn memory(size: u64) -> Self {
        let size = size - size % BLOCK;
        DriveDevice { size, store: Arc::new(Store::Memory(Memory::new(size))), pace: None }
    }

    /// The same drive, as slow as `model`. Its clones from here on share one queue.
    pub fn emulate(self, model: Model) -> Self {
        DriveDevice { pace: Some(Arc::new(Pace::new(model))), ..self }
    }

    /// How its bytes are reached.
    pub fn backend(&self) -> Backend {
        match &*self.store {
            Store::File(store) => store.backend,
            Store::Memory(_) => Backend::Memory,
        }
    }

    /// Why it is this back-end.
    pub fn backend_reason(&self) -> &BackendReason {
        match &*self.store {
            Store::File(store) => &store.reason,
            Store::Memory(_) => &BackendReason::AskedFor,
        }
    }

    /// The model whose pace the drive keeps.
    pub fn emulated(&self) -> Option<&Model> {
        self.pace.as_deref().map(Pace::model)
    }

    /// Whether the path still leads to this drive, and all of it is there. Two system calls: ask once a second.
    pub fn still_there(&self) -> Presence {
        match &*self.store {
            Store::File(store) => store.identity.look(&store.file),
            Store::Memory(_) => Presence::Here,
        }
    }

    /// The same with all that it has by now, if it was enlarged since it was opened.
    pub fn enlarged(&self) -> Result<Self, DeviceError> {
        let size = match &*self.store {
            Store::File(store) => store.file.current_size().map_err(|errno| DeviceError::Failed {
                operation: "look at the size",
                offset: 0,
                reason: errno.to_string(),
            })?,
            Store::Memory(_) => self.size,
        };
        Ok(DriveDevice { size: size - size % BLOCK, ..self.clone() })
    }

    /// Refuses what reaches past the end: a damaged map asks for that.
    fn check(&self, operation: &'static str, offset: u64, length: u64) -> Result<(), DeviceError> {
        assert!(offset.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK), "{operation} of {offset}+{length}");
        if offset.checked_add(length).is_none_or(|end| end > self.size) {
            let reason = format!("{length} bytes reach past the drive's end at {}", self.size);
            return Err(DeviceError::Failed { operation, offset, reason });
        }
        Ok(())
    }

    /// Keeps `operation` from ending before the emulated drive would end it.
    async fn paced<T>(&self, access: Access, operation: impl Future<Output = T>) -> T {
        let due = self.pace.as_ref().map(|pace| pace.admit(access));
        let outcome = operation.await;
        if let Some(due) = due {
            alarm::wait_until(due).await;
        }
        outcome
    }

    /// The file, if it's in memory: what is done with it at once, without anything that waits, costs least.
    fn memory_file(&self) -> Option<&DriveFile> {
        match &*self.store {
            Store::File(store) if store.backend == Backend::MemoryFile && self.pace.is_none() => Some(&store.file),
            _ => None,
        }
    }
}

impl Device for DriveDevice {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        let length = buffer.len() as u64;
        self.check("read", offset, length)?;
        if length == 0 {
            return Ok(buffer);
        }
        if let Some(file) = self.memory_file() {
            return file.read(offset, &mut buffer).map(|()| buffer);
        }
        let read = async {
            match &*self.store {
                Store::File(store) => store.read(offset, buffer).await,
                Store::Memory(memory) => {
                    memory.read(offset, &mut buffer);
                    Ok(buffer)
                }
            }
        };
        Box::pin(self.paced(Access::Read { offset, length }, read)).await
    }

    async fn write(&self, offset: u64, data: Gather) -> Result<(), DeviceError> {
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        self.check("write", offset, length)?;
        if length == 0 {
            return Ok(());
        }
        if let Some(file) = self.memory_file()
            && is_short(&data)
        {
            return file.write(offset, &data);
        }
        let write = async {
            match &*self.store {
                Store::File(store) => store.write(offset, data).await,
                Store::Memory(memory) => {
                    memory.write(offset, &data);
                    Ok(())
                }
            }
        };
        Box::pin(self.paced(Access::Write { offset, length }, write)).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let flush = async {
            match &*self.store {
                Store::File(store) => store.flush().await,
                Store::Memory(_) => Ok(()),
            }
        };
        self.paced(Access::Flush, flush).await
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check("discard", offset, length)?;
        match &*self.store {
            _ if length == 0 => Ok(()),
            Store::File(store) => store.discard(offset, length).await,
            Store::Memory(memory) => {
                memory.discard(offset, length);
                Ok(())
            }
        }
    }
}

impl FileStore {
    /// How the next operation on this thread reaches the kernel.
    fn submission(&self) -> Submission {
        match self.backend {
            Backend::Uring => match Ring::current() {
                Ok(ring) => Submission::Ring(ring),
                // The probe's ring was granted and this thread's is not: a limit was reached. Slow is better than failed.
                Err(error) => {
                    uring::warn_of_no_ring(&error);
                    Submission::Threads
                }
            },
            Backend::MemoryFile => Submission::AtOnce,
            Backend::Plain | Backend::Memory => Submission::Threads,
        }
    }

    async fn read(&self, offset: u64, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        match self.submission() {
            Submission::Ring(ring) => ring.read(&self.file, offset, buffer).await,
            Submission::AtOnce => self.file.read(offset, &mut buffer).map(|()| buffer),
            Submission::Threads => self.threads.read(&self.file, offset, buffer).await,
        }
    }

    async fn write(&self, offset: u64, data: Gather) -> Result<(), DeviceError> {
        match self.submission() {
            Submission::Ring(ring) => ring.write(&self.file, offset, data).await,
            Submission::AtOnce if is_short(&data) => self.file.write(offset, &data),
            Submission::AtOnce | Submission::Threads => self.threads.write(&self.file, offset, data).await,
        }
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        match self.submission() {
            Submission::Ring(ring) => ring.flush(&self.file).await,
            Submission::AtOnce => self.file.flush(),
            Submission::Threads => self.threads.flush(&self.file).await,
        }
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        match self.backend {
            Backend::MemoryFile => self.file.discard(offset, length),
            // The kernel's discards wait, also those that a ring takes; they are rare.
            Backend::Uring | Backend::Plain | Backend::Memory => self.threads.discard(&self.file, offset, length).await,
        }
    }
}

/// Whether a write to memory is done by the thread that asks for it.
fn is_short(data: &Gather) -> bool {
    data.iter().map(|piece| piece.len()).sum::<usize>() <= COPIED_AT_ONCE
}

/// How an operation reaches the kernel.
enum Submission {
    Ring(std::rc::Rc<Ring>),
    AtOnce,
    Threads,
}
