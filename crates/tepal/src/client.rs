//! The admin API over HTTP, as `tepal_server::api::types` describes it. Blocking: a command asks one thing at a time.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;
use tepal_server::api::types::{ApiError, ErrorKind, MAX_DATA};
use ureq::http::Response;
use ureq::{Agent, Body};

/// Where a cluster's servers answer, and what they are shown.
pub struct Client {
    agent: Agent,
    /// HOST:PORT each; asked in this order until one can be reached.
    servers: Vec<String>,
    /// The one that was found to answer, of several.
    answering: OnceLock<usize>,
    token: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("no server answers at {address}: is it running? (tepal dev up) ({reason})")]
    NoAnswer { address: String, reason: String },
    #[error("the server at {address} went away while it was asked ({reason}): look whether it was done")]
    Lost { address: String, reason: String },
    #[error("the server at {address} took too long to answer: is it paused, or its machine overloaded?")]
    TooSlow { address: String },
    #[error(
        "the server at {address} took too long to answer: is it paused, or its machine overloaded? What it was asked to change may be done \
         yet: look when it answers again"
    )]
    Unsure { address: String },
    #[error("'{0}' is not an address of a server: write HOST:PORT")]
    Address(String),
    #[error("{message}")]
    Refused { message: String, kind: ErrorKind },
    #[error(
        "the server at {address} refuses the token: set TEPAL_TOKEN to what its data folder's file `token` says, or name the folder by --dir"
    )]
    Token { address: String },
    #[error("what answers at {address} is no Tepal server: {reason}")]
    Strange { address: String, reason: String },
}

impl ClientError {
    /// The server knows no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, ClientError::Refused { kind: ErrorKind::NotFound, .. })
    }

    /// The server has another token than was known.
    pub fn is_token(&self) -> bool {
        matches!(self, ClientError::Token { .. })
    }

    fn of_a_change(self) -> Self {
        match self {
            ClientError::TooSlow { address } => ClientError::Unsure { address },
            error => error,
        }
    }

    /// The server isn't there, or not yet.
    pub fn is_no_answer(&self) -> bool {
        use ClientError::{Lost, NoAnswer, TooSlow, Unsure};
        matches!(self, NoAnswer { .. } | Lost { .. } | TooSlow { .. } | Unsure { .. })
    }
}

const CONNECT: Duration = Duration::from_secs(5);
/// Longer than any operation should take; a paused server isn't waited for without end.
const ANSWER: Duration = Duration::from_secs(60);
/// The same for a question, which changes nothing.
const TOLD: Duration = Duration::from_secs(15);
/// How long one of several servers may take to show that it's alive, before the next is asked.
const ALIVE: Duration = Duration::from_secs(2);
/// The longest JSON that is taken from a server.
const MAX_ANSWER: u64 = 64 << 20;

impl Client {
    pub fn new(servers: Vec<String>, token: Option<String>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(ANSWER))
            // A connection kept from before a restart of the server would fail the next request.
            .max_idle_connections(0);
        Client { agent: config.build().into(), servers, answering: OnceLock::new(), token }
    }

    /// The same client, which gives up sooner: for asking whether a server is there.
    pub fn impatient(self) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .proxy(None)
            .max_redirects(0)
            .timeout_global(Some(Duration::from_secs(2)))
            .max_idle_connections(0);
        Client { agent: config.build().into(), ..self }
    }

    /// The addresses that it knows.
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// A client of that server alone, with the same token.
    pub fn of(&self, server: &str) -> Client {
        Client::new(vec![server.to_owned()], self.token.clone())
    }

    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let ask = |url: &str| {
            let timeout = self.agent.config().timeouts().global.map_or(TOLD, |most| most.min(TOLD));
            self.authorized(self.agent.get(url)).config().timeout_global(Some(timeout)).build().call()
        };
        self.json(ask, path)
    }

    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.json(|url| self.authorized(self.agent.delete(url)).call(), path).map_err(ClientError::of_a_change)
    }

    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, ClientError> {
        let text = serde_json::to_vec(body).map_err(|error| self.strange(&error))?;
        let send = |url: &str| {
            self.authorized(self.agent.post(url)).header("Content-Type", "application/json").send(&text[..])
        };
        self.json(send, path).map_err(ClientError::of_a_change)
    }

    /// Bytes of a volume.
    pub fn get_bytes(&self, path: &str) -> Result<Vec<u8>, ClientError> {
        let (_, mut response) = self.ask(|url| self.authorized(self.agent.get(url)).call(), path)?;
        response.body_mut().with_config().limit(MAX_DATA + 1).read_to_vec().map_err(|error| self.failed(&error))
    }

    pub fn put_bytes<T: DeserializeOwned>(&self, path: &str, bytes: &[u8]) -> Result<T, ClientError> {
        let send = |url: &str| {
            self.authorized(self.agent.put(url)).header("Content-Type", "application/octet-stream").send(bytes)
        };
        self.json(send, path)
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> ureq::RequestBuilder<B> {
        match &self.token {
            Some(token) => request.header("Authorization", format!("Bearer {token}")),
            None => request,
        }
    }

    fn json<T: DeserializeOwned>(
        &self,
        send: impl Fn(&str) -> Result<Response<Body>, ureq::Error>,
        path: &str,
    ) -> Result<T, ClientError> {
        let (address, mut response) = self.ask(send, path)?;
        let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
        let body = body.map_err(|error| self.failed(&error))?;
        serde_json::from_slice(&body)
            .map_err(|error| ClientError::Strange { address: address.to_owned(), reason: error.to_string() })
    }

    /// The first success of a server that can be reached, and that server.
    fn ask(
        &self,
        send: impl Fn(&str) -> Result<Response<Body>, ureq::Error>,
        path: &str,
    ) -> Result<(&str, Response<Body>), ClientError> {
        let mut unreachable = None;
        for address in self.alive_first() {
            match send(&format!("http://{address}{path}")) {
                Ok(response) => return checked(address, response).map(|response| (address.as_str(), response)),
                Err(error) => match failure(address, &error) {
                    // Nothing was sent, so another server may be asked.
                    error @ ClientError::NoAnswer { .. } => unreachable = Some(error),
                    error => return Err(error),
                },
            }
        }
        Err(unreachable.unwrap_or_else(|| ClientError::Address(String::new())))
    }

    /// The servers, without those before the first that shows that it's alive: one that is paused accepts connections, and what it
    /// was asked to do may be done when it wakes, so nobody else can be asked after that.
    fn alive_first(&self) -> &[String] {
        let is_alive = |address: &String| {
            let asked =
                self.agent.get(format!("http://{address}/")).config().timeout_global(Some(ALIVE)).build().call();
            asked.is_ok()
        };
        let found = || match self.servers.len() {
            0 | 1 => 0,
            _ => self.servers.iter().position(is_alive).unwrap_or(0),
        };
        &self.servers[*self.answering.get_or_init(found)..]
    }

    fn failed(&self, error: &ureq::Error) -> ClientError {
        failure(self.servers.first().map_or("", String::as_str), error)
    }

    fn strange(&self, error: &dyn std::error::Error) -> ClientError {
        let address = self.servers.first().cloned().unwrap_or_default();
        ClientError::Strange { address, reason: error.to_string() }
    }
}

fn checked(address: &str, mut response: Response<Body>) -> Result<Response<Body>, ClientError> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec().unwrap_or_default();
    if status.as_u16() == ErrorKind::Unauthorized.http_status() {
        return Err(ClientError::Token { address: address.to_owned() });
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
        ureq::Error::Timeout(_) => ClientError::TooSlow { address },
        ureq::Error::BadUri(_) | ureq::Error::Http(_) => ClientError::Address(address),
        ureq::Error::Io(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            ClientError::NoAnswer { address, reason: "connection refused".to_owned() }
        }
        ureq::Error::Io(error) if is_before_anything_was_sent(error) => {
            ClientError::NoAnswer { address, reason: error.to_string() }
        }
        ureq::Error::Io(error) => ClientError::Lost { address, reason: error.to_string() },
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
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use tepal_server::api::types::route;

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
        assert!(matches!(error, ClientError::Unsure { .. }), "what it was to change may be done yet: {error}");
    }

    #[test]
    fn something_else_that_answers_is_not_taken_for_a_server() {
        let (address, server) = answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello");
        let error = Client::new(vec![address], None).get::<ApiError>(route::STATUS).expect_err("no JSON");
        assert!(matches!(error, ClientError::Strange { .. }), "{error}");
        server.join().expect("no panic");
    }
}
