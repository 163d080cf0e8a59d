//! Directories whose sequence numbers are near their end, simulated: a relay rewrites the numbers in every frame.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/mod.rs"]
mod support;

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use curator_locks::{
    CuratorFramework, Error, InterProcessMultiLock, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreMutex, InterProcessSemaphoreV2, Result, zookeeper_recipe::WriteLock,
};

use crate::support::{PATIENCE, builder_at, connect, eventually, namespace, server};

/// What the server wrote, and what the client reads instead. Of one length, as a string's length stands before it.
type Rewriting = (&'static str, &'static str);

/// Numbers from 2,147,400,000 on: below 2^31, in the last million.
const LAST: Rewriting = ("00000", "21474");
/// Numbers from -19 to -10: the server went beyond 2^31 - 1.
const NEGATIVE: Rewriting = ("000000000", "-00000001");
/// Numbers from 2,146,400,000 on, before the last million.
const BEFORE_THE_LAST: Rewriting = ("00000", "21464");

/// What stands before a number in the names of all locks.
const BEFORE_A_NUMBER: [&str; 2] = ["-", "__"];

/// The address of a relay between clients and the shared server.
fn relay(rewriting: Rewriting) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(server().connect_string()).unwrap();
            let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (here, there) = rewriting;
            thread::spawn(move || pass_on(from, to, there, here));
            thread::spawn(move || pass_on(server, client, here, there));
        }
    });
    address
}

fn pass_on(mut from: TcpStream, mut to: TcpStream, old: &str, new: &str) -> io::Result<()> {
    to.set_nodelay(true)?;
    loop {
        let mut length = [0; 4];
        from.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        from.read_exact(&mut frame)?;
        for before in BEFORE_A_NUMBER {
            let (old, new) = (format!("{before}{old}"), format!("{before}{new}"));
            let places: Vec<usize> =
                (0..frame.len()).filter(|&place| frame[place..].starts_with(old.as_bytes())).collect();
            for place in places {
                frame[place..place + new.len()].copy_from_slice(new.as_bytes());
            }
        }
        to.write_all(&[&length[..], &frame].concat())?;
    }
}

/// The server's own view, not rewritten.
fn nodes_below(namespace: &str, path: &str) -> Vec<String> {
    let client = connect(builder_at(&server().connect_string(), namespace));
    match client.get_children().for_path(path) {
        Err(error) if error.is_no_node() => Vec::new(),
        result => result.unwrap(),
    }
}

fn assert_refused(rewriting: Rewriting, directories: &[&str], acquire: impl Fn(&CuratorFramework) -> Result<()>) {
    let namespace = namespace();
    let client = connect(builder_at(&relay(rewriting), &namespace));
    match acquire(&client) {
        Err(Error::SequenceExhausted { path, number }) => {
            assert!(path.starts_with("/l"), "the directory is named: {path}");
            assert!(!(0..2_147_400_000).contains(&number), "{number}");
        }
        other => panic!("not refused: {other:?}"),
    }
    for directory in directories {
        eventually("nothing is left", || nodes_below(&namespace, directory).is_empty());
    }
}

macro_rules! refused {
    ($($lock:ident in [$($directory:expr),+]: $acquire:expr;)+) => {
        mod the_last_numbers_are_refused_and_leave_nothing {
            use super::*;
            $(#[test]
            fn $lock() {
                assert_refused(LAST, &[$($directory),+], $acquire);
            })+
        }

        mod negative_numbers_are_refused_and_leave_nothing {
            use super::*;
            $(#[test]
            fn $lock() {
                assert_refused(NEGATIVE, &[$($directory),+], $acquire);
            })+
        }
    };
}

refused! {
    mutex in ["/l"]: |client| InterProcessMutex::new(client, "/l")?.acquire();
    semaphore_mutex in ["/l/leases", "/l/locks"]: |client| InterProcessSemaphoreMutex::new(client, "/l")?.acquire();
    semaphore in ["/l/leases", "/l/locks"]: |client| {
        InterProcessSemaphoreV2::new(client, "/l", 3)?.acquire_many(2).map(drop)
    };
    read in ["/l"]: |client| InterProcessReadWriteLock::new(client, "/l")?.read_lock().acquire();
    write in ["/l"]: |client| InterProcessReadWriteLock::new(client, "/l")?.write_lock().acquire();
    zookeepers_own_write_lock in ["/l"]: |client| WriteLock::new(client, "/l")?.lock().map(drop);
    multi in ["/l1", "/l2"]: |client| InterProcessMultiLock::new(client, ["/l1", "/l2"])?.acquire();
}

#[test]
fn the_numbers_before_the_last_million_still_queue() {
    let namespace = namespace();
    let address = relay(BEFORE_THE_LAST);
    let (one, two) = (connect(builder_at(&address, &namespace)), connect(builder_at(&address, &namespace)));
    let holder = InterProcessMutex::new(&one, "/l").unwrap();
    let waiter = Arc::new(InterProcessMutex::new(&two, "/l").unwrap());
    let held = holder.lock().unwrap();
    assert!(held.path().contains("-lock-21464"), "{}", held.path());
    let (begun, waiting) = (waiter.clone(), waiter.clone());
    let waits = thread::spawn(move || waiting.lock_timeout(PATIENCE).map(|held| held.is_some()));
    eventually("both queue", || begun.participant_nodes().unwrap().len() == 2);
    held.release().unwrap();
    assert!(waits.join().unwrap().unwrap());
}
