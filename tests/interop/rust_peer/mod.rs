//! The peer of this crate: a child process that understands the same lines as those of `tests/peers`.

mod locks;
mod owner;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use curator_locks::{
    Builder, CreatorAllAclProvider, CuratorFramework, InterProcessMultiLock, InterProcessMutex,
    InterProcessReadWriteLock, InterProcessSemaphoreV2, LockGuard, MultiLockGuard, Result, RetryNTimes, Revoker,
    SharedCount,
};

use self::owner::Owner;
use crate::{
    login,
    support::{self, child, history::shared_clock},
};

/// `CONNECT NAMESPACE SESSION-MILLISECONDS [auth=USER:PASSWORD] [data=TEXT] [persistent-parents]`
pub(crate) fn run(arguments: &[String]) {
    let client = support::connect(builder(arguments));
    child::say(&format!("ready {}", describe(&client)));
    let is_stopped = Arc::new(AtomicBool::new(false));
    let to_owner = start_owner(&client, &is_stopped);
    let mut counts = Counts::default();
    loop {
        let line = child::listen();
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "acquire" | "release" | "hammer" | "count-hammer" | "revoke-all" | "request-all" => {
                to_owner.send(line).unwrap();
            }
            "transfer" => {
                let client = client.clone();
                thread::spawn(move || report(transfer(&client, &line.split(' ').collect::<Vec<_>>())));
            }
            "stop" => is_stopped.store(true, Ordering::SeqCst),
            "quit" => {
                client.close();
                child::say("bye");
                std::process::exit(0);
            }
            _ => report(answer(&client, &mut counts, &words)),
        }
    }
}

/// Locks belong to threads, so one has them all, while another keeps listening.
fn start_owner(client: &CuratorFramework, is_stopped: &Arc<AtomicBool>) -> mpsc::Sender<String> {
    let (sender, orders) = mpsc::channel::<String>();
    let (client, is_stopped) = (client.clone(), is_stopped.clone());
    thread::spawn(move || {
        let mut owner = Owner::new(client, is_stopped);
        for order in orders {
            report(owner.obey(&order.split(' ').collect::<Vec<_>>()));
        }
    });
    sender
}

/// Threads that move money between two accounts each time, which they have locked both.
fn transfer(client: &CuratorFramework, words: &[&str]) -> Result<()> {
    let number = |index: usize| words[index].parse::<u8>().unwrap();
    let (directory, accounts, rounds, threads) = (words[2], number(3), number(4), number(5));
    let begin = shared_clock();
    let path = |what: &str, account: u8| format!("{directory}/{what}{}", char::from(b'a' + account));
    let add = |account: u8, amount: i64| {
        let before: i64 =
            String::from_utf8(client.get_data().for_path(&path("money", account))?).unwrap().parse().unwrap();
        client.set_data().for_path_and_data(&path("money", account), (before + amount).to_string()).map(drop)
    };
    let work = || {
        for _ in 0..rounds {
            let from = fastrand::u8(..accounts);
            let to = (from + 1 + fastrand::u8(..accounts - 1)) % accounts;
            let locks = [from.min(to), from.max(to)].map(|account| path("lock", account));
            let (mut one_by_one, mut together) = (Vec::new(), None);
            if words[1] == "singly" {
                for lock in &locks {
                    one_by_one.push(InterProcessMutex::new(client, lock)?.lock()?);
                }
            } else {
                together = Some(InterProcessMultiLock::new(client, locks)?.lock()?);
            }
            add(from, -1).and_then(|()| add(to, 1))?;
            one_by_one.into_iter().rev().try_for_each(LockGuard::release)?;
            together.map_or(Ok(()), MultiLockGuard::release)?;
        }
        Ok(())
    };
    let all: Result<()> = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap())
    });
    all.map(|()| child::say(&format!("moved {}", shared_clock() - begin)))
}

/// `SESSION PASSWORD`
pub(crate) fn describe(client: &CuratorFramework) -> String {
    let password = client.session_password().try_into().unwrap();
    format!("{} {:032x}", client.session_id(), u128::from_be_bytes(password))
}

fn report(result: Result<()>) {
    if let Err(error) = result {
        child::say(&format!("error {error:?}"));
    }
}

fn builder(arguments: &[String]) -> Builder {
    let session = Duration::from_millis(arguments[2].parse().unwrap());
    let retry = RetryNTimes::new(100, Duration::from_millis(100));
    let builder = support::builder_at(&arguments[0], &arguments[1]).session_timeout(session).retry_policy(retry);
    let builder = login::log_in(builder);
    arguments[3..].iter().fold(builder, |builder, option| match option.split_once('=') {
        Some(("auth", credentials)) => {
            builder.authorization("digest", credentials.as_bytes()).acl_provider(CreatorAllAclProvider)
        }
        Some(("data", data)) => builder.default_data(data.as_bytes().to_vec()),
        _ if option == "persistent-parents" => builder.dont_use_container_parents(),
        _ => panic!("{option}"),
    })
}

/// What needs no lock.
fn answer(client: &CuratorFramework, counts: &mut Counts, words: &[&str]) -> Result<()> {
    match words {
        ["revoke", path] => {
            let at = shared_clock();
            Revoker::attempt_revoke(client, path)?;
            child::say(&format!("revoked {at}"));
        }
        ["list", kind, path] => child::say(&format!("list {}", participants(client, kind, path)?.join(" "))),
        ["read", path] => {
            let data = client.get_data().for_path(path)?;
            child::say(&format!("data {}", String::from_utf8_lossy(&data)));
        }
        ["session"] => child::say(&format!("session {}", client.session_id())),
        ["watch-count", path] => {
            let count = counts.started(client, path)?;
            count.add_listener(|value| child::say(&format!("count-is {value}")));
            child::say(&format!("watching {}", count.count()));
        }
        ["set-count", path, value] => {
            counts.started(client, path)?.set_count(value.parse().unwrap())?;
            child::say(&format!("set {}", shared_clock()));
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

fn participants(client: &CuratorFramework, kind: &str, path: &str) -> Result<Vec<String>> {
    match kind {
        "mutex" => InterProcessMutex::new(client, path)?.participant_nodes(),
        "read" => InterProcessReadWriteLock::new(client, path)?.read_lock().participant_nodes(),
        "write" => InterProcessReadWriteLock::new(client, path)?.write_lock().participant_nodes(),
        _ => InterProcessSemaphoreV2::new(client, path, 1)?.participant_nodes(),
    }
}

/// Shared counts by path, each started once.
#[derive(Default, Clone)]
struct Counts(HashMap<String, SharedCount>);

impl Counts {
    fn started(&mut self, client: &CuratorFramework, path: &str) -> Result<SharedCount> {
        if !self.0.contains_key(path) {
            let count = SharedCount::new(client, path, 0)?;
            count.start()?;
            self.0.insert(path.to_owned(), count);
        }
        Ok(self.0[path].clone())
    }
}
