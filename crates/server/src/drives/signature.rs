//! What seems to be on a device that has no label of ours, so that nobody's data is overwritten by a mistyped path.
//!
//! A device counts as free only if its first and last bytes are all zeros: a list of known signatures, as `wipefs` has, can
//! never be complete, so it only serves to give names.

use tepal_drive::geometry::HEADERS;
use tepal_drive::log::header::Header;
use tepal_drive::world::{Device, DeviceError};
use tepal_model::{BLOCK, Buffer, DriveId};

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
    let mut pages = first.chunks(BLOCK as usize).zip((0..).step_by(BLOCK as usize));
    let empty = pages.all(|(page, at)| is_zero(page) || (HEADERS.contains(&at) && is_fresh_header(page)));
    Ok((!empty || !is_zero(&last)).then_some("data of a kind that is not known"))
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// A drive that was being made when its server was killed has this and no label yet: nothing was ever on it.
fn is_fresh_header(page: &[u8]) -> bool {
    let Some(id) = page.get(8..16).and_then(|id| id.try_into().ok()) else { return false };
    let header = Header::decode(page, DriveId(u64::from_le_bytes(id)));
    header.is_some_and(|header| (header.checkpoint, header.cut, header.map_pages) == (1, 0, 0))
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
    async fn a_drive_whose_making_was_cut_off_before_it_had_a_label_is_empty_and_one_that_was_used_is_not() {
        let device = DriveDevice::memory(64 << 20);
        let new = tepal_drive::NewDrive {
            cluster: tepal_model::ClusterId(1),
            drive: DriveId(7),
            pool: "default".into(),
            log_length: None,
        };
        tepal_drive::format(&device, None, new).await.expect("memory");
        assert!(content(&device).await.expect("memory").is_some(), "it has a label");
        let zeros = Buffer::zeroed(BLOCK as usize).freeze();
        for offset in [0, device.size() - BLOCK] {
            device.write(offset, Gather::from_iter([zeros.clone()])).await.expect("memory");
        }
        assert_eq!(content(&device).await, Ok(None));
        let mut page = device.read(HEADERS[0], Buffer::take(BLOCK as usize)).await.expect("memory");
        page[16] += 1; // another checkpoint
        device.write(HEADERS[0], Gather::from_iter([page.freeze()])).await.expect("memory");
        assert!(content(&device).await.expect("memory").is_some());
    }

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
