//! TLS by STARTTLS (specification, "TLS support").

use super::super::wire::{option, option_reply as reply};
use super::client::{Client, contexts, name_and, option_bytes};
use super::disk::{TestDisk, TestExports};
use super::{Server, run};
use crate::nbd::{ConnectionError, End, HandshakeError, Limits, Protection};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::sync::Arc;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// An authority, and who has certificates of it.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn issue(&self, name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.der().clone(), PrivateKeyDer::Pkcs8(key.serialize_der().into()))
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    fn protection(&self, is_required: bool) -> Protection {
        let (certificate, key) = self.issue("server");
        let verifier = WebPkiClientVerifier::builder(self.roots()).build().unwrap();
        let config = ServerConfig::builder().with_client_cert_verifier(verifier);
        let config = Arc::new(config.with_single_cert(vec![certificate], key).unwrap());
        Protection { tls: Some(Arc::new(move || Some(config.clone()))), is_required }
    }
}

fn server(authority: &Authority, is_required: bool) -> (Server, TestDisk) {
    let disk = TestDisk::new(4 << 20);
    let mut server = Server::new(TestExports::of(&[("v0", &disk)]), Limits::default());
    server.protection = authority.protection(is_required);
    (server, disk)
}

type Secured = Client<TlsStream<UnixStream>>;

/// Goes on over TLS, as the holder of a certificate.
async fn secure(mut client: Client, authority: &Authority, of: &Authority) -> std::io::Result<(Secured, Vec<u8>)> {
    assert_eq!(client.option(option::STARTTLS, &[]).await[0].kind, reply::ACK);
    let (certificate, key) = of.issue("client");
    let config = ClientConfig::builder().with_root_certificates(authority.roots());
    let config = config.with_client_auth_cert(vec![certificate.clone()], key).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let stream = connector.connect(ServerName::try_from("server").unwrap(), client.stream).await?;
    Ok((Client::new(stream), certificate.to_vec()))
}

type Ending = JoinHandle<Result<End, ConnectionError>>;

async fn secured(server: &Server, authority: &Authority) -> (Secured, Vec<u8>, Ending) {
    let (mut client, end) = server.connect();
    client.greet().await;
    let (client, certificate) = secure(client, authority, authority).await.unwrap();
    (client, certificate, end)
}

#[test]
fn before_tls_that_is_required_nothing_is_told() {
    run(async {
        let authority = Authority::new();
        let (server, _) = server(&authority, true);
        let (mut client, end) = server.connect();
        client.greet().await;
        let go = name_and("v0", &[0, 0]);
        let contexts = contexts("v0", &["base:allocation"]);
        for (asked, data) in [
            (option::LIST, &[][..]),
            (option::STRUCTURED_REPLY, &[]),
            (option::INFO, &go),
            (option::GO, &go),
            (option::SET_META_CONTEXT, &contexts),
            (99, &[]),
        ] {
            let replies = client.option(asked, data).await;
            assert_eq!((replies.len(), replies[0].kind), (1, reply::ERR_TLS_REQUIRED), "option {asked}");
        }
        assert_eq!(client.option(option::STARTTLS, &[0]).await[0].kind, reply::ERR_INVALID);
        client.send(&option_bytes(option::EXPORT_NAME, b"v0")).await;
        assert!(client.rest().await.is_empty());
        let ended = end.await.unwrap();
        assert!(matches!(ended, Err(ConnectionError::Handshake(HandshakeError::TlsRequired))), "{ended:?}");
        assert_eq!(server.exports.opened.get(), 0);
    });
}

#[test]
fn over_tls_data_goes_both_ways_whatever_its_length() {
    run(async {
        let authority = Authority::new();
        let (server, _disk) = server(&authority, true);
        let (mut client, certificate, end) = secured(&server, &authority).await;
        assert_eq!(client.option(option::STARTTLS, &[]).await[0].kind, reply::ERR_INVALID);
        assert_eq!(*server.exports.shown.borrow(), [certificate]);
        client.structured("v0").await;
        client.go("v0").await;
        for (cookie, length) in [(1, 512), (2, 4096), (3, 70_000), (4, 3 << 20)] {
            let data: Vec<u8> = (0..length).map(|i| (i * 7 + i / 253 + cookie as usize) as u8).collect();
            client.write(0, cookie, 4096, &data).await;
            assert_eq!(client.outcome().await, (cookie, 0));
            assert_eq!(client.read(cookie, 4096, length as u32).await.as_deref(), Ok(&data[..]), "{length} bytes");
        }
        client.disconnect().await;
        assert!(client.rest().await.is_empty());
        assert!(matches!(end.await.unwrap(), Ok(End::Goodbye)));
    });
}

#[test]
fn what_was_agreed_before_tls_counts_no_more_after_it() {
    run(async {
        let authority = Authority::new();
        let (server, _) = server(&authority, false);
        let (mut client, _end) = server.connect();
        client.greet().await;
        client.structured("v0").await;
        let (mut client, _) = secure(client, &authority, &authority).await.unwrap();
        let data = contexts("v0", &["base:allocation"]);
        let replies = client.option(option::SET_META_CONTEXT, &data).await;
        assert_eq!(replies[0].kind, reply::ERR_INVALID, "structured replies come first");
    });
}

#[test]
fn bytes_in_the_clear_after_starttls_end_the_connection() {
    run(async {
        let authority = Authority::new();
        let (server, _) = server(&authority, false);
        let (mut client, end) = server.connect();
        client.greet().await;
        let slipped_in = [option_bytes(option::STARTTLS, &[]), option_bytes(option::LIST, &[])].concat();
        client.send(&slipped_in).await;
        assert_eq!(client.option_reply().await.unwrap().kind, reply::ACK);
        assert!(client.rest().await.is_empty());
        let ended = end.await.unwrap();
        assert!(matches!(ended, Err(ConnectionError::Handshake(HandshakeError::BytesBeforeTls(_)))), "{ended:?}");
    });
}

#[test]
fn a_certificate_of_another_authority_gets_nothing() {
    run(async {
        let (authority, other) = (Authority::new(), Authority::new());
        let (server, _) = server(&authority, true);
        let (mut client, end) = server.connect();
        client.greet().await;
        // In TLS 1.3 the client is done before the server has judged: what it sends then has no answer.
        if let Ok((mut client, _)) = secure(client, &authority, &other).await {
            let refused = client.option_reply().await.unwrap_err();
            assert!(refused.to_string().contains("fatal alert"), "{refused}");
        }
        let ended = end.await.unwrap();
        assert!(matches!(ended, Err(ConnectionError::Handshake(HandshakeError::Tls(_)))), "{ended:?}");
        assert!(server.exports.shown.borrow().is_empty() && server.exports.opened.get() == 0);
    });
}

#[test]
fn a_server_without_a_certificate_says_so_and_serves_who_may_come_without() {
    run(async {
        let disk = TestDisk::new(1 << 20);
        for (is_required, refused, then) in
            [(true, reply::ERR_POLICY, reply::ERR_TLS_REQUIRED), (false, reply::ERR_UNSUP, reply::SERVER)]
        {
            let mut server = Server::of(&disk);
            server.protection = Protection { tls: Some(Arc::new(|| None)), is_required };
            let (mut client, _end) = server.connect();
            client.greet().await;
            assert_eq!(client.option(option::STARTTLS, &[]).await[0].kind, refused);
            assert_eq!(client.option(option::LIST, &[]).await[0].kind, then);
        }
    });
}

#[test]
fn a_thousand_handshakes_that_fail_leave_nothing_behind() {
    run(async {
        let authority = Authority::new();
        let (server, _) = server(&authority, true);
        for _ in 0..1000 {
            let (mut client, end) = server.connect();
            client.greet().await;
            assert_eq!(client.option(option::STARTTLS, &[]).await[0].kind, reply::ACK);
            client.send(b"this is no TLS").await;
            client.rest().await;
            assert!(matches!(end.await.unwrap(), Err(ConnectionError::Handshake(HandshakeError::Tls(_)))));
            assert_eq!(server.admission.connections(), 0);
        }
    });
}
