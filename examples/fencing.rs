//! A holder that was away for too long, and storage that refuses what it writes then.
//!
//! No lock service can keep a process from being paused between its last look at the lock and its write. Storage that knows
//! the largest token it has seen can refuse that write.
//!
//! ```text
//! cargo run --features testing --example fencing
//! ```

mod common;

use std::fs;

use common::{Result, Servers};
use curator_locks::{Error, FencingError, FileFencingChecker, InterProcessMutex, testing::expire_session};

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let (one, other) = (servers.client()?, servers.client()?);
    let directory = tempfile::tempdir()?;
    let account = directory.path().join("account");
    // Beside the data, for all processes of this machine.
    let fence = FileFencingChecker::open(directory.path().join("account.fence"))?;

    let first = InterProcessMutex::new(&one, "/account")?.lock()?;
    let early = first.fencing_token();
    fence.fenced(early, || fs::write(&account, "100"))??;
    println!("the first holder has written {}", fs::read_to_string(&account)?);

    // The first holder is paused for longer than its session lasts; the servers give the lock to the next one.
    expire_session(servers.connect_string(), one.session_id(), &one.session_password())?;
    let second = InterProcessMutex::new(&other, "/account")?.lock()?;
    fence.fenced(second.fencing_token(), || fs::write(&account, "80"))??;
    println!("the second holder has written {}", fs::read_to_string(&account)?);

    // It wakes up in the midst of its work. The check and the write are one step, so nobody comes in between.
    match fence.fenced(early, || fs::write(&account, "110")) {
        Err(FencingError::Stale(_)) => println!("the first holder is refused"),
        other => println!("the first holder writes: {other:?}"),
    }
    println!("the account has {}", fs::read_to_string(&account)?);

    // It hears that, too, and what it had is not given back twice.
    println!(
        "its release: {}",
        if matches!(first.release(), Err(Error::LockLost { .. })) { "the lock was lost" } else { "done" }
    );
    Ok(second.release()?)
}
