//! What a person reads who has set something up wrongly: what happened, to what, why, and what to do.
//!
//! `cargo test --all-features --test wrong_setups -- --nocapture` prints the text of each.
#![cfg(all(feature = "testing", feature = "tls"))]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../../support/mod.rs"]
mod support;
#[path = "setups.rs"]
mod wrong;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{OnceLock, mpsc},
    thread,
    time::Duration,
};

use curator_locks::{
    AcquireOptions, Builder, CreatorAllAclProvider, CuratorFramework, Error, InterProcessMultiLock, InterProcessMutex,
    RetryNTimes, RetryOneTime, TlsConfig,
    testing::{Fault, FaultProxy, RequestMatch, TestingAuthority, TestingCluster, TestingServer, op},
};

use crate::{
    support::{builder, builder_at, client, connect, eventually, namespace, quick_server, server},
    wrong::WRONG,
};

const SESSION: Duration = Duration::from_secs(6);

/// Where nobody answers, however long one waits.
fn impatient(connect_string: &str) -> Builder {
    hasty(connect_string).connection_timeout(Duration::from_millis(1500))
}

/// Where somebody answers: later than usual if the machine stands still, and "no answer" is not what is wrong.
fn hasty(connect_string: &str) -> Builder {
    builder_at(connect_string, &namespace()).retry_policy(RetryNTimes::new(0, Duration::ZERO))
}

/// What the first acquire says, as `main` would print it.
fn acquire(builder: Builder) -> String {
    acquire_at(builder, "/x")
}

fn acquire_at(builder: Builder, path: &str) -> String {
    let attempt = || {
        let client = builder.build()?;
        client.start()?;
        // Why there is no connection is known once the first attempt has ended, as it is in a service's first minute.
        if !client.block_until_connected(Some(Duration::from_secs(2)))? {
            eventually("it is known why there is no connection", || {
                client.is_connected() || client.connection_error().is_some()
            });
        }
        InterProcessMutex::new(&client, path)?.acquire()
    };
    text(attempt())
}

fn text<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => "(nothing)".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// What accepts connections and is no ZooKeeper.
fn stranger(answer: impl Fn(TcpStream) + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || listener.incoming().filter_map(Result::ok).for_each(answer));
    address
}

fn silent() -> String {
    let (keep, kept) = mpsc::channel();
    thread::spawn(move || kept.iter().collect::<Vec<TcpStream>>());
    stranger(move |stream| drop(keep.send(stream)))
}

fn web_server() -> String {
    stranger(|mut stream| {
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
    })
}

/// Servers whose certificate names 127.0.0.1, and one that has expired.
struct Secure {
    authority: TestingAuthority,
    server: TestingServer,
}

impl Secure {
    fn get() -> &'static Secure {
        static SECURE: OnceLock<Secure> = OnceLock::new();
        SECURE.get_or_init(|| Secure::start(false))
    }

    fn start(client_auth: bool) -> Secure {
        let authority = TestingAuthority::new("authority of the servers").unwrap();
        let tls = authority.server().unwrap().client_auth(client_auth);
        let server = quick_server().secure_client_port(tls).start().unwrap();
        let secure = Secure { authority, server };
        // The first handshake takes a server much longer than the others do.
        let known = secure.authority.client("anybody").unwrap();
        connect(builder_at(&secure.address(), &namespace()).tls(known));
        secure
    }

    fn address(&self) -> String {
        self.server.secure_connect_string().unwrap()
    }

    fn acquire(&self, address: &str, tls: TlsConfig) -> String {
        acquire(hasty(address).tls(tls))
    }
}

type Row = (&'static str, fn() -> String, &'static [&'static str]);

const ROWS: [Row; 30] = [
    (
        "a port that says nothing",
        || acquire(impatient(&silent())),
        &["/x", "no answer", "the client port of a ZooKeeper server"],
    ),
    (
        "a web server at the port",
        || acquire(hasty(&web_server())),
        &["/x", "not the client port of a ZooKeeper server"],
    ),
    (
        "a port that closes at once",
        || acquire(hasty(&stranger(drop))),
        &["/x", "closed the connection", "has no quorum", "its port for TLS"],
    ),
    (
        "the wrong authority",
        || {
            let secure = Secure::get();
            secure.acquire(&secure.address(), TestingAuthority::new("somebody else").unwrap().trusted().unwrap())
        },
        &["UnknownIssuer", "root_certificates_pem()"],
    ),
    (
        "an expired certificate",
        || {
            let authority = TestingAuthority::new("authority").unwrap();
            let expired = authority.issue_expired("server", [[127, 0, 0, 1].into()]).unwrap();
            let tls = authority.server_with(&expired).unwrap();
            let server = quick_server().secure_client_port(tls).start().unwrap();
            acquire(hasty(&server.secure_connect_string().unwrap()).tls(authority.trusted().unwrap()))
        },
        &["certificate expired"],
    ),
    (
        "a certificate for another host",
        || {
            let secure = Secure::get();
            secure.acquire(&secure.address().replace("127.0.0.1", "localhost"), secure.authority.trusted().unwrap())
        },
        &["not valid for name \"localhost\"", "127.0.0.1"],
    ),
    (
        "no client certificate",
        || {
            let secure = Secure::start(true);
            secure.acquire(&secure.address(), secure.authority.trusted().unwrap())
        },
        &["client certificate", "client_certificate_pem()"],
    ),
    (
        "TLS at a plain port",
        || {
            let secure = Secure::get();
            secure.acquire(&secure.server.connect_string(), secure.authority.trusted().unwrap())
        },
        &["TLS handshake", "not a secureClientPort"],
    ),
    ("no TLS at a TLS port", || acquire(hasty(&Secure::get().address())), &["its port for TLS"]),
    (
        "a TLS configuration that trusts nobody",
        || text(impatient("zk1").tls(TlsConfig::new()).build()),
        &["tls", "root_certificates_pem()"],
    ),
    (
        "a directory of others",
        || {
            let space = namespace();
            let owner = builder(server(), &space).authorization("digest", "owner:secret");
            let owner = connect(owner.acl_provider(CreatorAllAclProvider));
            let held = InterProcessMutex::new(&owner, "/x").unwrap();
            held.acquire().unwrap();
            acquire(builder(server(), &space))
        },
        &["/x", "ACL", "authorization()"],
    ),
    (
        "the wrong password",
        || {
            let space = namespace();
            let owner = builder(server(), &space).authorization("digest", "owner:secret");
            let owner = connect(owner.acl_provider(CreatorAllAclProvider));
            let held = InterProcessMutex::new(&owner, "/x").unwrap();
            held.acquire().unwrap();
            acquire(builder(server(), &space).authorization("digest", "owner:wrong"))
        },
        &["/x", "ACL", "authorization()"],
    ),
    (
        "a scheme that the servers do not know",
        || acquire(builder(server(), &namespace()).authorization("kerberos", "me")),
        &["kerberos", "does not know the scheme", "authorization()"],
    ),
    (
        "a chroot that is not there",
        || acquire(builder_at(&format!("{}/nowhere/at/all", server().connect_string()), &namespace())),
        &["/nowhere/at/all", "no such znode", "create_chroot(true)"],
    ),
    (
        "a server without containers",
        || {
            let proxy = FaultProxy::start(server().connect_string()).unwrap();
            let refused = proxy.inject(RequestMatch::op(op::CREATE_CONTAINER).times(u64::MAX), Fault::Refuse(-6));
            let said = acquire(builder_at(&proxy.connect_string(), &namespace()));
            assert!(refused.hits() > 0);
            said
        },
        &["(nothing)"],
    ),
    (
        "no quorum",
        || {
            let cluster = TestingCluster::start(3).unwrap();
            let leader = cluster.wait_for_leader(support::PATIENCE).unwrap();
            for index in (0..3).filter(|index| *index != (leader + 1) % 3) {
                cluster.servers()[index].kill().unwrap();
            }
            let alone = &cluster.servers()[(leader + 1) % 3];
            eventually("it has noticed", || !alone.four_letter_word("srvr").unwrap_or_default().contains("Mode:"));
            acquire(hasty(&alone.connect_string()))
        },
        &["has no quorum"],
    ),
    (
        "lock data of 2 MB",
        || text(InterProcessMutex::new(&client(), "/x").unwrap().with_lock_data(vec![b'x'; 2 << 20]).acquire()),
        &["/x", "2097", "limit of 1048575", "jute.maxbuffer"],
    ),
    (
        "a reply above the limit",
        || {
            let client = connect(builder(server(), &namespace()).max_frame_size(4096));
            for number in 0..100 {
                client
                    .create()
                    .creating_parents_if_needed()
                    .for_path(&format!("/x/a-child-of-a-long-name-that-is-no-contender-{number:03}"))
                    .unwrap();
            }
            text(InterProcessMutex::new(&client, "/x").unwrap().acquire())
        },
        &["/x", "limit of 4096", "max_frame_size()"],
    ),
    (
        "a session timeout of zero",
        || text(impatient("zk1").session_timeout(Duration::ZERO).build()),
        &["session_timeout", "must be 1 ms to"],
    ),
    (
        "a session timeout of a month",
        || text(impatient("zk1").session_timeout(Duration::from_secs(30 * 24 * 3600)).build()),
        &["session_timeout", "must be 1 ms to"],
    ),
    (
        "a connection timeout of zero",
        || text(impatient("zk1").connection_timeout(Duration::ZERO).build()),
        &["connection_timeout", "must be 1 ms to"],
    ),
    (
        "no retry policy",
        || text(CuratorFramework::builder().connect_string("zk1").build()),
        &["retry_policy", "ExponentialBackoffRetry"],
    ),
    (
        "no servers at all",
        || text(CuratorFramework::builder().retry_policy(RetryOneTime::new(Duration::ZERO)).build()),
        &["connect_string()"],
    ),
    ("a namespace that is a path", || text(impatient("zk1").namespace("/a/b").build()), &["\"/a/b\""]),
    (
        "a client that was not started",
        || {
            let client = impatient("zk1").build().unwrap();
            text(InterProcessMutex::new(&client, "/x").unwrap().acquire())
        },
        &["start()"],
    ),
    (
        "a client that is closed",
        || {
            let client = client();
            client.close();
            text(InterProcessMutex::new(&client, "/x").unwrap().acquire())
        },
        &["closed", "another one"],
    ),
    (
        "a release by somebody else",
        || text(InterProcessMutex::new(&client(), "/x").unwrap().release()),
        &["/x", "nobody holds it through this object"],
    ),
    (
        "more validity than can be had",
        || {
            let client = connect(builder(server(), &namespace()).session_timeout(SESSION));
            let options = AcquireOptions::new().min_validity(Duration::from_secs(5));
            text(InterProcessMutex::new(&client, "/x").unwrap().acquire_with(&options))
        },
        &["min_validity", "5s", "half of the session timeout", "6s"],
    ),
    (
        "the same path twice",
        || text(InterProcessMultiLock::new(&client(), ["/a", "/b", "/a"])),
        &["/a", "each path once"],
    ),
    (
        "a lock that this thread has",
        || {
            let client = client();
            let (first, second) =
                (InterProcessMutex::new(&client, "/x").unwrap(), InterProcessMutex::new(&client, "/x").unwrap());
            first.acquire().unwrap();
            text(second.acquire())
        },
        &["would never end", "/x", "already holds"],
    ),
];

#[test]
fn what_is_wrong_is_said_with_its_reason_and_what_to_do() {
    let shared = WRONG.iter().map(|wrong| {
        let builder = wrong.servers.map_or_else(|| builder(server(), &namespace()), impatient);
        (format!("{:?} {:?}", wrong.servers, wrong.path), acquire_at(builder, wrong.path), wrong.words)
    });
    // Most of them wait.
    let rows = thread::scope(|scope| {
        let rows = ROWS.map(|(name, wrong, words)| (name, scope.spawn(wrong), words));
        rows.map(|(name, wrong, words)| (name.to_owned(), wrong.join().unwrap(), words))
    });
    let mut poor = Vec::new();
    for (name, said, words) in shared.chain(rows) {
        println!("{name}\n    {said}");
        let missing: Vec<_> = words.iter().filter(|word| !said.contains(**word)).collect();
        if !missing.is_empty() || said.contains('\n') {
            poor.push(format!("{name}: {said:?} lacks {missing:?}"));
        }
    }
    assert!(poor.is_empty(), "{poor:#?}");
}
