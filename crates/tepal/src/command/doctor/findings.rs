//! Findings, and all rules in one place.

use super::seen::Seen;
use super::{cluster, drives, schedules, servers, space, volumes};
use serde::Serialize;

/// The worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Data is lost, damaged or not served, or nothing can be changed.
    Critical,
    /// One more failure may be too many, or it will be critical if nobody does anything.
    Warning,
    /// Nothing is wrong: somebody may want to know.
    Remark,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Critical => "CRITICAL",
            Severity::Warning => "WARNING",
            Severity::Remark => "remark",
        }
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    pub text: String,
    /// The command; none where hands are needed.
    pub run: Option<String>,
}

/// One thing that is so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// What it's about, as `server s2` or `volume v0`.
    pub subject: String,
    pub what: String,
    pub why: String,
    /// In this order.
    #[serde(rename = "do")]
    pub steps: Vec<Step>,
}

impl Finding {
    pub fn new(
        severity: Severity,
        subject: impl Into<String>,
        what: impl Into<String>,
        why: impl Into<String>,
    ) -> Finding {
        Finding { severity, subject: subject.into(), what: what.into(), why: why.into(), steps: Vec::new() }
    }

    pub fn run(mut self, text: impl Into<String>, run: impl Into<String>) -> Finding {
        self.steps.push(Step { text: text.into(), run: Some(run.into()) });
        self
    }

    pub fn hands(mut self, text: impl Into<String>) -> Finding {
        self.steps.push(Step { text: text.into(), run: None });
        self
    }

    pub fn is_wrong(&self) -> bool {
        self.severity != Severity::Remark
    }
}

/// All that is so, the worst first. What the cluster's status says, and no rule knows, is told in its own words.
pub fn findings(seen: &Seen) -> Vec<Finding> {
    let mut all = servers::findings(seen);
    all.extend(cluster::findings(seen));
    all.extend(volumes::findings(seen));
    all.extend(drives::findings(seen));
    all.extend(space::findings(seen));
    all.extend(schedules::findings(seen));
    all.extend(cluster::unexplained(seen));
    all.sort_by_key(|finding| finding.severity);
    all
}

/// The first few names of many, and how many more there are.
pub fn named<T: AsRef<str>>(names: &[T]) -> String {
    const MOST: usize = 8;
    let first: Vec<&str> = names.iter().take(MOST).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(MOST) {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// `1 volume`, `3 volumes`.
pub fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
