//! Connections over which nothing comes any more, though nobody closed them.

use super::rig::*;
use futures_util::FutureExt;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tepal_engine::Peers;
use tepal_wire::message::{Answer, DriveAnswer};

const WRITTEN: Answer = Answer::Drive(DriveAnswer::Written);

/// Story: a switch forgot the connections that went through it. What was asked over them waited for an answer for ever.
#[tokio::test(flavor = "current_thread")]
async fn a_connection_over_which_nothing_comes_is_replaced_and_all_is_answered_over_the_next() {
    for traffic in [Traffic::NothingThere, Traffic::NothingBack] {
        let server = Server::start(&socket(), 1).await;
        let proxy = Proxy::start(&server.address, None, 1);
        let asker = Asker::impatient(&proxy.address);
        assert!(asker.ask(0, write(1, 1)).await.is_ok());
        proxy.set(traffic);
        let silenced = asker.begin(write(2, 1)).await;
        // Long enough for the connection to be found dead, and too short for the server to be given up.
        tokio::time::sleep(Duration::from_millis(600)).await;
        proxy.set(Traffic::Flows);
        assert_eq!(silenced.await.expect("it's answered").answer, WRITTEN, "{traffic:?}");
        assert_eq!(server.recorder.begun(), [1, 2], "{traffic:?}");
        assert!(proxy.connections.load(Ordering::SeqCst) > 1, "{traffic:?}: another connection was made");
        assert!(asker.links.cut_off().is_empty());
    }
}

/// However long a drive takes: its server answers pings meanwhile.
#[tokio::test(flavor = "current_thread")]
async fn a_slow_answer_is_waited_for_over_the_same_connection() {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, None, 1);
    let asker = Asker::impatient(&proxy.address);
    let held = asker.begin(write(Recorder::HELD, 1)).await;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    server.recorder.let_go();
    assert_eq!(held.await.expect("it's answered").answer, WRITTEN);
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 1);
}

/// A ping waits behind what is sent, and nothing is answered before all of that is there.
#[tokio::test(flavor = "current_thread")]
async fn a_long_request_over_a_slow_way_is_no_silence() {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, None, 1);
    let asker = Asker::impatient(&proxy.address);
    assert!(asker.ask(0, write(1, 1)).await.is_ok());
    proxy.set(Traffic::Crawls);
    let begin = std::time::Instant::now();
    assert!(asker.ask(0, write(2, 4096)).await.is_ok());
    assert!(begin.elapsed() > Duration::from_millis(600), "it took {:?}", begin.elapsed());
    assert_eq!(proxy.connections.load(Ordering::SeqCst), 1);
}

/// Story: two servers couldn't reach each other, and both reached the others, so that neither was declared down. What one had asked
/// of drives of the other waited as long as that lasted, and so did all writes.
#[tokio::test(flavor = "current_thread")]
async fn who_asks_drives_of_a_server_that_is_up_and_cannot_be_reached_is_told_and_asks_of_volumes_wait() {
    for traffic in [Traffic::NothingThere, Traffic::NothingBack, Traffic::Nothing] {
        let server = Server::start(&socket(), 1).await;
        let proxy = Proxy::start(&server.address, None, 1);
        let asker = Asker::impatient(&proxy.address);
        assert!(asker.ask(0, write(1, 1)).await.is_ok());
        proxy.set(traffic);
        let waits = asker.begin(flush_volume()).await;
        let told = asker.ask(0, write(2, 1)).await.expect_err("nobody is there");
        assert!(told.is_cut_off && told.was_sent, "{told:?}");
        assert_eq!(told.to_string(), "s1 is up, but can't be reached from here");
        assert!(asker.links.cut_off().contains(&ANSWERS));
        let now = asker.links.ask(ANSWERS, write(3, 1)).now_or_never().expect("at once").expect_err("nobody is there");
        assert!(now.is_cut_off && !now.was_sent, "{now:?}");
        proxy.set(Traffic::Flows);
        assert!(waits.await.is_ok(), "volumes are where they are");
        until(|| asker.links.cut_off().is_empty()).await;
        assert_eq!(asker.ask(0, write(4, 1)).await.expect("it's reached again").answer, WRITTEN);
        let begun = server.recorder.begun();
        assert!(begun == [1, 4] || begun == [1, 2, 4], "{begun:?}: only what was on its way is carried out later");
    }
}

/// A server that isn't there at all.
#[tokio::test(flavor = "current_thread")]
async fn who_cannot_connect_is_told_too_and_not_before_it_took_long() {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, None, 1);
    proxy.close(true);
    let asker = Asker::impatient(&proxy.address);
    let begin = std::time::Instant::now();
    let told = asker.ask(0, write(2, 1)).await.expect_err("nobody is there");
    assert!(told.is_cut_off && !told.was_sent, "{told:?}");
    assert!(begin.elapsed() >= Duration::from_secs(1));
    proxy.close(false);
    until(|| asker.links.cut_off().is_empty()).await;
    assert!(asker.ask(0, write(4, 1)).await.is_ok());
    assert_eq!(server.recorder.begun(), [4]);
}

/// What is agreed comes first.
#[tokio::test(flavor = "current_thread")]
async fn a_server_that_was_cut_off_and_is_down_is_said_to_be_down() {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, None, 1);
    proxy.set(Traffic::Nothing);
    let asker = Asker::impatient(&proxy.address);
    assert!(asker.ask(0, write(1, 1)).await.expect_err("nobody is there").is_cut_off);
    asker.links.set_down(ANSWERS);
    assert!(asker.links.cut_off().is_empty());
    let told = asker.ask(0, write(1, 1)).await.expect_err("it's down");
    assert!(!told.is_cut_off && !told.was_sent, "{told:?}");
}
