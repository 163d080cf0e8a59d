//! The thread of a leader: it queues, leads, gives up, and queues again.

use std::time::Duration;

use crate::{
    base::panics::caught,
    error::{Error, Result},
    framework::client::core::CuratorFramework,
    session::wait::{cancel::CancelToken, deadline::WaitBound},
};

/// How long to wait before the next attempt after the connection went, and after the servers refused one.
const AFTER_LOSS: Duration = Duration::from_millis(100);
const AFTER_REFUSAL: Duration = Duration::from_secs(1);

/// Runs a campaign to its end: `lead` queues, leads and gives the lock back, once; `false`: it was over before the candidate
/// led. `goes_on` says whether to queue again. `left` is cancelled when the campaign is given up. No caller waits for this
/// thread.
pub(super) fn run(left: &CancelToken, lead: impl Fn() -> Result<bool>, mut goes_on: impl FnMut(&Result<bool>) -> bool) {
    loop {
        // The retry policy and the ACL provider are the caller's code.
        let has_led = caught("a candidate", &lead).unwrap_or_else(|| Err(panicked()));
        if !goes_on(&has_led) {
            return;
        }
        let pause = match &has_led {
            Ok(true) => Duration::ZERO,
            Err(error) if !error.is_retryable() => AFTER_REFUSAL,
            Ok(false) | Err(_) => AFTER_LOSS,
        };
        // Nothing is ever sent: the channel ends when the campaign is given up.
        let _ = left.signal().recv_timeout(pause);
    }
}

/// Waits for a connection as long as it takes: the retry policy is for the requests. `false`: the campaign was given up.
pub(super) fn await_connection(client: &CuratorFramework, left: &CancelToken) -> Result<bool> {
    let forever = WaitBound { deadline: None, cancel: Some(left) };
    Ok(client.core.connected_session(None, forever)?.is_ok())
}

fn panicked() -> Error {
    let rule = "it names an access control list for each path, and the retry policy answers; neither may panic".into();
    Error::InvalidArgument { name: "acl_provider", value: "a panic".into(), rule }
}
