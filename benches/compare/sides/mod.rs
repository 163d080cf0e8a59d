//! What is compared: each side runs in a process of its own and takes one command a line.

mod bare_socket;
mod curator_locks;
mod limits;
mod side;
mod threaded;
mod zookeeper_crate;

use std::io::{BufRead, Write};

use side::Side;
pub use side::{Outcome, now};

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
