//! Bytes that processes share.

use std::{fmt, sync::Arc};

use crate::{
    error::Result,
    framework::{
        client::core::{CuratorFramework, ListenerId},
        events::connection_state::ConnectionState,
    },
    locks::shared::{
        versioned::VersionedValue,
        znode::{Kind, News, ValueZnode},
    },
};

/// A value that processes share and can watch: the data of a persistent znode, as they lie there. Java: `SharedValue`.
///
/// Clones are handles of the same value. Reading it costs nothing: the client keeps the last known value, and a watch keeps
/// that up to date. For a number there is [`SharedCount`](crate::SharedCount).
///
/// # When the connection goes
/// While the connection is suspended, or the session lost, the value may be old. After a reconnect, and in a new session,
/// the client reads it again and tells the listeners, also if it is the same.
///
/// # When it may not be read
/// A read that the server refuses, for want of the READ right, and a value larger than the client's
/// [frame limit](crate::Builder::max_frame_size) leave the last known value. The client's [unhandled-error
/// listeners](crate::CuratorFramework::add_unhandled_error_listener) hear of that once, and the client tries again each second.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::SharedValue;
///
/// let motd = SharedValue::new(&client, "/motd", "hello")?;
/// let (tell, told) = crossbeam_channel::unbounded();
/// let listener = motd.add_listener(move |value: &[u8]| tell.send(value.to_vec()).unwrap_or_default());
/// motd.start()?;
/// assert_eq!((motd.value(), motd.versioned_value().version()), (b"hello".to_vec(), 0));
///
/// let seen = motd.versioned_value();
/// motd.set_value("good morning")?;
/// assert!(!motd.try_set_value(&seen, "good evening")?); // there is another one by now
/// assert!(motd.try_set_value(&motd.versioned_value(), "good evening")?);
/// while told.recv()? != b"good evening" {}
/// motd.remove_listener(listener);
/// motd.close();
/// # Ok(()) });
/// ```
#[derive(Clone)]
pub struct SharedValue {
    pub(super) znode: Arc<ValueZnode>,
}

impl SharedValue {
    /// A value in the znode `path`. If there is none, the start makes it with the value `seed`. Does no I/O.
    ///
    /// # Errors
    /// [`Error::InvalidPath`](crate::Error::InvalidPath).
    pub fn new(client: &CuratorFramework, path: &str, seed: impl Into<Vec<u8>>) -> Result<SharedValue> {
        SharedValue::of_kind(client, path, seed.into(), Kind { what: "the shared value", broken_rule: |_| None })
    }

    pub(super) fn of_kind(client: &CuratorFramework, path: &str, seed: Vec<u8>, kind: Kind) -> Result<SharedValue> {
        Ok(SharedValue { znode: ValueZnode::new(client, path, seed, kind)? })
    }

    /// Reads the value, makes the znode with the seed if it is missing, and watches it from here on. Blocks for one
    /// round trip, or as long as the retry policy says.
    ///
    /// # Errors
    /// [`Error::AlreadyStarted`](crate::Error::AlreadyStarted); [`Error::NotInUse`](crate::Error::NotInUse) if it is closed
    /// meanwhile; and the errors of [every operation on a znode](crate::operations#errors).
    pub fn start(&self) -> Result<()> {
        self.znode.start()
    }

    /// The last known value; the seed before the start. Java: `getValue`.
    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        self.znode.known(|known| known.value().clone())
    }

    /// The last known value, with its version and the zxid of its write. Java: `getVersionedValue`.
    #[must_use]
    pub fn versioned_value(&self) -> VersionedValue<Vec<u8>> {
        self.znode.known(Clone::clone)
    }

    /// Writes the value, whatever it is now. One round trip.
    ///
    /// # Errors
    /// [`Error::Server`](crate::Error::Server) with `NoNode` if somebody deleted the znode, or `NoAuth`; and the errors of
    /// [every operation on a znode](crate::operations#errors).
    pub fn set_value(&self, value: impl Into<Vec<u8>>) -> Result<()> {
        self.znode.set("set_value", &value.into())
    }

    /// Writes the value unless somebody wrote one since `previous`: then `false`, and the known value is read again.
    /// Java: `trySetValue`.
    ///
    /// If the reply is lost and the value has changed, the call fails with
    /// [`Error::ConnectionLoss`](crate::Error::ConnectionLoss): it never guesses whose write that was. (Curator says
    /// `false` then, even if the value was written.) What is compared is the version, as the server does: a value of a znode that
    /// was deleted and made anew, with the same version again, is overwritten as long as the client has not heard of that.
    ///
    /// # Errors
    /// As [`SharedValue::set_value`], and [`Error::NotInUse`](crate::Error::NotInUse) before a start, when nothing is known.
    pub fn try_set_value(&self, previous: &VersionedValue<Vec<u8>>, value: impl Into<Vec<u8>>) -> Result<bool> {
        self.znode.try_set("try_set_value", previous, &value.into())
    }

    /// Calls the listener whenever the value changes, and after each connect, the first one included, even if it has not
    /// changed, as Curator does. A change that another one follows quickly may be skipped. The start on a client that is connected
    /// calls no listener. The calls come in the order of the changes, on the client's dispatch thread and under no lock. Java:
    /// `getListenable().addListener`.
    ///
    /// While the connection is suspended or the session lost, no listener is told of a value.
    pub fn add_listener(&self, listener: impl SharedValueListener) -> ListenerId {
        self.add_listener_with_executor(listener, |task| task())
    }

    /// As [`add_listener`](SharedValue::add_listener), but `executor` runs the listener. It is called on the dispatch
    /// thread, with a task that it may run there or hand to a thread; with several threads, calls may overtake each other.
    pub fn add_listener_with_executor(
        &self,
        listener: impl SharedValueListener,
        executor: impl Fn(Box<dyn FnOnce() + Send>) + Send + Sync + 'static,
    ) -> ListenerId {
        let tell = move |znode: &Arc<ValueZnode>, news| match news {
            News::Value(value) => listener.value_has_changed(&SharedValue { znode: znode.clone() }, &value),
            News::Connection(state) => listener.state_changed(&znode.client, state),
        };
        self.znode.listen(tell, executor)
    }

    /// Removes a listener. A call that is under way may still reach it.
    pub fn remove_listener(&self, id: ListenerId) {
        self.znode.remove_listener(id);
    }

    /// Stops watching; the last known value stays readable and becomes old. Dropping the last handle stops it, too.
    pub fn close(&self) {
        self.znode.close();
    }
}

impl fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedValue").field("path", &self.znode.path).finish_non_exhaustive()
    }
}

/// A value that can be read, such as a [`SharedValue`], for code that need not know where it comes from. Java:
/// `SharedValueReader`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{SharedValue, SharedValueReader};
///
/// fn greeting(motd: &dyn SharedValueReader) -> String {
///     String::from_utf8_lossy(&motd.value()).into_owned()
/// }
///
/// let motd = SharedValue::new(&client, "/motd", "hello")?;
/// motd.start()?;
/// assert_eq!(greeting(&motd), "hello");
/// # Ok(()) });
/// ```
pub trait SharedValueReader: Send + Sync {
    /// The last known value. Must not block.
    fn value(&self) -> Vec<u8>;

    /// The last known value, with its version and the zxid of its write. By default both are -1, as of a value that no
    /// server has.
    fn versioned_value(&self) -> VersionedValue<Vec<u8>> {
        VersionedValue::unread(self.value())
    }
}

impl SharedValueReader for SharedValue {
    fn value(&self) -> Vec<u8> {
        SharedValue::value(self)
    }

    fn versioned_value(&self) -> VersionedValue<Vec<u8>> {
        SharedValue::versioned_value(self)
    }
}

/// A listener that is told when a [`SharedValue`](crate::SharedValue) changes. Java: `SharedValueListener`.
///
/// Every `Fn(&[u8]) + Send + Sync + 'static` is one. In a closure the type has to be written: `|bytes: &[u8]| ..`.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{ConnectionState, CuratorFramework, SharedValue, SharedValueListener, SharedValueReader};
///
/// struct Configuration(crossbeam_channel::Sender<i32>);
///
/// impl SharedValueListener for Configuration {
///     fn value_has_changed(&self, shared: &dyn SharedValueReader, _new_value: &[u8]) {
///         drop(self.0.send(shared.versioned_value().version()));
///     }
///     fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) {
///         if !state.is_connected() { println!("what is known may be old") }
///     }
/// }
///
/// let (tell, told) = crossbeam_channel::unbounded();
/// let configuration = SharedValue::new(&client, "/configuration", "a=1")?;
/// configuration.add_listener_with_executor(Configuration(tell), |task| drop(std::thread::spawn(task)));
/// configuration.start()?;
/// configuration.set_value("a=2")?;
/// while told.recv()? != 1 {} // after a connect it hears of the first version, too
/// # Ok(()) });
/// ```
pub trait SharedValueListener: Send + Sync + 'static {
    /// The value has changed to `new_value`, or the client has connected again. `shared` may know a later value by now.
    fn value_has_changed(&self, shared: &dyn SharedValueReader, new_value: &[u8]);

    /// The client's connection state has changed, between start and close. Told before the value that is read after a
    /// reconnect. Does nothing by default.
    fn state_changed(&self, client: &CuratorFramework, state: ConnectionState) {
        let _ = (client, state);
    }
}

impl<F: Fn(&[u8]) + Send + Sync + 'static> SharedValueListener for F {
    fn value_has_changed(&self, _: &dyn SharedValueReader, new_value: &[u8]) {
        self(new_value);
    }
}
