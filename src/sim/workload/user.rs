//! A careful user: one thread of a process, which takes locks, asks whether they are valid, and writes down what it got.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use super::{
    notes::{Grant, Notes},
    objects::{Object, Objects, Panics, Usable, drop_in_a_panic, kind_of, tolerating},
    plan::{Act, Kind, Plan, ProcessPlan, Way, What, With},
};
use crate::{
    AcquireOptions, CancelToken, Error, Hold, HoldState, InterProcessMultiLock, LostReason, Result, Revoker,
    base::{channel::unbounded, sim::thread::sleep, sync::Mutex},
    sim::{
        check::history::{Actor, Limit, Share, Write},
        process::Process,
    },
};

/// How long a lock is held while everybody is to be served.
const CALM_HOLD: Duration = Duration::from_millis(20);

/// How long refused acts are tried again, beside some session timeouts: longer than a client may take to recover, so that the
/// last try is one for which there is no excuse.
const TO_BE_SERVED: Duration = Duration::from_secs(30);

/// What the threads of one process share.
pub(crate) struct Shared {
    pub(crate) plan: Arc<Plan>,
    pub(crate) number: usize,
    pub(crate) process: Process,
    pub(crate) notes: Notes,
    /// The present client and its locks.
    pub(crate) objects: Mutex<Arc<Objects>>,
    pub(crate) clients: AtomicU64,
    /// No fault is left, and everybody has to be served.
    pub(crate) is_calm: Arc<AtomicBool>,
    pub(crate) panics: Panics,
}

impl Shared {
    pub(crate) fn own(&self) -> &ProcessPlan {
        &self.plan.processes[self.number]
    }

    pub(crate) fn objects(&self) -> Arc<Objects> {
        self.objects.lock().clone()
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::SeqCst)
    }

    /// Whether no error explains itself once all is healed. A list of many long names fits no small frame.
    pub(super) fn must_be_served(&self) -> bool {
        self.plan.max_frame.is_none()
    }

    /// How long an untimed acquire may go on without a server.
    fn gives_up(&self) -> Duration {
        let (own, threads) = (self.own(), u32::try_from(self.own().threads.len()).unwrap_or(1));
        let attempt = own.connection_timeout + Duration::from_millis(100);
        // Threads behind a cached lock end one after another.
        let rounds = if own.is_cached { threads } else { 1 };
        own.retries.longest(attempt).map_or(Duration::from_secs(1 << 30), |retries| {
            self.plan.timeout * 3 + (retries + attempt) * rounds + Duration::from_secs(5)
        })
    }
}

/// One thread.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) shared: Arc<Shared>,
    pub(crate) by: Actor,
}

impl User {
    /// Works until all is calm, and then does each act once more.
    pub(crate) fn run(&self) {
        let acts = &self.shared.own().threads[self.by.thread];
        'faults: for round in 0.. {
            for act in acts {
                if self.shared.is_calm() {
                    break 'faults;
                }
                sleep(act.rest);
                self.act(act, false);
            }
            // A cached lock takes no time at all, and a shortened plan may have no acts.
            if round % 16 == 15 || acts.is_empty() {
                sleep(Duration::from_millis(250));
            }
            if acts.is_empty() && self.shared.is_calm() {
                break;
            }
        }
        let latest = self.shared.process.now() + self.shared.plan.timeout * 3 + TO_BE_SERVED;
        for act in acts {
            // A fault that is over may still have refused it.
            while !self.act(act, true) && self.shared.process.now() < latest {
                sleep(self.shared.plan.timeout / 4);
            }
        }
    }

    /// `false`: it got nothing.
    fn act(&self, act: &Act, is_calm: bool) -> bool {
        let calm = |hold: Duration| if is_calm { hold.min(CALM_HOLD) } else { hold };
        match &act.what {
            What::Lock { place, is_reader, way, hold, with } => {
                self.lock((*place, *is_reader), calm_way(*way, is_calm), calm(*hold), *with)
            }
            What::Leases { place, count, way, hold } => {
                self.leases(*place, *count, calm_way(*way, is_calm), calm(*hold))
            }
            What::Several { places, way, hold } => self.several(places, calm_way(*way, is_calm), calm(*hold)),
            What::Lead { place, lasts, term } => {
                self.lead(*place, (!is_calm).then_some(*lasts), if is_calm { CALM_HOLD } else { *term })
            }
            What::Ask { place } => self.ask(*place),
            What::Renew if is_calm => true,
            What::Renew => self.renew(),
        }
    }

    fn kind(&self, place: usize) -> Kind {
        self.shared.plan.places[place].kind
    }

    pub(crate) fn path(&self, place: usize) -> &str {
        &self.shared.plan.places[place].path
    }

    fn share(&self, place: usize, is_reader: bool) -> Share {
        match self.kind(place) {
            Kind::Semaphore(_) => Share::Leases,
            Kind::ReadWrite if is_reader => Share::Readers,
            _ => Share::Alone,
        }
    }

    /// Runs one acquire by these options, and writes down when it began and ended. `None`: not acquired.
    pub(crate) fn acquire<T>(
        &self,
        (place, what): (usize, &str),
        way: Way,
        run: impl FnOnce(&AcquireOptions) -> Result<Option<T>>,
    ) -> Option<T> {
        let shared = &self.shared;
        let (options, limit) = self.options(place, way);
        let call = shared.notes.call((place, self.by), format!("{what} {way:?}"), limit, shared.gives_up());
        let options = match way {
            Way::Cancelled(after) => {
                let token = CancelToken::new();
                let (of_canceller, notes) = (token.clone(), shared.notes.clone());
                shared.process.spawn("canceller", move || {
                    sleep(after);
                    notes.cancelled(call);
                    of_canceller.cancel();
                });
                options.cancel_token(&token)
            }
            _ => options,
        };
        let began = shared.notes.world.now();
        let (how, got) = match tolerating(|| run(&options)) {
            Some(Ok(Some(got))) => ("granted".to_owned(), Some(got)),
            Some(Ok(None)) => {
                let waited = shared.notes.world.now() - began;
                // Clocks differ by one in a hundred.
                if matches!(way, Way::Timed(time) if waited < time * 98 / 100) {
                    let what = format!("{:?} {what} {way:?} after {waited:?}", self.by);
                    shared.notes.broken("a timed acquire that gives up early", what);
                }
                ("not granted".to_owned(), None)
            }
            Some(Err(error)) => {
                // A listener may give it back while the acquire hears of deaths.
                let is_given_back = matches!(&error, Error::LockLost { reason: LostReason::Revoked, .. });
                if way == Way::Wait && shared.must_be_served() && !is_given_back {
                    shared.notes.refused(call, &error.to_string());
                }
                (self.failed(what, way, &error), None)
            }
            None => ("panic of the caller's code".to_owned(), None),
        };
        shared.notes.returned(call, &how);
        if got.is_some() {
            shared.notes.count(&format!("grants: {}{}", self.kind(place).name(), self.cached(place)));
        } else if way == Way::Wait && how == "not granted" {
            shared.notes.broken("an untimed acquire without a result", format!("{:?} {what}", self.by));
        }
        got
    }

    fn cached(&self, place: usize) -> &'static str {
        let can_be = matches!(self.kind(place), Kind::Mutex | Kind::ReadWrite);
        if self.shared.own().is_cached && can_be { ", cached" } else { "" }
    }

    fn failed(&self, what: &str, way: Way, error: &Error) -> String {
        let (kind, is_known) = kind_of(error);
        let is_of_way = match error {
            Error::Busy { .. } => matches!(way, Way::Queue(_)),
            Error::Cancelled { .. } => matches!(way, Way::Cancelled(_)),
            Error::InvalidArgument { .. } => matches!(way, Way::Valid(_)),
            Error::FrameTooLarge { .. } => self.shared.plan.max_frame.is_some(),
            _ => true,
        };
        if !is_known || !is_of_way {
            self.shared
                .notes
                .broken("an error that no fault explains", format!("{:?} {what} {way:?}: {error:?}", self.by));
        }
        kind
    }

    fn options(&self, place: usize, way: Way) -> (AcquireOptions, Limit) {
        let options = AcquireOptions::new();
        let is_cached = !self.cached(place).is_empty();
        match way {
            Way::Wait | Way::Cancelled(_) => (options, Limit::Untimed),
            Way::Timed(time) => (options.timeout(time), Limit::Timed(time)),
            Way::Try => {
                let own = self.shared.own();
                let places = u32::try_from(self.shared.plan.places.len()).unwrap_or(u32::MAX);
                let delays = own.hears_of_deaths.unwrap_or_default() * places;
                (options.timeout(Duration::ZERO), Limit::Timed(own.connection_timeout + delays))
            }
            Way::Queue(most) => (options.max_queue(most), Limit::Untimed),
            Way::Valid(_) | Way::Bounded(..) if is_cached => (options, Limit::Untimed),
            Way::Valid(time) => (options.min_validity(time), Limit::Untimed),
            Way::Bounded(least, most) => (options.hold_at_least(least).hold_at_most(most), Limit::Untimed),
        }
    }

    /// For how long a grant is certain, and its znode there, at least.
    fn least(&self, place: usize, way: Way) -> (Duration, Duration) {
        match way {
            _ if !self.cached(place).is_empty() => Default::default(),
            Way::Valid(time) => (time, Duration::ZERO),
            Way::Bounded(least, _) => (Duration::ZERO, least),
            _ => Default::default(),
        }
    }

    fn grant<'a>(&'a self, objects: &Objects, (place, is_reader): (usize, bool), way: Way) -> Grant<'a> {
        Grant {
            place,
            by: self.by,
            share: self.share(place, is_reader),
            process: &self.shared.process,
            client: objects.number,
            needs_quorum: self.shared.own().needs_quorum,
            writer: None,
            listens: false,
            hears: self.shared.own().hears_of_deaths.is_some() && self.shared.plan.tells_of_deaths(),
            least: self.least(place, way),
        }
    }

    fn lock(&self, (place, is_reader): (usize, bool), way: Way, time: Duration, with: With) -> bool {
        let objects = self.shared.objects();
        // A plain one beside a cached one of the same client.
        let is_plain = self.shared.own().has_plain_as_well && self.any(4) == 0;
        let locks = if is_plain { &objects.plain } else { &objects.locks };
        let Some(lock) = locks[place].lock(is_reader) else { return true };
        let grant = self.grant(&objects, (place, is_reader), way);
        match with {
            With::Guard | With::Listener | With::Write => {
                let guarded = self.acquire((place, "lock"), way, |options| lock.guarded(options));
                let Some(guard) = guarded else { return false };
                let listens = with == With::Listener;
                let claim = self.shared.notes.granted(guard.hold(), &Grant { listens, ..grant });
                if listens {
                    self.listen(claim, guard.hold());
                }
                // Readers' tokens are in no order.
                if with == With::Write && !is_reader {
                    self.write(place, &objects, guard.hold());
                }
                self.hold(&[(claim, guard.hold().clone())], time);
                if with == With::Write && !is_reader {
                    self.write(place, &objects, guard.hold());
                }
                if with == With::Guard && self.any(4) == 0 {
                    self.shared.notes.leaves(claim);
                    drop_in_a_panic(guard);
                } else if with == With::Guard {
                    drop(guard);
                } else {
                    self.release_once(|| guard.release());
                }
            }
            With::Plain | With::Again | With::Downgrade => {
                let holds = self.acquire((place, "acquire"), way, |options| lock.acquire_holds(options));
                let Some(holds) = holds else { return false };
                let claims: Vec<_> =
                    holds.iter().map(|hold| (self.shared.notes.granted(hold, &grant), hold.clone())).collect();
                match (with, &locks[place]) {
                    (With::Downgrade, Object::ReadWrite(both)) if !is_reader => {
                        self.downgrade((place, &objects), both, claims, time);
                        return true;
                    }
                    (With::Again, _) if lock.is_reentrant() => self.again(place, lock),
                    _ => {}
                }
                self.hold(&claims, time);
                self.release(|| lock.release());
            }
        }
        true
    }

    fn listen(&self, claim: usize, hold: &Hold) {
        let (notes, panics) = (self.shared.notes.clone(), self.shared.panics.clone());
        hold.on_state_change(move |state| {
            notes.told(claim, state);
            panics.called();
        });
    }

    /// Acquires the lock once more, which takes no request.
    fn again(&self, place: usize, lock: &dyn Usable) {
        let mut holds = self.acquire((place, "acquire again"), Way::Timed(Duration::from_millis(1)), |options| {
            lock.acquire_holds(options)
        });
        if holds.take().is_some() {
            self.release(|| lock.release());
        }
    }

    fn downgrade(
        &self,
        (place, objects): (usize, &Objects),
        both: &crate::InterProcessReadWriteLock,
        writer: Vec<(usize, Hold)>,
        time: Duration,
    ) {
        let read = both.read_lock();
        let got = self
            .acquire((place, "downgrade"), Way::Wait, |options| crate::InterProcessLock::acquire_holds(read, options));
        let node = writer.first().map(|(_, hold)| hold.node().path().as_str().to_owned());
        let grant = Grant { writer: node, ..self.grant(objects, (place, true), Way::Wait) };
        let holds = got.unwrap_or_default();
        let reader: Vec<_> = holds.iter().map(|hold| (self.shared.notes.granted(hold, &grant), hold.clone())).collect();
        self.hold(&writer, time / 2);
        self.release(|| both.write_lock().release());
        if !reader.is_empty() {
            self.hold(&reader, time / 2);
            self.release(|| read.release());
        }
    }

    fn leases(&self, place: usize, count: usize, way: Way, time: Duration) -> bool {
        let objects = self.shared.objects();
        let Object::Semaphore(semaphore) = &objects.locks[place] else { return true };
        let got = self.acquire((place, "leases"), way, |options| semaphore.acquire_with(count, options));
        let Some(leases) = got else { return false };
        if leases.len() != count {
            self.shared.notes.broken("too few leases", format!("{:?}: {} of {count}", self.by, leases.len()));
        }
        let grant = self.grant(&objects, (place, false), way);
        let claims: Vec<(usize, Hold)> =
            leases.iter().map(|lease| (self.shared.notes.granted(lease, &grant), (**lease).clone())).collect();
        self.hold(&claims, time);
        match self.any(3) {
            0 => drop(leases),
            1 => leases.into_iter().for_each(|lease| self.release_once(|| lease.close())),
            _ => self.release_once(|| semaphore.return_all(leases)),
        }
        true
    }

    fn several(&self, places: &[usize], way: Way, time: Duration) -> bool {
        let objects = self.shared.objects();
        let is_of_paths = places.iter().all(|place| self.kind(*place) == Kind::Mutex) && self.any(2) == 0;
        let multi = if is_of_paths {
            // Whatever their order, they are taken in one.
            InterProcessMultiLock::new(&objects.client, places.iter().rev().map(|place| self.path(*place)))
        } else {
            InterProcessMultiLock::from_locks(
                places.iter().filter_map(|place| objects.locks[*place].member()).collect::<Vec<_>>(),
            )
        };
        let Ok(multi) = multi else { return true };
        // One of the members may be cached, which has no bounds.
        let is_bounded = matches!(way, Way::Bounded(..) | Way::Valid(_) | Way::Queue(_));
        let way = if is_bounded && self.shared.own().is_cached { Way::Wait } else { way };
        let guard = self.acquire((places[0], "several"), way, |options| multi.lock_with(options));
        let Some(guard) = guard else { return false };
        let claims: Vec<(usize, Hold)> = guard
            .holds()
            .iter()
            .zip(places)
            .map(|(hold, place)| {
                let grant = self.grant(&objects, (*place, false), way);
                let hears = grant.hears && !is_of_paths;
                (self.shared.notes.granted(hold, &Grant { hears, ..grant }), hold.clone())
            })
            .collect();
        self.shared.notes.count("grants: several");
        self.hold(&claims, time);
        if self.any(2) == 0 {
            drop(guard);
        } else {
            self.release_once(|| guard.release());
        }
        true
    }

    /// A choice that the seed decides.
    pub(crate) fn any(&self, of: u128) -> u128 {
        self.shared.notes.world.now().as_nanos() % of
    }

    /// Holds for a time, or until it hears of a loss, and asks meanwhile whether it still does. The claims end here: what
    /// follows is the release.
    fn hold(&self, claims: &[(usize, Hold)], time: Duration) {
        let (process, notes) = (&self.shared.process, &self.shared.notes);
        let until = process.now() + time;
        let (tell, changes) = unbounded();
        for (_, hold) in claims.iter().filter(|_| !time.is_zero()) {
            let tell = tell.clone();
            hold.on_state_change(move |state| _ = tell.send(state));
        }
        let often = self.shared.own().timeout / 20;
        loop {
            let left = until.saturating_duration_since(process.now());
            for (_, hold) in claims {
                notes.asks(process, hold, || hold.is_valid());
            }
            if left.is_zero() {
                break;
            }
            if let Ok(HoldState::Lost(_)) = changes.recv_timeout(left.min(often)) {
                break;
            }
        }
        for (claim, _) in claims {
            notes.ended(*claim);
        }
    }

    /// Releases a lock. Where the caller's code panics meanwhile it is tried again, as a thread's lock stays its own.
    fn release(&self, mut release: impl FnMut() -> Result<()>) {
        for attempt in 0..5 {
            match tolerating(&mut release) {
                // The first one was carried out, or goes on in the background.
                Some(Err(Error::NotOwner { .. })) if attempt > 0 => return,
                Some(released) => return self.released(released),
                None => {}
            }
            self.shared.notes.count("release: panic of the caller's code");
        }
    }

    /// Releases what is gone once that was tried.
    fn release_once(&self, release: impl FnOnce() -> Result<()>) {
        match tolerating(release) {
            Some(released) => self.released(released),
            None => self.shared.notes.count("release: panic of the caller's code"),
        }
    }

    fn released(&self, released: Result<()>) {
        let how = match released {
            Ok(()) => "released".to_owned(),
            Err(error) => {
                let (kind, is_known) = kind_of(&error);
                if !is_known {
                    let what = format!("{:?} release: {error:?}", self.by);
                    self.shared.notes.broken("an error that no fault explains", what);
                }
                format!("release: {kind}")
            }
        };
        self.shared.notes.count(&how);
    }

    /// Writes in a transaction that the servers refuse once the lock is gone.
    fn write(&self, place: usize, objects: &Objects, hold: &Hold) {
        let token = hold.fencing_token();
        let path = format!("/data{place}");
        let transaction = objects.client.transaction().set_data().for_path_and_data(&path, token.to_bytes());
        let results = tolerating(|| hold.guard_transaction(transaction).and_then(crate::Transaction::commit));
        let Some(Ok(results)) = results else { return self.shared.notes.count("guarded write refused") };
        let Some(stat) = results.first().and_then(|result| result.stat) else { return };
        let (at, by, token) = (self.shared.notes.world.now(), self.by, (token.value(), token.grant()));
        let znode = hold.node().path().as_str().to_owned();
        self.shared.notes.wrote(Write { place, by, token, znode, zxid: stat.mzxid, at });
        self.shared.notes.count("guarded writes");
    }

    /// Asks the contender in front to give the lock back.
    fn ask(&self, place: usize) -> bool {
        let objects = self.shared.objects();
        let path = match self.kind(place) {
            Kind::Semaphore(_) | Kind::SemaphoreMutex => format!("{}/leases", self.path(place)),
            Kind::Unfair => format!("{}/lock/holder", self.path(place)),
            _ => self.path(place).to_owned(),
        };
        let client = &objects.client;
        let ask = || {
            client.get_children().for_path(&path).and_then(|names| match names.iter().min() {
                Some(first) => Revoker::request(client, &format!("{path}/{first}"), "a test", "now"),
                None => Ok(()),
            })
        };
        let asked = tolerating(ask);
        self.shared.notes.count(if matches!(asked, Some(Ok(()))) {
            "requests to give back"
        } else {
            "requests refused"
        });
        true
    }

    /// Closes the client under its users, and starts another one.
    fn renew(&self) -> bool {
        let shared = &self.shared;
        let number = shared.clients.fetch_add(1, Ordering::SeqCst) + 1;
        let Ok(new) = Objects::new(&shared.plan, shared.own(), &shared.process, &shared.notes, number) else {
            return false;
        };
        let before = std::mem::replace(&mut *shared.objects.lock(), Arc::new(new));
        shared.notes.client_closes(shared.number, before.number, before.client.session_id());
        before.client.close();
        shared.notes.count("clients closed");
        true
    }
}

/// Once all is calm everybody waits for its turn.
fn calm_way(way: Way, is_calm: bool) -> Way {
    if is_calm { Way::Wait } else { way }
}
