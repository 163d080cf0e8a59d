//! A fault under way, as the test that injected it sees it.

use std::{sync::Arc, time::Duration};

use super::{
    super::error::TestingError,
    relay::Relay,
    rule::{Fault, RequestMatch, Rule},
};

/// A fault that was injected into a [`FaultProxy`](super::FaultProxy). Dropping this changes nothing.
///
/// ```
/// use std::time::Duration;
/// use curator_locks::{CuratorFrameworkFactory, RetryOneTime};
/// use curator_locks::testing::{Fault, FaultProxy, InjectedFault, RequestMatch};
///
/// # let server = curator_locks::testing::TestingServer::start()?;
/// let proxy = FaultProxy::start(server.connect_string())?;
/// let retry = RetryOneTime::new(Duration::from_millis(100));
/// let client = CuratorFrameworkFactory::new_client(proxy.connect_string(), retry)?;
/// client.start()?;
/// let held_back: InjectedFault = proxy.inject(RequestMatch::creates(), Fault::HoldReply);
/// let create = std::thread::spawn(move || client.create().for_path("/currency"));
/// held_back.wait_for_hits(1, Duration::from_secs(30))?; // the server has done it
/// assert_eq!(held_back.hits(), 1);
/// held_back.release();
/// create.join().expect("no panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct InjectedFault {
    relay: Arc<Relay>,
    rule: Arc<Rule>,
}

impl InjectedFault {
    pub(super) fn new(relay: &Arc<Relay>, requests: RequestMatch, fault: Fault) -> InjectedFault {
        let rule = Arc::new(Rule::new(requests, fault));
        relay.change(|network| network.rules.push(Arc::clone(&rule)));
        InjectedFault { relay: Arc::clone(relay), rule }
    }

    /// How often the fault was done. A fault of a reply counts when the reply has come: the server has done the
    /// request.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.rule.hits()
    }

    /// Waits until the fault was done `hits` times in all.
    ///
    /// # Errors
    /// [`TestingError::Timeout`] if it was not within `timeout`.
    pub fn wait_for_hits(&self, hits: u64, timeout: Duration) -> Result<(), TestingError> {
        if self.relay.wait_for_hits(&self.rule, hits, timeout) {
            return Ok(());
        }
        let what = format!("{:?} for the {hits}. time (so far {})", self.rule.fault, self.hits());
        Err(TestingError::Timeout { what, after: timeout })
    }

    /// Lets what is held go on, and ends the fault: no further request is claimed.
    pub fn release(&self) {
        self.relay.change(|network| {
            self.rule.release();
            network.rules.retain(|rule| !rule.is_used_up());
        });
    }
}
