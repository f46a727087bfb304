//! What a client is connected by: its socket, and TLS over it once the client has asked for that.

use super::connection::Stream;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, BufReader, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::server::TlsStream;

/// What one system call takes of a TLS client's bytes at most. By itself the library asks the kernel for 4 KiB at a time.
const RECEIVED_AT_ONCE: usize = 64 << 10;

/// How an address protects its connections.
#[derive(Clone, Default)]
pub struct Protection {
    /// By which TLS is offered to new connections, as it is at that moment; none if it isn't.
    pub tls: Option<TlsSource>,
    /// Whether a client gets nothing without TLS.
    pub is_required: bool,
}

/// The newest configuration of TLS; none while there is none.
pub type TlsSource = Arc<dyn Fn() -> Option<Arc<ServerConfig>> + Send + Sync>;

impl fmt::Debug for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Protection { tls, is_required } = self;
        f.debug_struct("Protection").field("tls", &tls.is_some()).field("is_required", is_required).finish()
    }
}

impl Protection {
    pub(super) fn offered(&self) -> Option<Arc<ServerConfig>> {
        self.tls.as_ref().and_then(|tls| tls())
    }
}

/// A socket, with or without TLS over it.
pub enum Line<S> {
    /// Without.
    Plain(S),
    /// With.
    Tls(Box<TlsStream<BufReader<S>>>),
}

impl<S: Stream> Line<S> {
    /// Begins TLS as the server. The client has shown its certificate, or the handshake fails.
    pub async fn secured(socket: S, config: Arc<ServerConfig>) -> io::Result<Self> {
        let socket = BufReader::with_capacity(RECEIVED_AT_ONCE, socket);
        Ok(Line::Tls(Box::new(TlsAcceptor::from(config).accept(socket).await?)))
    }

    /// The certificate that the client has shown, and those that lead from it to an authority.
    pub fn certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match self {
            Line::Plain(_) => None,
            Line::Tls(stream) => stream.get_ref().1.peer_certificates(),
        }
    }
}

impl<S: Stream> AsyncRead for Line<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, free: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Line::Plain(socket) => Pin::new(socket).poll_read(cx, free),
            Line::Tls(stream) => match Pin::new(stream).poll_read(cx, free) {
                // The client hung up without saying so in TLS: what it asked for was whole or not, as without TLS.
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
                read => read,
            },
        }
    }
}

/// The same of either kind.
macro_rules! line {
    ($line:expr, $stream:ident => $what:expr) => {
        match $line.get_mut() {
            Line::Plain($stream) => $what,
            Line::Tls($stream) => $what,
        }
    };
}

impl<S: Stream> AsyncWrite for Line<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        line!(self, stream => Pin::new(stream).poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        line!(self, stream => Pin::new(stream).poll_write_vectored(cx, pieces))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        line!(self, stream => Pin::new(stream).poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        line!(self, stream => Pin::new(stream).poll_shutdown(cx))
    }
}

impl<S: Stream> Stream for Line<S> {
    fn has_hung_up(&self) -> bool {
        match self {
            Line::Plain(socket) => socket.has_hung_up(),
            Line::Tls(stream) => stream.get_ref().0.get_ref().has_hung_up(),
        }
    }
}
