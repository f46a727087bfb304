//! What the faults that have struck so far excuse: within what the layout tolerates, nothing.

use super::plan::{Hazard, Plan, Struck};
use crate::checker::{Checker, Kind};
use crate::device::FaultKind;
use crate::executor::Core;
use crate::scenario::agreement::{Agreement, Status};
use crate::scenario::bay::Bay;
use crate::scenario::record::{Record, VolumeState};
use crate::scenario::server::{Complete, Excuses, drive_id};
use crate::workload::MayFail;
use std::cell::RefCell;
use std::rc::Rc;
use tepal_engine::VolumeSpec;
use tepal_model::layout::Durability;
use tepal_model::{BLOCK, IoError};
use tepal_placement::Rotation;

/// Which failures of requests.
pub fn may_fail(plan: &Plan, bays: &[Bay], record: &Record) -> MayFail {
    let (hazard, mirrored, victim) = (plan.hazard, plan.mirrored(), bays[plan.victim].clone());
    let caches = plan.layout.durability == Durability::Flush;
    let (resized, record) = (plan.resized, record.clone());
    Rc::new(move |error, kind, _, _| {
        let struck = victim.struck(|kind| !matches!(kind, FaultKind::Pulled)) > 0;
        let pulled = || hazard == Hazard::Pulled || victim.struck(|kind| matches!(kind, FaultKind::Pulled)) > 0;
        match error {
            _ if record.state() != VolumeState::Active => true,
            IoError::OutOfRange { .. } => resized,
            // No read fails for want of room.
            IoError::OutOfSpace => hazard == Hazard::Full && kind.is_write(),
            IoError::Damaged { .. } => !mirrored && hazard == Hazard::Corruption && struck,
            // What was in the cache of a drive that was pulled is gone, and a flush has to say so, or the write itself.
            IoError::Unavailable { .. } if matches!(kind, Kind::Flush | Kind::Write { .. }) && caches && pulled() => {
                true
            }
            IoError::Unavailable { .. } | IoError::Lost { .. } => !mirrored && struck,
            _ => false,
        }
    })
}

/// Which refusals of a drive to open: it lied, it's damaged where that can't be mended, or its flush had failed before it was
/// killed.
pub fn excuses(plan: &Plan, bays: &[Bay]) -> Excuses {
    let (victim, bay) = (plan.victim, bays[plan.victim].clone());
    let by_corruption = plan.struck != Struck::Slots;
    let corruption = |kind| {
        use FaultKind::{LostWrite, MisdirectedWrite, Rot};
        matches!(kind, LostWrite | MisdirectedWrite { .. } | Rot)
    };
    Rc::new(move |at, _| {
        let broken = bay.struck(|kind| kind == FaultKind::FlushError) > 0;
        at == victim && (broken || (by_corruption && bay.struck(corruption) > 0))
    })
}

/// A drive that returns has lost its cache, which counts for the blocks that no other drive surely has.
pub fn returned(
    core: &Rc<Core>,
    checker: &Rc<RefCell<Checker>>,
    agreement: &Agreement,
    spec: &VolumeSpec,
    complete: &Complete,
) -> Rc<dyn Fn(usize)> {
    let (core, checker, agreement) = (core.clone(), checker.clone(), agreement.clone());
    let complete = complete.clone();
    let rotation = Rotation::new(spec.places.columns.len(), spec.layout.fragments().count())
        .expect("there is a drive for each copy");
    let extent = u64::from(spec.layout.extent) / BLOCK;
    Rc::new(move |at| {
        let alone = |block: u64| {
            let drives: Vec<usize> = rotation.holders(rotation.place(block / extent).0).collect();
            let has = |other: usize| {
                other != at && agreement.status(drive_id(other)) == Status::Up && complete.borrow().contains(&other)
            };
            drives.contains(&at) && !drives.iter().any(|&other| has(other))
        };
        complete.borrow_mut().remove(&at);
        checker.borrow_mut().drive_returned(core.now(), alone);
    })
}
