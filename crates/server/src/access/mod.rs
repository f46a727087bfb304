//! Who may do what, as this server sees to it.
//!
//! ```text
//! NBD client -- TLS: judge (is it somebody?) -- its rights, claim by claim -- disk
//! server, gateway -- TLS: judge -- credentials (is it a server, or whose rights does it have?) -- data, metadata
//! authority: signs certificates, on the server that has its key; own: this server's certificate
//! ```
//!
//! Who there is, and who may do what, is agreed on ([`tepal_metadata::Access`]). Whoever comes by a unix socket or by loopback without TLS
//! may do everything: the system's own rules say who can.

mod authority;
mod claims;
mod credentials;
mod judge;
pub mod own;
mod subject;

pub use authority::{Authority, AuthorityError, PublicKey, Subject, hash};
pub use claims::{Claim, Claims, Fence};
pub use credentials::{Credentials, Identified, Peer, Trust, check_authority};
pub use judge::outside_key;

use crate::drives::Parts;
use crate::relay::{Asked, Relay};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tepal_gateway::nbd::TlsSource;
use tepal_metadata::{
    AuthorityRecord, Command, IdentityRecord, KeyHash, Metadata, ProposeError, Refusal, Role, ServerRecord, ServerState,
};
use tokio_rustls::rustls;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use webpki::EndEntityCert;

/// Where the API signs certificates of servers, for servers.
pub const CERTIFICATES: &str = "/v1/certificates";
/// How long the server that has the authority's key may take.
const SIGNED_WITHIN: Duration = Duration::from_secs(10);
/// Before that server is asked again, which doesn't know the newest authority yet.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Propose(#[from] ProposeError),
    #[error("a certificate can't be used: {0}")]
    Unreadable(String),
    #[error("a certificate can't be used: {0}")]
    Tls(#[from] rustls::Error),
    #[error(
        "server {server} has the key of the cluster's certificate authority, and can't be asked: {why}. Start it; or copy the file \
         {} from its data folder into that of a server that is up",
        authority::key_file(*number)
    )]
    NoKey { server: tepal_model::ServerId, number: u32, why: String },
}

/// What a server asks to have signed.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignServer {
    /// For people.
    pub name: String,
    /// Hexadecimal digits.
    pub key: String,
    pub names: Vec<String>,
}

/// What comes back.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
pub struct Signed {
    /// As PEM.
    pub certificate: String,
    /// The certificate of the authority that has signed it, as PEM.
    pub authority: String,
}

/// Clones are the same.
#[derive(Clone)]
pub struct Access(Arc<Shared>);

struct Shared {
    folder: PathBuf,
    metadata: Metadata,
    relay: Relay,
    token: String,
    credentials: Credentials,
    claims: Claims,
    /// Held while an authority is made.
    making: tokio::sync::Mutex<()>,
}

impl Access {
    pub fn new(folder: &Path, parts: &Parts, relay: &Relay, token: &str, credentials: Credentials) -> Self {
        let (folder, metadata, relay) = (folder.to_owned(), parts.metadata.clone(), relay.clone());
        let token = token.to_owned();
        let (claims, making) = (parts.claims.clone(), tokio::sync::Mutex::default());
        Access(Arc::new(Shared { folder, metadata, relay, token, credentials, claims, making }))
    }

    pub fn metadata(&self) -> &Metadata {
        &self.0.metadata
    }

    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    pub fn claims(&self) -> &Claims {
        &self.0.claims
    }

    /// By which clients are served over TLS.
    pub fn source(&self) -> TlsSource {
        let credentials = self.0.credentials.clone();
        Arc::new(move || credentials.for_clients())
    }

    pub fn credentials(&self) -> &Credentials {
        &self.0.credentials
    }

    /// The authority that signs certificates of servers.
    pub fn authority_record(&self) -> Option<Arc<AuthorityRecord>> {
        self.0.metadata.state().access.presented().cloned()
    }

    /// The authority that signs those of everybody else. If there is none, this server makes one.
    pub async fn signing(&self) -> Result<Arc<AuthorityRecord>, AccessError> {
        let first = self.have_authority().await?;
        Ok(self.0.metadata.state().access.newest_authority().cloned().unwrap_or(first))
    }

    /// This server makes one more, which is to take the place of the one that is there.
    pub async fn rotate(&self) -> Result<(), AccessError> {
        let _making = self.0.making.lock().await;
        let state = self.0.metadata.state();
        let newest = state.access.newest_authority().ok_or(ProposeError::Refused(Refusal::NoAuthority))?;
        // If nobody can sign by the newest one, another one has to take its place.
        let maker = state.servers.get(&newest.server).filter(|maker| maker.state == ServerState::Up);
        let is_lost = match maker {
            Some(maker) if maker.id == self.0.metadata.server() => self.authority(newest)?.is_none(),
            Some(_) => false,
            None => self.authority(newest)?.is_none(),
        };
        if state.access.authorities.len() > 1 && !is_lost {
            return Err(ProposeError::Refused(Refusal::Rotating { number: newest.number }).into());
        }
        let certificate = Authority::make(&self.0.folder, state.cluster.id, newest.number.saturating_add(1))?;
        let server = self.0.metadata.server();
        self.0.metadata.propose(Command::RotateAuthority { certificate, server }).await?;
        Ok(())
    }

    /// The same; if there is none, this server makes one.
    pub async fn have_authority(&self) -> Result<Arc<AuthorityRecord>, AccessError> {
        let _making = self.0.making.lock().await;
        if self.authority_record().is_none() {
            let metadata = &self.0.metadata;
            let certificate = Authority::make(&self.0.folder, metadata.state().cluster.id, 1)?;
            let add = Command::AddAuthority { certificate, server: metadata.server() };
            match metadata.propose(add).await {
                Ok(_) | Err(ProposeError::Refused(Refusal::AuthorityExists { .. })) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut states = self.0.metadata.watch();
        let state = crate::news::in_a_moment(&mut states, |state| !state.access.authorities.is_empty()).await;
        let record = state.access.presented().cloned();
        record.ok_or_else(|| ProposeError::Refused(Refusal::NoAuthority).into())
    }

    /// What signs, if its key is here.
    pub fn authority(&self, record: &AuthorityRecord) -> Result<Option<Authority>, AccessError> {
        let certificate = CertificateDer::from_pem_slice(record.certificate.as_bytes());
        let certificate = certificate.map_err(|error| AccessError::Unreadable(format!("{error:?}")))?;
        match Authority::open(&self.0.folder, self.0.metadata.state().cluster.id, (record.number, &certificate)) {
            // One that this server made in the same moment, and that came second.
            Err(AuthorityError::OtherKey(_)) if record.server != self.0.metadata.server() => Ok(None),
            opened => Ok(opened?),
        }
    }

    /// A certificate of this server, from whoever has the key.
    async fn have_signed(&self, record: &AuthorityRecord, key: &str, names: &[String]) -> Result<Signed, AccessError> {
        let name = self.0.metadata.server().to_string();
        if let Some(authority) = self.authority(record)? {
            let asked = SignServer { name, key: key.to_owned(), names: names.to_vec() };
            return self.sign_server((&authority, record), &asked).await;
        }
        let state = self.0.metadata.state();
        let body = SignServer { name, key: key.to_owned(), names: names.to_vec() };
        let asked = Asked {
            method: "POST".to_owned(),
            path: CERTIFICATES.to_owned(),
            authorization: format!("Bearer {}", self.0.token),
            body: serde_json::to_string(&body).expect("texts"),
            once: None,
            only_if: Vec::new(),
        };
        let why = match state.servers.get(&record.server) {
            None => "it's gone".to_owned(),
            Some(server) => match self.signed_by(server, &asked, record).await {
                Ok(signed) => return Ok(signed),
                Err(why) => why,
            },
        };
        // The key's file may be on another server by now.
        let is_up = |server: &&Arc<ServerRecord>| server.state == ServerState::Up && server.id != record.server;
        for server in state.servers.values().filter(is_up) {
            if server.id != self.0.metadata.server()
                && let Ok(signed) = self.signed_by(server, &asked, record).await
            {
                return Ok(signed);
            }
        }
        Err(AccessError::NoKey { server: record.server, number: record.number, why })
    }

    /// By one server that may have the authority's key; else, why it hasn't.
    async fn signed_by(
        &self,
        server: &ServerRecord,
        asked: &Asked,
        record: &AuthorityRecord,
    ) -> Result<Signed, String> {
        let begun = Instant::now();
        loop {
            let said = self.0.relay.ask(server, asked, SIGNED_WITHIN).await.map_err(|error| error.to_string())?;
            let (is_behind, why) = match said.status {
                200 => {
                    let signed: Signed = serde_json::from_str(&said.body).map_err(|error| error.to_string())?;
                    if signed.authority == record.certificate {
                        return Ok(signed);
                    }
                    (true, "an earlier authority still signs there".to_owned())
                }
                status => (status == 409, said.body),
            };
            // That server may not know yet which authority signs.
            if !is_behind || begun.elapsed() > SIGNED_WITHIN {
                return Err(why);
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }

    /// A certificate of a server, whose key is on record from then on.
    pub async fn sign_server(
        &self,
        (authority, record): (&Authority, &AuthorityRecord),
        asked: &SignServer,
    ) -> Result<Signed, AccessError> {
        let SignServer { name, key, names } = asked;
        let public = own::public_key(key)?;
        let certificate = authority.sign(&public, &own::subject(name, names))?;
        let signed = Signed { certificate, authority: record.certificate.clone() };
        let (name, key) = (format!("server-{name}"), public.hash());
        let command = match self.0.metadata.state().access.identities.get(&name) {
            Some(known) if known.key == key => return Ok(signed),
            Some(_) => Command::RenewIdentity { name, key },
            None => Command::AddIdentity { name, role: Role::Server, groups: vec![], key },
        };
        self.0.metadata.propose(command).await?;
        Ok(signed)
    }

    /// Who has shown these certificates, and by which key.
    pub fn identity_of(&self, certificates: &[CertificateDer<'_>]) -> Option<(KeyHash, Arc<IdentityRecord>)> {
        match self.0.credentials.judge(Some(certificates))? {
            Peer::Identity(key, record) => Some((key, record)),
            Peer::Trusted | Peer::Server(_) => None,
        }
    }
}

/// Whether a certificate can be for a machine that is called so: an IP address, or a name of DNS (RFC 1123, 2.1).
pub fn is_machine_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(is_inside)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    text.parse::<IpAddr>().is_ok() || (text.len() <= 253 && text.split('.').all(is_label))
}

/// By what an authority is known, of its certificate as PEM: the SHA-256, as hexadecimal digits.
///
/// # Errors
///
/// If the text holds no certificate.
pub fn fingerprint(certificate: &str) -> Result<String, String> {
    let certificate = CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|error| format!("{error:?}"))?;
    Ok(hash(&certificate).to_string())
}

/// The hash of a certificate's public key. The certificate is DER.
pub fn key_of(certificate: &[u8]) -> Option<KeyHash> {
    let certificate = CertificateDer::from(certificate);
    let certificate = EndEntityCert::try_from(&certificate).ok()?;
    Some(authority::hash(&certificate.subject_public_key_info()))
}
