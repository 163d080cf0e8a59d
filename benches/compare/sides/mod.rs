//! What is compared: each side runs in a process of its own and takes one command a line.

mod bare_socket;
mod curator_locks;
mod limits;
mod threaded;
mod zookeeper_crate;

use std::{
    error::Error,
    io::{BufRead, Write},
};

use nix::time::{ClockId, clock_gettime};

pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// How many leases the semaphore has, on all sides.
pub const LEASES: usize = 10;

/// Answers one command with numbers, nanoseconds where they are times.
pub trait Side {
    fn answer(&mut self, words: &[&str]) -> Outcome<Vec<u64>>;
}

/// Runs a side of this program, if it is one.
pub fn serve(name: &str) -> Outcome<()> {
    let mut side: Box<dyn Side> = match name {
        "curator-locks" => Box::new(curator_locks::side()),
        "zookeeper-crate" => Box::new(zookeeper_crate::side()),
        "limits" => Box::new(limits::Limits::default()),
        "bare-socket" => Box::new(bare_socket::BareSocket::default()),
        _ => return Err(format!("no such side: {name}").into()),
    };
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let reply = match side.answer(&words) {
            Ok(numbers) => {
                let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
                format!("ok {}", numbers.join(" "))
            }
            Err(error) => format!("error {error}").replace('\n', " "),
        };
        writeln!(out, "{}", reply.trim())?;
        out.flush()?;
    }
    Ok(())
}

/// Nanoseconds on the clock that all processes of this machine share.
pub fn now() -> Outcome<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}

fn unknown(words: &[&str]) -> Box<dyn Error + Send + Sync> {
    format!("this side has no {}", words.join(" ")).into()
}
