//! Tokens by which servers join, each one server.
//!
//! Invariant: of all who show a token's secret, one key gets an identity by it, however often and wherever it's shown.

use super::Draft;
use crate::access::{JoinTokenRecord, KeyHash, Role};
use crate::command::{Command, Reply};
use crate::refusal::Refusal;
use crate::state_machine::access::AccessChange;
use std::sync::Arc;

/// Of each cluster, those that have expired not counted.
pub(super) const MOST_TOKENS: usize = 100;
/// How long one may count.
pub const LONGEST_MS: u64 = 30 * 24 * 3600 * 1000;

impl Draft {
    /// Of commands about tokens; others are refused.
    pub(super) fn carry_out_of_join_tokens(&mut self, command: &Command) -> Result<Reply, Refusal> {
        match command {
            Command::AddJoinToken { hash, until_unix_ms } => self.add_join_token(*hash, *until_unix_ms),
            Command::UseJoinToken { hash, name, key } => self.use_join_token(*hash, name, *key),
            Command::RemoveJoinToken { hash } => {
                if !self.state.access.join_tokens.contains_key(hash) {
                    return Err(Refusal::NoJoinToken);
                }
                self.drop_join_token(*hash);
                self.event("cluster", "join token", "removed: nobody joins by it any more".to_owned());
                Ok(Reply::Done)
            }
            _ => Err(Refusal::NoAuthority),
        }
    }

    fn add_join_token(&mut self, hash: KeyHash, until_unix_ms: u64) -> Result<Reply, Refusal> {
        let now = self.unix_ms;
        if until_unix_ms <= now || until_unix_ms - now > LONGEST_MS {
            return Err(Refusal::JoinTokenTime { days: LONGEST_MS / (24 * 3600 * 1000) });
        }
        if self.state.access.authorities.is_empty() {
            return Err(Refusal::NoAuthority);
        }
        let tokens = self.state.access.join_tokens.values();
        let expired: Vec<KeyHash> = tokens.filter(|token| token.until_unix_ms <= now).map(|token| token.hash).collect();
        expired.into_iter().for_each(|hash| self.drop_join_token(hash));
        if self.state.access.join_tokens.len() >= MOST_TOKENS {
            return Err(Refusal::TooManyJoinTokens { limit: MOST_TOKENS });
        }
        self.put_join_token(JoinTokenRecord { hash, until_unix_ms, key: None });
        self.event("cluster", "join token", "made: one server may join by it".to_owned());
        Ok(Reply::Done)
    }

    fn use_join_token(&mut self, hash: KeyHash, name: &str, key: KeyHash) -> Result<Reply, Refusal> {
        let token = self.state.access.join_tokens.get(&hash).cloned().ok_or(Refusal::NoJoinToken)?;
        match token.key {
            Some(known) if known == key => return Ok(Reply::Done),
            Some(_) => return Err(Refusal::JoinTokenUsed),
            None if token.until_unix_ms <= self.unix_ms => return Err(Refusal::JoinTokenExpired),
            None => {}
        }
        self.add_identity(name, Role::Server, &[], key)?;
        self.put_join_token(JoinTokenRecord { key: Some(key), ..*token });
        Ok(Reply::Done)
    }

    fn put_join_token(&mut self, record: JoinTokenRecord) {
        let record = Arc::new(record);
        self.access().join_tokens.insert(record.hash, record.clone());
        self.note(AccessChange::JoinToken(record));
    }

    fn drop_join_token(&mut self, hash: KeyHash) {
        self.access().join_tokens.remove(&hash);
        self.note(AccessChange::JoinTokenGone(hash));
    }
}
