use super::rig::*;
use crate::data_links::Lane;
use futures_util::FutureExt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use tepal_engine::{Peers, Unreachable};
use tepal_model::{BLOCK, ServerId};
use tepal_wire::handshake::{ClientId, Sender};
use tepal_wire::message::{Answer, DriveAnswer, VolumeAnswer};

const WRITTEN: Answer = Answer::Drive(DriveAnswer::Written);

fn why(outcome: Result<tepal_engine::Reply, Unreachable>) -> String {
    outcome.expect_err("it's not answered").to_string()
}

#[tokio::test(flavor = "current_thread")]
async fn what_two_threads_ask_arrives_in_the_order_of_the_calls_over_tcp_and_unix_sockets() {
    for place in [socket(), tcp()] {
        let server = Server::start(&place, 1).await;
        let asker = Asker::to(&server.address);
        let numbers = Arc::new(Mutex::new(0));
        let ask_many = |thread| {
            let (links, numbers) = (asker.links.clone(), numbers.clone());
            asker.threads.run_on(thread, move || async move {
                for _ in 0..500 {
                    let asked = {
                        let mut number = numbers.lock().unwrap_or_else(PoisonError::into_inner);
                        *number += 1;
                        // Many blocks now and then, so that sockets are full.
                        let blocks = if *number % 50 == 0 { 64 } else { 1 };
                        let asked = links.ask(ANSWERS, write(*number, blocks));
                        (*number % 3 == 0).then_some(asked) // who doesn't wait doesn't take it back
                    };
                    if let Some(asked) = asked {
                        assert_eq!(asked.await.expect("it's answered").answer, WRITTEN);
                    }
                }
            })
        };
        let (one, other) = within(async { tokio::join!(ask_many(0), ask_many(1)) }).await;
        assert!(one.is_ok() && other.is_ok());
        until(|| server.recorder.begun().len() == 1000).await;
        assert_eq!(server.recorder.begun(), (1..=1000).collect::<Vec<u64>>());
    }
}

#[tokio::test(flavor = "current_thread")]
async fn answers_bring_their_data_and_each_lane_has_its_own_line() {
    let server = Server::start(&socket(), 1).await;
    let asker = Asker::to(&server.address);
    let held = asker.begin(write(Recorder::HELD, 1)).await;
    let reply = asker.ask(1, read(7, 100)).await.expect("it's answered");
    assert_eq!(reply.payload.length(), 100 * BLOCK);
    let reply = asker.ask(0, flush_volume()).await.expect("it's answered");
    assert_eq!(reply.answer, Answer::Volume(VolumeAnswer::Flushed));
    server.recorder.let_go();
    assert_eq!(held.await.expect("it's answered").answer, WRITTEN);
    assert!(why(asker.links.ask(ANSWERS, metadata()).await).contains("not by this caller"));
}

fn metadata() -> tepal_engine::Question {
    tepal_engine::Question { request: tepal_wire::message::Request::Metadata, ..read(1, 1) }
}

#[tokio::test(flavor = "current_thread")]
async fn a_gateway_without_a_server_uses_volumes_and_no_drives() {
    let server = Server::start(&socket(), 1).await;
    let asker = Asker::new(Sender::Client { client: ClientId(5) });
    asker.links.set_up(ANSWERS, &server.address, &asker.threads);
    assert!(asker.ask(0, flush_volume()).await.is_ok());
    assert!(why(asker.ask(0, write(1, 1)).await).contains("not by this caller"));
    assert_eq!(server.recorder.volumes.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn whoever_is_not_spoken_of_yet_is_waited_for_and_whoever_is_down_is_not() {
    let server = Server::start(&socket(), 1).await;
    let asker = Asker::new(ASKER);
    let early = asker.begin(write(1, 1)).await;
    asker.links.set_up(ANSWERS, &server.address, &asker.threads);
    assert_eq!(early.await.expect("it's answered").answer, WRITTEN);
    let held = asker.begin(write(Recorder::HELD, 1)).await;
    until(|| server.recorder.begun().len() == 2).await;
    asker.links.set_down(ANSWERS);
    assert_eq!(why(held.await), "s1 is down");
    assert_eq!(why(asker.ask(1, write(3, 1)).await), "s1 is down");
    assert_eq!(why(asker.ask(1, flush_volume()).await), "s1 is down");
    asker.links.set_up(ANSWERS, &server.address, &asker.threads);
    assert_eq!(asker.ask(1, write(4, 1)).await.expect("it's up again").answer, WRITTEN);
    asker.links.stop();
    assert_eq!(why(asker.ask(0, write(5, 1)).await), "this server is being stopped");
    let nobody = asker.links.ask(ServerId(77), write(6, 1)).now_or_never();
    assert_eq!(why(nobody.expect("at once")), "this server is being stopped");
    assert_eq!(server.recorder.begun(), [1, Recorder::HELD, 4]);
}

/// Story: a server was declared down while a write to it waited for a connection. It must not change anything once it's back: its
/// gateway has asked another primary meanwhile.
#[tokio::test(flavor = "current_thread")]
async fn what_nobody_waits_for_any_more_is_not_carried_out_later() {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, None, 1);
    let asker = Asker::to(&proxy.address);
    let held = asker.begin(write(Recorder::HELD, 1)).await;
    until(|| server.recorder.begun().len() == 1).await;
    proxy.close(true);
    let waits = asker.begin(write(2, 1)).await;
    asker.links.set_down(ANSWERS);
    assert_eq!((why(held.await), why(waits.await)), ("s1 is down".to_owned(), "s1 is down".to_owned()));
    proxy.close(false);
    asker.links.set_up(ANSWERS, &proxy.address, &asker.threads);
    assert_eq!(asker.ask(0, write(3, 1)).await.expect("it's up again").answer, WRITTEN);
    server.recorder.let_go();
    assert_eq!(asker.ask(0, write(4, 1)).await.expect("it's up").answer, WRITTEN);
    assert_eq!(server.recorder.begun(), [Recorder::HELD, 3, 4]);
}

/// Story: a client was gone while its gateway couldn't reach the primary, and came back by another gateway. Minutes later, when the
/// first gateway reached the primary again, what the client had asked there first was carried out over what it had written since.
#[tokio::test(flavor = "current_thread")]
async fn what_is_asked_of_volumes_goes_with_who_asked() {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, None, 1);
    let asker = Asker::to(&proxy.address);
    proxy.close(true);
    let links = asker.links.clone();
    let leaves = asker.threads.run_on(0, move || async move { drop(links.ask(ANSWERS, flush_volume())) });
    leaves.await.expect("the thread runs");
    let stays = asker.begin(flush_volume()).await;
    proxy.close(false);
    assert!(within(stays).await.is_ok());
    assert_eq!(server.recorder.volumes.load(Ordering::Relaxed), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn of_a_server_that_was_started_again_only_what_was_not_sent_is_asked() {
    let place = socket();
    let server = Server::start(&place, 1).await;
    let asker = Asker::to(&server.address);
    // Two fill the window, and a third waits in line.
    let blocks = (Lane::Drives.grant().bytes / 2 / BLOCK - 1) as u32;
    let mut asked = Vec::new();
    for number in 0..3 {
        asked.push(asker.begin(read(Recorder::HELD + number, blocks)).await);
    }
    let written = asker.begin(write(9, 1)).await;
    until(|| server.recorder.begun().len() == 2).await;
    server.kill();
    let again = Server::start(&place, 2).await;
    let third = asked.pop().expect("three were asked");
    for sent in asked {
        assert!(why(sent.await).contains("was started again"));
    }
    again.recorder.let_go();
    assert_eq!(third.await.expect("the new run answers").payload.length(), u64::from(blocks) * BLOCK);
    assert_eq!(written.await.expect("the new run answers").answer, WRITTEN);
    assert_eq!(again.recorder.begun(), [Recorder::HELD + 2, 9]);
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_reads_nothing_holds_up_nobody_who_asks_others() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("s");
    // It accepts by the kernel's queue alone.
    let _deaf = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let asker = Asker::new(ASKER);
    asker.links.set_up(ServerId(8), &format!("unix:{}", path.display()), &asker.threads);
    let links = asker.links.clone();
    let asked = asker.threads.run_on(0, move || async move {
        for number in 0..300 {
            drop(links.ask(ServerId(8), write(number, 16)));
        }
    });
    within(asked).await.expect("the thread runs");
    let server = Server::start(&socket(), 1).await;
    asker.links.set_up(ANSWERS, &server.address, &asker.threads);
    for thread in [0, 1, 0, 1] {
        assert_eq!(asker.ask(thread, write(1, 1)).await.expect("it's answered").answer, WRITTEN);
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_that_stops_finishes_what_is_under_way_and_is_found_elsewhere() {
    let server = Server::start(&socket(), 1).await;
    let asker = Asker::to(&server.address);
    let held = asker.begin(write(Recorder::HELD, 1)).await;
    until(|| server.recorder.begun().len() == 1).await;
    let (reception, recorder) = (server.reception.clone(), server.recorder.clone());
    let mut closing = Box::pin(reception.close());
    assert!((&mut closing).now_or_never().is_none(), "something is under way");
    let late = asker.begin(write(2, 1)).await;
    recorder.let_go();
    assert_eq!(held.await.expect("it's finished").answer, WRITTEN);
    within(closing).await;
    assert_eq!(recorder.begun(), [Recorder::HELD], "nothing more is begun");
    let other = Server::start(&socket(), 2).await;
    asker.links.set_up(ANSWERS, &other.address, &asker.threads);
    // It was sent to the first run, or wasn't.
    match late.await {
        Ok(reply) => assert_eq!((reply.answer, other.recorder.begun()), (WRITTEN, vec![2])),
        Err(why) => assert!(why.to_string().contains("was started again")),
    }
}

#[test]
fn idle_links_wake_nobody() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = Server::start(&socket(), 1).await;
        let asker = Asker::to(&server.address);
        for thread in [0, 1] {
            assert!(asker.ask(thread, write(1, 1)).await.is_ok());
            assert!(asker.ask(thread, flush_volume()).await.is_ok());
        }
        for threads in [&asker.threads, &server.threads] {
            for thread in [0, 1] {
                let id = threads.run_on(thread, || async { rustix::thread::gettid() }).await.expect("the thread runs");
                crate::idle::assert_sleeps(id.as_raw_nonzero().get());
            }
        }
    });
}
