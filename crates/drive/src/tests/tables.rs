//! Copies of table pages that are rotten, or that a drive has lost the writing of.

use super::{Rig, TestDevice};
use std::future::ready;
use tepal_model::BLOCK;

impl TestDevice {
    fn block(&self, offset: u64) -> Vec<u8> {
        self.0.borrow().now[offset as usize..][..BLOCK as usize].to_vec()
    }

    fn put_block(&self, offset: u64, content: &[u8]) {
        let mut platter = self.0.borrow_mut();
        platter.now[offset as usize..][..BLOCK as usize].copy_from_slice(content);
        platter.stable[offset as usize..][..BLOCK as usize].copy_from_slice(content);
    }
}

/// Story: a drive lost the write of one copy of a page of checksums. The older page was read, and blocks that were whole
/// counted as damaged; then a later write put a new checksum into the older page, and both copies were that from then on.
#[test]
fn a_lost_write_of_one_copy_of_the_checksums_is_told_by_the_other() {
    for copy in [0, 1] {
        let mut rig = Rig::new();
        rig.write(0, &[1; 40], true).unwrap();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
        let page = rig.drive.geometry().sums.offset(copy, 0);
        let older = rig.device.block(page);
        rig.write(3, &[2; 2], true).unwrap();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
        rig.device.put_block(page, &older);
        rig.reopen();
        let crcs = rig.pool.run_until(rig.drive.crcs(super::MAP, 3, 1, &rig.lineage)).unwrap();
        assert_eq!(crcs, [Some(tepal_codec::checksum::crc(&[2; BLOCK as usize]))], "copy {copy}");
        rig.device.put_block(page, &older);
        rig.reopen();
        assert_eq!(rig.read(0, 8), Ok(vec![1, 1, 1, 2, 2, 1, 1, 1]), "copy {copy}");
        rig.device.put_block(page, &older);
        rig.reopen();
        rig.write(20, &[5], true).unwrap();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
        rig.reopen();
        assert_eq!(rig.read(0, 22), Ok([vec![1; 3], vec![2; 2], vec![1; 15], vec![5, 1]].concat()), "copy {copy}");
    }
}

/// Story: the second copy of a page rotted, nobody read it, and when the first one rotted too the drive was refused.
#[test]
fn a_scrub_mends_either_copy_of_the_tables() {
    for copy in [0, 1] {
        let mut rig = Rig::new();
        rig.write(0, &[1; 40], true).unwrap();
        rig.pool.run_until(rig.drive.checkpoint()).unwrap();
        let geometry = rig.drive.geometry().clone();
        let pages = [geometry.map.offset(copy, 0), geometry.sums.offset(copy, 0)];
        for reopened in [false, true] {
            if reopened {
                rig.reopen();
            }
            for page in pages {
                rig.device.put_block(page, &[9; BLOCK as usize]);
            }
            let report = rig.pool.run_until(rig.drive.scrub(None, |_| ready(()))).unwrap();
            assert_eq!((report.damaged, report.table_pages_mended), (vec![], 2), "copy {copy}");
            for other in [geometry.map.offset(1 - copy, 0), geometry.sums.offset(1 - copy, 0)] {
                rig.device.put_block(other, &[9; BLOCK as usize]);
            }
            rig.device.lose_power();
            rig.reopen();
            assert_eq!(rig.read(0, 40), Ok(vec![1; 40]), "copy {copy}");
            let report = rig.pool.run_until(rig.drive.scrub(None, |_| ready(()))).unwrap();
            assert_eq!(report.table_pages_mended, 2);
            let report = rig.pool.run_until(rig.drive.scrub(None, |_| ready(()))).unwrap();
            assert_eq!(report.table_pages_mended, 0);
        }
    }
}
