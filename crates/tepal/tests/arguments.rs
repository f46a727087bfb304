//! What the command does with its arguments alone: no server runs here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::{Command, Output};

fn tepal(arguments: &[OsString]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tepal"));
    command
        .args(arguments)
        .env_remove("TEPAL_CLUSTER")
        .env_remove("TEPAL_TOKEN")
        .current_dir(env!("CARGO_TARGET_TMPDIR"));
    command.output().expect("the binary that was just built")
}

fn words(line: &str) -> Vec<OsString> {
    line.split_whitespace().map(OsString::from).collect()
}

#[test]
fn wrong_usage_is_one_line_and_status_2_and_a_failure_is_one_line_and_status_1() {
    for (line, status) in [
        ("frobnicate", 2),
        ("volume create x", 2),
        ("volume create x --size 18446744073709551615E", 2),
        ("volume create ../x --size 1G", 2),
        ("volume show x -o yaml", 2),
        ("drive inspect /nonexistent", 1),
        ("drive check /etc", 1),
        ("status", 1),
        ("status --cluster 127.0.0.1:1", 1),
        ("status --cluster nonsense", 2),
        ("dev down", 1),
        ("serve", 1),
    ] {
        let output = tepal(&words(line));
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{line}: {error}");
        assert!(error.starts_with("error: ") && error.trim_end().lines().count() == 1, "{line}: {error}");
        assert!(output.stdout.is_empty(), "{line}");
    }
}

#[test]
fn arguments_that_are_not_text_are_refused() {
    for command in ["volume show", "sql", "drive rm"] {
        let output = tepal(&[words(command), vec![OsString::from_vec(vec![0xff, 0xfe])]].concat());
        assert_eq!(output.status.code(), Some(2), "{command}");
        assert!(output.stderr.starts_with(b"error: "), "{command}");
    }
}

#[test]
fn help_and_completions_go_to_standard_output() {
    for line in
        ["--help", "--version", "dev tour --help", "volume create --help", "completions bash", "completions zsh"]
    {
        let output = tepal(&words(line));
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{line}");
    }
}
