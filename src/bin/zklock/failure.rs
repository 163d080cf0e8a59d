//! How the program fails.

use curator_locks::Error;

/// The lock was lost, or about to be lost, and the command was ended.
pub(crate) const LOST: u8 = 123;
/// The lock could not be acquired.
pub(crate) const NOT_HAD: u8 = 124;
/// The program itself failed.
pub(crate) const FAILED: u8 = 125;
/// The command cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// The message, and the exit status.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: u8,
    /// The message; nothing is printed if it is empty.
    pub(crate) text: String,
}

pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

impl Failure {
    pub(crate) fn new(text: impl Into<String>) -> Failure {
        Failure { status: FAILED, text: text.into() }
    }

    /// A failure by a signal, with the exit status that a shell shows.
    pub(crate) fn ended_by(signal: i32) -> Failure {
        Failure { status: u8::try_from(128 + signal).unwrap_or(u8::MAX), text: String::new() }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(match &error {
            Error::Io { source, .. } => format!("{error}: {source}"),
            _ => error.to_string(),
        })
    }
}

/// Adds the tried action to an error of the operating system.
pub(crate) fn cannot<E: std::fmt::Display>(what: impl std::fmt::Display) -> impl FnOnce(E) -> Failure {
    move |error| Failure::new(format!("cannot {what}: {error}"))
}
