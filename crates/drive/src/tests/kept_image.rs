//! Drives as each format left them, kept in the tree: later programs must open them, and must not write the latest format otherwise.

use super::{MAP, Rig, TestDevice};
use crate::geometry::MIN_DRIVE;
use crate::{Change, KeepError, Mark, MarkKind, StateCopy, StateOrder};
use proptest::prelude::*;
use tepal_model::{BLOCK, DriveId, History, Lineage, Origin, Taken};

const FORMAT_4: &[u8] = include_bytes!("../../images/format-4.image");
const FORMAT_5: &[u8] = include_bytes!("../../images/format-5.image");
const FORMAT_6: &[u8] = include_bytes!("../../images/format-6.image");
/// What the drive of format 6 has grown to.
const GROWN: u64 = MIN_DRIVE + (3 << 20);
const BLOCK_BYTES: usize = BLOCK as usize;
/// What a device holds that was never written.
const BLANK: u8 = 0xa5;

const REQUEST: Origin = Origin { gateway: 5, slot: 6, number: 1, view: 7 };
const OTHER: Origin = Origin { gateway: 8, slot: 9, number: 10, view: 7 };

fn marks() -> [Mark; 2] {
    [MarkKind::Busy, MarkKind::Stale(DriveId(9))].map(|kind| Mark { map: MAP, region: 7, kind })
}

/// Some of everything: what a checkpoint has put into the tables, and what is in the log only.
fn story() -> Rig {
    let mut rig = Rig::on(TestDevice::new(MIN_DRIVE), None);
    rig.write(0, &[1; 40], true).unwrap();
    rig.write(3, &[2; 2], true).unwrap();
    rig.clear(32, 4);
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.write(16, &[3; 16], true).unwrap();
    rig.write(1000, &[4], true).unwrap();
    rig.clear(5, 1);
    rig.pool.run_until(rig.drive.record(marks().map(Change::Marked).to_vec(), true)).unwrap();
    rig.write_of(REQUEST, 1, 1);
    rig.pool.run_until(rig.drive.adopt(MAP, (20, 4), vec![Taken { origin: OTHER, first: 22, count: 1 }])).unwrap();
    tell_of_layers(&mut rig);
    for view in 1..=3 {
        rig.pool.run_until(rig.drive.keep_state(&state(view))).unwrap();
    }
    rig
}

fn state(view: u64) -> StateCopy {
    StateCopy::new(StateOrder { view, events: 7, history: 8 }, &[view as u8; 5000])
}

/// Two snapshots, of which the first one is given up.
fn tell_of_layers(rig: &mut Rig) {
    rig.write(2000, &[5; 16], true).unwrap();
    rig.lineage = lineage("0-2");
    rig.clear(2002, 3);
    rig.write(2003, &[6; 10], true).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.lineage = lineage("0-3");
    rig.clear(2006, 1);
    rig.write(2008, &[7], true).unwrap();
    let history = History::new([lineage("0-2"), lineage("0-3")], 3);
    rig.pool.run_until(rig.drive.reclaim(MAP, &history)).unwrap();
    rig.clear(2015, 1);
}

fn lineage(text: &str) -> Lineage {
    text.parse().unwrap()
}

fn check_layers(rig: &mut Rig) {
    let stories: [(&str, &[u8]); 2] = [
        ("0-2", &[5, 5, 0, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5, 5, 5]),
        ("0-3", &[5, 5, 0, 6, 6, 6, 0, 6, 7, 6, 6, 6, 6, 5, 5, 0]),
    ];
    for (text, expected) in stories {
        rig.lineage = lineage(text);
        assert_eq!(rig.read(2000, 16).unwrap(), expected, "{text}");
    }
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

fn unpack(image: &[u8]) -> TestDevice {
    unpack_to(MIN_DRIVE, image)
}

fn unpack_to(size: u64, mut image: &[u8]) -> TestDevice {
    let device = TestDevice::new(size);
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
    check_layers(rig);
    assert_eq!(rig.drive.marks(), marks());
    assert_eq!(rig.drive.slots_unaccounted(), 0);
}

fn check_requests(rig: &Rig) {
    let taken = [(REQUEST, 1), (OTHER, 22)].map(|(origin, first)| Taken { origin, first, count: 1 });
    assert_eq!(rig.drive.requests(MAP, 0, 100), taken);
}

/// The drive of format 5, grown while it's nearly full, and with something in what it has grown by.
fn grown_story() -> Rig {
    let mut rig = story();
    rig.lineage = lineage("0-3");
    let mut at = 10_000;
    while rig.write(at, &[8; 16], true).is_ok() {
        at += 16;
    }
    rig.grow(GROWN).unwrap();
    rig.lineage = lineage("0-3");
    rig.write(at, &[9; 64], true).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.write(at + 4, &[10], true).unwrap();
    rig.write(at + 64, &[11; 16], true).unwrap();
    rig
}

fn check_grown(rig: &mut Rig) {
    check(rig);
    rig.lineage = lineage("0-3");
    let full = (0..).map(|extent| 10_000 + 16 * extent).find(|&at| rig.read(at, 1).unwrap() != [8]).unwrap();
    assert_eq!(rig.read(full - 1, 6).unwrap(), [8, 9, 9, 9, 9, 10]);
    assert_eq!(rig.read(full + 60, 21).unwrap(), [vec![9; 4], vec![11; 16], vec![0]].concat());
}

fn check_older_drive(image: &[u8], keeps: Result<(), KeepError>) {
    let device = unpack(image);
    let mut pool = futures_executor::LocalPool::new();
    let drive = Rig::open(&mut pool, &device, &None).unwrap();
    let mut rig = Rig { pool, device, log: None, drive, lineage: Lineage::default() };
    check(&mut rig);
    check_requests(&rig);
    rig.write(40, &[5], true).unwrap();
    rig.pool.run_until(rig.drive.checkpoint()).unwrap();
    rig.device.lose_power();
    rig.reopen();
    assert_eq!(rig.read(39, 2).unwrap(), [1, 5]);
    check_layers(&mut rig);
    check_requests(&rig);
    assert_eq!(rig.pool.run_until(rig.drive.keep_state(&state(4))), keeps);
}

#[test]
fn a_drive_of_each_format_is_read_as_it_was_written_and_can_be_written_to() {
    check_older_drive(FORMAT_4, Err(KeepError::NoPlace));
    check_older_drive(FORMAT_5, Ok(()));
}

#[test]
fn the_state_that_a_drive_of_format_5_kept_is_read() {
    let device = unpack(FORMAT_5);
    let mut pool = futures_executor::LocalPool::new();
    let label = pool.run_until(crate::Label::read(&device)).unwrap();
    let found = pool.run_until(crate::read_state_copies(&device, &label)).unwrap();
    let orders: Vec<u64> = found.whole.iter().map(|copy| copy.order().view).collect();
    assert_eq!((orders, found.damaged.len()), (vec![3, 2], 0));
    assert_eq!(found.whole[0].content(), [3; 5000]);
}

#[test]
fn a_drive_that_had_grown_is_read_as_it_was_written_and_grows_on() {
    let device = unpack_to(GROWN, FORMAT_6);
    let mut pool = futures_executor::LocalPool::new();
    let drive = Rig::open(&mut pool, &device, &None).unwrap();
    let mut rig = Rig { pool, device, log: None, drive, lineage: Lineage::default() };
    check_grown(&mut rig);
    rig.grow(GROWN + (1 << 20)).unwrap();
    check_grown(&mut rig);
}

/// Both have the places of what they were labelled with.
#[test]
fn drives_of_earlier_formats_grow_and_hold_what_they_held() {
    for (image, keeps) in [(FORMAT_4, Err(KeepError::NoPlace)), (FORMAT_5, Ok(()))] {
        let device = unpack(image);
        let mut pool = futures_executor::LocalPool::new();
        let drive = Rig::open(&mut pool, &device, &None).unwrap();
        let mut rig = Rig { pool, device, log: None, drive, lineage: Lineage::default() };
        let (before, slots) = (rig.drive.usage(), rig.drive.geometry().slots);
        rig.grow(GROWN).unwrap();
        check(&mut rig);
        check_requests(&rig);
        assert!(rig.drive.geometry().slots >= slots + 45, "{:?}", rig.drive.geometry());
        assert_eq!(rig.drive.usage().log_length, before.log_length);
        assert_eq!(rig.pool.run_until(rig.drive.keep_state(&state(4))), keeps);
    }
}

#[test]
fn format_5_is_written_byte_for_byte_as_it_was() {
    let mut rig = story();
    check(&mut rig);
    check_requests(&rig);
    compare(&rig, FORMAT_5, "tepal-format-5.image");
}

#[test]
fn format_6_is_written_byte_for_byte_as_it_was() {
    let mut rig = grown_story();
    check_grown(&mut rig);
    compare(&rig, FORMAT_6, "tepal-format-6.image");
}

#[expect(clippy::disallowed_methods, reason = "a file for whoever looks into the failure, not a drive")]
fn compare(rig: &Rig, image: &[u8], name: &str) {
    let written = pack(&rig.device.0.borrow().stable);
    if written != image {
        let now = std::env::temp_dir().join(name);
        std::fs::write(&now, written).unwrap();
        let now = now.display();
        panic!(
            "the format has changed: give it a new number, and keep reading the old one; as it is written now: {now}"
        );
    }
}

/// What a block may read as when the end of the log is lost: what it held since the last checkpoint.
fn versions(block: u64) -> &'static [u8] {
    match block {
        3 | 4 => &[2],
        5 => &[1, 0],
        16..32 => &[1, 3],
        32..36 => &[0],
        0..40 => &[1],
        1000 => &[0, 4],
        2000..2016 => &[0, 5, 6, 7],
        _ => &[0],
    }
}

/// Opens a drive that has been tampered with and reads all of it, block by block.
fn read_all(device: TestDevice) {
    let mut pool = futures_executor::LocalPool::new();
    let Ok(drive) = Rig::open(&mut pool, &device, &None) else { return };
    let mut rig = Rig { pool, device, log: None, drive, lineage: lineage("0-3") };
    for block in (0..48).chain(996..1012).chain(2000..2016) {
        if let Ok(found) = rig.read(block, 1) {
            assert!(versions(block).contains(&found[0]), "block {block} reads as {}", found[0]);
        }
    }
    let _ = rig.pool.run_until(rig.drive.scrub(None, |_| std::future::ready(())));
    let _ = rig.pool.run_until(rig.drive.checkpoint());
}

/// The numbers of the device's blocks that were written.
fn written(drive: &[u8]) -> Vec<usize> {
    let blocks = drive.chunks(BLOCK_BYTES).enumerate();
    blocks.filter(|(_, block)| block.iter().any(|&byte| byte != BLANK)).map(|(number, _)| number).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_drive_that_was_tampered_with_gives_right_bytes_or_errors(
        places in prop::collection::vec((any::<prop::sample::Index>(), 0..BLOCK_BYTES, 1..=255u8), 1..5),
    ) {
        let device = unpack(FORMAT_5);
        {
            let mut platter = device.0.borrow_mut();
            let written = written(&platter.now);
            for (index, at, flip) in places {
                // Half of them where the headers of things are.
                let at = if at % 2 == 0 { at % 64 } else { at };
                platter.now[index.get(&written) * BLOCK_BYTES + at] ^= flip;
            }
            platter.stable = platter.now.clone();
        }
        read_all(device);
    }

    #[test]
    fn blocks_that_changed_places_give_right_bytes_or_errors(from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        let device = unpack(FORMAT_5);
        {
            let mut platter = device.0.borrow_mut();
            let written = written(&platter.now);
            let (from, to) = (from.get(&written), to.get(&written));
            let moved = platter.now[from * BLOCK_BYTES..][..BLOCK_BYTES].to_vec();
            platter.now[to * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(&moved);
            platter.stable = platter.now.clone();
        }
        read_all(device);
    }
}
