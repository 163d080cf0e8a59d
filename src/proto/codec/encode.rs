//! How requests go on the wire.

use super::jute::Writer;
use crate::proto::{
    op,
    request::Request,
    types::{Acl, CreateMode},
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
            Request::Create { path, data, acl, mode } => {
                writer.string(path);
                writer.buffer(data);
                write_acl(writer, acl);
                let (flags, ttl) = mode.flags_and_ttl();
                writer.i32(flags);
                if let Some(ttl) = ttl {
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
            Request::RemoveWatches { path, table } => write_versioned(writer, path, *table as i32),
            Request::Auth { scheme, auth } => {
                writer.i32(0); // a type that no server looks at
                writer.string(scheme);
                writer.buffer(auth);
            }
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
    pub(in crate::proto) fn op_code(self) -> i32 {
        match self {
            CreateMode::Container => op::CREATE_CONTAINER,
            CreateMode::PersistentWithTtl(_) | CreateMode::PersistentSequentialWithTtl(_) => op::CREATE_TTL,
            _ => op::CREATE,
        }
    }

    /// The znode's kind as a number, and how long it stays without a child.
    fn flags_and_ttl(self) -> (i32, Option<i64>) {
        match self {
            CreateMode::Persistent => (0, None),
            CreateMode::Ephemeral => (1, None),
            CreateMode::PersistentSequential => (2, None),
            CreateMode::EphemeralSequential => (3, None),
            CreateMode::Container => (4, None),
            CreateMode::PersistentWithTtl(ttl) => (5, Some(ttl)),
            CreateMode::PersistentSequentialWithTtl(ttl) => (6, Some(ttl)),
        }
    }
}

/// A path and a number: delete, check, and removeWatches too.
fn write_versioned(writer: &mut Writer, path: &str, version: i32) {
    writer.string(path);
    writer.i32(version);
}

/// The frame of a [`Request::Multi`], or of reads that go together, made of the operations and frames of what is in it.
pub(crate) fn together<'a>(op_code: i32, frames: impl Iterator<Item = (i32, &'a [u8])>) -> Vec<u8> {
    let mut writer = Writer::frame();
    writer.i32(0);
    writer.i32(op_code);
    for (op_code, frame) in frames {
        write_multi_header(&mut writer, op_code, false);
        // Behind length, xid and operation.
        writer.bytes(frame.get(12..).unwrap_or_default());
    }
    write_multi_header(&mut writer, op::NONE, true);
    writer.finish()
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
