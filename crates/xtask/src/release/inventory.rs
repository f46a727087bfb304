//! What is inside the binary, as CycloneDX: every crate that is linked, and the libraries of the console that the server embeds.
//!
//! What only runs while the binary is built, as procedural macros and build scripts, isn't in it, and isn't listed.

use super::Parts;
use crate::failure::Failure;
use crate::workspace::{answer, parse};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The crate that is the binary.
const BINARY: &str = "tepal";
const SOURCE: &str = "cargo metadata";

pub fn write(parts: &Parts, metadata: &Value, to: &Path) -> Result<(), Failure> {
    let lock = parts.workspace.root.join("console/package-lock.json");
    let console = parse("console/package-lock.json", &fs::read_to_string(&lock).map_err(Failure::file(&lock))?)?;
    let document = document(metadata, &console, &parts.moment.iso8601)?;
    let text =
        serde_json::to_string_pretty(&document).map_err(|source| Failure::Json { what: "CycloneDX".into(), source })?;
    fs::write(to, text + "\n").map_err(Failure::file(to))
}

/// The version of one of the workspace's crates.
pub fn version_of<'a>(metadata: &'a Value, name: &str) -> Result<&'a str, Failure> {
    let package = ours(metadata, name)?;
    package["version"].as_str().ok_or(answer(SOURCE, "version"))
}

fn ours<'a>(metadata: &'a Value, name: &str) -> Result<&'a Value, Failure> {
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    packages.find(|package| package["name"] == name && package["source"].is_null()).ok_or(answer(SOURCE, "the package"))
}

fn document(metadata: &Value, console: &Value, time: &str) -> Result<Value, Failure> {
    let packages = metadata["packages"].as_array().ok_or(answer(SOURCE, "packages"))?;
    let packages: BTreeMap<&str, &Value> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package))).collect();
    let root = ours(metadata, BINARY)?["id"].as_str().ok_or(answer(SOURCE, "id"))?;
    let links = links(metadata, &packages)?;
    let linked = reached(root, &links);
    let reference = |id: &str| packages.get(id).map(|package| purl("cargo", package)).unwrap_or_default();
    let mut components: Vec<Value> = linked
        .iter()
        .filter(|id| **id != root)
        .filter_map(|id| packages.get(id))
        .map(|package| component("cargo", package))
        .collect();
    let embedded = embedded(console);
    components.extend(embedded.iter().map(|package| component("npm", package)));
    components.sort_by_key(|component| component["purl"].to_string());
    let mut dependencies: Vec<Value> = Vec::new();
    for id in &linked {
        let mut on: Vec<String> = links.get(id).into_iter().flatten().map(|id| reference(id)).collect();
        if *id == root {
            on.extend(embedded.iter().map(|package| purl("npm", package)));
        }
        on.sort();
        dependencies.push(json!({ "ref": reference(id), "dependsOn": on }));
    }
    dependencies.sort_by_key(|dependency| dependency["ref"].to_string());
    let mut binary = component("cargo", packages[root]);
    binary["type"] = json!("application");
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": time, "component": binary },
        "components": components,
        "dependencies": dependencies,
    }))
}

/// Of every package, those that it links.
fn links<'a>(
    metadata: &'a Value,
    packages: &BTreeMap<&str, &Value>,
) -> Result<BTreeMap<&'a str, Vec<&'a str>>, Failure> {
    let runs_while_building = |id: &str| {
        let targets = packages.get(id).and_then(|package| package["targets"].as_array());
        targets.is_some_and(|targets| targets.iter().any(|target| target["kind"][0] == "proc-macro"))
    };
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or(answer(SOURCE, "resolve.nodes"))?;
    let mut links = BTreeMap::new();
    for node in nodes {
        let dependencies = node["deps"].as_array().ok_or(answer(SOURCE, "deps"))?;
        // A null kind is an ordinary dependency; the others are "dev" and "build".
        let ordinary = dependencies.iter().filter(|dependency| {
            dependency["dep_kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
        });
        let linked = ordinary.filter_map(|dependency| dependency["pkg"].as_str()).filter(|id| !runs_while_building(id));
        links.insert(node["id"].as_str().ok_or(answer(SOURCE, "id"))?, linked.collect());
    }
    Ok(links)
}

fn reached<'a>(root: &'a str, links: &BTreeMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![root]);
    while let Some(id) = next.pop() {
        if reached.insert(id) {
            next.extend(links.get(id).into_iter().flatten());
        }
    }
    reached
}

/// The console's libraries, without what only builds or tests it: each with its name, as those of cargo have it.
fn embedded(console: &Value) -> Vec<Value> {
    let packages = console["packages"].as_object().into_iter().flatten();
    let libraries = packages.filter(|(_, package)| package["dev"] != true);
    let named = libraries.filter_map(|(path, package)| {
        let name = path.strip_prefix("node_modules/")?;
        Some(json!({ "name": name, "version": package["version"], "license": package["license"] }))
    });
    named.collect()
}

fn component(kind: &str, package: &Value) -> Value {
    // Crates may still write `A/B` for `A OR B`.
    let licence = package["license"].as_str().unwrap_or("NOASSERTION").replace('/', " OR ");
    json!({
        "type": "library",
        "bom-ref": purl(kind, package),
        "name": package["name"],
        "version": package["version"],
        "licenses": [{ "expression": licence }],
        "purl": purl(kind, package),
    })
}

fn purl(kind: &str, package: &Value) -> String {
    let text = |key| package[key].as_str().unwrap_or_default();
    // In versions a plus means something else.
    format!("pkg:{kind}/{}@{}", text("name").replace('@', "%40"), text("version").replace('+', "%2B"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata() -> Value {
        let package = |name: &str, source: Value, kind: &str| {
            json!({ "id": name, "name": name, "version": "1.0.0+x", "source": source, "license": "MIT/Apache-2.0",
                "targets": [{ "kind": [kind] }] })
        };
        let on = |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        json!({
            "packages": [
                package("tepal", Value::Null, "bin"), package("linked", json!("registry+x"), "lib"),
                package("deeper", json!("registry+x"), "lib"), package("macro", json!("registry+x"), "proc-macro"),
                package("parser", json!("registry+x"), "lib"), package("tested", json!("registry+x"), "lib"),
            ],
            "resolve": { "nodes": [
                { "id": "tepal", "deps": [on("macro", Value::Null), on("linked", Value::Null), on("tested", json!("dev"))] },
                { "id": "linked", "deps": [on("deeper", Value::Null)] },
                { "id": "macro", "deps": [on("parser", Value::Null)] },
                { "id": "deeper", "deps": [] }, { "id": "parser", "deps": [] }, { "id": "tested", "deps": [] },
            ] },
        })
    }

    #[test]
    fn the_list_has_what_is_linked_or_embedded_and_nothing_else() {
        let console = json!({ "packages": {
            "": { "license": "MIT" },
            "node_modules/preact": { "version": "10.0.0", "license": "MIT" },
            "node_modules/vite": { "version": "7.0.0", "license": "MIT", "dev": true },
        } });
        let document = document(&metadata(), &console, "2026-01-01T00:00:00Z").unwrap();
        let purls: Vec<&str> =
            document["components"].as_array().unwrap().iter().filter_map(|c| c["purl"].as_str()).collect();
        assert_eq!(purls, ["pkg:cargo/deeper@1.0.0%2Bx", "pkg:cargo/linked@1.0.0%2Bx", "pkg:npm/preact@10.0.0"]);
        assert_eq!(document["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(document["metadata"]["component"]["name"], "tepal");
        let of_binary =
            document["dependencies"].as_array().unwrap().iter().find(|d| d["ref"] == "pkg:cargo/tepal@1.0.0%2Bx");
        assert_eq!(of_binary.unwrap()["dependsOn"], json!(["pkg:cargo/linked@1.0.0%2Bx", "pkg:npm/preact@10.0.0"]));
    }
}
