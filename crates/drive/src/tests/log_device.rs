//! The device of a log, which isn't what the drive last used.

use super::{Rig, SIZE, TestDevice};
use crate::{OpenError, raise};
use tepal_model::{BLOCK, DriveId};

const LOG_SIZE: usize = 4 << 20;
/// The id of the log of the rig's drive.
const LOG: DriveId = DriveId(!2);

fn rig() -> (Rig, TestDevice) {
    let log = TestDevice::new(LOG_SIZE as u64);
    (Rig::on(TestDevice::new(SIZE), Some(log.clone())), log)
}

/// Takes the drive into use once more.
fn raised(rig: &mut Rig, log: Option<&TestDevice>) -> Result<bool, OpenError> {
    let mut label = rig.drive.label().clone();
    label.generation += 1;
    rig.pool.run_until(raise(&label, &rig.device, log, 0))
}

/// Story: the file of a log was cut short and lengthened with zeros. It looked like one that had ended there, what was
/// acknowledged since was gone, and the other copy was made like this one.
#[test]
fn a_log_that_was_cut_short_and_lengthened_is_refused() {
    let (mut rig, log) = rig();
    rig.write(0, &[1], true).unwrap();
    for end in [64 << 10, 2 << 20, LOG_SIZE - BLOCK as usize] {
        let cut = log.clone_deep();
        cut.0.borrow_mut().now[end..].fill(0);
        assert_eq!(raised(&mut rig, Some(&cut)), Err(OpenError::LogCut { log: LOG }));
        let opened = Rig::open(&mut rig.pool, &rig.device, &Some(cut));
        assert_eq!(opened.err(), Some(OpenError::LogCut { log: LOG }), "{end}");
    }
    rig.reopen();
    assert_eq!(rig.read(0, 1).unwrap(), [1]);
}

#[test]
fn an_older_image_of_a_log_is_refused() {
    let (mut rig, log) = rig();
    rig.write(0, &[1], true).unwrap();
    let image = log.clone_deep();
    for generation in [2, 3] {
        assert_eq!(raised(&mut rig, Some(&log)), Ok(false));
        rig.reopen();
        rig.write(0, &[generation], true).unwrap();
    }
    let opened = Rig::open(&mut rig.pool, &rig.device, &Some(image.clone_deep()));
    assert_eq!(opened.err(), Some(OpenError::LogOlder { log: LOG, generation: 1, newest: 3 }));
    assert_eq!(raised(&mut rig, Some(&image)), Err(OpenError::LogOlder { log: LOG, generation: 1, newest: 3 }));
    assert_eq!(raised(&mut rig, None), Err(OpenError::LogMissing { wanted: LOG }), "and nothing is raised without it");
    rig.reopen();
    assert_eq!((rig.drive.label().generation, rig.read(0, 1).unwrap()), (3, vec![3]));
}
