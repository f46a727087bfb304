use super::*;
use crate::handshake::{ClientId, Grant, Hello, Host, Reason, Role, Sender, Welcome};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use tepal_model::{ClusterId, ServerId};

const CLUSTER: ClusterId = ClusterId(1);
const HOST: Host = Host { cluster: CLUSTER, server: ServerId(1), boot: 1 };
const GRANT: Grant = Grant { requests: 4, bytes: 10_000 };

fn hello_of(client: u128, epoch: u64) -> Hello {
    let sender = Sender::Client { client: ClientId(client) };
    Hello { epoch, ..Hello::new(CLUSTER, sender, Role::Gateway, 0) }
}

fn hello_of_run(boot: u64, lane: u16, epoch: u64) -> Hello {
    let sender = Sender::Server { server: ServerId(2), boot };
    Hello { epoch, ..Hello::new(CLUSTER, sender, Role::Server, lane) }
}

fn welcome(grant: Grant, known: bool) -> Welcome {
    HOST.welcome(&hello_of(1, 1), grant, known)
}

fn admitted<A: Clone>(visitors: &mut Visitors<A>, hello: &Hello) -> (Pass, bool) {
    match visitors.admit(hello).unwrap() {
        Admission::Welcome { pass, known, .. } => (pass, known),
        Admission::Later => panic!("nothing of an older run is under way"),
    }
}

fn connected(grant: Grant) -> Client<&'static str> {
    let mut client = Client::new(0);
    assert_eq!(client.connect(), 1);
    assert_eq!(client.welcomed(&welcome(grant, false)), []);
    client
}

mod client {
    use super::*;

    #[test]
    fn nothing_is_begun_before_the_first_welcome() {
        assert_eq!(Client::new(0).begin(cost(0, 0), false, "early"), Err(Full("early")));
    }

    #[test]
    fn the_window_is_of_requests_and_of_bytes_and_opens_with_answers() {
        let mut client = connected(GRANT);
        for id in 1..=4 {
            let sent = client.begin(cost(0, 0), false, "small").unwrap().unwrap();
            assert_eq!((sent.id, sent.session, sent.in_doubt), (id, 1, false));
        }
        assert_eq!(client.begin(cost(0, 0), false, "fifth"), Err(Full("fifth")), "no slot is free");
        assert_eq!(client.answered(1, 3, 2), Some("small"));
        assert!(!client.has_room(cost(9500, 0)), "the others leave less than that");
        assert_eq!(client.begin(cost(8900, 0), false, "fits").unwrap().unwrap().slot, 2);
        let mut client = connected(GRANT);
        let long = client.begin(cost(0, 1 << 20), false, "one may be as long as it likes").unwrap().unwrap();
        assert!(!client.has_room(cost(0, 0)));
        assert!(client.answered(1, long.id, long.slot).is_some());
        assert!(client.has_room(cost(0, 0)));
    }

    #[test]
    fn what_is_not_answered_is_sent_again_in_order_and_late_answers_are_nobodys() {
        let mut client = connected(GRANT);
        let sent: Vec<ToSend> = ["a", "b", "c"].map(|name| client.begin(300, false, name).unwrap().unwrap()).into();
        assert_eq!(client.answered(1, sent[0].id, sent[0].slot), Some("a"));
        assert_eq!(client.answered(1, sent[0].id, sent[0].slot), None, "it was answered before");
        client.disconnected();
        assert_eq!(client.answered(1, sent[1].id, sent[1].slot), None, "the connection is over");
        assert_eq!(client.begin(300, false, "d"), Ok(None), "it's sent when there's a connection");
        assert_eq!(client.connect(), 2);
        let again: Vec<(u64, u64)> =
            client.welcomed(&welcome(GRANT, true)).iter().map(|sent| (sent.id, sent.session)).collect();
        assert_eq!(again, [(2, 2), (3, 2), (4, 2)]);
        assert_eq!(client.answered(1, sent[1].id, sent[1].slot), None, "an answer of the older connection");
        assert_eq!(client.answered(2, sent[1].id, sent[1].slot), Some("b"));
        let left: Vec<_> = client.end().collect();
        assert_eq!(left, [("c", true), ("d", true)]);
    }

    #[test]
    fn a_server_that_remembers_nothing_is_told_what_may_have_been_done() {
        let mut client = connected(GRANT);
        client.begin(300, false, "sent").unwrap();
        client.disconnected();
        client.begin(300, false, "not sent").unwrap();
        client.connect();
        let again = client.welcomed(&welcome(GRANT, false));
        assert_eq!(again.iter().map(|sent| sent.in_doubt).collect::<Vec<_>>(), [true, false]);
        client.disconnected();
        client.connect();
        let again = client.welcomed(&welcome(GRANT, true));
        assert_eq!(again.iter().map(|sent| sent.in_doubt).collect::<Vec<_>>(), [true, false], "the doubt stays");
    }

    /// Story: the server was started again, and its welcome was lost with the connection. The next one says that it knows the
    /// session: it does, since that connection.
    #[test]
    fn a_run_that_knows_only_a_connection_whose_welcome_was_lost_remembers_nothing() {
        let mut client = connected(GRANT);
        client.begin(300, false, "sent").unwrap();
        client.connect();
        let again = client.welcomed(&Welcome { boot: 2, ..welcome(GRANT, true) });
        assert_eq!(again.iter().map(|sent| sent.in_doubt).collect::<Vec<_>>(), [true]);
    }

    #[test]
    fn whoever_cannot_wait_any_more_finds_what_is_not_answered_and_whether_it_was_sent() {
        let mut client = connected(GRANT);
        client.begin(300, false, "sent").unwrap();
        client.disconnected();
        client.begin(300, false, "not sent").unwrap();
        let mut all: Vec<_> = client.each_unanswered().map(|(request, maybe)| (*request, maybe)).collect();
        all.sort_unstable();
        assert_eq!(all, [("not sent", false), ("sent", true)]);
        client.each_unanswered().for_each(|(request, _)| *request = "nothing");
        client.connect();
        let again = client.welcomed(&welcome(GRANT, true));
        assert_eq!(again.iter().filter_map(|sent| client.request(sent).copied()).collect::<Vec<_>>(), ["nothing"; 2]);
    }

    #[test]
    fn a_window_that_has_become_smaller_is_kept_to_in_order() {
        let mut client = connected(GRANT);
        for name in ["a", "b", "c", "d"] {
            client.begin(300, false, name).unwrap();
        }
        client.connect();
        let again = client.welcomed(&welcome(Grant { requests: 2, bytes: 10_000 }, false));
        assert_eq!(again.iter().map(|sent| sent.id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((client.next_displaced(), client.unanswered()), (None, 4));
        assert_eq!(client.answered(2, 1, again[0].slot), Some("a"));
        assert_eq!(client.begin(300, false, "new"), Err(Full("new")), "those that wait go first");
        let third = client.next_displaced().unwrap();
        assert_eq!((third.id, third.slot, client.request(&third).copied()), (3, again[0].slot, Some("c")));
    }
}

mod server {
    use super::*;

    #[test]
    fn a_request_is_begun_once_and_its_answer_remembered_until_the_slot_is_used_again() {
        let mut visitors = Visitors::new(GRANT, 10);
        let (pass, _) = admitted(&mut visitors, &hello_of(1, 1));
        assert_eq!(visitors.arrived(&pass, 5, 0, 300), Arrival::Begin);
        assert_eq!(visitors.arrived(&pass, 5, 0, 300), Arrival::UnderWay);
        assert_eq!(visitors.finished(&pass, 5, 0, Some("done")).to, Some(pass));
        assert_eq!(visitors.arrived(&pass, 5, 0, 300), Arrival::Answer("done"));
        assert_eq!(visitors.arrived(&pass, 6, 0, 300), Arrival::Begin);
        assert_eq!(visitors.arrived(&pass, 5, 0, 300), Arrival::Late);
        assert_eq!(visitors.finished(&pass, 6, 0, None).to, Some(pass));
    }

    #[test]
    fn a_read_is_made_again_if_its_answer_went_to_an_older_connection_and_else_never() {
        let mut visitors: Visitors<()> = Visitors::new(GRANT, 10);
        let (old, _) = admitted(&mut visitors, &hello_of(1, 1));
        assert_eq!(visitors.arrived(&old, 1, 0, 300), Arrival::Begin);
        assert_eq!(visitors.finished(&old, 1, 0, None).to, Some(old));
        // Made again here, it would still be under way when the client, which has its answer, uses the slot again.
        assert_eq!(visitors.arrived(&old, 1, 0, 300), Arrival::UnderWay);
        let (new, _) = admitted(&mut visitors, &hello_of(1, 2));
        assert_eq!(visitors.arrived(&new, 1, 0, 300), Arrival::Begin);
        assert_eq!(visitors.finished(&new, 1, 0, None).to, Some(new));
        assert_eq!(visitors.arrived(&new, 2, 0, 300), Arrival::Begin);
    }

    #[test]
    fn a_newer_connection_fences_the_older_one_and_gets_its_answers() {
        let mut visitors = Visitors::new(GRANT, 10);
        let (old, known) = admitted(&mut visitors, &hello_of(1, 1));
        assert!(!known);
        assert_eq!(visitors.arrived(&old, 1, 0, 300), Arrival::Begin);
        let (new, known) = admitted(&mut visitors, &hello_of(1, 2));
        assert!(known && visitors.is_newest(&new) && !visitors.is_newest(&old));
        assert_eq!(visitors.arrived(&old, 2, 1, 300), Arrival::Fenced);
        assert_eq!(visitors.arrived(&new, 1, 0, 300), Arrival::UnderWay);
        visitors.disconnected(&old);
        assert_eq!(visitors.finished(&old, 1, 0, Some("done")).to, Some(new));
        let refused = visitors.admit(&hello_of(1, 2)).unwrap_err();
        assert_eq!(refused.reason, Reason::Fenced, "each connection has an epoch of its own");
        let mut visitors = Visitors::new(GRANT, 10);
        let (pass, _) = admitted(&mut visitors, &hello_of(1, 1));
        visitors.arrived(&pass, 1, 0, 300);
        visitors.disconnected(&pass);
        assert_eq!(visitors.finished(&pass, 1, 0, Some("done")).to, None, "it asks again when it returns");
    }

    #[test]
    fn a_client_that_takes_more_than_its_window_is_stopped() {
        let mut visitors: Visitors<()> = Visitors::new(GRANT, 10);
        let (pass, _) = admitted(&mut visitors, &hello_of(1, 1));
        assert_eq!(visitors.arrived(&pass, 1, 4, 300), Arrival::Overrun, "four slots are 0 to 3");
        assert_eq!(visitors.arrived(&pass, 1, 0, u64::MAX), Arrival::Begin, "one may be as long as it likes");
        assert_eq!(visitors.arrived(&pass, 2, 1, 1), Arrival::Overrun);
        assert_eq!(visitors.arrived(&pass, 2, 0, 1), Arrival::Overrun, "the slot isn't free yet");
        visitors.finished(&pass, 1, 0, Some(()));
        assert_eq!(visitors.arrived(&pass, 2, 0, 1), Arrival::Begin);
        assert_eq!(visitors.under_way(&pass), 1);
    }

    #[test]
    fn a_newer_run_of_a_server_waits_for_what_the_older_one_has_begun_on_any_lane() {
        let mut visitors = Visitors::new(GRANT, 10);
        let lanes = [0, 1].map(|lane| admitted(&mut visitors, &hello_of_run(1, lane, 7)).0);
        for pass in &lanes {
            assert_eq!(visitors.arrived(pass, 1, 0, 300), Arrival::Begin);
        }
        assert_eq!(visitors.admit(&hello_of_run(2, 0, 1)), Ok(Admission::Later));
        assert_eq!(visitors.arrived(&lanes[0], 2, 1, 300), Arrival::Fenced);
        assert_eq!(visitors.finished(&lanes[0], 1, 0, Some("done")), Finished::default());
        assert_eq!(visitors.admit(&hello_of_run(2, 0, 1)), Ok(Admission::Later));
        let last = visitors.finished(&lanes[1], 1, 0, Some("done"));
        assert_eq!(last, Finished { to: None, drained: Some(ServerId(2)) });
        let (pass, known) = admitted(&mut visitors, &hello_of_run(2, 0, 1));
        assert!(!known);
        assert_eq!(visitors.arrived(&pass, 1, 0, 300), Arrival::Begin, "its requests are its own");
        let refused = visitors.admit(&hello_of_run(1, 0, 99)).unwrap_err();
        assert_eq!(refused.reason, Reason::SameServerTwice);
    }

    #[test]
    fn sessions_are_forgotten_that_have_been_gone_longest_and_never_those_in_use() {
        let mut visitors: Visitors<()> = Visitors::new(GRANT, 3);
        let [busy, first, second] = [1, 2, 3].map(|client| admitted(&mut visitors, &hello_of(client, 1)).0);
        assert_eq!(visitors.admit(&hello_of(4, 1)).unwrap_err().reason, Reason::TooMany);
        visitors.arrived(&busy, 1, 0, 300);
        [busy, second, first].iter().for_each(|pass| visitors.disconnected(pass));
        admitted(&mut visitors, &hello_of(4, 1));
        assert!(admitted(&mut visitors, &hello_of(2, 2)).1, "it left last");
        assert_eq!(visitors.admit(&hello_of(3, 2)).unwrap_err().reason, Reason::TooMany, "one is under way");
        visitors.finished(&busy, 1, 0, None);
        assert!(!admitted(&mut visitors, &hello_of(3, 2)).1, "it was forgotten");
    }
}

/// What a network does to a session.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The client asks something, if its window lets it.
    Ask {
        cost: u64,
        read: bool,
    },
    /// One of the frames that are on their way to the server arrives.
    ToServer(usize),
    /// The same, and it will once more.
    ToServerTwice(usize),
    Lost(usize),
    ToClient(usize),
    ToClientTwice(usize),
    LostAnswer(usize),
    /// Something that is being carried out is done.
    Finish(usize),
    Disconnect,
    /// The client's hello of this connection is answered at once.
    Connect,
    /// The server has noticed that the connection is over.
    Notice,
    RestartServer,
}

fn any_event() -> impl Strategy<Value = Event> {
    let at = any::<usize>;
    prop_oneof![
        6 => (prop_oneof![256u64..400, 256u64..9000], any::<bool>()).prop_map(|(cost, read)| Event::Ask { cost, read }),
        6 => at().prop_map(Event::ToServer),
        2 => at().prop_map(Event::ToServerTwice),
        1 => at().prop_map(Event::Lost),
        6 => at().prop_map(Event::ToClient),
        2 => at().prop_map(Event::ToClientTwice),
        1 => at().prop_map(Event::LostAnswer),
        6 => at().prop_map(Event::Finish),
        1 => Just(Event::Disconnect),
        2 => Just(Event::Connect),
        1 => Just(Event::Notice),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    cost: u64,
    read: bool,
}

/// A client and a server, and everything between them, which loses, repeats and reorders.
struct Rig {
    client: Client<Asked>,
    visitors: Visitors<u64>,
    grant: Grant,
    /// The connection, as the server knows it.
    passes: BTreeMap<u64, Pass>,
    to_server: Vec<(ToSend, Asked)>,
    /// Session, id, slot and answer.
    to_client: Vec<(u64, u64, u16, u64)>,
    /// Runs of the server that began it, and what they were told: run, pass, id, slot, whether it's a read.
    under_way: Vec<(u64, Pass, u64, u16, bool)>,
    run: u64,
    /// How often each write was begun, by run; and in how many of them it wasn't said to be in doubt.
    begun: BTreeMap<(u64, u64), u32>,
    sure: BTreeMap<u64, u32>,
    answered: BTreeSet<u64>,
    asked: u64,
}

impl Rig {
    fn new() -> Self {
        let mut rig = Rig {
            client: Client::new(0),
            visitors: Visitors::new(GRANT, 4),
            grant: GRANT,
            passes: BTreeMap::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
            under_way: Vec::new(),
            run: 1,
            begun: BTreeMap::new(),
            sure: BTreeMap::new(),
            answered: BTreeSet::new(),
            asked: 0,
        };
        rig.step(Event::Connect);
        rig
    }

    fn send(&mut self, to_send: ToSend) {
        let asked = *self.client.request(&to_send).expect("what is sent has its slot");
        self.to_server.push((to_send, asked));
    }

    fn step(&mut self, event: Event) {
        let pick = |at: usize, length: usize| at.checked_rem(length);
        match event {
            Event::Ask { cost, read } => {
                if let Ok(to_send) = self.client.begin(cost, false, Asked { cost, read }) {
                    self.asked += 1;
                    to_send.into_iter().for_each(|to_send| self.send(to_send));
                }
            }
            Event::ToServer(at) => {
                let Some(at) = pick(at, self.to_server.len()) else { return };
                let (to_send, asked) = self.to_server.remove(at);
                self.arrive(to_send, asked);
            }
            Event::ToServerTwice(at) => {
                let Some(at) = pick(at, self.to_server.len()) else { return };
                let (to_send, asked) = self.to_server[at];
                self.arrive(to_send, asked);
            }
            Event::Lost(at) => drop(pick(at, self.to_server.len()).map(|at| self.to_server.remove(at))),
            Event::ToClient(at) => {
                let Some(at) = pick(at, self.to_client.len()) else { return };
                let answer = self.to_client.remove(at);
                self.hear(answer);
            }
            Event::ToClientTwice(at) => {
                let Some(at) = pick(at, self.to_client.len()) else { return };
                self.hear(self.to_client[at]);
            }
            Event::LostAnswer(at) => drop(pick(at, self.to_client.len()).map(|at| self.to_client.remove(at))),
            Event::Finish(at) => {
                let Some(at) = pick(at, self.under_way.len()) else { return };
                let (run, pass, id, slot, read) = self.under_way.remove(at);
                if run == self.run
                    && let Some(to) = self.visitors.finished(&pass, id, slot, (!read).then_some(id)).to
                {
                    self.to_client.push((to.session(), id, slot, id));
                }
            }
            Event::Disconnect => self.client.disconnected(),
            Event::Connect => self.connect(),
            Event::Notice => {
                if let Some((_, pass)) = self.passes.last_key_value() {
                    self.visitors.disconnected(pass);
                }
            }
            Event::RestartServer => {
                self.run += 1;
                // What the old run had begun may be done or not; nobody hears of it.
                self.visitors = Visitors::new(self.grant, 4);
                self.passes.clear();
                self.under_way.clear();
                self.client.disconnected();
            }
        }
    }

    fn connect(&mut self) {
        let epoch = self.client.connect();
        let (pass, known) = admitted(&mut self.visitors, &hello_of(1, epoch));
        self.passes.insert(epoch, pass);
        let again = self.client.welcomed(&welcome(self.grant, known));
        assert!(again.is_sorted_by_key(|to_send| to_send.id));
        again.into_iter().for_each(|to_send| self.send(to_send));
    }

    fn arrive(&mut self, to_send: ToSend, asked: Asked) {
        let ToSend { id, slot, session, in_doubt } = to_send;
        let Some(&pass) = self.passes.get(&session) else { return };
        match self.visitors.arrived(&pass, id, slot, asked.cost) {
            Arrival::Begin => {
                let times = self.begun.entry((self.run, id)).or_default();
                *times += 1;
                assert!(*times == 1 || asked.read, "write {id} was begun twice by one server");
                *self.sure.entry(id).or_default() += u32::from(!in_doubt);
                assert!(self.sure[&id] <= 1 || asked.read, "write {id} was begun by two servers, and neither was told");
                self.under_way.push((self.run, pass, id, slot, asked.read));
                let bytes = u64::from(self.grant.requests).max(self.under_way.len() as u64);
                assert_eq!(bytes, self.grant.requests.into(), "no more is under way than slots");
            }
            Arrival::Answer(answer) => {
                assert_eq!(answer, id);
                self.to_client.push((session, id, slot, answer));
            }
            Arrival::Overrun => panic!("request {id} is within the window as the client counts it"),
            Arrival::UnderWay | Arrival::Late | Arrival::Fenced => {}
        }
    }

    fn hear(&mut self, (session, id, slot, answer): (u64, u64, u16, u64)) {
        if self.client.answered(session, id, slot).is_some() {
            assert_eq!(answer, id);
            assert!(self.answered.insert(id), "request {id} was answered twice");
            while let Some(to_send) = self.client.next_displaced() {
                self.send(to_send);
            }
        }
    }

    /// From here on the network is well.
    fn settle(&mut self) {
        self.step(Event::Connect);
        let mut left = 100_000;
        while !(self.to_server.is_empty() && self.to_client.is_empty() && self.under_way.is_empty()) {
            for event in [Event::ToServer(0), Event::Finish(0), Event::ToClient(0)] {
                self.step(event);
            }
            left -= 1;
            assert!(left > 0, "it comes to an end");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn whatever_the_network_does_each_write_is_carried_out_once_and_each_request_answered_once(
        events in prop::collection::vec(any_event(), 0..200),
    ) {
        let mut rig = Rig::new();
        events.into_iter().for_each(|event| rig.step(event));
        rig.settle();
        prop_assert_eq!(rig.client.unanswered(), 0);
        prop_assert_eq!(rig.answered.len() as u64, rig.asked);
        prop_assert_eq!(&rig.begun.keys().map(|(_, id)| *id).collect::<BTreeSet<_>>(), &rig.answered);
    }

    #[test]
    fn a_server_that_was_started_again_is_told_of_each_write_that_may_have_been_done(
        events in prop::collection::vec(prop_oneof![12 => any_event(), 1 => Just(Event::RestartServer)], 0..200),
        grants in prop::collection::vec(1u16..6, 1..4),
    ) {
        let mut rig = Rig::new();
        let mut grants = grants.into_iter().cycle();
        for event in events {
            if matches!(event, Event::RestartServer) {
                rig.grant = Grant { requests: grants.next().unwrap(), bytes: 8000 };
            }
            rig.step(event);
        }
        rig.settle();
        prop_assert_eq!(rig.client.unanswered(), 0);
        prop_assert_eq!(rig.answered.len() as u64, rig.asked);
    }
}
