//! The uncontended cycle of `InterProcessMutex`, acquire and release, beside the limit: a bare socket that sends the
//! same three requests (create and list in one write, then delete) and waits for their replies.
//!
//! Both talk over loopback to one throw-away server, which writes its log to memory (`/dev/shm`) where there is such a
//! directory, else to the temporary directory, and in both cases does not wait for the disk (`forceSync=no`). So this
//! measures the client, the server's processor time and the loopback, and not storage: an ensemble whose servers
//! sync their logs to disks takes as much longer as these do.
//!
//! ```text
//! cargo bench --features testing --bench uncontended
//! ```
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    time::Duration,
};

use criterion::{Criterion, criterion_group, criterion_main};
use curator_locks::{
    Acl, CreateMode, CuratorFramework, InterProcessMutex, RetryOneTime,
    proto::{ConnectRequest, FrameBuffer, Request, Response, decode_header},
    testing::TestingServer,
};

fn uncontended(criterion: &mut Criterion) {
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    let directory = tempfile::tempdir_in(place).unwrap();
    println!("the server writes to {}, without fsync", directory.path().display());
    let server = TestingServer::builder().data_directory(directory.path()).start().unwrap();
    let connect_string = server.connect_string();

    let mut group = criterion.benchmark_group("uncontended");
    group.bench_function("socket", |bencher| {
        let mut socket = Socket::connect(&connect_string);
        socket.make_directory("/socket");
        bencher.iter(|| socket.cycle("/socket"));
    });
    group.bench_function("mutex", |bencher| {
        let client = client(&connect_string);
        let mutex = InterProcessMutex::new(&client, "/mutex").unwrap();
        bencher.iter(|| {
            mutex.acquire().unwrap();
            mutex.release().unwrap();
        });
        client.close();
    });
    group.finish();
}

fn client(connect_string: &str) -> CuratorFramework {
    let retry_policy = RetryOneTime::new(Duration::from_millis(100));
    let client = CuratorFramework::builder().connect_string(connect_string).retry_policy(retry_policy).build().unwrap();
    client.start().unwrap();
    assert!(client.block_until_connected(Some(Duration::from_secs(10))).unwrap());
    client
}

/// A session with nothing around it: no thread, no heartbeat, no retry. It never idles, so it does not expire.
struct Socket {
    stream: TcpStream,
    buffer: FrameBuffer,
}

impl Socket {
    fn connect(address: &str) -> Socket {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut socket = Socket { stream, buffer: FrameBuffer::new(1 << 20) };
        let handshake = ConnectRequest {
            last_zxid_seen: 0,
            timeout_ms: 60_000,
            session_id: 0,
            password: vec![0; 16],
            read_only: false,
        };
        socket.stream.write_all(&handshake.encode()).unwrap();
        socket.frame();
        socket
    }

    fn make_directory(&mut self, path: &str) {
        let create = create(path.into(), CreateMode::Persistent);
        self.stream.write_all(&create.encode(1)).unwrap();
        self.reply(&create);
    }

    fn cycle(&mut self, directory: &str) {
        // As long as the name of a mutex's znode.
        let create = create(
            format!("{directory}/_c_00000000-0000-0000-0000-000000000000-lock-"),
            CreateMode::EphemeralSequential,
        );
        let list = Request::GetChildren { path: directory.into(), watch: false, with_stat: false };
        let mut bytes = create.encode(1);
        bytes.extend(list.encode(2));
        self.stream.write_all(&bytes).unwrap();
        let Response::Created { path, .. } = self.reply(&create) else { panic!("not a reply to create") };
        self.reply(&list);
        let delete = Request::Delete { path, version: -1 };
        self.stream.write_all(&delete.encode(3)).unwrap();
        self.reply(&delete);
    }

    fn reply(&mut self, request: &Request) -> Response {
        let frame = self.frame();
        let (header, body) = decode_header(&frame).unwrap();
        assert_eq!(header.err, 0, "{request:?}");
        Response::decode(request.reply_kind(), body).unwrap()
    }

    fn frame(&mut self) -> Vec<u8> {
        loop {
            if let Some(frame) = self.buffer.next_frame().unwrap() {
                return frame.to_vec();
            }
            let read = self.stream.read(self.buffer.space()).unwrap();
            assert_ne!(read, 0, "the server closed the connection");
            self.buffer.filled(read);
        }
    }
}

fn create(path: String, mode: CreateMode) -> Request {
    // What the client puts there by default is an address, of about this size.
    Request::Create { path, data: b"127.0.0.1".to_vec(), acl: Acl::open_unsafe(), mode, with_stat: true }
}

criterion_group!(benches, uncontended);
criterion_main!(benches);
