//! HTTP connections: how many, how slow they may be, and how they end.
//!
//! Invariant: whoever has no token keeps nobody else out. If all places are taken, the oldest connection that has shown no
//! token and waits for nothing of ours makes room for a new one.

use super::drives::Survey;
use super::routes::router;
use super::schedules::Steward;
use super::{Api, Context, Who, console, live};
use crate::access::{Credentials, Peer};
use crate::connection::HANDSHAKE;
use crate::descriptors::Shares;
use axum::Router;
use axum::http::StatusCode;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tepal_gateway::nbd::{Line, Surplus, has_hung_up};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// For the head of a request, also of the next one on the same connection.
const HEAD_WITHIN: Duration = Duration::from_secs(30);
/// Bytes of a request's head.
const LONGEST_HEAD: usize = 64 << 10;
/// For requests under way when the server stops.
const FINISH: Duration = Duration::from_secs(5);
/// How long a connection that is to make room may take to go.
const MAKE_ROOM: Duration = Duration::from_secs(1);
/// After an error of `accept`: too many open files, most often.
const AFTER_ERROR: Duration = Duration::from_millis(50);

/// The API as it is served.
pub struct Front {
    stop: watch::Sender<bool>,
    places: Arc<Semaphore>,
    most: usize,
    accepting: JoinHandle<()>,
    survey: Survey,
    steward: Steward,
}

impl Front {
    /// Serves whoever shows the token, until it's closed. To be called on the control runtime, which serves.
    pub fn open(listener: TcpListener, api: Api, token: String) -> Self {
        let credentials = api.access.credentials().clone();
        let door = Door { is_tls_required: credentials.is_wanted_at(Some(api.address)), credentials };
        let (stop, stopping) = watch::channel(false);
        let most = Shares::now().api;
        let places = Arc::new(Semaphore::new(most));
        let relay = api.relay.clone();
        let context = Arc::new(Context::new(api, token, stopping.clone()));
        let (survey, surplus) = (Survey::new(&context), context.surplus_here.clone());
        let steward = Steward::new(&context);
        live::watch_over(&context);
        let router = router(context);
        relay.open(router.clone());
        let accepting = tokio::spawn(accept((listener, door), router, (places.clone(), most), surplus, stopping));
        Front { stop, places, most, accepting, survey, steward }
    }

    /// What all servers say of their drives.
    pub fn survey(&self) -> Survey {
        self.survey.clone()
    }

    /// What running schedules takes.
    pub fn steward(&self) -> Steward {
        self.steward.clone()
    }

    /// Accepts nobody any more, and lets what is under way finish for a while.
    pub async fn close(self) {
        self.stop.send_replace(true);
        self.accepting.abort();
        let all_gone = self.places.acquire_many(self.most as u32);
        if tokio::time::timeout(FINISH, all_gone).await.is_err() {
            tracing::warn!("an API request didn't finish in time and was ended");
        }
    }
}

/// How callers are let in.
#[derive(Clone)]
struct Door {
    is_tls_required: bool,
    credentials: Credentials,
}

async fn accept(
    (listener, door): (TcpListener, Door),
    router: Router,
    (places, most): (Arc<Semaphore>, usize),
    surplus: Arc<Surplus>,
    stopping: watch::Receiver<bool>,
) {
    let mut guests = VecDeque::<Weak<Guest>>::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                guests.retain(|guest| guest.strong_count() > 0);
                let mut within = Duration::ZERO;
                if places.available_permits() == 0
                    && let Some(guest) = guests.iter().filter_map(Weak::upgrade).find(|guest| guest.may_be_sent_off())
                {
                    guest.sent_off.notify_one();
                    within = MAKE_ROOM;
                }
                // Where nobody makes room, whoever has come sees the end at once.
                let Ok(Ok(place)) = timeout(within, places.clone().acquire_owned()).await else {
                    surplus.note(&format!("{most} are served at a time: ask fewer things at once, or another server"));
                    continue;
                };
                let guest = Arc::new(Guest::default());
                guests.push_back(Arc::downgrade(&guest));
                let serving = receive(stream, door.clone(), router.clone(), guest, stopping.clone());
                tokio::spawn(async move {
                    serving.await;
                    drop(place);
                });
            }
            Err(error) => {
                surplus.note(&format!("a connection can't be accepted: {error}"));
                tokio::time::sleep(AFTER_ERROR).await;
            }
        }
    }
}

/// A connection, for who has to choose among them.
#[derive(Default)]
struct Guest {
    /// A request of it is being answered.
    is_served: AtomicBool,
    /// It has shown the token.
    is_known: AtomicBool,
    sent_off: Notify,
}

impl Guest {
    fn may_be_sent_off(&self) -> bool {
        !self.is_served.load(Ordering::Relaxed) && !self.is_known.load(Ordering::Relaxed)
    }
}

/// Who waits for the answer.
#[derive(Clone)]
pub struct Caller(Arc<OwnedFd>);

impl Caller {
    /// It may have gone on by another server: what it wanted to have written, it may have had written there, and something newer since.
    pub fn has_left(&self) -> bool {
        has_hung_up(&self.0)
    }
}

async fn stop_asked(mut stopping: watch::Receiver<bool>) {
    // An error means that the server is gone already, which asks too.
    let _ = stopping.wait_for(|&stop| stop).await;
}

/// Over TLS, if the caller begins it. Without, who comes from elsewhere is told to.
async fn receive(stream: TcpStream, door: Door, router: Router, guest: Arc<Guest>, stopping: watch::Receiver<bool>) {
    let caller = stream.as_fd().try_clone_to_owned().ok().map(|handle| Caller(Arc::new(handle)));
    let line = tokio::select! {
        line = timeout(HEAD_WITHIN, secured(stream, &door)) => line.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        () = guest.sent_off.notified() => return,
        () = stop_asked(stopping.clone()) => return,
    };
    match line {
        Ok((line, who)) => serve(line, (caller, who), router, guest, stopping).await,
        Err(error) => tracing::debug!(%error, "an API connection can't be served"),
    }
}

/// Who is there, as far as that is known from a certificate.
async fn secured(stream: TcpStream, door: &Door) -> io::Result<(Line<TcpStream>, Who)> {
    let mut first = [0];
    stream.peek(&mut first).await?;
    if first[0] != HANDSHAKE {
        let who = if door.is_tls_required { Who::InTheClear } else { Who::Nobody };
        return Ok((Line::Plain(stream), who));
    }
    let none = || io::Error::other("there's no certificate here yet");
    let line = Line::secured(stream, door.credentials.for_api().ok_or_else(none)?).await?;
    let who = match line.certificates() {
        None => Who::Nobody,
        Some(certificates) => match door.credentials.judge(Some(certificates)) {
            Some(Peer::Identity(key, record)) => Who::Identity(key, record),
            Some(Peer::Trusted | Peer::Server(_)) | None => Who::Nobody,
        },
    };
    Ok((line, who))
}

async fn serve(
    stream: Line<TcpStream>,
    (caller, who): (Option<Caller>, Who),
    router: Router,
    guest: Arc<Guest>,
    stopping: watch::Receiver<bool>,
) {
    let answering = TowerToHyperService::new(router);
    let service = hyper::service::service_fn(|mut request: hyper::Request<Incoming>| {
        caller.clone().map(|caller| request.extensions_mut().insert(caller));
        request.extensions_mut().insert(who.clone());
        guest.is_served.store(true, Ordering::Relaxed);
        let (answer, guest) = (answering.call(request), &guest);
        async move {
            let answer = answer.await;
            let is_refused = |status| matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
            let is_known = answer
                .as_ref()
                .is_ok_and(|answer| !is_refused(answer.status()) && !console::is_of_console(answer.extensions()));
            guest.is_known.fetch_or(is_known, Ordering::Relaxed);
            guest.is_served.store(false, Ordering::Relaxed);
            answer
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_buf_size(LONGEST_HEAD)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = stop_asked(stopping) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = guest.sent_off.notified() => {
            tracing::debug!("an API connection without a token made room for another");
            return;
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "API connection broken off");
    }
}
