//! The document of the API, made from the types that go over HTTP, from the routes, and from a table of operations.
//!
//! It's committed as `docs/api/openapi.json`, which servers tell. After a change of the API, `TEPAL_WRITE_OPENAPI=1 cargo test --release
//! -p tepal-server openapi` writes it anew.

mod operations;

use super::conditions::{CONDITIONAL, IDEMPOTENCY_KEY, KEYED};
use super::routes;
use super::types::{PROBLEM_JSON, Problem, ProblemType};
use axum::http::Method;
use operations::{Content, Operation, TAGS};
use schemars::generate::{SchemaGenerator, SchemaSettings};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api/openapi.json");
const NAME: &str = "[A-Za-z0-9_][A-Za-z0-9._-]{0,127}";

const ABOUT: &str = "Manages a cluster of Tepal's. Any server answers for all of them. Requests bring a bearer token or a client \
    certificate. An answer that is no success is a problem as RFC 9457 has it. Keys are only added to answers: clients ignore those that \
    they don't know. A request with the header `Tepal-Read: latest` is answered by all that was agreed before it was sent, or as \
    unavailable: never by what a server knows that is cut off from the others.";

fn document() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.definitions_path = "/components/schemas".into();
    let mut generator = settings.into_generator();
    let mut paths: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for operation in operations::all() {
        let described = described(&mut generator, &operation);
        let methods = paths.entry(operation.path).or_default();
        assert!(methods.insert(operation.method.as_str().to_lowercase(), described).is_none(), "{}", operation.id);
    }
    let problem = generator.subschema_for::<Problem>();
    let responses: Map<String, Value> = ProblemType::ALL
        .iter()
        .map(|of| {
            let content = json!({ PROBLEM_JSON: { "schema": problem } });
            (of.name().to_owned(), json!({ "description": of.title(), "content": content }))
        })
        .collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tepal's management API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "/" }],
        "security": [{ "token": [] }, { "certificate": [] }],
        "tags": TAGS.map(|(name, description)| json!({ "name": name, "description": description })),
        "paths": paths,
        "components": {
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "The token of the servers' data folders." },
                "certificate": { "type": "mutualTLS", "description": "The certificate of an identity." },
            },
            "responses": responses,
            "schemas": generator.take_definitions(true),
        },
    });
    tidy(&mut document);
    document
}

fn described(generator: &mut SchemaGenerator, operation: &Operation) -> Value {
    let mut parameters: Vec<Value> = path_parameter(operation.path).into_iter().collect();
    parameters.extend(operation.query.iter().flat_map(|query| query_parameters(&query(generator).to_value())));
    if is_keyed(operation) {
        let schema = json!({ "type": "string", "pattern": "^[!-~]{1,128}$" });
        let what = "Drawn by the client for this request: if it's sent again, it's answered the same, and done once.";
        parameters.push(json!({ "name": IDEMPOTENCY_KEY, "in": "header", "schema": schema, "description": what }));
    }
    if is_conditional(operation) {
        let schema = json!({ "type": "string", "pattern": "^(\\*|\"[!#-+.-~]{1,100}\")$" });
        let what = "The ETag of an earlier answer: nothing is done if the thing was changed since.";
        parameters.push(json!({ "name": "If-Match", "in": "header", "schema": schema, "description": what }));
    }
    let mut success = json!({ "description": "Done" });
    if operation.status == 202 {
        success["description"] = json!("It goes on; Location says where to look");
    }
    if let Some(content) = content(generator, operation.answer) {
        success["content"] = content;
    }
    if let Some(header) = operation.header {
        success["headers"] = json!({ header: { "schema": { "type": "string" } } });
    }
    let mut responses = Map::from_iter([(operation.status.to_string(), success)]);
    for of in problems(operation) {
        let place = format!("#/components/responses/{}", of.name());
        responses.insert(of.http_status().to_string(), json!({ "$ref": place }));
    }
    let mut described = json!({
        "operationId": operation.id,
        "tags": [operation.tag],
        "summary": operation.summary,
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(content) = content(generator, operation.body) {
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    if operation.is_open {
        described["security"] = json!([]);
    }
    described
}

fn is_keyed(operation: &Operation) -> bool {
    operation.method == Method::POST && KEYED.contains(&operation.path)
}

fn is_conditional(operation: &Operation) -> bool {
    operation.method != Method::GET && CONDITIONAL.contains(&operation.path)
}

/// Those that may be answered.
fn problems(operation: &Operation) -> impl Iterator<Item = ProblemType> {
    use ProblemType::{
        BadRequest, Conflict, Forbidden, Internal, KeyReused, NotFound, OutOfSpace, PreconditionFailed, TooLarge,
        Unauthorized, Unavailable,
    };
    let changes = operation.method != Method::GET;
    let (has_body, has_name) = (!matches!(operation.body, Content::Nothing), operation.path.contains('{'));
    // A page or a document, which is in the binary.
    let is_file = operation.is_open && matches!(operation.answer, Content::Other(_));
    let is_shown = operation.is_open && !is_file;
    let says = has_body || has_name || operation.query.is_some();
    [
        (BadRequest, says || is_conditional(operation)),
        (Unauthorized, !operation.is_open),
        (Forbidden, !is_file),
        (NotFound, !is_file && (has_name || operation.query.is_some() || has_body)),
        (Conflict, changes || has_name || is_shown),
        (PreconditionFailed, is_conditional(operation)),
        (TooLarge, has_body),
        (KeyReused, is_keyed(operation)),
        (Internal, !is_file),
        (Unavailable, !is_file),
        (OutOfSpace, changes),
    ]
    .into_iter()
    .filter_map(|(of, may_be)| may_be.then_some(of))
}

fn content(generator: &mut SchemaGenerator, content: Content) -> Option<Value> {
    match content {
        Content::Nothing => None,
        Content::Json(describe) => Some(json!({ "application/json": { "schema": describe(generator) } })),
        Content::Other("application/octet-stream") => Some(json!({ "application/octet-stream": {} })),
        Content::Other("application/json") => Some(json!({ "application/json": { "schema": { "type": "object" } } })),
        Content::Other(kind) => Some(json!({ kind: { "schema": { "type": "string" } } })),
    }
}

/// What stands in braces. A name may be one of nothing.
fn path_parameter(path: &str) -> Option<Value> {
    let name = path.split('{').nth(1)?.split('}').next()?;
    let kind = path.split('/').nth(2)?;
    let (pattern, what) = match kind {
        "servers" => ("^s(0|[1-9][0-9]{0,8})$".to_owned(), "A server, as `s1`."),
        "drives" => ("^[0-9a-f]{16}$".to_owned(), "A drive: 16 hexadecimal digits."),
        "volumes" => (format!("^({NAME}|id:[0-9]{{1,18}})$"), "A volume's name, or `id:` and its id."),
        "snapshots" => {
            (format!("^({NAME}@{NAME}|id:[0-9]{{1,18}}@[0-9]{{1,9}})$"), "`VOLUME@SNAPSHOT`, or `id:VOLUME@EPOCH`.")
        }
        _ => (format!("^{NAME}$"), "Its name."),
    };
    let schema = json!({ "type": "string", "pattern": pattern });
    Some(json!({ "name": name, "in": "path", "required": true, "schema": schema, "description": what }))
}

/// A query has no null: what isn't said is left out.
fn query_parameters(schema: &Value) -> Vec<Value> {
    let required = schema["required"].as_array();
    let of_one = |(name, schema): (&String, &Value)| {
        let is_required = required.is_some_and(|all| all.iter().any(|one| one == name));
        let mut schema = schema.clone();
        if let Some(choices) = schema.get("anyOf").and_then(Value::as_array).cloned() {
            let one = choices.into_iter().find(|choice| choice["type"] != "null").expect("a choice");
            schema["anyOf"] = json!([one]);
        }
        if let Some(kinds) = schema["type"].as_array() {
            schema["type"] = kinds.iter().find(|kind| *kind != "null").expect("a kind").clone();
        }
        let fields = schema.as_object_mut().expect("an object");
        fields.retain(|key, value| !(key == "default" && value.is_null()));
        let what = fields.remove("description").unwrap_or_default();
        json!({ "name": name, "in": "query", "required": is_required, "schema": schema, "description": what })
    };
    schema["properties"].as_object().into_iter().flatten().map(of_one).collect()
}

/// Says how large numbers may be, and has descriptions without what only the code's own documentation can show.
fn tidy(value: &mut Value) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(tidy),
        Value::Object(fields) => {
            let most = match fields.get("format").and_then(Value::as_str) {
                Some("uint64") => Some(u64::MAX),
                Some("uint32") => Some(u32::MAX.into()),
                _ => None,
            };
            if let Some(most) = most {
                fields.entry("maximum").or_insert(json!(most));
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = without_links(text);
            }
            fields.values_mut().for_each(tidy);
        }
        _ => {}
    }
}

/// Of a link in a documentation comment, only what it shows.
fn without_links(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("[`") {
        let (name, after) = after.split_once("`]").unwrap_or((after, ""));
        let after = match after.strip_prefix('(').and_then(|after| after.split_once(')')) {
            Some((_, after)) => after,
            None => after,
        };
        plain.push_str(before);
        plain.push_str(&format!("`{}`", name.rsplit("::").next().unwrap_or(name)));
        rest = after;
    }
    plain.push_str(rest);
    plain.replace('\n', " ")
}

#[test]
fn the_committed_document_is_that_of_the_code() {
    let made = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
    if std::env::var_os("TEPAL_WRITE_OPENAPI").is_some() {
        std::fs::create_dir_all(Path::new(FILE).parent().expect("a folder")).expect("a folder");
        std::fs::write(FILE, &made).expect("it's written");
    }
    let committed = std::fs::read_to_string(FILE).expect("docs/api/openapi.json is there");
    let first = made.lines().zip(committed.lines()).find(|(made, committed)| made != committed);
    assert!(
        made == committed,
        "docs/api/openapi.json isn't what the code says ({first:?}): \
         `TEPAL_WRITE_OPENAPI=1 cargo test --release -p tepal-server openapi` writes it anew"
    );
}

#[test]
fn each_route_is_in_the_document_and_the_reverse() {
    let is_asked_with_token = |operation: &Operation| !operation.is_open;
    let documented: BTreeSet<(String, &str)> = operations::all()
        .iter()
        .filter(|operation| is_asked_with_token(operation))
        .map(|operation| (operation.method.to_string(), operation.path))
        .collect();
    let routed: BTreeSet<(String, &str)> =
        routes::listed().into_iter().map(|(method, path)| (method.to_string(), path)).collect();
    assert_eq!(documented, routed);
}

#[test]
fn operations_have_ids_of_their_own_and_known_tags() {
    let all = operations::all();
    let ids: BTreeSet<&str> = all.iter().map(|operation| operation.id).collect();
    assert_eq!(ids.len(), all.len());
    assert!(all.iter().all(|operation| TAGS.iter().any(|(tag, _)| *tag == operation.tag)));
}

#[test]
fn keys_and_conditions_are_of_operations_that_there_are() {
    let all = operations::all();
    for path in KEYED {
        assert!(all.iter().any(|operation| operation.path == path && is_keyed(operation)), "{path}");
    }
    for path in CONDITIONAL {
        assert!(all.iter().any(|operation| operation.path == path && is_conditional(operation)), "{path}");
    }
}

#[test]
fn what_is_referred_to_is_in_the_document() {
    fn check(value: &Value, document: &Value) {
        match value {
            Value::Array(all) => all.iter().for_each(|one| check(one, document)),
            Value::Object(fields) => {
                if let Some(place) = fields.get("$ref").and_then(Value::as_str) {
                    assert!(document.pointer(place.trim_start_matches('#')).is_some(), "{place}");
                }
                fields.values().for_each(|one| check(one, document));
            }
            _ => {}
        }
    }
    let document = document();
    check(&document, &document);
}

#[test]
fn links_of_comments_are_shown_as_text() {
    let text = "As [`ClusterInfo::view`](super::ClusterInfo::view), or\n[`Scrub`].";
    assert_eq!(without_links(text), "As `view`, or `Scrub`.");
}
