//! Machines that refuse io_uring or O_DIRECT, as containers and some filesystems do: a thread under a seccomp filter is one.

use super::{Scratch, WRITABLE, on_data_thread, pattern, spoiled};
use crate::device::{Backend, BackendReason, DriveDevice, OpenError, OpenOptions};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use std::collections::BTreeMap;
use tepal_drive::world::Device;
use tepal_model::Buffer;

const SIZE: u64 = 1 << 20;

/// What a thread may not do, and the error that it gets instead.
struct Ban {
    call: libc::c_long,
    rules: Vec<SeccompRule>,
    errno: libc::c_int,
}

fn no_uring(errno: libc::c_int) -> Ban {
    Ban { call: libc::SYS_io_uring_setup, rules: vec![], errno }
}

fn no_direct() -> Ban {
    let equals = |argument, operator, value| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).expect("a condition")
    };
    let direct = libc::O_DIRECT as u64;
    let sets_direct = SeccompRule::new(vec![
        equals(1, SeccompCmpOp::Eq, libc::F_SETFL as u64),
        equals(2, SeccompCmpOp::MaskedEq(direct), direct),
    ]);
    Ban { call: libc::SYS_fcntl, rules: vec![sets_direct.expect("a rule")], errno: libc::EINVAL }
}

/// Runs `work` on a thread that is banned from something for all its life.
fn under(ban: Ban, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let rules = BTreeMap::from([(ban.call, ban.rules)]);
            let instead = SeccompAction::Errno(ban.errno as u32);
            let machine = std::env::consts::ARCH.try_into().expect("a machine with seccomp");
            let filter = SeccompFilter::new(rules, SeccompAction::Allow, instead, machine).expect("a filter");
            let filter: BpfProgram = filter.try_into().expect("a program");
            seccompiler::apply_filter(&filter).expect("the filter is taken");
            work();
        });
    });
}

fn works(drive: &DriveDevice) {
    on_data_thread(async {
        let data = pattern(7, 128 << 10);
        // From memory in the wrong place for O_DIRECT.
        let mut shifted = vec![0; 3];
        shifted.extend_from_slice(&data);
        let shifted = Buffer::copy_of(&shifted).freeze();
        drive.write(4096, [shifted.slice(3..)].into_iter().collect()).await.expect("a write");
        drive.flush().await.expect("a flush");
        assert!(drive.read(4096, spoiled(data.len())).await.expect("a read")[..] == data);
    });
}

#[test]
fn without_io_uring_plain_threads_do_the_work() {
    for errno in [libc::EPERM, libc::ENOSYS, libc::ENOMEM] {
        let (file, other) = (Scratch::file("/var/tmp", SIZE), Scratch::file("/var/tmp", SIZE));
        under(no_uring(errno), || {
            let drive = DriveDevice::open(&file.0, WRITABLE).expect("a drive");
            assert_eq!(drive.backend(), Backend::Plain);
            let reason = drive.backend_reason();
            assert!(matches!(reason, BackendReason::UringRefused(_)), "{reason}");
            works(&drive);
            let insist = OpenOptions { backend: Some(Backend::Uring), ..WRITABLE };
            let error = DriveDevice::open(&other.0, insist).expect_err("io_uring is forbidden");
            assert!(matches!(error, OpenError::BackendRefused { backend: Backend::Uring, .. }), "{error}");
        });
    }
}

#[test]
fn without_o_direct_plain_threads_do_the_work_through_the_page_cache() {
    let file = Scratch::file("/var/tmp", SIZE);
    under(no_direct(), || {
        let drive = DriveDevice::open(&file.0, WRITABLE).expect("a drive");
        assert_eq!(drive.backend(), Backend::Plain);
        let reason = drive.backend_reason();
        assert!(matches!(reason, BackendReason::DirectRefused(_)), "{reason}");
        works(&drive);
    });
}

#[test]
fn a_thread_that_gets_no_ring_of_its_own_still_does_the_work() {
    let file = Scratch::file("/var/tmp", SIZE);
    let drive = DriveDevice::open(&file.0, WRITABLE).expect("a drive");
    under(no_uring(libc::ENOMEM), || works(&drive));
}
