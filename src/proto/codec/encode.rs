//! How requests go on the wire.

use super::jute::Writer;
use crate::proto::{
    op,
    request::Request,
    types::{Acl, CreateMode, WatchTable},
};

impl Request {
    /// The whole frame: length, xid, op code, body.
    #[must_use]
    pub fn encode(&self, xid: i32) -> Vec<u8> {
        let mut writer = Writer::frame();
        writer.i32(xid);
        writer.i32(self.op_code());
        self.write_body(&mut writer);
        writer.finish()
    }

    fn write_body(&self, writer: &mut Writer) {
        match self {
            Request::Create { path, data, acl, mode, .. } => {
                writer.string(path);
                writer.buffer(data);
                write_acl(writer, acl);
                writer.i32(mode.flags());
                if let Some(ttl) = mode.ttl() {
                    writer.i64(ttl);
                }
            }
            Request::Delete { path, version } | Request::Check { path, version } => {
                write_versioned(writer, path, *version);
            }
            Request::Exists { path, watch }
            | Request::GetData { path, watch }
            | Request::GetChildren { path, watch, .. } => {
                writer.string(path);
                writer.bool(*watch);
            }
            Request::SetData { path, data, version } => {
                writer.string(path);
                writer.buffer(data);
                writer.i32(*version);
            }
            Request::GetAcl { path } | Request::Sync { path } | Request::GetEphemerals { prefix: path } => {
                writer.string(path);
            }
            Request::SetAcl { path, acl, version } => {
                writer.string(path);
                write_acl(writer, acl);
                writer.i32(*version);
            }
            Request::Multi(ops) => write_multi(writer, ops),
            Request::RemoveWatches { path, table } => write_versioned(writer, path, table.to_wire()),
            Request::Auth { scheme, auth } => write_auth(writer, scheme, auth),
            Request::SetWatches { relative_zxid, data, exist, child } => {
                writer.i64(*relative_zxid);
                for paths in [data, exist, child] {
                    writer.vector(paths, |writer, path| writer.string(path));
                }
            }
            Request::Ping | Request::WhoAmI | Request::CloseSession => {}
        }
    }
}

impl CreateMode {
    /// Containers and TTL znodes need a code of their own: with their flag alone the server makes a plain znode.
    pub(in crate::proto) fn op_code(self, with_stat: bool) -> i32 {
        match self {
            CreateMode::Container => op::CREATE_CONTAINER,
            CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) => op::CREATE_TTL,
            _ if with_stat => op::CREATE2,
            _ => op::CREATE,
        }
    }

    fn flags(self) -> i32 {
        match self {
            CreateMode::Persistent => 0,
            CreateMode::Ephemeral => 1,
            CreateMode::PersistentSequential => 2,
            CreateMode::EphemeralSequential => 3,
            CreateMode::Container => 4,
            CreateMode::PersistentWithTtl(_) => 5,
            CreateMode::PersistentSequentialWithTtl(_) => 6,
        }
    }

    fn ttl(self) -> Option<i64> {
        match self {
            CreateMode::PersistentWithTtl(ttl) | CreateMode::PersistentSequentialWithTtl(ttl) => Some(ttl),
            _ => None,
        }
    }
}

impl WatchTable {
    fn to_wire(self) -> i32 {
        match self {
            WatchTable::Children => 1,
            WatchTable::Data => 2,
        }
    }
}

/// A path and a number: delete, check, and removeWatches too.
fn write_versioned(writer: &mut Writer, path: &str, version: i32) {
    writer.string(path);
    writer.i32(version);
}

fn write_auth(writer: &mut Writer, scheme: &str, auth: &[u8]) {
    writer.i32(0); // a type that no server looks at
    writer.string(scheme);
    writer.buffer(auth);
}

fn write_multi(writer: &mut Writer, ops: &[Request]) {
    for each in ops {
        write_multi_header(writer, each.op_code(), false);
        each.write_body(writer);
    }
    write_multi_header(writer, op::NONE, true);
}

fn write_multi_header(writer: &mut Writer, op_code: i32, done: bool) {
    writer.i32(op_code);
    writer.bool(done);
    writer.i32(-1);
}

fn write_acl(writer: &mut Writer, acl: &[Acl]) {
    writer.vector(acl, |writer, entry| {
        writer.i32(entry.perms);
        writer.string(&entry.scheme);
        writer.string(&entry.id);
    });
}
