//! One of each kind, of all languages at once, as the README shows it.

use std::time::Duration;

use curator_locks::{
    AcquireOptions, Caching, CancelToken, CuratorFramework, InterProcessMutex, InterProcessReadWriteLock,
    InterProcessSemaphoreV2, InterProcessUnfairMutex, LeaderLatch, LockQueue,
};

use crate::{
    history::Side,
    peer::{Peer, Place},
    stderr_of, stdout_of, support,
    support::{
        eventually, quick_server,
        scope::{closed_by_failure, scope},
    },
    views::{Row, row, rows, text},
    zklock_at,
};

fn entries(client: &CuratorFramework, path: &str) -> usize {
    LockQueue::inspect(client, path).unwrap().entries.len()
}

/// The rows of each lock, once these have come.
fn expected() -> [(&'static str, &'static str, Vec<Row>); 6] {
    let (holds, waits) = ("holds", "waits 0");
    [
        (
            "/shop/orders",
            "mutex",
            vec![
                row(holds, "exclusive", "curator", "billing"),
                row(waits, "exclusive", "curator", "checkout"),
                row("waits 1", "exclusive", "kazoo", "kazoo"),
            ],
        ),
        (
            "/shop/catalogue",
            "read/write",
            vec![
                row(holds, "read", "curator", "billing"),
                row(holds, "read", "curator", "checkout"),
                row(waits, "write", "curator", "importer"),
            ],
        ),
        (
            "/shop/downloads",
            "semaphore",
            vec![
                row(holds, "lease", "curator", "billing"),
                row(holds, "lease", "curator", "checkout"),
                row(waits, "lease", "curator", "late"),
            ],
        ),
        ("/shop/prices", "mutex", vec![row("cached", "exclusive", "curator", "checkout")]),
        ("/shop/cleanup", "unfair", vec![row(holds, "exclusive", "unfair", "checkout")]),
        (
            "/shop/scheduler",
            "leader-latch",
            vec![
                row(holds, "exclusive", "curator", "scheduler-java"),
                row(waits, "exclusive", "curator", "scheduler-rust"),
            ],
        ),
    ]
}

/// `cargo test --all-features --test zklock scene -- --nocapture` prints what the README shows.
#[test]
fn each_row_is_right_of_all_kinds_and_languages_at_once() {
    let server = quick_server().start().unwrap();
    let place = Place {
        servers: server.connect_string(),
        namespace: "shop".into(),
        session: Duration::from_secs(20),
        login: crate::login::Login::default(),
    };
    let curator = |data: &str| Peer::curator(&place, &[&format!("data={data}")]);
    let mut peers = [
        curator("billing"),
        curator("importer"),
        Peer::leader(Side::Java, &place, "scheduler-java"),
        Peer::kazoo(&place),
    ];
    peers.iter_mut().for_each(Peer::await_ready);
    let [billing, importer, scheduler, kazoo] = &peers;
    let client = closed_by_failure(support::connect(support::builder(&server, "shop")));
    let (patience, cancel) = (support::PATIENCE, CancelToken::new());
    let come = |path: &str, count: usize| eventually(&format!("{count} at {path}"), || entries(&client, path) == count);

    let _held = [
        billing.acquire("mutex", "/orders"),
        billing.acquire("read", "/catalogue"),
        billing.acquire("semaphore:2", "/downloads"),
    ];
    scheduler.tell("latch /scheduler");
    scheduler.hear("leads");
    let orders = InterProcessMutex::new(&client, "/orders").unwrap().with_lock_data("checkout");
    let catalogue = InterProcessReadWriteLock::new(&client, "/catalogue").unwrap().with_lock_data("checkout");
    let downloads = InterProcessSemaphoreV2::new(&client, "/downloads", 2).unwrap();
    let cleanup = InterProcessUnfairMutex::new(&client, "/cleanup").unwrap().with_lock_data("checkout");
    let caching = Caching::new().keep_idle(Duration::from_secs(3600));
    let prices = InterProcessMutex::new(&client, "/prices").unwrap().with_lock_data("checkout").with_caching(caching);
    let latch = LeaderLatch::new(&client, "/scheduler").unwrap().with_id("scheduler-rust");
    downloads.set_node_data("checkout");
    let _reading = catalogue.read_lock().lock().unwrap();
    let _lease = downloads.acquire_timeout(patience).unwrap().unwrap();
    let _cleaning = cleanup.lock().unwrap();
    prices.lock().unwrap().release().unwrap();
    latch.start().unwrap();
    scope(|scope| {
        let options = AcquireOptions::new().cancel_token(&cancel);
        scope.spawn({
            let options = options.clone();
            move || orders.acquire_with(&options)
        });
        let late = InterProcessSemaphoreV2::new(&client, "/downloads", 2).unwrap();
        late.set_node_data("late");
        scope.spawn(move || late.acquire_with(1, &options).map(drop));
        importer.tell("acquire write /catalogue -1");
        come("/orders", 2);
        kazoo.tell("acquire compatible /orders -1");
        come("/orders", 3);
        come("/catalogue", 3);
        come("/downloads", 3);
        come("/scheduler", 2);

        let expected = expected();
        let ls = |option: Option<&str>| {
            let paths = expected.iter().map(|(path, ..)| *path);
            let output = zklock_at(&server.connect_string(), ["ls"].into_iter().chain(option).chain(paths)).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}", stderr_of(&output));
            stdout_of(&output)
        };
        println!("{}", ls(None));
        let seen: serde_json::Value = serde_json::from_str(&ls(Some("--json"))).unwrap();
        for (lock, (path, kind, expected)) in seen.as_array().unwrap().iter().zip(&expected) {
            assert_eq!((text(&lock["path"]), text(&lock["kind"])), (path.to_string(), kind.to_string()));
            assert_eq!(rows(lock), *expected, "{path}");
        }
        cancel.cancel();
    });
}
