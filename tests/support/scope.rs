//! Threads that wait for locks, in a test that may fail meanwhile.

use std::{
    cell::RefCell,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread::{self, Scope},
};

use curator_locks::CuratorFramework;

thread_local! {
    static CLIENTS: RefCell<Vec<CuratorFramework>> = const { RefCell::new(Vec::new()) };
}

/// Has this client closed if the test fails within a [`scope`].
pub fn closed_by_failure(client: CuratorFramework) -> CuratorFramework {
    CLIENTS.with_borrow_mut(|clients| clients.push(client.clone()));
    client
}

/// A client of the shared server in this namespace.
pub fn client_in(namespace: &str) -> CuratorFramework {
    closed_by_failure(super::client_in(namespace))
}

/// `thread::scope`. If the test fails meanwhile, its clients are closed, so that all threads end and the test does, too.
pub fn scope<'env, T>(test: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
    thread::scope(|scope| match catch_unwind(AssertUnwindSafe(|| test(scope))) {
        Ok(value) => value,
        Err(panic) => {
            CLIENTS.with_borrow(|clients| clients.iter().for_each(CuratorFramework::close));
            resume_unwind(panic)
        }
    })
}
