use super::rig::*;
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use tepal_engine::Peers;
use tepal_model::BLOCK;
use tepal_wire::message::{Answer, DriveAnswer};

const WRITTEN: Answer = Answer::Drive(DriveAnswer::Written);
const WRITES: u64 = 120;

/// Connections end at any byte, in any direction, over and over.
#[tokio::test(flavor = "current_thread")]
async fn through_any_number_of_cut_connections_all_is_carried_out_once_in_order_and_answered() {
    for seed in 1..=2 {
        all_is_answered_through(Harm::Cut, seed).await;
    }
}

/// Of headers, messages and data, on the way there and on the way back.
#[tokio::test(flavor = "current_thread")]
async fn of_bits_that_are_changed_on_their_way_nobody_notices_anything() {
    for seed in 21..=24 {
        all_is_answered_through(Harm::Flip, seed).await;
    }
}

async fn all_is_answered_through(harm: Harm, seed: u64) {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, Some((harm, 400_000)), seed);
    let asker = Asker::to(&proxy.address);
    let links = asker.links.clone();
    let all = asker.threads.run_on(0, move || async move {
        let mut draw = Draw(seed);
        let (mut asked, mut read_back) = (Vec::new(), Vec::new());
        for number in 0..WRITES {
            asked.push(links.ask(ANSWERS, write(number, 1 + draw.next(20))));
            if draw.next(4) == 0 {
                read_back.push(links.ask(ANSWERS, read(1, 1)));
            }
            if draw.next(20) == 0 {
                tokio::task::yield_now().await;
            }
        }
        let answers = futures_util::future::join_all(asked).await;
        for reply in futures_util::future::join_all(read_back).await {
            let (data, _) = reply.expect("it's answered").payload.into_parts();
            assert_eq!(data.concat(), [0; BLOCK as usize], "seed {seed}");
        }
        answers.iter().filter(|reply| reply.as_ref().is_ok_and(|reply| reply.answer == WRITTEN)).count()
    });
    assert_eq!(within(all).await.expect("the thread runs") as u64, WRITES, "seed {seed}");
    assert_eq!(server.recorder.begun(), (0..WRITES).collect::<Vec<_>>(), "seed {seed}");
    assert_eq!(server.recorder.damaged.load(Ordering::Relaxed), 0, "seed {seed}");
    assert!(proxy.connections.load(Ordering::SeqCst) > 10, "seed {seed}: there were cuts");
}

/// What was asked on a connection that is gone is answered on the next, which may be on another thread.
#[tokio::test(flavor = "current_thread")]
async fn what_is_under_way_when_its_connection_ends_is_finished_and_answered_on_the_next() {
    let server = Server::start(&socket(), 1).await;
    let proxy = Proxy::start(&server.address, None, 1);
    let asker = Asker::to(&proxy.address);
    let mut held = Vec::new();
    for number in 0..20 {
        held.push(asker.begin(write(Recorder::HELD + number, 1)).await);
        until(|| server.recorder.begun().len() as u64 == 2 * number + 1).await;
        proxy.cut();
        assert_eq!(asker.ask(1, write(number, 1)).await.expect("it's answered").answer, WRITTEN);
    }
    server.recorder.let_go();
    for asked in held {
        assert_eq!(asked.await.expect("it's answered").answer, WRITTEN);
    }
    let begun = server.recorder.begun();
    assert_eq!(begun.iter().collect::<BTreeSet<_>>().len(), begun.len(), "nothing was done twice");
    assert!(proxy.connections.load(Ordering::SeqCst) > 20);
}

/// Story: while connections were cut, the server was killed and started again. Each write is done at most once by each run, and
/// those that were answered by one.
#[tokio::test(flavor = "current_thread")]
async fn a_server_that_is_killed_among_cuts_does_nothing_twice() {
    for seed in 11..=13 {
        let place = socket();
        let server = Server::start(&place, 1).await;
        let proxy = Proxy::start(&server.address, Some((Harm::Cut, 1_000_000)), seed);
        let asker = Asker::to(&proxy.address);
        let links = asker.links.clone();
        let all = asker.threads.run_on(0, move || async move {
            let mut answered = Vec::new();
            for round in 0..40 {
                let asked = (0..10).map(|n| links.ask(ANSWERS, write(round * 10 + n, 8)));
                let outcomes = futures_util::future::join_all(asked.collect::<Vec<_>>()).await;
                let numbers = (round * 10..).zip(outcomes);
                answered.extend(numbers.filter_map(|(number, outcome)| outcome.is_ok().then_some(number)));
            }
            answered
        });
        let restarts = async {
            until(|| server.recorder.begun().len() > 100).await;
            let first = server.kill();
            (first, Server::start(&place, 2).await)
        };
        let (answered, (first, second)) = within(async { tokio::join!(all, restarts) }).await;
        let (answered, mut begun) = (answered.expect("the thread runs"), first.begun());
        begun.extend(second.recorder.begun());
        assert!(begun.is_sorted_by(|one, next| one < next), "seed {seed}: in order, and nothing twice");
        let begun: BTreeSet<u64> = begun.into_iter().collect();
        assert!(answered.iter().all(|number| begun.contains(number)), "seed {seed}");
        assert!(answered.len() > 300, "seed {seed}");
    }
}
