//! The thread that gets tickets, renews them before they expire, and begins authentications.
//!
//! All that may ask the key distribution centre runs there: the library waits for a centre that does not answer, as long as it
//! likes, and the session's own thread must not.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use super::{advice, config::Kerberos, gssapi, gssapi::Gssapi, kinit};
use crate::{
    base::{
        channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded},
        clock, log,
        threads::spawn,
    },
    session::sasl::mechanism::{Authenticator, Begun, Failure},
};

/// How often to ask whether an authentication is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// A renewal that has failed is tried again after half of the time that the ticket has left, and no sooner and no later
/// than this.
const RETRIES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Begins authentications for one client.
pub(in crate::session::sasl) struct Login {
    config: Kerberos,
    /// The thread's work. It ends when this is dropped.
    wanted: OnceLock<Sender<Wanted>>,
}

/// An authentication that the session's thread waits for.
struct Wanted {
    host: String,
    /// Nobody waits for it any more after that.
    deadline: Instant,
    begun: Sender<Result<(Gssapi, Vec<u8>), Failure>>,
}

impl Login {
    pub(in crate::session::sasl) fn new(config: Kerberos) -> Login {
        Login { config, wanted: OnceLock::new() }
    }

    fn thread(&self) -> Result<&Sender<Wanted>, Failure> {
        if let Some(wanted) = self.wanted.get() {
            return Ok(wanted);
        }
        let (sender, wanted) = unbounded();
        let tickets = Tickets { config: self.config.clone(), renew_at: None, is_warned: false };
        spawn("zk-kerberos", move || tickets.run(&wanted)).map_err(|error| Failure::NotNow(error.to_string()))?;
        // If another thread was quicker, this one's thread ends at once.
        Ok(self.wanted.get_or_init(|| sender))
    }
}

impl Authenticator for Login {
    fn begin(&self, host: &str, deadline: Instant, is_over: &dyn Fn() -> bool) -> Result<Begun, Failure> {
        let (sender, begun) = bounded(1);
        let gone = || Failure::NotNow("Kerberos: the thread that gets tickets has ended".to_owned());
        self.thread()?.send(Wanted { host: host.to_owned(), deadline, begun: sender }).map_err(|_| gone())?;
        loop {
            match begun.recv_timeout(clock::until(deadline).min(LOOK)) {
                Ok(begun) => return begun.map(|(mechanism, token)| (Box::new(mechanism) as _, token)),
                Err(RecvTimeoutError::Disconnected) => return Err(gone()),
                Err(RecvTimeoutError::Timeout) if clock::now() >= deadline || is_over() => {
                    let why = "Kerberos: no ticket in time: the key distribution centre does not answer, or too slowly";
                    return Err(Failure::NotNow(why.to_owned()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// The thread's own.
struct Tickets {
    config: Kerberos,
    renew_at: Option<Instant>,
    /// Whether the log has said that the ticket is not renewed.
    is_warned: bool,
}

impl Tickets {
    fn run(mut self, wanted: &Receiver<Wanted>) {
        loop {
            let next = match self.renew_at {
                Some(at) => wanted.recv_timeout(clock::until(at)),
                None => wanted.recv().map_err(RecvTimeoutError::from),
            };
            match next {
                Ok(wanted) if clock::now() >= wanted.deadline => {}
                Ok(wanted) => {
                    let begun = self.begin(&wanted.host);
                    // The session may have given up meanwhile.
                    let _ = wanted.begun.send(begun);
                }
                Err(RecvTimeoutError::Timeout) => self.renew(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn begin(&mut self, host: &str) -> Result<(Gssapi, Vec<u8>), Failure> {
        let (server, _) = gssapi::server(&self.config, host);
        let begun = match self.try_to_begin(host) {
            // The cache may be empty, or hold what has expired meanwhile.
            Err(_) if self.config.keytab.is_some() => self.log_in().and_then(|()| self.try_to_begin(host)),
            begun => begun,
        };
        begun.map_err(|said| advice::failure(&self.config, &server, &said))
    }

    fn try_to_begin(&mut self, host: &str) -> Result<(Gssapi, Vec<u8>), String> {
        let (server, target) = gssapi::server(&self.config, host);
        let cred = gssapi::credentials(self.config.principal.as_deref())?;
        let left = cred.lifetime().map_err(gssapi::said)?;
        if left.is_zero() {
            return Err("the ticket has expired".to_owned());
        }
        let begun = Gssapi::begin(cred, server, target?)?;
        self.renew_at.get_or_insert(renewal(left));
        Ok(begun)
    }

    /// Gets a ticket with the keytab.
    fn log_in(&mut self) -> Result<(), String> {
        let (Some(keytab), Some(principal)) = (&self.config.keytab, &self.config.principal) else { return Ok(()) };
        if let Some(other) = self.other_principal(principal) {
            return Err(format!(
                "{} holds the tickets of {other}, which stay: give this process a cache of its own (KRB5CCNAME)",
                advice::cache()
            ));
        }
        kinit::with_keytab(keytab, principal)?;
        let left = gssapi::credentials(Some(principal))?.lifetime().map_err(gssapi::said)?;
        log::debug!("Kerberos: a ticket of {principal} for {left:?}");
        self.renew_at = Some(renewal(left));
        Ok(())
    }

    /// The principal whose tickets would be lost from the cache, if it is another one.
    fn other_principal(&self, principal: &str) -> Option<String> {
        if advice::is_collection() {
            return None;
        }
        let own = gssapi::full_name(principal).ok()?;
        let cached = gssapi::credentials(None).ok()?.name().ok()?.to_string();
        (cached != own).then_some(cached)
    }

    /// The ticket has a fifth of its lifetime left.
    fn renew(&mut self) {
        self.renew_at = None;
        let before = self.left();
        let renewed = match &self.config.keytab {
            Some(_) => self.log_in(),
            None => kinit::renew(self.config.principal.as_deref()),
        };
        let left = self.left();
        // Somebody else may have filled the cache meanwhile.
        if left > before {
            log::debug!("Kerberos: the ticket is good for {left:?} again");
            self.is_warned = false;
            self.renew_at = Some(renewal(left));
            return;
        }
        if !std::mem::replace(&mut self.is_warned, true) {
            let why = renewed.err().unwrap_or_else(|| "its end stays the same".to_owned());
            log::warn!(
                "Kerberos: the ticket, good for {left:?}, is not renewed: {why}; without one the next connection fails"
            );
        }
        self.renew_at = Some(clock::now() + (left / 2).clamp(RETRIES.0, RETRIES.1));
    }

    fn left(&self) -> Duration {
        let cred = gssapi::credentials(self.config.principal.as_deref()).ok();
        cred.and_then(|cred| cred.lifetime().ok()).unwrap_or_default()
    }
}

/// When a ticket that is good for so long is renewed.
fn renewal(left: Duration) -> Instant {
    let now = clock::now();
    // A ticket that never expires is looked at once a day.
    now.checked_add((left * 4 / 5).min(Duration::from_secs(24 * 60 * 60))).unwrap_or(now)
}
