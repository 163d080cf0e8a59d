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
    Builder, CreatorAllAclProvider, CuratorFramework, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreV2, Result, RetryNTimes, Revoker, SharedCount,
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
