//! The cluster's certificate authority: its key, which the data folder of one server has, and what it signs.

use crate::private_file;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tepal_metadata::{KeyHash, Role};
use tepal_model::ClusterId;

/// In the data folder: of the first one, `authority.key`.
pub fn key_file(number: u32) -> String {
    if number <= 1 { "authority.key".to_owned() } else { format!("authority-{number}.key") }
}

/// Clocks differ: a certificate counts so long before it was made.
const EARLIER: Duration = Duration::from_secs(3600);
/// The authority's own certificate counts so long.
const AUTHORITY_DAYS: u32 = 3650;
pub const DAY: Duration = Duration::from_secs(24 * 3600);
/// Bytes of a public key: a point of P-256, uncompressed (SEC 1, 2.3.3).
const POINT: usize = 65;

/// Why nothing was signed.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{} isn't the key of the cluster's certificate authority", .0.display())]
    OtherKey(PathBuf),
    #[error("the key is no public key of P-256: 130 hexadecimal digits, of which the first are 04")]
    PublicKey,
    #[error("'{0}' is no name or address of a machine")]
    Name(String),
    #[error("the certificate can't be made: {0}")]
    Library(#[from] rcgen::Error),
}

/// A public key that somebody else has the private one of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicKey(Vec<u8>);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl PublicKey {
    /// From hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, AuthorityError> {
        let digits: Option<Vec<u8>> =
            text.bytes().map(|digit| char::from(digit).to_digit(16).map(|d| d as u8)).collect();
        let point: Vec<u8> = digits
            .ok_or(AuthorityError::PublicKey)?
            .chunks(2)
            .map(|pair| pair[0] << 4 | pair[pair.len() - 1])
            .collect();
        if text.len() != 2 * POINT || point[0] != 4 {
            return Err(AuthorityError::PublicKey);
        }
        Ok(PublicKey(point))
    }

    /// By which it's known.
    pub fn hash(&self) -> KeyHash {
        hash(&self.subject_public_key_info())
    }
}

/// Of a SubjectPublicKeyInfo, as DER.
pub fn hash(public_key: &[u8]) -> KeyHash {
    let mut hash = KeyHash([0; 32]);
    hash.0.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, public_key).as_ref());
    hash
}

/// Whom a certificate is for.
pub struct Subject<'a> {
    pub name: &'a str,
    pub role: Role,
    /// Names and addresses of a server, or of a host whose gateway serves others.
    pub names: &'a [String],
    pub days: u32,
}

pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The certificate of a new one, as PEM. Its key is in the data folder when this returns: the one that is there already, as it may be
    /// of an authority of which nobody has heard whether it was agreed on.
    pub fn make(folder: &Path, cluster: ClusterId, number: u32) -> Result<String, AuthorityError> {
        let path = folder.join(key_file(number));
        let failed = |error| AuthorityError::File { path: path.clone(), error };
        let key = match std::fs::read_to_string(&path) {
            Ok(text) => KeyPair::from_pem(&text).map_err(|_| AuthorityError::OtherKey(path.clone()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let key = KeyPair::generate()?;
                private_file::replace(&path, key.serialize_pem().as_bytes()).map_err(failed)?;
                key
            }
            Err(error) => return Err(failed(error)),
        };
        Ok(params_of(cluster, number).self_signed(&key)?.pem())
    }

    /// The one whose certificate is agreed on, if its key is in the data folder.
    pub fn open(
        folder: &Path,
        cluster: ClusterId,
        (number, certificate): (u32, &[u8]),
    ) -> Result<Option<Self>, AuthorityError> {
        let path = folder.join(key_file(number));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(AuthorityError::File { path, error }),
        };
        let Ok(key) = KeyPair::from_pem(&text) else { return Err(AuthorityError::OtherKey(path)) };
        if super::key_of(certificate) != Some(hash(&key.subject_public_key_info())) {
            return Err(AuthorityError::OtherKey(path));
        }
        Ok(Some(Authority { issuer: Issuer::new(params_of(cluster, number), key) }))
    }

    /// A certificate, as PEM.
    pub fn sign(&self, key: &PublicKey, subject: &Subject<'_>) -> Result<String, AuthorityError> {
        let mut params = CertificateParams::default();
        for name in subject.names {
            let of_one = CertificateParams::new([name.clone()]).map_err(|_| AuthorityError::Name(name.clone()))?;
            params.subject_alt_names.extend(of_one.subject_alt_names);
        }
        let now = SystemTime::now();
        params.not_before = (now - EARLIER).into();
        params.not_after = (now + DAY * subject.days).into();
        params.distinguished_name = called(subject.name, &organization_of(subject.role));
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        // A host's gateway serves clients too.
        if subject.role == Role::Server || !subject.names.is_empty() {
            params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        Ok(params.signed_by(key, &self.issuer)?.pem())
    }
}

/// What certificates of the cluster's authority say of those who have such a role.
pub fn organization_of(role: Role) -> String {
    format!("Tepal {role}")
}

/// The same for the same cluster, so that the key alone has to be kept.
fn params_of(cluster: ClusterId, number: u32) -> CertificateParams {
    let mut params = CertificateParams::default();
    let now = SystemTime::now();
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + DAY * AUTHORITY_DAYS).into();
    let name =
        if number <= 1 { format!("cluster {cluster}") } else { format!("cluster {cluster}, authority {number}") };
    params.distinguished_name = called(&name, "Tepal authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn called(name: &str, organization: &str) -> DistinguishedName {
    let mut called = DistinguishedName::new();
    called.push(DnType::OrganizationName, organization);
    called.push(DnType::CommonName, name);
    called
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::own::public_key;
    use std::sync::Arc;
    use tokio_rustls::rustls::crypto::ring::default_provider;
    use tokio_rustls::rustls::pki_types::pem::PemObject;
    use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};
    use tokio_rustls::rustls::server::WebPkiClientVerifier;
    use tokio_rustls::rustls::{CertificateError, Error, RootCertStore};

    fn der(pem: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
    }

    fn public() -> PublicKey {
        let key = KeyPair::generate().expect("a key");
        let digits: String = key.der_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let public = public_key(&digits).expect("a public key");
        assert_eq!(public.hash(), hash(&key.subject_public_key_info()));
        public
    }

    fn made(folder: &Path) -> (Authority, String) {
        let certificate = Authority::make(folder, ClusterId(7), 1).expect("space");
        let opened = Authority::open(folder, ClusterId(7), (1, &der(&certificate))).expect("its key");
        (opened.expect("there"), certificate)
    }

    fn judged(certificate: &str, authority: &str, after: Duration) -> Result<(), Error> {
        let mut roots = RootCertStore::empty();
        roots.add(der(authority)).expect("a root");
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(default_provider()));
        let now = SystemTime::now() + after;
        let now = UnixTime::since_unix_epoch(now.duration_since(std::time::UNIX_EPOCH).expect("after 1970"));
        verifier.build().expect("a verifier").verify_client_cert(&der(certificate), &[], now).map(drop)
    }

    #[test]
    fn a_certificate_counts_from_now_until_its_days_are_over() {
        let scratch = tempfile::tempdir().expect("a folder");
        let (authority, root) = made(scratch.path());
        let subject = Subject { name: "web", role: Role::Host, names: &[], days: 2 };
        let certificate = authority.sign(&public(), &subject).expect("a certificate");
        assert_eq!(judged(&certificate, &root, Duration::ZERO), Ok(()));
        assert_eq!(judged(&certificate, &root, DAY), Ok(()));
        let late = judged(&certificate, &root, DAY * 3).expect_err("it has expired");
        assert!(matches!(late, Error::InvalidCertificate(CertificateError::ExpiredContext { .. })), "{late}");
    }

    #[test]
    fn a_certificate_counts_for_its_own_authority_alone() {
        let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let ((authority, _), (_, other_root)) = (made(one.path()), made(other.path()));
        let subject = Subject { name: "web", role: Role::Host, names: &[], days: 2 };
        let certificate = authority.sign(&public(), &subject).expect("a certificate");
        assert!(judged(&certificate, &other_root, Duration::ZERO).is_err());
        // Nor does a client's certificate sign others.
        assert!(judged(&certificate, &certificate, Duration::ZERO).is_err());
    }

    #[test]
    fn an_authority_is_the_same_after_a_restart_and_never_another() {
        let scratch = tempfile::tempdir().expect("a folder");
        let (_, root) = made(scratch.path());
        let again = Authority::make(scratch.path(), ClusterId(7), 1).expect("its key is there");
        assert_eq!(crate::access::key_of(&der(&again)), crate::access::key_of(&der(&root)));
        let other = tempfile::tempdir().expect("a folder");
        let (_, other_root) = made(other.path());
        let mistaken = Authority::open(scratch.path(), ClusterId(7), (1, &der(&other_root)));
        assert!(matches!(mistaken, Err(AuthorityError::OtherKey(_))));
        std::fs::remove_file(other.path().join(key_file(1))).expect("there");
        assert!(Authority::open(other.path(), ClusterId(7), (1, &der(&other_root))).expect("no key").is_none());
        std::fs::write(scratch.path().join(key_file(1)), "no key").expect("ours");
        assert!(matches!(Authority::make(scratch.path(), ClusterId(7), 1), Err(AuthorityError::OtherKey(_))));
    }

    #[test]
    fn what_is_no_public_key_or_name_of_a_machine_is_refused() {
        for text in ["", "04", &"05".repeat(65), &"0g".repeat(65), &"04".repeat(66), &format!("04{}", "é".repeat(64))]
        {
            assert!(PublicKey::parse(text).is_err(), "{text}");
        }
        let scratch = tempfile::tempdir().expect("a folder");
        let (authority, _) = made(scratch.path());
        let names = ["snow\u{2603}".to_owned()];
        let subject = Subject { name: "s1", role: Role::Server, names: &names, days: 2 };
        assert!(matches!(authority.sign(&public(), &subject), Err(AuthorityError::Name(_))));
    }
}
