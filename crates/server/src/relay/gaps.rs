//! What servers are asked about gaps ([`crate::gaps`]), and who answers it.

use crate::agreed::Followed;
use crate::data_threads::DataThreads;
use crate::world::ServerWorld;
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tepal_engine::Engine;
use tepal_model::history::Span;
use tepal_model::{DriveId, MapId};

/// The longest that a server takes to act by what it's asked about.
const FOLLOWED_WITHIN: Duration = Duration::from_millis(500);
/// The longest that what is under way is waited for on one server.
const QUIET_WITHIN: Duration = Duration::from_secs(2);

/// What a server is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum About {
    /// The columns that it leads with nothing under way that was begun in an earlier view.
    Columns,
    /// Its drives that have nothing of the gaps.
    Drives,
}

/// Asked by the server that leads the metadata.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Question {
    pub about: About,
    /// In which nobody sees anything of the gaps.
    pub view: u64,
    pub gaps: BTreeMap<u32, Vec<Span>>,
}

/// What a server says, of each map.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Said {
    pub columns: BTreeMap<u32, Vec<u32>>,
    pub drives: BTreeMap<u32, Vec<DriveId>>,
}

/// Who answers for this server. Clones are the same.
#[derive(Clone)]
pub struct Answering {
    engine: Engine<ServerWorld>,
    threads: Arc<DataThreads>,
    followed: Followed,
}

impl Answering {
    pub fn new(engine: Engine<ServerWorld>, threads: Arc<DataThreads>, followed: Followed) -> Self {
        Answering { engine, threads, followed }
    }

    pub async fn answer(&self, question: Question) -> Said {
        if tokio::time::timeout(FOLLOWED_WITHIN, self.followed.from(question.view)).await.is_err() {
            return Said::default();
        }
        let engine = self.engine.clone();
        let said = self.threads.run_while_awaited(0, move || async move {
            let each = question.gaps.into_iter().map(|(map, gaps)| {
                let engine = &engine;
                async move {
                    let mut said = Said::default();
                    match question.about {
                        About::Columns => {
                            let quiet = engine.quiet_columns(MapId(map), question.view);
                            let quiet = tokio::time::timeout(QUIET_WITHIN, quiet).await;
                            said.columns.insert(map, quiet.unwrap_or_default());
                        }
                        About::Drives => {
                            said.drives.insert(map, engine.has_nothing_of(MapId(map), &gaps).await);
                        }
                    }
                    said
                }
            });
            let mut all = Said::default();
            for said in join_all(each).await {
                all.columns.extend(said.columns);
                all.drives.extend(said.drives);
            }
            all
        });
        said.await.unwrap_or_default() // data threads that have stopped say nothing
    }
}
