//! Decides what to ask a server until a znode is known to be gone: (state, replies) -> next requests, with no session,
//! thread or clock in it.

use crate::{
    base::paths::ServerPath,
    error::Meaning,
    proto::{
        request::Request,
        response::Response,
        types::{Acl, CreateMode, ErrorCode},
    },
    session::api::{Reply, SessionError},
};

/// One removal and how far it has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Removal {
    /// These znodes, whose names no other client uses.
    Nodes(Vec<ServerPath>),
    /// The child with this prefix: a protected create whose outcome is unknown.
    ///
    /// `too_large`: the list of the directory's children is above this frame limit, and would end the connection of all
    /// locks of the client each time. The session's own znodes are listed instead.
    Protected { parent: ServerPath, prefix: String, is_ephemeral: bool, too_large: Option<usize> },
    /// A container that was made for a child which never came. The server removes containers that had a child once.
    NeverUsed(ServerPath),
}

/// The progress of a removal after some replies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Progress {
    /// The znode is known to be gone.
    Done,
    /// The next requests may go out at once.
    More,
    /// The outcome is unknown, or the server refuses for now: the next requests go out after a pause.
    Again,
    /// Nothing more can be tried, for this reason.
    GaveUp(String),
}

impl Removal {
    /// The next requests, to be sent in one write.
    pub(crate) fn requests(&self) -> Vec<Request> {
        let sync = |path: &ServerPath| Request::Sync { path: path.as_str().to_owned() };
        match self {
            Removal::Nodes(paths) => {
                paths.iter().map(|path| Request::Delete { path: path.as_str().to_owned(), version: -1 }).collect()
            }
            // Without the sync a server could answer that has not yet seen the create.
            Removal::Protected { parent, too_large: None, .. } => {
                let path = parent.as_str().to_owned();
                vec![sync(parent), Request::GetChildren { path, watch: false, with_stat: false }]
            }
            Removal::Protected { parent, prefix, .. } => {
                vec![sync(parent), Request::GetEphemerals { prefix: parent.join(prefix).into_string() }]
            }
            Removal::NeverUsed(path) => vec![use_once(path)],
        }
    }

    /// Takes the replies to [`requests`](Self::requests), in their order. A list of children is sorted: thousands of searches
    /// may share a list of thousands.
    pub(crate) fn take(&mut self, replies: &[Reply]) -> Progress {
        match self {
            Removal::Nodes(paths) => {
                let mut replies = replies.iter();
                paths.retain(|_| !replies.next().is_some_and(is_gone));
                if paths.is_empty() { Progress::Done } else { Progress::Again }
            }
            Removal::Protected { parent, prefix, is_ephemeral, too_large } => {
                let [synced, reply] = replies else { return Progress::Again };
                if !is_synced(synced) {
                    return Progress::Again;
                }
                let found = match (reply, too_large.as_ref()) {
                    (Ok(response), _) => found_in(response, parent, prefix),
                    (Err(SessionError::FrameTooLarge { limit, .. }), None) if *is_ephemeral => {
                        *too_large = Some(*limit);
                        return Progress::More;
                    }
                    (Err(SessionError::FrameTooLarge { limit, .. }), _)
                    | (Err(SessionError::Server(ErrorCode::Unimplemented)), Some(limit)) => {
                        return Progress::GaveUp(format!(
                            "cannot look for {prefix} in {parent}: the list of its children is above the limit of {limit} \
                             bytes; raise max_frame_size(), or delete that znode by hand"
                        ));
                    }
                    // No directory, no children.
                    (reply, _) if is_gone(reply) => return Progress::Done,
                    _ => return Progress::Again,
                };
                if found.is_empty() {
                    return Progress::Done;
                }
                *self = Removal::Nodes(found);
                Progress::More
            }
            // An empty container blocks nobody, so one that the server refuses to touch stays.
            Removal::NeverUsed(_) if replies.iter().all(is_answered) => Progress::Done,
            Removal::NeverUsed(_) => Progress::Again,
        }
    }
}

/// The znodes whose names begin with the prefix, in either kind of list.
fn found_in(response: &Response, parent: &ServerPath, prefix: &str) -> Vec<ServerPath> {
    match response {
        Response::Children { names, .. } => {
            let from = names.partition_point(|name| name.as_str() < prefix);
            let own = names.iter().skip(from).take_while(|name| name.starts_with(prefix));
            own.map(|name| parent.join(name)).collect()
        }
        Response::Ephemerals(paths) => {
            let start = parent.join(prefix);
            paths.iter().filter(|path| path.starts_with(start.as_str())).map(ServerPath::from_server).collect()
        }
        _ => Vec::new(),
    }
}

/// Creates a child and deletes it at once: the server removes only containers that had one.
fn use_once(path: &ServerPath) -> Request {
    let child = path.join("_unused").into_string();
    let create =
        Request::Create { path: child.clone(), data: Vec::new(), acl: Acl::open_unsafe(), mode: CreateMode::Ephemeral };
    Request::Multi(vec![create, Request::Delete { path: child, version: -1 }])
}

fn is_gone(reply: &Reply) -> bool {
    matches!(reply, Ok(_) | Err(SessionError::Server(ErrorCode::NoNode)))
}

/// A session that cannot sync asks the server that has carried out its own requests.
fn is_synced(reply: &Reply) -> bool {
    matches!(reply, Ok(_) | Err(SessionError::Server(ErrorCode::Unimplemented)))
}

/// Whether the same request would get the same answer.
fn is_answered(reply: &Reply) -> bool {
    let is_final = |code: ErrorCode| code.meaning() == Meaning::Final;
    match reply {
        Ok(Response::Multi(results)) => {
            results.iter().all(|result| !matches!(result, Err(Some(code)) if !is_final(*code)))
        }
        Ok(_) => true,
        Err(SessionError::Server(code)) => is_final(*code),
        Err(SessionError::FrameTooLarge { .. }) => true,
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests;
