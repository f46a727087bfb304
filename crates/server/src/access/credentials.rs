//! By what this process shows who it is, and judges others: its certificate, and the authority's. It has them before it knows the
//! cluster's state, if it was given them.

use super::judge::{Judge, ServerJudge, Standing};
use super::{AccessError, key_of};
use crate::config::Privacy;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tepal_metadata::{IdentityRecord, KeyHash, Metadata, Role};
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The files of an identity's folder.
const FILES: [&str; 3] = ["client-cert.pem", "client-key.pem", "ca-cert.pem"];

/// A certificate with its key, and who signed it; each as PEM.
pub struct Pem<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
    pub authority: &'a str,
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub enum Peer {
    /// A server of the cluster, or whoever the system lets in without TLS.
    Trusted,
    Identity(KeyHash, Arc<IdentityRecord>),
}

impl Peer {
    /// The key by which somebody is known whose rights are those on single volumes.
    pub fn limited(&self) -> Option<KeyHash> {
        match self {
            Peer::Identity(key, record) if record.role == Role::Host => Some(*key),
            Peer::Identity(..) | Peer::Trusted => None,
        }
    }
}

struct Configs {
    clients: Arc<ServerConfig>,
    peers: Arc<ServerConfig>,
    api: Arc<ServerConfig>,
    caller: Arc<ClientConfig>,
    by_authority: Arc<WebPkiServerVerifier>,
}

struct Shared {
    privacy: Privacy,
    configs: RwLock<Option<Arc<Configs>>>,
    metadata: Arc<OnceLock<Metadata>>,
    /// Why the process's own certificate can't be had or renewed.
    trouble: Mutex<Option<String>>,
    /// When the process's own certificate ends, in seconds since 1970; none of what isn't known.
    ends: Mutex<Option<u64>>,
}

/// Clones are the same.
#[derive(Clone)]
pub struct Credentials(Arc<Shared>);

impl Default for Credentials {
    /// For where nothing is encrypted.
    fn default() -> Self {
        Credentials::new(Privacy { insecure: true, ..Privacy::default() })
    }
}

impl Credentials {
    pub fn new(privacy: Privacy) -> Self {
        let (configs, metadata) = (RwLock::default(), Arc::default());
        let (trouble, ends) = (Mutex::default(), Mutex::default());
        Credentials(Arc::new(Shared { privacy, configs, metadata, trouble, ends }))
    }

    /// From here on, who there is is known.
    pub fn introduce(&self, metadata: &Metadata) {
        let _ = self.0.metadata.set(metadata.clone()); // there is one
    }

    /// Those of an identity's folder.
    pub fn read(&self, folder: &Path) -> Result<(), AccessError> {
        let mut texts = Vec::new();
        for file in FILES {
            let path = folder.join(file);
            texts.push(std::fs::read_to_string(&path).map_err(|error| AccessError::File { path, error })?);
        }
        self.set(&Pem { certificate: &texts[0], key: &texts[1], authority: &texts[2] })
    }

    /// TLS 1.3 only. Sessions aren't resumed: each time it's judged by what is agreed then.
    pub fn set(&self, pem: &Pem<'_>) -> Result<(), AccessError> {
        let provider = Arc::new(ring::default_provider());
        let unreadable = |error| AccessError::Unreadable(format!("{error:?}"));
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(pem.authority.as_bytes()).map_err(unreadable)?)?;
        let roots = Arc::new(roots);
        let chain = vec![CertificateDer::from_pem_slice(pem.certificate.as_bytes()).map_err(unreadable)?];
        let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).map_err(unreadable)?;
        let built =
            |error: tokio_rustls::rustls::server::VerifierBuilderError| AccessError::Unreadable(error.to_string());
        let by_authority =
            WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build().map_err(built)?;
        let of_clients = WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().map_err(built)?;
        let server = |asks: Asks| {
            let (metadata, by_authority) = (self.0.metadata.clone(), by_authority.clone());
            let judge = Judge { of_clients: of_clients.clone(), by_authority, metadata, asks };
            let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
            let mut config =
                builder.with_client_cert_verifier(Arc::new(judge)).with_single_cert(chain.clone(), key.clone_key())?;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Ok::<_, AccessError>(Arc::new(config))
        };
        let (clients, peers, api) = (server(Asks::Clients)?, server(Asks::Peers)?, server(Asks::Api)?);
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
        let judge = Arc::new(ServerJudge(by_authority.clone()));
        let builder = builder.dangerous().with_custom_certificate_verifier(judge);
        let mut caller = builder.with_client_auth_cert(chain.clone(), key.clone_key())?;
        caller.resumption = Resumption::disabled();
        let configs = Configs { clients, peers, api, caller: Arc::new(caller), by_authority };
        *self.0.configs.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(configs));
        Ok(())
    }

    pub(super) fn note(&self, trouble: Option<String>) {
        *self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
    }

    pub(super) fn note_end(&self, unix_s: u64) {
        *self.0.ends.lock().unwrap_or_else(PoisonError::into_inner) = Some(unix_s);
    }

    /// When the own certificate ends, in seconds since 1970.
    pub fn ends(&self) -> Option<u64> {
        *self.0.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether other machines may come in without TLS.
    pub fn is_open(&self) -> bool {
        self.0.privacy.is_open
    }

    /// What people should know of them.
    pub fn warnings(&self) -> Vec<String> {
        let open = "other machines reach it without encryption (--insecure): any NBD client there may read and write every volume";
        let trouble = self.0.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let trouble = trouble.map(|trouble| format!("its certificate can't be made anew: {trouble}"));
        trouble.into_iter().chain(self.is_open().then(|| open.to_owned())).collect()
    }

    pub fn are_there(&self) -> bool {
        self.configs().is_some()
    }

    /// By which NBD clients are served.
    pub fn for_clients(&self) -> Option<Arc<ServerConfig>> {
        self.configs().map(|configs| configs.clients.clone())
    }

    /// By which other servers and gateways are answered.
    pub fn for_peers(&self) -> Option<Arc<ServerConfig>> {
        self.configs().map(|configs| configs.peers.clone())
    }

    /// By which callers of the API are answered, also those that show a token in place of a certificate.
    pub fn for_api(&self) -> Option<Arc<ServerConfig>> {
        self.configs().map(|configs| configs.api.clone())
    }

    /// By which servers are called.
    pub fn caller(&self) -> Option<Arc<ClientConfig>> {
        self.configs().map(|configs| configs.caller.clone())
    }

    fn configs(&self) -> Option<Arc<Configs>> {
        self.0.configs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether a server at this address, HOST:PORT, is called over TLS.
    pub fn wants_tls(&self, address: &str) -> bool {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host).trim_matches(['[', ']']);
        let is_loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        self.0.privacy.requires_tls_of(is_loopback)
    }

    /// Whether whoever calls at this own address has to begin TLS.
    pub fn is_wanted_at(&self, address: Option<SocketAddr>) -> bool {
        address.is_some_and(|address| self.0.privacy.requires_tls_of(address.ip().is_loopback()))
    }

    /// Whose certificate a connection has shown; without TLS, whoever the system has let in.
    pub fn judge(&self, certificate: Option<&[u8]>) -> Option<Peer> {
        let Some(certificate) = certificate else { return Some(Peer::Trusted) };
        let configs = self.configs()?;
        match super::judge::standing(&configs.by_authority, &self.0.metadata, &certificate.into())? {
            Standing::Server => Some(Peer::Trusted),
            Standing::Identity(record) => Some(Peer::Identity(key_of(certificate)?, record)),
        }
    }
}

/// Who is asked for a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// An identity.
    Clients,
    /// A server of the cluster, or an identity.
    Peers,
    /// An identity, or nobody.
    Api,
}
