//! Who leaves a queue tells a listener first, and waits for that only so long.

use curator_locks::{CuratorFramework, Error, Result};

use crate::support::eventually;

/// What a call gave that leaves with this znode. Where the machine let it not tell its listener in time, the background
/// gives the znode back: that is waited for then.
#[track_caller]
pub(crate) fn left(client: &CuratorFramework, node: Option<String>, result: Result<()>) -> Result<()> {
    let (Err(Error::Timeout { .. }), Some(node)) = (&result, node) else { return result };
    eventually("it is left in the background", || {
        client.check_exists().for_path(&node).is_ok_and(|stat| stat.is_none())
    });
    Ok(())
}
