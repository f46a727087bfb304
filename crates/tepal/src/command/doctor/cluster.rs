//! The cluster as a whole: no majority, no room for its state, cut networks, open doors, certificates; and what no other rule knows.

use super::findings::{Finding, Severity};
use super::seen::Seen;
use tepal_server::api::types::Health;

/// A reason of the cluster's status that has a rule: by what it's known, how bad it is, why it matters, and what to do.
struct Rule {
    part: &'static str,
    severity: Severity,
    why: &'static str,
    /// What to do, and the command if there's one.
    steps: &'static [(&'static str, Option<&'static str>)],
}

const RULES: [Rule; 9] = [
    Rule {
        part: " may not serve volumes over several servers",
        severity: Severity::Critical,
        why: "without a majority nobody may serve, so that no two servers write different things: clients wait, and nothing is lost",
        steps: &[
            (
                "start the servers that are down, or mend the network between them: a majority is enough",
                Some("tepal cluster show"),
            ),
            (
                "if their folders are lost for good, read docs/operating/rebuild.md before anything else; drives keep the cluster's state",
                None,
            ),
        ],
    },
    Rule {
        part: "the cluster's state can't be written",
        severity: Severity::Critical,
        why: "nothing can be changed, and a volume that loses a drive waits with its writes",
        steps: &[(
            "free some space on the disk of the server's data folder, beginning with logs: it goes on by itself",
            Some("df -h"),
        )],
    },
    Rule {
        part: " can't reach server ",
        severity: Severity::Warning,
        why: "requests that need both servers wait; clients of other servers don't",
        steps: &[
            ("mend the network between these two", None),
            ("see what they say of each other meanwhile", Some("tepal cluster show")),
        ],
    },
    Rule {
        part: "(--insecure)",
        severity: Severity::Remark,
        why: "whoever reaches the address reads and writes every volume, and sees the token",
        steps: &[
            ("make an identity for each machine that uses volumes", Some("tepal identity create HOST --to DIR")),
            ("then start the servers without --insecure, one at a time", None),
        ],
    },
    Rule {
        part: "its certificate can't be made anew",
        severity: Severity::Warning,
        why: "when the certificate ends, nobody outside this machine reaches the server any more",
        steps: &[
            (
                "bring back the server that signs, and a majority: it's tried again by itself",
                Some("tepal cluster show"),
            ),
            ("the log of the server says each attempt and its error", None),
        ],
    },
    Rule {
        part: " is not used: ",
        severity: Severity::Warning,
        why: "a device that was named for the cluster isn't part of it, so its room and its copies are missed",
        steps: &[("see what each server finds there; nothing is written to it", Some("tepal drive scan"))],
    },
    Rule {
        part: " may have lost data: ",
        severity: Severity::Warning,
        why: "what it lost is repaired from other copies while it's scrubbed; until then its copies may not be right",
        steps: &[
            ("wait for the scrub, and leave the other drives in place", Some("tepal status")),
            ("copy away what has no second copy", Some("tepal volume export NAME --keep-going > NAME.img")),
        ],
    },
    Rule {
        part: "snapshot '",
        severity: Severity::Critical,
        why: "reads of exactly these blocks of the snapshot fail; the volume itself may be right",
        steps: &[("save all else of it", Some("tepal volume export VOLUME@SNAP --keep-going > SNAP.img"))],
    },
    Rule {
        part: " no second copy: ",
        severity: Severity::Remark,
        why: "it may have been asked for; the loss of one drive is the end of what is on it",
        steps: &[(
            "give them another layout, while they are used",
            Some("tepal volume relayout NAME --layout mirror:2"),
        )],
    },
];

/// Said in other findings, from what the API tells of servers, drives and volumes: by how these reasons begin and go on.
const TOLD_ELSEWHERE: [(&str, &str); 8] = [
    ("server ", " is down"),
    ("server ", " doesn't answer"),
    ("drive ", " at "),
    ("drive ", " nearly full, "),
    ("drives ", " nearly full, "),
    ("drive ", " full, "),
    ("drives ", " full, "),
    ("volume '", "': "),
];

pub fn findings(seen: &Seen) -> Vec<Finding> {
    let of_others =
        seen.others.iter().flat_map(|status| &status.reason).filter(|reason| reason.contains(RULES[0].part));
    let mut reasons: Vec<&String> = seen.status.reason.iter().chain(of_others).collect();
    reasons.dedup();
    let ruled = reasons.into_iter().filter_map(|reason| Some(by_rule(rule(reason)?, reason)));
    ruled.chain(no_leader(seen)).collect()
}

fn rule(reason: &str) -> Option<&'static Rule> {
    // What a volume says of itself is told with the volume, whatever is in it.
    let is_of_volume = reason.starts_with("volume '") && reason.contains("': ");
    RULES.iter().find(|rule| reason.contains(rule.part) && !is_of_volume)
}

fn by_rule(rule: &Rule, reason: &str) -> Finding {
    let mut finding = Finding::new(rule.severity, "cluster", reason, rule.why);
    for (text, run) in rule.steps {
        finding = match run {
            Some(run) => finding.run(*text, *run),
            None => finding.hands(*text),
        };
    }
    finding
}

fn no_leader(seen: &Seen) -> Option<Finding> {
    let cluster = seen.cluster.as_ref().filter(|cluster| cluster.leader.is_none())?;
    let voters: Vec<String> = cluster.voters.iter().map(ToString::to_string).collect();
    let what = format!("no server leads: of {} a majority has to be there", voters.join(", "));
    let why = "nothing can be changed, and volumes over several servers aren't served when their leases have ended";
    let finding = Finding::new(Severity::Critical, "cluster", what, why);
    let finding = finding.hands("start those that are down, each with its own folder and its own --peers address");
    Some(finding.run("a new leader is found within seconds then", "tepal cluster show"))
}

/// What keeps the cluster from being well, and has no rule: told in the words of the status, which say what to do where that is known.
pub fn unexplained(seen: &Seen) -> Vec<Finding> {
    let is_told = |reason: &String| {
        rule(reason).is_some()
            || TOLD_ELSEWHERE.iter().any(|(begins, part)| reason.starts_with(begins) && reason.contains(part))
                && is_listed(seen, reason)
    };
    let severity = if seen.status.health == Health::Unavailable { Severity::Critical } else { Severity::Warning };
    let other = seen.status.reason.iter().filter(|reason| !is_told(reason));
    let finding = |reason: &String| {
        let why = "it keeps the cluster from being as it should be";
        Finding::new(severity, "cluster", reason.as_str(), why).run("see it with all else", "tepal status")
    };
    other.map(finding).collect()
}

/// Whether the list was told of which the reason's finding is made.
fn is_listed(seen: &Seen, reason: &str) -> bool {
    match reason.split(' ').next() {
        Some("drive" | "drives") => !seen.drives.is_empty(),
        Some("volume") => !seen.volumes.is_empty(),
        Some(_) | None => true,
    }
}
