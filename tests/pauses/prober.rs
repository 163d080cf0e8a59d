//! One of the processes: it holds the lock when it is told to, and writes down what it believed.

use std::{
    io::BufRead,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use curator_locks::{Error, RetryForever};

use crate::{
    SESSION,
    kinds::{Kind, Look},
    support::{PATIENCE, builder_at, child::say, history::shared_clock},
};

/// How often a holder looks.
const POLL: Duration = Duration::from_millis(2);

pub struct Prober {
    commands: Receiver<String>,
}

/// One unbroken time in which a holder believed its hold valid.
struct Belief {
    token: i64,
    from: u64,
    to: u64,
}

impl Prober {
    /// Right after an acquire has returned.
    pub fn returned(look: impl Fn() -> Look) {
        let at = shared_clock();
        let state = look().state;
        let took = shared_clock() - at;
        let thread = std::fs::read_link("/proc/thread-self").unwrap();
        say(&format!("returned {at} {took} {} {state}", thread.file_name().unwrap().display()));
    }

    /// Holds the lock until it is told to release it. Says from when to when the hold was believed valid.
    pub fn watch(&mut self, look: impl Fn() -> Look) {
        let mut beliefs: Vec<Belief> = Vec::new();
        let mut is_open = false;
        loop {
            let next = self.commands.recv_timeout(POLL);
            // The clock comes first: a hold that is valid later was valid then, whatever pause lies in between.
            let (at, seen) = (shared_clock(), look());
            match beliefs.last_mut() {
                Some(last) if seen.is_valid && is_open && last.token == seen.token => last.to = at,
                _ if seen.is_valid => beliefs.push(Belief { token: seen.token, from: at, to: at }),
                _ => {}
            }
            is_open = seen.is_valid;
            match next {
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::process::exit(0),
                Ok(_release) => break,
            }
        }
        for Belief { from, to, .. } in beliefs {
            say(&format!("believed {from} {to}"));
        }
    }
}

pub fn run(arguments: &[String]) {
    let [kind, side, address, path] = arguments else { panic!("{arguments:?}") };
    let client = builder_at(address, "pauses")
        .session_timeout(SESSION)
        .retry_policy(RetryForever::new(Duration::from_millis(20)))
        .build()
        .unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(PATIENCE)).unwrap());
    let kind = Kind::named(kind);
    let lock = if side == "victim" { (kind.victim)(&client, path) } else { (kind.rival)(&client, path) };
    let mut prober = Prober { commands: commands() };
    say("ready");
    while let Ok(command) = prober.commands.recv() {
        // The hold that a release was meant for may have failed.
        if command == "hold" {
            match lock.hold(&mut prober) {
                Ok(()) => say("over"),
                // A pause keeps nobody waiting for ever.
                Err(error @ Error::StillTaken { .. }) => panic!("{error}"),
                Err(error) => say(&format!("over {error}")),
            }
        }
    }
}

/// Ends the process at the end of its input, whatever it waits for.
fn commands() -> Receiver<String> {
    let (sender, commands) = mpsc::channel();
    thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
        std::process::exit(0);
    });
    commands
}
