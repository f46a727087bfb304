//! Licences and sources of what we depend on, from the lists in `deny.toml`: xtask's own check, for machines without
//! cargo-deny.

use serde_json::Value;

/// The only registry that packages come from.
const REGISTRY: &str = "registry+";

/// The strings of the list `key = [ ... ]` in a TOML text, comments left out.
pub fn list_in_toml(text: &str, key: &str) -> Vec<String> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let mut words = lines.skip_while(|line| line.split('=').next().map(str::trim) != Some(key)).peekable();
    if words.peek().is_none() {
        return Vec::new();
    }
    let rest: String = words.collect::<Vec<_>>().join(" ");
    let inside = rest.split_once('[').map_or("", |(_, rest)| rest);
    let inside = inside.split(']').next().unwrap_or_default();
    inside.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Every package that comes from elsewhere, or under terms that aren't allowed, as a sentence each.
pub fn breaches(metadata: &Value, allowed: &[String]) -> Vec<String> {
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut found = Vec::new();
    for package in packages.filter(|package| !package["source"].is_null()) {
        let text = |key| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        if !text("source").starts_with(REGISTRY) {
            found.push(format!("{name}: comes from {}, which is no registry", text("source")));
        }
        match text("license") {
            "" => found.push(format!("{name}: states no licence")),
            terms if !is_allowed(terms, allowed) => found.push(format!("{name}: licence {terms} is not allowed")),
            _ => {}
        }
    }
    found
}

/// Whether an SPDX expression can be met with allowed licences only. `A/B` is the old way to write `A OR B`.
fn is_allowed(terms: &str, allowed: &[String]) -> bool {
    let spaced = terms.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut expression = Expression { words: &words, allowed };
    let value = expression.any_of();
    value == Some(true) && expression.words.is_empty()
}

struct Expression<'a> {
    words: &'a [&'a str],
    allowed: &'a [String],
}

impl<'a> Expression<'a> {
    fn next_is(&mut self, word: &str) -> bool {
        let is = self.words.first() == Some(&word);
        if is {
            self.words = &self.words[1..];
        }
        is
    }

    fn any_of(&mut self) -> Option<bool> {
        let mut value = self.all_of()?;
        while self.next_is("OR") {
            value |= self.all_of()?;
        }
        Some(value)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut value = self.one()?;
        while self.next_is("AND") {
            value &= self.one()?;
        }
        Some(value)
    }

    fn one(&mut self) -> Option<bool> {
        if self.next_is("(") {
            let value = self.any_of()?;
            return self.next_is(")").then_some(value);
        }
        let (first, rest) = self.words.split_first()?;
        self.words = rest;
        let mut licence = first.to_string();
        if self.next_is("WITH") {
            let (exception, rest) = self.words.split_first()?;
            self.words = rest;
            licence = format!("{licence} WITH {exception}");
        }
        Some(self.allowed.contains(&licence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_is_allowed_if_some_choice_in_it_is() {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "Unicode-3.0"].map(str::to_owned);
        let cases = [
            ("MIT", true),
            ("GPL-3.0", false),
            ("MIT OR GPL-3.0", true),
            ("MIT AND GPL-3.0", false),
            ("GPL-3.0/MIT", true),
            ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-3.0", false),
            ("MIT AND Unicode-3.0 OR GPL-3.0", true),
            ("GPL-3.0 OR GPL-2.0 AND MIT", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("MIT WITH Some-exception", false),
            ("MIT OR", false),
            ("(MIT", false),
            ("MIT MIT", false),
            ("", false),
        ];
        for (terms, expected) in cases {
            assert_eq!(is_allowed(terms, &allowed), expected, "{terms}");
        }
    }

    #[test]
    fn the_list_is_the_one_in_deny_toml() {
        let toml = "[licenses]\nallowed = [\"no\"]\nallow = [\n    \"MIT\", # \"not this\"\n    \"ISC\",\n]\nother = [\"no\"]\n";
        assert_eq!(list_in_toml(toml, "allow"), ["MIT", "ISC"]);
        assert_eq!(list_in_toml(toml, "absent"), Vec::<String>::new());
    }

    #[test]
    fn packages_from_elsewhere_or_without_terms_are_named_and_our_own_are_not() {
        let metadata: Value = serde_json::from_str(
            r#"{"packages": [
                {"name": "ours", "version": "1.0.0", "source": null, "license": null},
                {"name": "good", "version": "1.0.0", "source": "registry+x", "license": "MIT"},
                {"name": "none", "version": "1.0.0", "source": "registry+x", "license": null},
                {"name": "forked", "version": "1.0.0", "source": "git+x", "license": "MIT"}]}"#,
        )
        .unwrap();
        let found = breaches(&metadata, &["MIT".into()]);
        assert_eq!(found, ["none 1.0.0: states no licence", "forked 1.0.0: comes from git+x, which is no registry"]);
    }
}
