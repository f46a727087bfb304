//! How a new server joins by a token: it gets an identity, and what else the servers of a cluster share, into its data folder.
//!
//! The token is shown to none but the cluster that made it: its authority's certificate has the fingerprint that the token names.

use super::identity::public_digits;
use crate::client::{Client, ClientError};
use crate::credentials::{self, CredentialsError};
use rcgen::KeyPair;
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tepal_model::text::shown;
use tepal_server::api::types::{AuthorityCertificate, Join, Joined, route};
use tepal_server::config::Settings;
use tepal_server::private_file;

/// In the data folder, until the server has a certificate of its own.
const FOLDER: &str = "joining";
/// What begins a token.
const BEGIN: &str = "tepal-join:";
/// Far longer than any token.
const LONGEST: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum JoiningError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("'{0}' is no token to join by: `tepal server token create` prints one")]
    Malformed(String),
    #[error("name the folder for this server's data by --data")]
    NoData,
    #[error(
        "what answers at {address} isn't of the cluster that made the token: its certificate authority is another one"
    )]
    OtherCluster { address: String },
    #[error("a key can't be made: {0}")]
    Key(#[from] rcgen::Error),
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    #[error("this server can't join by the token: {0}")]
    Client(#[from] ClientError),
}

/// What `tepal server token create` prints, in one word.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Of the API, each HOST:PORT.
    pub servers: Vec<String>,
    /// The fingerprint of the cluster's certificate authority.
    pub authority: String,
    pub secret: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{BEGIN}{}/{}/{}", self.servers.join(","), self.authority, self.secret)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.servers.join(","))
    }
}

impl FromStr for Token {
    type Err = JoiningError;

    fn from_str(text: &str) -> Result<Self, JoiningError> {
        let text = text.trim();
        // Whatever was given may be somebody's secret: only how it begins is told.
        let malformed = || JoiningError::Malformed(shown(&text.chars().take(BEGIN.len()).collect::<String>()));
        let parts = text.strip_prefix(BEGIN).map(|rest| rest.split('/').collect::<Vec<_>>()).ok_or_else(malformed)?;
        let is_digits = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        match parts[..] {
            [servers, authority, secret]
                if !servers.is_empty() && is_digits(authority, 64) && is_digits(secret, 32) =>
            {
                let servers = servers.split(',').map(str::to_owned).collect();
                Ok(Token { servers, authority: authority.to_owned(), secret: secret.to_owned() })
            }
            _ => Err(malformed()),
        }
    }
}

/// Has the server join by the token in the file (`-`: standard input), unless it has joined already.
pub fn prepare(settings: &mut Settings, file: &Path) -> Result<(), JoiningError> {
    let data = settings.data.clone().ok_or(JoiningError::NoData)?;
    let folder = data.join(FOLDER);
    if data.join("certificate.json").exists() {
        // By then nobody needs it.
        return match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(JoiningError::File { path: folder, error }),
            _ => Ok(()),
        };
    }
    let token: Token = read(file)?.parse()?;
    let at = |path: &Path| {
        let path = path.to_owned();
        move |error| JoiningError::File { path, error }
    };
    DirBuilder::new().mode(0o700).recursive(true).create(&folder).map_err(at(&folder))?;
    let key = folder.join("client-key.pem");
    // The same one as before, if the answer was lost then: another one would be another server.
    let pair = match fs::read_to_string(&key) {
        Ok(text) => KeyPair::from_pem(&text)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let pair = KeyPair::generate()?;
            private_file::replace(&key, pair.serialize_pem().as_bytes()).map_err(at(&key))?;
            pair
        }
        Err(error) => return Err(at(&key)(error)),
    };
    let key = public_digits(&pair);
    let authority = authority_of(&token)?;
    let client = Client::new(token.servers.clone(), None).with_tls(credentials::by_authority(authority.as_bytes())?);
    let joined: Joined = client.post(route::JOIN, &Join { secret: token.secret, key })?;
    let files = [
        (folder.join("ca-cert.pem"), &joined.authority),
        (folder.join("client-cert.pem"), &joined.certificate),
        (data.join("token"), &joined.token),
    ];
    for (path, text) in files {
        private_file::replace(&path, text.as_bytes()).map_err(at(&path))?;
    }
    settings.identity = Some(folder);
    settings.join = settings.join.take().or(Some(joined.peers));
    Ok(())
}

fn read(file: &Path) -> Result<String, JoiningError> {
    let mut text = String::new();
    let read = match file == Path::new("-") {
        true => io::stdin().take(LONGEST).read_to_string(&mut text),
        false => fs::File::open(file).and_then(|opened| opened.take(LONGEST).read_to_string(&mut text)),
    };
    read.map(|_| text).map_err(|error| JoiningError::File { path: file.to_owned(), error })
}

/// The certificate of the cluster's authority, from the first server that answers. Nothing is told that others mustn't know.
fn authority_of(token: &Token) -> Result<String, JoiningError> {
    let client = Client::new(token.servers.clone(), None).with_tls(credentials::of_anybody());
    let told: AuthorityCertificate = client.get(route::AUTHORITY)?;
    match tepal_server::fingerprint(&told.authority) {
        Ok(fingerprint) if fingerprint == token.authority => Ok(told.authority),
        _ => Err(JoiningError::OtherCluster { address: token.servers.join(", ") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_is_printed_and_others_are_refused() {
        let (authority, secret) = ("ab".repeat(32), "0f".repeat(16));
        let token = Token { servers: vec!["10.0.0.1:7117".into(), "[::1]:7117".into()], authority, secret };
        assert_eq!(token.to_string().parse::<Token>().ok(), Some(token.clone()));
        assert!(!format!("{token:?}").contains(&token.secret));
        let text = token.to_string();
        for wrong in [
            "",
            "tepal-join:",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}/"),
            &text.replace("10.0.0.1:7117,[::1]:7117", ""),
        ] {
            let error = wrong.parse::<Token>().expect_err("refused").to_string();
            assert!(!error.contains(&token.secret), "{error}");
        }
    }
}
