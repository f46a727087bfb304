//! A disk of one's own over NBD: what [`VirtualDisk`] and [`Exports`] ask for, and how a server serves them.
//!
//! ```text
//! cargo run --release -p tepal-gateway --example memory_disk -- unix:/tmp/nbd.sock 64M
//! nbdinfo 'nbd+unix:///memory?socket=/tmp/nbd.sock'
//! ```

use bytes::Bytes;
use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use tepal_gateway::disk::{Exports, OpenError, Run, VirtualDisk};
use tepal_gateway::nbd::{
    Admission, Endpoint, Limits, Listener, Protection, accept_connections, serve_accepted, stop_signal,
};
use tepal_model::size::Size;
use tepal_model::{Buffer, IoError, Segments};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Bytes in memory, all of them mapped. They are as safe as they will ever be once they are there. Like the payloads, they
/// begin at a block's boundary: copying to a place a little further on within a block is half as fast on many processors.
#[derive(Clone)]
struct MemoryDisk(Rc<RefCell<Buffer>>);

fn place(offset: u64, length: u64) -> std::ops::Range<usize> {
    offset as usize..(offset + length) as usize
}

impl VirtualDisk for MemoryDisk {
    fn size(&self) -> u64 {
        self.0.borrow().len() as u64
    }

    fn read_only(&self) -> bool {
        false
    }

    async fn read(&self, offset: u64, length: u64) -> Result<Segments, IoError> {
        let data = Buffer::copy_of(&self.0.borrow()[place(offset, length)]);
        Ok(Segments::from_iter([data.freeze()]))
    }

    async fn write(&self, offset: u64, data: Bytes, _fua: bool) -> Result<(), IoError> {
        self.0.borrow_mut()[place(offset, data.len() as u64)].copy_from_slice(&data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u64, fua: bool) -> Result<(), IoError> {
        self.write_zeroes(offset, length, false, fua).await
    }

    async fn write_zeroes(&self, offset: u64, length: u64, _allocate: bool, _fua: bool) -> Result<(), IoError> {
        self.0.borrow_mut()[place(offset, length)].fill(0);
        Ok(())
    }

    async fn block_status(&self, _offset: u64, length: u64, _limit: usize) -> Result<Vec<Run>, IoError> {
        Ok(vec![Run { length, mapped: true }])
    }
}

const NAME: &str = "memory";

impl Exports for MemoryDisk {
    type Disk = MemoryDisk;

    fn names(&self) -> Vec<String> {
        vec![NAME.to_owned()]
    }

    fn shown_to(&self, _certificates: &[CertificateDer<'static>]) -> Result<Self, OpenError> {
        Ok(self.clone())
    }

    async fn open(&self, name: &str) -> Result<MemoryDisk, OpenError> {
        if name == NAME { Ok(self.clone()) } else { Err(OpenError::Unknown(name.to_owned())) }
    }
}

async fn serve(endpoint: Endpoint, size: Size) -> Result<(), Box<dyn Error>> {
    let disk = MemoryDisk(Rc::new(RefCell::new(Buffer::zeroed(usize::try_from(size.0)?))));
    let listener = Listener::bind(&endpoint).await?;
    let admission = Admission::new(Limits::default());
    let (stopper, stop) = stop_signal();
    println!("{size} of memory as '{NAME}' on {}; Ctrl-C stops", listener.endpoint()?);
    tokio::task::spawn_local(async move {
        let _ = tokio::signal::ctrl_c().await;
        stopper.stop();
    });
    accept_connections(&listener, &admission, stop.clone(), |accepted, permit| {
        let (disk, stop) = (disk.clone(), stop.clone());
        tokio::task::spawn_local(
            async move { serve_accepted(accepted, &disk, permit, stop, &Protection::default()).await },
        );
    })
    .await;
    while admission.connections() > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, size] = arguments.as_slice() else { return Err("give an address and a size".into()) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, serve(endpoint.parse()?, size.parse()?))
}
