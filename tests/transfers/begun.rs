//! Commands that are killed when their volume was just made, and nothing more.

use super::rbd::{nights, stream};
use super::{MIB, Piped, bytes};
use crate::cluster::{Cluster, Plan};
use crate::nbd::noise;
use crate::program;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Passes on what a command and the server say to each other, but for the answer that a volume was made, and what would follow.
struct Relay {
    address: String,
    /// Told once the volume is made.
    made: Receiver<()>,
}

impl Relay {
    fn to(cluster: &Cluster) -> Relay {
        let addresses = std::fs::read(cluster.data().join("addresses.json")).expect("the server's addresses");
        let addresses: Value = serde_json::from_slice(&addresses).expect("JSON");
        let server = addresses["api"].as_str().expect("an address").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let address = listener.local_addr().expect("it listens").to_string();
        let (tell, made) = channel();
        std::thread::spawn(move || {
            for caller in listener.incoming() {
                pass_on(caller.expect("a caller"), TcpStream::connect(&server).expect("it listens"), tell.clone());
            }
        });
        Relay { address, made }
    }
}

fn pass_on(caller: TcpStream, server: TcpStream, made: Sender<()>) {
    let makes = Arc::new(AtomicBool::new(false));
    let ends =
        |from: &TcpStream, to: &TcpStream| (from.try_clone().expect("sockets"), to.try_clone().expect("sockets"));
    let ((from, to), (back_from, back_to), asked) = (ends(&caller, &server), ends(&server, &caller), makes.clone());
    std::thread::spawn(move || {
        each(from, to, |said| {
            asked.fetch_or(said.starts_with(b"POST /v1/volumes HTTP"), Ordering::SeqCst);
            true
        });
    });
    std::thread::spawn(move || {
        each(back_from, back_to, |_| {
            let is_of_this = makes.load(Ordering::SeqCst);
            if is_of_this {
                let _ = made.send(());
            }
            !is_of_this
        });
    });
}

/// Passes pieces on as long as that is wanted. What isn't passed on any more is waited for in vain.
fn each(mut from: TcpStream, mut to: TcpStream, is_wanted: impl Fn(&[u8]) -> bool) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        if !is_wanted(&piece[..length]) {
            return;
        }
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn of_volume(cluster: &Cluster, arguments: &[&str], relay: Option<&Relay>) -> Piped {
    let mut command = cluster.command();
    if let Some(relay) = relay {
        command.args(["--cluster", &relay.address]);
    }
    command.arg("volume").args(arguments);
    Piped::of(command)
}

/// What begins, its input, and what holds what of that in the end.
type Case<'a> = (&'a [&'a str], Vec<u8>, &'a str, Vec<u8>);

/// Story: an import was killed just after it had made its volume. That was whole by what everybody said, had nothing but zeros, and
/// `--resume` refused it.
#[test]
fn a_volume_just_made_by_a_killed_command_is_incomplete_and_goes_on() {
    let (here, there) = (Plan::default().up(), Plan::default().up());
    let image = noise(1, 8 * MIB);
    here.create("z", "8M", "mirror:2");
    super::fill(&mut here.connect("z"), &image);
    here.tepal(&["snapshot", "create", "z@a"]).succeeded();
    let (sent, _) = of_volume(&here, &["send", "z"], None).end().succeeded();
    let last_night = nights().pop().expect("some").1;
    let cases: [Case<'_>; 3] = [
        (&["import", "v", "--size", "8M"], image.clone(), "v", image.clone()),
        (&["import", "v"], stream("nights.image"), "v@fri", last_night),
        (&["receive", "v"], sent, "v@a", image),
    ];
    for (arguments, input, name, expected) in cases {
        let relay = Relay::to(&there);
        let mut import = of_volume(&there, arguments, Some(&relay));
        import.feed(&input[..MIB.min(input.len())]).expect("it reads on");
        relay.made.recv_timeout(program::LIMIT).expect("the volume is made");
        import.kill();
        assert!(!there.volume("v")["incomplete"].is_null(), "{arguments:?}");
        let error = of_volume(&there, &["export", "v"], None).end().failed();
        assert!(error.contains("is incomplete"), "{arguments:?}: {error}");
        let mut import = of_volume(&there, &[&arguments[..2], &["--resume"]].concat(), None);
        import.feed(&input).expect("it reads on");
        import.end().succeeded();
        assert!(bytes(&there, name) == expected, "{arguments:?}");
        assert!(there.volume("v")["incomplete"].is_null(), "{arguments:?}");
        there.tepal(&["volume", "rm", "v", "--snapshots"]).succeeded();
    }
}
