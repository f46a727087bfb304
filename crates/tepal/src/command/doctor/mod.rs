//! `tepal doctor`: what is wrong with a cluster, why that matters, and what to do about it.
//!
//! It asks servers what they know ([`seen`]) and judges that ([`findings()`]), which is a pure function. Nothing is changed. The advice
//! never gives up anything that could be kept: the way back comes first, and no advised command loses something.

mod cluster;
mod drives;
mod findings;
mod schedules;
mod seen;
mod servers;
mod space;
#[cfg(test)]
mod tests;
mod volumes;

use super::CommandError;
use super::status;
use crate::cli::Global;
use crate::locate;
use crate::output::{self, Outcome, Output, one_line};
use findings::{Finding, findings};
use seen::Seen;
use serde::Serialize;
use tepal_server::api::types::Health;

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    cluster: String,
    health: Health,
    /// Whether nothing is wrong; remarks may be there all the same.
    healthy: bool,
    /// The worst first.
    findings: Vec<Finding>,
    looked_at: Vec<String>,
    /// What couldn't be looked at, and why.
    not_looked_at: Vec<String>,
}

pub fn run(global: &Global, output: Output) -> Result<Outcome, CommandError> {
    let asked = locate::client(global).map_err(CommandError::from);
    let seen = match asked.and_then(|client| Ok(Seen::ask(&client, locate::dev_folder(global))?)) {
        Ok(seen) => seen,
        Err(error) => {
            output::tell(&error);
            return Ok(Outcome::Unasked);
        }
    };
    let findings = findings(&seen);
    let healthy = !findings.iter().any(Finding::is_wrong);
    let report = Report {
        cluster: seen.status.cluster.clone(),
        health: seen.status.health,
        healthy,
        findings,
        looked_at: seen.looked_at(),
        not_looked_at: seen.not_told.clone(),
    };
    output.show(&report, page)?;
    Ok(if healthy { Outcome::Done } else { Outcome::Bad })
}

fn page(report: &Report) -> String {
    let (wrong, remarks): (Vec<&Finding>, Vec<&Finding>) =
        report.findings.iter().partition(|finding| finding.is_wrong());
    let mut text = match wrong.len() {
        0 => format!("cluster {}: nothing is wrong\n", report.cluster),
        1 => format!("cluster {} is {}: 1 thing is wrong\n", report.cluster, status::health(report.health)),
        count => format!("cluster {} is {}: {count} things are wrong\n", report.cluster, status::health(report.health)),
    };
    for finding in wrong.into_iter().chain(remarks) {
        text += &format!("\n{}", of_one(finding));
    }
    text += &format!("\nlooked at: {}\n", one_line(&report.looked_at.join(", ")));
    for why in &report.not_looked_at {
        text += &format!("not looked at: {}\n", one_line(why));
    }
    text
}

fn of_one(finding: &Finding) -> String {
    let mut text = format!("{}: {}\n", finding.severity.word(), one_line(&finding.what));
    text += &format!("    why it matters: {}\n", one_line(&finding.why));
    for (number, step) in finding.steps.iter().enumerate() {
        let label = if number == 0 { "what to do:" } else { "then:" };
        text += &match &step.run {
            Some(run) => format!("    {label} {}\n        {}\n", one_line(&step.text), one_line(run)),
            None => format!("    {label} {}\n", one_line(&step.text)),
        };
    }
    text
}
