//! What servers ask each other, as steps: at the asker's and where it's done.

use super::trace::{Kind, Step};
use super::{LINK, PEER, REQUEST, VOLUME, current};
use crate::data_links::Lane;
use tepal_engine::{Question, Reply, Unreachable};
use tepal_model::ServerId;
use tepal_wire::handshake::Sender;
use tepal_wire::message::{DriveOperation, Request, VolumeOperation};

/// The step of asking.
pub fn step(question: &Question, server: ServerId, (caller, lane): (&Sender, Lane)) -> Step {
    let step = Step::new("ask a server", Kind::Client).note(PEER, server.to_string());
    of(&question.request, step).note(LINK, link(caller, lane))
}

/// The step at hand has its answer.
pub fn note(answered: &Result<(Reply, u64), Unreachable>) {
    let Some(place) = current() else { return };
    match answered {
        Ok((_, request)) => place.note(REQUEST, *request),
        Err(error) => place.fail(error),
    }
}

/// What is done where it was asked. A gateway elsewhere doesn't trace what it asks.
pub fn served(request: &Request, (sender, lane): (&Sender, Lane), number: u64) -> Step {
    let step = of(request, Step::new("answer", Kind::Server));
    match sender {
        Sender::Server { .. } => step.note(LINK, link(sender, lane)).note(REQUEST, number),
        Sender::Client { .. } | Sender::Newcomer => step.note("tepal.gateway", sender.to_string()),
    }
}

fn link(caller: &Sender, lane: Lane) -> String {
    format!("{caller} {lane:?}")
}

fn of(request: &Request, step: Step) -> Step {
    match request {
        Request::Drive(request) => step
            .note("tepal.operation", named_for_drive(&request.operation).to_owned())
            .note("tepal.drive.id", request.drive.to_string()),
        Request::Volume(request) => {
            let step = step
                .note("tepal.operation", named_for_volume(&request.operation).to_owned())
                .note(VOLUME, request.volume.0)
                .note("tepal.column", u64::from(request.column));
            match &request.operation {
                VolumeOperation::Node { drive, .. } => step.note("tepal.drive.id", drive.to_string()),
                _ => step,
            }
        }
        Request::Metadata | Request::Api => step,
    }
}

fn named_for_drive(operation: &DriveOperation) -> &'static str {
    match operation {
        DriveOperation::Read { .. } => "read",
        DriveOperation::Write { .. } => "write",
        DriveOperation::Clear { .. } | DriveOperation::Uncover { .. } => "clear",
        DriveOperation::Mark { .. } | DriveOperation::Noted { .. } => "note",
        DriveOperation::Flush => "flush",
        _ => "look",
    }
}

fn named_for_volume(operation: &VolumeOperation) -> &'static str {
    match operation {
        VolumeOperation::Read { .. } => "read",
        VolumeOperation::Write { .. } => "write",
        VolumeOperation::Zero { .. } | VolumeOperation::Clear { .. } => "clear",
        VolumeOperation::Flush => "flush",
        VolumeOperation::Node { operation, .. } if operation.only_reads() => "read a copy",
        VolumeOperation::Node { .. } => "write a copy",
        VolumeOperation::Repair { .. } | VolumeOperation::Fill { .. } => "mend",
        VolumeOperation::Status { .. } | VolumeOperation::Changed { .. } => "look",
        VolumeOperation::HandOver { .. } | VolumeOperation::Release { .. } | VolumeOperation::Holding { .. } => {
            "hand over"
        }
    }
}
