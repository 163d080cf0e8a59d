//! One request as calls of the package, and the package's answers in this crate's types.

use ::zookeeper::{
    Acl as ZkAcl, CreateMode as ZkMode, Permission, Stat as ZkStat, Watcher, ZkError, ZkResult, ZooKeeper,
};

use crate::{
    proto::{
        request::Request,
        response::Response,
        types::{Acl, CreateMode, ErrorCode, Stat, perms},
    },
    session::api::SessionError,
};

/// Says of a request that the package cannot send it. No server says so.
const CANNOT_BE_SENT: ZkError = ZkError::APIError;

/// Carries out a request, except for `sync`. Blocks as long as the package does. `owner`: the session that owns the ephemeral
/// znode which the request has made.
pub(super) fn execute(
    handle: &ZooKeeper,
    request: &Request,
    on_event: Option<impl Watcher + 'static>,
    owner: &mut i64,
) -> ZkResult<Response> {
    match request {
        Request::Create { path, data, acl, mode } => {
            let zk_mode = match *mode {
                // With its own mode for containers the package makes a plain znode too, and does not say so.
                CreateMode::Persistent | CreateMode::Container => ZkMode::Persistent,
                CreateMode::Ephemeral => ZkMode::Ephemeral,
                CreateMode::PersistentSequential => ZkMode::PersistentSequential,
                CreateMode::EphemeralSequential => ZkMode::EphemeralSequential,
                _ => return Err(CANNOT_BE_SENT),
            };
            let path = handle.create(path, data.to_vec(), acl.iter().map(zk_acl).collect(), zk_mode)?;
            if !mode.is_ephemeral() {
                // The package does not hand out the zxid of a reply, and a persistent znode may have been replaced meanwhile.
                return Ok(Response::Created { path, czxid: 0 });
            }
            // Created, but nothing is known about it: that is an unknown outcome.
            let stat = stat(handle, &path).map_err(|_| ZkError::ConnectionLoss)?;
            *owner = stat.ephemeral_owner;
            Ok(Response::Created { path, czxid: stat.czxid })
        }
        Request::Delete { path, version } => handle.delete(path, any(*version)).map(|()| Response::Done),
        Request::Exists { path, .. } => {
            let found = match on_event {
                Some(on_event) => handle.exists_w(path, on_event)?,
                None => handle.exists(path, false)?,
            };
            found.map(|stat| Response::Stat(stat_of(&stat))).ok_or(ZkError::NoNode)
        }
        Request::GetData { path, .. } => {
            let (data, stat) = match on_event {
                Some(on_event) => handle.get_data_w(path, on_event)?,
                None => handle.get_data(path, false)?,
            };
            Ok(Response::Data { data, stat: stat_of(&stat) })
        }
        Request::SetData { path, data, version } => {
            handle.set_data(path, data.clone(), any(*version)).map(|stat| Response::Stat(stat_of(&stat)))
        }
        Request::GetAcl { path } => {
            let (acl, stat) = handle.get_acl(path)?;
            Ok(Response::Acl { acl: acl.iter().map(acl_of).collect(), stat: stat_of(&stat) })
        }
        Request::SetAcl { path, acl, version } => {
            let acl = acl.iter().map(zk_acl).collect();
            handle.set_acl(path, acl, any(*version)).map(|stat| Response::Stat(stat_of(&stat)))
        }
        Request::GetChildren { path, with_stat, .. } => {
            let names = match on_event {
                Some(on_event) => handle.get_children_w(path, on_event)?,
                None => handle.get_children(path, false)?,
            };
            let stat = if *with_stat { Some(stat(handle, path)?) } else { None };
            Ok(Response::Children { names, stat })
        }
        _ => Err(CANNOT_BE_SENT),
    }
}

fn stat(handle: &ZooKeeper, path: &str) -> ZkResult<Stat> {
    handle.exists(path, false)?.map(|stat| stat_of(&stat)).ok_or(ZkError::NoNode)
}

fn any(version: i32) -> Option<i32> {
    (version != -1).then_some(version)
}

pub(super) fn session_error(error: ZkError) -> SessionError {
    match error {
        ZkError::ConnectionLoss => SessionError::ConnectionLoss(None),
        CANNOT_BE_SENT => SessionError::Server(ErrorCode::Unimplemented),
        other => SessionError::Server(ErrorCode::from(other as i32)),
    }
}

pub(super) fn stat_of(stat: &ZkStat) -> Stat {
    Stat {
        czxid: stat.czxid,
        mzxid: stat.mzxid,
        ctime: stat.ctime,
        mtime: stat.mtime,
        version: stat.version,
        cversion: stat.cversion,
        aversion: stat.aversion,
        ephemeral_owner: stat.ephemeral_owner,
        data_length: stat.data_length,
        num_children: stat.num_children,
        pzxid: stat.pzxid,
    }
}

const PERMISSIONS: [(i32, Permission); 5] = [
    (perms::READ, Permission::READ),
    (perms::WRITE, Permission::WRITE),
    (perms::CREATE, Permission::CREATE),
    (perms::DELETE, Permission::DELETE),
    (perms::ADMIN, Permission::ADMIN),
];

fn zk_acl(acl: &Acl) -> ZkAcl {
    let granted = PERMISSIONS.iter().filter(|(bit, _)| acl.perms & bit != 0);
    let permissions = granted.fold(Permission::NONE, |all, (_, permission)| all | *permission);
    ZkAcl::new(permissions, &acl.scheme, &acl.id)
}

fn acl_of(acl: &ZkAcl) -> Acl {
    let granted = PERMISSIONS.iter().filter(|(_, permission)| acl.perms.can(*permission));
    Acl { perms: granted.fold(0, |all, (bit, _)| all | bit), scheme: acl.scheme.clone(), id: acl.id.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_survive_the_way_there_and_back() {
        for perms in 0..=perms::ALL {
            let acl = Acl { perms, scheme: "digest".into(), id: "a:b".into() };
            assert_eq!(acl_of(&zk_acl(&acl)), acl);
        }
    }

    #[test]
    fn errors_keep_their_codes() {
        let code = |error| match session_error(error) {
            SessionError::Server(code) => Some(code),
            _ => None,
        };
        assert_eq!(code(ZkError::NoNode), Some(ErrorCode::NoNode));
        assert_eq!(code(ZkError::NoAuth), Some(ErrorCode::NoAuth));
        assert_eq!(code(ZkError::SessionExpired), Some(ErrorCode::SessionExpired));
        assert_eq!(code(CANNOT_BE_SENT), Some(ErrorCode::Unimplemented));
        assert!(matches!(session_error(ZkError::ConnectionLoss), SessionError::ConnectionLoss(None)));
    }
}
