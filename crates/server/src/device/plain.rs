//! Reads and writes by plain system calls on threads that may wait: for where io_uring or O_DIRECT is refused.
//!
//! The threads are the blocking ones of the caller's runtime. A drive has at most [`MOST_AT_ONCE`] of them; further
//! operations wait. What has begun owns its memory and goes on when its caller waits no more.

use super::file::DriveFile;
use std::sync::Arc;
use tepal_drive::world::{DeviceError, Gather};
use tepal_model::Buffer;
use tokio::sync::Semaphore;

/// Operations of one drive that are with the kernel at a time.
const MOST_AT_ONCE: usize = 16;

#[derive(Debug)]
pub(super) struct Threads {
    places: Arc<Semaphore>,
}

impl Threads {
    pub fn new() -> Self {
        Threads { places: Arc::new(Semaphore::new(MOST_AT_ONCE)) }
    }

    pub async fn read(&self, file: &Arc<DriveFile>, offset: u64, mut buffer: Buffer) -> Result<Buffer, DeviceError> {
        self.run("read", file, move |file| file.read(offset, &mut buffer).map(|()| buffer)).await
    }

    pub async fn write(&self, file: &Arc<DriveFile>, offset: u64, data: Gather) -> Result<(), DeviceError> {
        let data = file.aligned(data);
        self.run("write", file, move |file| file.write(offset, &data)).await
    }

    pub async fn flush(&self, file: &Arc<DriveFile>) -> Result<(), DeviceError> {
        self.run("flush", file, DriveFile::flush).await
    }

    pub async fn discard(&self, file: &Arc<DriveFile>, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.run("discard", file, move |file| file.discard(offset, length)).await
    }

    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        file: &Arc<DriveFile>,
        work: impl FnOnce(&DriveFile) -> Result<T, DeviceError> + Send + 'static,
    ) -> Result<T, DeviceError> {
        let place = self.places.clone().acquire_owned().await.expect("the semaphore is never closed");
        let file = file.clone();
        let begun = tokio::task::spawn_blocking(move || {
            let _place = place;
            work(&file)
        });
        // It doesn't run to its end only when the runtime is shutting down.
        let stopping = |_| DeviceError::Failed { operation, offset: 0, reason: "the server is stopping".into() };
        begun.await.map_err(stopping)?
    }
}
