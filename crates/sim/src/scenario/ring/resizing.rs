//! The ring's volume is shortened and grows again, and volumes are rolled back, while all goes wrong.
//!
//! Whoever is asked to do that does one thing at a time, and may die of something else meanwhile; then another one is asked.

use super::Ring;
use super::clones::Tested;
use super::council::Council;
use super::node::Node;
use crate::checker::{Checker, OpId};
use crate::executor::{Core, SCENARIO, Sleep};
use crate::random::Stream;
use crate::scenario::life::on_machine;
use crate::scenario::taken::{Known, Taken};
use crate::workload::Workload;
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_engine::View;
use tepal_model::{BLOCK, Epoch};

/// How long a server takes its time to clear what lies past a volume's end.
const CLEARING: Duration = Duration::from_secs(2);
/// How often it looks whether it has heard of what it asked for.
const LOOK: Duration = Duration::from_micros(700);

/// How many are at something. Clones count the same.
#[derive(Clone, Default)]
pub(super) struct Turns(Rc<Cell<usize>>);

/// One of them, until it's dropped.
pub(super) struct Turn(Turns);

impl Turns {
    pub fn take(&self) -> Turn {
        self.0.set(self.0.get() + 1);
        Turn(self.clone())
    }

    pub fn are_taken(&self) -> bool {
        self.0.get() > 0
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.0.set(self.0.0.get() - 1);
    }
}

/// Resizes the volume, as a server does that is asked to.
struct Operator {
    node: Node,
    council: Council,
    workload: Workload,
    /// The volume is never longer than this.
    most: u64,
    shortest: Rc<Cell<u64>>,
    checker: Rc<RefCell<Checker>>,
}

impl Operator {
    async fn resize(&self, wanted: u64, mut random: Stream) {
        let size = self.node.volume.size();
        self.node.world.core().note(wanted, || format!("resize from {size} to {wanted}"));
        let cleared = self.council.as_cleared();
        if wanted < size && self.council.reaches(self.node.id()) {
            self.clear(wanted, || assert!(self.council.resize(wanted, None), "enough of them are there")).await;
        } else if wanted > size && self.clear(size, || {}).await {
            self.node.world.sleep(Duration::from_micros(random.skewed(60_000))).await; // until it's agreed
            if self.council.resize(wanted, Some(cleared)) {
                self.checker.borrow_mut().grown();
            }
        }
    }

    /// Whether nothing is left past that end. At first it's agreed that it ends there.
    async fn clear(&self, end: u64, agree: impl FnOnce()) -> bool {
        let (volume, world) = (&self.node.volume, &self.node.world);
        let clear = async {
            agree();
            self.shortest.set(self.shortest.get().min(end));
            let view = self.council.as_cleared().acted_by;
            while volume.size() != end || !self.council.all_act_by(view) {
                world.sleep(LOOK).await;
            }
            let (clearing, late) = (pin!(volume.clear_past_end()), pin!(world.sleep(CLEARING)));
            match select(clearing, late).await {
                Either::Left((result, _)) => Some(result),
                Either::Right(((), _)) => None,
            }
        };
        end == self.most || self.workload.cut(end..self.most, clear).await
    }
}

impl Ring {
    fn operator(&self, node: &Node) -> Operator {
        let (most, shortest, checker) = (self.plan.spec.size, self.shortest.clone(), self.checker.clone());
        Operator {
            node: node.clone(),
            council: self.council.clone(),
            workload: self.workload(),
            most,
            shortest,
            checker,
        }
    }

    /// Through a server that knows how long it is.
    pub(super) fn volume_is_resized(&mut self, at: usize) {
        let Some((node, _)) = self.nodes[at].clone().filter(|_| at < self.plan.servers) else { return };
        let (most, is_known) = (self.plan.spec.size, node.volume.size() == self.council.size_of(self.plan.spec.id));
        if self.turns.are_taken() || !is_known || !self.council.reaches(node.id()) || self.council.import().is_some() {
            return;
        }
        let wanted = match self.random.below(4) {
            0 => most,
            1 => self.random.between(1..most / 512) * 512,
            _ => self.random.between(1..most / BLOCK) * BLOCK,
        };
        let (wanted, operator, turn, random) =
            (wanted.max(BLOCK), self.operator(&node), self.turns.take(), self.random.fork());
        if wanted != node.volume.size() {
            node.world.clone().spawn_named("resize", async move {
                let _turn = turn;
                operator.resize(wanted, random).await;
            });
        }
    }

    /// What was cut off isn't there again when the volume is as long as it ever was.
    pub(super) async fn volume_is_whole_again(&mut self, nodes: &[Node]) {
        let most = self.plan.spec.size;
        // What goes to another layout meanwhile may have it done again.
        while self.council.size_of(self.plan.spec.id) != most {
            let (at, random) = (self.random.index(self.plan.servers), self.random.fork());
            let operator = self.operator(&nodes[at]);
            let world = operator.node.world.clone();
            on_machine(&self.core, &world, "resize", async move { operator.resize(most, random).await }).await;
        }
        let nodes = nodes.to_vec();
        self.comes("the volume has grown", || nodes.iter().all(|node| node.volume.size() == most)).await;
    }

    /// To snapshots that nobody keeps, while machines come and go: gaps come and are closed.
    pub(super) async fn volume_is_rolled_back_again_and_again(&mut self) {
        for _ in 0..self.random.between(2..7) {
            let at = self.random.index(self.plan.servers);
            self.snapshot_is_taken(at);
            self.wait().await;
            self.keep_busy();
            self.volume_is_rolled_back(at);
            self.wait().await;
            self.snapshot_is_removed();
            match self.random.below(6) {
                0 => self.stop(at),
                1 => self.start_all(),
                2 => self.clone_is_removed(),
                _ => {}
            }
            self.wait().await;
        }
    }

    /// To a snapshot, while clients go on.
    pub(super) fn volume_is_rolled_back(&mut self, at: usize) {
        let Some((node, _)) = self.nodes[at].clone().filter(|_| at < self.plan.servers) else { return };
        let mut taken = self.taken.all();
        taken.retain(|(_, known)| known.cut.is_some() && !known.of.is_asked.are_taken());
        if taken.is_empty() || self.turns.are_taken() {
            return;
        }
        let (epoch, known) = self.random.pick(&taken).clone();
        let goes_back = GoesBack {
            council: self.council.clone(),
            taken: self.taken.clone(),
            to: epoch,
            // Clones are as long as their snapshots.
            longer: (known.of.id == self.plan.spec.id).then(|| (self.plan.spec.size, self.shortest.clone())),
            _turns: (self.turns.take(), known.of.goes_back.take()),
        };
        node.world.clone().spawn_named("roll back", async move { goes_back.see_to_it(&node, known).await });
    }
}

/// A volume is rolled back to a snapshot.
struct GoesBack {
    council: Council,
    taken: Taken<Tested>,
    to: Epoch,
    /// How long it is at most, and at least.
    longer: Option<(u64, Rc<Cell<u64>>)>,
    _turns: (Turn, Turn),
}

impl GoesBack {
    /// What it becomes is read first, through that server.
    async fn see_to_it(self, node: &Node, known: Known<Tested>) {
        let (core, epoch, of, size) = (node.world.core(), self.to, &known.of, self.council.size_in(self.to));
        let Ok(shown) = node.shown_by(of.id, epoch, size).await else { return }; // it's gone, or somebody else complains
        self.taken.judge(core, (epoch, known.clone()), shown.clone());
        let Some((view, cut)) = self.council.roll_back(epoch).zip(known.cut) else { return };
        core.note(epoch.into(), || format!("volume {} is rolled back to epoch {epoch}, {size} bytes", of.id.0));
        if let Some((_, shortest)) = &self.longer {
            shortest.set(shortest.get().min(size));
        }
        let asked = {
            let most = self.longer.as_ref().map_or(size, |(most, _)| *most);
            let mut checker = of.checker.borrow_mut();
            checker.grown();
            checker.roll_back_asked(core.now(), cut, &of.apart(0, &shown), most)
        };
        match asked {
            Ok(op) => {
                // It's agreed, whatever becomes of this server.
                let all_follow = self.all_follow(core.clone(), (view, op), known.of.clone());
                core.spawn(SCENARIO, "roll back", Box::pin(all_follow));
            }
            Err(wrong) => core.fail(format!("epoch {epoch}: {wrong}")),
        }
    }

    /// It's answered when all act by it.
    async fn all_follow(self, core: Rc<Core>, (view, op): (View, OpId), of: Tested) {
        while !self.council.all_act_by(view) {
            Sleep::until(&core, core.now() + LOOK).await;
        }
        core.note(view, || format!("all act by it that volume {} is rolled back", of.id.0));
        if let Err(violation) = of.checker.borrow_mut().acknowledged(core.now(), op) {
            core.fail(violation.to_string());
        }
    }
}
