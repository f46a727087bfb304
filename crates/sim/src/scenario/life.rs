//! One life of a simulated server: how it ends, and waiting for what happens in it without waiting for what can't.

use crate::executor::{Core, Sleep};
use crate::random::Stream;
use crate::world::SimWorld;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;

/// How one life of the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All requests are answered, and the drives are closed.
    Close,
    Kill,
    PowerCut,
}

impl End {
    pub fn draw(random: &mut Stream) -> Self {
        *random.pick(&[End::Close, End::Kill, End::Kill, End::PowerCut, End::PowerCut])
    }

    /// After how many steps it comes: early ones hit the start, others anything up to the end of the work.
    pub fn steps(self, random: &mut Stream, requests: u64) -> u64 {
        match self {
            End::Close => u64::MAX / 2,
            End::Kill | End::PowerCut if random.one_in(4) => random.skewed(400),
            End::Kill | End::PowerCut => random.below(requests * 6) + 1,
        }
    }
}

/// A step that doesn't come.
pub const NEVER: u64 = u64::MAX;

/// Waits for something, but not past that step. Says whether it came.
pub async fn until(core: &Rc<Core>, deadline: u64, came: impl Fn() -> bool) -> bool {
    while !came() {
        if core.steps() >= deadline {
            return false;
        }
        Sleep::steps(core, (deadline - core.steps()).min(20)).await;
    }
    true
}

/// Runs `work` as a task of the machine, and waits for its result as long as it may come.
pub async fn on_machine<T: 'static>(
    core: &Rc<Core>,
    world: &SimWorld,
    name: &'static str,
    work: impl Future<Output = T> + 'static,
) -> T {
    let slot = Rc::new(RefCell::new(None));
    let result = slot.clone();
    world.spawn_named(name, async move {
        let value = work.await;
        *result.borrow_mut() = Some(value);
    });
    until(core, NEVER, || slot.borrow().is_some()).await;
    slot.take().expect("it has come")
}
