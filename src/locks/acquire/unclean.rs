//! Holders that went without releasing: the next holder is told of them.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    base::{channel::unbounded, clock, log, paths::ServerPath, sync::Mutex},
    error::{Error, Result},
    framework::{
        client::call::Call,
        events::reactions::WakeUp,
        held::{
            certainty::{Certainty, Needs},
            node::HeldNode,
        },
    },
    locks::{
        acquire::{contention::with_acl, internals::LockInternals, last_look::last_look},
        holds::{
            death::{Heard, UncleanDeath, UncleanDeaths},
            fencing::token::FencingToken,
        },
        options::acquire::{PutOff, Wait},
    },
    proto::{
        request::Request,
        response::Response,
        types::{CreateMode, Stat},
    },
    session::{
        api::{Reply, Session, Submission},
        wait::deadline::{WaitBound, WaitEnd},
    },
};

/// The marks are beside the lock's directory: others would take a mark in it for a contender, or for a lease.
const SUFFIX: &str = "~holders";

impl LockInternals {
    /// Makes holders leave a mark, and be told of the marks of dead holders. A place in a queue is no hold.
    pub(in crate::locks) fn listen_for_deaths(&mut self, delay: Duration) {
        if self.recipe.is_queue {
            return;
        }
        let base = self.client().prefix.to_server(self.base_path()).map(ServerPath::into_string).unwrap_or_default();
        let directory = ServerPath::from_server(base + SUFFIX);
        self.deaths = Some(UncleanDeaths { delay, directory, holders: Mutex::default() });
    }

    /// Takes the last step of an acquire: leaves the marks of these holds, and looks for those of dead holders. `false`:
    /// the time was up first. Unless the result is `true` the caller gives the holds back.
    pub(super) fn hear_of_deaths(&self, held: &[Arc<HeldNode>], data: &[u8], wait: Wait<'_>) -> Result<bool> {
        let Some(deaths) = &self.deaths else { return Ok(true) };
        let bound = wait.io(self.client().core.config.connection_timeout);
        let call = self.client().call("acquire", self.base_path(), bound);
        let found = match deaths.mark(self, &call, held, data) {
            Err(error) if (error.is_retryable() || error.is_no_node()) && wait.is_over() => return Ok(false),
            found => found?,
        };
        let (marks, found): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let delay = if found.is_empty() { Duration::ZERO } else { deaths.delay };
        if !found.is_empty() {
            log::warn!("{}: {} went without releasing it", self.base_path(), found.len());
        }
        let found: Arc<[UncleanDeath]> = found.into();
        let heard: Vec<_> = held.iter().map(|held| Arc::new(Heard::new(held, found.clone()))).collect();
        for (held, heard) in held.iter().zip(&heard) {
            deaths.holders.lock().entry(held.czxid()).and_modify(|known| known.clone_from(heard));
        }
        let session = held.first().map(|held| held.session().clone());
        let step = move || {
            forget_the_dead(session, marks);
            heard.iter().for_each(|heard| heard.is_handed_out.store(true, Ordering::Release));
        };
        let last = PutOff { step: Box::new(step), delay: Some(delay) };
        let put_off = if wait.options.is_member { wait.options.put_off(last) } else { Err(last) };
        let Err(last) = put_off else { return Ok(true) };
        let over = |end| match end {
            WaitEnd::Cancelled => Err(Error::Cancelled { path: self.base_path().to_owned() }),
            WaitEnd::Deadline if wait.only_try => Err(self.uncertain(wait.options.min_validity)),
            WaitEnd::Deadline => Ok(false),
        };
        if let Some(end) = wait_after_deaths(delay, held, wait) {
            return over(end);
        }
        let waited = if wait.only_try { delay } else { Duration::ZERO };
        let deadline = bound.deadline.and_then(|deadline| deadline.checked_add(waited));
        match last_look(held, wait.options.min_validity, WaitBound { deadline, ..bound }, Needs::Nothing) {
            Ok(Certainty::Certain) => {
                wait.options.when_all_is_had(last);
                Ok(true)
            }
            Ok(Certainty::Gone) => {
                self.client().core.check_open()?;
                let reason = held.iter().find_map(|held| held.lost());
                Err(self.lost(reason.unwrap_or(crate::error::LostReason::NodeDeleted)))
            }
            Ok(Certainty::InDoubt) => Err(self.uncertain(wait.options.min_validity)),
            Err(end) => over(end),
        }
    }
}

impl UncleanDeaths {
    /// Leaves the marks and lists those of others, in one round trip; if there are others, it looks for their znodes in
    /// two more.
    fn mark(
        &self,
        lock: &LockInternals,
        call: &Call<'_>,
        held: &[Arc<HeldNode>],
        data: &[u8],
    ) -> Result<Vec<(ServerPath, UncleanDeath)>> {
        for held in held {
            self.holders.lock().insert(held.czxid(), Arc::new(Heard::new(held, Arc::default())));
        }
        call.retry(|session| {
            let list =
                || Request::GetChildren { path: self.directory.as_str().to_owned(), watch: false, with_stat: false };
            let marks = || held.iter().map(|held| with_acl(lock.client(), self.creation(held, data))).chain([list()]);
            let (mut is_made, mut retries) = (false, 0);
            let replies = loop {
                let replies = call.ask_all(session, marks());
                let missing = replies.iter().find_map(|reply| reply.as_ref().err().filter(|error| error.is_no_node()));
                let Some(missing) = missing else { break replies };
                if is_made {
                    // The servers have removed the directory in between, as an empty container.
                    call.allow_again(&mut retries, missing.clone())?;
                }
                lock.client().make_directory(call, session, &self.directory, true)?;
                is_made = true;
            };
            let mut names = Vec::new();
            for reply in replies {
                match reply {
                    Ok(Response::Children { names: all, .. }) => names = all,
                    // The mark was left by an attempt whose reply was lost.
                    Err(error) if !error.is_node_exists() => return Err(error),
                    Ok(_) | Err(_) => {}
                }
            }
            let own = self.holders.lock();
            let stands = |czxid: &i64| own.get(czxid).is_some_and(|heard| heard.stands());
            names.retain(|name| i64::from_str_radix(name, 16).is_ok_and(|czxid| !stands(&czxid)));
            drop(own);
            self.dead(call, session, names)
        })
    }

    fn creation(&self, held: &HeldNode, data: &[u8]) -> Request {
        let path = self.mark_path(held).into_string();
        let head = format!("{}\n", held.path());
        let token = FencingToken::from_value(held.token()).to_bytes();
        let session = held.session().id().to_be_bytes();
        let data = [head.as_bytes(), &token, &session, data].concat();
        Request::Create { path, data, acl: Vec::new(), mode: CreateMode::Persistent }
    }

    /// Finds the holders whose znode is gone although their mark is there. The znodes are read before the marks are read
    /// again: a release deletes the mark first.
    fn dead(
        &self,
        call: &Call<'_>,
        session: &Arc<dyn Session>,
        names: Vec<String>,
    ) -> Result<Vec<(ServerPath, UncleanDeath)>> {
        let path_of = |name: &String| self.directory.join(name).into_string();
        let read = |name: &String| Request::GetData { path: path_of(name), watch: false };
        let mut marks = Vec::new();
        for (name, reply) in names.iter().zip(call.ask_all(session, names.iter().map(read))) {
            match reply {
                Ok(Response::Data { data, stat }) => {
                    marks.extend(marked(&data, &stat).map(|(znode, death)| (name, znode, death)));
                }
                Err(error) if !error.is_no_node() => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        let looks = marks
            .iter()
            .flat_map(|(name, znode, _)| [Request::Exists { path: znode.clone(), watch: false }, read(name)]);
        let mut replies = call.ask_all(session, looks).into_iter();
        let mut dead = Vec::new();
        for (name, _, death) in marks {
            let (Some(stands), Some(marked)) = (replies.next(), replies.next()) else { break };
            let is_alive = match stands {
                Ok(Response::Stat(stat)) => i64::from_str_radix(name, 16) == Ok(stat.czxid),
                Ok(_) => true,
                Err(error) if error.is_no_node() => false,
                Err(error) => return Err(error),
            };
            match marked {
                Ok(_) if !is_alive => dead.push((self.directory.join(name), death)),
                Err(error) if !error.is_no_node() => return Err(error),
                Ok(_) | Err(_) => {}
            }
        }
        Ok(dead)
    }
}

/// Waits after an unclean death, as writes of the dead may still be in flight, unless one of these holds is lost. A mere try
/// waits for no other contender, but for this. Returns the end of the wait for others, if that came meanwhile.
pub(in crate::locks) fn wait_after_deaths(delay: Duration, held: &[Arc<HeldNode>], wait: Wait<'_>) -> Option<WaitEnd> {
    let bound = WaitBound { deadline: wait.bound.deadline.filter(|_| !wait.only_try), ..wait.bound };
    if !delay.is_zero() {
        let (lost, is_lost) = unbounded();
        let wake: Arc<WakeUp> = Arc::new(move || lost.send(()).unwrap_or_default());
        held.iter().for_each(|held| held.znode().wake_on_loss(&wake));
        let _ = clock::now().checked_add(delay).map_or(bound, |until| bound.by(until)).recv(&is_lost);
    }
    bound.is_over()
}

/// Deletes the marks of which a holder was told. An acquire that fails before that leaves them to the next one.
fn forget_the_dead(session: Option<Arc<dyn Session>>, marks: Vec<ServerPath>) {
    let delete = |mark: ServerPath| Submission {
        request: Request::Delete { path: mark.into_string(), version: -1 },
        watcher: None,
        // If the delete comes to nothing, the next holder is told again.
        on_reply: Box::new(|_: Reply| ()),
    };
    if let Some(session) = session {
        session.submit(marks.into_iter().map(delete).collect());
    }
}

/// Reads a mark: the path of the holder's znode, and its death, if it is dead. `None`: no holder wrote this content.
fn marked(content: &[u8], stat: &Stat) -> Option<(String, UncleanDeath)> {
    let end = content.iter().position(|byte| *byte == b'\n')?;
    let (znode, rest) = content.split_at_checked(end)?;
    let znode = String::from_utf8(znode.to_vec()).ok()?;
    let (token, rest) = rest.get(1..)?.split_first_chunk::<16>()?;
    let (session, data) = rest.split_first_chunk::<8>()?;
    let (fencing_token, session) = (FencingToken::from_bytes(*token), i64::from_be_bytes(*session));
    Some((znode, UncleanDeath { fencing_token, data: data.to_vec(), session, since_millis: stat.ctime }))
}
