//! What all sides have in common.

use std::error::Error;

use nix::time::{ClockId, clock_gettime};

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How many leases the semaphore has, on all sides.
pub const LEASES: usize = 10;

/// Answers one command with numbers, nanoseconds where they are times.
pub trait Side {
    fn answer(&mut self, words: &[&str]) -> Outcome<Vec<u64>>;
}

/// Nanoseconds on the clock that all processes of this machine share.
pub fn now() -> Outcome<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}

/// The answer to a command that a side does not know.
pub fn unknown(words: &[&str]) -> Box<dyn Error + Send + Sync> {
    format!("this side has no {}", words.join(" ")).into()
}
