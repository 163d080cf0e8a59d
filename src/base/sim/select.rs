//! The wait for one of several channels.

use std::{panic::Location, time::Duration};

use crossbeam_channel::RecvError;

use super::{Until, Wake, What, caller::Me, channel::Receiver, me, thread::in_time};

/// A channel among several that are waited for.
pub trait Selectable {
    /// Whether there is a message, or none will come any more.
    fn is_ready(&self) -> bool;
    fn key(&self) -> Option<usize>;
    /// Counts itself among those that wait, or not any more.
    fn waits(&self, begins: bool);
    fn register<'a>(&'a self, select: &mut crossbeam_channel::Select<'a>);
}

/// A receiver, or what stands for one, as [`ready`] takes it.
pub fn selectable<T>(channel: &Receiver<T>) -> &dyn Selectable {
    channel
}

/// Waits for one of the channels, without a step before.
pub(super) fn wait(me: &Me, channels: &[&dyn Selectable], until: Until, what: What) -> Wake {
    struct Waiting<'a>(&'a [&'a dyn Selectable]);
    impl Drop for Waiting<'_> {
        fn drop(&mut self) {
            self.0.iter().for_each(|channel| channel.waits(false));
        }
    }
    let keys: Vec<_> = channels.iter().filter_map(|channel| channel.key()).collect();
    channels.iter().for_each(|channel| channel.waits(true));
    let _waiting = Waiting(channels);
    me.wait(&keys, until, what)
}

/// The number of a channel that is ready, of several the first one or any; `None` if none was in time.
#[track_caller]
pub fn ready(channels: &[&dyn Selectable], time: Option<Duration>, is_biased: bool) -> Option<usize> {
    let at = Location::caller();
    let Some(me) = me() else { return ready_really(channels, time, is_biased) };
    let until = time.map_or(Until::Woken, |time| in_time(&me, time, at));
    me.point(at);
    loop {
        let ready: Vec<_> = (0..channels.len()).filter(|number| channels[*number].is_ready()).collect();
        if !ready.is_empty() {
            return if is_biased { ready.first().copied() } else { fastrand::choice(ready) };
        }
        if wait(&me, channels, until, What { label: "one of several messages", at }) == Wake::TimedOut {
            return (0..channels.len()).find(|number| channels[*number].is_ready());
        }
    }
}

fn ready_really(channels: &[&dyn Selectable], time: Option<Duration>, is_biased: bool) -> Option<usize> {
    let mut select = if is_biased { crossbeam_channel::Select::new_biased() } else { crossbeam_channel::Select::new() };
    let mut numbers = Vec::new();
    for (number, channel) in channels.iter().enumerate() {
        // Channels of a run that is over are of no use any more.
        if channel.key().is_none() {
            channel.register(&mut select);
            numbers.push(number);
        }
    }
    let ready = match time {
        Some(time) => select.ready_timeout(time).ok()?,
        None => select.ready(),
    };
    numbers.get(ready).copied()
}

/// Waits as `crossbeam-channel`'s macro of this name does. Each arm ends with a comma.
macro_rules! select {
    ($($arms:tt)+) => { $crate::base::sim::select::select_arms!(false; $($arms)+) };
}

/// Waits as `crossbeam-channel`'s macro of this name does. Each arm ends with a comma.
macro_rules! select_biased {
    ($($arms:tt)+) => { $crate::base::sim::select::select_arms!(true; $($arms)+) };
}

macro_rules! select_arms {
    ($biased:expr; $(recv($channel:expr) -> $message:pat => $body:expr,)+ default($time:expr) => $late:expr $(,)?) => {{
        let time: std::time::Duration = $time;
        let time = Some(time).filter(|time| *time < std::time::Duration::MAX);
        let mut turn = $crate::base::sim::select::ready(&[$($crate::base::sim::select::selectable(&$channel)),+], time, $biased);
        $crate::base::sim::select::select_arms!(@ turn { $late } $(($channel) ($message) ($body))+)
    }};
    ($biased:expr; $(recv($channel:expr) -> $message:pat => $body:expr),+ $(,)?) => {{
        let mut turn = $crate::base::sim::select::ready(&[$($crate::base::sim::select::selectable(&$channel)),+], None, $biased);
        $crate::base::sim::select::select_arms!(
            @ turn { unreachable!("a wait without an end has ended") } $(($channel) ($message) ($body))+
        )
    }};
    (@ $turn:ident { $late:expr }) => { $late };
    (@ $turn:ident { $late:expr } ($channel:expr) ($message:pat) ($body:expr) $($rest:tt)*) => {
        match $crate::base::sim::select::poll_at(&mut $turn, &$channel) {
            Some(received) => {
                let $message = received;
                $body
            }
            None => $crate::base::sim::select::select_arms!(@ $turn { $late } $($rest)*),
        }
    };
}
pub(crate) use {select, select_arms, select_biased};

/// Polls the channel whose turn it is, and counts down to the turn of the next one.
pub fn poll_at<T>(turn: &mut Option<usize>, channel: &Receiver<T>) -> Option<Result<T, RecvError>> {
    let number = (*turn)?;
    *turn = number.checked_sub(1);
    if number == 0 { channel.poll() } else { None }
}
