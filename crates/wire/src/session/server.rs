//! The server's side: who is connected, and what of theirs has been done.
//!
//! 1. Of each session only the newest connection is heard, and of each server only the newest run.
//! 2. A newer run of a server is let in when nothing of its older runs is under way any more.
//! 3. Of each slot the newest request is remembered, and its answer unless it may be carried out again. An older one is
//!    never begun.
//! 4. What is under way for a session costs no more together than was granted, or is one request.
//!
//! So memory is bounded by sessions, slots, and granted bytes. Sessions past the most that are wanted go, those that have been
//! without a connection longest first; the client is told when it returns ([`Admission::Welcome`]).

use crate::handshake::{Grant, Hello, Reason, Refused, Role, Sender};
use std::collections::BTreeMap;
use tepal_model::ServerId;

/// All clients of a server. `A` is an answer as it's remembered.
#[derive(Debug)]
pub struct Visitors<A> {
    grant: Grant,
    most: usize,
    sessions: BTreeMap<Lane, Session<A>>,
    /// The newest run of each server.
    boots: BTreeMap<ServerId, u64>,
    /// What is under way of older runs.
    of_older: BTreeMap<ServerId, u64>,
    /// Counts connections that ended.
    departures: u64,
}

/// One session among all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Lane {
    sender: Sender,
    role: Role,
    number: u16,
}

#[derive(Debug)]
struct Session<A> {
    epoch: u64,
    presence: Presence,
    /// Those up to the last one that was ever used.
    slots: Vec<Slot<A>>,
    under_way: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Presence {
    Connected,
    /// Since so many connections had ended.
    Left(u64),
}

#[derive(Debug)]
enum Slot<A> {
    Unused,
    UnderWay {
        id: u64,
        cost: u64,
    },
    /// Answered on the connection of that epoch, if there was one.
    Done {
        id: u64,
        told: Option<u64>,
        /// `None`: it may be carried out again.
        answer: Option<A>,
    },
}

/// One connection that was let in: by it, what comes on the connection is told from what comes on others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pass {
    lane: Lane,
    epoch: u64,
}

impl Pass {
    /// Who is on the connection.
    pub fn sender(&self) -> Sender {
        self.lane.sender
    }

    /// For the headers of what is sent on the connection.
    pub fn session(&self) -> u64 {
        self.epoch
    }
}

/// What a hello leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Go on.
    Welcome {
        /// For all that comes on the connection.
        pass: Pass,
        /// How much it may have under way.
        grant: Grant,
        /// Whether the session is remembered.
        known: bool,
    },
    /// Older runs of the same server are fenced from here on, but something of theirs is still under way: admit it when
    /// [`Finished::drained`] says so.
    Later,
}

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival<A> {
    /// Carry it out, then say [`Visitors::finished`].
    Begin,
    /// Answer it again like this.
    Answer(A),
    /// Nothing: it's being carried out, or its answer is on this connection already.
    UnderWay,
    /// The client has had its answer: forget it.
    Late,
    /// The connection isn't the session's newest: refuse it with [`Reason::Fenced`], and end it.
    Fenced,
    /// The client takes more than it was granted: refuse it with [`Reason::Broken`], and end the connection.
    Overrun,
}

/// What follows when a request has been carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Finished {
    /// Send the answer on this connection. `None` if the client has none: it will ask again.
    pub to: Option<Pass>,
    /// The last request of a server's older runs is done: admit its new one.
    pub drained: Option<ServerId>,
}

impl<A: Clone> Visitors<A> {
    /// Nobody is here. Each session is granted that much, and at most so many are remembered.
    pub fn new(grant: Grant, most: usize) -> Self {
        Visitors {
            grant,
            most,
            sessions: BTreeMap::new(),
            boots: BTreeMap::new(),
            of_older: BTreeMap::new(),
            departures: 0,
        }
    }

    /// Lets a caller in that the host has heard. What comes on older connections of the session is refused from here on.
    pub fn admit(&mut self, hello: &Hello) -> Result<Admission, Refused> {
        if let Sender::Server { server, boot } = hello.sender {
            self.fence_older_runs(server, boot)?;
            if self.of_older.contains_key(&server) {
                return Ok(Admission::Later);
            }
        }
        let lane = Lane { sender: hello.sender, role: hello.role, number: hello.lane };
        let (epoch, grant) = (hello.epoch, self.grant);
        let pass = Pass { lane, epoch };
        if let Some(session) = self.sessions.get_mut(&lane) {
            if epoch <= session.epoch {
                let text = format!("the session's epoch is {}, and {} called with {epoch}", session.epoch, lane.sender);
                return Err(Refused::new(Reason::Fenced, text));
            }
            (session.epoch, session.presence) = (epoch, Presence::Connected);
            return Ok(Admission::Welcome { pass, grant, known: true });
        }
        self.make_room()?;
        let session = Session { epoch, presence: Presence::Connected, slots: Vec::new(), under_way: 0, bytes: 0 };
        self.sessions.insert(lane, session);
        Ok(Admission::Welcome { pass, grant, known: false })
    }

    fn fence_older_runs(&mut self, server: ServerId, boot: u64) -> Result<(), Refused> {
        let newest = self.boots.entry(server).or_insert(boot);
        if boot < *newest {
            let text = format!("boot {boot} of {server} called, and boot {newest} has called before");
            return Err(Refused::new(Reason::SameServerTwice, text));
        }
        if boot > *newest {
            *newest = boot;
            let mut left = 0;
            self.sessions.retain(|lane, session| {
                let is_older = matches!(lane.sender, Sender::Server { server: of, .. } if of == server);
                left += if is_older { session.under_way } else { 0 };
                !is_older
            });
            if left > 0 {
                *self.of_older.entry(server).or_default() += left;
            }
        }
        Ok(())
    }

    /// Forgets a session if there are too many.
    fn make_room(&mut self) -> Result<(), Refused> {
        if self.sessions.len() < self.most {
            return Ok(());
        }
        let left = self.sessions.iter().filter_map(|(lane, session)| match session.presence {
            Presence::Left(when) if session.under_way == 0 => Some((when, *lane)),
            Presence::Left(_) | Presence::Connected => None,
        });
        match left.min() {
            Some((_, lane)) => drop(self.sessions.remove(&lane)),
            None => return Err(Refused::new(Reason::TooMany, format!("{} sessions are open", self.sessions.len()))),
        }
        Ok(())
    }

    /// A request has come that costs so much, as [`super::cost`] says.
    pub fn arrived(&mut self, pass: &Pass, id: u64, slot: u16, cost: u64) -> Arrival<A> {
        let Some(session) = self.sessions.get_mut(&pass.lane).filter(|session| session.epoch == pass.epoch) else {
            return Arrival::Fenced;
        };
        if slot >= self.grant.requests.max(1) {
            return Arrival::Overrun;
        }
        if session.slots.len() <= usize::from(slot) {
            session.slots.resize_with(usize::from(slot) + 1, || Slot::Unused);
        }
        let place = &mut session.slots[usize::from(slot)];
        match place {
            Slot::UnderWay { id: newest, .. } | Slot::Done { id: newest, .. } if id < *newest => return Arrival::Late,
            Slot::UnderWay { id: newest, .. } if id == *newest => return Arrival::UnderWay,
            Slot::UnderWay { .. } => return Arrival::Overrun,
            Slot::Done { id: newest, answer: Some(answer), .. } if id == *newest => {
                return Arrival::Answer(answer.clone());
            }
            // Done again, it could still be under way when its client uses the slot for the next one.
            Slot::Done { id: newest, told: Some(told), .. } if id == *newest && *told == pass.epoch => {
                return Arrival::UnderWay;
            }
            Slot::Unused | Slot::Done { .. } => {}
        }
        if session.under_way > 0 && session.bytes.saturating_add(cost) > self.grant.bytes {
            return Arrival::Overrun;
        }
        *place = Slot::UnderWay { id, cost };
        session.under_way += 1;
        session.bytes = session.bytes.saturating_add(cost);
        Arrival::Begin
    }

    /// A request that was begun has been carried out. `answer` is `None` if it may be carried out again, as reads may.
    pub fn finished(&mut self, pass: &Pass, id: u64, slot: u16, answer: Option<A>) -> Finished {
        let Some(session) = self.sessions.get_mut(&pass.lane) else { return self.finished_of_older(pass) };
        let place = session.slots.get_mut(usize::from(slot));
        let Some((place, cost)) = place.and_then(|place| match *place {
            Slot::UnderWay { id: newest, cost } if newest == id => Some((place, cost)),
            _ => None,
        }) else {
            return Finished::default();
        };
        let told = (session.presence == Presence::Connected).then_some(session.epoch);
        *place = Slot::Done { id, told, answer };
        session.under_way -= 1;
        session.bytes -= cost;
        Finished { to: told.map(|epoch| Pass { epoch, ..*pass }), drained: None }
    }

    fn finished_of_older(&mut self, pass: &Pass) -> Finished {
        let Sender::Server { server, .. } = pass.lane.sender else { return Finished::default() };
        let Some(left) = self.of_older.get_mut(&server) else { return Finished::default() };
        *left -= 1;
        if *left > 0 {
            return Finished::default();
        }
        self.of_older.remove(&server);
        Finished { to: None, drained: Some(server) }
    }

    /// A connection that was let in is over. The session is kept.
    pub fn disconnected(&mut self, pass: &Pass) {
        self.departures += 1;
        if let Some(session) = self.sessions.get_mut(&pass.lane).filter(|session| session.epoch == pass.epoch) {
            session.presence = Presence::Left(self.departures);
        }
    }

    /// Whether what comes on this connection is still heard.
    pub fn is_newest(&self, pass: &Pass) -> bool {
        self.sessions.get(&pass.lane).is_some_and(|session| session.epoch == pass.epoch)
    }

    /// How many requests are under way on behalf of a session, whatever the connection.
    pub fn under_way(&self, pass: &Pass) -> u64 {
        self.sessions.get(&pass.lane).map_or(0, |session| session.under_way)
    }
}
