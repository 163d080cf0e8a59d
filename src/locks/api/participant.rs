//! Who stands in a queue.

use std::borrow::Cow;

use crate::{
    error::Result,
    framework::{client::core::CuratorFramework, held::revocation::without_request},
    locks::{
        api::fencing::token::FencingToken,
        contender::{
            driver::sorted_contenders,
            internals::{LockInternals, children_of},
        },
    },
    proto::{request::Request, response::Response},
    session::wait::deadline::Stop,
};

/// One contender in a lock's queue, as the server knows it: whoever made it, in whatever language.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessMutex, LockInternals, Participant};
///
/// let mutex = InterProcessMutex::new(&client, "/locks/order-42")?.with_lock_data("host-17");
/// let held = mutex.lock()?;
/// let queue: Vec<Participant> = LockInternals::participants(&client, "/locks/order-42")?;
/// assert!(queue[0].is_leader());
/// assert_eq!((queue[0].id().as_ref(), queue[0].session), ("host-17", client.session_id()));
/// assert_eq!(queue[0].fencing_token, held.fencing_token());
/// held.release()?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Participant {
    /// How many contenders stand in front of it: 0 for the first, who holds a mutex.
    pub position: usize,
    /// The path of its znode.
    pub path: String,
    /// The session it belongs to; 0 if its znode is not ephemeral.
    pub session: i64,
    /// The czxid of its znode: its fencing token if it gets the lock.
    pub fencing_token: FencingToken,
    /// Since when it has been queueing or holding: milliseconds since the epoch, by the server's clock.
    pub since_millis: i64,
    /// What its znode carries, without a [request](crate::Revoker::request) to give the lock back: the lock data, or
    /// the client's default data, which is an IP address if nobody changed it.
    pub data: Vec<u8>,
}

impl Participant {
    /// What it calls itself: its data as text, with U+FFFD for what is no UTF-8. Of a leader, its id. Java:
    /// `Participant.getId`.
    #[must_use]
    pub fn id(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.data)
    }

    /// Whether it stood first. It may not know so far, or not lead any more. Java: `Participant.isLeader`.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.position == 0
    }
}

impl LockInternals {
    /// Who stands in the queue, since when, from which session: two round trips, one for the names and one for all the
    /// rest. Empty if there is no such directory; contenders who leave in between are left out.
    ///
    /// While the connection is suspended or lost it is tried again as the retry policy says.
    ///
    /// It knows neither the kind of lock nor who holds it: in a read/write lock several do, a semaphore's queue has
    /// none, and an unfair lock none at all, and who [keeps](crate::Caching) its znode between holds may be idle. [`LockQueue::inspect`](crate::LockQueue::inspect) tells that.
    ///
    /// For an operator's view, and not for decisions: what it shows may have changed by the time it arrives.
    ///
    /// ```
    /// # curator_locks::docs::example(|client| {
    /// # use curator_locks::LockInternals;
    /// for contender in LockInternals::participants(client, "/locks/order-42")? {
    ///     println!("{}: {} of session {:#x}", contender.position, contender.path, contender.session);
    /// }
    /// # Ok(()) });
    /// ```
    ///
    /// # Errors
    /// As [every operation on a znode](crate::operations#errors).
    pub fn participants(client: &CuratorFramework, base_path: &str) -> Result<Vec<Participant>> {
        let directory = client.prefix.to_server(base_path)?;
        let names = children_of(client, base_path)?;
        let nodes: Vec<_> = sorted_contenders(&names).into_iter().map(|name| directory.join(name)).collect();
        let call = client.call("participants", base_path, Stop::default());
        call.retry(|session| {
            let reads = nodes.iter().map(|node| Request::GetData { path: node.as_str().to_owned(), watch: false });
            let mut participants = Vec::with_capacity(nodes.len());
            for (node, reply) in nodes.iter().zip(call.ask_all(session, reads)) {
                match reply {
                    Ok(Response::Data { data, stat }) => participants.push(Participant {
                        position: participants.len(),
                        path: client.prefix.to_client(node.as_str()),
                        session: stat.ephemeral_owner,
                        fencing_token: FencingToken::from_value(stat.czxid),
                        since_millis: stat.ctime,
                        data: without_request(&data).to_vec(),
                    }),
                    Ok(other) => return Err(call.unexpected(&other)),
                    Err(error) if error.is_no_node() => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(participants)
        })
    }
}
