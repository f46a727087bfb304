//! `cargo xtask book`: the documentation as a site with a search, in `target/book`, made by mdBook.
//!
//! Each page of `docs/` is in the table of contents once, and each link of the site leads to a page, a file or a heading that is there.

use crate::failure::Failure;
use crate::process;
use crate::workspace::Workspace;
use clap::Args;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const MDBOOK: &str = "mdbook";
const CONTENTS: &str = "docs/SUMMARY.md";
const BUILD_WITHIN: Duration = Duration::from_secs(120);

#[derive(Args)]
pub struct Options {
    /// Install mdBook into the target folder where it's missing (some five minutes on two cores)
    #[arg(long)]
    install: bool,
}

/// What came of a look at the documentation.
pub enum Site {
    Built {
        breaches: Vec<String>,
    },
    /// mdBook is missing.
    NotBuilt(String),
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<(), Failure> {
    let unlisted = unlisted(workspace)?;
    let breaches = match build(workspace, options.install)? {
        Site::Built { breaches } => [unlisted, breaches].concat(),
        Site::NotBuilt(why) => [unlisted, vec![why]].concat(),
    };
    match breaches.is_empty() {
        true => println!("{}", folder(workspace).join("index.html").display()),
        false => println!("{}", breaches.join("\n")),
    }
    if breaches.is_empty() { Ok(()) } else { Err(Failure::Reported) }
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("book")
}

/// Builds the site, and looks at its links.
pub fn build(workspace: &Workspace, install: bool) -> Result<Site, Failure> {
    let program = match workspace.tool(MDBOOK) {
        Some(program) => program,
        None if install => workspace.install(MDBOOK)?,
        None => {
            let why = "mdbook is missing: `cargo xtask book --install` brings it into the target folder";
            return Ok(Site::NotBuilt(why.into()));
        }
    };
    let site = folder(workspace);
    let mut mdbook = Command::new(program);
    mdbook.arg("build").arg(workspace.root.join("docs")).arg("--dest-dir").arg(&site);
    let built = process::capture(&mut mdbook, BUILD_WITHIN)?;
    let said = built.output();
    let complains = |line: &&str| ["WARN", "ERROR"].iter().any(|word| line.contains(word));
    let mut breaches: Vec<String> = said.lines().filter(complains).map(str::to_owned).collect();
    if !built.status.success() {
        breaches.push(format!("mdbook: {}", said.trim_end()));
    }
    if breaches.is_empty() {
        call_readmes_by_their_names(&site)?;
        breaches = broken_links(&pages(&site)?, &|file| file.is_file());
    }
    Ok(Site::Built { breaches })
}

/// mdBook makes `index.html` of a README, and leads links to `README.html`.
fn call_readmes_by_their_names(site: &Path) -> Result<(), Failure> {
    for page in pages(site)?.into_keys().filter(|page| page.ends_with("index.html")) {
        let other = page.with_file_name("README.html");
        std::fs::copy(&page, &other).map_err(Failure::file(&other))?;
    }
    Ok(())
}

/// The pages of `docs/` that the table of contents has not, or twice, and what it has that is no page.
pub fn unlisted(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let file = workspace.root.join(CONTENTS);
    let contents = std::fs::read_to_string(&file).map_err(Failure::file(&file))?;
    let is_page = |path: &PathBuf| {
        path.starts_with("docs") && path.extension().is_some_and(|ends| ends == "md") && *path != Path::new(CONTENTS)
    };
    let pages = workspace
        .files()?
        .into_iter()
        .filter(is_page)
        .map(|path| path.strip_prefix("docs").unwrap_or(&path).to_owned());
    Ok(unlisted_of(&contents, &pages.collect()))
}

fn unlisted_of(contents: &str, pages: &BTreeSet<PathBuf>) -> Vec<String> {
    let mut listed: BTreeMap<PathBuf, usize> = pages.iter().map(|page| (page.clone(), 0)).collect();
    for link in contents.split("](").skip(1) {
        *listed.entry(link.split(')').next().unwrap_or_default().into()).or_default() += 1;
    }
    let told = listed.iter().filter(|(page, times)| **times != 1 || !pages.contains(*page));
    told.map(|(page, times)| match pages.contains(page) {
        true => format!("{CONTENTS}: 'docs/{}' is listed {times} times, not once", page.display()),
        false => format!("{CONTENTS}: 'docs/{}' is no page", page.display()),
    })
    .collect()
}

/// The text of each page of a site.
fn pages(site: &Path) -> Result<BTreeMap<PathBuf, String>, Failure> {
    let (mut pages, mut folders) = (BTreeMap::new(), vec![site.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(Failure::file(&folder))? {
            let path = entry.map_err(Failure::file(&folder))?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ends| ends == "html") {
                let text = std::fs::read_to_string(&path).map_err(Failure::file(&path))?;
                pages.insert(path, text);
            }
        }
    }
    Ok(pages)
}

/// Links to what isn't there: to other pages and files of the site, and to headings.
fn broken_links(pages: &BTreeMap<PathBuf, String>, is_file: &dyn Fn(&Path) -> bool) -> Vec<String> {
    let headings: BTreeMap<&Path, BTreeSet<&str>> =
        pages.iter().map(|(page, text)| (page.as_path(), values(text, "id").collect())).collect();
    let mut broken = BTreeSet::new();
    for (page, text) in pages {
        if page.ends_with("404.html") {
            continue; // its links are from the root of where the site will be
        }
        for link in values(text, "href").chain(values(text, "src")) {
            if link.contains(':') || link.starts_with("//") {
                continue; // elsewhere
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let file = file.split('?').next().unwrap_or_default();
            let target = if file.is_empty() { page.clone() } else { joined(page, file) };
            let is_there = match headings.get(target.as_path()) {
                Some(headings) => heading.is_empty() || headings.contains(heading),
                None => is_file(&target),
            };
            if !is_there {
                broken.insert(format!("{}: a link to '{link}', which isn't there", page.display()));
            }
        }
    }
    broken.into_iter().collect()
}

/// The values that an attribute has in a page.
fn values<'a>(page: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begins = format!(" {attribute}=\"");
    let pieces: Vec<&str> = page.split(begins.as_str()).skip(1).collect();
    pieces.into_iter().filter_map(|piece| piece.split('"').next())
}

/// Where a link of a page leads.
fn joined(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(Path::new("")).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::Normal(name) => path.push(name),
            _ => {}
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_listed_once() {
        let pages: BTreeSet<PathBuf> = ["a.md", "b/c.md", "d.md"].map(PathBuf::from).into();
        assert_eq!(unlisted_of("[A](a.md)\n- [C](b/c.md)\n- [D](d.md)", &pages), [""; 0]);
        let found = unlisted_of("[A](a.md)\n- [A again](a.md)\n- [E](e.md)\n- [D](d.md)", &pages);
        let of = |part: &str| found.iter().filter(|line| line.contains(part)).count();
        assert_eq!(
            (found.len(), of("a.md' is listed 2"), of("b/c.md' is listed 0"), of("e.md' is no page")),
            (3, 1, 1, 1)
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        let page = |path: &str, text: &str| (PathBuf::from(path), text.to_owned());
        let pages = BTreeMap::from([
            page(
                "site/index.html",
                r##"<a href="in/a.html#there">, <a href="https://elsewhere/x">, <img src="p.png">, <a href="#no">"##,
            ),
            page(
                "site/in/a.html",
                r#"<h2 id="there">, <a href="../index.html">, <a href="../b.html">, <a href="a.html#not">"#,
            ),
        ]);
        let found = broken_links(&pages, &|file| file == Path::new("site/p.png"));
        let links: Vec<&str> = found.iter().filter_map(|line| line.split('\'').nth(1)).collect();
        assert_eq!(links, ["../b.html", "a.html#not", "#no"]);
    }
}
