//! A timer of the system that ends this process, whatever its threads do.

use std::{io, time::Instant};

/// Ends the process by SIGKILL, or by SIGABRT. It belongs to the thread that has made it.
#[derive(Debug)]
pub(crate) struct DeathTimer(system::Timer);

impl DeathTimer {
    pub(crate) fn new(aborts: bool) -> io::Result<DeathTimer> {
        system::new(aborts).map(DeathTimer)
    }

    /// Sets it for that moment of [`clock::now`](super::clock::now), in place of the one before; `None`: for none.
    pub(crate) fn set(&mut self, at: Option<Instant>) -> io::Result<()> {
        system::set(&mut self.0, at)
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::{
        io,
        time::{Duration, Instant},
    };

    pub(super) use nix::sys::timer::Timer;
    use nix::{
        sys::{
            signal::{SigEvent, SigevNotify, Signal},
            timer::{Expiration, TimerSetTimeFlags},
        },
        time::ClockId,
    };

    use crate::base::clock;

    pub(super) fn new(aborts: bool) -> io::Result<Timer> {
        // The first process of a namespace of its own, as that of a container, is immune from what comes from within.
        if std::process::id() == 1 {
            let why = "process 1 cannot be ended from within its container: start it by an init, as tini";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let signal = if aborts { Signal::SIGABRT } else { Signal::SIGKILL };
        // That clock goes on in a sleep of the system, after which the timer goes off before threads run.
        Ok(Timer::new(ClockId::CLOCK_BOOTTIME, SigEvent::new(SigevNotify::SigevSignal { signal, si_value: 0 }))?)
    }

    /// A moment and no time: the process may be stopped on the way here.
    pub(super) fn set(timer: &mut Timer, at: Option<Instant>) -> io::Result<()> {
        // Zero takes the timer away, and must not do so for a moment before the system's start.
        let some =
            |at| clock::since_boot(at).map(|at| at.max(Duration::from_nanos(1))).ok_or(io::ErrorKind::Unsupported);
        let at = at.map_or(Ok(Duration::ZERO), some)?;
        Ok(timer.set(Expiration::OneShot(at.into()), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::{io, time::Instant};

    #[derive(Debug)]
    pub(super) enum Timer {}

    pub(super) fn new(_aborts: bool) -> io::Result<Timer> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn set(timer: &mut Timer, _at: Option<Instant>) -> io::Result<()> {
        match *timer {}
    }
}
