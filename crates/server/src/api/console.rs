//! The console in the browser: files that are built from `console/` and committed, so that building the server needs no Node.
//!
//! Invariant: what is here is the same on every server of this version, and tells nothing of the cluster. The page asks for the token, and
//! takes all else from the API.

use axum::Router;
use axum::body::Bytes;
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap,
    HeaderName, IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{Extensions, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// What the files were built from: another one for each state of the sources.
const SOURCES: &str = include_str!("../../console/sources.txt");

/// Scripts and styles from here alone, nothing inline; nobody may frame the page, and it sends nothing elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; \
     form-action 'none'; frame-ancestors 'none'";

struct File {
    path: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    gzip: &'static [u8],
}

const FILES: [File; 3] = [
    File {
        path: "/",
        kind: "text/html; charset=utf-8",
        plain: include_bytes!("../../console/index.html"),
        gzip: include_bytes!("../../console/index.html.gz"),
    },
    File {
        path: "/console.js",
        kind: "text/javascript; charset=utf-8",
        plain: include_bytes!("../../console/console.js"),
        gzip: include_bytes!("../../console/console.js.gz"),
    },
    File {
        path: "/console.css",
        kind: "text/css; charset=utf-8",
        plain: include_bytes!("../../console/console.css"),
        gzip: include_bytes!("../../console/console.css.gz"),
    },
];

/// Marks an answer that was given to somebody who may not know the token.
#[derive(Clone)]
pub struct OfConsole;

/// Whether the answer that has these extensions is of the console, and shows nothing of who asked.
pub fn is_of_console(extensions: &Extensions) -> bool {
    extensions.get::<OfConsole>().is_some()
}

pub fn router() -> Router {
    let files = FILES.iter().fold(Router::new(), |router, file| {
        router.route(file.path, get(move |headers: HeaderMap| async move { answer(file, &headers) }))
    });
    files.method_not_allowed_fallback(super::routes::no_such_method)
}

fn answer(file: &File, headers: &HeaderMap) -> Response {
    let tag = format!("W/\"{}\"", SOURCES.trim());
    let same = [
        (ETAG, tag.as_str()),
        (CACHE_CONTROL, "no-cache"),
        (VARY, "accept-encoding"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    let mut response = match (names(headers, &IF_NONE_MATCH, &tag), takes_gzip(headers)) {
        (true, _) => (StatusCode::NOT_MODIFIED, same).into_response(),
        (false, true) => {
            let kind = [(CONTENT_TYPE, file.kind), (CONTENT_ENCODING, "gzip")];
            (same, kind, Bytes::from_static(file.gzip)).into_response()
        }
        (false, false) => (same, [(CONTENT_TYPE, file.kind)], Bytes::from_static(file.plain)).into_response(),
    };
    response.extensions_mut().insert(OfConsole);
    response
}

/// The parts of a header that is a list.
fn parts<'a>(headers: &'a HeaderMap, name: &'a HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(',')).map(str::trim)
}

fn names(headers: &HeaderMap, name: &HeaderName, what: &str) -> bool {
    parts(headers, name).any(|part| part == what)
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    parts(headers, &ACCEPT_ENCODING).any(|part| {
        let mut words = part.split(';').map(str::trim);
        let is_refused = |word: &str| word.strip_prefix("q=").and_then(|q| q.parse().ok()) == Some(0.0);
        words.next() == Some("gzip") && !words.any(is_refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn asked(name: HeaderName, value: &'static str) -> Response {
        answer(&FILES[1], &HeaderMap::from_iter([(name, HeaderValue::from_static(value))]))
    }

    #[test]
    fn a_browser_that_has_the_files_is_sent_none() {
        let tag: &str = &format!("W/\"{}\"", SOURCES.trim());
        let known = |value: &str| {
            let headers = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_str(value).expect("a value"))]);
            answer(&FILES[0], &headers).status()
        };
        assert_eq!(known(tag), StatusCode::NOT_MODIFIED);
        assert_eq!(known(&format!("\"x\", {tag}")), StatusCode::NOT_MODIFIED);
        assert_eq!(known("W/\"other\""), StatusCode::OK);
    }

    #[test]
    fn only_who_takes_gzip_is_sent_it() {
        for (value, zipped) in
            [("gzip, deflate, br", true), ("br;q=1.0, gzip;q=0.8", true), ("gzip;q=0", false), ("identity", false)]
        {
            let sent = asked(ACCEPT_ENCODING, value);
            assert_eq!(sent.headers().contains_key(CONTENT_ENCODING), zipped, "{value}");
            assert!(is_of_console(sent.extensions()));
        }
    }

    #[test]
    fn what_is_sent_compressed_is_at_most_300_kb() {
        assert!(FILES.iter().map(|file| file.gzip.len()).sum::<usize>() <= 300_000);
    }
}
