//! A cache on disk that many processes read and whoever finds it empty fills: a read/write lock.
//!
//! ```text
//! cargo run --features testing --example cache
//! ```

mod common;

use std::{fs, path::Path, thread, time::Duration};

use common::{Result, Servers};
use curator_locks::InterProcessReadWriteLock;

/// What is worth a cache.
fn slow_query() -> String {
    thread::sleep(Duration::from_millis(100));
    "42 orders today".to_owned()
}

/// The text, and whether this call has filled the cache.
fn cached(lock: &InterProcessReadWriteLock, file: &Path) -> Result<(String, bool)> {
    // Readers share: this waits for writers only.
    let reading = lock.read_lock().lock()?;
    if let Ok(text) = fs::read_to_string(file) {
        return Ok((text, false));
    }
    // A reader that waits to write would wait for itself, so it lets go first ...
    reading.release()?;
    let writing = lock.write_lock().lock()?;
    // ... and looks once more, because somebody else may have come in between.
    let is_missing = !file.exists();
    if is_missing {
        fs::write(file, slow_query())?;
    }
    // A writer goes on as a reader: other readers come in, and no writer comes in between.
    let reading = lock.read_lock().lock()?;
    writing.release()?;
    let text = fs::read_to_string(file)?;
    reading.release()?;
    Ok((text, is_missing))
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("orders");
    let clients = (0..4).map(|_| servers.client()).collect::<Result<Vec<_>>>()?;
    for round in 1..=2 {
        let all = thread::scope(|scope| {
            let readers: Vec<_> = clients
                .iter()
                .map(|client| scope.spawn(|| cached(&InterProcessReadWriteLock::new(client, "/cache/orders")?, &file)))
                .collect();
            readers
                .into_iter()
                .map(|reader| reader.join().map_err(|_| "a thread panicked")?)
                .collect::<Result<Vec<_>>>()
        })?;
        let filled = all.iter().filter(|(_, filled)| *filled).count();
        let same = all.iter().all(|(text, _)| text == "42 orders today");
        println!("round {round}: {} readers, filled {filled} times, all read the same: {same}", all.len());
    }
    Ok(())
}
