//! The label: who a drive is. One block at its start and the same at its end, each checksummed.
//!
//! A drive is found by its label, never by its path. Two copies tell a drive that was cut short (the last is missing)
//! from one that was never ours.

use crate::geometry::{Geometry, GeometryError, LABEL_FIRST};
use crate::world::{Device, DeviceError, Gather};
use smallvec::SmallVec;
use std::fmt;
use tepal_codec::checksum::crc;
use tepal_model::{BLOCK, Buffer, ClusterId, DriveId};

/// Begins every label, and so every drive.
pub const MAGIC: [u8; 8] = *b"TEPALdrv";
/// The version of everything on a drive that hasn't grown. Any but these three is refused before anything is written.
pub const FORMAT: u32 = 5;
/// The same, of a drive that has grown.
pub const GROWN: u32 = 6;
/// The same but for the places in which the cluster's state is kept.
pub const WITHOUT_STATE: u32 = 4;
const POOL_MAX: usize = 64;
const SIZE_AT: usize = 48;
const DOUBTFUL_AT: usize = 65 + POOL_MAX;
const STATE_AT: usize = 136;
const OUTGROWN_AT: usize = 144;
/// How often a drive can grow: as many sizes have room in the label.
pub const MOST_GROWTHS: usize = 480;
const CRC_AT: usize = BLOCK as usize - 4;

/// What a drive says it is; byte table in `docs/formats.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Which cluster has labelled the device.
    pub cluster: ClusterId,
    /// Its id in the cluster. A log device has one that follows from the id of its drive.
    pub drive: DriveId,
    /// Name of the pool that the drive was added to, at most 64 bytes; what is longer is cut when it's written.
    pub pool: String,
    /// Raised whenever the label is written; the newer of two copies wins.
    pub generation: u64,
    /// Size that the drive had when it was labelled, or has grown to since, in bytes.
    pub size: u64,
    /// What is between the labels.
    pub role: Role,
    /// Some of what is on it may be gone, and nothing has looked through all of it since.
    pub doubtful: bool,
    /// Bytes of each of the two places in which the cluster's state is kept; 0 if there are none, as on log devices and drives that
    /// were labelled by earlier versions.
    pub state_length: u64,
    /// Sizes that the drive had before it grew, ascending. Where things lie follows from them.
    pub outgrown: Vec<u64>,
}

/// What the rest of the drive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Data, with a log of this many bytes on the drive itself.
    Data {
        /// In bytes.
        log_length: u64,
    },
    /// Data, whose log is on the device with this id.
    DataWithLogOn {
        /// As the label of that device says.
        log: DriveId,
    },
    /// Nothing but the log of this drive.
    LogOf {
        /// As the label of that drive says.
        drive: DriveId,
    },
}

/// Why a device has no label that counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// It never was a drive of Tepal, or was wiped.
    #[error("it has no Tepal label")]
    Missing,
    /// Use a version of Tepal that knows it. Nothing was written.
    #[error("it has a Tepal label of format {found}, and this version knows {WITHOUT_STATE} to {GROWN}")]
    Format {
        /// Which format the label says.
        found: u32,
    },
    /// Lengthen the device again, if what was cut off is still there.
    #[error("it was labelled with {labelled} bytes and has {found} now: it was cut short")]
    CutShort {
        /// The size that the label says.
        labelled: u64,
        /// The device's size now.
        found: u64,
    },
    /// There was a label: the device isn't free to be used.
    #[error("both copies of its label are damaged")]
    Damaged,
    /// A copy can't be read and the other doesn't count, or the device is gone.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl Label {
    /// The block as it's written, with its CRC.
    pub fn encode(&self) -> Buffer {
        let mut page = Buffer::zeroed(BLOCK as usize);
        page[0..8].copy_from_slice(&MAGIC);
        let format = match (self.state_length, &self.outgrown[..]) {
            (0, []) => WITHOUT_STATE,
            (_, []) => FORMAT,
            _ => GROWN,
        };
        page[8..12].copy_from_slice(&format.to_le_bytes());
        let (role, detail) = match self.role {
            Role::Data { log_length } => (1u32, log_length),
            Role::DataWithLogOn { log } => (2, log.0),
            Role::LogOf { drive } => (3, drive.0),
        };
        page[12..16].copy_from_slice(&role.to_le_bytes());
        page[16..32].copy_from_slice(&self.cluster.0.to_le_bytes());
        page[32..40].copy_from_slice(&self.drive.0.to_le_bytes());
        page[40..48].copy_from_slice(&self.generation.to_le_bytes());
        page[SIZE_AT..56].copy_from_slice(&self.size.to_le_bytes());
        page[56..64].copy_from_slice(&detail.to_le_bytes());
        let pool = &self.pool.as_bytes()[..self.pool.len().min(POOL_MAX)];
        page[64] = pool.len() as u8;
        page[65..65 + pool.len()].copy_from_slice(pool);
        page[DOUBTFUL_AT] = self.doubtful.into();
        page[STATE_AT..STATE_AT + 8].copy_from_slice(&self.state_length.to_le_bytes());
        let outgrown = &self.outgrown[..self.outgrown.len().min(MOST_GROWTHS)];
        for (nth, number) in std::iter::once(outgrown.len() as u64).chain(outgrown.iter().copied()).enumerate() {
            page[OUTGROWN_AT + 8 * nth..][..8].copy_from_slice(&number.to_le_bytes());
        }
        let sum = crc(&page[..CRC_AT]);
        page[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
        page
    }

    /// `Missing` for anything that never was a label, `Damaged` for what was one.
    pub fn decode(page: &[u8]) -> Result<Self, LabelError> {
        if page.len() != BLOCK as usize || page[0..8] != MAGIC {
            return Err(LabelError::Missing);
        }
        let u32_at = |at: usize| u32::from_le_bytes(page[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(page[at..at + 8].try_into().expect("8 bytes"));
        if u32_at(CRC_AT) != crc(&page[..CRC_AT]) {
            return Err(LabelError::Damaged);
        }
        let state_length = match u32_at(8) {
            FORMAT | GROWN => u64_at(STATE_AT),
            WITHOUT_STATE => 0,
            found => return Err(LabelError::Format { found }),
        };
        let role = match (u32_at(12), u64_at(56)) {
            (1, log_length) => Role::Data { log_length },
            (2, log) => Role::DataWithLogOn { log: DriveId(log) },
            (3, drive) => Role::LogOf { drive: DriveId(drive) },
            _ => return Err(LabelError::Damaged),
        };
        // It has two copies; and each place a header.
        if u64_at(SIZE_AT) < 2 * BLOCK || state_length % BLOCK != 0 || state_length == BLOCK {
            return Err(LabelError::Damaged);
        }
        let growths = if u32_at(8) == GROWN { u64_at(OUTGROWN_AT) } else { 0 };
        if growths > MOST_GROWTHS as u64 {
            return Err(LabelError::Damaged);
        }
        let outgrown: Vec<u64> = (1..=growths as usize).map(|nth| u64_at(OUTGROWN_AT + 8 * nth)).collect();
        if outgrown.iter().any(|size| *size < 2 * BLOCK) {
            return Err(LabelError::Damaged);
        }
        let pool_length = usize::from(page[64]);
        let pool = page.get(65..65 + pool_length.min(POOL_MAX)).and_then(|bytes| std::str::from_utf8(bytes).ok());
        Ok(Label {
            cluster: ClusterId(u128::from_le_bytes(page[16..32].try_into().expect("16 bytes"))),
            drive: DriveId(u64_at(32)),
            pool: pool.ok_or(LabelError::Damaged)?.to_owned(),
            generation: u64_at(40),
            size: u64_at(SIZE_AT),
            role,
            doubtful: page[DOUBTFUL_AT] != 0,
            state_length,
            outgrown,
        })
    }

    /// Where everything is on a drive of data; of a log elsewhere, nothing is said.
    pub(crate) fn geometry(&self) -> Result<Geometry, GeometryError> {
        let log_length = match self.role {
            Role::Data { log_length } => Some(log_length),
            Role::DataWithLogOn { .. } | Role::LogOf { .. } => None,
        };
        let mut sizes = self.all_sizes();
        let first = Geometry::new(sizes.next().unwrap_or(self.size), log_length, self.state_length)?;
        sizes.try_fold(first, Geometry::grown)
    }

    /// All that the drive has had, the last one is what it has.
    pub(crate) fn all_sizes(&self) -> impl Iterator<Item = u64> + use<'_> {
        self.outgrown.iter().copied().chain([self.size])
    }

    /// What a device of this size has beyond the drive's end, in bytes: it may have grown since it was labelled.
    pub fn beyond(&self, size: u64) -> u64 {
        (size / BLOCK * BLOCK).saturating_sub(self.size / BLOCK * BLOCK)
    }

    /// Reads both copies and settles which counts.
    pub async fn read<D: Device>(device: &D) -> Result<Self, LabelError> {
        if device.size() < 2 * BLOCK {
            return Err(LabelError::Missing);
        }
        let first = Self::read_copy(device, LABEL_FIRST).await?;
        let mut last = Err(LabelError::Missing);
        for size in Self::sizes(device, &first).await? {
            last = Self::read_copy(device, Geometry::label_last(size)).await?;
            // That of a drive within this device ends elsewhere.
            if last.as_ref().is_ok_and(|label| label.size / BLOCK == size / BLOCK) {
                break;
            }
            if last.is_ok() {
                last = Err(LabelError::Missing);
            }
        }
        let label = match (first, last) {
            (Ok(first), Ok(last)) if last.generation > first.generation && last.drive == first.drive => last,
            (Ok(label), _) => label,
            (Err(LabelError::Format { found }), _) => return Err(LabelError::Format { found }),
            (Err(_), Ok(label)) => label,
            (Err(LabelError::Damaged), _) => return Err(LabelError::Damaged),
            (Err(LabelError::Missing), Err(unread @ LabelError::Device(_))) => return Err(unread),
            (Err(error), _) => return Err(error),
        };
        if label.size > device.size() {
            return Err(LabelError::CutShort { labelled: label.size, found: device.size() });
        }
        Ok(label)
    }

    /// How long the drive may be, by its first copy: the device may have been lengthened since it was labelled, and then
    /// what a torn copy says of its size is all that tells where the other one is.
    async fn sizes<D: Device>(device: &D, first: &Result<Self, LabelError>) -> Result<SmallVec<[u64; 2]>, DeviceError> {
        let said = match first {
            Ok(label) => label.size,
            Err(LabelError::Damaged) => match device.read(LABEL_FIRST, Buffer::take(BLOCK as usize)).await {
                Ok(page) => u64::from_le_bytes(page[SIZE_AT..56].try_into().expect("8 bytes")),
                Err(DeviceError::Failed { .. }) => device.size(),
                Err(gone) => return Err(gone),
            },
            Err(_) => device.size(),
        };
        let fits = |size: &u64| (2 * BLOCK..=device.size()).contains(size);
        Ok([said, device.size()].into_iter().filter(fits).collect())
    }

    /// One copy. That it can't be read, as when a power loss tore it, is an error of that copy only.
    pub(crate) async fn read_copy<D: Device>(device: &D, offset: u64) -> Result<Result<Self, LabelError>, DeviceError> {
        match device.read(offset, Buffer::take(BLOCK as usize)).await {
            Ok(page) => Ok(Self::decode(&page)),
            Err(failed @ DeviceError::Failed { .. }) => Ok(Err(failed.into())),
            Err(gone) => Err(gone),
        }
    }

    /// Whether there is no label where the last copy was: the drive was cut short, and is long again, with zeros or with
    /// what others left there. (Or the making of it was cut off, and nothing is on it yet.)
    pub async fn end_is_missing<D: Device>(&self, device: &D) -> Result<bool, DeviceError> {
        let last = Self::read_copy(device, Geometry::label_last(self.size)).await?;
        Ok(matches!(last, Err(LabelError::Missing)))
    }

    /// Zeroes copies that aren't where one belongs: the last one from before the drive grew, and that of a growth which was cut off. One
    /// would count on a device that is cut to end there, or whose first copy can't be read.
    pub(crate) async fn clear_left<D: Device>(&self, device: &D) -> Result<(), DeviceError> {
        let unused = (self.beyond(device.size()) > 0).then_some(device.size());
        for size in self.outgrown.last().copied().into_iter().chain(unused) {
            let place = Geometry::label_last(size);
            let left = Self::read_copy(device, place).await?;
            if left.is_ok_and(|label| (label.cluster, label.drive) == (self.cluster, self.drive)) {
                device.write(place, Gather::from_iter([Buffer::zeroed(BLOCK as usize).freeze()])).await?;
                device.flush().await?;
            }
        }
        Ok(())
    }

    /// Writes both copies, one after the other, so that a crash leaves at least one.
    pub async fn write<D: Device>(&self, device: &D) -> Result<(), DeviceError> {
        let page = self.encode().freeze();
        for offset in [LABEL_FIRST, Geometry::label_last(self.size)] {
            device.write(offset, Gather::from_iter([page.clone()])).await?;
            device.flush().await?;
        }
        Ok(())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Role::Data { log_length } => write!(f, "data, with a log of {log_length} bytes"),
            Role::DataWithLogOn { log } => write!(f, "data, with its log on {log}"),
            Role::LogOf { drive } => write!(f, "log of {drive}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn label() -> Label {
        Label {
            cluster: ClusterId(99),
            drive: DriveId(7),
            pool: "default".into(),
            generation: 3,
            size: 64 << 20,
            role: Role::Data { log_length: 1 << 20 },
            doubtful: false,
            state_length: 1 << 20,
            outgrown: Vec::new(),
        }
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_no_label_or_one_that_can_be_written(
            at in 0..BLOCK as usize - 4, bytes in prop::collection::vec(any::<u8>(), 1..64), role in 0u8..5, seal: bool,
        ) {
            let mut page = label().encode();
            let end = (at + bytes.len()).min(CRC_AT);
            page[at..end.max(at)].copy_from_slice(&bytes[..end.saturating_sub(at)]);
            page[12] = role;
            if seal {
                let sum = crc(&page[..CRC_AT]);
                page[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
            }
            if let Ok(read) = Label::decode(&page) {
                let _ = read.geometry();
                prop_assert_eq!(Label::decode(&read.encode()), Ok(read));
            }
        }
    }

    #[test]
    fn labels_read_back() {
        for role in [
            Role::Data { log_length: 5 << 20 },
            Role::DataWithLogOn { log: DriveId(8) },
            Role::LogOf { drive: DriveId(9) },
        ] {
            for state_length in [0, 2 * BLOCK] {
                for outgrown in
                    [vec![], vec![8 << 20, 16 << 20], (1..=MOST_GROWTHS as u64).map(|nth| nth << 20).collect()]
                {
                    let doubtful = role != label().role;
                    let label = Label { role, doubtful, state_length, outgrown, ..label() };
                    assert_eq!(Label::decode(&label.encode()), Ok(label));
                }
            }
        }
    }

    #[test]
    fn a_strange_block_is_missing_and_a_flipped_bit_is_damage() {
        assert_eq!(Label::decode(&[0; 4096]), Err(LabelError::Missing));
        assert_eq!(Label::decode(b"short"), Err(LabelError::Missing));
        for byte in 8..BLOCK as usize {
            let mut page = label().encode();
            page[byte] ^= 0x10;
            assert!(Label::decode(&page).is_err(), "byte {byte}");
        }
    }

    #[test]
    fn a_label_of_a_device_without_room_for_two_is_damaged() {
        for size in [0, BLOCK] {
            assert_eq!(Label::decode(&Label { size, ..label() }.encode()), Err(LabelError::Damaged));
        }
    }

    #[test]
    fn another_format_is_refused_by_its_number() {
        for other in [WITHOUT_STATE - 1, GROWN + 1] {
            let mut page = label().encode();
            page[8] = other as u8;
            let sum = crc(&page[..CRC_AT]);
            page[CRC_AT..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(Label::decode(&page), Err(LabelError::Format { found: other }));
        }
    }
}
