//! One call at a time for each volume, snapshot or name. A call that comes while another is pending isn't queued but told so, as the
//! specification wants it: the orchestrator asks again.

use crate::failure::Failure;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tonic::Code;

/// What calls are pending for.
#[derive(Clone, Default)]
pub struct Turns {
    pending: Arc<Mutex<BTreeSet<String>>>,
}

/// A pending call; over when it's dropped.
pub struct Turn {
    pending: Arc<Mutex<BTreeSet<String>>>,
    what: String,
}

impl Turns {
    /// # Errors
    ///
    /// If another call is pending for it.
    pub fn take(&self, what: impl Into<String>) -> Result<Turn, Failure> {
        let what = what.into();
        let is_free = self.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(what.clone());
        match is_free {
            true => Ok(Turn { pending: self.pending.clone(), what }),
            false => Err(Failure::new(Code::Aborted, format!("another call for '{what}' is pending"))),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_call_is_told_to_come_again_until_the_first_is_over() {
        let turns = Turns::default();
        let first = turns.take("v").expect("free");
        let refused = turns.take("v").err().expect("pending");
        assert_eq!((refused.code, refused.message.as_str()), (Code::Aborted, "another call for 'v' is pending"));
        let _other = turns.take("w").expect("another volume");
        drop(first);
        turns.take("v").expect("free again");
    }
}
