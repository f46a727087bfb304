//! Binding, accepting, and leaving nothing behind.

use super::super::{
    Admission, BindError, Endpoint, Limits, Listener, Protection, accept_connections, serve_accepted, stop_signal,
    wire::option,
};
use super::client::{Client, name_and};
use super::disk::{TestDisk, TestExports, patterns};
use super::run;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpStream, UnixStream};

/// A directory of its own, gone when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tepal-nbd-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Directory(path)
    }

    fn socket(&self) -> Endpoint {
        Endpoint::Unix(self.0.join("nbd.sock"))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

#[test]
fn addresses_read_as_people_write_them() {
    for text in ["unix:/run/tepal/nbd.sock", "unix:nbd.sock", "127.0.0.1:10809", "[::1]:0"] {
        assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
    }
    for text in ["", "unix:", "/run/nbd.sock", "localhost:10809", "127.0.0.1", "127.0.0.1:99999", ":10809"] {
        assert!(text.parse::<Endpoint>().is_err(), "{text}");
    }
}

#[test]
fn a_socket_is_its_owners_alone_and_goes_with_the_listener() {
    run(async {
        let directory = Directory::new();
        let path = directory.0.join("nbd.sock");
        let listener = Listener::bind(&directory.socket()).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(listener);
        assert!(!path.exists());
    });
}

#[test]
fn a_socket_in_use_and_a_file_that_is_none_are_left_alone_and_a_dead_socket_is_replaced() {
    run(async {
        let directory = Directory::new();
        let path = directory.0.join("nbd.sock");
        let listener = Listener::bind(&directory.socket()).await.unwrap();
        assert!(matches!(Listener::bind(&directory.socket()).await, Err(BindError::InUse(_))));
        assert!(UnixStream::connect(&path).await.is_ok(), "the first is not disturbed");
        drop(listener);

        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind, as by a process that was killed");
        let listener = Listener::bind(&directory.socket()).await.unwrap();
        assert!(UnixStream::connect(&path).await.is_ok());

        // Another has taken the place: not ours to remove.
        fs::remove_file(&path).unwrap();
        let other = Listener::bind(&directory.socket()).await.unwrap();
        drop(listener);
        assert!(UnixStream::connect(&path).await.is_ok());
        drop(other);

        fs::write(&path, "precious").unwrap();
        assert!(matches!(Listener::bind(&directory.socket()).await, Err(BindError::NotASocket(_))));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let nowhere = Endpoint::Unix(directory.0.join("no/such/place"));
        assert!(matches!(Listener::bind(&nowhere).await, Err(BindError::Failed { .. })));
    });
}

#[test]
fn clients_are_served_by_path_and_by_address_until_the_stop() {
    run(async {
        let directory = Directory::new();
        let exports = TestExports::of(&[("v0", &TestDisk::patterned(4096))]);
        let (stopper, stop) = stop_signal();
        let admission = Admission::new(Limits { connections: 2, ..Limits::default() });
        let endpoints = [directory.socket(), Endpoint::Tcp("127.0.0.1:0".parse().unwrap())];
        let mut accepting = Vec::new();
        let mut bound = Vec::new();
        for endpoint in &endpoints {
            let listener = Listener::bind(endpoint).await.unwrap();
            bound.push(listener.endpoint().unwrap());
            let (admission, exports, stop) = (admission.clone(), exports.clone(), stop.clone());
            accepting.push(tokio::task::spawn_local(async move {
                accept_connections(&listener, &admission, stop.clone(), |accepted, permit| {
                    let (exports, stop) = (exports.clone(), stop.clone());
                    tokio::task::spawn_local(async move {
                        serve_accepted(accepted, &exports, permit, stop, &Protection::default()).await
                    });
                })
                .await;
            }));
        }
        let [Endpoint::Unix(path), Endpoint::Tcp(address)] = &bound[..] else { panic!("{bound:?}") };
        let mut client = Client::new(UnixStream::connect(path).await.unwrap());
        client.greet().await;
        client.option(option::GO, &name_and("v0", &[0, 0])).await;
        assert_eq!(client.read(1, 100, 50).await.unwrap(), patterns(100, 50));

        let mut over_tcp = TcpStream::connect(address).await.unwrap();
        let mut greeting = [0; 18];
        over_tcp.read_exact(&mut greeting).await.unwrap();
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");

        let mut third = Client::new(UnixStream::connect(path).await.unwrap());
        assert!(third.rest().await.is_empty(), "one too many");

        stopper.stop();
        assert!(client.rest().await.is_empty());
        assert_eq!(over_tcp.read(&mut greeting).await.unwrap(), 0);
        for task in accepting {
            task.await.unwrap();
        }
        assert!(!path.exists());
        assert_eq!(admission.connections(), 0);
    });
}
