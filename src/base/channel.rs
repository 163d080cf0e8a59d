//! Channels, and the wait for several of them. Simulated threads have their own.
//!
//! A wait that has an end in time says so by `default(time)`: no timer is a channel here.

#[cfg(not(test))]
pub(crate) use crossbeam_channel::{
    Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, never, select, select_biased, unbounded,
};

#[cfg(test)]
pub(crate) use super::sim::{
    channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded, never, unbounded},
    select::{select, select_biased},
};
