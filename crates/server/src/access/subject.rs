//! What a certificate says of its subject (RFC 5280, 4.1.2.4): who it is, and of which organization.
//!
//! Only certificates are read whose signatures have been checked; whatever else their authors have written, reading it ends.

use tokio_rustls::rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// `id-at-commonName` and `id-at-organizationName` (RFC 5280, appendix A), as DER without tag and length.
const COMMON_NAME: [u8; 3] = [0x55, 4, 3];
const ORGANIZATION: [u8; 3] = [0x55, 4, 10];
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_IDENTIFIER: u8 = 6;
/// Texts that are UTF-8, or a part of it.
const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];

/// The first of each kind that the subject has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubjectNames {
    pub common: Option<String>,
    pub organization: Option<String>,
}

/// Of a certificate, as DER.
pub fn names(certificate: &CertificateDer<'_>) -> Option<SubjectNames> {
    let certificate = EndEntityCert::try_from(certificate).ok()?;
    read(certificate.subject())
}

/// A sequence of sets of pairs, with or without what begins the sequence.
fn read(subject: &[u8]) -> Option<SubjectNames> {
    let mut rest = match piece(subject) {
        Some((SEQUENCE, inner, [])) => inner,
        _ => subject,
    };
    let mut names = SubjectNames::default();
    while !rest.is_empty() {
        let (tag, mut pairs, after) = piece(rest)?;
        rest = after;
        if tag != SET {
            return None;
        }
        while !pairs.is_empty() {
            let (SEQUENCE, pair, others) = piece(pairs)? else { return None };
            pairs = others;
            let (OBJECT_IDENTIFIER, kind, value) = piece(pair)? else { return None };
            let (tag, text, []) = piece(value)? else { return None };
            let text = || String::from_utf8(text.to_vec()).ok().filter(|_| TEXTS.contains(&tag));
            if kind == COMMON_NAME && names.common.is_none() {
                names.common = Some(text()?);
            } else if kind == ORGANIZATION && names.organization.is_none() {
                names.organization = Some(text()?);
            }
        }
    }
    Some(names)
}

/// Tag and content of what comes first (X.690, 8.1), and what comes after it.
fn piece(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, length], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match length {
        0..=0x7f => (usize::from(length), rest),
        0x81 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        0x82 => rest.split_first_chunk::<2>().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?,
        _ => return None,
    };
    rest.split_at_checked(length).map(|(content, after)| (tag, content, after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    fn of(names: &[(DnType, &str)]) -> Option<SubjectNames> {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        let key = KeyPair::generate().expect("a key");
        super::names(params.self_signed(&key).expect("a certificate").der())
    }

    #[test]
    fn a_subject_is_read_whatever_else_it_says() {
        let long = "x".repeat(300);
        for (common, organization) in [(Some("ann"), None), (Some("é☃"), Some("Tepal host")), (None, Some(&*long))] {
            let parts = [
                Some((DnType::CountryName, "AT")),
                common.map(|name| (DnType::CommonName, name)),
                Some((DnType::OrganizationalUnitName, "disks")),
                organization.map(|name| (DnType::OrganizationName, name)),
            ];
            let expected =
                SubjectNames { common: common.map(str::to_owned), organization: organization.map(str::to_owned) };
            assert_eq!(of(&parts.into_iter().flatten().collect::<Vec<_>>()), Some(expected));
        }
        assert_eq!(of(&[]), Some(SubjectNames::default()));
    }

    proptest::proptest! {
        #[test]
        fn reading_any_bytes_ends(bytes: Vec<u8>) {
            let _ = read(&bytes);
        }
    }
}
