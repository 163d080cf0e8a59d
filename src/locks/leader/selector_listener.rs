//! The listener of a leader selector.

use crate::{
    error::Error,
    framework::{client::core::CuratorFramework, events::connection_state::ConnectionState},
    locks::leader::leadership::{CancelLeadership, Leadership},
};

/// The listener that a [`LeaderSelector`](crate::LeaderSelector) calls. Java: `LeaderSelectorListener`, with the rule
/// of `LeaderSelectorListenerAdapter` for connection states.
///
/// Every `Fn(&CuratorFramework, &Leadership) + Send + Sync + 'static` is one.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{
///     CancelLeadership, ConnectionState, CuratorFramework, Error, LeaderSelector, LeaderSelectorListener, Leadership,
/// };
///
/// struct Scheduler(crossbeam_channel::Sender<String>);
/// impl LeaderSelectorListener for Scheduler {
///     fn take_leadership(&self, _client: &CuratorFramework, leadership: &Leadership) {
///         let _ = self.0.send(leadership.path().to_owned());
///         let _ = leadership.cancelled().recv(); // the work, until it is time to stop
///     }
///     fn state_changed(&self, _: &CuratorFramework, state: ConnectionState) -> Result<(), CancelLeadership> {
///         if state.is_connected() { Ok(()) } else { Err(CancelLeadership) }
///     }
///     fn queueing_failed(&self, _: &CuratorFramework, error: &Error) {
///         eprintln!("cannot queue for now: {error}");
///     }
/// }
///
/// let (led, leads) = crossbeam_channel::unbounded();
/// let selector = LeaderSelector::new(&client, "/scheduler", Scheduler(led))?;
/// selector.start()?;
/// println!("leads with {}", leads.recv()?);
/// selector.close()?;
/// # Ok(()) });
/// ```
pub trait LeaderSelectorListener: Send + Sync + 'static {
    /// Leads: from the call to the return, on the selector's own thread, never twice at a time. It has to return soon
    /// after [`Leadership::is_cancelled`], and must not work on after [`Leadership::has_leadership`] has become `false`:
    /// another process may lead by then. A panic ends the term as a return does, and is logged.
    fn take_leadership(&self, client: &CuratorFramework, leadership: &Leadership);

    /// The client's connection state has changed. An error ends the current term: its
    /// [`has_leadership`](Leadership::has_leadership) is `false` from then on, and its token is cancelled. A waiter
    /// keeps its place in the queue (in Curator it loses it).
    ///
    /// By default an error in the states that the client's
    /// [policy](crate::Builder::connection_state_error_policy) names: suspended and lost. A term ends with
    /// [`Hold::valid_until`](crate::Hold::valid_until) whatever this returns. Called on the client's dispatch thread,
    /// from the start to the close.
    ///
    /// # Errors
    /// [`CancelLeadership`] to give leadership up.
    fn state_changed(
        &self,
        client: &CuratorFramework,
        state: ConnectionState,
    ) -> std::result::Result<(), CancelLeadership> {
        let is_error = client.connection_state_error_policy().is_error_state(state);
        if is_error { Err(CancelLeadership) } else { Ok(()) }
    }

    /// An attempt to queue has failed, on the selector's own thread. Another one follows, after a second or when there is
    /// a connection again, unless the error is one that no other attempt would mend: then
    /// [`LeaderSelector::requeue`](crate::LeaderSelector::requeue) may be called. By default it is logged, unless the client
    /// was closed.
    fn queueing_failed(&self, client: &CuratorFramework, error: &Error) {
        let _ = client;
        let level = if matches!(error, Error::ClientClosed) { log::Level::Debug } else { log::Level::Error };
        log::log!(level, "cannot queue for leadership: {error}");
    }
}

impl<F: Fn(&CuratorFramework, &Leadership) + Send + Sync + 'static> LeaderSelectorListener for F {
    fn take_leadership(&self, client: &CuratorFramework, leadership: &Leadership) {
        self(client, leadership);
    }
}
