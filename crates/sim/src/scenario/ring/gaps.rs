//! Gaps in what volumes see are closed while all goes wrong, as the server does it that leads the metadata.

use super::council::Council;
use super::council::gaps::OpenGaps;
use super::node::Node;
use crate::executor::{Core, Sleep};
use crate::random::Stream;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;
use tepal_engine::Engine;
use tepal_model::ServerId;

/// The longest that a server is waited for.
const SAID_WITHIN: Duration = Duration::from_secs(2);

/// The servers that run. Clones are the same.
#[derive(Clone, Default)]
pub(super) struct Running(Rc<RefCell<BTreeMap<ServerId, Node>>>);

impl Running {
    pub fn started(&self, node: &Node) {
        self.0.borrow_mut().insert(node.id(), node.clone());
    }

    pub fn stopped(&self, id: ServerId) {
        self.0.borrow_mut().remove(&id);
    }
}

/// Asks servers, now and then.
pub(super) struct Closing {
    pub core: Rc<Core>,
    pub council: Council,
    pub running: Running,
    pub random: Stream,
}

impl Closing {
    pub async fn keep_closing(mut self) {
        const PAUSES: [Duration; 3] = [Duration::from_millis(2), Duration::from_millis(40), Duration::from_millis(500)];
        loop {
            let longest = self.random.pick(&PAUSES).as_micros() as u64;
            self.wait(longest).await;
            for open in self.council.open_gaps() {
                if self.is_closed_everywhere(&open).await && self.council.close_gaps(&open) {
                    self.core.note(open.view, || format!("gaps are closed: {open:?}"));
                }
            }
        }
    }

    async fn wait(&mut self, longest: u64) {
        let pause = Duration::from_micros(self.random.below(longest));
        Sleep::until(&self.core, self.core.now() + pause).await;
    }

    async fn is_closed_everywhere(&mut self, open: &OpenGaps) -> bool {
        let (servers, map, view) = (open.drives.values().copied().collect::<BTreeSet<_>>(), open.map, open.view);
        let mut columns = BTreeSet::new();
        for &server in &servers {
            let said = self.ask(server, async move |engine| engine.quiet_columns(map, view).await);
            columns.extend(said.await.unwrap_or_default());
        }
        if !open.columns.is_subset(&columns) {
            return false;
        }
        let mut drives = BTreeSet::new();
        for server in servers {
            self.wait(3_000).await;
            let gaps = open.gaps.clone();
            let said = self.ask(server, async move |engine| engine.has_nothing_of(map, &gaps).await);
            drives.extend(said.await.unwrap_or_default());
        }
        open.drives.keys().all(|id| drives.contains(id))
    }

    /// `None` if it doesn't say.
    async fn ask<T: 'static>(
        &self,
        server: ServerId,
        question: impl AsyncFnOnce(Engine<crate::world::SimWorld>) -> T + 'static,
    ) -> Option<T> {
        let node = self.running.0.borrow().get(&server).cloned().filter(|_| self.council.reaches(server))?;
        let answer = Rc::new(RefCell::new(None));
        let (said, engine) = (answer.clone(), node.engine.clone());
        node.world.spawn_named("say about gaps", async move {
            let value = question(engine).await;
            *said.borrow_mut() = Some(value);
        });
        let begun = self.core.now();
        while answer.borrow().is_none() && self.core.now() < begun + SAID_WITHIN {
            Sleep::until(&self.core, self.core.now() + Duration::from_millis(1)).await;
        }
        answer.take()
    }
}
