//! How replies and notifications come off the wire.

use super::jute::Reader;
use crate::proto::{
    error::ProtoError,
    op,
    response::Response,
    types::{Acl, ErrorCode, EventType, Notification, Stat},
};

impl Response {
    /// Decodes the body of a successful reply to a request with this
    /// [op code](crate::unversioned::Request::op_code), which alone tells what it holds. `zxid`: that in the reply's header.
    ///
    /// # Errors
    /// The body is not that of such a reply.
    pub fn decode(op_code: i32, zxid: i64, body: &[u8]) -> Result<Response, ProtoError> {
        let mut reader = Reader::new(body);
        let response = Response::read(op_code, zxid, &mut reader)?;
        reader.finish()?;
        Ok(response)
    }

    fn read(op_code: i32, zxid: i64, reader: &mut Reader<'_>) -> Result<Response, ProtoError> {
        Ok(match op_code {
            op::CREATE => Response::Created { path: reader.string()?, czxid: zxid },
            // In a transaction this stat is wrong before ZooKeeper 3.7.2, 3.8.2 and 3.9.0.
            op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                let path = reader.string()?;
                Stat::read(reader)?;
                Response::Created { path, czxid: zxid }
            }
            op::EXISTS | op::SET_DATA | op::SET_ACL => Response::Stat(Stat::read(reader)?),
            op::GET_DATA => Response::Data { data: reader.buffer()?.to_vec(), stat: Stat::read(reader)? },
            op::GET_CHILDREN => Response::Children { names: reader.strings()?, stat: None },
            op::GET_CHILDREN2 => Response::Children { names: reader.strings()?, stat: Some(Stat::read(reader)?) },
            op::GET_ACL => Response::Acl { acl: reader.vector(12, Acl::read)?, stat: Stat::read(reader)? },
            op::SYNC => Response::Synced { path: reader.string()? },
            op::MULTI | op::MULTI_READ => Response::Multi(read_multi(zxid, reader)?),
            op::GET_EPHEMERALS => Response::Ephemerals(reader.strings()?),
            op::WHO_AM_I => Response::WhoAmI(reader.vector(8, |reader| Ok((reader.string()?, reader.string()?)))?),
            // Delete, ping, auth, setWatches, removeWatches, closeSession.
            _ => Response::Done,
        })
    }
}

impl Notification {
    /// Decodes the body of a frame with xid [`XID_NOTIFICATION`](crate::proto::header::XID_NOTIFICATION).
    ///
    /// # Errors
    /// The body is not a notification.
    pub fn decode(body: &[u8]) -> Result<Notification, ProtoError> {
        let mut reader = Reader::new(body);
        let event = EventType::from(reader.i32()?);
        let notification = Notification { event, state: reader.i32()?, path: reader.string()? };
        reader.finish()?;
        Ok(notification)
    }
}

impl Stat {
    fn read(reader: &mut Reader<'_>) -> Result<Stat, ProtoError> {
        Ok(Stat {
            czxid: reader.i64()?,
            mzxid: reader.i64()?,
            ctime: reader.i64()?,
            mtime: reader.i64()?,
            version: reader.i32()?,
            cversion: reader.i32()?,
            aversion: reader.i32()?,
            ephemeral_owner: reader.i64()?,
            data_length: reader.i32()?,
            num_children: reader.i32()?,
            pzxid: reader.i64()?,
        })
    }
}

impl Acl {
    fn read(reader: &mut Reader<'_>) -> Result<Acl, ProtoError> {
        Ok(Acl { perms: reader.i32()?, scheme: reader.string()?, id: reader.string()? })
    }
}

/// Results up to the end marker: the reply of a multi carries no count.
fn read_multi(zxid: i64, reader: &mut Reader<'_>) -> Result<Vec<Result<Response, Option<ErrorCode>>>, ProtoError> {
    let mut results = Vec::new();
    loop {
        let op_code = reader.i32()?;
        let done = reader.bool()?;
        let _err = reader.i32()?;
        if done {
            return Ok(results);
        }
        results.push(match op_code {
            // The server answers containers and TTL znodes as it answers create2.
            op::CREATE | op::CREATE2 | op::DELETE | op::CHECK | op::SET_DATA | op::GET_DATA | op::GET_CHILDREN => {
                Ok(Response::read(op_code, zxid, reader)?)
            }
            op::NONE => Err(match reader.i32()? {
                0 => None,
                code => Some(code.into()),
            }),
            value => return Err(ProtoError::Unexpected { what: "operation in the reply of a multi", value }),
        });
    }
}
