//! Each member of Curator's lock, leader and shared recipes has its place here, or a line in the porting guide: `members.md`
//! lists them, and this runs a call of each.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

mod leaders;
mod locks;
mod shared;
#[path = "../../support/mod.rs"]
mod support;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::Mutex,
};

/// The calls that were made, by the member that they stand for.
static CALLS: Mutex<BTreeMap<&str, &str>> = Mutex::new(BTreeMap::new());

/// Books code as that for a member of Curator's.
fn book(member: &'static str, code: &'static str) {
    CALLS.lock().unwrap().insert(member, code);
}

/// Runs a call, and books it.
macro_rules! member {
    ($member:literal, $call:expr) => {{
        let value = $call;
        crate::book($member, stringify!($call));
        value
    }};
}
use member;

/// The rows of `members.md`: a member, and the right column.
fn rows(text: &str) -> Vec<(&str, &str)> {
    let cells = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | "));
    cells.filter(|(member, _)| member.contains('.') && !member.starts_with("Curator ")).collect()
}

#[test]
fn each_member_of_curators_is_called_or_has_its_line_in_the_guide() {
    locks::call();
    leaders::call();
    shared::call();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = fs::read_to_string(root.join("tests/programs/coverage/members.md")).unwrap();
    let guide = fs::read_to_string(root.join("src/docs/porting.md")).unwrap().replace('\n', " ");
    let (rows, calls) = (rows(&table), CALLS.lock().unwrap().clone());
    assert_eq!(rows.len(), 174, "members of Curator 5.7.1");
    let mut wrong = Vec::new();
    for (member, here) in &rows {
        if let Some(line) = here.strip_prefix("not here: ") {
            if !guide.contains(line) {
                wrong.push(format!("{member}: the guide does not say {line:?}"));
            }
            continue;
        }
        let word = here.trim_matches('`');
        match calls.get(member) {
            None => wrong.push(format!("{member}: nothing calls {word}")),
            Some(code) if !code.contains(word) => wrong.push(format!("{member}: {code} does not call {word}")),
            Some(_) => {}
        }
    }
    let known: BTreeSet<_> =
        rows.iter().filter(|(_, here)| !here.starts_with("not")).map(|(member, _)| *member).collect();
    wrong.extend(calls.keys().filter(|member| !known.contains(*member)).map(|member| format!("no such row: {member}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
