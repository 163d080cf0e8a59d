//! MIT's `kinit`, which gets and renews tickets: GSSAPI can do neither.

use std::{
    io::{self, Read},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use crate::base::{clock, threads::park_timeout};

/// How long it may take; by itself it gives up on a centre that does not answer after about half of that.
const LONGEST: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(5);

/// Gets a ticket with the keys of a file.
pub(super) fn with_keytab(keytab: &Path, principal: &str) -> Result<(), String> {
    let mut command = Command::new("kinit");
    command.arg("-k").arg("-t").arg(keytab).arg(principal);
    run(command)
}

/// Renews the ticket that there is.
pub(super) fn renew(principal: Option<&str>) -> Result<(), String> {
    let mut command = Command::new("kinit");
    command.arg("-R").args(principal);
    run(command)
}

/// Runs it to its end. The error is what it says.
fn run(mut command: Command) -> Result<(), String> {
    command.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let missing = |error: io::Error| format!("cannot run kinit ({error}): install it (Debian: krb5-user)");
    let mut child = command.spawn().map_err(missing)?;
    let ended = await_end(&mut child);
    let mut said = String::new();
    if let Some(mut errors) = child.stderr.take() {
        // It has ended or been killed; a few lines fit into the pipe.
        let _ = errors.read_to_string(&mut said);
    }
    match ended {
        Ok(true) => Ok(()),
        Ok(false) => Err(said.trim().trim_start_matches("kinit: ").replace('\n', "; ")),
        Err(error) => Err(format!("kinit: {error}")),
    }
}

/// Whether it has ended well.
fn await_end(child: &mut Child) -> io::Result<bool> {
    let deadline = clock::now() + LONGEST;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.success());
        }
        if clock::now() >= deadline {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        // Nothing wakes this thread; the process is asked again.
        park_timeout(POLL);
    }
}
