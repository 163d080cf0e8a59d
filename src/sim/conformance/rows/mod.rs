//! The rows, by what they try.

mod create;

/// A name, and a script.
pub(super) type Row = (&'static str, &'static str);

/// For one server with the defaults.
pub(super) const ALONE: [(&str, &[Row]); 1] = [("create", &create::ROWS)];
