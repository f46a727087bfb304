//! A drive's device with a meter on it.

use crate::device::DriveDevice;
use crate::observed::meter::{Meter, Operation};
use crate::slow::{self, Done, Kind, Lately, Step, Stepped};
use futures_util::future::Either;
use std::sync::Arc;
use std::time::Instant;
use tepal_drive::world::{Device, DeviceError, Gather};
use tepal_model::{Buffer, DriveId};

/// Cheap to clone; clones count together.
#[derive(Clone)]
pub struct MeteredDevice {
    device: DriveDevice,
    meter: Arc<Meter>,
    lately: Arc<Lately>,
}

impl MeteredDevice {
    /// Devices of one drive share a meter, and what they did lately.
    pub fn new(device: DriveDevice, meter: Arc<Meter>, lately: Arc<Lately>) -> Self {
        MeteredDevice { device, meter, lately }
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// What the device does is a step of the request for which it's done; else it's remembered for those that wait for it.
    fn watched<F: Future>(&self, name: &'static str, bytes: u64, work: F) -> impl Future<Output = F::Output> {
        if !slow::HERE.is_on() {
            return Either::Left(work);
        }
        Either::Right(Box::pin(async move {
            if slow::current().is_some() {
                return slow::step(|| Step::new(name, Kind::Internal).note("tepal.bytes", bytes), work).await;
            }
            let began = Instant::now();
            let done = work.await;
            self.lately.note(Done { name, bytes, began, took: began.elapsed() });
            done
        }))
    }
}

impl From<DriveDevice> for MeteredDevice {
    fn from(device: DriveDevice) -> Self {
        MeteredDevice::new(device, Arc::default(), Arc::default())
    }
}

impl Device for MeteredDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Result<Buffer, DeviceError> {
        let length = buffer.len() as u64;
        let timing = self.meter.begin(Operation::Read, length);
        timing.end(self.watched("device read", length, self.device.read(offset, buffer)).await)
    }

    async fn write(&self, offset: u64, data: Gather) -> Result<(), DeviceError> {
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        let timing = self.meter.begin(Operation::Write, length);
        timing.end(self.watched("device write", length, self.device.write(offset, data)).await)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let timing = self.meter.begin(Operation::Flush, 0);
        timing.end(self.watched("device flush", 0, self.device.flush()).await)
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let timing = self.meter.begin(Operation::Discard, length);
        timing.end(self.watched("device discard", length, self.device.discard(offset, length)).await)
    }

    fn seen<F: Future>(&self, drive: DriveId, name: &'static str, work: F) -> impl Future<Output = F::Output> {
        let Some(step) = slow::begin(|| Step::new(name, Kind::Internal).note("tepal.drive.id", drive.to_string()))
        else {
            return Either::Left(work);
        };
        Either::Right(Box::pin(async move {
            let done = Stepped::new(step.clone(), work).await;
            self.lately.tell(&step);
            done
        }))
    }
}
