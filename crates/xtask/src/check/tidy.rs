//! Tidiness of the tree: rules about files that neither the compiler nor clippy knows.
//!
//! (`todo!`, `dbg!` and their like are clippy's: every crate takes the workspace's lints, which is a rule here.)

use std::path::{Component, Path};

/// A file past this many lines has parts that deserve names of their own.
const MAX_LINES: usize = 800;

/// Names that say nothing about what is inside.
const NAMES_FOR_NOTHING: &[&str] = &["common", "helper", "helpers", "misc", "shared", "util", "utils"];

/// Characters in a line of prose, in documents and comments.
const MAX_WIDTH: usize = 140;

/// Folders that only exist on their owner's machine.
const PRIVATE_FOLDERS: &[&str] = &["/home/", "/root/", "/Users/"];

/// Folders at the root whose files documents name.
const FOLDERS: &[&str] = &["bench", "console", "crates", "docs", "packaging", "tests"];

/// Where decisions are, each in a file that begins with its number.
const DECISIONS: &str = "docs/decisions";

/// A decision of more words has become a manual: what tells how something works belongs into docs/internals.
const MAX_WORDS: usize = 500;

/// Characters that a reader can't see, some of which make code read as what it isn't.
const INVISIBLE: &[std::ops::RangeInclusive<char>] = &[
    '\u{a0}'..='\u{a0}',
    '\u{ad}'..='\u{ad}',
    '\u{200b}'..='\u{200f}',
    '\u{2028}'..='\u{202e}',
    '\u{2060}'..='\u{2069}',
    '\u{feff}'..='\u{feff}',
];

/// How files end that merges and editors leave.
const LEFT_OVER: &[&str] = &[".orig", ".rej", ".bak", ".swp", "~"];

/// What is known of the tree besides the one file at hand.
pub struct Tree<'a> {
    /// Where the tree is on this machine, which nothing in it may name.
    pub root: String,
    /// Whether a path, relative to the root, exists.
    pub exists: &'a dyn Fn(&Path) -> bool,
}

/// Every breach in one file, as `path:line: sentence`.
pub fn breaches(path: &Path, text: &str, tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |line: usize, what: &str| found.push(format!("{}:{line}: {what}", path.display()));
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    let is_text = ["rs", "md", "toml", "sh", "yml", "sql"].contains(&extension) || path.starts_with(".ci");

    if is_left_over(path) {
        say(1, "a merge or an editor has left this file");
    }
    if let Some(name) = name_for_nothing(path) {
        say(1, &format!("'{name}' says nothing about what is inside"));
    }
    if extension == "rs" {
        if text.lines().count() > MAX_LINES {
            say(
                text.lines().count(),
                &format!("more than {MAX_LINES} lines: which parts of it have names of their own?"),
            );
        }
        if opens_a_module(path) && !text.starts_with("//!") {
            say(1, "the module doesn't open with what it is for");
        }
    }
    if is_crate_manifest(path) && !text.contains("[lints]\nworkspace = true") {
        say(1, "the crate doesn't take the workspace's lints ([lints] workspace = true)");
    }
    if extension == "md" {
        in_document(path, text, tree).iter().for_each(|(line, what)| say(*line, what));
    }
    let is_result = path.starts_with("bench/results"); // written by benches
    for line in too_wide(extension, text).into_iter().filter(|_| !is_result) {
        say(line, &format!("more than {MAX_WIDTH} characters"));
    }
    if is_text {
        for (index, line) in text.lines().enumerate() {
            if let Some(what) = in_line(line, tree) {
                say(index + 1, &what);
            }
        }
        if !text.is_empty() && !text.ends_with('\n') {
            say(text.lines().count(), "no newline at the end of the file");
        }
    }
    found
}

fn is_left_over(path: &Path) -> bool {
    path.to_str().is_some_and(|name| LEFT_OVER.iter().any(|end| name.ends_with(end)))
}

/// (line, sentence) of what is wrong with a document in Markdown.
fn in_document(path: &Path, text: &str, tree: &Tree) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, target) in broken_links(path, text, tree.exists) {
        found.push((line, format!("a link to '{target}', which doesn't exist")));
    }
    for (line, named) in missing_paths(text, tree.exists) {
        let how = "paths begin at the root, or are CRATE/... in a crate's sources";
        found.push((line, format!("`{named}` leads nowhere: {how}")));
    }
    if path.parent() == Some(Path::new(DECISIONS)) && !path.ends_with("README.md") {
        if !has_title_of_decision(path, text) {
            found.push((1, "a decision's title is '# NNNN: ...', with the number of its file".to_owned()));
        }
        if text.split_whitespace().count() > MAX_WORDS {
            let where_to = "what tells how it works belongs into docs/internals";
            found.push((1, format!("more than {MAX_WORDS} words: {where_to}")));
        }
    }
    found
}

/// Lines of prose, but for tables.
fn too_wide(extension: &str, text: &str) -> Vec<usize> {
    let is_wide = |(_, line): &(usize, &str)| line.chars().count() > MAX_WIDTH;
    match extension {
        "md" => prose(text).filter(is_wide).filter(|(_, line)| !line.starts_with('|')).map(|(line, _)| line).collect(),
        "rs" => {
            let comments = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
            comments.filter(is_wide).map(|(index, _)| index + 1).collect()
        }
        _ => Vec::new(),
    }
}

fn in_line(line: &str, tree: &Tree) -> Option<String> {
    if line.ends_with([' ', '\t', '\r']) {
        return Some("trailing white space".into());
    }
    if line.contains('\t') {
        return Some("a tab".into());
    }
    if let Some(c) = line.chars().find(|c| INVISIBLE.iter().any(|range| range.contains(c))) {
        return Some(format!("an invisible character, U+{:04X}", c as u32));
    }
    if ["<<<<<<< ", ">>>>>>> "].iter().any(|marker| line.starts_with(marker)) {
        return Some("a merge's conflict marker".into());
    }
    let private = PRIVATE_FOLDERS.iter().copied().filter(|_| !line.contains("PRIVATE_FOLDERS"));
    let place = private.chain([tree.root.as_str()]).find(|place| line.contains(place))?;
    Some(format!("'{place}' is a place on one machine only"))
}

fn name_for_nothing(path: &Path) -> Option<&str> {
    path.components().find_map(|component| match component {
        Component::Normal(name) => {
            let name = Path::new(name).file_stem()?.to_str()?;
            NAMES_FOR_NOTHING.contains(&name).then_some(name)
        }
        _ => None,
    })
}

/// Whether the file is a module that a reader meets on the way, and not one of tests that explain themselves.
fn opens_a_module(path: &Path) -> bool {
    let in_source = path.starts_with("crates") && path.components().any(|part| part.as_os_str() == "src");
    in_source
        && !path.components().any(|part| {
            part.as_os_str().to_str().is_some_and(|part| part.starts_with("tests") || part.ends_with("_tests.rs"))
        })
}

fn is_crate_manifest(path: &Path) -> bool {
    path.ends_with("Cargo.toml") && path.components().count() > 1
}

/// (line, target) of relative links in Markdown that lead nowhere.
fn broken_links<'a>(path: &Path, text: &'a str, exists: &dyn Fn(&Path) -> bool) -> Vec<(usize, &'a str)> {
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut broken = Vec::new();
    for (number, line) in prose(text) {
        for piece in line.split("](").skip(1) {
            let target = piece.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !exists(&folder.join(file)) {
                broken.push((number, target));
            }
        }
    }
    broken
}

fn has_title_of_decision(path: &Path, text: &str) -> bool {
    let number = path.file_name().and_then(|name| name.to_str()?.split('-').next());
    let rest = number.and_then(|number| text.strip_prefix("# ")?.strip_prefix(number));
    rest.is_some_and(|rest| rest.starts_with(": "))
}

/// (line, path) of what Markdown names in code spans and isn't there: from the root, or `CRATE/...` within a crate's sources, which
/// is the only way to name those. A word without a slash is a path if it ends as a source does.
fn missing_paths<'a>(text: &'a str, exists: &dyn Fn(&Path) -> bool) -> Vec<(usize, &'a str)> {
    let is_missing = |span: &str| {
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "_./-".contains(c));
        let (first, rest) = span.split_once('/').unwrap_or((span, ""));
        if !plain || first.is_empty() {
            return false;
        }
        if FOLDERS.contains(&first) && !rest.is_empty() {
            return rest.contains("/src/") || !exists(Path::new(span));
        }
        let room = Path::new("crates").join(first);
        if !rest.is_empty() && exists(&room) {
            return rest.starts_with("src/") || !exists(&room.join("src").join(rest)) && !exists(&room.join(rest));
        }
        span.ends_with(".rs") || span.ends_with('/')
    };
    let spans =
        prose(text).flat_map(|(number, line)| line.split('`').skip(1).step_by(2).map(move |span| (number, span)));
    spans.filter(|(_, span)| is_missing(span)).collect()
}

/// The lines outside of code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        in_code ^= line.trim_start().starts_with("```");
        (!in_code).then_some((index + 1, line))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches_in(path: &str, text: &str) -> Vec<String> {
        let tree = Tree {
            root: "/somewhere/tepal".into(),
            exists: &|path| {
                let there =
                    ["docs/formats.md", "docs/../README.md", "crates/", "crates/drive", "crates/drive/src/log/"];
                there.iter().any(|there| path == Path::new(there))
            },
        };
        breaches(Path::new(path), text, &tree)
    }

    #[test]
    fn what_merges_and_editors_leave_is_refused() {
        for left in ["a/status.rs.orig", "b.rej", "c.rs~", ".d.rs.swp"] {
            assert!(is_left_over(Path::new(left)), "{left}");
        }
        assert!(!is_left_over(Path::new("docs/original.md")));
    }

    #[test]
    fn each_rule_names_the_file_the_line_and_the_breach() {
        let long = format!("//! Long.\n{}", "// line\n".repeat(MAX_LINES));
        let manual = format!("# 0007: X\n\n{}", "word\n".repeat(MAX_WORDS));
        let (wide, wide_comment) =
            (format!("a\n{}\n", "x".repeat(141)), format!("//! It.\n    // {}\n", "x".repeat(134)));
        let home = ["see /ho", "me/ann/x\n"].concat();
        let cases: &[(&str, &str, &str)] = &[
            ("crates/drive/src/utils.rs", "//! It.\n", "crates/drive/src/utils.rs:1: 'utils' says nothing"),
            ("crates/drive/src/misc/log.rs", "//! It.\n", "crates/drive/src/misc/log.rs:1: 'misc' says nothing"),
            ("crates/drive/src/log.rs", &long, "crates/drive/src/log.rs:801: more than 800 lines"),
            ("crates/drive/src/log.rs", "fn f() {}\n", "crates/drive/src/log.rs:1: the module doesn't open"),
            ("crates/drive/Cargo.toml", "[package]\n", "crates/drive/Cargo.toml:1: the crate doesn't take"),
            ("docs/x.md", "a\nb \n", "docs/x.md:2: trailing white space"),
            ("docs/x.md", &wide, "docs/x.md:2: more than 140 characters"),
            ("crates/drive/src/log.rs", &wide_comment, "crates/drive/src/log.rs:2: more than 140 characters"),
            ("docs/x.md", "a\tb\n", "docs/x.md:1: a tab"),
            ("docs/x.md", "a\u{202e}b\n", "docs/x.md:1: an invisible character, U+202E"),
            ("docs/x.md", "<<<<<<< ours\n", "docs/x.md:1: a merge's conflict"),
            ("docs/x.md", "end", "docs/x.md:1: no newline"),
            ("docs/x.md", &home, "docs/x.md:1: '/ho"),
            ("docs/x.md", "in /somewhere/tepal/x\n", "docs/x.md:1: '/somewhere/tepal' is a place"),
            ("docs/x.md", "[a](nowhere.md#part)\n", "docs/x.md:1: a link to 'nowhere.md#part'"),
            ("docs/x.md", "a\nin `docs/gone.md`\n", "docs/x.md:2: `docs/gone.md` leads nowhere"),
            ("docs/x.md", "`a` and `drive/gone.rs`\n", "docs/x.md:1: `drive/gone.rs` leads nowhere"),
            ("docs/x.md", "`drive/src/log/`\n", "docs/x.md:1: `drive/src/log/` leads nowhere"),
            ("docs/x.md", "`crates/drive/src/log/`\n", "docs/x.md:1: `crates/drive/src/log/` leads nowhere"),
            ("docs/x.md", "`order.rs`\n", "docs/x.md:1: `order.rs` leads nowhere"),
            ("docs/x.md", "`log/batch/`\n", "docs/x.md:1: `log/batch/` leads nowhere"),
            ("docs/decisions/0007-x.md", "# 7. X\n", "docs/decisions/0007-x.md:1: a decision's title is"),
            ("docs/decisions/0007-x.md", &manual, "docs/decisions/0007-x.md:1: more than 500 words"),
        ];
        for (path, text, expected) in cases {
            let found = breaches_in(path, text);
            assert_eq!(found.len(), 1, "{path}: {found:?}");
            assert!(found[0].starts_with(expected), "{found:?}");
        }
    }

    #[test]
    fn what_breaks_no_rule_is_left_alone() {
        let cases = [
            ("crates/drive/src/log.rs", "//! The log.\n"),
            ("crates/drive/src/log/tests.rs", "use super::*;\n"),
            ("crates/drive/Cargo.toml", "[package]\n\n[lints]\nworkspace = true\n"),
            ("Cargo.toml", "[workspace]\n"),
            ("docs/x.md", "[a](formats.md#log), [b](../README.md), [c](#part), [d](https://example.org)\n"),
            (
                "docs/x.md",
                "`docs/formats.md`, `drive/log/`, `fuse/loop`, `/metrics`, `drive/*`, `docs/formats.md NAME`\n",
            ),
            ("docs/decisions/0007-x.md", "# 0007: X\n\n`nbd.sock`, `a/b`\n"),
            ("docs/x.md", "```rust\nlet x = table[i](nowhere);\n```\n"),
            ("bench/results/local.tsv", "a\tb\n"),
            ("tests/mutants/skip.patch", " context with nothing on it:\n \n"),
        ];
        for (path, text) in cases {
            assert_eq!(breaches_in(path, text), Vec::<String>::new(), "{path}");
        }
    }
}
