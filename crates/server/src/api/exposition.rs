//! Prometheus's text format, version 0.0.4, made of what the encoder writes, which is OpenMetrics.
//!
//! Every scraper reads 0.0.4, and so do `promtool check metrics` and people with curl. The formats differ in one thing here: a counter's
//! help and type stand under the name without `_total` in OpenMetrics, and under the whole name in the other.

use std::collections::BTreeSet;

pub const CONTENT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub fn of_open_metrics(text: &str) -> String {
    let type_of = |line: &'_ str| line.strip_prefix("# TYPE ")?.strip_suffix(" counter").map(str::to_owned);
    let counters: BTreeSet<String> = text.lines().filter_map(type_of).collect();
    let mut plain = String::with_capacity(text.len() + 1024);
    for line in text.lines().filter(|line| *line != "# EOF") {
        let told = ["# HELP ", "# TYPE "].into_iter().find_map(|word| Some((word, line.strip_prefix(word)?)));
        match told.and_then(|(word, rest)| Some((word, rest.split_once(' ')?))) {
            Some((word, (name, rest))) if counters.contains(name) => {
                plain.extend([word, name, "_total ", rest]);
            }
            Some(_) | None => plain.push_str(line),
        }
        plain.push('\n');
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_help_under_their_whole_names() {
        let open = "# HELP a_bytes Moved.\n# TYPE a_bytes counter\na_bytes_total{x=\"1\"} 5\n# HELP b B.\n# TYPE b gauge\nb 1\n# EOF\n";
        let plain = "# HELP a_bytes_total Moved.\n# TYPE a_bytes_total counter\na_bytes_total{x=\"1\"} 5\n# HELP b B.\n# TYPE b gauge\nb 1\n";
        assert_eq!(of_open_metrics(open), plain);
    }
}
