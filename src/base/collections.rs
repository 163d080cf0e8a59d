//! Maps and sets whose order is another one in each process; in a test build it is always the same, so that one seed of a
//! simulation gives one history. Made by `default()`.

#[cfg(not(test))]
pub(crate) use std::collections::{HashMap, HashSet};

#[cfg(test)]
pub(crate) use super::sim::collections::{HashMap, HashSet};
