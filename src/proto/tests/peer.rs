//! The other side of the protocol: a server that reads requests and writes replies.

use crate::proto::{
    codec::jute::{Reader, Writer},
    op,
    request::Request,
    response::Response,
    types::{Acl, CreateMode, ErrorCode, Stat, WatchTable},
};

/// Reads a whole frame, and fails on anything left over.
pub(super) fn decode_request(frame: &[u8]) -> Request {
    let mut reader = Reader::new(frame);
    assert_eq!(usize::try_from(reader.i32().unwrap()).unwrap(), frame.len() - 4);
    let _xid = reader.i32().unwrap();
    let op_code = reader.i32().unwrap();
    let request = read_request(op_code, &mut reader);
    reader.finish().unwrap();
    request
}

fn read_request(op_code: i32, reader: &mut Reader<'_>) -> Request {
    match op_code {
        op::CREATE | op::CREATE_CONTAINER | op::CREATE_TTL => {
            let (path, data, acl, mode) = read_create(op_code, reader);
            Request::Create { path, data, acl, mode }
        }
        op::DELETE => Request::Delete { path: path(reader), version: reader.i32().unwrap() },
        op::EXISTS => Request::Exists { path: path(reader), watch: reader.bool().unwrap() },
        op::GET_DATA => Request::GetData { path: path(reader), watch: reader.bool().unwrap() },
        op::SET_DATA => Request::SetData { path: path(reader), data: data(reader), version: reader.i32().unwrap() },
        op::GET_ACL => Request::GetAcl { path: path(reader) },
        op::SET_ACL => Request::SetAcl { path: path(reader), acl: read_acl(reader), version: reader.i32().unwrap() },
        op::GET_CHILDREN | op::GET_CHILDREN2 => Request::GetChildren {
            path: path(reader),
            watch: reader.bool().unwrap(),
            with_stat: op_code == op::GET_CHILDREN2,
        },
        op::SYNC => Request::Sync { path: path(reader) },
        op::PING => Request::Ping,
        op::CHECK => Request::Check { path: path(reader), version: reader.i32().unwrap() },
        op::MULTI | op::MULTI_READ => Request::Multi(read_multi(reader)),
        op::REMOVE_WATCHES => Request::RemoveWatches { path: path(reader), table: read_table(reader) },
        op::AUTH => {
            assert_eq!(reader.i32(), Ok(0));
            Request::Auth { scheme: path(reader), auth: data(reader) }
        }
        op::SET_WATCHES => Request::SetWatches {
            relative_zxid: reader.i64().unwrap(),
            data: reader.strings().unwrap(),
            exist: reader.strings().unwrap(),
            child: reader.strings().unwrap(),
        },
        op::GET_EPHEMERALS => Request::GetEphemerals { prefix: path(reader) },
        op::WHO_AM_I => Request::WhoAmI,
        op::CLOSE_SESSION => Request::CloseSession,
        other => panic!("op code {other}"),
    }
}

fn read_multi(reader: &mut Reader<'_>) -> Vec<Request> {
    let mut ops = Vec::new();
    loop {
        let (op_code, done, err) = (reader.i32().unwrap(), reader.bool().unwrap(), reader.i32().unwrap());
        assert_eq!((err, done), (-1, op_code == op::NONE));
        ops.push(match op_code {
            op::NONE => return ops,
            _ => read_request(op_code, reader),
        });
    }
}

fn read_create(op_code: i32, reader: &mut Reader<'_>) -> (String, Vec<u8>, Vec<Acl>, CreateMode) {
    let (path, data, acl) = (path(reader), data(reader), read_acl(reader));
    let mode = match (op_code, reader.i32().unwrap()) {
        (op::CREATE, 0) => CreateMode::Persistent,
        (op::CREATE, 1) => CreateMode::Ephemeral,
        (op::CREATE, 2) => CreateMode::PersistentSequential,
        (op::CREATE, 3) => CreateMode::EphemeralSequential,
        (op::CREATE_CONTAINER, 4) => CreateMode::Container,
        (op::CREATE_TTL, 5) => CreateMode::PersistentWithTtl(reader.i64().unwrap()),
        (op::CREATE_TTL, 6) => CreateMode::PersistentSequentialWithTtl(reader.i64().unwrap()),
        other => panic!("op code and flags {other:?}"),
    };
    (path, data, acl, mode)
}

fn read_table(reader: &mut Reader<'_>) -> WatchTable {
    match reader.i32().unwrap() {
        1 => WatchTable::Children,
        2 => WatchTable::Data,
        other => panic!("watch table {other}"),
    }
}

fn read_acl(reader: &mut Reader<'_>) -> Vec<Acl> {
    let entry =
        |reader: &mut Reader<'_>| Ok(Acl { perms: reader.i32()?, scheme: reader.string()?, id: reader.string()? });
    reader.vector(12, entry).unwrap()
}

fn path(reader: &mut Reader<'_>) -> String {
    reader.string().unwrap()
}

fn data(reader: &mut Reader<'_>) -> Vec<u8> {
    reader.buffer().unwrap().to_vec()
}

/// The body of a reply, and the op code of a request that is answered so.
pub(super) fn encode_response(response: &Response) -> (i32, Vec<u8>) {
    let mut writer = Writer::frame();
    let op_code = write_response(&mut writer, response);
    (op_code, writer.finish().split_off(4))
}

fn write_response(writer: &mut Writer, response: &Response) -> i32 {
    match response {
        Response::Done => op::DELETE,
        Response::Created { path, .. } => {
            writer.string(path);
            op::CREATE
        }
        Response::Stat(stat) => write_optional(writer, Some(*stat), op::EXISTS, op::EXISTS),
        Response::Data { data, stat } => {
            writer.buffer(data);
            write_optional(writer, Some(*stat), op::GET_DATA, op::GET_DATA)
        }
        Response::Children { names, stat } => {
            writer.vector(names, |writer, name| writer.string(name));
            write_optional(writer, *stat, op::GET_CHILDREN, op::GET_CHILDREN2)
        }
        Response::Acl { acl, stat } => {
            writer.vector(acl, |writer, entry| {
                writer.i32(entry.perms);
                writer.string(&entry.scheme);
                writer.string(&entry.id);
            });
            write_optional(writer, Some(*stat), op::GET_ACL, op::GET_ACL)
        }
        Response::Synced { path } => {
            writer.string(path);
            op::SYNC
        }
        Response::Multi(results) => {
            results.iter().for_each(|result| write_result(writer, result));
            write_multi_header(writer, op::NONE, true, -1);
            op::MULTI
        }
        Response::Ephemerals(paths) => {
            writer.vector(paths, |writer, path| writer.string(path));
            op::GET_EPHEMERALS
        }
        Response::WhoAmI(users) => {
            writer.vector(users, |writer, (scheme, user)| {
                writer.string(scheme);
                writer.string(user);
            });
            op::WHO_AM_I
        }
    }
}

fn write_result(writer: &mut Writer, result: &Result<Response, Option<ErrorCode>>) {
    match result {
        Ok(response) => {
            let op_code = match response {
                Response::Created { .. } => op::CREATE,
                Response::Stat(_) => op::SET_DATA,
                Response::Data { .. } => op::GET_DATA,
                Response::Children { .. } => op::GET_CHILDREN,
                _ => op::DELETE,
            };
            write_multi_header(writer, op_code, false, 0);
            write_response(writer, response);
        }
        Err(code) => {
            let code = code.map_or(0, i32::from);
            write_multi_header(writer, op::NONE, false, code);
            writer.i32(code);
        }
    }
}

fn write_multi_header(writer: &mut Writer, op_code: i32, done: bool, err: i32) {
    writer.i32(op_code);
    writer.bool(done);
    writer.i32(err);
}

fn write_optional(writer: &mut Writer, stat: Option<Stat>, without: i32, with: i32) -> i32 {
    let Some(stat) = stat else { return without };
    write_stat(writer, stat);
    with
}

fn write_stat(writer: &mut Writer, stat: Stat) {
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
