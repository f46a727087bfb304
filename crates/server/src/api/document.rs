//! The document of the API, as OpenAPI has it, and a page for those who read it. Both are the same on every server of this version, tell
//! nothing of the cluster, and need no token.
//!
//! The document is made from the code by a test (`openapi`) and committed; the page is made from the document, and needs no script.

use super::console::OfConsole;
use super::routes::no_such_method;
use super::types::ProblemType;
use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::OnceLock;

/// As it's committed.
pub const DOCUMENT: &str = include_str!("../../../../docs/api/openapi.json");
/// The document's place.
pub const OPENAPI: &str = "/v1/openapi.json";
/// The page's.
pub const DOCS: &str = "/v1/docs";

/// The page's own style, and nothing else.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}\
    summary{cursor:pointer}code{font-size:.9em}b{display:inline-block;min-width:4.5em}dd{margin:0 0 .3em 2em}details{margin:.2em 0}";

pub fn router() -> Router {
    let document = || async { answer("application/json", DOCUMENT) };
    let page = || async { answer("text/html; charset=utf-8", page()) };
    Router::new().route(OPENAPI, get(document)).route(DOCS, get(page)).method_not_allowed_fallback(no_such_method)
}

fn answer(kind: &'static str, text: &'static str) -> Response {
    let head = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    let mut response = (head, text).into_response();
    response.extensions_mut().insert(OfConsole);
    response
}

fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| written(&serde_json::from_str(DOCUMENT).unwrap_or_default()))
}

/// The page of a document.
fn written(document: &Value) -> String {
    let (title, version) = (text(&document["info"]["title"]), text(&document["info"]["version"]));
    let mut page = format!(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>{title}</title>\
         <style>{STYLE}</style><h1>{title} {version}</h1><p>{}<p><a href=\"{OPENAPI}\">OpenAPI document</a>, with all fields.",
        text(&document["info"]["description"])
    );
    for tag in document["tags"].as_array().into_iter().flatten() {
        let _ = write!(page, "<h2>{}</h2><p>{}", text(&tag["name"]), text(&tag["description"]));
        for (path, operations) in document["paths"].as_object().into_iter().flatten() {
            for (method, operation) in operations.as_object().into_iter().flatten() {
                if operation["tags"][0] == tag["name"] {
                    put_operation(&mut page, path, method, operation);
                }
            }
        }
    }
    page.push_str("<h2 id=problems>Problems</h2><p>The <code>type</code> of an answer that is no success, as RFC 9457 has it.<dl>");
    for of in ProblemType::ALL {
        let (name, title, status, meaning) = (of.name(), of.title(), of.http_status(), of.meaning());
        let _ = write!(page, "<dt id={name}><code>{name}</code>, {status}: {title}<dd>{}", escaped(meaning));
    }
    page.push_str("</dl><h2>Bodies and answers</h2><p>What has a ? may be left out.");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        put_schema(&mut page, name, schema);
    }
    page
}

fn put_operation(page: &mut String, path: &str, method: &str, operation: &Value) {
    let _ = write!(
        page,
        "<details><summary><b>{}</b><code>{}</code> {}</summary><dl>",
        method.to_uppercase(),
        escaped(path),
        text(&operation["summary"])
    );
    for parameter in operation["parameters"].as_array().into_iter().flatten().filter(|one| one["in"] != "path") {
        let (name, place) = (text(&parameter["name"]), text(&parameter["in"]));
        let _ = write!(page, "<dt>{place} <code>{name}</code>: {}", kind(&parameter["schema"]));
    }
    if let Some(content) = operation["requestBody"]["content"].as_object() {
        let _ = write!(page, "<dt>body {}", contents(content));
    }
    for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
        if let Some(content) = answer["content"].as_object() {
            let _ = write!(page, "<dt>{status} {}", contents(content));
        }
    }
    page.push_str("</dl></details>");
}

fn contents(content: &serde_json::Map<String, Value>) -> String {
    let each = content.iter().map(|(of, what)| match of.as_str() {
        "application/json" => kind(&what["schema"]),
        other => escaped(other),
    });
    each.collect::<Vec<_>>().join(", ")
}

fn put_schema(page: &mut String, name: &str, schema: &Value) {
    let _ = write!(page, "<details id=s-{name}><summary><code>{name}</code></summary><dl>");
    let required = schema["required"].as_array();
    for (field, of) in schema["properties"].as_object().into_iter().flatten() {
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == field));
        let mark = if is_required { "" } else { "?" };
        let _ = write!(page, "<dt>{}{mark}: {}", escaped(field), kind(of));
    }
    if !schema["properties"].is_object() {
        page.push_str(&words(schema));
    }
    page.push_str("</dl></details>");
}

/// The words that something may be, or what kind of thing it is.
fn words(schema: &Value) -> String {
    let of_enum = schema["enum"].as_array().into_iter().flatten();
    let of_choices = schema["oneOf"].as_array().into_iter().flatten().map(|one| &one["const"]);
    let all: Vec<String> = of_enum.chain(of_choices).filter(|word| word.is_string()).map(text).collect();
    if all.is_empty() { kind(schema) } else { all.join(" | ") }
}

/// A schema in a few words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return format!("<a href=#s-{name}>{name}</a>");
    }
    if let Some(choices) = schema["anyOf"].as_array() {
        return choices.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let of_list = || format!("list of {}", kind(&schema["items"]));
    match &schema["type"] {
        Value::String(one) if one == "array" => of_list(),
        Value::String(one) => escaped(one),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => "any".to_owned(),
    }
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_all_operations_and_problems_in_70_kb() {
        let document: Value = serde_json::from_str(DOCUMENT).expect("JSON");
        let (page, paths) = (page(), document["paths"].as_object().expect("paths"));
        for path in paths.keys() {
            assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
        }
        for of in ProblemType::ALL {
            assert!(page.contains(&format!("id={}>", of.name())), "{of:?}");
        }
        let operations: usize = paths.values().map(|path| path.as_object().expect("operations").len()).sum();
        assert_eq!(page.matches("<summary><b>").count(), operations);
        assert!(page.len() <= 70_000, "{} bytes", page.len());
        assert!(!page.contains("<script"));
    }

    #[test]
    fn what_documents_say_is_shown_as_text() {
        let document = serde_json::json!({ "info": { "title": "<b>&\"" } });
        assert!(written(&document).contains("<h1>&lt;b&gt;&amp;&quot; </h1>"));
    }
}
