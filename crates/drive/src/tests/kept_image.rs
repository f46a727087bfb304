//! A drive as format 1 left it, kept in the tree: later programs must open it, and must not write that format otherwise.

use super::{MAP, Rig, TestDevice};
use crate::geometry::MIN_DRIVE;
use crate::{Change, Mark, MarkKind};
use tepal_model::{BLOCK, DriveId};

const KEPT: &[u8] = include_bytes!("../../images/format-1.image");
const BLOCK_BYTES: usize = BLOCK as usize;
/// What a device holds that was never written.
const BLANK: u8 = 0xa5;

fn marks() -> [Mark; 2] {
    [MarkKind::Busy, MarkKind::Stale(DriveId(9))].map(|kind| Mark { map: MAP, region: 7, kind })
}

/// Some of everything: what a checkpoint has put into the tables, and what is in the log only.
fn story() -> Rig {
    let mut rig = Rig::on(TestDevice::new(MIN_DRIVE), None);
    rig.write(0, &[1; 40], true).unwrap();
    rig.write(3, &[2; 2], true).unwrap();
    rig.pool.run_until(rig.drive.clear(MAP, 32, 4, Vec::new())).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.write(16, &[3; 16], true).unwrap();
    rig.write(1000, &[4], true).unwrap();
    rig.pool.run_until(rig.drive.clear(MAP, 5, 1, Vec::new())).unwrap();
    rig.pool.run_until(rig.drive.record(marks().map(Change::Marked).to_vec(), true)).unwrap();
    rig
}

/// The blocks that were written: number, how many bytes until the rest is all the same, those bytes, that one.
fn pack(drive: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    for (number, block) in drive.chunks(BLOCK_BYTES).enumerate().filter(|(_, block)| block.iter().any(|&b| b != BLANK))
    {
        let last = block[BLOCK_BYTES - 1];
        let length = block.iter().rposition(|&byte| byte != last).map_or(0, |at| at + 1);
        image.extend((number as u32).to_le_bytes());
        image.extend((length as u16).to_le_bytes());
        image.extend(&block[..length]);
        image.push(last);
    }
    image
}

fn unpack(mut image: &[u8]) -> TestDevice {
    let device = TestDevice::new(MIN_DRIVE);
    let mut platter = device.0.borrow_mut();
    while let Some((head, rest)) = image.split_first_chunk::<6>() {
        let number = u32::from_le_bytes(head[..4].try_into().unwrap()) as usize;
        let (bytes, rest) = rest.split_at(u16::from_le_bytes(head[4..].try_into().unwrap()).into());
        let block = &mut platter.now[number * BLOCK_BYTES..][..BLOCK_BYTES];
        block[..bytes.len()].copy_from_slice(bytes);
        block[bytes.len()..].fill(rest[0]);
        image = &rest[1..];
    }
    platter.stable = platter.now.clone();
    drop(platter);
    device
}

fn check(rig: &mut Rig) {
    let expected =
        [vec![1; 3], vec![2; 2], vec![0], vec![1; 10], vec![3; 16], vec![0; 4], vec![1; 4], vec![0]].concat();
    assert_eq!(rig.read(0, 41).unwrap(), expected);
    assert_eq!(rig.read(999, 3).unwrap(), [0, 4, 0]);
    assert_eq!(rig.drive.marks(), marks());
    assert_eq!(rig.drive.slots_unaccounted(), 0);
}

#[test]
fn a_drive_of_format_1_is_read_as_it_was_written_and_can_be_written_to() {
    let device = unpack(KEPT);
    let mut pool = futures_executor::LocalPool::new();
    let drive = Rig::open(&mut pool, &device, &None).unwrap();
    let mut rig = Rig { pool, device, log: None, drive };
    check(&mut rig);
    rig.write(40, &[5], true).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(39, 2).unwrap(), [1, 5]);
}

#[test]
fn format_1_is_written_byte_for_byte_as_it_was() {
    let mut rig = story();
    check(&mut rig);
    let written = pack(&rig.device.0.borrow().stable);
    assert!(written == KEPT, "the format has changed: give it a new number, and keep reading the old one");
}

#[test]
#[ignore = "writes the image anew, for a format that nobody has used yet"]
#[expect(clippy::disallowed_methods, reason = "it writes into the tree, not to a drive")]
fn write_the_image() {
    let image = pack(&story().device.0.borrow().stable);
    std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/images/format-1.image"), image).unwrap();
}
