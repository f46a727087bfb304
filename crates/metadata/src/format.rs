//! How entries, votes and memberships are written into the databases: JSON of these types, each with a CRC-32C, since
//! SQLite itself wouldn't notice a flipped bit. They are ours, so that another version of the consensus library reads
//! them too.

use crate::command::{Proposal, VERSION};
use crate::consensus::{Entry, LeaderId, LogId, Payload, StoredMembership, Vote};
use openraft::impls::BasicNode;
use openraft::vote::RaftLeaderId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use tepal_codec::checksum::{crc, crc_append};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct EntryId {
    pub term: u64,
    pub node: u64,
    pub index: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteForm {
    pub term: u64,
    pub node: u64,
    pub committed: bool,
}

/// Who votes (two sets while one replaces the other), and every member's address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub voters: Vec<BTreeSet<u64>>,
    pub addresses: BTreeMap<u64, String>,
}

/// The membership in force, and the entry that brought it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipForm {
    pub since: Option<EntryId>,
    pub members: Members,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryForm {
    pub id: EntryId,
    pub payload: PayloadForm,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PayloadForm {
    Blank,
    Members(Members),
    Command(Proposal),
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormatError {
    #[error("its checksum is wrong")]
    Checksum,
    #[error("it is malformed: {0}")]
    Malformed(String),
    #[error("it is a command of version {0}")]
    NewerCommand(u32),
}

/// The text to store, and its checksum, which also covers `place`: the key or index that it is stored under.
pub fn encode<T: Serialize>(place: &str, value: &T) -> (String, u32) {
    let text = serde_json::to_string(value).expect("these types have string keys and no failing serializer");
    let crc = checksum(place, &text);
    (text, crc)
}

pub fn decode<T: DeserializeOwned>(place: &str, text: &str, crc: u32) -> Result<T, FormatError> {
    if checksum(place, text) != crc {
        return Err(FormatError::Checksum);
    }
    serde_json::from_str(text).map_err(|error| FormatError::Malformed(error.to_string()))
}

/// As [`decode`], but an entry of a newer build is told apart from damage.
pub fn decode_entry(place: &str, text: &str, crc: u32) -> Result<EntryForm, FormatError> {
    #[derive(Deserialize)]
    struct Envelope {
        payload: EnvelopePayload,
    }
    #[derive(Deserialize)]
    struct EnvelopePayload {
        command: EnvelopeCommand,
    }
    #[derive(Deserialize)]
    struct EnvelopeCommand {
        version: u32,
    }
    let decoded = decode(place, text, crc);
    let envelope = |text| serde_json::from_str::<Envelope>(text).map(|envelope| envelope.payload.command.version);
    match decoded {
        Err(FormatError::Checksum) => Err(FormatError::Checksum),
        other => match envelope(text) {
            Ok(version) if version > VERSION => Err(FormatError::NewerCommand(version)),
            _ => other,
        },
    }
}

fn checksum(place: &str, text: &str) -> u32 {
    crc_append(crc(place.as_bytes()), text.as_bytes())
}

impl From<&LogId> for EntryId {
    fn from(id: &LogId) -> Self {
        EntryId { term: id.leader_id.term, node: id.leader_id.node_id, index: id.index }
    }
}

impl From<EntryId> for LogId {
    fn from(id: EntryId) -> Self {
        LogId { leader_id: LeaderId::new(id.term, id.node), index: id.index }
    }
}

impl From<&Vote> for VoteForm {
    fn from(vote: &Vote) -> Self {
        VoteForm { term: vote.leader_id.term, node: vote.leader_id.node_id, committed: vote.committed }
    }
}

impl From<VoteForm> for Vote {
    fn from(vote: VoteForm) -> Self {
        Vote { leader_id: LeaderId::new(vote.term, vote.node), committed: vote.committed }
    }
}

type Membership = openraft::Membership<u64, BasicNode>;

impl From<&Membership> for Members {
    fn from(membership: &Membership) -> Self {
        Members {
            voters: membership.get_joint_config().clone(),
            addresses: membership.nodes().map(|(id, node)| (*id, node.addr.clone())).collect(),
        }
    }
}

impl TryFrom<Members> for Membership {
    type Error = FormatError;
    fn try_from(members: Members) -> Result<Self, FormatError> {
        let nodes: BTreeMap<u64, BasicNode> =
            members.addresses.into_iter().map(|(id, addr)| (id, BasicNode { addr })).collect();
        Membership::new(members.voters, nodes).map_err(|error| FormatError::Malformed(error.to_string()))
    }
}

impl From<&StoredMembership> for MembershipForm {
    fn from(stored: &StoredMembership) -> Self {
        MembershipForm { since: stored.log_id().as_ref().map(EntryId::from), members: stored.membership().into() }
    }
}

impl TryFrom<MembershipForm> for StoredMembership {
    type Error = FormatError;
    fn try_from(form: MembershipForm) -> Result<Self, FormatError> {
        if form.since.is_none() && form.members.voters.is_empty() {
            return Ok(StoredMembership::default());
        }
        Ok(StoredMembership::new(form.since.map(LogId::from), form.members.try_into()?))
    }
}

impl From<&Entry> for EntryForm {
    fn from(entry: &Entry) -> Self {
        let payload = match &entry.payload {
            Payload::Blank => PayloadForm::Blank,
            Payload::Normal(proposal) => PayloadForm::Command(proposal.clone()),
            Payload::Membership(membership) => PayloadForm::Members(membership.into()),
        };
        EntryForm { id: (&entry.log_id).into(), payload }
    }
}

impl EntryForm {
    pub fn into_entry(self) -> Result<Entry, FormatError> {
        let payload = match self.payload {
            PayloadForm::Blank => Payload::Blank,
            PayloadForm::Command(proposal) => Payload::Normal(proposal),
            PayloadForm::Members(members) => Payload::Membership(members.try_into()?),
        };
        Ok(Entry { log_id: self.id.into(), payload })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;

    fn entry(version: u32) -> EntryForm {
        let command = Command::RemoveVolume { name: "v0".to_owned(), snapshots: false };
        EntryForm {
            id: EntryId { term: 1, node: 1, index: 7 },
            payload: PayloadForm::Command(Proposal { version, unix_ms: 9, from: None, who: None, command }),
        }
    }

    /// Changing this text means changing the format: give it a new version instead.
    #[test]
    fn an_entry_is_written_as_it_was_in_the_first_release() {
        let (text, _) = encode("7", &entry(1));
        assert_eq!(
            text,
            r#"{"id":{"term":1,"node":1,"index":7},"payload":{"command":{"version":1,"unix_ms":9,"from":null,"command":{"remove_volume":{"name":"v0"}}}}}"#
        );
    }

    /// The same of what a later build says.
    #[test]
    fn what_earlier_builds_would_misread_is_of_a_later_version() {
        let command = |command: Command| {
            let text = serde_json::to_string(&Proposal::new(9, None, command)).unwrap();
            text.replace(r#","unix_ms":9,"from":null,"#, " ")
        };
        let (volume, name) = ("v".to_owned(), "s".to_owned());
        let with_snapshots = Command::RemoveVolume { name: "v".to_owned(), snapshots: true };
        assert_eq!(
            [command(Command::CreateSnapshot { volume, name }), command(with_snapshots)],
            [
                r#"{"version":8 "command":{"create_snapshot":{"volume":"v","name":"s"}}}"#,
                r#"{"version":2 "command":{"remove_volume":{"name":"v","snapshots":true}}}"#,
            ]
        );
        assert_eq!(Proposal::new(9, None, Command::RemoveVolume { name: "v".to_owned(), snapshots: false }).version, 1);
    }

    #[test]
    fn commands_under_conditions_are_written_and_read_as_released() {
        let rename = || Box::new(Command::RenameVolume { name: "v".to_owned(), new_name: "w".to_owned() });
        let inner = r#"{"rename_volume":{"name":"v","new_name":"w"}}"#;
        let once = Command::Once { key: "k".to_owned(), content: "c".to_owned(), command: rename() };
        let thing = crate::Versioned::Volume(tepal_model::VolumeId(7));
        let only_if = Command::IfMatch { thing, expected: vec!["\"v7-1\"".to_owned()], command: rename() };
        for (command, text) in [
            (once, r#"{"once":{"key":"k","content":"c","command":COMMAND}}"#),
            (only_if, r#"{"if_match":{"thing":{"volume":7},"expected":["\"v7-1\""],"command":COMMAND}}"#),
        ] {
            let text = text.replace("COMMAND", inner);
            assert_eq!(serde_json::to_string(&command).unwrap(), text);
            assert_eq!(serde_json::from_str::<Command>(&text).unwrap(), command);
            assert_eq!(Proposal::new(9, None, command).version, 15);
        }
    }

    #[test]
    fn an_entry_reads_back_only_unchanged_and_in_its_place() {
        let (text, crc) = encode("7", &entry(1));
        assert_eq!(decode_entry("7", &text, crc), Ok(entry(1)));
        assert_eq!(decode_entry("8", &text, crc), Err(FormatError::Checksum));
        assert_eq!(decode_entry("7", &text.replace("v0", "v1"), crc), Err(FormatError::Checksum));
    }

    #[test]
    fn a_command_of_a_newer_build_is_told_apart_from_damage() {
        let (text, crc) = encode("7", &entry(VERSION + 1));
        assert_eq!(decode_entry("7", &text, crc), Err(FormatError::NewerCommand(VERSION + 1)));
        let unknown = text.replace("remove_volume", "paint_volume");
        assert_eq!(decode_entry("7", &unknown, checksum("7", &unknown)), Err(FormatError::NewerCommand(VERSION + 1)));
        let unknown = unknown.replace(&format!("\"version\":{}", VERSION + 1), "\"version\":1");
        assert!(matches!(decode_entry("7", &unknown, checksum("7", &unknown)), Err(FormatError::Malformed(_))));
    }
}
