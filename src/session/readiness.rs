//! Learning that bytes have arrived without reading them.

pub(crate) use system::{Interest, Readiness, watch};

#[cfg(unix)]
mod system {
    use std::{io, net::TcpStream, os::fd::AsRawFd, sync::Arc, time::Duration};

    use mio::{Events, Poll, Registry, Token, unix::SourceFd};

    /// The waiting end: one thread sleeps on it.
    pub(crate) struct Readiness {
        poll: Poll,
        events: Events,
    }

    /// Switches the wake-ups of the waiting end on and off, from any thread.
    pub(crate) struct Interest {
        registry: Registry,
        stream: Arc<TcpStream>,
    }

    /// The two ends for one connection, switched off.
    pub(crate) fn watch(stream: Arc<TcpStream>) -> io::Result<(Readiness, Interest)> {
        let poll = Poll::new()?;
        let registry = poll.registry().try_clone()?;
        Ok((Readiness { poll, events: Events::with_capacity(1) }, Interest { registry, stream }))
    }

    impl Readiness {
        /// Waits until something can be read while the interest is on, at most about so long. It may also return early.
        pub(crate) fn wait(&mut self, patience: Duration) -> io::Result<()> {
            match self.poll.poll(&mut self.events, Some(patience)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
                result => result,
            }
        }
    }

    impl Interest {
        /// What has arrived before counts, too.
        pub(crate) fn on(&self) -> io::Result<()> {
            let fd = self.stream.as_raw_fd();
            self.registry.register(&mut SourceFd(&fd), Token(0), mio::Interest::READABLE)
        }

        pub(crate) fn off(&self) {
            let fd = self.stream.as_raw_fd();
            // It fails only where it was not on.
            let _ = self.registry.deregister(&mut SourceFd(&fd));
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::{io, net::TcpStream, sync::Arc, time::Duration};

    pub(crate) enum Readiness {}
    pub(crate) enum Interest {}

    pub(crate) fn watch(_stream: Arc<TcpStream>) -> io::Result<(Readiness, Interest)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Readiness {
        pub(crate) fn wait(&mut self, _patience: Duration) -> io::Result<()> {
            match *self {}
        }
    }

    impl Interest {
        pub(crate) fn on(&self) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn off(&self) {
            match *self {}
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        sync::Arc,
        time::{Duration, Instant},
    };

    use super::*;

    const LONG: Duration = Duration::from_secs(20);
    const MOMENT: Duration = Duration::from_millis(30);

    fn pair() -> (Arc<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Arc::new(here), listener.accept().unwrap().0)
    }

    fn comes_early(readiness: &mut Readiness, patience: Duration) -> bool {
        let begun = Instant::now();
        readiness.wait(patience).unwrap();
        begun.elapsed() < patience
    }

    #[test]
    fn it_wakes_only_while_the_interest_is_on_and_for_what_came_before() {
        let (here, mut there) = pair();
        let (mut readiness, interest) = watch(here.clone()).unwrap();
        there.write_all(b"x").unwrap();
        assert!(!comes_early(&mut readiness, MOMENT));
        interest.on().unwrap();
        assert!(comes_early(&mut readiness, LONG));
        interest.off();
        there.write_all(b"y").unwrap();
        assert!(!comes_early(&mut readiness, MOMENT));
        (&*here).read_exact(&mut [0; 2]).unwrap();
        interest.on().unwrap();
        assert!(!comes_early(&mut readiness, MOMENT));
    }

    #[test]
    fn it_is_switched_while_another_thread_waits() {
        let (here, mut there) = pair();
        let (mut readiness, interest) = watch(here).unwrap();
        interest.on().unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| comes_early(&mut readiness, LONG));
            std::thread::sleep(MOMENT);
            interest.off();
            there.write_all(b"x").unwrap();
            std::thread::sleep(MOMENT);
            assert!(!waiter.is_finished());
            interest.on().unwrap();
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn the_end_of_the_stream_wakes_it() {
        let (here, there) = pair();
        let (mut readiness, interest) = watch(here.clone()).unwrap();
        drop(there);
        interest.on().unwrap();
        assert!(comes_early(&mut readiness, LONG));
        interest.off();
        here.shutdown(std::net::Shutdown::Both).unwrap();
        interest.on().unwrap();
        assert!(comes_early(&mut readiness, LONG));
    }
}
