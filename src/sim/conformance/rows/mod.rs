//! The rows, by what they try.

mod acl;
mod changes;
mod create;
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
