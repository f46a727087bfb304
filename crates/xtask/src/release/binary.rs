//! The binary without what debuggers need, and what it wants of the machine that it runs on.
//!
//! Everything is built in one profile, with lines for backtraces; so the binary that was tested is the one that is stripped here.

use super::target::Target;
use crate::failure::Failure;
use crate::process;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// More is a binary that people wait for.
const MOST_BYTES: u64 = 40 << 20;
const LIMIT: Duration = Duration::from_secs(60);

pub fn strip(built: &Path, to: &Path, target: &Target) -> Result<(), Failure> {
    // An older one isn't taken for it, should this fail.
    let _ = fs::remove_file(to);
    process::succeed(Command::new(target.strip).arg("-o").arg(to).arg(built), LIMIT)?;
    let size = fs::metadata(to).map_err(Failure::file(to))?.len();
    if size > MOST_BYTES {
        return Err(Failure::Usage(format!(
            "the binary has {size} bytes, and {MOST_BYTES} are the most: find out what grew"
        )));
    }
    Ok(())
}

/// The oldest version of glibc that has all that the binary uses.
pub fn oldest_glibc(binary: &Path) -> Result<String, Failure> {
    let mut readelf = Command::new("readelf");
    let said = process::succeed(readelf.args(["--wide", "--version-info"]).arg(binary), LIMIT)?.stdout;
    newest(&said).ok_or(crate::workspace::answer("readelf --version-info", "GLIBC_"))
}

fn newest(version_info: &str) -> Option<String> {
    let named = version_info.split("GLIBC_").skip(1);
    let numbers = named.filter_map(|rest| {
        let word = rest.split_whitespace().next()?;
        word.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()
    });
    let parts: Vec<String> = numbers.max()?.iter().map(u32::to_string).collect();
    Some(parts.join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_says_which_glibc_is_needed() {
        let said = "  0x0010:   Name: GLIBC_2.4  Flags: none  Version: 7\n  0x0020:   Name: GLIBC_2.34  Flags: none\n  \
            0x0030:   Name: GLIBC_2.3.4  Flags: none\n  0x0040: Name: GLIBC_PRIVATE  Flags: none\n";
        assert_eq!(newest(said).as_deref(), Some("2.34"));
        assert_eq!(newest("Name: GCC_3.0"), None);
    }
}
