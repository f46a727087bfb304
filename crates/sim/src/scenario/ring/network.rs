//! The simulated network between the servers of a ring: each pair's messages keep their order; they are late, held up while
//! a link is cut, and given up by who sent them, though they may still arrive. So does what is sent to a server that is paused.

use super::council::Council;
use crate::executor::{Core, SCENARIO, Sleep};
use crate::random::Stream;
use crate::world::SimWorld;
use futures_channel::oneshot;
use futures_util::future::{Either, LocalBoxFuture, select};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_engine::{Engine, Peers, Question, Reply, Unreachable};
use tepal_model::ServerId;
use tepal_wire::message::Request;

/// After so long in which nothing comes from the other side, whoever asked gives up.
const PATIENCE: Duration = Duration::from_millis(60);
/// How often whoever waits looks whether anything can come.
const LOOK: Duration = Duration::from_millis(3);

type Link = (ServerId, ServerId);
type Answer = oneshot::Sender<Result<Reply, Unreachable>>;

struct Message {
    question: Question,
    /// Nobody, once whoever asked has given up.
    answer: Option<Answer>,
    sent: Duration,
    /// Which run of the sender's process.
    run: u64,
}

#[derive(Default)]
struct Queues {
    waiting: BTreeMap<Link, VecDeque<Message>>,
    /// Asked now, in virtual time.
    now: Duration,
    runs: BTreeMap<ServerId, u64>,
}

/// Servers that run.
type Hosts = Rc<RefCell<BTreeMap<ServerId, (SimWorld, Engine<SimWorld>)>>>;

/// Clones are the same.
#[derive(Clone)]
pub struct Network {
    queues: Arc<Mutex<Queues>>,
    hosts: Hosts,
    cut: Rc<RefCell<BTreeSet<Link>>>,
    /// How long what is sent there is under way, where it's longer than elsewhere.
    slow: Rc<RefCell<BTreeMap<Link, Duration>>>,
}

/// How an answer comes to whoever asked.
struct WayBack {
    link: Link,
    /// Who answers.
    host: SimWorld,
    /// After so long in which nothing is heard of it nobody waits any more.
    patience: Option<Duration>,
    replied: oneshot::Receiver<Reply>,
    answer: Answer,
}

/// One server's way into it.
struct Port {
    queues: Arc<Mutex<Queues>>,
    me: ServerId,
    run: u64,
}

fn lock(queues: &Mutex<Queues>) -> MutexGuard<'_, Queues> {
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers for Port {
    fn ask(&self, server: ServerId, question: Question) -> LocalBoxFuture<'static, Result<Reply, Unreachable>> {
        let (answer, answered) = oneshot::channel();
        let mut queues = lock(&self.queues);
        let (answer, sent, run) = (Some(answer), queues.now, self.run);
        let message = Message { question, answer, sent, run };
        queues.waiting.entry((self.me, server)).or_default().push_back(message);
        Box::pin(async move {
            let (reason, was_sent, is_cut_off) = ("the connection was lost".to_owned(), true, false);
            answered.await.unwrap_or_else(|_| Err(Unreachable { reason, was_sent, is_cut_off }))
        })
    }
}

impl Network {
    pub fn new() -> Self {
        Network { queues: Arc::default(), hosts: Rc::default(), cut: Rc::default(), slow: Rc::default() }
    }

    /// For a process that starts.
    pub fn port(&self, me: ServerId) -> Arc<dyn Peers> {
        let mut queues = lock(&self.queues);
        let run = queues.runs.entry(me).or_default();
        *run += 1;
        Arc::new(Port { me, run: *run, queues: self.queues.clone() })
    }

    pub fn add_host(&self, server: ServerId, world: &SimWorld, engine: &Engine<SimWorld>) {
        self.hosts.borrow_mut().insert(server, (world.clone(), engine.clone()));
    }

    /// The process is dead: nothing comes from it or arrives any more.
    pub fn died(&self, server: ServerId) {
        self.hosts.borrow_mut().remove(&server);
        let mut queues = lock(&self.queues);
        *queues.runs.entry(server).or_default() += 1;
        // What it was sent has gone with its connections.
        let to_it = queues.waiting.iter_mut().filter(|((_, to), _)| *to == server);
        to_it.for_each(|(_, queue)| queue.retain(|message| message.answer.is_some()));
    }

    pub fn cut(&self, link: Link) {
        self.cut.borrow_mut().insert(link);
    }

    /// From now on messages take so long there.
    pub fn slow_down(&self, link: Link, delay: Duration) {
        self.slow.borrow_mut().insert(link, delay);
    }

    pub fn heal(&self) {
        self.cut.borrow_mut().clear();
        self.slow.borrow_mut().clear();
    }

    fn is_open(&self, link: Link) -> bool {
        let runs = |(world, _): &(SimWorld, Engine<SimWorld>)| !world.is_paused();
        !self.cut.borrow().contains(&link) && self.hosts.borrow().get(&link.1).is_some_and(runs)
    }

    /// Whether the first message there arrives now.
    fn comes_now(&self, link: Link, queue: &VecDeque<Message>, now: Duration) -> bool {
        let delay = self.slow.borrow().get(&link).copied().unwrap_or_default();
        self.is_open(link) && queue.front().is_some_and(|message| message.sent + delay <= now)
    }

    /// Brings messages, for as long as the run lasts.
    pub async fn carry(self, core: Rc<Core>, council: Council) {
        let mut random = core.fork();
        let mut is_idle = true;
        loop {
            let pause = if is_idle { random.between(40..400) } else { random.between(2..40) };
            Sleep::until(&core, core.now() + Duration::from_micros(pause)).await;
            let ready: Vec<Link> = {
                let mut queues = lock(&self.queues);
                queues.now = core.now();
                let links = queues.waiting.iter().filter(|(link, queue)| self.comes_now(**link, queue, core.now()));
                links.map(|(&link, _)| link).collect()
            };
            self.give_up(&council, &mut random);
            is_idle = ready.is_empty();
            if is_idle {
                continue;
            }
            for _ in 0..random.between(1..8) {
                self.deliver(&core, &council, *random.pick(&ready), &mut random);
            }
        }
    }

    fn deliver(&self, core: &Rc<Core>, council: &Council, link: Link, random: &mut Stream) {
        let (from, to) = link;
        let Some(message) = self.next(link) else { return };
        let Some((world, engine)) = self.hosts.borrow().get(&to).cloned() else { return };
        let Message { question, answer, run, .. } = message;
        if run != lock(&self.queues).runs.get(&from).copied().unwrap_or(0) {
            return; // its sender is dead: its connection has ended
        }
        core.note(u64::from(from.0 ^ to.0), || format!("{from} to {to}: {:?}", question.request));
        // Gateways wait for as long as the server is up.
        let gives_up = matches!(question.request, Request::Drive(_));
        let work = engine.answer(from, question);
        let (replies, replied) = oneshot::channel();
        let (late, own) = (Duration::from_micros(random.between(1..200)), core.clone());
        let host = world.clone();
        world.spawn_named("answer", async move {
            let reply = work.await;
            Sleep::until(&own, own.now() + late).await;
            own.note(u64::from(from.0 ^ to.0), || format!("{to} answers {from}: {:?}", reply.answer));
            let _ = replies.send(reply); // whoever asked may have given up
        });
        if let Some(answer) = answer {
            let back = WayBack { link, host, patience: gives_up.then_some(PATIENCE), replied, answer };
            let back = self.clone().bring_back(core.clone(), council.clone(), back);
            core.spawn(SCENARIO, "way back", Box::pin(back));
        }
    }

    /// Brings an answer to whoever asked, unless that side hears nothing for too long.
    async fn bring_back(self, core: Rc<Core>, council: Council, back: WayBack) {
        let WayBack { link: (from, to), host, patience, mut replied, answer } = back;
        let (mut reply, mut heard) = (None, core.now());
        while !answer.is_canceled() {
            if council.is_down_for(from, to) {
                let (reason, is_cut_off) = (format!("{to} is down"), false);
                let _ = answer.send(Err(Unreachable { reason, was_sent: true, is_cut_off }));
                return;
            }
            if reply.is_none() {
                match select(&mut replied, Sleep::until(&core, core.now() + LOOK)).await {
                    Either::Left((Ok(came), _)) => {
                        let delay = self.slow.borrow().get(&(to, from)).copied().unwrap_or_default();
                        Sleep::until(&core, core.now() + delay).await;
                        reply = Some(came);
                    }
                    Either::Left((Err(_), _)) => return, // its process has died, and the connection with it
                    Either::Right(_) => {}
                }
            }
            if self.cut.borrow().contains(&(to, from)) || host.is_paused() {
                if !host.is_alive() {
                    return; // what hadn't arrived is lost with its connection
                }
                if patience.is_some_and(|patience| core.now() > heard + patience) {
                    let reason = format!("nothing is heard of {to}");
                    let _ = answer.send(Err(Unreachable { reason, was_sent: true, is_cut_off: true }));
                    return;
                }
                if reply.is_some() {
                    Sleep::until(&core, core.now() + LOOK).await;
                }
                continue;
            }
            heard = core.now();
            if let Some(reply) = reply.take() {
                let _ = answer.send(Ok(reply)); // whoever asked may have given up
                return;
            }
        }
    }

    fn next(&self, link: Link) -> Option<Message> {
        let mut queues = lock(&self.queues);
        let now = queues.now;
        let queue = queues.waiting.get_mut(&link)?;
        self.comes_now(link, queue, now).then(|| queue.pop_front()).flatten()
    }

    /// Nobody waits for a server that is down as agreed, nor for drives of one of which nothing is heard for too long; but what was
    /// sent may still arrive there, if it's alive.
    fn give_up(&self, council: &Council, random: &mut Stream) {
        let mut queues = lock(&self.queues);
        let now = queues.now;
        for ((from, to), queue) in &mut queues.waiting {
            let is_dead = !self.hosts.borrow().contains_key(to);
            let is_down = council.is_down_for(*from, *to);
            queue.retain_mut(|message| {
                let is_of_drive = matches!(message.question.request, Request::Drive(_));
                let is_late = is_of_drive && now > message.sent + PATIENCE;
                if !is_down && !is_late {
                    return true;
                }
                let was_sent = random.one_in(2);
                if let Some(answer) = message.answer.take() {
                    let (reason, is_cut_off) = (format!("{to} doesn't answer"), !is_down);
                    let _ = answer.send(Err(Unreachable { reason, was_sent, is_cut_off })); // whoever asked may be dead
                    return was_sent && !is_dead;
                }
                !is_dead
            });
        }
    }
}
