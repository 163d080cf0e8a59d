//! Who reads the live connection: the session's thread, or a thread that waits for a reply or an event.
//!
//! What the session's thread reads wakes two threads, one after the other. So a caller that waits reads by itself where it
//! can, and is woken by the kernel alone. The side that reads is an object that one thread at a time takes out. While
//! nobody has it, arrivals wake the waiter that sleeps in the place for that ([`sleeping`](super::sleeping)), or else the
//! session's thread; while a caller has it, nothing that arrives wakes either.
//!
//! Nothing is left unread: the side is put back and the interest in arrivals switched on under one lock, and what arrived
//! before counts. A caller that waits for a reply reads until that is there, or nothing has come for [`PATIENCE`]; then its
//! wait goes on like any other, so that deadlines and cancellations do not wait for a read.

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use super::{
    super::{
        readiness::{Arrival, Interest},
        transport::ReadHalf,
    },
    Shared, invalid_data,
    sleeping::{Place, make_bed},
};
use crate::proto::{FrameBuffer, ProtoError};

/// How long one read lasts at most where bytes are expected.
pub(super) const PATIENCE: Duration = Duration::from_millis(10);

/// The side of the live connection that reads.
#[derive(Default)]
pub(super) struct Reading {
    /// Taken out by the thread that reads.
    pub(super) side: Option<ReadSide>,
    /// On while the side is here.
    pub(super) interest: Option<Interest>,
    /// Where a waiter sleeps until something arrives; it outlasts the connection.
    pub(super) place: Place,
    /// Arrivals can be told, as of the last connection that any thread could read.
    pub(super) is_told: bool,
    /// How often the interest was switched on.
    pub(super) number: usize,
}

impl Reading {
    /// Arrivals wake whom they concern now, and those from before count: a waiter in the place, or else the session's
    /// thread. That one also sees to a connection that has failed.
    pub(super) fn switch_on(&mut self) {
        self.direct(true);
    }

    fn direct(&mut self, to_place: bool) {
        let (Some(interest), Some(side)) = (&mut self.interest, &mut self.side) else { return };
        self.number = if self.number >= Arrival::LAST.0 { 0 } else { self.number + 1 };
        let place = if to_place && side.failed.is_none() { self.place.taken() } else { None };
        if let Err(error) = interest.on(place, Arrival(self.number)) {
            // The session's thread looks by itself after READ_PATIENCE at the latest.
            side.failed.get_or_insert(error);
        }
    }
}

/// What has arrived and what is still to be read.
pub(super) struct ReadSide {
    pub(super) reader: Box<dyn ReadHalf>,
    pub(super) buffer: FrameBuffer,
    /// What ended the connection: the session's thread does the rest. It stays, so that nobody takes what comes behind a
    /// frame that was not understood: a later reply would move the zxid beyond a change that nobody was told of.
    pub(super) failed: Option<io::Error>,
}

/// The right to read, given back when dropped.
pub(super) struct Turn<'a> {
    shared: &'a Arc<Shared>,
    side: Option<ReadSide>,
    /// What arrived before the right was taken bears this number, unless it was read.
    number: Arrival,
}

impl ReadSide {
    /// Reads once, and hands what is complete to the machine. `false`: nothing came.
    pub(super) fn read(&mut self, shared: &Arc<Shared>, patience: Duration) -> io::Result<bool> {
        match self.reader.read(self.buffer.space(), patience)? {
            None => Ok(false),
            Some(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(count) => {
                self.buffer.filled(count);
                self.take_frames(shared)?;
                Ok(true)
            }
        }
    }

    /// Hands every complete frame to the machine, under one lock.
    pub(super) fn take_frames(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        let buffer = &mut self.buffer;
        shared.input(|machine, actions| {
            let now = Instant::now();
            loop {
                match buffer.next_frame() {
                    Ok(Some(frame)) => machine.frame(frame, now, actions).map_err(invalid_data)?,
                    Ok(None) => return Ok(()),
                    Err(ProtoError::FrameTooLarge { size, limit }) => {
                        // Whose reply it is stands in the next four bytes.
                        let Some(xid) = buffer.peek_xid() else { return Ok(()) };
                        machine.frame_too_large(xid, size, limit, actions);
                        return Err(invalid_data(ProtoError::FrameTooLarge { size, limit }));
                    }
                    Err(error) => return Err(invalid_data(error)),
                }
            }
        })
    }
}

impl Turn<'_> {
    /// Reads once; an error is left for the session's thread. `false`: nothing came, or nothing will.
    ///
    /// What is read may be for others, and what they brought may panic. That is not for a caller to bear, and what came
    /// may be lost with it: it ends the session, as a panic of the session's thread does.
    pub(super) fn read(&mut self) -> bool {
        let Some(side) = &mut self.side else { return false };
        if side.failed.is_some() {
            return false;
        }
        match catch_unwind(AssertUnwindSafe(|| side.read(self.shared, PATIENCE))) {
            Ok(Ok(came)) => return came,
            Ok(Err(error)) => side.failed = Some(error),
            Err(_) => {
                log::error!("a callback of the session has panicked: the session ends");
                side.failed = Some(io::Error::other("a callback of the session has panicked"));
                // Others are told, and one of them may panic, too.
                let end = || self.shared.input(|machine, actions| machine.expired(actions));
                let _ = catch_unwind(AssertUnwindSafe(end));
            }
        }
        false
    }

    /// Reads once what woke this thread, unless another was faster: this one would wait for what may not come, and be deaf
    /// meanwhile. What else is there is reported anew when the right is given back.
    pub(super) fn read_arrived(&mut self, arrival: Arrival) {
        if arrival == self.number {
            self.read();
        }
    }

    /// What ended the connection.
    pub(super) fn failure(&mut self) -> Option<io::Error> {
        let failed = self.side.as_mut()?.failed.as_mut()?;
        Some(std::mem::replace(failed, io::ErrorKind::NotConnected.into()))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(side) = self.side.take() else { return };
        self.shared.hang_up_if(side.failed.is_some());
        let mut reading = self.shared.reading.lock();
        reading.side = Some(side);
        reading.switch_on();
        drop(reading);
        self.shared.returned.notify_one();
    }
}

impl Shared {
    /// The right to read, unless another thread has it or there is nothing to read.
    pub(super) fn turn(self: &Arc<Self>) -> Option<Turn<'_>> {
        let mut reading = self.reading.lock();
        let side = reading.side.take()?;
        if let Some(interest) = &mut reading.interest {
            interest.off();
        }
        let number = Arrival(reading.number);
        drop(reading);
        Some(Turn { shared: self, side: Some(side), number })
    }

    /// Directs arrivals, and those from before, to the session's thread until somebody gives the right to read back.
    /// `false`: no waiter keeps them from it.
    pub(super) fn call_home(&self) -> bool {
        let mut reading = self.reading.lock();
        let is_elsewhere = reading.side.is_some() && reading.place.taken().is_some();
        if is_elsewhere {
            reading.direct(false);
        }
        is_elsewhere
    }

    /// From now on any thread may read; but where the system does not tell of arrivals the side comes back.
    pub(super) fn offer(&self, side: ReadSide, interest: Interest) -> Result<(), ReadSide> {
        // With the first connection and not with the first waiter: what a session has open does not grow while it lives.
        let is_missing = matches!(self.reading.lock().place, Place::NotMade);
        let bed = if is_missing { make_bed() } else { None };
        let mut reading = self.reading.lock();
        if let Some(bed) = bed {
            reading.place = Place::Free(bed);
        }
        reading.side = Some(side);
        reading.interest = Some(interest);
        reading.switch_on();
        let refused = reading.side.take_if(|side| side.failed.is_some());
        reading.is_told = refused.is_none();
        match refused {
            None => Ok(()),
            Some(mut side) => {
                reading.interest = None;
                side.failed = None;
                Err(side)
            }
        }
    }

    /// From now on nobody may read, and nobody does. The connection was shut down, so a read that is under way ends at
    /// once: what it brings still belongs to this connection, and must not meet the next one.
    pub(super) fn take_back(&self) {
        let mut reading = self.reading.lock();
        while reading.side.is_none() {
            self.returned.wait(&mut reading);
        }
        reading.side = None;
        // Whoever sleeps in the place sleeps on, as its bell wakes it all the same, and reads the next connection.
        reading.interest = None;
    }

    /// Makes the session's thread look at the connection, although nothing may arrive any more.
    fn hang_up_if(&self, has_failed: bool) {
        if has_failed || self.ended.load(Ordering::Acquire) {
            let state = self.state.lock();
            if has_failed || state.machine.is_over(Instant::now()) {
                state.hang_up();
            }
        }
    }
}
