//! Whether somebody is who he says: his certificate is of the cluster's authority, and it's a server's, or its key is that of an identity.

use super::credentials::Asks;
use super::key_of;
use std::fmt;
use std::sync::{Arc, OnceLock};
use tepal_metadata::{IdentityRecord, Metadata, Role};
use tokio_rustls::rustls::client::WebPkiServerVerifier;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use tokio_rustls::rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

/// Judges callers.
pub struct Judge {
    /// By signature, time and purpose.
    pub of_clients: Arc<dyn ClientCertVerifier>,
    /// The same of servers.
    pub by_authority: Arc<WebPkiServerVerifier>,
    /// Knows who there is, once it's there.
    pub metadata: Arc<OnceLock<Metadata>>,
    pub asks: Asks,
}

/// Whose a certificate is, of which the authority has been checked.
pub enum Standing {
    Server,
    Identity(Arc<IdentityRecord>),
}

/// A newcomer knows nobody yet, and is called by servers: they are known by what their certificates are for.
pub fn standing(
    by_authority: &WebPkiServerVerifier,
    metadata: &OnceLock<Metadata>,
    certificate: &CertificateDer<'_>,
) -> Option<Standing> {
    let known = || {
        let state = metadata.get()?.state();
        state.access.identity_of(&key_of(certificate)?).cloned()
    };
    match (known(), is_of_server(by_authority, certificate, UnixTime::now())) {
        (Some(record), _) if record.role == Role::Revoked => None,
        (_, Ok(())) => Some(Standing::Server),
        (known, Err(_)) => known.map(Standing::Identity),
    }
}

/// For a machine of whatever name: servers are known by the cluster's authority, and say their ids over the connection.
fn is_of_server(
    by_authority: &WebPkiServerVerifier,
    certificate: &CertificateDer<'_>,
    now: UnixTime,
) -> Result<(), Error> {
    let anybody = ServerName::try_from("server.invalid").expect("a name");
    match by_authority.verify_server_cert(certificate, &[], &anybody, &[], now) {
        Err(Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        )) => Ok(()),
        verified => verified.map(drop),
    }
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
        self.of_clients.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.of_clients.verify_client_cert(certificate, others, now)?;
        match (standing(&self.by_authority, &self.metadata, certificate), self.asks) {
            (Some(Standing::Identity(_)), _) | (Some(Standing::Server), Asks::Peers) => Ok(verified),
            _ => Err(Error::InvalidCertificate(CertificateError::Revoked)),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.of_clients.verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.of_clients.verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.of_clients.supported_verify_schemes()
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
