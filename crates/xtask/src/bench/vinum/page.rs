//! What is said of the runs: targets, tables and plots.

use super::Options;
use super::overhead::{MODELS, RAW, VOLUME};
use super::shapes::{CLIENTS, DISK, EVEN, SIZES, STRIPES};
use crate::bench::plot::lines::{Lines, Series};
use crate::bench::report::{Circumstances, figure, head, verdicts};
use crate::bench::suite::Run;
use crate::bench::targets::{Bound, Quantity, Target, median_of};

/// The stripes that the paper finds best.
const BEST: &str = "256k";
/// Of a plot, its file's ending, its title and what it goes over.
type Plot = (&'static str, &'static str, &'static str);

/// A system's median of one job.
type Place<'a> = (&'a str, &'a str);

fn over(runs: &[Run], (system, job): Place<'_>, (other, of): Place<'_>, quantity: Quantity) -> Option<f64> {
    let other = median_of(runs, other, of, quantity).filter(|other| *other > 0.0)?;
    Some(median_of(runs, system, job, quantity)? / other)
}

pub fn targets(runs: &[Run]) -> Vec<Target> {
    use Bound::{AtLeast, AtMost};
    use Quantity::{Iops, Mebibytes, MedianLatency};
    let mut targets = Vec::new();
    let mut add = |what: &str, bound, measured| targets.push(Target { what: what.to_owned(), bound, measured });
    for (job, raw) in [
        ("randread-4k-q1", "randread-4k-q1"),
        ("randread-4k-q32", "randread-4k-q32"),
        ("randwrite-4k-q1", "randwrite-4k-q1"),
        ("randwrite-4k-q32", "randwrite-4k-q32"),
        ("randwrite-4k-q1-steady", "randwrite-4k-q1"),
        ("randwrite-4k-q32-steady", "randwrite-4k-q32"),
    ] {
        let (label, _) = MODELS[0];
        let (of, by) = (format!("overhead-{label}-{job}"), format!("overhead-{label}-{raw}"));
        let measured = |quantity| over(runs, (VOLUME, &of), (RAW, &by), quantity);
        add(&format!("{label}, {job}: IOPS of a volume, of the drive's by itself"), AtLeast(0.97), measured(Iops));
        add(&format!("{label}, {job}: latency, of the drive's by itself"), AtMost(1.03), measured(MedianLatency));
    }
    for (kind, volume, bound) in [("read", "striped", 3.6), ("write", "striped", 3.6), ("read", "mirror", 1.9)] {
        let job = format!("scale-{kind}-4k-q16");
        let what = match volume {
            "mirror" => "reads of a mirror of two, of one drive's, 16 at a time".to_owned(),
            _ => format!("{kind}s of four drives striped, of one drive's, 16 at a time"),
        };
        add(&what, AtLeast(bound), over(runs, (volume, &job), ("one", &job), Iops));
    }
    let (write, read) = (format!("raid5-{BEST}-write"), format!("raid5-{BEST}-read"));
    for (what, of) in [
        ("RAID-5 writes, of a striped plex's on as many drives", ("striped", &*write)),
        ("RAID-5 writes, of its own reads", ("raid5", &*read)),
    ] {
        let measured = over(runs, ("raid5", &write), of, Mebibytes);
        add(&format!("{what}, steady, stripes of {BEST}"), AtLeast(0.45), measured);
    }
    let seconds = median_of(runs, "tepal", "apply-first", MedianLatency).map(|micros| micros / 1e6);
    add("`tepal apply` of 1,000 volumes of 8 subdisks, s", AtMost(5.0), seconds);
    targets
}

pub fn text(runs: &[Run], targets: &[Target], options: &Options) -> String {
    let mut text = head(&Circumstances::here(), "vinum", "Vinum's volumes: plexes of subdisks");
    let Options { runtime, reps, steady, .. } = options;
    text += &format!(
        "One server, drives in memory slowed to a model, volumes made by `tepal apply`, fio's NBD engine on a unix socket. Each job runs \
         {reps} times, {runtime} s each, on volumes filled before. Logs take writes in bursts, so writes run for {steady} s each, after as \
         long a run that isn't counted; only the first table has writes that begin on a drive at rest too, of {runtime} s. Figures are \
         medians. The parts were measured one after the other, and ratios are within one part. Every run is in \
         [vinum.tsv](vinum.tsv).\n\n"
    );
    text += &verdicts(targets);
    text += &overhead(runs);
    text +=
        &section(runs, &format!("Drives and plexes, drives slowed to {EVEN}"), "scale", &["one", "striped", "mirror"]);
    let paper = "8 clients, requests of 4 to 32 KiB that begin anywhere";
    text += &format!("\nWhat follows is with drives slowed to {DISK}, and, unless said otherwise, {paper}.\n");
    let title = "Stripe size, striped on four drives, and two such plexes on the same four (figure 4)";
    text += &section(runs, title, "stripes", &["striped", "mirrored", "one"]);
    text += "\n![Throughput against stripe size](vinum-stripes.svg)\n";
    text += &section(runs, "Request size, random reads (figure 5)", "sizes", &["one", "striped"]);
    text += &section(runs, "Clients, random reads (figure 6)", "clients", &["one", "striped"]);
    text += "\n![Throughput against clients](vinum-clients.svg)\n";
    text += &section(runs, "RAID-5 and striped on five drives (figure 7)", "raid5", &["raid5", "striped"]);
    text += "\n![RAID-5 against stripe size](vinum-raid5.svg)\n";
    text + &applied(runs)
}

fn overhead(runs: &[Run]) -> String {
    let mut text = "\n## One drive, by itself and under a volume\n\nThe drive by itself is a file at the same pace, used by the server's own \
                    device code: no NBD, no log, no checksums. Its latency is the mean, the volume's the median.\n\n\
                    | drive | job | raw | volume | of raw | raw us | volume us |\n| --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for job in jobs(runs, "overhead") {
        let of = job.trim_end_matches("-steady");
        let cell = |system, job, quantity| median_of(runs, system, job, quantity).map_or("-".to_owned(), figure);
        let ratio = over(runs, (VOLUME, job), (RAW, of), Quantity::Iops).map_or("-".to_owned(), figure);
        let (label, name) = job.trim_start_matches("overhead-").split_once('-').unwrap_or((job, ""));
        let model = MODELS.iter().find(|(known, _)| *known == label).map_or(label, |(_, model)| model);
        let [raw, raw_us] = [Quantity::Iops, Quantity::MedianLatency].map(|quantity| cell(RAW, of, quantity));
        let [volume, us] = [Quantity::Iops, Quantity::MedianLatency].map(|quantity| cell(VOLUME, job, quantity));
        text += &format!("| {model} | {name} | {raw} | {volume} | {ratio} | {raw_us} | {us} |\n");
    }
    text
}

/// The jobs of a part, in the order in which they ran.
fn jobs<'a>(runs: &'a [Run], part: &str) -> Vec<&'a str> {
    let mut jobs: Vec<&str> = Vec::new();
    for run in runs.iter().filter(|run| run.job.split('-').next() == Some(part)) {
        if !jobs.contains(&&*run.job) {
            jobs.push(&run.job);
        }
    }
    jobs
}

fn section(runs: &[Run], title: &str, part: &str, systems: &[&str]) -> String {
    let mut text =
        format!("\n## {title}\n\n| job | {} |\n| ---{} |\n", systems.join(" | "), " | ---".repeat(systems.len()));
    for job in jobs(runs, part) {
        let cell = |system: &&str| {
            let of = |quantity| median_of(runs, system, job, quantity).map(figure);
            let (Some(iops), Some(rate)) = (of(Quantity::Iops), of(Quantity::Mebibytes)) else { return "-".to_owned() };
            format!("{iops} IOPS, {rate} MiB/s")
        };
        let name = job.split_once('-').map_or(job, |(_, name)| name);
        text += &format!("| {name} | {} |\n", systems.iter().map(cell).collect::<Vec<_>>().join(" | "));
    }
    text
}

fn applied(runs: &[Run]) -> String {
    let mut text =
        "\n## `tepal apply` of 1,000 volumes with 8 subdisks each, on 8 drives\n\n| | s |\n| --- | --- |\n".to_owned();
    let commands = [
        ("apply-first", "apply"),
        ("apply-again", "again: nothing to change"),
        ("apply-show", "`tepal show --as vinum`"),
    ];
    for (job, what) in commands {
        let seconds =
            median_of(runs, "tepal", job, Quantity::MedianLatency).map(|micros| format!("{:.2}", micros / 1e6));
        text += &format!("| {what} | {} |\n", seconds.unwrap_or("-".to_owned()));
    }
    text
}

/// Throughput over what grows by twos or fours: the axis counts doublings.
pub fn plots(runs: &[Run]) -> Vec<(String, String)> {
    let of_stripes = [("striped", "read"), ("striped", "write"), ("mirrored", "read"), ("mirrored", "write")];
    let of_raid5 = [("raid5", "read"), ("raid5", "write"), ("striped", "read"), ("striped", "write")];
    let reads = [("one", "read"), ("striped", "read")];
    let plot = |about: Plot, steps: &[&str], series: &[Place<'_>]| {
        (format!("vinum-{}.svg", about.0), svg(runs, about, steps, series))
    };
    vec![
        plot(("stripes", "MiB/s by stripe size, four drives", "doublings of a stripe of 1 KiB"), &STRIPES, &of_stripes),
        plot(("sizes", "MiB/s by request size, 8 clients", "doublings of a request of 1 KiB"), &SIZES, &reads),
        plot(("clients", "MiB/s by clients", "doublings of one client"), &CLIENTS, &reads),
        plot(("raid5", "MiB/s by stripe size, five drives", "doublings of a stripe of 1 KiB"), &STRIPES, &of_raid5),
    ]
}

fn svg(runs: &[Run], (part, title, across): Plot, steps: &[&str], series: &[Place<'_>]) -> String {
    let names: Vec<String> = series.iter().map(|(system, kind)| format!("{system}, {kind}s")).collect();
    let points = |(system, kind): &Place<'_>| -> Vec<(f64, f64)> {
        let point = |step: &&str| {
            let value = median_of(runs, system, &format!("{part}-{step}-{kind}"), Quantity::Mebibytes)?;
            Some((doublings(step)?, value))
        };
        steps.iter().filter_map(point).collect()
    };
    let of = |(place, name)| Series { name, points: points(place) };
    let series = series.iter().zip(names.iter().map(|name| &**name)).map(of).collect();
    let subtitle = format!("medians; drives slowed to {DISK}");
    Lines { title, subtitle: &subtitle, across, series, moments: Vec::new(), levels: Vec::new() }.svg()
}

/// How often 1, or 1 KiB, is doubled to be that.
fn doublings(text: &str) -> Option<f64> {
    let (digits, times) = match text.strip_suffix('m') {
        Some(digits) => (digits, 1024.0),
        None => (text.trim_end_matches('k'), 1.0),
    };
    Some((digits.parse::<f64>().ok()? * times).log2())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(system: &str, job: &str, rate: f64) -> Run {
        let (system, job) = (system.to_owned(), job.to_owned());
        Run { system, job, repetition: 1, iops: rate, mebibytes: rate, p50_us: 2e6, p99_us: 9.0, cpu_us: None }
    }

    #[test]
    fn writes_of_raid5_are_judged_by_stripes_and_by_their_own_reads() {
        let runs = [
            run("raid5", "raid5-256k-write", 5.0),
            run("raid5", "raid5-256k-read", 20.0),
            run("striped", "raid5-256k-write", 10.0),
        ];
        let targets = targets(&runs);
        let measured: Vec<_> = targets
            .iter()
            .filter(|target| target.what.starts_with("RAID-5"))
            .map(|target| (target.measured, target.verdict()))
            .collect();
        assert_eq!(measured, [(Some(0.5), "ok"), (Some(0.25), "MISSED")]);
    }

    #[test]
    fn steady_writes_are_compared_with_the_raw_drives_and_a_time_is_a_target() {
        let runs = [
            run(RAW, "overhead-hdd-randwrite-4k-q1", 10.0),
            run(VOLUME, "overhead-hdd-randwrite-4k-q1-steady", 9.8),
            run("tepal", "apply-first", 0.0),
        ];
        let targets = targets(&runs);
        let of = |begin: &str| {
            targets.iter().find(|target| target.what.starts_with(begin)).and_then(|target| target.measured)
        };
        assert!(of("hdd, randwrite-4k-q1-steady: IOPS").is_some_and(|ratio| (ratio - 0.98).abs() < 1e-9));
        assert_eq!(of("`tepal apply`"), Some(2.0));
    }

    #[test]
    fn an_axis_counts_doublings() {
        let cases = [("1", Some(0.0)), ("128", Some(7.0)), ("4k", Some(2.0)), ("1m", Some(10.0)), ("x", None)];
        for (text, doubled) in cases {
            assert_eq!(doublings(text), doubled, "{text}");
        }
    }
}
