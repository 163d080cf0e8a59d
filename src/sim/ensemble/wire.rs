//! The server's side of the wire: requests read, replies written.

use super::{ConnId, acl::Id, txn::Applied};
use crate::proto::{
    codec::jute::{Reader, Writer},
    error::ProtoError,
    header::{XID_NOTIFICATION, XID_PING},
    op,
    types::{Acl, Stat},
};

pub(super) const CREATE_SESSION: i32 = -10;
pub(super) const CHECK_WATCHES: i32 = 17;
pub(super) const DELETE_CONTAINER: i32 = 20;
pub(super) const SET_WATCHES2: i32 = 105;

/// The first frame of a connection.
#[derive(Debug)]
pub(super) struct Connect {
    pub(super) last_zxid_seen: i64,
    pub(super) timeout_ms: i32,
    pub(super) session: i64,
    pub(super) password: Vec<u8>,
    /// Without the field `readOnly`, as of clients before 3.4: nor has the answer one.
    pub(super) is_old: bool,
}

/// A create of any of the four kinds.
#[derive(Debug, Clone)]
pub(super) struct NewNode {
    pub(super) op: i32,
    pub(super) path: String,
    pub(super) data: Vec<u8>,
    pub(super) acl: Vec<Acl>,
    pub(super) flags: i32,
    pub(super) ttl: i64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct SetWatches {
    pub(super) zxid: i64,
    pub(super) data: Vec<String>,
    pub(super) exist: Vec<String>,
    pub(super) child: Vec<String>,
}

/// A request as the server reads it.
#[derive(Debug, Clone)]
pub(super) enum Call {
    Create(NewNode),
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<Acl>,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
    Multi(Vec<Call>),
    MultiRead(Vec<Call>),
    CreateSession {
        timeout_ms: i32,
    },
    CloseSession,
    /// The container manager's own.
    DeleteContainer {
        path: String,
    },
    Sync {
        path: String,
    },
    Ping,
    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetChildren {
        path: String,
        watch: bool,
        with_stat: bool,
    },
    GetAcl {
        path: String,
    },
    SetWatches(SetWatches),
    CheckWatches {
        path: String,
        table: i32,
    },
    RemoveWatches {
        path: String,
        table: i32,
    },
    GetEphemerals {
        prefix: String,
    },
    WhoAmI,
    /// The body is not that of such a request.
    Malformed,
}

impl Connect {
    pub(super) fn read(frame: &[u8]) -> Result<Connect, ProtoError> {
        let mut reader = Reader::new(frame);
        let _protocol_version = reader.i32()?;
        Ok(Connect {
            last_zxid_seen: reader.i64()?,
            timeout_ms: reader.i32()?,
            session: reader.i64()?,
            password: reader.buffer()?.to_vec(),
            is_old: reader.bool().is_err(),
        })
    }
}

/// The answer to the first frame; without a session, a refusal.
pub(super) fn connected(session: Option<(i64, i32)>, password: &[u8], is_old: bool) -> Vec<u8> {
    let (id, timeout_ms) = session.unwrap_or((0, 0));
    let mut writer = Writer::frame();
    writer.i32(0);
    writer.i32(timeout_ms);
    writer.i64(id);
    writer.buffer(if session.is_some() { password } else { &[0; 16] });
    if !is_old {
        writer.bool(false);
    }
    writer.finish()
}

/// Splits a request into xid, operation and body.
pub(super) fn header(frame: &[u8]) -> Result<(i32, i32, &[u8]), ProtoError> {
    let mut reader = Reader::new(frame);
    Ok((reader.i32()?, reader.i32()?, reader.rest()))
}

/// The scheme and the credentials of an auth packet.
pub(super) fn auth(body: &[u8]) -> Result<(String, Vec<u8>), ProtoError> {
    let mut reader = Reader::new(body);
    let _type = reader.i32()?;
    Ok((reader.string()?, reader.buffer()?.to_vec()))
}

/// Whether the server knows the operation at all.
pub(super) fn is_known(op_code: i32) -> bool {
    const ONE_BY_ONE: [i32; 11] = [
        op::CREATE_TTL,
        op::CHECK,
        op::MULTI,
        op::MULTI_READ,
        op::PING,
        op::SET_WATCHES,
        op::GET_EPHEMERALS,
        SET_WATCHES2,
        op::WHO_AM_I,
        op::CLOSE_SESSION,
        CREATE_SESSION,
    ];
    ONE_BY_ONE.contains(&op_code)
        || matches!(op_code, op::CREATE..=op::SYNC | op::GET_CHILDREN2 | op::CREATE2 | CHECK_WATCHES..=DELETE_CONTAINER)
}

impl Call {
    pub(super) fn read(op_code: i32, body: &[u8]) -> Call {
        Call::fields(op_code, &mut Reader::new(body)).unwrap_or(Call::Malformed)
    }

    fn fields(op_code: i32, reader: &mut Reader<'_>) -> Result<Call, ProtoError> {
        Ok(match op_code {
            op::CREATE | op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                Call::Create(NewNode::read(op_code, reader)?)
            }
            op::DELETE => Call::Delete { path: reader.string()?, version: reader.i32()? },
            op::SET_DATA => {
                Call::SetData { path: reader.string()?, data: reader.buffer()?.to_vec(), version: reader.i32()? }
            }
            op::SET_ACL => Call::SetAcl { path: reader.string()?, acl: acl(reader)?, version: reader.i32()? },
            op::CHECK => Call::Check { path: reader.string()?, version: reader.i32()? },
            op::MULTI => Call::Multi(multi(reader)?),
            op::MULTI_READ => Call::MultiRead(multi_read(reader)?),
            op::CLOSE_SESSION => Call::CloseSession,
            op::SYNC => Call::Sync { path: reader.string()? },
            op::PING => Call::Ping,
            op::EXISTS => Call::Exists { path: reader.string()?, watch: reader.bool()? },
            op::GET_DATA => Call::GetData { path: reader.string()?, watch: reader.bool()? },
            op::GET_CHILDREN | op::GET_CHILDREN2 => Call::GetChildren {
                path: reader.string()?,
                watch: reader.bool()?,
                with_stat: op_code == op::GET_CHILDREN2,
            },
            op::GET_ACL => Call::GetAcl { path: reader.string()? },
            // Persistent watches stand behind, which no lock leaves.
            op::SET_WATCHES | SET_WATCHES2 => Call::SetWatches(SetWatches::read(reader)?),
            CHECK_WATCHES => Call::CheckWatches { path: reader.string()?, table: reader.i32()? },
            op::REMOVE_WATCHES => Call::RemoveWatches { path: reader.string()?, table: reader.i32()? },
            op::GET_EPHEMERALS => Call::GetEphemerals { prefix: reader.string()? },
            op::WHO_AM_I => Call::WhoAmI,
            _ => Call::Malformed,
        })
    }

    /// Whether the leader decides it, and all servers carry it out.
    pub(super) fn is_write(&self, op_code: i32) -> bool {
        match self {
            Call::Create(_)
            | Call::Delete { .. }
            | Call::SetData { .. }
            | Call::SetAcl { .. }
            | Call::Check { .. }
            | Call::Multi(_)
            | Call::CreateSession { .. }
            | Call::CloseSession
            | Call::DeleteContainer { .. } => true,
            Call::Malformed => matches!(
                op_code,
                op::CREATE | op::DELETE | op::SET_DATA | op::SET_ACL | op::CHECK..=op::CREATE2
                    | op::CREATE_CONTAINER..=op::CREATE_TTL
            ),
            _ => false,
        }
    }

    /// Path that the leader has to look up before a multi, to forget what a refused one has begun.
    pub(super) fn path(&self) -> &str {
        match self {
            Call::Create(NewNode { path, .. })
            | Call::Delete { path, .. }
            | Call::SetData { path, .. }
            | Call::SetAcl { path, .. }
            | Call::Check { path, .. } => path,
            _ => "",
        }
    }
}

impl NewNode {
    fn read(op_code: i32, reader: &mut Reader<'_>) -> Result<NewNode, ProtoError> {
        Ok(NewNode {
            op: op_code,
            path: reader.string()?,
            data: reader.buffer()?.to_vec(),
            acl: acl(reader)?,
            flags: reader.i32()?,
            ttl: if op_code == op::CREATE_TTL { reader.i64()? } else { -1 },
        })
    }
}

impl SetWatches {
    fn read(reader: &mut Reader<'_>) -> Result<SetWatches, ProtoError> {
        Ok(SetWatches {
            zxid: reader.i64()?,
            data: reader.strings()?,
            exist: reader.strings()?,
            child: reader.strings()?,
        })
    }
}

fn acl(reader: &mut Reader<'_>) -> Result<Vec<Acl>, ProtoError> {
    reader.vector(12, |reader| Ok(Acl { perms: reader.i32()?, scheme: reader.string()?, id: reader.string()? }))
}

/// Creates in a multi have the operation that their flags ask for, and answer without a stat unless it is special.
fn multi(reader: &mut Reader<'_>) -> Result<Vec<Call>, ProtoError> {
    let mut calls = Vec::new();
    loop {
        let (op_code, is_done, _err) = (reader.i32()?, reader.bool()?, reader.i32()?);
        if is_done {
            return Ok(calls);
        }
        let mut call = Call::fields(op_code, reader)?;
        if let Call::Create(new) = &mut call {
            new.op = match new.flags {
                4 => op::CREATE_CONTAINER,
                5 | 6 => op::CREATE_TTL,
                _ => op::CREATE,
            };
        }
        match call {
            Call::Create(_) | Call::Delete { .. } | Call::SetData { .. } | Call::Check { .. } => calls.push(call),
            _ => return Err(ProtoError::Unexpected { what: "operation in a multi", value: op_code }),
        }
    }
}

fn multi_read(reader: &mut Reader<'_>) -> Result<Vec<Call>, ProtoError> {
    let mut calls = Vec::new();
    loop {
        let (op_code, is_done, _err) = (reader.i32()?, reader.bool()?, reader.i32()?);
        if is_done {
            return Ok(calls);
        }
        match op_code {
            op::GET_DATA | op::GET_CHILDREN => calls.push(Call::fields(op_code, reader)?),
            value => return Err(ProtoError::Unexpected { what: "operation in a multi of reads", value }),
        }
    }
}

/// A reply under construction.
pub(super) struct Reply {
    writer: Writer,
}

impl Reply {
    pub(super) fn new(xid: i32, zxid: i64, err: i32) -> Reply {
        let mut writer = Writer::frame();
        writer.i32(xid);
        writer.i64(zxid);
        writer.i32(err);
        Reply { writer }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.writer.finish()
    }

    pub(super) fn string(mut self, text: &str) -> Reply {
        self.writer.string(text);
        self
    }

    pub(super) fn data(mut self, bytes: &[u8]) -> Reply {
        self.writer.buffer(bytes);
        self
    }

    pub(super) fn strings<'a>(mut self, texts: impl IntoIterator<Item = &'a String>) -> Reply {
        let texts: Vec<&String> = texts.into_iter().collect();
        self.writer.vector(&texts, |writer, text| writer.string(text));
        self
    }

    pub(super) fn acl(mut self, acl: &[Acl]) -> Reply {
        self.writer.vector(acl, |writer, entry| {
            writer.i32(entry.perms);
            writer.string(&entry.scheme);
            writer.string(&entry.id);
        });
        self
    }

    pub(super) fn users(mut self, ids: &[Id]) -> Reply {
        self.writer.vector(ids, |writer, id| {
            writer.string(&id.scheme);
            writer.string(id.user());
        });
        self
    }

    pub(super) fn stat(mut self, stat: &Stat) -> Reply {
        write_stat(&mut self.writer, stat);
        self
    }

    /// The begin of a result of several reads, and their end.
    pub(super) fn result(mut self, call: &Call) -> Reply {
        let op_code = if matches!(call, Call::GetData { .. }) { op::GET_DATA } else { op::GET_CHILDREN };
        write_result_header(&mut self.writer, op_code, false, 0);
        self
    }

    pub(super) fn failed_result(mut self, code: i32) -> Reply {
        write_result_header(&mut self.writer, op::NONE, false, code);
        self.writer.i32(code);
        self
    }

    pub(super) fn end_of_results(mut self) -> Reply {
        write_result_header(&mut self.writer, op::NONE, true, -1);
        self
    }

    /// The results of a multi.
    pub(super) fn results(mut self, calls: &[Call], results: &[Applied]) -> Reply {
        for (call, result) in calls.iter().zip(results) {
            write_result(&mut self.writer, call, result);
        }
        write_result_header(&mut self.writer, op::NONE, true, -1);
        self
    }
}

fn write_result(writer: &mut Writer, call: &Call, result: &Applied) {
    match (call, result) {
        (_, Applied::Failed(code)) => {
            write_result_header(writer, op::NONE, false, *code);
            writer.i32(*code);
        }
        (Call::Create(new), Applied::Created { path, stat }) if new.op != op::CREATE => {
            write_result_header(writer, op::CREATE2, false, 0);
            writer.string(path);
            write_stat(writer, stat);
        }
        (_, Applied::Created { path, .. }) => {
            write_result_header(writer, op::CREATE, false, 0);
            writer.string(path);
        }
        (_, Applied::Stat(stat)) => {
            write_result_header(writer, op::SET_DATA, false, 0);
            write_stat(writer, stat);
        }
        (Call::Check { .. }, _) => write_result_header(writer, op::CHECK, false, 0),
        _ => write_result_header(writer, op::DELETE, false, 0),
    }
}

fn write_result_header(writer: &mut Writer, op_code: i32, is_done: bool, err: i32) {
    writer.i32(op_code);
    writer.bool(is_done);
    writer.i32(err);
}

fn write_stat(writer: &mut Writer, stat: &Stat) {
    for value in [stat.czxid, stat.mzxid, stat.ctime, stat.mtime] {
        writer.i64(value);
    }
    for value in [stat.version, stat.cversion, stat.aversion] {
        writer.i32(value);
    }
    writer.i64(stat.ephemeral_owner);
    writer.i32(stat.data_length);
    writer.i32(stat.num_children);
    writer.i64(stat.pzxid);
}

pub(super) fn pong(zxid: i64) -> Vec<u8> {
    Reply::new(XID_PING, zxid, 0).finish()
}

/// A watch event.
pub(super) fn notification(kind: i32, path: &str) -> Vec<u8> {
    let mut reply = Reply::new(XID_NOTIFICATION, -1, 0);
    reply.writer.i32(kind);
    reply.writer.i32(3); // connected
    reply.string(path).finish()
}

/// The bytes of a session's password, which follow from its id.
pub(super) fn password(session: i64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(session.cast_unsigned() ^ 0xB3_415C);
    (0..16).map(|_| random.u8(..)).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Output {
    /// Bytes for the client.
    Send { conn: ConnId, bytes: Vec<u8> },
    /// The server ends the connection.
    Close { conn: ConnId },
}
