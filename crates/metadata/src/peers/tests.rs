use super::frame::{self, FrameError};
use super::message::{Answer, Append, AppendAnswer, Envelope, Piece, Proposed, Reason, Renewal, Request, Sender};
use crate::command::{Command, Proposal, Proposer, Reply};
use crate::format::{EntryForm, EntryId, Members, MembershipForm, PayloadForm, VoteForm};
use proptest::prelude::*;
use tepal_codec::checksum::{crc, crc_append};
use tepal_model::{ClusterId, ServerId};

fn vote() -> VoteForm {
    VoteForm { term: 3, node: 1, committed: true }
}

fn id(index: u64) -> EntryId {
    EntryId { term: 3, node: 1, index }
}

fn append() -> Envelope {
    let from = Proposer { server: ServerId(2), incarnation: 0, boot: 5, sequence: 9, settled: 8, up_since: None };
    let command = Command::RemovePool { name: "p".to_owned() };
    let proposal = Proposal { version: 1, unix_ms: 7, from: Some(from), who: None, command };
    let entries = vec![
        EntryForm { id: id(11), payload: PayloadForm::Blank },
        EntryForm { id: id(12), payload: PayloadForm::Command(proposal) },
    ];
    let append = Append { vote: vote(), previous: Some(id(10)), entries, committed: None };
    Envelope {
        cluster: Some(ClusterId(0xabc)),
        from: Some(Sender { node: 1, boot: 4, history: 0 }),
        to: Some(2),
        request: Request::Append(append),
    }
}

/// Changing these bytes means changing the format: give it a new version instead.
#[test]
fn messages_are_written_as_they_were_in_the_first_release() {
    let json = concat!(
        r#"{"cluster":"00000000000000000000000000000abc","from":{"node":1,"boot":4},"to":2,"request":{"append":"#,
        r#"{"vote":{"term":3,"node":1,"committed":true},"previous":{"term":3,"node":1,"index":10},"entries":["#,
        r#"{"id":{"term":3,"node":1,"index":11},"payload":"blank"},{"id":{"term":3,"node":1,"index":12},"payload":"#,
        r#"{"command":{"version":1,"unix_ms":7,"from":{"server":"s2","incarnation":0,"boot":5,"sequence":9,"#,
        r#""settled":8},"command":{"remove_pool":{"name":"p"}}}}}],"committed":null}}}"#,
    );
    let bytes = frame::encode(&append(), b"payload");
    assert_eq!(&bytes[..8], b"TpMm\x01\0\0\0");
    assert_eq!(&bytes[8..12], &(json.len() as u32).to_le_bytes());
    let sum = crc_append(crc(&bytes[..12]), &bytes[16..]);
    assert_eq!(&bytes[12..16], &sum.to_le_bytes());
    assert_eq!(std::str::from_utf8(&bytes[16..]).unwrap(), format!("{json}payload"));

    let granted = frame::encode(&Answer::Granted { view: 4, index: 9, length_ms: 1500 }, &[]);
    assert_eq!(
        granted,
        b"TpMm\x01\0\0\0\x31\0\0\0\x80\x1f\x97\x0f{\"granted\":{\"view\":4,\"index\":9,\"length_ms\":1500}}"
    );
}

fn requests() -> Vec<Request> {
    let members = Members { voters: vec![[1, 2].into()], addresses: [(1, "h:1".to_owned())].into() };
    let members = MembershipForm { since: Some(id(4)), members };
    vec![
        append().request,
        Request::Vote { vote: vote(), last: None, transfer: false, pre: true },
        Request::Snapshot(Piece { vote: vote(), last: Some(id(9)), members, offset: 5, total: 10 }),
        Request::TransferLeader { vote: vote(), to: 2, last: None },
        Request::Renew(Renewal { server: ServerId(2), incarnation: 1, boot: 3, adopted: 8, holds: true }),
        Request::Adopted { view: 7 },
        Request::Hello { vote: Some(vote()), last: Some(id(3)) },
    ]
}

fn answers() -> Vec<Answer> {
    vec![
        Answer::Append(AppendAnswer::Partial(Some(id(3)))),
        Answer::Append(AppendAnswer::Conflict),
        Answer::Proposed(Proposed::Answered { index: 3, answer: Ok(Reply::Done) }),
        Answer::Proposed(Proposed::Answered { index: 3, answer: Err(crate::Refusal::Late) }),
        Answer::Refused(Reason::OtherCluster { id: ClusterId(1), name: "c".to_owned() }),
        Answer::Refused(Reason::OtherRebuild { there: 5, here: 0 }),
    ]
}

#[test]
fn every_message_reads_back_as_it_was_written() {
    for request in requests() {
        let envelope = Envelope { request, ..append() };
        let bytes = frame::encode(&envelope, b"abc");
        assert_eq!(frame::decode::<Envelope>(&bytes), Ok((envelope, &b"abc"[..])));
    }
    let rebuilt = Envelope { from: Some(Sender { node: 1, boot: 4, history: 7 }), ..append() };
    assert_eq!(frame::decode::<Envelope>(&frame::encode(&rebuilt, &[])), Ok((rebuilt, &b""[..])));
    for answer in answers() {
        assert_eq!(frame::decode::<Answer>(&frame::encode(&answer, &[])), Ok((answer, &b""[..])));
    }
}

#[test]
fn what_is_foreign_newer_cut_off_or_too_long_is_refused_by_name() {
    let good = frame::encode(&append(), &[]);
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let cases = [
        (Vec::new(), FrameError::Foreign),
        (vec![0; super::MAX_MESSAGE + 1], FrameError::Foreign),
        (changed(0, b'X'), FrameError::Foreign),
        (changed(4, 2), FrameError::Version { found: 2 }),
        (changed(8, 0), FrameError::Checksum),
        (changed(20, 0), FrameError::Checksum),
        (good[..good.len() - 1].to_vec(), FrameError::Checksum),
    ];
    for (bytes, expected) in cases {
        assert_eq!(frame::decode::<Envelope>(&bytes), Err(expected));
    }
    let other = frame::encode(&Answer::Welcome, &[]);
    assert!(matches!(frame::decode::<Envelope>(&other), Err(FrameError::Malformed(_))));
}

/// A header and checksum that are right, around anything.
fn sealed(length: u32, rest: &[u8]) -> Vec<u8> {
    let mut bytes = b"TpMm\x01\0\0\0".to_vec();
    bytes.extend_from_slice(&length.to_le_bytes());
    let sum = crc_append(crc(&bytes), rest);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), length in any::<u32>()) {
        let _ = frame::decode::<Envelope>(&bytes);
        let _ = frame::decode::<Answer>(&bytes);
        let _ = frame::decode::<Envelope>(&sealed(length, &bytes));
        let _ = frame::decode::<Answer>(&sealed(bytes.len() as u32, &bytes));
    }

    #[test]
    fn a_message_with_anything_changed_is_not_taken_for_another(which in 0usize..7, at in any::<usize>(), bit in 0u8..8) {
        let envelope = Envelope { request: requests().swap_remove(which), ..append() };
        let mut bytes = frame::encode(&envelope, b"piece");
        let at = at % bytes.len();
        bytes[at] ^= 1 << bit;
        prop_assert!(frame::decode::<Envelope>(&bytes).is_err());
    }

    /// Its checksum is right, and its JSON was tampered with.
    #[test]
    fn a_sealed_message_with_anything_changed_is_read_or_refused(which in 0usize..7, at in any::<usize>(), to in any::<u8>()) {
        let envelope = Envelope { request: requests().swap_remove(which), ..append() };
        let mut json = serde_json::to_vec(&envelope).unwrap();
        let at = at % json.len();
        json[at] = to;
        let _ = frame::decode::<Envelope>(&sealed(json.len() as u32, &json));
    }
}
