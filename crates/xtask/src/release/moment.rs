//! The time of a release: that of the last commit, so that a release made later is the same.

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

pub struct Moment {
    /// Seconds since 1970, as SOURCE_DATE_EPOCH has it.
    pub epoch: String,
    /// As changelogs of Debian have it.
    pub rfc2822: String,
    /// As JSON has it, in UTC.
    pub iso8601: String,
}

impl Moment {
    pub fn of_last_commit(workspace: &Workspace) -> Result<Moment, Failure> {
        let mut git = Command::new("git");
        let format = "--format=%ct%n%cd";
        git.current_dir(&workspace.root).env("TZ", "UTC0");
        git.args(["log", "-1", format, "--date=format-local:%a, %d %b %Y %H:%M:%S +0000%n%Y-%m-%dT%H:%M:%SZ"]);
        git.env("LC_ALL", "C");
        let said = process::succeed(&mut git, LIMIT)?.stdout;
        let mut lines = said.lines().map(str::to_owned);
        let missing = || crate::workspace::answer("git log", "the time of the commit");
        let mut next = || lines.next().ok_or_else(missing);
        Ok(Moment { epoch: next()?, rfc2822: next()?, iso8601: next()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_commit_has_a_time_in_three_forms() {
        let moment = Moment::of_last_commit(&Workspace::find().unwrap()).unwrap();
        assert!(moment.epoch.parse::<u64>().is_ok_and(|seconds| seconds > 1_600_000_000), "{}", moment.epoch);
        assert!(moment.rfc2822.ends_with(" +0000") && moment.rfc2822.len() == 31, "{}", moment.rfc2822);
        assert!(moment.iso8601.ends_with('Z') && moment.iso8601.len() == 20, "{}", moment.iso8601);
    }
}
