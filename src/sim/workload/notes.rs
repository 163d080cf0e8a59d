//! Writes the history down while the run goes on.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::plan::Plan;
use crate::{
    Hold, HoldState, LostReason,
    session::api::Session,
    sim::{
        check::{
            Violation,
            history::{Actor, At, Call, Claim, Ending, History, Limit, Promise, Share, Term, Word, Write},
        },
        process::Process,
        world::World,
    },
};

/// The history under way. A plain mutex: nothing of the simulator is called while it is locked.
#[derive(Clone)]
pub(crate) struct Notes {
    pub(crate) world: World,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    history: History,
    open: Vec<Open>,
    /// The znodes of holds that a listener has given back, by path and czxid.
    given_back: BTreeSet<(String, i64)>,
    counts: BTreeMap<String, u64>,
}

/// A claim that has not ended.
struct Open {
    claim: usize,
    process: Process,
    session: Arc<dyn Session>,
    /// The client of the process that it belongs to.
    client: u64,
    /// When it ends by its acquire's options.
    most: Option<Instant>,
}

impl Open {
    fn until(&self) -> Option<At> {
        let until = self.session.valid_until()?;
        let until = self.process.true_time(self.most.map_or(until, |most| most.min(until)));
        Some(until)
    }
}

/// How a grant came about.
pub(crate) struct Grant<'a> {
    pub(crate) place: usize,
    pub(crate) by: Actor,
    pub(crate) share: Share,
    pub(crate) process: &'a Process,
    pub(crate) client: u64,
    pub(crate) needs_quorum: bool,
    pub(crate) writer: Option<String>,
    pub(crate) listens: bool,
    /// Its lock listens for unclean deaths.
    pub(crate) hears: bool,
    /// Certain for as long, and its znode there for as long, at least.
    pub(crate) least: (Duration, Duration),
}

impl Notes {
    pub(crate) fn new(world: &World, plan: &Plan) -> Notes {
        let places = plan.places.iter().map(|place| place.kind.limit()).collect();
        let state = State { history: History { places, ..History::default() }, ..State::default() };
        Notes { world: world.clone(), state: Arc::new(Mutex::new(state)) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn count(&self, what: &str) {
        *self.state().counts.entry(what.to_owned()).or_default() += 1;
    }

    /// When a znode went, if it did.
    pub(crate) fn went(&self, path: &str) -> Option<At> {
        self.state().history.facts.gone.get(path).map(|(at, _)| *at)
    }

    /// The sessions that held locks and have expired though no fault was left. Those of attempts to connect that were given up on
    /// a slow link expire as well.
    pub(crate) fn never_closed(&self) -> Vec<i64> {
        let state = self.state();
        let facts = &state.history.facts;
        // A thread that is kept from running may have missed its heartbeat.
        let Some(healed) = facts.healed.filter(|_| !facts.stalls()) else { return Vec::new() };
        let by_faults = healed + facts.timeout * 3;
        let held = |session: i64| state.history.claims.iter().any(|claim| claim.session == session);
        let expired = facts.expired.iter().filter(|(at, session)| *at > by_faults && held(*session));
        expired.map(|(_, session)| *session).collect()
    }

    pub(crate) fn facts(&self, note: impl FnOnce(&mut crate::sim::check::history::Facts)) {
        note(&mut self.state().history.facts);
    }

    /// A claim begins as its acquire returns.
    pub(crate) fn granted(&self, hold: &Hold, grant: &Grant<'_>) -> usize {
        let node = hold.node();
        let (until, token, most) = (hold.valid_until(), hold.fencing_token(), node.ends_at());
        // One that has lasted for too long while its thread stood still was certain until then, and says so no more.
        let has_lasted = node.lost() == Some(LostReason::HeldTooLong);
        let until = most.filter(|_| has_lasted).unwrap_or(until);
        let (session, znode) = (node.session().clone(), node.path().as_str().to_owned());
        let until = grant.process.true_time(until);
        let at = self.world.now();
        let deaths = hold.unclean_deaths();
        deaths.iter().for_each(|_| self.count("deaths heard of"));
        let of = session.id();
        self.world.note(&format!("{:?} granted {znode} {token:?} of {of:#x}", grant.by));
        let mut state = self.state();
        // A listener may give it back before its user has it.
        let is_left = state.given_back.contains(&(znode.clone(), token.value()));
        let claim = Claim {
            place: grant.place,
            by: grant.by,
            share: grant.share,
            znode,
            session: session.id(),
            token: (token.value(), token.grant()),
            begun: at,
            promises: vec![Promise { at, until, timeout: session.timeout() }],
            ended: is_left.then_some(at),
            needs_quorum: grant.needs_quorum,
            writer: grant.writer.clone(),
            valid_for: grant.least.0,
            stays: grant.least.1,
            told: Vec::new(),
            listens: grant.listens,
            heard: grant.hears.then(|| deaths.iter().map(|death| death.fencing_token.value()).collect()),
            is_left: is_left || most.is_some(),
        };
        state.history.claims.push(claim);
        let claim = state.history.claims.len() - 1;
        state.open.push(Open { claim, process: grant.process.clone(), session, client: grant.client, most });
        state.sample(at, Some(grant.place));
        claim
    }

    /// Its user asks whether a hold is valid.
    pub(crate) fn asks(&self, process: &Process, hold: &Hold, is_valid: impl FnOnce() -> bool) {
        let began = process.now();
        let session = hold.node().session();
        let before = session.valid_until();
        let (is_valid, until) = (is_valid(), hold.valid_until());
        if session.valid_until() != before {
            // A thread that stands still in between may have been told of a proof that came and went meanwhile.
            return;
        }
        let promised = before.unwrap_or(began);
        let promised = hold.node().ends_at().map_or(promised, |most| most.min(promised));
        let is_over = began >= promised;
        if until > promised || is_valid && is_over {
            let what = format!("{hold:?}: valid: {is_valid}, until {until:?}; its session until {promised:?}");
            self.broken("a hold that promises more than its session", what);
        }
    }

    /// Its user gives the claim up: before the release, or as it hears of the loss.
    pub(crate) fn ended(&self, claim: usize) {
        let at = self.world.now();
        self.world.note(&format!("claim {claim} ends"));
        let mut state = self.state();
        let place = state.history.claims.get(claim).map(|claim| claim.place);
        state.sample(at, place);
        state.open.retain(|open| open.claim != claim);
        if let Some(claim) = state.history.claims.get_mut(claim) {
            claim.ended.get_or_insert(at);
        }
    }

    /// A listener gives a hold back under its users.
    pub(crate) fn gives_back(&self, hold: &Hold) {
        let (node, at) = (hold.node(), self.world.now());
        let (znode, czxid) = (node.path().as_str(), hold.fencing_token().value());
        self.count("given back as asked");
        let mut state = self.state();
        state.given_back.insert((znode.to_owned(), czxid));
        let State { history, open, .. } = &mut *state;
        open.retain(|open| {
            let claim = history.claims.get_mut(open.claim);
            let Some(claim) = claim.filter(|claim| (&*claim.znode, claim.token.0) == (znode, czxid)) else {
                return true;
            };
            claim.ended.get_or_insert(at);
            claim.is_left = true;
            false
        });
    }

    /// The listener has given it back, although its user was about to.
    pub(crate) fn came_first(&self, hold: &Hold) {
        let (path, token) = (hold.node().path().as_str(), hold.fencing_token());
        let is_given = |claim: &&mut Claim| *claim.znode == *path && claim.token == (token.value(), token.grant());
        self.state().history.claims.iter_mut().filter(is_given).for_each(|claim| claim.is_left = true);
    }

    /// The thread of a claim panics.
    pub(crate) fn leaves(&self, claim: usize) {
        if let Some(claim) = self.state().history.claims.get_mut(claim) {
            claim.is_left = true;
        }
    }

    /// A process closes a client under its users.
    pub(crate) fn client_closes(&self, process: usize, client: u64, session: i64) {
        let at = self.world.now();
        let mut state = self.state();
        let State { history, open, .. } = &mut *state;
        // A lock that another thread is granted just now is over as it returns.
        history.facts.closed.entry(session).or_default().push(Ending { at, is_calm: false });
        open.retain(|open| {
            let Some(claim) = history.claims.get_mut(open.claim) else { return false };
            if claim.by.process != process || open.client != client {
                return true;
            }
            claim.ended.get_or_insert(at);
            false
        });
    }

    /// A process ends: with it what its threads have and wait for.
    pub(crate) fn died(&self, process: usize) {
        let at = self.world.now();
        let mut state = self.state();
        state.sample(at, None);
        let State { history, open, .. } = &mut *state;
        history.facts.dead.insert(process, at);
        open.retain(|open| history.claims.get(open.claim).is_some_and(|claim| claim.by.process != process));
        for claim in history.claims.iter_mut().filter(|claim| claim.by.process == process) {
            claim.ended.get_or_insert(at);
        }
        for call in history.calls.iter_mut().filter(|call| call.by.process == process) {
            call.returned.get_or_insert(at);
        }
        for term in history.terms.iter_mut().filter(|term| term.by.process == process) {
            term.ended.get_or_insert(at);
        }
    }

    pub(crate) fn is_dead(&self, process: usize) -> bool {
        self.state().history.facts.dead.contains_key(&process)
    }

    /// Notes what all open claims are promised now.
    pub(crate) fn sample(&self) {
        let at = self.world.now();
        self.state().sample(at, None);
    }

    pub(crate) fn told(&self, claim: usize, state: HoldState) {
        let word = match state {
            HoldState::Held => Word::Held,
            HoldState::InDoubt => Word::InDoubt,
            HoldState::Lost(_) => Word::Lost,
            HoldState::Released => Word::Released,
        };
        let at = self.world.now();
        if let Some(claim) = self.state().history.claims.get_mut(claim) {
            claim.told.push((at, word));
        }
    }

    pub(crate) fn calls(&self, call: Call) -> usize {
        let mut state = self.state();
        state.history.calls.push(call);
        state.history.calls.len() - 1
    }

    pub(crate) fn call(&self, (place, by): (usize, Actor), what: String, limit: Limit, gives_up: Duration) -> usize {
        let began = self.world.now();
        self.world.note(&format!("{by:?} {what} at {place}"));
        self.calls(Call { place, by, what, began, limit, cancelled: None, returned: None, gives_up, refused: None })
    }

    pub(crate) fn cancelled(&self, call: usize) {
        let at = self.world.now();
        if let Some(call) = self.state().history.calls.get_mut(call).filter(|call| call.returned.is_none()) {
            call.cancelled = Some(at);
        }
    }

    pub(crate) fn returned(&self, call: usize, how: &str) {
        let at = self.world.now();
        let mut state = self.state();
        if let Some(call) = state.history.calls.get_mut(call) {
            call.returned.get_or_insert(at);
            self.world.note(&format!("{:?} {}: {how}", call.by, call.what));
        }
        *state.counts.entry(how.to_owned()).or_default() += 1;
    }

    /// An untimed call got nothing, for this reason.
    pub(crate) fn refused(&self, call: usize, error: &str) {
        if let Some(call) = self.state().history.calls.get_mut(call) {
            call.refused = Some(error.to_owned());
        }
    }

    pub(crate) fn wrote(&self, write: Write) {
        self.state().history.writes.push(write);
    }

    pub(crate) fn leads(&self, place: usize, by: Actor, claim: Option<usize>) -> usize {
        let begun = self.world.now();
        let mut state = self.state();
        state.history.terms.push(Term { place, by, begun, ended: None, claim });
        state.history.terms.len() - 1
    }

    pub(crate) fn leads_no_more(&self, term: usize) {
        let at = self.world.now();
        if let Some(term) = self.state().history.terms.get_mut(term) {
            term.ended.get_or_insert(at);
        }
    }

    pub(crate) fn broken(&self, rule: &'static str, what: String) {
        let at = self.world.now();
        self.state().history.reported.push(Violation { rule, at, what });
    }

    /// The history up to then, and how often each thing was counted.
    pub(crate) fn read_at(&self, at: At) -> (History, BTreeMap<String, u64>) {
        let state = self.state();
        (History { end: at, ..state.history.clone() }, state.counts.clone())
    }
}

impl State {
    fn sample(&mut self, at: At, place: Option<usize>) {
        for open in &self.open {
            let Some(claim) = self.history.claims.get_mut(open.claim) else { continue };
            if place.is_some_and(|place| claim.place != place) {
                continue;
            }
            let Some(until) = open.until() else { continue };
            let timeout = open.session.timeout();
            if claim.promises.last().is_none_or(|last| (last.until, last.timeout) != (until, timeout)) {
                claim.promises.push(Promise { at, until, timeout });
            }
        }
    }
}
