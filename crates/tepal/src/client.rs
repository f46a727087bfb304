//! The admin API over HTTP, as `tepal_server::api::types` describes it. Blocking: a command asks one thing at a time.

use crate::command::hold::random;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tepal_server::api::types::{ApiError, ErrorKind, LATEST, MAX_DATA, READ};
use ureq::http::Response;
use ureq::tls::TlsConfig;
use ureq::{Agent, Body};

/// Where a cluster's servers answer, and what they are shown.
pub struct Client {
    agent: Agent,
    /// With what servers are asked over TLS; none: without.
    tls: Option<TlsConfig>,
    /// HOST:PORT each; asked in this order, round and round, until one answers.
    servers: Vec<String>,
    /// The one that answered last, of several.
    answering: Mutex<Option<usize>>,
    token: Option<String>,
    /// Where the token is looked for.
    token_variable: &'static str,
    /// How long it goes on to ask when none answers.
    patience: Duration,
    /// Whether a server that is cut off from the others may say what it knows.
    wants_the_latest: bool,
}

/// Whether a request may be sent again when nobody knows whether it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// Done twice, it comes to the same.
    Freely,
    /// It's done once, as it has a key: another server may be asked.
    ByKey,
    Never,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no server answers at {address}: is it running? ({reason})")]
    NoAnswer { address: String, reason: String },
    #[error("the server at {address} went away while it was asked ({reason}){look}")]
    Lost { address: String, reason: String, look: String },
    #[error("the server at {address} took too long to answer: is it paused, or its machine overloaded?{look}")]
    TooSlow { address: String, look: String },
    #[error("'{0}' is not an address of a server: write HOST:PORT")]
    Address(String),
    #[error("{message}")]
    Refused { message: String, kind: ErrorKind },
    #[error(
        "the server at {address} refuses the token: set {variable} to what its data folder's file `token` says{}",
        if *.variable == TOKEN { ", or unset it and name the folder by --dir" } else { "" }
    )]
    Token { address: String, variable: &'static str },
    #[error("what answers at {address} is no Tepal server: {reason}")]
    Strange { address: String, reason: String },
}

impl ClientError {
    /// The server knows no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ClientError::Refused { kind: ErrorKind::NotFound, .. })
    }

    /// It can't be done now.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, ClientError::Refused { kind: ErrorKind::Unavailable, .. })
    }

    /// Something else has come in between.
    pub fn is_conflict(&self) -> bool {
        matches!(self, ClientError::Refused { kind: ErrorKind::Conflict, .. })
    }

    /// What was asked for can't be had, and no other try would change that.
    pub fn is_damage(&self) -> bool {
        matches!(self, ClientError::Refused { kind: ErrorKind::Internal | ErrorKind::Lost, .. })
    }

    /// The server has another token than was known.
    pub fn is_token(&self) -> bool {
        matches!(self, ClientError::Token { .. })
    }

    /// With the command that tells whether it was done, if nobody knows.
    fn with_a_look(self, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or_default();
        let what = path.trim_start_matches("/v1/").split('/').next().unwrap_or_default();
        let command = match (what, path.rsplit('/').next().unwrap_or_default()) {
            (_, "pause" | "resume" | "rate") => "volume migrations",
            // One that is over isn't listed any more.
            (_, "rollback" | "relayout" | "flatten" | "cancel") => {
                "sql 'select * from events order by seq desc limit 5'"
            }
            (_, "clone") => "volume ls",
            ("volumes", _) => "volume ls",
            ("snapshots", _) => "snapshot ls",
            ("drives", _) => "drive ls",
            ("servers", _) => "server ls",
            ("pools", _) => "pool ls",
            ("cluster", _) => "cluster show",
            _ => "status",
        };
        let look = format!("; `tepal {command}` tells whether it was done");
        match self {
            ClientError::Lost { address, reason, .. } => ClientError::Lost { address, reason, look },
            ClientError::TooSlow { address, .. } => ClientError::TooSlow { address, look },
            other => other,
        }
    }

    /// The server isn't there, or not yet.
    pub fn is_no_answer(&self) -> bool {
        use ClientError::{Lost, NoAnswer, TooSlow};
        matches!(self, NoAnswer { .. } | Lost { .. } | TooSlow { .. })
    }
}

/// The variable of the environment that has the token.
const TOKEN: &str = "TEPAL_TOKEN";
const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any operation should take; a paused server isn't waited for without end.
const ANSWER: Duration = Duration::from_secs(60);
/// The same for a question, which changes nothing.
const TOLD: Duration = Duration::from_secs(15);
/// For so long servers may be away while a command of many requests goes on.
const AWAY: Duration = Duration::from_secs(150);
/// How long an answer may take where it's only asked whether a server is there.
const IMPATIENT: Duration = Duration::from_secs(2);
/// Before all are asked again.
const PAUSE: Duration = Duration::from_millis(300);
/// How long one of several servers may take to show that it's alive, before the next is asked.
const ALIVE: Duration = Duration::from_secs(2);
/// How long a connection is kept that isn't used: servers close one after 30 s.
const KEPT: Duration = Duration::from_secs(10);
/// The longest JSON that is taken from a server.
const MAX_ANSWER: u64 = 64 << 20;

/// Sends requests that are answered within this time, and keeps up to so many connections from one request to the next.
fn agent(tls: Option<&TlsConfig>, answer: Duration, connections: usize) -> Agent {
    let config = Agent::config_builder()
        .tls_config(tls.cloned().unwrap_or_default())
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT.min(answer)))
        .timeout_global(Some(answer))
        .max_idle_connections(connections)
        .max_idle_connections_per_host(connections)
        .max_idle_age(KEPT);
    config.build().into()
}

impl Client {
    pub fn new(servers: Vec<String>, token: Option<String>) -> Self {
        let (answering, patience) = (Mutex::default(), Duration::ZERO);
        // A connection kept from before a restart of the server would fail the next request.
        let (agent, wants_the_latest) = (agent(None, ANSWER, 0), false);
        Client { agent, tls: None, servers, answering, token, token_variable: TOKEN, patience, wants_the_latest }
    }

    /// The same client, which is answered by all that was agreed before it asked, or not at all: for who decides by the answer.
    pub fn wanting_the_latest(self) -> Self {
        Client { wants_the_latest: true, ..self }
    }

    /// The same client, which gives up sooner: for asking whether a server is there.
    pub fn impatient(self) -> Self {
        self.answered_within(IMPATIENT)
    }

    /// The same client, with that token.
    pub fn with_token(self, token: String) -> Self {
        Client { token: Some(token), ..self }
    }

    /// The same client, which waits no longer than that for an answer.
    pub fn answered_within(self, answer: Duration) -> Self {
        Client { agent: agent(self.tls.as_ref(), answer, 0), ..self }
    }

    /// The same client, which keeps up to so many connections from one request to the next. One that the server has closed meanwhile
    /// fails a request: only for those that may be sent again.
    pub fn keeping(self, connections: usize) -> Self {
        Client { agent: agent(self.tls.as_ref(), ANSWER, connections), ..self }
    }

    /// The same client, which asks over TLS.
    pub fn with_tls(self, tls: TlsConfig) -> Self {
        Client { agent: agent(Some(&tls), ANSWER, 0), tls: Some(tls), ..self }
    }

    /// Bytes that a question with a body is answered with.
    pub fn post_for_bytes(&self, path: &str, body: &impl Serialize) -> Result<Vec<u8>, ClientError> {
        self.send(Repeat::Freely, ANSWER, path, (body, MAX_DATA + 1)).map(|(_, bytes)| bytes)
    }

    /// The same client, whose token is looked for in this variable of the environment.
    pub fn with_token_of(self, token_variable: &'static str) -> Self {
        Client { token_variable, ..self }
    }

    /// The addresses that it knows.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// A client of that server alone, with the same token.
    pub fn of(&self, server: &str) -> Client {
        let mut client = Client::new(vec![server.to_owned()], self.token.clone());
        client.wants_the_latest = self.wants_the_latest;
        match &self.tls {
            Some(tls) => client.with_tls(tls.clone()),
            None => client,
        }
    }

    /// For a command of many requests: one that may be sent again is, to one server after the other, until one answers. Who waits is told
    /// on what.
    pub fn patient(mut self) -> Self {
        self.patience = AWAY;
        self
    }

    /// For another thread, as patient as this one.
    pub fn twin(&self) -> Client {
        Client { patience: self.patience, ..self.another() }
    }

    /// For another thread.
    pub fn another(&self) -> Client {
        let answering = Mutex::new(*self.answering());
        let (agent, servers, token) = (self.agent.clone(), self.servers.clone(), self.token.clone());
        let (token_variable, patience) = (self.token_variable, Duration::ZERO);
        let (tls, wants_the_latest) = (self.tls.clone(), self.wants_the_latest);
        Client { agent, tls, servers, answering, token, token_variable, patience, wants_the_latest }
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let ask = |url: &str| self.within(TOLD, self.agent.get(url)).call();
        json(self.ask(Repeat::Freely, path, MAX_ANSWER, ask)?)
    }

    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let ask = |url: &str| self.within(ANSWER, self.agent.delete(url)).call();
        json(self.ask(Repeat::Never, path, MAX_ANSWER, ask)?)
    }

    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.send_json(Repeat::Never, path, body)
    }

    /// What comes to the same if it's done twice.
    pub fn post_repeatable<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        self.send_json(Repeat::Freely, path, body)
    }

    /// What is created under a key that is drawn for it: also if the server that is asked goes away meanwhile, another one creates it only
    /// if that hasn't been done.
    pub fn create<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let text = serde_json::to_vec(body).map_err(|error| self.strange(&error))?;
        let key = format!("{:016x}{:016x}", random(), random());
        let send = |url: &str| {
            let request = self.within(ANSWER, self.agent.post(url)).header("Idempotency-Key", &key);
            request.header("Content-Type", "application/json").send(&text[..])
        };
        json(self.ask(Repeat::ByKey, path, MAX_ANSWER, send)?)
    }

    fn send_json<T: DeserializeOwned>(
        &self,
        repeat: Repeat,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, ClientError> {
        let most = if repeat == Repeat::Freely { self.until_the_next() } else { ANSWER };
        json(self.send(repeat, most, path, (body, MAX_ANSWER))?)
    }

    /// JSON, within this time, for an answer of so many bytes at most.
    fn send(
        &self,
        repeat: Repeat,
        most: Duration,
        path: &str,
        (body, longest): (&impl Serialize, u64),
    ) -> Result<(String, Vec<u8>), ClientError> {
        let text = serde_json::to_vec(body).map_err(|error| self.strange(&error))?;
        let send = |url: &str| {
            self.within(most, self.agent.post(url)).header("Content-Type", "application/json").send(&text[..])
        };
        self.ask(repeat, path, longest, send)
    }

    /// Bytes of a volume.
    pub fn get_bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        let ask = |url: &str| self.within(self.until_the_next(), self.agent.get(url)).call();
        self.ask(Repeat::Freely, path, MAX_DATA + 1, ask).map(|(_, bytes)| bytes)
    }

    /// To be written to a volume.
    pub fn put_bytes<T: DeserializeOwned>(&self, path: &str, bytes: &[u8]) -> Result<T, ClientError> {
        let send = |url: &str| {
            self.within(self.until_the_next(), self.agent.put(url))
                .header("Content-Type", "application/octet-stream")
                .send(bytes)
        };
        json(self.ask(Repeat::Freely, path, MAX_ANSWER, send)?)
    }

    /// How long a server may take for what may be sent again: where there's another one, that is asked soon.
    fn until_the_next(&self) -> Duration {
        if self.servers.len() > 1 { TOLD } else { ANSWER }
    }

    /// With what shows that it's allowed, what kind of answer it wants, and a limit on its time.
    fn within<B>(&self, most: Duration, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        let most = self.agent.config().timeouts().global.map_or(most, |own| own.min(most));
        let request = request.config().timeout_global(Some(most)).build();
        let request = if self.wants_the_latest { request.header(READ, LATEST) } else { request };
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    /// What the first server that answers says, and its address. One that was perhaps reached is asked nothing that others may have done
    /// by then, unless that may be done twice.
    fn ask(
        &self,
        repeat: Repeat,
        path: &str,
        longest: u64,
        send: impl Fn(&str) -> Result<Response<Body>, ureq::Error>,
    ) -> Result<(String, Vec<u8>), ClientError> {
        let (began, mut told) = (Instant::now(), None);
        // Of what is done once: that it may be done yet, by one that didn't answer.
        let mut unsure = None;
        loop {
            let mut last = ClientError::Address(String::new());
            for number in self.in_turn() {
                let address = &self.servers[number];
                let said = send(&format!("{}://{address}{path}", self.scheme()));
                let error =
                    match said.map_err(|error| failure(address, &error)).and_then(|it| body(address, it, longest)) {
                        Ok(said) => {
                            *self.answering() = Some(number);
                            return Ok((address.clone(), said));
                        }
                        Err(ClientError::Token { address, .. }) => {
                            ClientError::Token { address, variable: self.token_variable }
                        }
                        Err(error) => error,
                    };
                // Where nothing was sent, another server may be asked anything.
                let asks_next = matches!(error, ClientError::NoAnswer { .. })
                    || repeat == Repeat::ByKey && error.is_no_answer()
                    || repeat == Repeat::Freely && (error.is_no_answer() || self.is_waited_for(&error));
                if !asks_next {
                    return Err(if repeat == Repeat::Never { error.with_a_look(path) } else { error });
                }
                if repeat == Repeat::ByKey && !matches!(error, ClientError::NoAnswer { .. }) {
                    unsure = Some(error);
                } else {
                    last = error;
                }
            }
            if let Some(error) = unsure {
                return Err(error.with_a_look(path));
            }
            if repeat != Repeat::Freely || began.elapsed() >= self.patience {
                return Err(last);
            }
            let on = last.to_string();
            if told.as_ref() != Some(&on) {
                let _ = writeln!(io::stderr(), "waiting: {on}");
                told = Some(on);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether the server that refuses it, as it's stopping or has only begun, or lacks what it takes for now, may do it soon.
    fn is_waited_for(&self, error: &ClientError) -> bool {
        !self.patience.is_zero() && matches!(error, ClientError::Refused { kind: ErrorKind::Unavailable, .. })
    }

    fn answering(&self) -> MutexGuard<'_, Option<usize>> {
        self.answering.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All servers, from the one on that answered last. At first, without those before the first that shows that it's alive: one that is
    /// paused accepts connections, and what it was asked to do may be done when it wakes, so nobody else can be asked after that.
    fn in_turn(&self) -> impl Iterator<Item = usize> + use<> {
        let is_alive = |address: &String| {
            let asked = self
                .agent
                .get(format!("{}://{address}/", self.scheme()))
                .config()
                .timeout_global(Some(ALIVE))
                .build()
                .call();
            asked.is_ok()
        };
        let known = *self.answering();
        let first = known.unwrap_or_else(|| match self.servers.len() {
            0 | 1 => 0,
            _ => self.servers.iter().position(is_alive).unwrap_or(0),
        });
        let all = self.servers.len();
        (first..all).chain(if known.is_some() { 0..first } else { 0..0 })
    }

    fn strange(&self, error: &dyn std::error::Error) -> ClientError {
        let address = self.servers.first().cloned().unwrap_or_default();
        ClientError::Strange { address, reason: error.to_string() }
    }
}

fn json<T: DeserializeOwned>((address, body): (String, Vec<u8>)) -> Result<T, ClientError> {
    serde_json::from_slice(&body).map_err(|error| ClientError::Strange { address, reason: error.to_string() })
}

/// All of an answer that is none of an error.
fn body(address: &str, response: Response<Body>, longest: u64) -> Result<Vec<u8>, ClientError> {
    let mut response = checked(address, response)?;
    response.body_mut().with_config().limit(longest).read_to_vec().map_err(|error| failure(address, &error))
}

fn checked(address: &str, mut response: Response<Body>) -> Result<Response<Body>, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec().unwrap_or_default();
    if status.as_u16() == ErrorKind::Unauthorized.http_status() {
        return Err(ClientError::Token { address: address.to_owned(), variable: TOKEN });
    }
    match serde_json::from_slice::<ApiError>(&body) {
        Ok(ApiError { error, kind }) => Err(ClientError::Refused { message: error, kind }),
        Err(_) => Err(ClientError::Strange { address: address.to_owned(), reason: format!("it answers {status}") }),
    }
}

fn failure(address: &str, error: &ureq::Error) -> ClientError {
    let address = address.to_owned();
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect) => {
            ClientError::NoAnswer { address, reason: "the connection was not accepted in time".to_owned() }
        }
        ureq::Error::Timeout(_) => ClientError::TooSlow { address, look: String::new() },
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => ClientError::Address(address),
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            ClientError::NoAnswer { address, reason: "connection refused".to_owned() }
        }
        ureq::Error::Io(error) if is_before_anything_was_sent(error) => {
            ClientError::NoAnswer { address, reason: error.to_string() }
        }
        ureq::Error::Io(error) => ClientError::Lost { address, reason: error.to_string(), look: String::new() },
        ureq::Error::HostNotFound => ClientError::NoAnswer { address, reason: "there is no such host".to_owned() },
        ureq::Error::ConnectionFailed => ClientError::NoAnswer { address, reason: "no connection".to_owned() },
        other => ClientError::Strange { address, reason: other.to_string() },
    }
}

fn is_before_anything_was_sent(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable};
    // A name that isn't known has no kind of its own.
    matches!(error.kind(), AddrNotAvailable | HostUnreachable | NetworkUnreachable)
        || error.to_string().starts_with("failed to lookup address information")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use tepal_server::api::types::{Done, route};

    /// Answers one request with these bytes, and gives back what it was asked.
    fn answering(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound").to_string();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = vec![0; 4096];
            let length = stream.read(&mut request).expect("a request");
            stream.write_all(answer.as_bytes()).expect("a reader");
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        (address, thread)
    }

    #[test]
    fn a_server_that_is_not_there_is_named() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound").to_string();
        drop(listener);
        let error = Client::new(vec![address.clone()], None).get::<ApiError>(route::STATUS).expect_err("nobody");
        assert!(error.is_no_answer());
        assert!(error.to_string().starts_with(&format!("no server answers at {address}: is it running?")), "{error}");
    }

    /// Story: a mistyped name was "went away while it was asked: look whether it was done".
    #[test]
    fn a_host_that_is_not_known_was_asked_nothing() {
        let unknown = io::Error::other("failed to lookup address information: Name or service not known");
        let broken = io::ErrorKind::ConnectionReset.into();
        let kinds = [io::ErrorKind::NetworkUnreachable, io::ErrorKind::HostUnreachable].map(io::Error::from);
        for (error, nothing_sent) in
            kinds.into_iter().chain([unknown]).map(|error| (error, true)).chain([(broken, false)])
        {
            let failure = failure("h:1", &ureq::Error::Io(error));
            assert_eq!(matches!(failure, ClientError::NoAnswer { .. }), nothing_sent, "{failure}");
        }
    }

    #[test]
    fn the_token_goes_along_and_a_refusal_is_said_in_the_servers_words() {
        let body = r#"{"error":"there is no volume 'x'","kind":"not_found"}"#;
        let answer =
            format!("HTTP/1.1 404 Not Found\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        let (address, server) = answering(answer.leak());
        let error = Client::new(vec![address], Some("abc".into())).get::<ApiError>("/v1/volumes/x").expect_err("404");
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), "there is no volume 'x'");
        let request = server.join().expect("no panic").to_lowercase();
        assert!(request.starts_with("get /v1/volumes/x http/1.1") && request.contains("authorization: bearer abc"));
    }

    #[test]
    fn only_who_wants_the_latest_says_so() {
        for wants in [false, true] {
            let (address, server) = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}");
            let client = Client::new(vec![address], None);
            let client = if wants { client.wanting_the_latest().another() } else { client };
            client.get::<Done>("/v1/volumes/v").expect("answered");
            let request = server.join().expect("no panic").to_lowercase();
            assert_eq!(request.contains("\r\ntepal-read: latest\r\n"), wants, "{request}");
        }
    }

    #[test]
    fn of_several_servers_one_that_says_nothing_is_passed_over_and_one_that_is_alone_is_waited_for() {
        let paused = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let paused = paused.local_addr().map(|address| (address.to_string(), paused)).expect("bound");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let alive = listener.local_addr().expect("bound").to_string();
        let server = std::thread::spawn(move || {
            let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            for body in ["", r#"{"error":"x","kind":"conflict"}"#] {
                let (mut stream, _) = listener.accept().expect("a client");
                let _ = stream.read(&mut [0; 4096]).expect("a request");
                stream.write_all(answer(body).as_bytes()).expect("a reader");
            }
        });
        let client = Client::new(vec![paused.0.clone(), alive], None);
        assert_eq!(client.delete::<ApiError>("/v1/pools/x").expect("answered").error, "x");
        server.join().expect("no panic");
        let client = Client::new(vec![paused.0], None).impatient();
        let error = client.get::<ApiError>("/").expect_err("it says nothing");
        assert!(matches!(error, ClientError::TooSlow { .. }), "{error}");
        let error = client.delete::<ApiError>("/").expect_err("it says nothing");
        assert!(
            error.to_string().contains("tells whether it was done"),
            "what it was to change may be done yet: {error}"
        );
    }

    #[test]
    fn each_request_without_an_answer_names_the_command_that_tells() {
        for (path, tells) in [
            ("/v1/volumes", "volume ls"),
            ("/v1/volumes/id:7/relayout", "sql 'select * from events order by seq desc limit 5'"),
            ("/v1/volumes/v/rate?x=1", "volume migrations"),
            ("/v1/snapshots/v@a/clone", "volume ls"),
            ("/v1/snapshots/v@a/rollback?force=true", "sql 'select * from events order by seq desc limit 5'"),
            ("/v1/snapshots", "snapshot ls"),
            ("/v1/drives/7/use", "drive ls"),
        ] {
            let error = ClientError::TooSlow { address: "h:1".to_owned(), look: String::new() }.with_a_look(path);
            assert!(error.to_string().ends_with(&format!("; `tepal {tells}` tells whether it was done")), "{error}");
        }
    }

    /// Story: a server died with a piece of an import in it, and the import ended, though two others were named to it.
    #[test]
    fn what_may_be_sent_again_goes_to_the_next_server_and_nothing_else_does() {
        let [dying, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback"));
        let addresses = [&dying, &other].map(|it| it.local_addr().expect("bound").to_string());
        let answer = |listener: &TcpListener, answer: &str| {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 4096]).expect("a request");
            stream.write_all(answer.as_bytes()).expect("a reader");
        };
        let done = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                answer(&dying, done); // that it's alive
                answer(&dying, "");
            }
            answer(&other, done);
        });
        let client = Client::new(addresses.to_vec(), None);
        let error = client.post::<Done>("/v1/volumes/v/rename", &Done {}).expect_err("nobody knows");
        assert!(error.to_string().ends_with("`tepal volume ls` tells whether it was done"), "{error}");
        client.put_bytes::<Done>("/v1/volumes/v/data?offset=0", &[1; 512]).expect("done by the other");
        server.join().expect("no panic");
    }

    #[test]
    fn what_is_created_goes_to_the_next_server_under_the_same_key() {
        let [dying, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").expect("loopback"));
        let addresses = [&dying, &other].map(|it| it.local_addr().expect("bound").to_string());
        let key_asked = |listener: &TcpListener, answer: &str| {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut request = [0; 4096];
            let length = stream.read(&mut request).expect("a request");
            stream.write_all(answer.as_bytes()).expect("a reader");
            let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
            request.lines().find_map(|line| line.strip_prefix("idempotency-key: ").map(str::to_owned))
        };
        let done = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
        let server = std::thread::spawn(move || {
            key_asked(&dying, done); // that it's alive
            [key_asked(&dying, ""), key_asked(&other, done)]
        });
        Client::new(addresses.to_vec(), None).create::<Done>(route::VOLUMES, &Done {}).expect("done by the other");
        let [first, second] = server.join().expect("no panic");
        assert!(first.as_ref().is_some_and(|key| key.len() == 32) && first == second, "{first:?} {second:?}");
    }

    #[test]
    fn something_else_that_answers_is_not_taken_for_a_server() {
        let (address, server) = answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        let error = Client::new(vec![address], None).get::<ApiError>(route::STATUS).expect_err("no JSON");
        assert!(matches!(error, ClientError::Strange { .. }), "{error}");
        server.join().expect("no panic");
    }
}
