//! The last steps of a tour: what a scrub finds, how fast the volume is, how much space it takes.

use super::writer::Ledger;
use super::{BLOCKS, Tour, TourError, VOLUME, pattern};
use crate::disk::{Disk, Request};
use crate::output;
use std::time::{Duration, Instant};
use tepal_model::BLOCK;
use tepal_server::api::types::{Scrub, ScrubState, Status, VolumeInfo, path, route};

impl Tour<'_> {
    pub(super) fn scrub(&mut self) -> Result<(), TourError> {
        let since = Instant::now();
        let checked = self.scrub_all()?;
        let text = format!("scrubbed: {} on the drives match their checksums", output::size(checked));
        self.tell("scrub", since, text)
    }

    /// Bytes, copies counted, that were read and are right.
    fn scrub_all(&self) -> Result<u64, TourError> {
        let client = self.cluster.client()?;
        let route = path(route::VOLUME_SCRUB, VOLUME);
        let mut scrub: Scrub = client.post(&route, &serde_json::json!({}))?;
        if scrub.state == ScrubState::Running {
            scrub = self.until(
                || "the scrub to end".to_owned(),
                || {
                    let scrub: Scrub = client.get(&route)?;
                    Ok((scrub.state != ScrubState::Running).then_some(scrub))
                },
            )?;
        }
        match scrub {
            Scrub { state: ScrubState::Done, repaired_blocks: 0, damaged, checked_bytes, .. } if damaged.is_empty() => {
                Ok(checked_bytes)
            }
            Scrub { error: Some(error), .. } => Err(TourError::Scrub(error)),
            Scrub { repaired_blocks, damaged, .. } => {
                let what =
                    format!("{repaired_blocks} blocks of one copy and {} ranges of all were damaged", damaged.len());
                Err(TourError::Scrub(what))
            }
        }
    }

    /// Small random requests for a second each.
    pub(super) fn speed(&mut self, disk: &Disk, mut ledger: Ledger) -> Result<(), TourError> {
        const DEPTH: usize = 32;
        const TIME: Duration = Duration::from_secs(1);
        let since = Instant::now();
        let mut rates = [0.0; 2];
        for (is_write, rate) in [false, true].into_iter().zip(&mut rates) {
            let (begun, mut done, mut block, mut failed) = (Instant::now(), 0u64, 0, None);
            let interrupt = self.interrupt;
            let next = || {
                if begun.elapsed() >= TIME || interrupt.is_raised() {
                    return None;
                }
                // A stride that has no factor with the number of blocks visits each before any twice.
                block = (block + 40_503) % BLOCKS;
                let offset = block as u64 * BLOCK;
                if !is_write {
                    return Some(Request::read(offset, BLOCK as u32, offset));
                }
                ledger.versions[block] += 1;
                Some(Request::write(offset, pattern::blocks(std::iter::once(ledger.stamp(block))), offset))
            };
            disk.keep_busy(
                DEPTH,
                next,
                |_, _| (),
                |offset, answer| match answer {
                    Ok(()) => done += 1,
                    Err(errno) => failed = Some(TourError::refused(offset, errno)),
                },
            );
            if let Some(error) = failed {
                return Err(error);
            }
            *rate = done as f64 / begun.elapsed().as_secs_f64();
        }
        let text = format!("4K at random, {DEPTH} at once: {:.0} reads/s, {:.0} writes/s", rates[0], rates[1]);
        self.tell("speed", since, text)
    }

    pub(super) fn space(&mut self) -> Result<(), TourError> {
        let since = Instant::now();
        let volume: VolumeInfo = self.client.get(&path(route::VOLUME, VOLUME))?;
        let status: Status = self.client.get(route::STATUS)?;
        let text = format!(
            "volume {VOLUME} of {} takes {} on the drives, copies counted; {} of {} are used",
            output::size(volume.size),
            output::size(volume.allocated),
            output::size(status.used),
            output::size(status.capacity)
        );
        self.tell("space", since, text)
    }
}
