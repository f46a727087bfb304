//! What is agreed about servers and drives, told to the engine and to the links between servers, state after state.
//!
//! A state is followed once the drives here keep it ([`crate::keeping`]).

use crate::agreed::{Followed, cluster_view};
use crate::data_links::Links;
use crate::drives::Parts;
use std::sync::Arc;
use tepal_engine::ClusterView;
use tepal_metadata::{ServerState, State};

/// Has the engine and the links follow the metadata until it's dropped.
pub async fn follow(parts: Parts, links: Links, followed: Followed) {
    let (me, mut changes) = (parts.metadata.server(), parts.metadata.watch());
    let mut before = Arc::<ClusterView>::default();
    parts.metadata.act_by(parts.metadata.state().view());
    loop {
        let state = changes.borrow_and_update().clone();
        let now = Arc::new(cluster_view(&state, &before));
        if now != before {
            parts.keeper.kept(&state).await;
        }
        // Not before: what is asked of a server that is back would be what is known of its last run.
        tell_links(&links, &state, &parts);
        parts.claims.follow();
        if now != before {
            tell_sizes(&state, &parts);
            let (engine, earlier, later) = (parts.engine.clone(), before.clone(), now.clone());
            let followed_it = parts.threads.run_on(0, move || async move { engine.follow(me, &earlier, &later) }).await;
            if followed_it.is_err() {
                return; // the data threads have stopped
            }
            followed.set(now.clone());
            parts.metadata.act_by(now.view);
            before = now;
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

/// Before the epochs: by the size of before, what a rollback has brought back would lie past the volume's end.
fn tell_sizes(state: &State, parts: &Parts) {
    for record in state.active_volumes() {
        if let Some(volume) = parts.engine.volume(record.id) {
            let copied = state.access.live_imports.get(&record.id).map(|live| live.done);
            volume.changed(&record.name, (record.size, record.replica.is_some()), record.revision, copied);
        }
    }
}

fn tell_links(links: &Links, state: &State, parts: &Parts) {
    links.set_lease(parts.metadata.lease_length());
    for record in state.servers.values().filter(|record| record.id != parts.metadata.server()) {
        match record.state {
            ServerState::Up => links.set_up(record.id, &record.address, &parts.threads),
            ServerState::Down => links.set_down(record.id),
        }
    }
}
