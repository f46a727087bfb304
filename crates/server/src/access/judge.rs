//! Whether somebody is who he says: his certificate is of an authority of the cluster, and it's a server's, or its key is that of an
//! identity; or it's of an authority of others, and its subject is that of an identity.

use super::authority::{hash, organization_of};
use super::credentials::Asks;
use super::{key_of, subject};
use std::fmt;
use std::sync::{Arc, OnceLock};
use tepal_metadata::{IdentityRecord, KeyHash, Role};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Who is known by a key; nobody, before this process knows anybody.
pub type Known = Arc<dyn Fn(&KeyHash) -> Option<Arc<IdentityRecord>> + Send + Sync>;

/// By whom certificates are believed.
pub struct Believed {
    /// The cluster's authorities: by signature, time and purpose.
    pub of_clients: Arc<dyn ClientCertVerifier>,
    /// The same of servers.
    pub by_authority: Arc<WebPkiServerVerifier>,
    /// Authorities of others, by name: of their people, and never of servers.
    pub outside: Vec<(String, Arc<dyn ClientCertVerifier>)>,
    /// Empty until it's there.
    pub known: Arc<OnceLock<Known>>,
}

/// Whose a certificate is.
pub enum Standing {
    Server(KeyHash),
    Identity(KeyHash, Arc<IdentityRecord>),
}

const REVOKED: Error = Error::InvalidCertificate(CertificateError::Revoked);

impl Believed {
    /// Of the first certificate; the others lead from it to an authority.
    pub fn standing(&self, certificates: &[CertificateDer<'_>], now: UnixTime) -> Result<Standing, Error> {
        let (own, others) = certificates.split_first().ok_or(Error::NoCertificatesPresented)?;
        match self.of_clients.verify_client_cert(own, others, now) {
            Ok(_) => self.in_cluster(own, now),
            Err(error) => self.elsewhere(own, others, now).unwrap_or(Err(error)),
        }
    }

    /// A newcomer knows nobody yet, and is called by servers: they are known by what their certificates are for.
    fn in_cluster(&self, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<Standing, Error> {
        let key = key_of(certificate).ok_or(REVOKED)?;
        match (self.known(&key), is_of_server(&self.by_authority, certificate, now)) {
            (Some(record), _) if record.role == Role::Revoked => Err(REVOKED),
            (_, Ok(())) => Ok(Standing::Server(key)),
            (Some(record), Err(_)) => Ok(Standing::Identity(key, record)),
            (None, Err(_)) => Err(REVOKED),
        }
    }

    /// `None` if no other authority has signed it.
    fn elsewhere(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Option<Result<Standing, Error>> {
        let mut refused = None;
        for (authority, verifier) in &self.outside {
            match verifier.verify_client_cert(certificate, others, now) {
                Ok(_) => {
                    let common = subject::names(certificate).and_then(|names| names.common);
                    let key = common.map(|common| outside_key(authority, &common));
                    let known = key.and_then(|key| Some((key, self.known(&key)?)));
                    return Some(known.map_or(Err(REVOKED), |(key, record)| Ok(Standing::Identity(key, record))));
                }
                Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {}
                Err(error) => refused = Some(Err(error)),
            }
        }
        refused
    }

    fn known(&self, key: &KeyHash) -> Option<Arc<IdentityRecord>> {
        self.known.get().and_then(|known| known(key))
    }
}

/// By what an identity is known that an authority of others says who it is.
pub fn outside_key(authority: &str, subject: &str) -> KeyHash {
    // No name of an authority has a line feed.
    hash(format!("outside authority\n{authority}\n{subject}").as_bytes())
}

/// For a machine of whatever name: servers are known by the cluster's authority, and say their ids over the connection. The certificate of
/// a host that serves clients is for the same purpose, and says that it's a host's.
fn is_of_server(
    by_authority: &WebPkiServerVerifier,
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    serves(by_authority, certificate, now)?;
    let organization = subject::names(certificate).and_then(|names| names.organization);
    if organization == Some(organization_of(Role::Server)) { Ok(()) } else { Err(REVOKED) }
}

/// Whether it's a certificate by which clients know whom they call.
pub fn is_for_serving(by_authority: &WebPkiServerVerifier, certificate: &CertificateDer<'_>) -> bool {
    serves(by_authority, certificate, UnixTime::now()).is_ok()
}

fn serves(by_authority: &WebPkiServerVerifier, certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let anybody = ServerName::try_from("server.invalid").expect("a name");
    match by_authority.verify_server_cert(certificate, &[], &anybody, &[], now) {
        Err(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => Ok(()),
        verified => verified.map(drop),
    }
}

/// Judges callers.
pub struct Judge {
    pub believed: Arc<Believed>,
    /// The authorities, as callers are told them.
    pub hints: Vec<DistinguishedName>,
    pub asks: Asks,
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judge")
    }
}

impl ClientCertVerifier for Judge {
    fn client_auth_mandatory(&self) -> bool {
        self.asks != Asks::Api
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let certificates: Vec<_> = std::iter::once(certificate).chain(others).cloned().collect();
        match (self.believed.standing(&certificates, now)?, self.asks) {
            (Standing::Identity(..), _) | (Standing::Server(_), Asks::Peers) => Ok(ClientCertVerified::assertion()),
            (Standing::Server(_), Asks::Clients | Asks::Api) => Err(REVOKED),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.believed.of_clients.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.believed.of_clients.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.believed.of_clients.supported_verify_schemes()
    }
}

/// Judges servers that are called.
#[derive(Debug)]
pub struct ServerJudge(pub Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ServerJudge {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        is_of_server(&self.0, certificate, now).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}
