//! The asker's line and the answerer's sessions over a network of bytes that is cut anywhere: no sockets, no threads.

use super::rig::{CLUSTER, Draw, write};
use crate::data_links::Lane;
use crate::data_links::line::{Line, PARCEL, Told, Waits};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use tepal_model::{BLOCK, ServerId};
use tepal_wire::handshake::{Grant, Hello, Host, Role, Sender};
use tepal_wire::message::{Answer, DriveAnswer, DriveOperation, DriveRequest, Message, Request};
use tepal_wire::session::{Admission, Arrival, Pass, Visitors};
use tepal_wire::{Header, Inbox, Limits, Outbox, Payload};

const GRANT: Grant = Grant { requests: 4, bytes: 30_000 };

/// One direction of a connection.
struct Pipe {
    inbox: Inbox,
    bytes: Vec<u8>,
}

impl Pipe {
    fn new() -> Pipe {
        let mut inbox = Inbox::new();
        inbox.set_limits(Limits::OPEN);
        Pipe { inbox, bytes: Vec::new() }
    }

    fn take(&mut self, outbox: &mut Outbox) {
        let before = self.bytes.len();
        while outbox.pending() > 0 {
            let count = self.bytes.len();
            outbox.slices().iter().for_each(|slice| self.bytes.extend_from_slice(slice));
            outbox.sent(self.bytes.len() - count);
        }
        assert!(self.bytes.len() - before < 1 << 20, "no more than the window is on its way");
    }

    /// So many bytes arrive: the messages that are whole then.
    fn arrive(&mut self, count: usize) -> Vec<(Header, Message, Payload)> {
        let (mut bytes, mut messages) =
            (self.bytes.drain(..count.min(self.bytes.len())).collect::<Vec<u8>>(), Vec::new());
        loop {
            let taken = self.inbox.receive(&bytes);
            bytes.drain(..taken);
            while let Some(frame) = self.inbox.next().expect("nothing is changed on its way") {
                let message = Message::decode(&frame).expect("it makes sense");
                messages.push((frame.header, message, frame.payload));
            }
            if bytes.is_empty() {
                return messages;
            }
        }
    }
}

/// Which request, and those that nobody waits for.
struct Waiter(u64, Rc<RefCell<BTreeSet<u64>>>);

impl Waits for Waiter {
    fn has_left(&self) -> bool {
        self.1.borrow().contains(&self.0)
    }
}

struct Run {
    lane: Lane,
    line: Line<Waiter>,
    visitors: Visitors<Answer>,
    boot: u64,
    connection: Option<Connection>,
    asked: u64,
    /// Whose waiters were told, and whether they have their answer.
    told: BTreeSet<u64>,
    answered: BTreeSet<u64>,
    /// Of which was said that nobody has heard them.
    unsent: BTreeSet<u64>,
    /// In order, by all runs of the server.
    begun: Vec<u64>,
    under_way: Vec<(Pass, Header, u64)>,
    /// Those up to this one were given up, and no connection of then is left.
    dead: u64,
    /// Those who left without a word; and those of them who had left before the connection of now was made.
    left: Rc<RefCell<BTreeSet<u64>>>,
    had_left: BTreeSet<u64>,
}

struct Connection {
    pass: Pass,
    epoch: u64,
    outbox: Outbox,
    there: Pipe,
    answers: Outbox,
    back: Pipe,
}

impl Run {
    fn new(lane: Lane) -> Run {
        Run {
            lane,
            line: Line::new(lane),
            visitors: Visitors::new(GRANT, 4),
            boot: 1,
            connection: None,
            asked: 0,
            told: BTreeSet::new(),
            answered: BTreeSet::new(),
            unsent: BTreeSet::new(),
            begun: Vec::new(),
            under_way: Vec::new(),
            dead: 0,
            left: Rc::default(),
            had_left: BTreeSet::new(),
        }
    }

    fn ask(&mut self, blocks: u64) {
        self.asked += 1;
        let outbox = &mut Outbox::new();
        let outbox = self.connection.as_mut().map_or(outbox, |connection| &mut connection.outbox);
        self.line.ask(write(self.asked, blocks), Waiter(self.asked, self.left.clone()), outbox);
    }

    /// Nobody waits any more for one of the last few.
    fn leave(&mut self, back: u64) {
        let number = self.asked.saturating_sub(back);
        if number > 0 && !self.told.contains(&number) {
            self.left.borrow_mut().insert(number);
        }
    }

    fn told_in_vain(&mut self, told: Vec<Told<Waiter>>) {
        for Told { waiter: Waiter(waiter, _), was_sent } in told {
            assert!(self.told.insert(waiter), "request {waiter} was told twice");
            if !was_sent {
                assert!(!self.begun.contains(&waiter), "request {waiter} was carried out");
                self.unsent.insert(waiter);
            }
        }
    }

    /// Whether the welcome comes back.
    fn connect(&mut self, welcome: bool) {
        self.cut();
        let epoch = self.line.connect();
        let sender = Sender::Server { server: ServerId(2), boot: 1 };
        let hello = Hello { epoch, ..Hello::new(CLUSTER, sender, Role::Server, 1) };
        let Ok(Admission::Welcome { pass, grant, known }) = self.visitors.admit(&hello) else { panic!("it's let in") };
        let host = Host { cluster: CLUSTER, server: ServerId(1), boot: self.boot };
        if !welcome {
            return self.visitors.disconnected(&pass);
        }
        self.had_left = self.left.borrow().clone();
        let mut outbox = Outbox::new();
        let told = self.line.welcomed(&host.welcome(&hello, grant, known), &mut outbox);
        self.told_in_vain(told);
        let (there, back, answers) = (Pipe::new(), Pipe::new(), Outbox::new());
        self.connection = Some(Connection { pass, epoch, outbox, there, answers, back });
    }

    fn cut(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.visitors.disconnected(&connection.pass);
            self.line.disconnected();
        }
    }

    fn give_up(&mut self) {
        let told = self.line.give_up();
        self.told_in_vain(told);
        self.cut();
        self.dead = self.asked;
    }

    fn restart(&mut self) {
        self.cut();
        self.boot += 1;
        self.visitors = Visitors::new(GRANT, 4);
        self.under_way.clear();
    }

    fn arrive(&mut self, count: usize) {
        let Some(connection) = &mut self.connection else { return };
        connection.there.take(&mut connection.outbox);
        for (header, message, payload) in connection.there.arrive(count) {
            let Message::Request(request) = message else { panic!("only requests are sent") };
            let number = number_of(&request);
            match self.visitors.arrived(&connection.pass, header.request, header.slot, request.cost(&payload)) {
                Arrival::Begin => {
                    assert!(number.is_none_or(|number| !self.unsent.contains(&number)), "{number:?} was not sent");
                    let may_go = self.lane.leaves_with_asker();
                    let had_left = number.is_some_and(|number| may_go && self.had_left.contains(&number));
                    assert!(!had_left, "nobody waited any more for {number:?} when it was sent");
                    self.begun.extend(number);
                    assert!(number.is_none_or(|number| number > self.dead), "request {number:?} was given up");
                    self.under_way.push((connection.pass, header, number.unwrap_or(0)));
                }
                Arrival::Answer(answer) => {
                    let header = Header { session: connection.epoch, ..header };
                    connection.answers.push(&header, &answer, &Payload::none());
                }
                Arrival::UnderWay | Arrival::Late => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn finish(&mut self, which: u64) {
        if self.under_way.is_empty() {
            return;
        }
        let (pass, header, _) = self.under_way.swap_remove(which as usize % self.under_way.len());
        let answer = Answer::Drive(DriveAnswer::Written);
        let finished = self.visitors.finished(&pass, header.request, header.slot, Some(answer.clone()));
        if let (Some(to), Some(connection)) = (finished.to, &mut self.connection) {
            assert_eq!(to, connection.pass);
            let header = Header { session: connection.epoch, ..header };
            connection.answers.push(&header, &answer, &Payload::none());
        }
    }

    fn return_answers(&mut self, count: usize) {
        let Some(connection) = &mut self.connection else { return };
        connection.back.take(&mut connection.answers);
        for (header, ..) in connection.back.arrive(count) {
            if let Some(Waiter(waiter, _)) = self.line.answered(&header).and_then(|asked| asked.waiter) {
                assert!(self.told.insert(waiter), "request {waiter} was told twice");
                self.answered.insert(waiter);
            }
        }
        self.line.fill(&mut connection.outbox);
    }

    fn check(&self) {
        assert!(self.begun.is_sorted_by(|one, next| one < next), "in order, and once: {:?}", self.begun);
        let begun: BTreeSet<u64> = self.begun.iter().copied().collect();
        let left = self.left.borrow();
        let may_be_left_out = |number| self.lane.leaves_with_asker() && left.contains(number);
        let mut answered = self.answered.iter().filter(|number| !may_be_left_out(number));
        assert!(answered.all(|number| begun.contains(number)), "what was answered was done");
    }
}

fn number_of(request: &Request) -> Option<u64> {
    match request {
        Request::Drive(DriveRequest { operation: DriveOperation::Write { first, .. }, .. }) => Some(*first),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_is_cut_restarted_or_given_up_all_are_told_once_and_all_is_done_at_most_once_and_in_order(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        let mut run = Run::new(if draw.next(2) == 0 { Lane::Drives } else { Lane::Volumes });
        for _ in 0..300 {
            match draw.next(105) {
                100.. => run.leave(draw.next(8)),
                0..35 => run.ask(1 + draw.next(9)),
                35..60 => run.arrive(draw.next(40_000) as usize),
                60..75 => run.finish(draw.next(100)),
                75..90 => run.return_answers(draw.next(300) as usize),
                90..94 => run.connect(true),
                94..96 => run.connect(false),
                96..98 => run.cut(),
                98 => run.restart(),
                _ => run.give_up(),
            }
            run.check();
        }
        run.connect(true);
        for _ in 0..2 * run.asked {
            run.arrive(usize::MAX);
            run.finish(0);
            run.return_answers(usize::MAX);
        }
        run.check();
        let told_or_left = run.told.union(&run.left.borrow()).count() as u64;
        prop_assert_eq!(told_or_left, run.asked, "all are told who wait");
        prop_assert!(!run.line.is_wanted());
    }
}

/// Story: all that the window takes was made into frames at once, also when it was sent again on a new connection. It went when a slow
/// network took it: seconds after those had left who had asked.
#[test]
fn who_leaves_while_the_socket_takes_nothing_has_nothing_sent_for_him() {
    const ASKED: u64 = 64;
    let grant = Grant { requests: 1_000, bytes: 64 << 20 };
    for lane in [Lane::Volumes, Lane::Drives] {
        let mut visitors = Visitors::<Answer>::new(grant, 4);
        let (left, mut outbox) = (Rc::<RefCell<BTreeSet<u64>>>::default(), Outbox::new());
        let mut line = Line::new(lane);
        let mut connect = |line: &mut Line<Waiter>, outbox: &mut Outbox| {
            let sender = Sender::Server { server: ServerId(2), boot: 1 };
            let hello = Hello { epoch: line.connect(), ..Hello::new(CLUSTER, sender, Role::Server, 1) };
            let Ok(Admission::Welcome { grant, known, .. }) = visitors.admit(&hello) else { panic!("it's let in") };
            let host = Host { cluster: CLUSTER, server: ServerId(1), boot: 1 };
            assert!(line.welcomed(&host.welcome(&hello, grant, known), outbox).is_empty());
        };
        let send = |line: &mut Line<Waiter>, outbox: &mut Outbox| {
            let (mut pipe, mut sent) = (Pipe::new(), Vec::new());
            while outbox.pending() > 0 {
                pipe.take(outbox);
                line.fill(outbox);
                sent.extend(pipe.arrive(usize::MAX).iter().filter_map(|(_, message, _)| match message {
                    Message::Request(request) => number_of(request),
                    other => panic!("only requests are sent: {other:?}"),
                }));
            }
            sent
        };
        connect(&mut line, &mut outbox);
        (0..ASKED).for_each(|number| line.ask(write(number, 2), Waiter(number, left.clone()), &mut outbox));
        left.borrow_mut().extend(ASKED / 2..ASKED);
        let expected = if lane.leaves_with_asker() { ASKED / 2 } else { ASKED };
        assert_eq!(send(&mut line, &mut outbox), (0..expected).collect::<Vec<_>>(), "{lane:?}");

        line.disconnected();
        outbox = Outbox::new();
        connect(&mut line, &mut outbox);
        left.borrow_mut().extend(0..ASKED);
        let again = send(&mut line, &mut outbox);
        let made_before = if lane.leaves_with_asker() { PARCEL / (2 * BLOCK) } else { ASKED };
        assert_eq!(again, (0..made_before).collect::<Vec<_>>(), "{lane:?}");
    }
}

/// Story: a server was killed, and its last answers made room in the window. What took it was made into frames for the connection that was
/// over, and told as what may have been done by that run.
#[test]
fn what_could_not_be_sent_any_more_goes_to_the_next_run() {
    let (left, mut outbox) = (Rc::<RefCell<BTreeSet<u64>>>::default(), Outbox::new());
    let mut line = Line::new(Lane::Drives);
    let connect = |line: &mut Line<Waiter>, outbox: &mut Outbox, boot| {
        let sender = Sender::Server { server: ServerId(2), boot: 1 };
        let hello = Hello { epoch: line.connect(), ..Hello::new(CLUSTER, sender, Role::Server, 1) };
        let admitted = Visitors::<Answer>::new(Grant { requests: 1, ..GRANT }, 4).admit(&hello);
        let Ok(Admission::Welcome { grant, known, .. }) = admitted else { panic!("it's let in") };
        let told =
            line.welcomed(&Host { cluster: CLUSTER, server: ServerId(1), boot }.welcome(&hello, grant, known), outbox);
        (told, hello.epoch)
    };
    let (_, session) = connect(&mut line, &mut outbox, 1);
    (1..=2).for_each(|number| line.ask(write(number, 1), Waiter(number, left.clone()), &mut outbox));
    assert!(!line.has_begun_all(), "the second one waits for the window");
    line.makes_no_more();
    let answer = Header { session, request: 1, slot: 0, ..Header::default() };
    assert_eq!(line.answered(&answer).and_then(|asked| asked.waiter).map(|waiter| waiter.0), Some(1));
    line.fill(&mut outbox);
    line.disconnected();
    outbox = Outbox::new();
    let (told, _) = connect(&mut line, &mut outbox, 2);
    assert!(told.is_empty() && outbox.pending() > 0, "nobody has been sent it yet");
}
