//! With what servers are asked over TLS: the files of an identity, or what a server has in its data folder.

use serde::Deserialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("{}: {error}", path.display())]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("{} is not what `tepal identity create --to` writes: {reason}", path.display())]
    Malformed { path: PathBuf, reason: String },
}

/// What a server keeps of its own certificate.
#[derive(Deserialize)]
struct Own {
    authority: String,
    #[serde(default)]
    trust: Option<tepal_server::Trust>,
}

fn read(path: PathBuf) -> Result<(PathBuf, Vec<u8>), CredentialsError> {
    match fs::read(&path) {
        Ok(text) => Ok((path, text)),
        Err(error) => Err(CredentialsError::Unreadable { path, error }),
    }
}

fn malformed(path: PathBuf) -> impl FnOnce(ureq::Error) -> CredentialsError {
    move |error| CredentialsError::Malformed { path, reason: error.to_string() }
}

/// Every certificate of a file: while one authority takes the place of another, there are two.
fn all(pem: &[u8], path: PathBuf) -> Result<Vec<CertificateDer<'static>>, CredentialsError> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        Ok(_) => Err(CredentialsError::Malformed { path, reason: "there's no certificate in it".to_owned() }),
        Err(error) => Err(CredentialsError::Malformed { path, reason: format!("{error:?}") }),
    }
}

/// Servers are those of these authorities alone.
fn of_authority(pem: &[u8], path: PathBuf) -> Result<ureq::tls::TlsConfigBuilder, CredentialsError> {
    let certificates = all(pem, path)?;
    let roots: Vec<_> = certificates.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
    let builder = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(RootCerts::new_with_certs(&roots));
    Ok(builder.unversioned_rustls_crypto_provider(Arc::new(default_provider())))
}

/// For whoever knows the authority and has no identity.
pub fn by_authority(pem: &[u8]) -> Result<TlsConfig, CredentialsError> {
    Ok(of_authority(pem, PathBuf::from("the authority's certificate"))?.build())
}

/// For asking what anybody may know of somebody who isn't known yet.
pub fn of_anybody() -> TlsConfig {
    let builder = TlsConfig::builder().provider(TlsProvider::Rustls).disable_verification(true);
    builder.unversioned_rustls_crypto_provider(Arc::new(default_provider())).build()
}

/// Of an identity's folder.
pub fn of_identity(folder: &Path) -> Result<TlsConfig, CredentialsError> {
    let (path, authority) = read(folder.join("ca-cert.pem"))?;
    let builder = of_authority(&authority, path)?;
    let (path, certificate) = read(folder.join("client-cert.pem"))?;
    let certificate = Certificate::from_pem(&certificate).map_err(malformed(path))?;
    let (path, key) = read(folder.join("client-key.pem"))?;
    let key = PrivateKey::from_pem(&key).map_err(malformed(path))?;
    Ok(builder.client_cert(Some(ClientCert::new_with_certs(&[certificate], key))).build())
}

/// By which an NBD server of the cluster is asked.
pub fn for_nbd(folder: &Path) -> Result<Arc<ClientConfig>, CredentialsError> {
    let malformed = |path: PathBuf, reason: String| CredentialsError::Malformed { path, reason };
    let (path, authority) = read(folder.join("ca-cert.pem"))?;
    let mut roots = RootCertStore::empty();
    for authority in all(&authority, path.clone())? {
        roots.add(authority).map_err(|error| malformed(path.clone(), error.to_string()))?;
    }
    let (path, certificate) = read(folder.join("client-cert.pem"))?;
    let certificate =
        CertificateDer::from_pem_slice(&certificate).map_err(|error| malformed(path, format!("{error:?}")))?;
    let (path, key) = read(folder.join("client-key.pem"))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|error| malformed(path.clone(), format!("{error:?}")))?;
    let unusable = |error: tokio_rustls::rustls::Error| malformed(path, error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider())).with_protocol_versions(&[&TLS13]);
    let builder = builder.map(|builder| builder.with_root_certificates(roots));
    let config = builder.and_then(|builder| builder.with_client_auth_cert(vec![certificate], key)).map_err(unusable)?;
    Ok(Arc::new(config))
}

/// Of a server's data folder, if it has a certificate: who reads that folder knows the token too.
pub fn of_server(data: &Path) -> Result<Option<TlsConfig>, CredentialsError> {
    let path = data.join("certificate.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(CredentialsError::Unreadable { path, error }),
    };
    let own: Own = serde_json::from_slice(&text)
        .map_err(|error| CredentialsError::Malformed { path: path.clone(), reason: error.to_string() })?;
    let roots = own.trust.map_or(own.authority, |trust| trust.roots);
    Ok(Some(of_authority(roots.as_bytes(), path)?.build()))
}
