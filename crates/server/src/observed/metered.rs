//! A drive's device with a meter on it.

use crate::device::DriveDevice;
use crate::observed::meter::{Meter, Operation};
use std::sync::Arc;
use tepal_drive::world::{Device, DeviceError, Gather};
use tepal_model::Buffer;

/// Cheap to clone; clones count together.
#[derive(Clone)]
pub struct MeteredDevice {
    device: DriveDevice,
    meter: Arc<Meter>,
}

impl MeteredDevice {
    /// Devices of one drive share a meter.
    pub fn new(device: DriveDevice, meter: Arc<Meter>) -> Self {
        MeteredDevice { device, meter }
    }

    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}

impl From<DriveDevice> for MeteredDevice {
    fn from(device: DriveDevice) -> Self {
        MeteredDevice::new(device, Arc::default())
    }
}

impl Device for MeteredDevice {
    fn size(&self) -> u64 {
        self.device.size()
    }

    async fn read(&self, offset: u64, buffer: Buffer) -> Result<Buffer, DeviceError> {
        let length = buffer.len() as u64;
        let timing = self.meter.begin(Operation::Read, length);
        timing.end(self.device.read(offset, buffer).await)
    }

    async fn write(&self, offset: u64, data: Gather) -> Result<(), DeviceError> {
        let length = data.iter().map(|piece| piece.len() as u64).sum();
        let timing = self.meter.begin(Operation::Write, length);
        timing.end(self.device.write(offset, data).await)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let timing = self.meter.begin(Operation::Flush, 0);
        timing.end(self.device.flush().await)
    }

    async fn discard(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        let timing = self.meter.begin(Operation::Discard, length);
        timing.end(self.device.discard(offset, length).await)
    }
}
