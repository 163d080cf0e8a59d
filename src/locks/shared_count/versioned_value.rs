//! A value as one write left it.

/// A value and the version of the znode that holds it. Java: `VersionedValue`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::SharedCount;
///
/// let limit = SharedCount::new(&client, "/limit", 3)?;
/// limit.start()?;
/// loop {
///     let seen = limit.versioned_value();
///     if limit.try_set_count(seen, seen.value() + 1)? {
///         break; // and nobody's write was lost
///     }
/// }
/// assert_eq!(limit.count(), 4);
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionedValue<T> {
    pub(super) version: i32,
    pub(super) value: T,
}

impl<T> VersionedValue<T> {
    /// The znode's version, which grows with every write; -1 before the first read.
    #[must_use]
    pub fn version(&self) -> i32 {
        self.version
    }

    /// The value.
    #[must_use]
    pub fn value(&self) -> &T {
        &self.value
    }
}
