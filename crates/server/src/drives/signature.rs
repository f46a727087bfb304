//! What seems to be on a device that has no label of ours, so that nobody's data is overwritten by a mistyped path.
//!
//! A device counts as free only if its first and last bytes are all zeros: a list of known signatures, as `wipefs` has, can
//! never be complete, so it only serves to give names.

use tepal_drive::world::{Device, DeviceError};
use tepal_model::{BLOCK, Buffer};

/// How much is looked at, at each end, in bytes. Known signatures are in the first 72 KiB, or at the very end.
const LOOK: u64 = 128 << 10;

const KNOWN: [(usize, &[u8], &str); 12] = [
    (0x438, b"\x53\xef", "an ext2, ext3 or ext4 filesystem"),
    (0, b"XFSB", "an XFS filesystem"),
    (0x10040, b"_BHRfS_M", "a btrfs filesystem"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (512, b"LABELONE", "an LVM physical volume"),
    (0x1000, b"\xfc\x4e\x2b\xa9", "a member of a Linux RAID"),
    (3, b"NTFS    ", "an NTFS filesystem"),
    (0x8001, b"CD001", "an ISO 9660 filesystem"),
    (4086, b"SWAPSPACE2", "swap space"),
    (0, b"QFI\xfb", "a qcow2 image"),
    (512, b"EFI PART", "a GPT partition table"),
    (510, b"\x55\xaa", "a partition table or a boot sector"),
];

/// What is on it, for people; `None` if it looks empty.
pub async fn content<D: Device>(device: &D) -> Result<Option<&'static str>, DeviceError> {
    let length = LOOK.min(device.size() / BLOCK * BLOCK);
    let first = device.read(0, Buffer::take(length as usize)).await?;
    if let Some(name) = known(&first) {
        return Ok(Some(name));
    }
    let last = device.read(device.size() / BLOCK * BLOCK - length, Buffer::take(length as usize)).await?;
    let empty = first.iter().chain(last.iter()).all(|byte| *byte == 0);
    Ok((!empty).then_some("data of a kind that is not known"))
}

fn known(bytes: &[u8]) -> Option<&'static str> {
    let found = KNOWN.iter().find(|(at, magic, _)| bytes.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    found.map(|(_, _, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DriveDevice;
    use tepal_drive::world::Gather;

    #[tokio::test(flavor = "current_thread")]
    async fn only_zeros_at_both_ends_look_empty() {
        const SIZE: u64 = 8 << 20;
        assert_eq!(content(&DriveDevice::memory(SIZE)).await, Ok(None));
        assert_eq!(content(&DriveDevice::memory(BLOCK)).await, Ok(None));
        for (at, magic, name) in KNOWN {
            let device = DriveDevice::memory(SIZE);
            let mut page = Buffer::zeroed(LOOK as usize);
            page[at..at + magic.len()].copy_from_slice(magic);
            device.write(0, Gather::from_iter([page.freeze()])).await.expect("memory");
            assert_eq!(content(&device).await, Ok(Some(name)));
        }
        for offset in [LOOK / 2 / BLOCK * BLOCK, SIZE - BLOCK] {
            let device = DriveDevice::memory(SIZE);
            let page = Buffer::copy_of(&[1; BLOCK as usize]).freeze();
            device.write(offset, Gather::from_iter([page])).await.expect("memory");
            assert!(content(&device).await.expect("memory").is_some(), "at {offset}");
        }
    }
}
