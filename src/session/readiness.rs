//! Learning that bytes have arrived without reading them.

pub(crate) use system::{Interest, Readiness, Target, watch};

/// The number under which the interest was last switched on when something arrived. While no higher one was given, what
/// arrived was not read yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival(pub(crate) usize);

impl Arrival {
    /// The number above is the waker's.
    pub(crate) const LAST: Arrival = Arrival(usize::MAX - 1);
}

#[cfg(unix)]
mod system {
    use std::{
        io,
        net::TcpStream,
        os::fd::AsRawFd,
        sync::Arc,
        task::{Wake, Waker},
        time::Duration,
    };

    use mio::{Events, Poll, Registry, Token, unix::SourceFd};

    use super::Arrival;

    /// Stands for a wake-up without an arrival.
    const WAKER: Token = Token(usize::MAX);

    /// The waiting end: one thread sleeps on it.
    pub(crate) struct Readiness {
        poll: Poll,
        events: Events,
    }

    /// A waiting end, seen from the interest.
    #[derive(Clone)]
    pub(crate) struct Target(Arc<Registry>);

    /// Directs the arrivals of one connection to one waiting end at a time, from any thread.
    pub(crate) struct Interest {
        stream: Arc<TcpStream>,
        home: Target,
        /// Where it is on.
        at: Option<Target>,
    }

    /// The usual waiting end of one connection, and the interest, switched off.
    pub(crate) fn watch(stream: Arc<TcpStream>) -> io::Result<(Readiness, Interest)> {
        let (readiness, home) = Readiness::new()?;
        Ok((readiness, Interest { stream, home, at: None }))
    }

    impl Readiness {
        pub(crate) fn new() -> io::Result<(Readiness, Target)> {
            let poll = Poll::new()?;
            let target = Target(Arc::new(poll.registry().try_clone()?));
            // One arrival and the waker.
            Ok((Readiness { poll, events: Events::with_capacity(2) }, target))
        }

        /// What ends a wait from any thread, or the next one if there is none. To be called once.
        pub(crate) fn waker(&self) -> io::Result<Waker> {
            Ok(Arc::new(Alarm(mio::Waker::new(self.poll.registry(), WAKER)?)).into())
        }

        /// Waits until something can be read while the interest is on here, at most about so long (`None`: for ever). It
        /// may also return early.
        pub(crate) fn wait(&mut self, patience: Option<Duration>) -> io::Result<Option<Arrival>> {
            match self.poll.poll(&mut self.events, patience) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
                Err(error) => Err(error),
                Ok(()) => {
                    Ok(self.events.iter().map(mio::event::Event::token).find(|token| *token != WAKER).map(Into::into))
                }
            }
        }
    }

    impl From<Token> for Arrival {
        fn from(token: Token) -> Arrival {
            Arrival(token.0)
        }
    }

    struct Alarm(mio::Waker);

    impl Wake for Alarm {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            if let Err(error) = self.0.wake() {
                log::error!("a waiter cannot be woken: {error}");
            }
        }
    }

    impl Interest {
        /// Directs arrivals there, or home where that is `None` or takes no more. They bear this number; what has arrived
        /// before counts, too.
        pub(crate) fn on(&mut self, there: Option<&Target>, number: Arrival) -> io::Result<()> {
            self.off();
            let (fd, token) = (self.stream.as_raw_fd(), Token(number.0));
            let register = |target: &Target| {
                target.0.register(&mut SourceFd(&fd), token, mio::Interest::READABLE).map(|()| target.clone())
            };
            let at = match there {
                Some(there) => register(there).or_else(|_| register(&self.home))?,
                None => register(&self.home)?,
            };
            self.at = Some(at);
            Ok(())
        }

        pub(crate) fn off(&mut self) {
            if let Some(at) = self.at.take() {
                let fd = self.stream.as_raw_fd();
                // It is there, so this does not fail.
                let _ = at.0.deregister(&mut SourceFd(&fd));
            }
        }
    }

    impl Drop for Interest {
        /// The socket may stay open for longer, and would go on waking whoever sleeps there.
        fn drop(&mut self) {
            self.off();
        }
    }
}

#[cfg(not(unix))]
mod system {
    use std::{io, net::TcpStream, sync::Arc, task::Waker, time::Duration};

    use super::Arrival;

    pub(crate) enum Readiness {}
    #[derive(Clone)]
    pub(crate) struct Target;
    pub(crate) enum Interest {}

    pub(crate) fn watch(_stream: Arc<TcpStream>) -> io::Result<(Readiness, Interest)> {
        Err(io::ErrorKind::Unsupported.into())
    }

    impl Readiness {
        pub(crate) fn new() -> io::Result<(Readiness, Target)> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(crate) fn waker(&self) -> io::Result<Waker> {
            match *self {}
        }

        pub(crate) fn wait(&mut self, _patience: Option<Duration>) -> io::Result<Option<Arrival>> {
            match *self {}
        }
    }

    impl Interest {
        pub(crate) fn on(&mut self, _there: Option<&Target>, _number: Arrival) -> io::Result<()> {
            match *self {}
        }

        pub(crate) fn off(&mut self) {
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
        readiness.wait(Some(patience)).unwrap();
        begun.elapsed() < patience
    }

    const FIRST: Arrival = Arrival(1);

    #[test]
    fn it_wakes_only_while_the_interest_is_on_and_for_what_came_before() {
        let (here, mut there) = pair();
        let (mut readiness, mut interest) = watch(here.clone()).unwrap();
        there.write_all(b"x").unwrap();
        assert!(!comes_early(&mut readiness, MOMENT));
        interest.on(None, FIRST).unwrap();
        assert!(comes_early(&mut readiness, LONG));
        interest.off();
        there.write_all(b"y").unwrap();
        assert!(!comes_early(&mut readiness, MOMENT));
        (&*here).read_exact(&mut [0; 2]).unwrap();
        interest.on(None, FIRST).unwrap();
        assert!(!comes_early(&mut readiness, MOMENT));
    }

    #[test]
    fn it_is_switched_while_another_thread_waits() {
        let (here, mut there) = pair();
        let (mut readiness, mut interest) = watch(here).unwrap();
        interest.on(None, FIRST).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| comes_early(&mut readiness, LONG));
            std::thread::sleep(MOMENT);
            interest.off();
            there.write_all(b"x").unwrap();
            std::thread::sleep(MOMENT);
            assert!(!waiter.is_finished());
            interest.on(None, FIRST).unwrap();
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn the_end_of_the_stream_wakes_it() {
        let (here, there) = pair();
        let (mut readiness, mut interest) = watch(here.clone()).unwrap();
        drop(there);
        interest.on(None, FIRST).unwrap();
        assert!(comes_early(&mut readiness, LONG));
        interest.off();
        here.shutdown(std::net::Shutdown::Both).unwrap();
        interest.on(None, FIRST).unwrap();
        assert!(comes_early(&mut readiness, LONG));
    }

    #[test]
    fn arrivals_come_where_they_are_directed_with_the_last_number_and_a_waker_brings_none() {
        let (here, mut there) = pair();
        let (mut home, mut interest) = watch(here.clone()).unwrap();
        let (mut place, target) = Readiness::new().unwrap();
        let waker = place.waker().unwrap();
        interest.on(None, Arrival(1)).unwrap();
        interest.on(Some(&target), Arrival(2)).unwrap();
        waker.wake_by_ref();
        assert_eq!(place.wait(Some(LONG)).unwrap(), None);
        there.write_all(b"x").unwrap();
        assert_eq!(place.wait(Some(LONG)).unwrap(), Some(Arrival(2)));
        assert!(!comes_early(&mut home, MOMENT));
        interest.on(None, Arrival(3)).unwrap();
        assert_eq!(home.wait(Some(LONG)).unwrap(), Some(Arrival(3)));
        assert!(!comes_early(&mut place, MOMENT));
        // Who is woken for both does not miss the arrival.
        interest.on(Some(&target), Arrival(4)).unwrap();
        waker.wake();
        assert_eq!(place.wait(Some(LONG)).unwrap(), Some(Arrival(4)));
        drop(interest);
        here.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(!comes_early(&mut home, MOMENT) && !comes_early(&mut place, MOMENT));
    }
}
