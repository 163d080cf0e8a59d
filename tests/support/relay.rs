//! A TCP relay between client and server that can be cut, or stop taking what the client sends. It does not look at the
//! bytes: over TLS there is nothing to see.

use std::{
    io::{ErrorKind, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

pub struct Relay {
    address: String,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    server: Mutex<String>,
    streams: Mutex<Vec<TcpStream>>,
    accepted: AtomicUsize,
    /// What the client sends stays in the kernel's buffers.
    deaf: AtomicBool,
    /// What the server sends does too.
    mute: AtomicBool,
    ended: AtomicBool,
}

impl Relay {
    pub fn to(server: &str) -> Relay {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shared = Arc::new(Shared { server: Mutex::new(server.to_owned()), ..Shared::default() });
        let inner = shared.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                if inner.ended.load(Ordering::SeqCst) {
                    return;
                }
                let client = client.unwrap();
                let server = inner.server.lock().unwrap().clone();
                let Ok(server) = TcpStream::connect(server) else { continue };
                inner.accepted.fetch_add(1, Ordering::SeqCst);
                let ends = [&client, &server].map(|end| end.try_clone().unwrap());
                inner.streams.lock().unwrap().extend(ends);
                pump(&client, &server, inner.clone(), |shared| &shared.deaf);
                pump(&server, &client, inner.clone(), |shared| &shared.mute);
            }
        });
        Relay { address, shared }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    /// Later connections end at this server.
    pub fn lead_to(&self, server: &str) {
        server.clone_into(&mut self.shared.server.lock().unwrap());
    }

    /// How many connections there were.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// Ends every connection.
    pub fn cut(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    pub fn deafen(&self, on: bool) {
        self.shared.deaf.store(on, Ordering::SeqCst);
    }

    pub fn silence(&self, on: bool) {
        self.shared.mute.store(on, Ordering::SeqCst);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        self.cut();
        let _ = TcpStream::connect(&self.address);
    }
}

fn pump(from: &TcpStream, to: &TcpStream, shared: Arc<Shared>, held: fn(&Shared) -> &AtomicBool) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    from.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while !shared.ended.load(Ordering::SeqCst) {
            if held(&shared).load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(5));
                continue;
            }
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) if to.write_all(&buffer[..count]).is_err() => break,
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(_) => break,
            }
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    });
}
