//! Curator's lock recipes on ZooKeeper.
