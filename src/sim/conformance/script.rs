//! The language of the rows: steps between semicolons, each a connection's name and what its client does.

use std::collections::{BTreeMap, VecDeque};

use super::dialogue::Names;
use crate::proto::{codec::jute::Writer, op, types::Acl};

/// A request that no method of the crate sends is written field by field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wire {
    pub(super) op: i32,
    pub(super) body: Vec<u8>,
    /// The xid, where it is not the next one.
    pub(super) xid: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Connects; `resume` names the connection whose session is to go on.
    Open(Open),
    /// Requests in one write.
    Ask(Vec<String>),
    /// What has come, up to the answer to a sync.
    Events,
    /// Waits for one event, or for the end.
    Await,
    /// The client ends its connection without a word.
    Cut,
    /// Remembers the last transaction seen.
    Mark,
    /// Bytes that are no request.
    Bytes(Vec<u8>),
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Open {
    pub(super) at: String,
    pub(super) timeout_ms: i32,
    pub(super) resume: Option<String>,
    pub(super) wrong_password: bool,
    /// The last transaction seen, from here.
    pub(super) zxid: i64,
    pub(super) is_old: bool,
}

pub(super) const SET_WATCHES2: i32 = 105;
const CHECK_WATCHES: i32 = 17;

/// The steps of a row, each with its connection's name.
pub(super) fn parse(script: &str) -> Vec<(String, Step)> {
    let steps = script.split(';').map(str::trim).filter(|step| !step.is_empty());
    steps.map(step).collect()
}

fn step(text: &str) -> (String, Step) {
    let (conn, text) = text.split_once(' ').unwrap_or_else(|| panic!("no connection in {text:?}"));
    let text = text.trim();
    let word = text.split_whitespace().next().unwrap();
    let step = match word {
        "open" | "resume" => Step::Open(open(text)),
        "events" => Step::Events,
        "await" => Step::Await,
        "cut" => Step::Cut,
        "mark" => Step::Mark,
        "bytes" => Step::Bytes(hex(text.split_whitespace().nth(1).unwrap())),
        _ => Step::Ask(text.split('&').map(|request| request.trim().to_owned()).collect()),
    };
    (conn.to_owned(), step)
}

fn open(text: &str) -> Open {
    let mut words = text.split_whitespace();
    let mut open = Open { at: "0".into(), timeout_ms: 30_000, ..Open::default() };
    if words.next() == Some("resume") {
        open.resume = Some(words.next().unwrap().to_owned());
    }
    for word in words {
        match word.split_once('=') {
            Some(("at", at)) => open.at = at.to_owned(),
            Some(("timeout", timeout)) => open.timeout_ms = timeout.parse().unwrap(),
            Some(("zxid", zxid)) => open.zxid = zxid.parse().unwrap(),
            _ if word == "old" => open.is_old = true,
            _ if word == "badly" => open.wrong_password = true,
            _ => panic!("{word:?} is nothing to open with"),
        }
    }
    open
}

pub(super) fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// The words of one request: in order, and behind keys.
struct Words<'a> {
    words: VecDeque<&'a str>,
    values: BTreeMap<&'a str, &'a str>,
    names: &'a Names,
}

impl<'a> Words<'a> {
    fn new(text: &'a str, names: &'a Names) -> Self {
        let is_key = |key: &str| key.chars().all(|letter| letter.is_ascii_lowercase());
        let (mut words, mut values) = (VecDeque::new(), BTreeMap::new());
        for word in text.split_whitespace() {
            match word.split_once('=').filter(|(key, _)| is_key(key)) {
                Some((key, value)) => drop(values.insert(key, value)),
                None => words.push_back(word),
            }
        }
        Words { words, values, names }
    }

    fn text(&mut self) -> &'a str {
        self.words.pop_front().unwrap_or_else(|| panic!("a word is missing"))
    }

    fn path(&mut self) -> String {
        let word = self.text();
        self.names.path(word)
    }

    fn number(&mut self, default: i32) -> i32 {
        self.words.pop_front().map_or(default, |word| word.parse().unwrap())
    }

    fn value(&mut self, key: &str) -> Option<&'a str> {
        self.values.remove(key)
    }

    fn watch(&mut self) -> bool {
        self.words.pop_front_if(|word| *word == "w").is_some()
    }

    fn paths(&mut self, key: &str) -> Vec<String> {
        let value = self.value(key).unwrap_or_default();
        value.split(',').filter(|path| !path.is_empty()).map(|path| self.names.path(path)).collect()
    }

    fn finish(self) {
        assert!(self.words.is_empty() && self.values.is_empty(), "{:?} {:?} is too much", self.words, self.values);
    }
}

/// A request as bytes.
pub(super) fn request(text: &str, names: &Names) -> Wire {
    let mut words = Words::new(text, names);
    let (op, body) = match words.text() {
        "multi" => return Wire { op: op::MULTI, body: multi("multi", text, names), xid: None },
        "reads" => return Wire { op: op::MULTI_READ, body: multi("reads", text, names), xid: None },
        "raw" => (words.number(0), hex(words.value("body").unwrap_or_default())),
        word => {
            let mut writer = Writer::frame();
            let op = body(word, &mut words, &mut writer);
            (op, writer.finish().split_off(4))
        }
    };
    let xid = words.value("xid").map(|xid| xid.parse().unwrap());
    words.finish();
    Wire { op, body, xid }
}

fn body(word: &str, words: &mut Words<'_>, writer: &mut Writer) -> i32 {
    match word {
        "create" => create(op::CREATE, 0, words, writer),
        "create2" => create(op::CREATE2, 0, words, writer),
        "container" => create(op::CREATE_CONTAINER, 4, words, writer),
        "ttl" => create(op::CREATE_TTL, 5, words, writer),
        "delete" => versioned(op::DELETE, words, writer),
        "check" => versioned(op::CHECK, words, writer),
        "exists" => watching(op::EXISTS, words, writer),
        "get" => watching(op::GET_DATA, words, writer),
        "children" => watching(op::GET_CHILDREN, words, writer),
        "children2" => watching(op::GET_CHILDREN2, words, writer),
        "set" => {
            writer.string(&words.path());
            writer.buffer(words.text().as_bytes());
            writer.i32(words.number(-1));
            op::SET_DATA
        }
        "acl" => path_only(op::GET_ACL, words, writer),
        "sync" => path_only(op::SYNC, words, writer),
        "ephemerals" => path_only(op::GET_EPHEMERALS, words, writer),
        "setacl" => {
            writer.string(&words.path());
            write_acl(writer, &acl(words.text()));
            writer.i32(words.number(-1));
            op::SET_ACL
        }
        "auth" => {
            writer.i32(0);
            writer.string(words.text());
            writer.buffer(words.text().as_bytes());
            op::AUTH
        }
        "setwatches" | "setwatches2" => set_watches(word, words, writer),
        "removewatches" => tabled(op::REMOVE_WATCHES, words, writer),
        "checkwatches" => tabled(CHECK_WATCHES, words, writer),
        "ping" => op::PING,
        "whoami" => op::WHO_AM_I,
        "close" => op::CLOSE_SESSION,
        _ => panic!("{word:?} is no request"),
    }
}

fn path_only(op_code: i32, words: &mut Words<'_>, writer: &mut Writer) -> i32 {
    writer.string(&words.path());
    op_code
}

fn versioned(op_code: i32, words: &mut Words<'_>, writer: &mut Writer) -> i32 {
    writer.string(&words.path());
    writer.i32(words.number(-1));
    op_code
}

fn tabled(op_code: i32, words: &mut Words<'_>, writer: &mut Writer) -> i32 {
    writer.string(&words.path());
    writer.i32(words.number(3));
    op_code
}

fn watching(op_code: i32, words: &mut Words<'_>, writer: &mut Writer) -> i32 {
    writer.string(&words.path());
    writer.bool(words.watch());
    op_code
}

fn set_watches(word: &str, words: &mut Words<'_>, writer: &mut Writer) -> i32 {
    let zxid = words.value("zxid").map_or(0, |zxid| words.names.zxid(zxid));
    writer.i64(zxid);
    for key in ["data", "exist", "child"] {
        let paths = words.paths(key);
        writer.vector(&paths, |writer, path| writer.string(path));
    }
    if word == "setwatches" {
        return op::SET_WATCHES;
    }
    writer.i32(0);
    writer.i32(0);
    SET_WATCHES2
}

fn create(op_code: i32, flags: i32, words: &mut Words<'_>, writer: &mut Writer) -> i32 {
    writer.string(&words.path());
    let data = words.value("data").unwrap_or_default();
    match data.strip_prefix("size:") {
        Some(size) => writer.buffer(&vec![b'x'; size.parse().unwrap()]),
        None => writer.buffer(data.as_bytes()),
    }
    write_acl(writer, &words.value("acl").map_or_else(Acl::open_unsafe, acl));
    writer.i32(words.value("flags").map_or(flags, |flags| flags.parse().unwrap()));
    if op_code == op::CREATE_TTL {
        writer.i64(words.value("ttl").map_or(1000, |ttl| ttl.parse().unwrap()));
    }
    op_code
}

/// The operations stand between `+`.
fn multi(word: &str, text: &str, names: &Names) -> Vec<u8> {
    let parts = text.strip_prefix(word).unwrap().split('+').map(str::trim).filter(|part| !part.is_empty());
    let operations = parts.map(|part| request(part, names));
    let mut bytes: Vec<u8> = operations.flat_map(|wire| [multi_header(wire.op, false), wire.body].concat()).collect();
    bytes.extend(multi_header(op::NONE, true));
    bytes
}

fn multi_header(op_code: i32, is_done: bool) -> Vec<u8> {
    [&op_code.to_be_bytes()[..], &[is_done.into()], &(-1_i32).to_be_bytes()].concat()
}

/// `scheme:id:perms` between commas; perms as in `crdwa`. `-` is the empty list.
fn acl(list: &str) -> Vec<Acl> {
    let entries = list.split(',').filter(|entry| *entry != "-");
    entries.map(entry).collect()
}

fn entry(text: &str) -> Acl {
    let (who, perms) = text.rsplit_once(':').unwrap();
    let (scheme, id) = who.split_once(':').unwrap();
    let bit = |letter: char| 1 << "rwcda".find(letter).unwrap_or_else(|| panic!("no permission {letter}"));
    Acl { perms: perms.chars().map(bit).sum(), scheme: scheme.to_owned(), id: id.to_owned() }
}

fn write_acl(writer: &mut Writer, acl: &[Acl]) {
    writer.vector(acl, |writer, entry| {
        writer.i32(entry.perms);
        writer.string(&entry.scheme);
        writer.string(&entry.id);
    });
}
