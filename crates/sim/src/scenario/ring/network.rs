//! The simulated network between the servers of a ring: each pair's messages keep their order; they are late, held up while
//! a link is cut, and given up by who sent them, though they may still arrive.

use super::council::Council;
use crate::executor::{Core, Sleep};
use crate::random::Stream;
use crate::world::SimWorld;
use futures_channel::oneshot;
use futures_util::future::LocalBoxFuture;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tepal_engine::{Engine, Peers, Question, Reply, Unreachable};
use tepal_model::ServerId;

/// After so long without an answer whoever asked gives up.
const PATIENCE: Duration = Duration::from_millis(60);

type Link = (ServerId, ServerId);
type Answer = oneshot::Sender<Result<Reply, Unreachable>>;

struct Message {
    question: Question,
    answer: Answer,
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
        let message = Message { question, answer, sent: queues.now, run: self.run };
        queues.waiting.entry((self.me, server)).or_default().push_back(message);
        Box::pin(async move {
            let (reason, was_sent, is_cut_off) = ("the connection was lost".to_owned(), true, false);
            answered.await.unwrap_or_else(|_| Err(Unreachable { reason, was_sent, is_cut_off }))
        })
    }
}

impl Network {
    pub fn new() -> Self {
        Network { queues: Arc::default(), hosts: Rc::default(), cut: Rc::default() }
    }

    /// For a process that starts.
    pub fn port(&self, me: ServerId) -> Arc<dyn Peers> {
        let mut queues = lock(&self.queues);
        let run = queues.runs.entry(me).or_default();
        *run += 1;
        Arc::new(Port { me, run: *run, queues: self.queues.clone() })
    }

    pub fn serves(&self, server: ServerId, world: &SimWorld, engine: &Engine<SimWorld>) {
        self.hosts.borrow_mut().insert(server, (world.clone(), engine.clone()));
    }

    /// The process is dead: nothing comes from it or arrives any more.
    pub fn died(&self, server: ServerId) {
        self.hosts.borrow_mut().remove(&server);
        let mut queues = lock(&self.queues);
        *queues.runs.entry(server).or_default() += 1;
    }

    pub fn cut(&self, link: Link) {
        self.cut.borrow_mut().insert(link);
    }

    pub fn heal(&self) {
        self.cut.borrow_mut().clear();
    }

    fn is_open(&self, link: Link) -> bool {
        !self.cut.borrow().contains(&link) && self.hosts.borrow().contains_key(&link.1)
    }

    /// Brings messages, for as long as the run lasts.
    pub async fn carry(self, core: Rc<Core>, council: Council) {
        let mut random = core.fork();
        loop {
            Sleep::until(&core, core.now() + Duration::from_micros(random.between(2..40))).await;
            let ready: Vec<Link> = {
                let mut queues = lock(&self.queues);
                queues.now = core.now();
                let waiting = queues.waiting.iter().filter(|(link, queue)| !queue.is_empty() && self.is_open(**link));
                waiting.map(|(&link, _)| link).collect()
            };
            self.give_up(&core, &council, &mut random);
            if ready.is_empty() {
                continue;
            }
            for _ in 0..random.between(1..8) {
                self.deliver(&core, *random.pick(&ready), &mut random);
            }
        }
    }

    fn deliver(&self, core: &Rc<Core>, link: Link, random: &mut Stream) {
        let (from, to) = link;
        let Some(message) = self.next(link) else { return };
        let Some((world, engine)) = self.hosts.borrow().get(&to).cloned() else { return };
        let Message { question, answer, run, .. } = message;
        if run != lock(&self.queues).runs.get(&from).copied().unwrap_or(0) {
            return; // its sender is dead: its connection has ended
        }
        core.note(u64::from(from.0 ^ to.0), || format!("{from} to {to}: {:?}", question.request));
        let work = engine.answer(from, question);
        let (network, core, late) = (self.clone(), core.clone(), Duration::from_micros(random.between(1..200)));
        world.spawn_named("answer", async move {
            let reply = work.await;
            Sleep::until(&core, core.now() + late).await;
            let begin = core.now();
            while network.cut.borrow().contains(&(to, from)) {
                Sleep::until(&core, core.now() + Duration::from_millis(1)).await;
                if core.now() > begin + PATIENCE {
                    let reason = format!("nothing is heard of {to}");
                    let _ = answer.send(Err(Unreachable { reason, was_sent: true, is_cut_off: true }));
                    return;
                }
            }
            core.note(u64::from(from.0 ^ to.0), || format!("{to} answers {from}: {:?}", reply.answer));
            let _ = answer.send(Ok(reply)); // whoever asked may have given up
        });
    }

    fn next(&self, link: Link) -> Option<Message> {
        lock(&self.queues).waiting.get_mut(&link)?.pop_front()
    }

    /// Whoever waits for too long, or for a server that is down as agreed, gives up: sometimes the message arrives all the same.
    fn give_up(&self, core: &Rc<Core>, council: &Council, random: &mut Stream) {
        let now = core.now();
        let mut queues = lock(&self.queues);
        for ((_, to), queue) in &mut queues.waiting {
            let dead = !self.hosts.borrow().contains_key(to);
            let down = dead && council.is_down(*to);
            while queue.front().is_some_and(|message| down || now > message.sent + PATIENCE) {
                let Some(message) = queue.pop_front() else { break };
                // It never arrives, which whoever asked may know or not.
                let (reason, was_sent, is_cut_off) = (format!("{to} doesn't answer"), random.one_in(2), !dead);
                let unreachable = Unreachable { reason, was_sent, is_cut_off };
                let _ = message.answer.send(Err(unreachable));
            }
        }
    }
}
