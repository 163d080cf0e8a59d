//! A part of a state, shared by all states in which it is the same.

use std::{
    cell::Cell,
    hash::{Hash, Hasher},
    ops::{Deref, DerefMut},
    rc::Rc,
};

use super::fingerprint::fingerprint;

#[derive(Debug, Clone)]
struct Inner<T> {
    value: T,
    /// Its fingerprint, or 0 where it was not asked for since the last change.
    fingerprint: Cell<u64>,
}

#[derive(Debug, Clone)]
pub struct Shared<T>(Rc<Inner<T>>);

impl<T> Shared<T> {
    pub fn new(value: T) -> Shared<T> {
        Shared(Rc::new(Inner { value, fingerprint: Cell::new(0) }))
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        let inner = Rc::make_mut(&mut self.0);
        inner.fingerprint.set(0);
        &mut inner.value
    }
}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.0.fingerprint.get() == 0 {
            self.0.fingerprint.set(fingerprint(&self.0.value));
        }
        state.write_u64(self.0.fingerprint.get());
    }
}
