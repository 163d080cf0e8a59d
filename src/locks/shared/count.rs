//! A number that processes share.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use crate::{
    error::Result,
    framework::{
        client::core::{CuratorFramework, ListenerId},
        events::connection_state::ConnectionState,
    },
    locks::shared::{
        value::SharedValue,
        versioned::VersionedValue,
        znode::{Kind, News, ValueZnode},
    },
};

/// A number that processes share and can watch. Java: `SharedCount`.
///
/// It is a [`SharedValue`] of four bytes, the most significant first, as in Curator. Clones are handles of the same count.
///
/// While the connection is suspended the value may be old. After a reconnect, and in a new session, the client reads it
/// again. Reading it here costs nothing: the client keeps the last known value, and a watch keeps that up to date. A read that is
/// refused, or data of another length, leaves the last known value ([more](crate::SharedValue#when-it-may-not-be-read)).
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::SharedCount;
/// let count = SharedCount::new(&client, "/limit", 3)?;
/// let (tell, told) = crossbeam_channel::unbounded();
/// let listener = count.add_listener(move |value| tell.send(value).unwrap_or_default());
/// count.start()?;
/// assert!(count.try_set_count(count.versioned_value(), 4)?);
/// while told.recv()? != 4 {} // after a connect it hears the old value, too
/// count.remove_listener(listener);
/// count.close();
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct SharedCount {
    pub(super) value: SharedValue,
}

impl SharedCount {
    /// A count in the znode `path`. If there is none, the start makes it with the value `seed`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`](crate::Error::InvalidPath).
    pub fn new(client: &CuratorFramework, path: &str, seed: i32) -> Result<SharedCount> {
        let broken_rule = |bytes: &[u8]| {
            let rule = || format!("a shared count has 4 bytes, this znode has {}", bytes.len());
            (bytes.len() != 4).then(rule)
        };
        let kind = Kind { what: "the shared count", broken_rule };
        Ok(SharedCount { value: SharedValue::of_kind(client, path, seed.to_be_bytes().into(), kind)? })
    }

    /// Reads the value, makes the znode with the seed if it is missing, and watches it from here on. Blocks for one
    /// round trip, or as long as the retry policy says.
    ///
    /// # Errors
    /// As [`SharedValue::start`], and [`Error::InvalidPath`](crate::Error::InvalidPath) if the znode does not hold four
    /// bytes.
    pub fn start(&self) -> Result<()> {
        self.value.start()
    }

    /// The last known value; the seed before the start. Java: `getCount`.
    #[must_use]
    pub fn count(&self) -> i32 {
        self.value.znode.known(|known| number(known.value()))
    }

    /// The last known value, with its version and the zxid of its write. Java: `getVersionedValue`.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue<i32> {
        self.value.znode.known(|known| VersionedValue {
            zxid: known.zxid,
            version: known.version,
            value: number(&known.value),
        })
    }

    /// Writes the value, whatever it is now. One round trip.
    ///
    /// # Errors
    /// As [`SharedValue::set_value`].
    pub fn set_count(&self, count: i32) -> Result<()> {
        self.value.znode.set("set_count", &count.to_be_bytes())
    }

    /// Writes the value unless somebody wrote one since `previous`: then `false`, and the known value is read again.
    /// Java: `trySetCount`.
    ///
    /// If the reply is lost and the value has changed, the call fails with
    /// [`Error::ConnectionLoss`](crate::Error::ConnectionLoss): it never guesses whose write that was, or two that add one
    /// could count one step. (Curator says `false` then, even if the value was written.)
    ///
    /// # Errors
    /// As [`SharedValue::try_set_value`].
    pub fn try_set_count(&self, previous: VersionedValue<i32>, count: i32) -> Result<bool> {
        let VersionedValue { zxid, version, value } = previous;
        let previous = VersionedValue { zxid, version, value: value.to_be_bytes().to_vec() };
        self.value.znode.try_set("try_set_count", &previous, &count.to_be_bytes())
    }

    /// Calls the listener with the value whenever it changes, as [`SharedValue::add_listener`] does. Java: `addListener`.
    ///
    /// While the connection is suspended or the session lost, no listener is told of a value; after the reconnect it is told
    /// the value in any case.
    pub fn add_listener(&self, listener: impl SharedCountListener) -> ListenerId {
        self.add_listener_with_executor(listener, |task| task())
    }

    /// As [`add_listener`](SharedCount::add_listener), but `executor` runs the listener, as
    /// [`SharedValue::add_listener_with_executor`] does.
    pub fn add_listener_with_executor(
        &self,
        listener: impl SharedCountListener,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
    ) -> ListenerId {
        let tell = move |znode: &Arc<ValueZnode>, news| match news {
            News::Value(value) => {
                let count = SharedCount { value: SharedValue { znode: znode.clone() } };
                listener.count_has_changed(&count, number(&value));
            }
            News::Connection(state) => listener.state_changed(&znode.client, state),
        };
        self.value.znode.listen(tell, executor)
    }

    /// Removes a listener. A call that is under way may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.value.remove_listener(id);
    }

    /// Stops watching; the last known value stays readable and becomes old. Dropping the last handle stops it, too.
    pub fn close(&self) {
        self.value.close();
    }
}

/// The number that the bytes are. Only four bytes get in.
fn number(bytes: &[u8]) -> i32 {
    bytes.try_into().map_or(0, i32::from_be_bytes)
}

impl fmt::Debug for SharedCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCount")
            .field("path", &self.value.znode.path)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// A number that can be read and watched, such as a [`SharedCount`], or a limit of leases of your own. Java:
/// `SharedCountReader`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use std::sync::{Arc, Mutex, Weak, atomic::{AtomicI32, Ordering}};
/// use curator_locks::{InterProcessSemaphoreV2, SharedCountReader};
///
/// /// As many downloads as this process is configured for.
/// #[derive(Default)]
/// struct Configured(AtomicI32, Mutex<Vec<Weak<dyn Fn() + Send + Sync>>>);
///
/// impl Configured {
///     fn set(&self, count: i32) {
///         self.0.store(count, Ordering::SeqCst);
///         let waiting: Vec<_> = self.1.lock().unwrap().iter().filter_map(Weak::upgrade).collect();
///         waiting.iter().for_each(|wake| wake());
///     }
/// }
///
/// impl SharedCountReader for Configured {
///     fn count(&self) -> i32 {
///         self.0.load(Ordering::SeqCst)
///     }
///     fn wake_on_change(&self, wake: Weak<dyn Fn() + Send + Sync>) {
///         let mut wakes = self.1.lock().unwrap();
///         wakes.retain(|wake| wake.strong_count() > 0); // waits that have ended
///         wakes.push(wake);
///     }
/// }
///
/// let limit = Arc::new(Configured::default());
/// let semaphore = InterProcessSemaphoreV2::with_shared_count(&client, "/downloads", &limit)?;
/// let raised = limit.clone();
/// let other = std::thread::spawn(move || raised.set(1));
/// semaphore.acquire()?.close()?; // waits until there is a lease
/// # other.join().unwrap();
/// # Ok(()) });
/// ```
pub trait SharedCountReader: Send + Sync + 'static {
    /// The last known value. Must not block; asked for by threads that wait, whenever they look.
    fn count(&self) -> i32;

    /// The last known value, with its version and the zxid of its write. By default both are -1, as of a value that no
    /// server has.
    fn versioned_value(&self) -> VersionedValue<i32> {
        VersionedValue::unread(self.count())
    }

    /// Calls `wake` after every change, on any thread, as long as its owner keeps it: `wake` does not block. A change that
    /// is not told makes waiters wait until they look again by themselves
    /// ([`Builder::lock_recheck_interval`](crate::Builder::lock_recheck_interval)). In the place of Java's `addListener`.
    fn wake_on_change(&self, wake: Weak<dyn Fn() + Send + Sync>);
}

impl SharedCountReader for SharedCount {
    fn count(&self) -> i32 {
        SharedCount::count(self)
    }

    fn versioned_value(&self) -> VersionedValue<i32> {
        SharedCount::versioned_value(self)
    }

    fn wake_on_change(&self, wake: Weak<dyn Fn() + Send + Sync>) {
        self.value.znode.wake_on_change(wake);
    }
}

impl<T: SharedCountReader + ?Sized> SharedCountReader for Arc<T> {
    fn count(&self) -> i32 {
        T::count(self)
    }

    fn versioned_value(&self) -> VersionedValue<i32> {
        T::versioned_value(self)
    }

    fn wake_on_change(&self, wake: Weak<dyn Fn() + Send + Sync>) {
        T::wake_on_change(self, wake);
    }
}

/// A listener that is told when a [`SharedCount`](crate::SharedCount) changes. Java: `SharedCountListener`.
///
/// Every `Fn(i32) + Send + Sync + 'static` is one.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{ConnectionState, CuratorFramework, SharedCount, SharedCountListener, SharedCountReader};
///
/// struct Limit(crossbeam_channel::Sender<(i32, i32)>);
///
/// impl SharedCountListener for Limit {
///     fn count_has_changed(&self, count: &dyn SharedCountReader, new_count: i32) {
///         drop(self.0.send((new_count, count.versioned_value().version())));
///     }
///     fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) {
///         if !state.is_connected() { println!("what is known may be old") }
///     }
/// }
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let count = SharedCount::new(&client, "/limit", 3)?;
/// count.add_listener(Limit(tell));
/// count.start()?;
/// count.set_count(4)?;
/// while told.recv()? != (4, 1) {} // after a connect it hears of the first version, too
/// # Ok(()) });
/// ```
pub trait SharedCountListener: Send + Sync + 'static {
    /// The count has changed to `new_count`, or the client has connected again. `count` may know a later one by now.
    fn count_has_changed(&self, count: &dyn SharedCountReader, new_count: i32);

    /// The client's connection state has changed, between start and close. Told before the value that is read after a
    /// reconnect. Does nothing by default.
    fn state_changed(&self, client: &CuratorFramework, state: ConnectionState) {
        let _ = (client, state);
    }
}

impl<F: Fn(i32) + Send + Sync + 'static> SharedCountListener for F {
    fn count_has_changed(&self, _: &dyn SharedCountReader, new_count: i32) {
        self(new_count);
    }
}
