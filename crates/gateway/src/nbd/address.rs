//! Addresses of exports, as texts (NBD protocol, `doc/uri.md`).

use super::wire::MAX_STRING;
use std::path::PathBuf;
use std::str::FromStr;
use tepal_model::text::shown;

const PORT: u16 = 10809;

/// Where an export is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    place: Place,
    export: String,
}

/// Where a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A socket's path.
    Unix(PathBuf),
    /// HOST:PORT.
    Tcp(String),
    /// The same over TLS, with the folder of an identity's files.
    Tls(String, PathBuf),
}

/// Why a text is no address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It has another form.
    #[error(
        "'{0}' is not an address of an NBD export: write nbd://HOST[:PORT]/EXPORT, nbds://HOST[:PORT]/EXPORT?tls-certificates=DIR or \
         nbd+unix:///EXPORT?socket=PATH"
    )]
    Form(String),
    /// Of an address over TLS: it says not by which certificate.
    #[error(
        "'{0}' is an address for NBD over TLS, and says not by which certificate: add ?tls-certificates=DIR, a folder with client-cert.pem, \
         client-key.pem and ca-cert.pem"
    )]
    Tls(String),
}

/// Whether that is meant as an address, right or wrong.
pub fn is_address(text: &str) -> bool {
    ["nbd:", "nbds:", "nbd+", "nbds+"].iter().any(|scheme| text.starts_with(scheme))
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let whole = text;
        let wrong = || AddressError::Form(shown(whole));
        let (text, is_tls) = match text.strip_prefix("nbds://") {
            Some(rest) => (format!("nbd://{rest}"), true),
            None => (text.to_owned(), false),
        };
        let (rest, is_unix) = match (text.strip_prefix("nbd://"), text.strip_prefix("nbd+unix://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(wrong()),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
        let export = decoded(export).filter(|export| export.len() <= MAX_STRING).ok_or_else(wrong)?;
        let socket = query.split('&').find_map(|part| part.strip_prefix("socket="));
        let identity =
            query.split('&').find_map(|part| part.strip_prefix("tls-certificates=")).filter(|it| !it.is_empty());
        if is_tls && identity.is_none() {
            return Err(AddressError::Tls(shown(whole)));
        }
        let place = match (is_unix, host, socket) {
            (true, "", Some(socket)) if !socket.is_empty() => Place::Unix(decoded(socket).ok_or_else(wrong)?.into()),
            (false, host, None) if !host.is_empty() && !host.contains('@') => {
                let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
                let address = if has_port { host.to_owned() } else { format!("{host}:{PORT}") };
                match identity.filter(|_| is_tls) {
                    Some(identity) => Place::Tls(address, decoded(identity).ok_or_else(wrong)?.into()),
                    None => Place::Tcp(address),
                }
            }
            _ => return Err(wrong()),
        };
        Ok(Address { place, export })
    }
}

/// A text of a URI without its escapes (RFC 3986, 2.1).
fn decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? * 16 + digit(low)?) as u8);
                rest = after;
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

impl Address {
    /// Of the default export of a server.
    pub fn unix(socket: PathBuf) -> Self {
        Address { place: Place::Unix(socket), export: String::new() }
    }

    /// Where its server is.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What its server is asked for.
    pub fn export(&self) -> &str {
        &self.export
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_exports_are_read_as_the_standard_says() {
        let tcp =
            |place: &str, export: &str| Ok(Address { place: Place::Tcp(place.to_owned()), export: export.to_owned() });
        let unix =
            |path: &str, export: &str| Ok(Address { place: Place::Unix(path.into()), export: export.to_owned() });
        assert_eq!("nbd://host".parse(), tcp("host:10809", ""));
        assert_eq!("nbd://host:99/a/b".parse(), tcp("host:99", "a/b"));
        assert_eq!("nbd://[::1]/v".parse(), tcp("[::1]:10809", "v"));
        assert_eq!("nbd+unix:///v%2f1?socket=/tmp/a%20b".parse(), unix("/tmp/a b", "v/1"));
        assert_eq!("nbd+unix://?socket=s".parse(), unix("s", ""));
        for text in [
            "nbd:host",
            "nbd://",
            "nbd+unix:///v",
            "nbd+unix://host/v?socket=s",
            "nbd://u@h/",
            "nbd://h/%zz",
            "nbd://h/%f",
        ] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Form(text.to_owned())));
        }
        let tls = |place: &str, identity: &str| Address {
            place: Place::Tls(place.to_owned(), identity.into()),
            export: "v".to_owned(),
        };
        assert_eq!("nbds://host/v?tls-certificates=/a%20b".parse(), Ok(tls("host:10809", "/a b")));
        for text in ["nbds://host/v", "nbds://host/v?tls-certificates="] {
            assert_eq!(text.parse::<Address>(), Err(AddressError::Tls(text.to_owned())));
        }
        assert_eq!("nbds+unix:///v".parse::<Address>(), Err(AddressError::Form("nbds+unix:///v".to_owned())));
    }
}
