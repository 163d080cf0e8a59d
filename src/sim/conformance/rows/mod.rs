//! The rows, by what they try.

mod acl;
mod changes;
mod create;
mod endings;
mod ensemble;
mod multi;
mod sessions;
mod watches;

/// A name, and a script.
pub(super) type Row = (&'static str, &'static str);

/// For one server with the defaults.
pub(super) const ALONE: [(&str, &[Row]); 6] = [
    ("create", &create::ROWS),
    ("changes", &changes::ROWS),
    ("multi", &multi::ROWS),
    ("acl", &acl::ROWS),
    ("watches", &watches::ROWS),
    ("sessions", &sessions::ROWS),
];

/// For one server that looks for empty containers every 100 ms, and knows TTL znodes.
pub(super) const ENDINGS: [(&str, &[Row]); 1] = [("endings", &endings::ROWS)];

/// For three servers.
pub(super) const ENSEMBLE: [(&str, &[Row]); 1] = [("ensemble", &ensemble::ROWS)];
