//! A value and the write that it comes from.

/// The version, and the zxid, of a value that was not read yet.
pub(super) const UNREAD: i32 = -1;

/// A value, and the write that it comes from. Java: `VersionedValue`.
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
/// let written = limit.versioned_value();
/// assert_eq!((*written.value(), written.version()), (4, 1));
/// assert_eq!(Some(written.zxid()), client.check_exists().for_path("/limit")?.map(|stat| stat.mzxid));
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionedValue<T> {
    pub(super) zxid: i64,
    pub(super) version: i32,
    pub(super) value: T,
}

impl<T> VersionedValue<T> {
    /// A value that no server has seen.
    pub(super) fn unread(value: T) -> VersionedValue<T> {
        VersionedValue { zxid: UNREAD.into(), version: UNREAD, value }
    }

    /// The transaction that wrote the value, the znode's mzxid: unlike the version, it does not begin anew when somebody
    /// deletes the znode and makes another. -1 before the first read.
    #[must_use]
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

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
