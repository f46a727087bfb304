//! The steps of a tour over several servers: one is killed, one stands still, and the others go on.

use super::{SERVER, Tour, TourError, VOLUME, Writer};
use crate::dev::folder::DevError;
use std::time::Instant;
use tepal_model::ServerId;
use tepal_server::api::types::{DriveInfo, DriveState, ServerInfo, ServerState, VolumeInfo, VolumeState, path, route};

/// How a server goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    Killed,
    Paused,
}

impl Tour<'_> {
    /// Not the one through which the volume is used. Of two servers none may be away for long.
    pub(super) fn lose_servers(&mut self, writer: &Writer) -> Result<(), TourError> {
        let others: Vec<ServerId> = self.cluster.servers().into_iter().filter(|server| *server != SERVER).collect();
        if let [first, .., last] = others[..] {
            self.lose_a_server(writer, first, Loss::Killed)?;
            self.lose_a_server(writer, last, Loss::Paused)?;
        }
        Ok(())
    }

    fn lose_a_server(&mut self, writer: &Writer, server: ServerId, how: Loss) -> Result<(), TourError> {
        self.go_on(writer)?;
        let since = Instant::now();
        writer.forget_waits();
        let process = self.cluster.process(server);
        let (gone, what) = match how {
            Loss::Killed => (process.kill(), "killed (SIGKILL)"),
            Loss::Paused => (process.pause(), "frozen (SIGSTOP)"),
        };
        gone.map_err(DevError::from)?;
        self.wait_for_state(server, ServerState::Down)?;
        let answered = self.go_on(writer)?;
        let wait = writer.longest_wait().as_millis();
        let text = format!(
            "server {server} {what} under the writer: the others agreed on it and went on; requests waited {wait} ms, none \
             failed, {answered} since"
        );
        self.tell("lose", since, text)?;
        let since = Instant::now();
        match how {
            Loss::Killed => self.cluster.start(&[server], self.interrupt)?,
            Loss::Paused => process.resume().map_err(DevError::from)?,
        }
        self.wait_for_state(server, ServerState::Up)?;
        self.wait_until_all_is_whole()?;
        let took = since.elapsed().as_secs_f64();
        self.tell("rejoin", since, format!("server {server} is back, and has what it missed, after {took:.1} s"))
    }

    /// Lets servers go on that a step has frozen: `dev up` can do nothing with them.
    pub(super) fn wake(&self) {
        for server in self.cluster.servers() {
            // One that runs or is down is no failure.
            let _ = self.cluster.process(server).resume();
        }
    }

    fn wait_for_state(&self, server: ServerId, state: ServerState) -> Result<(), TourError> {
        let look = || {
            let servers: Vec<ServerInfo> = self.client.get(route::SERVERS)?;
            Ok(servers.iter().any(|found| found.id == server && found.state == state).then_some(()))
        };
        self.until(|| format!("server {server} to be {state:?}"), look)
    }

    pub(super) fn wait_until_all_is_whole(&self) -> Result<(), TourError> {
        let look = || {
            let drives: Vec<DriveInfo> = self.client.get(route::DRIVES)?;
            let volume: VolumeInfo = self.client.get(&path(route::VOLUME, VOLUME))?;
            let up = drives.iter().all(|drive| drive.state == DriveState::Up);
            Ok((up && volume.state == VolumeState::Healthy).then_some(()))
        };
        self.until(|| format!("all drives to be up, and volume {VOLUME} to be healthy"), look)
    }
}
