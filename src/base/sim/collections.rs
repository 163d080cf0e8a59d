//! Maps and sets whose order depends on nothing but what is in them.

use std::{collections::hash_map::DefaultHasher, hash::BuildHasherDefault};

type Fixed = BuildHasherDefault<DefaultHasher>;

pub type HashMap<K, V> = std::collections::HashMap<K, V, Fixed>;

pub type HashSet<T> = std::collections::HashSet<T, Fixed>;
