//! The threat model, `docs/security.md`: each line says what shows that it holds, and that is there.
//!
//! Paths are as in `docs/ARCHITECTURE.md`: `tests/...` as they stand, others as `CRATE/...` in the sources of the crate. A test of a file
//! is named as `FILE::TEST`; a line that names no test claims too much.

use crate::failure::Failure;
use crate::workspace::Workspace;

const PAGE: &str = "docs/security.md";
/// Of the table's columns, the one that names tests.
const SHOWN_BY: usize = 4;

pub fn breaches(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let page = workspace.root.join(PAGE);
    let text = std::fs::read_to_string(&page).map_err(Failure::file(&page))?;
    let read = |path: &str| std::fs::read_to_string(workspace.root.join(path)).ok();
    Ok(judged(&text, &read))
}

/// What is wrong with the page. `read`: a file's text, if there is such a file.
fn judged(page: &str, read: &dyn Fn(&str) -> Option<String>) -> Vec<String> {
    let rows = page.lines().filter(|line| line.starts_with('|')).skip(2);
    let mut breaches = Vec::new();
    let mut count = 0;
    for row in rows {
        count += 1;
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let who = columns.get(1).copied().unwrap_or_default();
        let shown_by = columns.get(SHOWN_BY).copied().unwrap_or_default();
        let named: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        if !named.iter().any(|name| name.contains("::")) {
            breaches.push(format!("{PAGE}: no test shows what is said of: {who}"));
        }
        breaches.extend(named.into_iter().filter_map(|name| missing(name, read)));
    }
    if count == 0 {
        breaches.push(format!("{PAGE}: there is no table of threats"));
    }
    breaches
}

fn missing(name: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let (file, test) = name.split_once("::").map_or((name, None), |(file, test)| (file, Some(test)));
    let path = match file.split_once('/') {
        Some(("tests", _)) | None => file.to_owned(),
        Some((of, rest)) => format!("crates/{of}/src/{rest}"),
    };
    let Some(text) = read(&path) else { return Some(format!("{PAGE}: there is no {path}")) };
    let test = test?;
    // A test, and no helper of the same name.
    let begins = format!("fn {test}(");
    let before = text.split_once(&begins).map(|(before, _)| before);
    let is_test = before.is_some_and(|before| {
        let attributes = before.rsplit_once("\n\n").map_or(before, |(_, last)| last);
        attributes.contains("#[test]") || attributes.contains("#[tokio::test]") || attributes.contains("#[test_case")
    });
    (!is_test).then(|| format!("{PAGE}: {path} has no test {test}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(shown_by: &str) -> String {
        format!(
            "# Security\n\n| who | must not | because | shown by |\n| - | - | - | - |\n| a host | write | rights | {shown_by} |\n"
        )
    }

    fn read(path: &str) -> Option<String> {
        let text = "use x;\n\nfn helper() {}\n\n#[test]\nfn it_holds() {\n    helper();\n}\n";
        ["tests/a.rs", "crates/server/src/b/c.rs"].contains(&path).then(|| text.to_owned())
    }

    #[test]
    fn a_line_whose_tests_are_there_is_good() {
        for good in ["`tests/a.rs::it_holds`", "`server/b/c.rs::it_holds`, and `tests/a.rs`"] {
            assert_eq!(judged(&page(good), &read), Vec::<String>::new(), "{good}");
        }
    }

    #[test]
    fn a_line_that_claims_too_much_is_told() {
        for (shown_by, told) in [
            ("", "no test shows what is said of: a host"),
            ("`tests/a.rs`", "no test shows what is said of: a host"),
            ("`tests/none.rs::it_holds`", "there is no tests/none.rs"),
            ("`tests/a.rs::it_held`", "tests/a.rs has no test it_held"),
            ("`tests/a.rs::helper`", "tests/a.rs has no test helper"),
        ] {
            let told_of = judged(&page(shown_by), &read);
            assert!(told_of.len() == 1 && told_of[0].contains(told), "{told_of:?}");
        }
        assert_eq!(judged("# Security\n", &read).len(), 1);
    }
}
