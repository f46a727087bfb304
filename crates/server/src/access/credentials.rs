//! By what this process shows who it is, and judges others: its certificate, and the authority's. It has them before it knows the
//! cluster's state, if it was given them.

use super::AccessError;
use super::judge::{Believed, Judge, Known, ServerJudge, Standing, is_for_serving};
use crate::config::Privacy;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use tepal_metadata::{Access, IdentityRecord, KeyHash, Metadata, Role};
use tokio_rustls::rustls::client::{Resumption, WebPkiServerVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, DistinguishedName, RootCertStore, ServerConfig};

/// The files of an identity's folder.
const FILES: [&str; 3] = ["client-cert.pem", "client-key.pem", "ca-cert.pem"];

/// A certificate with its key, each as PEM.
pub struct Pem<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
}

/// Who may say who others are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    /// The cluster's authorities, as PEM, one after the other.
    pub roots: String,
    /// Authorities of others, by name, each as PEM.
    #[serde(default)]
    pub outside: BTreeMap<String, String>,
}

impl Trust {
    /// As it's agreed.
    pub fn of(access: &Access) -> Trust {
        let outside = access.outside.values().map(|record| (record.name.clone(), record.certificate.clone()));
        Trust { roots: access.roots(), outside: outside.collect() }
    }
}

/// Who is at the other end.
#[derive(Clone, Debug)]
pub enum Peer {
    /// Whoever the system lets in without TLS.
    Trusted,
    /// A server of the cluster, or one that is to join it.
    Server(KeyHash),
    Identity(KeyHash, Arc<IdentityRecord>),
}

impl Peer {
    /// What his requests are judged by; none without TLS.
    pub fn caller(&self) -> Option<Identified> {
        match self {
            Peer::Trusted => None,
            Peer::Server(key) => Some(Identified { key: *key, role: Role::Server }),
            Peer::Identity(key, record) => Some(Identified { key: *key, role: record.role }),
        }
    }
}

/// Somebody who has shown a certificate, as what he was known when he came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identified {
    pub key: KeyHash,
    pub role: Role,
}

impl Identified {
    /// The key by which somebody is known whose rights are those on single volumes.
    pub fn limited(&self) -> Option<KeyHash> {
        (self.role == Role::Host).then_some(self.key)
    }

    /// Whether that isn't agreed any more. A server is known by its certificate before it's an identity.
    pub fn is_revoked(&self, access: &Access) -> bool {
        match access.identity_of(&self.key) {
            Some(record) => record.role == Role::Revoked,
            None => self.role != Role::Server,
        }
    }
}

struct Configs {
    clients: Arc<ServerConfig>,
    peers: Arc<ServerConfig>,
    api: Arc<ServerConfig>,
    caller: Arc<ClientConfig>,
    believed: Arc<Believed>,
    can_serve: bool,
}

struct Shared {
    privacy: Privacy,
    configs: RwLock<Option<Arc<Configs>>>,
    known: Arc<OnceLock<Known>>,
    /// Whom the configurations believe.
    trust: Mutex<Trust>,
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
        let (configs, known, trust) = (RwLock::default(), Arc::default(), Mutex::default());
        let (trouble, ends) = (Mutex::default(), Mutex::default());
        Credentials(Arc::new(Shared { privacy, configs, known, trust, trouble, ends }))
    }

    /// From here on, who there is is known.
    pub fn introduce(&self, metadata: &Metadata) {
        let metadata = metadata.clone();
        self.know_by(Arc::new(move |key| metadata.state().access.identity_of(key).cloned()));
    }

    pub fn know_by(&self, known: Known) {
        let _ = self.0.known.set(known); // there is one
    }

    /// Those of an identity's folder.
    pub fn read(&self, folder: &Path) -> Result<(), AccessError> {
        let mut texts = Vec::new();
        for file in FILES {
            let path = folder.join(file);
            texts.push(std::fs::read_to_string(&path).map_err(|error| AccessError::File { path, error })?);
        }
        let trust = Trust { roots: texts[2].clone(), ..Trust::default() };
        self.set(&Pem { certificate: &texts[0], key: &texts[1] }, &trust)
    }

    /// The same, as new files may be there, believing others.
    pub fn read_with(&self, folder: &Path, trust: &Trust) -> Result<(), AccessError> {
        let read = |file: &str| {
            let path = folder.join(file);
            std::fs::read_to_string(&path).map_err(|error| AccessError::File { path, error })
        };
        self.set(&Pem { certificate: &read(FILES[0])?, key: &read(FILES[1])? }, trust)
    }

    /// Whether the own certificate is one by which clients know whom they call.
    pub fn can_serve(&self) -> bool {
        self.configs().is_some_and(|configs| configs.can_serve)
    }

    /// TLS 1.3 only. Sessions aren't resumed: each time it's judged by what is agreed then.
    pub fn set(&self, pem: &Pem<'_>, trust: &Trust) -> Result<(), AccessError> {
        let provider = Arc::new(ring::default_provider());
        let unreadable = |error| AccessError::Unreadable(format!("{error:?}"));
        let chain = vec![CertificateDer::from_pem_slice(pem.certificate.as_bytes()).map_err(unreadable)?];
        let key = PrivateKeyDer::from_pem_slice(pem.key.as_bytes()).map_err(unreadable)?;
        let (believed, hints) = believed(trust, &provider, self.0.known.clone())?;
        let server = |asks: Asks| {
            let judge = Judge { believed: believed.clone(), hints: hints.clone(), asks };
            let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
            let mut config =
                builder.with_client_cert_verifier(Arc::new(judge)).with_single_cert(chain.clone(), key.clone_key())?;
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
            Ok::<_, AccessError>(Arc::new(config))
        };
        let (clients, peers, api) = (server(Asks::Clients)?, server(Asks::Peers)?, server(Asks::Api)?);
        let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[&TLS13])?;
        let judge = Arc::new(ServerJudge(believed.by_authority.clone()));
        let builder = builder.dangerous().with_custom_certificate_verifier(judge);
        let mut caller = builder.with_client_auth_cert(chain.clone(), key.clone_key())?;
        caller.resumption = Resumption::disabled();
        let can_serve = is_for_serving(&believed.by_authority, &chain[0]);
        let configs = Configs { can_serve, clients, peers, api, caller: Arc::new(caller), believed };
        *self.0.configs.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(configs));
        *self.0.trust.lock().unwrap_or_else(PoisonError::into_inner) = trust.clone();
        Ok(())
    }

    /// Whom this process believes now; nobody, if it has no certificate.
    pub fn trust(&self) -> Trust {
        self.0.trust.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    /// Whose certificates a connection has shown; without TLS, whoever the system has let in.
    pub fn judge(&self, certificates: Option<&[CertificateDer<'_>]>) -> Option<Peer> {
        let Some(certificates) = certificates else { return Some(Peer::Trusted) };
        match self.configs()?.believed.standing(certificates, UnixTime::now()).ok()? {
            Standing::Server(key) => Some(Peer::Server(key)),
            Standing::Identity(key, record) => Some(Peer::Identity(key, record)),
        }
    }
}

/// Whom to believe, and the names of authorities as callers are told them: most show no certificate of another one.
fn believed(
    trust: &Trust,
    provider: &Arc<CryptoProvider>,
    known: Arc<OnceLock<Known>>,
) -> Result<(Arc<Believed>, Vec<DistinguishedName>), AccessError> {
    let built = |error: VerifierBuilderError| AccessError::Unreadable(error.to_string());
    let roots_of = |pem: &str| {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
            roots.add(certificate.map_err(|error| AccessError::Unreadable(format!("{error:?}")))?)?;
        }
        Ok::<_, AccessError>(Arc::new(roots))
    };
    let of_clients = |roots: Arc<RootCertStore>| -> Result<Arc<dyn ClientCertVerifier>, AccessError> {
        WebPkiClientVerifier::builder_with_provider(roots, provider.clone()).build().map_err(built)
    };
    let roots = roots_of(&trust.roots)?;
    let by_authority =
        WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build().map_err(built)?;
    let (mut hints, of_clients_here) = (roots.subjects(), of_clients(roots)?);
    let mut outside = Vec::new();
    for (name, pem) in &trust.outside {
        let roots = roots_of(pem)?;
        hints.extend(roots.subjects());
        outside.push((name.clone(), of_clients(roots)?));
    }
    Ok((Arc::new(Believed { of_clients: of_clients_here, by_authority, outside, known }), hints))
}

/// Whether a text is the certificate of an authority that others may use to say who their people are.
pub fn check_authority(pem: &str) -> Result<(), AccessError> {
    let trust = Trust { roots: pem.to_owned(), outside: BTreeMap::new() };
    believed(&trust, &Arc::new(ring::default_provider()), Arc::default()).map(drop)
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
