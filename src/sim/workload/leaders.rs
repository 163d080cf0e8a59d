//! Candidates: a latch, a selector, a lock of ZooKeeper's own recipe.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{
    notes::{Grant, Notes},
    objects::{Objects, tolerating},
    plan::Kind,
    user::User,
};
use crate::{
    CloseMode, CuratorFramework, Hold, LeaderLatch, LeaderLatchListener, LeaderSelector, Leadership, Result,
    base::{
        channel::{Receiver, Sender, unbounded},
        sim::thread::sleep,
    },
    sim::check::history::{Limit, Share},
    zookeeper_recipe::{LockListener, WriteLock},
};

/// How long a leader's listener takes to stop what it does: less than the last twentieth of a session timeout.
const TO_STOP: Duration = Duration::from_millis(5);

/// The numbers of a term and of its claim.
type TermAndClaim = (usize, Option<usize>);

/// What the listener of one candidate writes down.
#[derive(Clone)]
struct Terms {
    user: User,
    place: usize,
    client: u64,
    /// The term that the listener was told of, and its claim, if the lock was certain then.
    now: Arc<Mutex<Option<TermAndClaim>>>,
    /// The candidate gives up by itself.
    is_left: Arc<AtomicBool>,
    led: Sender<()>,
}

impl Terms {
    fn notes(&self) -> &Notes {
        &self.user.shared.notes
    }

    fn begin(&self, hold: Option<&Hold>) {
        let claim = hold.filter(|_| !self.is_left.load(Ordering::SeqCst)).map(|hold| {
            let grant = Grant {
                place: self.place,
                by: self.user.by,
                share: Share::Alone,
                process: &self.user.shared.process,
                client: self.client,
                needs_quorum: self.user.shared.own().needs_quorum,
                writer: None,
                listens: false,
                hears: false,
                least: Default::default(),
            };
            self.notes().granted(hold, &grant)
        });
        let term = self.notes().leads(self.place, self.user.by, claim);
        let before = self.now.lock().unwrap_or_else(PoisonError::into_inner).replace((term, claim));
        if before.is_some() {
            self.notes().broken("a leader told twice", format!("{:?}", self.user.by));
        }
        self.notes().count(&format!("terms: {}", self.user.kind_name(self.place)));
        let _ = self.led.send(());
    }

    fn end(&self, still_leads: bool) {
        self.give_up();
        // Nobody else leads before the listener has returned.
        sleep(TO_STOP);
        let now = self.now.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some((term, _)) = now else {
            return self.notes().broken("an end of a term that had not begun", format!("{:?}", self.user.by));
        };
        self.notes().leads_no_more(term);
        if still_leads {
            self.notes().broken("a leader told after its listener", format!("{:?}", self.user.by));
        }
    }

    /// A term is over with its listener, which comes on a thread of its own.
    fn await_end(&self) {
        while self.now.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            sleep(Duration::from_millis(50));
        }
    }

    /// The claim ends, as the candidate gives up or is told.
    fn give_up(&self) {
        let claim =
            self.now.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|(_, claim)| claim.take());
        if let Some(claim) = claim {
            self.notes().ended(claim);
        }
    }
}

impl User {
    fn kind_name(&self, place: usize) -> &'static str {
        self.shared.plan.places[place].kind.name()
    }

    /// Wants to lead for so long; `None`: until it has led once. `false`: it could not become a candidate.
    pub(crate) fn lead(&self, place: usize, lasts: Option<Duration>, term: Duration) -> bool {
        let objects = self.shared.objects();
        let (led, has_led) = unbounded();
        let terms = Terms {
            user: self.clone(),
            place,
            client: objects.number,
            now: Arc::default(),
            is_left: Arc::default(),
            led,
        };
        let call =
            self.shared.notes.call((place, self.by), "lead".to_owned(), Limit::Untimed, Duration::from_secs(1 << 30));
        let wait = Wait { user: self, client: objects.number, has_led, call, lasts };
        let lead = || match self.shared.plan.places[place].kind {
            Kind::Latch => latch(&objects, &terms, &wait),
            Kind::Selector => selector(&objects, &terms, &wait, term),
            _ => write_lock(&objects, &terms, &wait),
        };
        let result = tolerating(lead);
        terms.give_up();
        match result {
            Some(Ok(())) => return true,
            Some(Err(error)) => {
                if self.shared.must_be_served() {
                    self.shared.notes.refused(call, &error.to_string());
                }
                self.shared.notes.returned(call, &format!("lead: {}", super::objects::kind_of(&error).0));
            }
            None => self.shared.notes.returned(call, "lead: panic of the caller's code"),
        }
        false
    }
}

/// How long a candidate stays one.
struct Wait<'a> {
    user: &'a User,
    /// The number of its client.
    client: u64,
    has_led: Receiver<()>,
    call: usize,
    lasts: Option<Duration>,
}

impl Wait<'_> {
    /// Sleeps until the candidate is to give up.
    fn sleep(&self) {
        let shared = &self.user.shared;
        match self.lasts {
            // In pieces: all may become calm meanwhile.
            Some(lasts) => {
                let until = shared.process.now() + lasts;
                while shared.process.now() < until && !shared.is_calm() {
                    sleep(until.saturating_duration_since(shared.process.now()).min(Duration::from_millis(500)));
                }
                shared.notes.returned(self.call, "candidate left");
            }
            None => {
                let until = shared.process.now() + shared.plan.timeout * 30 + Duration::from_secs(60);
                // In pieces: the last renewal of a client may have begun before all was calm, and ends this candidate.
                let how = loop {
                    if self.has_led.recv_timeout(Duration::from_secs(1)).is_ok() {
                        break "candidate led";
                    } else if shared.objects().number != self.client {
                        break "lead: client closed";
                    } else if shared.process.now() >= until {
                        break "candidate never led";
                    }
                };
                shared.notes.returned(self.call, how);
                if how == "candidate never led" {
                    shared.notes.broken("a candidate that never leads", format!("{:?}", self.user.by));
                }
            }
        }
    }
}

struct OfLatch {
    terms: Terms,
    latch: Arc<Mutex<Option<std::sync::Weak<LeaderLatch>>>>,
}

impl OfLatch {
    fn leads(&self) -> bool {
        let latch = self.latch.lock().unwrap_or_else(PoisonError::into_inner).clone();
        latch.and_then(|latch| latch.upgrade()).is_some_and(|latch| latch.has_leadership())
    }
}

impl LeaderLatchListener for OfLatch {
    fn is_leader(&self, leadership: &Leadership) {
        let leads = leadership.has_leadership();
        if leads && !self.leads() && leadership.has_leadership() && !self.terms.is_left.load(Ordering::SeqCst) {
            self.terms.notes().broken("a leader told after its listener", format!("{:?}", self.terms.user.by));
        }
        self.terms.begin(leads.then(|| leadership.hold()));
        self.terms.user.shared.panics.called();
    }

    fn not_leader(&self) {
        self.terms.end(self.leads());
        self.terms.user.shared.panics.called();
    }
}

fn latch(objects: &Objects, terms: &Terms, wait: &Wait<'_>) -> Result<()> {
    let latch =
        LeaderLatch::new(&objects.client, terms.user.path(terms.place))?.with_close_mode(CloseMode::NotifyLeader);
    let latch = Arc::new(latch);
    let of_listener = Arc::new(Mutex::new(Some(Arc::downgrade(&latch))));
    latch.add_listener(OfLatch { terms: terms.clone(), latch: of_listener });
    latch.start()?;
    wait.sleep();
    terms.is_left.store(true, Ordering::SeqCst);
    terms.give_up();
    if terms.user.any(4) == 0 {
        drop(latch);
        terms.await_end();
    } else {
        terms.user.left(latch.close());
    }
    Ok(())
}

fn selector(objects: &Objects, terms: &Terms, wait: &Wait<'_>, term: Duration) -> Result<()> {
    let of_listener = terms.clone();
    let leads = move |_: &CuratorFramework, leadership: &Leadership| {
        let is_certain = leadership.has_leadership();
        of_listener.begin(is_certain.then(|| leadership.hold()));
        let _ = leadership.sleep(term);
        let (notes, process) = (of_listener.notes(), &of_listener.user.shared.process);
        notes.asks(process, leadership.hold(), || leadership.has_leadership());
        of_listener.end(false);
        of_listener.user.shared.panics.called();
        Ok(())
    };
    let selector = LeaderSelector::new(&objects.client, terms.user.path(terms.place), leads)?;
    selector.auto_requeue();
    selector.start()?;
    wait.sleep();
    terms.is_left.store(true, Ordering::SeqCst);
    terms.give_up();
    terms.user.left(selector.close());
    terms.await_end();
    Ok(())
}

struct OfWriteLock {
    terms: Terms,
    lock: Arc<Mutex<Option<std::sync::Weak<WriteLock>>>>,
}

impl OfWriteLock {
    fn lock(&self) -> Option<Arc<WriteLock>> {
        self.lock.lock().unwrap_or_else(PoisonError::into_inner).clone()?.upgrade()
    }
}

impl LockListener for OfWriteLock {
    fn lock_acquired(&self) {
        self.terms.begin(self.lock().and_then(|lock| lock.hold()).as_ref());
        self.terms.user.shared.panics.called();
    }

    fn lock_released(&self) {
        self.terms.end(self.lock().is_some_and(|lock| lock.is_owner()));
        self.terms.user.shared.panics.called();
    }
}

fn write_lock(objects: &Objects, terms: &Terms, wait: &Wait<'_>) -> Result<()> {
    let lock = Arc::new(WriteLock::new(&objects.client, terms.user.path(terms.place))?);
    let of_listener = Arc::new(Mutex::new(Some(Arc::downgrade(&lock))));
    lock.set_lock_listener(OfWriteLock { terms: terms.clone(), lock: of_listener });
    // Without a connection the call may fail: then it is tried again.
    while let Err(error) = lock.lock() {
        if error.is_final() || !terms.user.shared.is_calm() {
            return Err(error);
        }
        sleep(Duration::from_millis(500));
    }
    wait.sleep();
    terms.is_left.store(true, Ordering::SeqCst);
    terms.give_up();
    terms.user.left(lock.close());
    Ok(())
}

impl User {
    fn left(&self, left: Result<()>) {
        if let Err(error) = left {
            self.shared.notes.count(&format!("candidate left: {}", super::objects::kind_of(&error).0));
        }
    }
}
