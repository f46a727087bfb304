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

/// What is to be told of what is in the way now, where that was told before.
fn news(told: &mut Vec<String>, now: Vec<String>) -> Vec<String> {
    let before = std::mem::replace(told, now);
    match told.is_empty() && !before.is_empty() {
        true => vec!["it goes on".to_owned()],
        false => told.iter().filter(|obstacle| !before.contains(obstacle)).cloned().collect(),
    }
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
    let mut told = Vec::new();
    loop {
        let Some(now) = left(&seen)? else { return Ok(Waited::Done(seen)) };
        progress.set(now.done, now.total);
        news(&mut told, now.obstacles).iter().for_each(|text| progress.say(text));
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Story: of several reasons one changed, and all were told again, twice a second.
    #[test]
    fn what_is_in_the_way_is_told_once_and_so_is_that_nothing_is_any_more() {
        let mut told = Vec::new();
        for (now, said) in [
            (&[][..], &[][..]),
            (&["full", "away"], &["full", "away"]),
            (&["away", "full"], &[]),
            (&["away", "damaged"], &["damaged"]),
            (&[], &["it goes on"]),
            (&[], &[]),
            (&["full"], &["full"]),
        ] {
            assert_eq!(news(&mut told, now.iter().map(ToString::to_string).collect()), said);
        }
    }
}
