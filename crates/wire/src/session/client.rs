//! The client's side of a session: what isn't answered, and whether more may be asked.
//!
//! 1. A request has its slot alone, from when it's begun until it's answered.
//! 2. What is in slots costs no more together than was granted, or is one request.
//! 3. What has no slot (the server was started again and grants less now) goes before anything new.

use crate::handshake::Welcome;
use std::collections::VecDeque;

/// One session with one server. `R` is what the caller needs to send a request again, and to tell who asked.
#[derive(Debug)]
pub struct Client<R> {
    epoch: u64,
    connected: bool,
    /// Which run of the server welcomed it last.
    boot: Option<u64>,
    next_id: u64,
    /// As many as were granted, or more as long as they are taken.
    slots: Vec<Option<Pending<R>>>,
    free: Vec<u16>,
    /// Have lost their slot, by id.
    displaced: VecDeque<Pending<R>>,
    granted: u64,
    bytes: u64,
}

#[derive(Debug)]
struct Pending<R> {
    id: u64,
    cost: u64,
    /// Somebody may have carried it out who doesn't remember.
    in_doubt: bool,
    /// Whether it has been sent to the server that is or was connected.
    sent: bool,
    request: R,
}

/// A request that is to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToSend {
    /// For the header.
    pub id: u64,
    /// For the header.
    pub slot: u16,
    /// For the header.
    pub session: u64,
    /// For the header.
    pub in_doubt: bool,
}

/// The window is full: ask again when something has been answered. The request comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full<R>(pub R);

impl<R> Client<R> {
    /// Not connected yet. Its connections have epochs after `epoch`.
    pub fn new(epoch: u64) -> Self {
        Client {
            epoch,
            connected: false,
            boot: None,
            next_id: 1,
            slots: Vec::new(),
            free: Vec::new(),
            displaced: VecDeque::new(),
            granted: 0,
            bytes: 0,
        }
    }

    /// Begins a connection: answers of older ones count no more. The epoch is for its hello.
    pub fn connect(&mut self) -> u64 {
        self.epoch += 1;
        self.connected = false;
        self.epoch
    }

    /// The connection is over. Requests can be begun as before, and are sent on the next one.
    pub fn disconnected(&mut self) {
        self.connected = false;
    }

    /// Whether the server remembers what it was sent. One that says so may speak of a connection whose welcome never came here,
    /// and have been started again before that.
    pub fn is_remembered(&self, welcome: &Welcome) -> bool {
        welcome.known && self.boot.is_none_or(|boot| boot == welcome.boot)
    }

    /// The server takes the session. What isn't answered is to be sent again, in this order.
    pub fn welcomed(&mut self, welcome: &Welcome) -> Vec<ToSend> {
        self.connected = true;
        self.granted = welcome.grant.bytes;
        if !self.is_remembered(welcome) {
            self.give_up_slots();
        }
        self.boot = Some(welcome.boot);
        // What the server remembers of slots that aren't granted any more, it remembers while they are taken.
        let granted = usize::from(welcome.grant.requests.max(1));
        let taken = self.slots.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
        self.slots.truncate(granted.max(taken));
        self.slots.resize_with(granted.max(taken), || None);
        self.free = (0..granted).rev().filter(|&at| self.slots[at].is_none()).map(|at| at as u16).collect();
        self.seat_displaced();
        let mut again: Vec<ToSend> = Vec::new();
        for (slot, pending) in self.slots.iter_mut().enumerate() {
            let Some(pending) = pending else { continue };
            pending.sent = true;
            again.push(ToSend { id: pending.id, slot: slot as u16, session: self.epoch, in_doubt: pending.in_doubt });
        }
        again.sort_unstable_by_key(|request| request.id);
        again
    }

    /// The server has forgotten what was in the slots.
    fn give_up_slots(&mut self) {
        let mut all: Vec<Pending<R>> = self.slots.drain(..).flatten().collect();
        for pending in &mut all {
            pending.in_doubt |= pending.sent;
            pending.sent = false;
        }
        all.extend(self.displaced.drain(..));
        all.sort_unstable_by_key(|pending| pending.id);
        (self.displaced, self.bytes) = (all.into(), 0);
    }

    /// Gives slots to those that have lost theirs, in order, as far as the window goes.
    fn seat_displaced(&mut self) {
        while let Some(first) = self.displaced.front()
            && self.fits(first.cost)
            && let Some(slot) = self.free.pop()
        {
            let Some(pending) = self.displaced.pop_front() else { return };
            self.bytes += pending.cost;
            self.slots[usize::from(slot)] = Some(pending);
        }
    }

    fn fits(&self, cost: u64) -> bool {
        !self.free.is_empty() && (self.bytes == 0 || self.bytes.saturating_add(cost) <= self.granted)
    }

    /// Whether a request of this cost would be begun now.
    pub fn has_room(&self, cost: u64) -> bool {
        self.displaced.is_empty() && self.fits(cost)
    }

    /// Begins a request, to be sent now, or `None` if that will be told when there's a connection. `in_doubt` if another server
    /// may have carried it out.
    pub fn begin(&mut self, cost: u64, in_doubt: bool, request: R) -> Result<Option<ToSend>, Full<R>> {
        if !self.has_room(cost) {
            return Err(Full(request));
        }
        let Some(slot) = self.free.pop() else { return Err(Full(request)) };
        let id = self.next_id;
        self.next_id += 1;
        self.bytes += cost;
        self.slots[usize::from(slot)] = Some(Pending { id, cost, in_doubt, sent: self.connected, request });
        Ok(self.connected.then_some(ToSend { id, slot, session: self.epoch, in_doubt }))
    }

    /// An answer with these in its header has come: the request that it's to, and it's over. `None` if that was answered
    /// before, or the answer is of an older connection.
    pub fn answered(&mut self, session: u64, id: u64, slot: u16) -> Option<R> {
        if session != self.epoch || !self.connected {
            return None;
        }
        let place = self.slots.get_mut(usize::from(slot))?;
        let pending = place.take_if(|pending| pending.id == id)?;
        self.bytes -= pending.cost;
        self.free.push(slot);
        Some(pending.request)
    }

    /// What else can be sent now that something has been answered: a request that had lost its slot.
    pub fn next_displaced(&mut self) -> Option<ToSend> {
        let first = self.displaced.front()?;
        if !self.connected || !self.fits(first.cost) {
            return None;
        }
        let (mut pending, slot) = (self.displaced.pop_front()?, self.free.pop()?);
        pending.sent = true;
        let to_send = ToSend { id: pending.id, slot, session: self.epoch, in_doubt: pending.in_doubt };
        self.bytes += pending.cost;
        self.slots[usize::from(slot)] = Some(pending);
        Some(to_send)
    }

    /// The request that is to be sent, unless it has been answered.
    pub fn request(&mut self, to_send: &ToSend) -> Option<&mut R> {
        let pending = self.slots.get_mut(usize::from(to_send.slot))?.as_mut();
        pending.filter(|pending| pending.id == to_send.id).map(|pending| &mut pending.request)
    }

    /// Everything that isn't answered, in no order, each with whether it may have been carried out: for who can't wait any more.
    pub fn each_unanswered(&mut self) -> impl Iterator<Item = (&mut R, bool)> {
        let all = self.slots.iter_mut().flatten().chain(&mut self.displaced);
        all.map(|pending| (&mut pending.request, pending.in_doubt || pending.sent))
    }

    /// Whether nothing was begun that isn't answered.
    pub fn is_idle(&self) -> bool {
        self.bytes == 0 && self.displaced.is_empty() // each request costs something
    }

    /// How many requests aren't answered.
    pub fn unanswered(&self) -> usize {
        self.slots.iter().flatten().count() + self.displaced.len()
    }

    /// Ends the session: what isn't answered, in order, each with whether it may have been carried out.
    pub fn end(self) -> impl Iterator<Item = (R, bool)> {
        let mut all: Vec<Pending<R>> = self.slots.into_iter().flatten().chain(self.displaced).collect();
        all.sort_unstable_by_key(|pending| pending.id);
        all.into_iter().map(|pending| (pending.request, pending.in_doubt || pending.sent))
    }
}
