//! A link to a server's API: what goes over it is counted, late, kept to a rate, or cut off.

use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Pieces that are on their way in one direction of one connection.
const ON_THE_WAY: usize = 256;

pub struct Link {
    /// Where callers reach it.
    pub address: String,
    shared: Arc<Shared>,
}

struct Shared {
    data: PathBuf,
    bytes: AtomicU64,
    is_cut: AtomicBool,
    /// Milliseconds in each direction.
    delay: AtomicU64,
    /// Bytes a second in each direction; 0 for as many as there's time for.
    rate: AtomicU64,
    /// When everything so far has gone, by direction.
    free: [Mutex<Option<Instant>>; 2],
    open: Mutex<Vec<TcpStream>>,
}

impl Link {
    /// To the server with this data folder, at whatever port that listens.
    pub fn to(data: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("bound").to_string();
        let shared = Arc::new(Shared {
            data: data.to_owned(),
            bytes: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            delay: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            free: Default::default(),
            open: Mutex::default(),
        });
        let serving = shared.clone();
        std::thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let link = serving.clone();
                std::thread::spawn(move || link.carry(caller));
            }
        });
        Link { address, shared }
    }

    /// In both directions, so far.
    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    pub fn slow(&self, delay: Duration, rate: u64) {
        self.shared.delay.store(delay.as_millis() as u64, Ordering::Relaxed);
        self.shared.rate.store(rate, Ordering::Relaxed);
    }

    /// All connections end, and nobody gets another one until it's mended.
    pub fn cut(&self) {
        self.shared.is_cut.store(true, Ordering::Relaxed);
        let open = std::mem::take(&mut *self.shared.open.lock().expect("no panic"));
        open.iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    pub fn mend(&self) {
        self.shared.is_cut.store(false, Ordering::Relaxed);
    }
}

impl Shared {
    fn carry(self: Arc<Self>, caller: TcpStream) {
        if self.is_cut.load(Ordering::Relaxed) {
            return;
        }
        let Some(server) = self.dial() else { return };
        let _ = (caller.set_nodelay(true), server.set_nodelay(true));
        let ends = [&caller, &server].map(|stream| stream.try_clone());
        self.open.lock().expect("no panic").extend(ends.into_iter().flatten());
        let (Ok(from), Ok(to)) = (server.try_clone(), caller.try_clone()) else { return };
        let back = self.clone();
        let answering = std::thread::spawn(move || back.pass(from, to, 1));
        self.pass(caller, server, 0);
        let _ = answering.join();
    }

    fn dial(&self) -> Option<TcpStream> {
        let addresses = std::fs::read(self.data.join("addresses.json")).ok()?;
        let addresses: Value = serde_json::from_slice(&addresses).ok()?;
        TcpStream::connect(addresses["api"].as_str()?).ok()
    }

    /// One direction of one connection, to its end.
    fn pass(&self, mut from: TcpStream, mut to: TcpStream, direction: usize) {
        let (give, take) = sync_channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                while let Ok((due, piece)) = take.recv() {
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                    if to.write_all(&piece).is_err() {
                        break;
                    }
                }
                let _ = to.shutdown(Shutdown::Write);
            });
            let mut buffer = vec![0; 64 << 10];
            while let Ok(length @ 1..) = from.read(&mut buffer) {
                self.bytes.fetch_add(length as u64, Ordering::Relaxed);
                let due = self.gone(length, direction) + Duration::from_millis(self.delay.load(Ordering::Relaxed));
                if give.send((due, buffer[..length].to_vec())).is_err() {
                    break;
                }
            }
            drop(give);
        });
    }

    /// When this much has gone, behind all that came before; the link takes no more until then.
    fn gone(&self, length: usize, direction: usize) -> Instant {
        let (now, rate) = (Instant::now(), self.rate.load(Ordering::Relaxed));
        if rate == 0 {
            return now;
        }
        let gone = {
            let mut free = self.free[direction].lock().expect("no panic");
            let gone = free.map_or(now, |free| free.max(now)) + Duration::from_secs_f64(length as f64 / rate as f64);
            *free = Some(gone);
            gone
        };
        std::thread::sleep(gone.saturating_duration_since(Instant::now()));
        gone
    }
}
