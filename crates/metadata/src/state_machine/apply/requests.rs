//! What was created under a key that its client drew, so that the client may ask again, also another server after the one that it asked
//! has died.
//!
//! Invariants:
//! 1. A request whose key is known is answered as the first one was, and changes nothing; one of another content is refused.
//! 2. Only what was done is remembered: what was refused may be asked for again under the same key.
//! 3. At most [`MOST`] are remembered, none of them for longer than [`KEPT_MS`] by the clocks of proposers.

use crate::command::Reply;
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most keys that are remembered: the oldest are forgotten first.
pub const MOST: usize = 1000;
/// How long a key is remembered, in milliseconds: a day.
pub const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// A request that was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneRequest {
    pub key: String,
    /// A digest of what was asked for.
    pub content: String,
    pub unix_ms: u64,
    /// Counts them.
    pub number: u64,
    pub reply: Reply,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    by_key: BTreeMap<String, Arc<DoneRequest>>,
    by_number: BTreeMap<u64, String>,
}

impl Requests {
    /// What was answered, if it was.
    pub fn recall(&self, key: &str, content: &str) -> Option<Result<Reply, Refusal>> {
        let known = self.by_key.get(key)?;
        Some(match known.content == content {
            true => Ok(known.reply.clone()),
            false => Err(Refusal::KeyReused(key.to_owned())),
        })
    }

    /// The record of one that was done now.
    pub fn next(&self, (key, content): (&str, &str), unix_ms: u64, reply: Reply) -> DoneRequest {
        let number = self.by_number.last_key_value().map_or(1, |(last, _)| last + 1);
        DoneRequest { key: key.to_owned(), content: content.to_owned(), unix_ms, number, reply }
    }

    pub fn put(&mut self, request: Arc<DoneRequest>) {
        self.by_number.insert(request.number, request.key.clone());
        if let Some(old) = self.by_key.insert(request.key.clone(), request.clone())
            && old.number != request.number
        {
            self.by_number.remove(&old.number);
        }
    }

    pub fn forget(&mut self, key: &str) {
        if let Some(old) = self.by_key.remove(key) {
            self.by_number.remove(&old.number);
        }
    }

    /// The keys that are to be forgotten once there is one more, at this time.
    pub fn outdated(&self, unix_ms: u64) -> Vec<String> {
        let surplus = (self.by_key.len() + 1).saturating_sub(MOST);
        let is_old = |key: &&String| self.by_key.get(*key).is_some_and(|old| old.unix_ms + KEPT_MS < unix_ms);
        let mut oldest = self.by_number.values();
        let mut outdated: Vec<String> = oldest.by_ref().take(surplus).cloned().collect();
        outdated.extend(oldest.take_while(is_old).cloned());
        outdated
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_key.len()
    }
}
