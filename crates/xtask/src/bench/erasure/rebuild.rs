//! A drive is lost for good: how long it takes until other drives have what it had.

use super::drives::DRIVE;
use crate::bench::suite::Suite;
use crate::bench::systems::Tepal;
use crate::bench::targets::{Bound, Target};
use crate::failure::Failure;
use crate::workspace::answer;
use std::path::Path;
use std::time::{Duration, Instant};

/// One more than a stripe has fragments.
const SERVERS: [&str; 4] = ["--servers", "7", "--drives", "1"];
const DATA: f64 = 4.0;
/// What each of the drives reads and writes in a second, in bytes.
const BANDWIDTH: f64 = 30.0 * 1024.0 * 1024.0;
const PEERS: f64 = 6.0;
const SIZE: &str = "2G";
const VICTIM: &str = "s3";
const SETTLE: Duration = Duration::from_secs(20);

pub struct Rebuilt {
    /// Bytes that the lost drive had.
    had: f64,
    took: Duration,
}

pub fn measure(program: &Path) -> Result<Rebuilt, Failure> {
    let shape: Vec<&str> = SERVERS.into_iter().chain(["--emulate", DRIVE]).collect();
    let tepal = Tepal::start(program, &shape, "2G", &[format!("v={SIZE},layout=ec:4+2")])?;
    Suite { seconds: 0, size: SIZE.to_owned(), program: None }.fill(&tepal.disk("v"))?;
    std::thread::sleep(SETTLE);
    let drives = tepal.ask(&["drive", "ls"])?;
    let missing = || answer("tepal", "a drive of the server that is lost");
    let drive =
        drives.as_array().and_then(|all| all.iter().find(|drive| drive["server"] == VICTIM)).ok_or_else(missing)?;
    let (id, had) = (drive["id"].as_str().ok_or_else(missing)?, drive["used"].as_f64().ok_or_else(missing)?);
    tepal.lose(VICTIM)?;
    let began = Instant::now();
    tepal.manage(&["drive", "rm", id, "--force"])?;
    tepal.until_healthy("v")?;
    let rebuilt = Rebuilt { had, took: began.elapsed() };
    println!("rebuild\t{:.0} bytes\t{:.1} s", rebuilt.had, rebuilt.took.as_secs_f64());
    Ok(rebuilt)
}

impl Rebuilt {
    /// For each byte, four are read and one is written, by six drives at once.
    fn share(&self) -> f64 {
        let shortest = self.had * (DATA + 1.0) / (PEERS * BANDWIDTH);
        shortest / self.took.as_secs_f64()
    }

    pub fn target(&self) -> Target {
        Target {
            what: "rebuild of a drive of ec:4+2: of what the bandwidth of the other six allows".to_owned(),
            bound: Bound::AtLeast(0.8),
            measured: Some(self.share()),
        }
    }

    pub fn section(&self) -> String {
        let (mebibytes, seconds) = (self.had / 1024.0 / 1024.0, self.took.as_secs_f64());
        format!(
            "\n## Rebuild\n\nA drive of seven with {mebibytes:.0} MiB of fragments was lost for good, with nobody else using the volume. \
             {seconds:.1} s after `drive rm --force`, every stripe was whole again: {:.2} of what the others' bandwidth allows.\n",
            self.share()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rebuild_is_judged_by_what_the_other_drives_allow() {
        let rebuilt = Rebuilt { had: BANDWIDTH * 6.0, took: Duration::from_secs(10) };
        assert_eq!((rebuilt.share(), rebuilt.target().verdict()), (0.5, "MISSED"));
    }
}
