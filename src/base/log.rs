//! The lines for the facade `log`. A logger is the caller's code and may panic, as one does that prints where nobody reads any
//! more; the work that the line is about goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};

pub(crate) use ::log::Level;

/// Runs code of the caller's that only logs or counts. Its panic, which the process's hook has reported, ends here.
pub(crate) fn contained<T>(run: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(run)).ok()
}

macro_rules! log {
    ($level:expr, $($message:tt)*) => {{ $crate::base::log::contained(|| ::log::log!($level, $($message)*)); }};
}

macro_rules! error {
    ($($message:tt)*) => { $crate::base::log::log!($crate::base::log::Level::Error, $($message)*) };
}

// By another name: `warn` is an attribute, too.
macro_rules! warning {
    ($($message:tt)*) => { $crate::base::log::log!($crate::base::log::Level::Warn, $($message)*) };
}

macro_rules! info {
    ($($message:tt)*) => { $crate::base::log::log!($crate::base::log::Level::Info, $($message)*) };
}

macro_rules! debug {
    ($($message:tt)*) => { $crate::base::log::log!($crate::base::log::Level::Debug, $($message)*) };
}

pub(crate) use {debug, error, info, log, warning as warn};
