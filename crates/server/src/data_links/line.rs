//! What one server has been asked over one lane, in line until it's answered: which of it is to be sent, and again.
//!
//! 1. Frames are made in the order in which was asked, also again on a new connection.
//! 2. Whoever waits is told once: the answer, or that there will be none.
//! 3. What nobody waits for any more isn't carried out later than that, unless it's on its way already: in its place something
//!    goes that does nothing. Its slot is the session's, and the server may remember something in it. In a lane where questions
//!    leave with their askers (see [`Lane::leaves_with_asker`]), that's so too for who has left without a word.

use super::lane::Lane;
use std::collections::VecDeque;
use tepal_engine::Question;
use tepal_wire::handshake::Welcome;
use tepal_wire::session::{Client, ToSend};
use tepal_wire::{Header, Outbox};

/// Who waits for an answer.
pub trait Waits {
    /// Whether nobody does any more.
    fn has_left(&self) -> bool;
}

/// `W` waits for an answer.
pub struct Line<W> {
    lane: Lane,
    session: Client<Asked<W>>,
    /// Are to be sent again on this connection, before anything else.
    again: VecDeque<ToSend>,
    /// No slot is free for them, or there's no connection.
    waiting: VecDeque<Asked<W>>,
    /// While there's a connection over which something can be sent.
    makes_frames: bool,
    /// Which run of the server answered last.
    boot: Option<u64>,
    /// Does nothing.
    nothing: Question,
    /// With so many waiting, those that have left are forgotten.
    tidy_at: usize,
}

/// With so many bytes of frames, they are sent at once; and where questions leave with their askers, no more are made before.
pub const PARCEL: u64 = 128 << 10;

/// Fewer that wait aren't looked through.
const TIDY_FROM: usize = 64;

/// A question that isn't answered.
pub struct Asked<W> {
    question: Question,
    cost: u64,
    /// `None` once it was told.
    pub waiter: Option<W>,
}

/// Who is to be told that there will be no answer.
#[derive(Debug, PartialEq, Eq)]
pub struct Told<W> {
    pub waiter: W,
    /// The question was sent: it may have been carried out.
    pub was_sent: bool,
}

impl<W: Waits> Asked<W> {
    /// Whether it's to be left out, as nobody waits for it.
    fn has_left(&self, lane: Lane) -> bool {
        lane.leaves_with_asker() && self.waiter.as_ref().is_some_and(W::has_left)
    }

    fn give_up(&mut self, was_sent: bool, nothing: &Question) -> Option<Told<W>> {
        self.question = nothing.clone();
        self.waiter.take().map(|waiter| Told { waiter, was_sent })
    }
}

impl<W: Waits> Line<W> {
    pub fn new(lane: Lane) -> Self {
        let (session, waiting, nothing) = (Client::new(0), VecDeque::new(), lane.nothing());
        let again = VecDeque::new();
        Line { lane, session, again, waiting, makes_frames: false, boot: None, nothing, tidy_at: TIDY_FROM }
    }

    /// Whether something isn't answered.
    pub fn is_wanted(&self) -> bool {
        !self.waiting.is_empty() || !self.session.is_idle()
    }

    /// Whether nothing waits for a slot or for a connection.
    pub fn has_begun_all(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn ask(&mut self, question: Question, waiter: W, outbox: &mut Outbox) {
        let cost = question.request.cost(&question.payload);
        if self.waiting.len() >= self.tidy_at {
            let lane = self.lane;
            self.waiting.retain(|asked| !asked.has_left(lane));
            self.tidy_at = TIDY_FROM.max(2 * self.waiting.len());
        }
        self.waiting.push_back(Asked { question, cost, waiter: Some(waiter) });
        self.fill(outbox);
    }

    /// Makes frames of what is next in line, as far as the window goes. Where questions leave with their askers, few are made before they
    /// are sent: a frame isn't taken back.
    pub fn fill(&mut self, outbox: &mut Outbox) {
        while self.makes_frames
            && (outbox.pending() < PARCEL || !self.lane.leaves_with_asker())
            && let Some(to_send) = self.next()
        {
            self.push(to_send, outbox);
        }
    }

    fn next(&mut self) -> Option<ToSend> {
        let begun = self.again.pop_front().or_else(|| self.session.next_displaced());
        if begun.is_some() {
            return begun;
        }
        loop {
            let cost = self.waiting.front()?.cost;
            let first = self.waiting.pop_front_if(|_| self.session.has_room(cost))?;
            if first.has_left(self.lane) {
                continue;
            }
            // What may have been carried out by somebody else says so itself.
            match self.session.begin(first.cost, false, first) {
                Ok(to_send) => return to_send,
                Err(full) => {
                    self.waiting.push_front(full.0);
                    return None;
                }
            }
        }
    }

    fn push(&mut self, to_send: ToSend, outbox: &mut Outbox) {
        let ToSend { id, slot, session, in_doubt } = to_send;
        let Some(asked) = self.session.request(&to_send) else { return };
        if asked.has_left(self.lane) {
            asked.question = self.nothing.clone();
        }
        let question = &asked.question;
        let Question { view, revision, .. } = *question;
        let header = Header { request: id, slot, session, view, revision, in_doubt, load: 0 };
        outbox.push(&header, &question.request, &question.payload);
    }

    /// The epoch of a new connection.
    pub fn connect(&mut self) -> u64 {
        self.makes_frames = false;
        self.session.connect()
    }

    pub fn disconnected(&mut self) {
        self.makes_frames = false;
        self.session.disconnected();
    }

    /// Nothing can be sent over this connection any more. Answers that have come over it count still.
    pub fn makes_no_more(&mut self) {
        self.makes_frames = false;
    }

    /// All that isn't answered is to be sent, which this begins. Who will have no answer is to be told: an earlier run of the
    /// server may have carried out what it was sent.
    pub fn welcomed(&mut self, welcome: &Welcome, outbox: &mut Outbox) -> Vec<Told<W>> {
        let mut told = Vec::new();
        if !self.session.is_remembered(welcome) {
            let nothing = &self.nothing;
            let sent = self.session.each_unanswered().filter(|(_, sent)| *sent);
            told.extend(sent.filter_map(|(asked, sent)| asked.give_up(sent, nothing)));
            // The same run has forgotten what it was sent. What comes after that may rely on it.
            if self.boot == Some(welcome.boot) && !told.is_empty() {
                told.extend(self.give_up());
            }
        }
        (self.boot, self.makes_frames) = (Some(welcome.boot), true);
        self.again = self.session.welcomed(welcome).into();
        self.fill(outbox);
        told
    }

    /// Nobody is sent again what isn't any more what it was: it would be refused over and over. To be asked before all is sent
    /// on a new connection.
    pub fn give_up_damaged(&mut self) -> Vec<Told<W>> {
        let nothing = &self.nothing;
        let begun = self.session.each_unanswered().filter(|(asked, _)| asked.question.payload.verify().is_err());
        begun.filter_map(|(asked, sent)| asked.give_up(sent, nothing)).collect()
    }

    /// What an answer with this header is to. More may fit after it: see [`Line::fill`].
    pub fn answered(&mut self, header: &Header) -> Option<Asked<W>> {
        self.session.answered(header.session, header.request, header.slot)
    }

    /// Nobody waits any more: they are all to be told.
    pub fn give_up(&mut self) -> Vec<Told<W>> {
        let nothing = &self.nothing;
        let begun = self.session.each_unanswered();
        let mut told: Vec<Told<W>> = begun.filter_map(|(asked, sent)| asked.give_up(sent, nothing)).collect();
        told.extend(self.waiting.drain(..).filter_map(|mut asked| asked.give_up(false, nothing)));
        told
    }
}
