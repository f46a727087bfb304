//! The status of blocks without their data: which hold something, and which may differ from an older snapshot's.

use super::migrating::is_read_there;
use super::read::{Failed, Reader};
use super::{Blocks, Group};
use crate::epochs::Subject;
use crate::runs::add_run;
use tepal_drive::world::World;
use tepal_model::{BLOCK, Epoch, IoError};

/// How many blocks drives are asked about at once. Drives answer in runs: few runs, where little is kept.
const LOOKED_UP_AT_ONCE: u64 = (1 << 30) / BLOCK;

impl<W: World> Group<W> {
    /// Runs of bytes that hold something or don't; or, with `since`, that may differ from an older snapshot's bytes or
    /// don't. The first and the last block count whole.
    pub async fn status(
        &self,
        subject: Subject,
        since: Option<Epoch>,
        offset: u64,
        length: u64,
    ) -> Result<Vec<(u64, bool)>, IoError> {
        let end = offset + length;
        match self.enter((subject.volume, Blocks::touched(offset, end))).await {
            Err(error) if is_read_there(&error) => return Ok(vec![(length, true)]), // the source may hold something
            outcome => outcome?,
        }
        let (mut runs, mut done): (Vec<(u64, bool)>, _) = (Vec::new(), offset);
        for blocks in Blocks::touched(offset, end).pieces(LOOKED_UP_AT_ONCE) {
            for (blocks, mapped) in self.looked_up(blocks, subject, since).await? {
                let next = ((done / BLOCK + blocks) * BLOCK).min(end);
                add_run(&mut runs, next - done, mapped);
                done = next;
            }
        }
        Ok(runs)
    }

    /// Which of these blocks hold something, or may differ from an older snapshot's, as runs. A hole is as good as
    /// zeros that were read, and an equal block as good as two reads, so the same is waited for as before a read.
    async fn looked_up(
        &self,
        blocks: Blocks,
        subject: Subject,
        since: Option<Epoch>,
    ) -> Result<Vec<(u64, bool)>, IoError> {
        let older = since.map(|since| Subject { volume: subject.volume, at: Some(since) });
        loop {
            for snapshot in subject.at.into_iter().chain(since) {
                self.until_unchanging((subject.volume, snapshot), blocks).await?;
            }
            self.until_readable(blocks).await?;
            let (parts, then) = self.planned(blocks, Reader::Client(subject)).await?;
            let before = {
                let state = self.lock();
                if state.moment() != then {
                    continue; // the older snapshot may be seen by another history than that of the plan
                }
                older.map(|older| state.seen_at(older)).transpose()?
            };
            let found = match &before {
                None => self.shared.kept.held(self, &parts).await,
                Some(before) => self.shared.kept.differing(self, &parts, before).await,
            };
            match found {
                Ok(runs) => {
                    self.until_ended(blocks).await?;
                    let state = self.lock();
                    state.serves_volume(subject.volume)?;
                    state.seen_at(subject)?;
                    older.map(|older| state.seen_at(older)).transpose()?;
                    state.serves_blocks(&self.shared.column, (subject.volume, blocks))?;
                    if state.is_as_at(then, self.shared.column.regions(blocks.first, blocks.count)) {
                        return Ok(runs);
                    }
                }
                Err(Failed::Lost(id, loss)) => self.lose(vec![(id, loss)]).await,
                Err(Failed::Away) => {} // drives have left since the plan
                Err(Failed::Io(error)) => return Err(error),
            }
        }
    }
}
