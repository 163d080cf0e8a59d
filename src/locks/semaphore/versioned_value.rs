//! A value as one write left it.

/// A value and the version of the znode that holds it. Java: `VersionedValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VersionedValue<T> {
    pub(super) version: i32,
    pub(super) value: T,
}

impl<T> VersionedValue<T> {
    /// Grows with every write; -1 before the first read.
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
