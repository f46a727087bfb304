//! Work that goes on in the cluster while a command waits for it, whatever becomes of the command.

use super::CommandError;
use crate::client::ClientError;
use crate::interrupt::Interrupt;
use crate::output::Progress;
use std::time::{Duration, Instant};

/// Between two looks.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LOOK: Duration = Duration::from_millis(500);
/// For so long servers may be away meanwhile.
const AWAY: Duration = Duration::from_secs(120);

/// How far it is, in the unit of the progress that is shown.
pub struct Left {
    pub done: u64,
    pub total: u64,
    /// What keeps it from going on.
    pub obstacles: Vec<String>,
}

/// What was seen last.
pub enum Waited<T> {
    Done(T),
    /// The user doesn't want to wait any more.
    Interrupted(T),
}

/// Looks again and again, until nothing is left by what is seen.
pub fn until<T>(
    mut progress: Progress,
    first: T,
    mut look: impl FnMut() -> Result<T, ClientError>,
    mut left: impl FnMut(&T) -> Result<Option<Left>, CommandError>,
) -> Result<Waited<T>, CommandError> {
    let interrupt = Interrupt::catch()?;
    let (mut seen, mut heard, mut pause) = (first, Instant::now(), FIRST_LOOK);
    let mut obstacles = Vec::new();
    loop {
        let Some(now) = left(&seen)? else { return Ok(Waited::Done(seen)) };
        progress.set(now.done, now.total);
        if now.obstacles != obstacles {
            obstacles = now.obstacles;
            obstacles.iter().for_each(|obstacle| progress.say(obstacle));
        }
        loop {
            if interrupt.wait(pause) {
                return Ok(Waited::Interrupted(seen));
            }
            pause = (pause * 2).min(LOOK);
            match look() {
                Ok(now) => {
                    (seen, heard) = (now, Instant::now());
                    break;
                }
                Err(error) if error.is_no_answer() && heard.elapsed() < AWAY => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
