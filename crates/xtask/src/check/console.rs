//! Whether the console that the server embeds was built from its sources as they are: `console/pack.mjs` notes a number of them.

use crate::failure::Failure;
use crate::workspace::Workspace;
use std::path::{Path, PathBuf};

const BUNDLE: &str = "crates/server/console/sources.txt";
/// As `console/pack.mjs` has them, besides all files of `src`.
const SETTINGS: [&str; 6] =
    ["index.html", "package-lock.json", "package.json", "pack.mjs", "tsconfig.json", "vite.config.mjs"];

/// What is wrong with the bundle, and with the list of what it's built with.
pub fn breaches(workspace: &Workspace) -> Result<Vec<String>, Failure> {
    let read = |path: &Path| std::fs::read(workspace.root.join(path)).map_err(Failure::file(path));
    let folder = Path::new("console");
    let is_source = |path: &Path| path.starts_with("src") || SETTINGS.iter().any(|setting| path == Path::new(setting));
    let files = workspace.files()?;
    let inside = files.iter().filter_map(|path| path.strip_prefix(folder).ok()).filter(|path| is_source(path));
    let mut sources: Vec<PathBuf> = inside.map(Path::to_owned).collect();
    sources.sort_by(|one, other| one.as_os_str().cmp(other.as_os_str()));
    let mut number = Fnv::default();
    for source in sources {
        number.add(source.as_os_str().as_encoded_bytes());
        number.add(&read(&folder.join(&source))?);
    }
    let noted = read(Path::new(BUNDLE))?;
    let mut breaches = Vec::new();
    if String::from_utf8_lossy(&noted).trim() != number.shown() {
        breaches.push(format!("{BUNDLE}: the console was changed since it was built: npm run build, in console/"));
    }
    let lock = read(&folder.join("package-lock.json"))?;
    if String::from_utf8_lossy(&lock).contains("\"resolved\"") {
        breaches.push("console/package-lock.json: it names a registry: npm install, with console/.npmrc".to_owned());
    }
    Ok(breaches)
}

/// FNV-1a of 64 bits, with a zero after each part: it tells an accident, not an attack.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn add(&mut self, part: &[u8]) {
        for byte in part.iter().chain(&[0]) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        }
    }

    fn shown(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_sources_is_the_one_that_the_build_notes() {
        let mut number = Fnv::default();
        number.add(b"a");
        number.add(b"");
        assert_eq!(number.shown(), "e5d2f7190427066c", "FNV-1a of an a and two zeros");
        assert_ne!(number.shown(), Fnv::default().shown());
    }
}
