//! Passes connections on to the server, and looks at what goes through.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

use parking_lot::Mutex;

use crate::sides::Outcome;

pub struct Relay {
    pub address: String,
    seen: Arc<Seen>,
}

#[derive(Default)]
struct Seen {
    bytes: AtomicU64,
    /// What clients have sent, where that is wanted.
    sent: Option<Mutex<Vec<u8>>>,
}

impl Relay {
    /// Until the process ends.
    pub fn start(server: u16, records: bool) -> Outcome<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?.to_string();
        let seen = Arc::new(Seen { sent: records.then(Mutex::default), ..Seen::default() });
        let shared = seen.clone();
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                // A connection that cannot be passed on is closed.
                let _ = pass_on(client, server, &shared);
            }
        });
        Ok(Relay { address, seen })
    }

    /// In both directions.
    pub fn bytes(&self) -> u64 {
        self.seen.bytes.load(Ordering::Relaxed)
    }

    /// What clients have sent since the last call.
    pub fn take_sent(&self) -> Vec<u8> {
        self.seen.sent.as_ref().map(|sent| std::mem::take(&mut *sent.lock())).unwrap_or_default()
    }
}

fn pass_on(client: TcpStream, server: u16, seen: &Arc<Seen>) -> Outcome<()> {
    let server = TcpStream::connect(("127.0.0.1", server))?;
    for (mut from, mut to, is_client) in [(client.try_clone()?, server.try_clone()?, true), (server, client, false)] {
        to.set_nodelay(true)?;
        let seen = seen.clone();
        thread::spawn(move || {
            let mut buffer = vec![0; 1 << 16];
            while let Ok(count @ 1..) = from.read(&mut buffer) {
                let bytes = &buffer[..count];
                seen.bytes.fetch_add(count as u64, Ordering::Relaxed);
                if let Some(sent) = seen.sent.as_ref().filter(|_| is_client) {
                    sent.lock().extend_from_slice(bytes);
                }
                if to.write_all(bytes).is_err() {
                    break;
                }
            }
            // The other side may have been faster.
            let _ = to.shutdown(Shutdown::Both);
        });
    }
    Ok(())
}
