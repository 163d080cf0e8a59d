//! A thread with its locks: a shell around the contender, as both real ones behave.

use std::cell::Cell;

use curator_locks::{
    CreateMode, ErrorCode,
    unversioned::{
        Request, Response,
        contender::{Condition, Contender, Do, End, Environment, Input, Reaction, Spec, WatchId},
    },
};

use super::{
    client::{Owner, Sent},
    holds::{clean_up, unwatch_hold},
    rules::{Lock, Op, Rules},
    thread::{Error, Failure, Owed, connection_lost, failure, letter_of, stopped},
    trace,
    world::{Notes, World},
};

/// More steps than any contender takes while nothing else happens.
const AT_ONCE: usize = 100;

/// What a contender may ask of its process.
struct Surroundings<'a> {
    rules: &'a Rules,
    lock: &'a Lock,
    thread: usize,
    uniques: Cell<u8>,
    session: i64,
    granted: &'a [String],
}

impl Environment<Error> for Surroundings<'_> {
    fn unique(&self) -> String {
        let number = self.uniques.get();
        self.uniques.set(number + 1);
        let letter = letter_of(self.thread);
        if self.lock.has_session_in_name {
            format!("x-{}-{letter}{number}-", self.session)
        } else {
            format!("_c_{letter}{number}-")
        }
    }

    fn max_leases(&self) -> usize {
        self.lock.limit()
    }

    fn lists_with_create(&self) -> bool {
        !self.lock.lists_later
    }

    fn was_granted_here(&self, name: &str) -> bool {
        self.granted.iter().any(|granted| granted == name)
    }

    fn node_gone(&self) -> Error {
        "the own znode is gone"
    }

    fn omits(&self, condition: Condition) -> bool {
        self.rules.omitted == Some(condition)
    }
}

impl World {
    pub fn step(&mut self, rules: &Rules, t: usize, notes: &mut Notes) -> Result<(), String> {
        let thread = &mut *self.threads[t];
        let input = match thread.owed {
            Owed::Nothing => return self.begin(rules, t, notes),
            Owed::Release => {
                self.released(rules, t);
                return Ok(());
            }
            Owed::Connection if self.clients[thread.client].is_connected() => Input::Connected,
            Owed::Connection => stopped(thread.stop),
            Owed::Answers => Input::Answers(self.take_answers(t)),
            Owed::Directory => Input::DirectoryMade(directory_made(self.take_answers(t).pop())),
            Owed::Event => match thread.mailbox.pop_front() {
                Some((watch, event)) => Input::Event(watch, event),
                None if thread.stop.is_some() => stopped(thread.stop),
                None if self.lost_queue_head(rules, t) => Input::QueueHeadLost,
                None => Input::Woken,
            },
            Owed::Moment if thread.stop.is_some() => stopped(thread.stop),
            Owed::Moment => Input::Woken,
            Owed::Registration => Input::Woken,
        };
        self.hand_in(rules, t, input, notes)
    }

    fn begin(&mut self, rules: &Rules, t: usize, notes: &mut Notes) -> Result<(), String> {
        match self.next_op(rules, t) {
            Op::Acquire(_) | Op::Try(..) => {
                let thread = &mut *self.threads[t];
                thread.contender = Some(Contender::default());
                (thread.session, thread.owner) = (0, 0);
                self.hand_in(rules, t, Input::Begin, notes)
            }
            Op::Release(lock) => {
                self.threads[t].at += 1;
                if let Some(place) = self.threads[t].holds.iter().position(|hold| hold.lock == lock) {
                    self.release(rules, t, place, notes);
                }
                Ok(())
            }
            Op::End => {
                self.release(rules, t, self.threads[t].holds.len() - 1, notes);
                Ok(())
            }
        }
    }

    /// One step of the contender, and what needs nothing from outside at once: a connection that is there, and the retry
    /// policy's word.
    fn hand_in(&mut self, rules: &Rules, t: usize, mut input: Input<Error>, notes: &mut Notes) -> Result<(), String> {
        let Some((number, lock)) = self.lock_of(rules, t) else { return Ok(()) };
        let spec = self.spec_of(t, lock);
        for _ in 0..AT_ONCE {
            if matches!(input, Input::Connected) {
                self.threads[t].session = self.clients[self.threads[t].client].session;
            }
            let told = notes.text(|| trace::input(&input));
            let next = self.one_step(rules, t, lock, &spec, input);
            notes.add(|| format!("{}: {told} -> {}", letter_of(t), trace::next(&next)));
            self.tidy(t, number, lock);
            input = match next {
                Do::Connect if self.clients[self.threads[t].client].is_connected() => Input::Connected,
                Do::Again(error) if self.threads[t].retries >= rules.retries => {
                    Input::Failed(failure(error, false, Reaction::Final))
                }
                Do::Again(_) => {
                    self.threads[t].retries += 1;
                    Input::Begin
                }
                next => return self.carry_out(rules, t, (number, lock, &spec), next),
            };
        }
        Err(format!("{} goes round and round", letter_of(t)))
    }

    fn one_step(&mut self, rules: &Rules, t: usize, lock: &Lock, spec: &Spec, input: Input<Error>) -> Do<Error> {
        let view = self.view(t);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let surroundings = Surroundings {
            rules,
            lock,
            thread: t,
            uniques: Cell::new(thread.uniques),
            session: view.session,
            granted: &client.granted,
        };
        let Some(contender) = &mut thread.contender else { return Do::Sleep };
        let next = contender.step(spec, &surroundings, &view, input);
        thread.uniques = surroundings.uniques.get();
        next
    }

    /// What has to follow every step.
    fn tidy(&mut self, t: usize, number: usize, lock: &Lock) {
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = &mut thread.contender else { return };
        let discarded = contender.take_discarded();
        clean_up(client, thread.owner, lock, discarded);
        client.unwatch(|owner| match owner {
            Owner::Contender(of, watch) => of != t || contender.wants(watch),
            Owner::Holder(..) => true,
        });
        if !contender.is_held
            && let Some(place) = thread.holds.iter().position(|hold| hold.lock == number && !hold.is_returned)
        {
            let hold = thread.holds.remove(place);
            unwatch_hold(client, t, &hold);
        }
    }

    fn carry_out(
        &mut self,
        rules: &Rules,
        t: usize,
        (number, lock, spec): (usize, &Lock, &Spec),
        next: Do<Error>,
    ) -> Result<(), String> {
        let owed = match next {
            Do::Ask(ask) => {
                self.submit(t, ask);
                Owed::Answers
            }
            Do::MakeDirectory => {
                let (path, mode) = (spec.directory.clone(), CreateMode::Container);
                let request = Request::Create { path, data: Vec::new(), acl: Vec::new(), mode };
                self.submit(t, vec![(request, None)]);
                Owed::Directory
            }
            Do::Connect => Owed::Connection,
            Do::Sleep => Owed::Event,
            Do::Doze => Owed::Moment,
            Do::Hold => {
                self.register(rules, t, number, lock);
                Owed::Registration
            }
            Do::End(end) => return self.ended(rules, t, number, lock, &end),
            Do::Again(_) => return Err("nobody asks the retry policy".to_owned()),
        };
        self.threads[t].owed = owed;
        Ok(())
    }

    pub fn submit(&mut self, t: usize, requests: Vec<(Request, Option<WatchId>)>) {
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        thread.answers = vec![None; requests.len()];
        let lives = thread.session == client.session && !client.is_ended;
        if requests.iter().any(|(request, _)| matches!(request, Request::Create { .. } | Request::Multi(_))) {
            thread.owner = thread.session;
        }
        for (place, (request, watch)) in requests.into_iter().enumerate() {
            if !lives {
                thread.answer(place, Err(connection_lost(false)));
                continue;
            }
            let watch = watch.map(|watch| Owner::Contender(t, watch));
            if let Some(watch) = watch {
                client.watch(watch, &request);
            }
            client.requests.push_back(Sent { request, slot: Some((t, place)), watch });
        }
    }

    pub fn take_answers(&mut self, t: usize) -> Vec<Result<Response, Failure>> {
        std::mem::take(&mut self.threads[t].answers).into_iter().flatten().collect()
    }

    /// The time is up while answers are missing. What was not sent never will be.
    pub fn stop_waiting(&mut self, t: usize) {
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let is_sent = client.connection != 0;
        let reaction = thread.stop.unwrap_or(Reaction::TimeUp);
        for answer in thread.answers.iter_mut().filter(|answer| answer.is_none()) {
            *answer = Some(Err(failure("stopped", is_sent, reaction)));
        }
        if !is_sent {
            client.requests.retain(|sent| sent.slot.is_none_or(|(of, _)| of != t));
        }
        client.forget_slots(t);
    }

    /// A call that has waited long enough for a connection.
    pub fn give_up(&mut self, rules: &Rules, t: usize, notes: &mut Notes) -> Result<(), String> {
        self.hand_in(rules, t, Input::Failed(connection_lost(false)), notes)
    }

    /// The contender takes no further step.
    pub fn dropped(&mut self, rules: &Rules, t: usize) {
        let Some((number, lock)) = self.lock_of(rules, t) else { return };
        self.threads[t].stop = Some(Reaction::Final);
        self.stop_waiting(t);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = thread.contender.take() else { return };
        clean_up(client, thread.owner, lock, contender.leftovers());
        client.unwatch(|owner| !matches!(owner, Owner::Contender(of, _) if of == t));
        if let Some(place) = thread.holds.iter().position(|hold| hold.lock == number && !hold.is_returned) {
            let hold = thread.holds.remove(place);
            unwatch_hold(client, t, &hold);
        }
        thread.mailbox.clear();
        thread.answers.clear();
        (thread.owed, thread.stop, thread.retries, thread.at) = (Owed::Nothing, None, 0, usize::MAX);
    }

    fn ended(&mut self, rules: &Rules, t: usize, number: usize, lock: &Lock, end: &End<Error>) -> Result<(), String> {
        let op = self.next_op(rules, t);
        let thread = &mut *self.threads[t];
        let client = &mut *self.clients[thread.client];
        let Some(contender) = thread.contender.take() else { return Ok(()) };
        clean_up(client, thread.owner, lock, contender.leftovers());
        client.unwatch(|owner| !matches!(owner, Owner::Contender(of, _) if of == t));
        thread.mailbox.clear();
        thread.at = match (end, op) {
            (End::Granted, _) => thread.at + 1,
            (_, Op::Try(_, or_else)) if thread.stop.is_none() => or_else,
            // It gives back what it has.
            _ => usize::MAX,
        };
        (thread.owed, thread.stop, thread.retries) = (Owed::Nothing, None, 0);
        if *end == End::Uncertain {
            // Time goes by in pauses only.
            return Err(format!("{} gives up although nobody could be asked", letter_of(t)));
        }
        if *end != End::Granted {
            return Ok(());
        }
        let Some(hold) = thread.holds.iter_mut().find(|hold| hold.lock == number) else {
            return Err("granted, and not in the registry".to_owned());
        };
        hold.is_returned = true;
        hold.seen_over = contender.seen_over;
        if rules.omitted.is_none() && (!client.is_valid || client.connection != hold.seen_over) {
            return Err(format!("{} returns with {} in doubt", letter_of(t), hold.names()));
        }
        self.returned(rules, t, number)
    }
}

fn directory_made(answer: Option<Result<Response, Failure>>) -> Result<(), Failure> {
    match answer {
        Some(Ok(_)) => Ok(()),
        Some(Err(failed)) if failed.code == Some(ErrorCode::NodeExists) => Ok(()),
        Some(Err(failed)) => Err(failed),
        None => Err(connection_lost(true)),
    }
}
