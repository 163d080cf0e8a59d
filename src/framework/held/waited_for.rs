//! The contender that a hold had in front of it.

use std::{fmt, time::Duration};

use crate::base::{paths::name_of, text::legible};

/// The contender that was in front of a hold last, and how long the hold had to wait: from
/// [`Hold::waited_for`](crate::Hold::waited_for).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::thread;
/// use curator_locks::{InterProcessMutex, WaitedFor};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?.with_lock_data("host-17");
/// let held = mutex.lock()?;
/// assert_eq!(held.waited_for(), None); // nobody was in front
/// thread::scope(|scope| {
///     let waits = scope.spawn(|| {
///         let held = mutex.lock()?;
///         if let Some(waited) = held.waited_for() {
///             // waited 3.2s for _c_..-lock-0000000000 of session 0x1000012.. (host-17)
///             println!("waited {:?} for {waited}", waited.time);
///         }
///         Ok::<Option<WaitedFor>, curator_locks::Error>(held.waited_for().cloned())
///     });
///     # while curator_locks::LockQueue::inspect(&client, "/locks/order-42")?.waiters().count() == 0 {}
///     let path = held.path().to_owned();
///     held.release()?;
///     let waited = waits.join().expect("no panic")?;
///     assert!(waited.is_none_or(|waited| waited.path == path));
///     Ok(())
/// })
/// # });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitedFor {
    /// The path of its znode.
    pub path: String,
    /// The session that it belonged to, 0 if its znode was not ephemeral; `None` if only its name is known.
    pub session: Option<i64>,
    /// The data of its znode; `None` if only its name is known.
    pub data: Option<Vec<u8>>,
    /// From the call of the acquire until nobody was in front any more, however many went one after the other.
    pub time: Duration,
}

impl WaitedFor {
    /// A contender of which only the name is known.
    pub(crate) fn named(path: String) -> WaitedFor {
        WaitedFor { path, session: None, data: None, time: Duration::ZERO }
    }
}

/// The contender: its name, its session, its data.
impl fmt::Display for WaitedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(name_of(&self.path))?;
        if let Some(session) = self.session {
            write!(f, " of session {session:#x}")?;
        }
        match self.data.as_deref().map(legible) {
            Some(data) if !data.is_empty() => write!(f, " ({data})"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_prints_what_is_known_of_the_contender() {
        let mut waited = WaitedFor::named("/locks/a/lock-0000000007".to_owned());
        assert_eq!(waited.to_string(), "lock-0000000007");
        (waited.session, waited.data) = (Some(16), Some(Vec::new()));
        assert_eq!(waited.to_string(), "lock-0000000007 of session 0x10");
        waited.data = Some(b"host-17".to_vec());
        assert_eq!(waited.to_string(), "lock-0000000007 of session 0x10 (host-17)");
    }
}
