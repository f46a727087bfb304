//! The hands in the server room: drives are pulled and put back, and the volume is resized.

use crate::executor::{Core, Sleep};
use crate::random::Stream;
use crate::scenario::bay::Bay;
use crate::scenario::record::Record;
use crate::scenario::server::Server;
use crate::workload::Workload;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;
use tepal_drive::world::Clock;
use tepal_model::BLOCK;

pub async fn pause(core: &Rc<Core>, random: &mut Stream) {
    let micros = random.skewed(60_000);
    Sleep::until(core, core.now() + Duration::from_micros(micros)).await;
}

/// Pulls drives and puts them back, seen by the server or not.
pub struct Hand {
    pub core: Rc<Core>,
    pub server: Server,
    pub random: Stream,
    /// Somebody always tells the server; or else it may have to find out.
    pub is_seen: bool,
}

impl Hand {
    /// A few times; in the end all are in place, or nothing could go on.
    pub async fn pull_and_put_back(mut self, bays: Vec<Bay>) {
        for _ in 0..self.random.skewed(24) {
            pause(&self.core, &mut self.random).await;
            let at = self.random.index(bays.len());
            if !bays[at].is_plugged() {
                bays[at].plug_in();
                continue;
            }
            bays[at].pull(&mut self.random);
            if self.random.one_in(2) || self.is_seen {
                self.server.tell_pulled(at);
            }
        }
        for bay in bays.iter().filter(|bay| !bay.is_plugged()) {
            pause(&self.core, &mut self.random).await;
            bay.plug_in();
        }
    }
}

/// Shrinks the volume and lets it grow again, as a server does that is asked to.
pub struct Operator {
    pub core: Rc<Core>,
    pub server: Server,
    pub record: Record,
    pub workload: Workload,
    pub random: Stream,
    /// The volume is never larger than this.
    pub most: u64,
}

/// How long a server takes its time to clear what lies past a volume's end.
const CLEARING: Duration = Duration::from_secs(20);

impl Operator {
    pub async fn resize_often(mut self) {
        for _ in 0..self.random.skewed(12) {
            pause(&self.core, &mut self.random).await;
            let wanted = match self.random.below(4) {
                0 => self.most,
                1 => self.random.between(1..self.most / 512) * 512,
                _ => self.random.between(1..self.most / BLOCK) * BLOCK,
            };
            self.resize(wanted.max(BLOCK)).await;
        }
    }

    async fn resize(&self, wanted: u64) {
        let volume = self.server.volume();
        let size = volume.size();
        self.core.note(wanted, || format!("resize from {size} to {wanted}"));
        if wanted > size {
            // A shrinking before may not have come to its end.
            if self.clear(size, || {}).await {
                self.record.resize(wanted);
                volume.resize(wanted);
            }
        } else if wanted < size {
            let shrink = || {
                self.record.resize(wanted);
                volume.resize(wanted);
            };
            self.clear(wanted, shrink).await;
        }
    }

    /// Whether nothing is left past that end.
    async fn clear(&self, end: u64, first: impl FnOnce()) -> bool {
        if end == self.most {
            return true;
        }
        let (volume, world) = (self.server.volume(), &self.server.world);
        let clear = async {
            first();
            let (clearing, late) = (pin!(volume.clear_past_end()), pin!(world.sleep(CLEARING)));
            match select(clearing, late).await {
                Either::Left((result, _)) => Some(result),
                Either::Right(((), _)) => None,
            }
        };
        self.workload.cut(end..self.most, clear).await
    }
}
