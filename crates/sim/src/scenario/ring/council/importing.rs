//! That the first volume is imported while it's used.

use super::{Council, State};
use crate::random::Stream;
use tepal_engine::View;
use tepal_model::ServerId;

/// Whether an import goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportStage {
    Running,
    Paused,
    Cancelled,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Import {
    /// Bytes from the volume's beginning on that are there for good.
    pub done: u64,
    pub stage: ImportStage,
    /// Who copies.
    pub by: ServerId,
}

impl Council {
    /// From the beginning on.
    pub fn imports_by(&self, server: ServerId) {
        self.lock().import = Some(Import { done: 0, stage: ImportStage::Running, by: server });
    }

    /// `None` once all of it is there.
    pub fn import(&self) -> Option<Import> {
        self.lock().import
    }

    /// Whether it's agreed.
    pub fn change_import(&self, stage: ImportStage) -> bool {
        let mut state = self.lock();
        let may_change = state.has_majority();
        let changes = state.import.as_mut().filter(|_| may_change);
        changes.is_some_and(|import| {
            import.stage = stage;
            true
        })
    }

    /// Another server copies from now on. The one before learns of it later.
    pub fn leads(&self, server: ServerId) {
        if let Some(import) = &mut self.lock().import {
            import.by = server;
        }
    }
}

impl State {
    /// Another one copies in place of a server that isn't heard: one of those that are.
    pub(super) fn copier_is_heard(&mut self, random: &mut Stream) {
        let is_heard = |id: &ServerId| !self.dead.contains_key(id) && !self.cut_off.contains_key(id);
        let heard: Vec<ServerId> = self.voices.keys().copied().filter(is_heard).collect();
        if let Some(import) = &mut self.import
            && !heard.contains(&import.by)
            && !heard.is_empty()
        {
            import.by = *random.pick(&heard);
        }
    }

    /// Whoever copies has as much for good.
    pub(super) fn is_imported(&mut self, done: u64) -> Option<View> {
        let size = self.spec.size;
        let import = self.import.as_mut()?;
        import.done = import.done.max(done.min(size));
        Some(self.now.view)
    }

    /// All of it is there. Nobody who takes it for one that is imported is served any more.
    pub(super) fn import_ends(&mut self) -> Option<View> {
        self.import.filter(|import| import.done >= self.spec.size)?;
        self.import = None;
        self.spec.revision += 1;
        self.now.view += 1;
        Some(self.now.view)
    }
}
