//! The meaning of the names of a directory's children.

use crate::{
    framework::znodes::create::Mark,
    locks::{
        queue_view::kinds::{EntryMode, EntryState, LockKind, NameStyle, TenureState},
        recipe::driver::{number_text, sequence_for},
    },
};

/// The prefix of a protected znode: `_c_`, a UUID, `-`.
const PROTECTED: &str = "_c_";
/// The length of a UUID with its dashes.
const UUID: usize = 36;
/// The length of the UUID without dashes that kazoo puts in front of its names.
const KAZOO_ID: usize = 32;

/// A contender's name, taken apart.
pub(in crate::locks) struct Named {
    pub(in crate::locks) style: NameStyle,
    pub(in crate::locks) mode: EntryMode,
    sequence: i64,
    mark: Mark,
    /// Which recipe's lock name it carries.
    word: NameWord,
}

/// The lock name in front of the number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameWord {
    /// `lock-`, `__READ__`, `__WRIT__`: Curator's, of which kazoo's users can use the first.
    Curators,
    /// `__lock__`, `__rlock__`.
    Kazoos,
    /// `latch-`.
    Latch,
    /// `x-<session>-`.
    Zookeepers,
    Other,
}

/// The known lock names, with the mode of each.
const WORDS: [(&str, NameWord, EntryMode); 7] = [
    ("lock-", NameWord::Curators, EntryMode::Exclusive),
    ("lease-", NameWord::Curators, EntryMode::Exclusive),
    ("__READ__", NameWord::Curators, EntryMode::Read),
    ("__WRIT__", NameWord::Curators, EntryMode::Write),
    ("__lock__", NameWord::Kazoos, EntryMode::Exclusive),
    ("__rlock__", NameWord::Kazoos, EntryMode::Read),
    ("latch-", NameWord::Latch, EntryMode::Exclusive),
];

impl Named {
    /// Takes a name apart that ends in a sequence number.
    pub(in crate::locks) fn of(name: &str) -> Named {
        let prefix = name.strip_suffix(number_text(name)).unwrap_or(name);
        let (word, mode) = match WORDS.iter().find(|(word, ..)| prefix.ends_with(word)) {
            Some((_, word, mode)) => (*word, *mode),
            None if is_session_of_zookeepers(prefix) => (NameWord::Zookeepers, EntryMode::Exclusive),
            None => (NameWord::Other, EntryMode::Exclusive),
        };
        let style = match word {
            NameWord::Zookeepers => NameStyle::ZooKeeper,
            _ if prefix.starts_with(PROTECTED) => NameStyle::Curator,
            NameWord::Kazoos => NameStyle::Kazoo,
            NameWord::Curators if has_kazoo_id(prefix) => NameStyle::Kazoo,
            _ if is_kazoo_lease(name) => NameStyle::Kazoo,
            _ => NameStyle::Other,
        };
        let (sequence, mark) = (sequence_for(name, "__WRIT__").unwrap_or_default(), Mark::of(name));
        let mode = if mark.has(Mark::UPGRADABLE) { EntryMode::Upgradable } else { mode };
        Named { style, mode, sequence, mark, word }
    }
}

/// Whether a child takes part in a queue.
pub(in crate::locks) fn is_contender(name: &str) -> bool {
    sequence_for(name, "").is_some() && !is_kazoo_lease(name)
}

/// Whether the name is that of a lease of kazoo's semaphore: a UUID without dashes, and nothing else.
pub(in crate::locks) fn is_kazoo_lease(name: &str) -> bool {
    name.len() == KAZOO_ID && is_kazoo_id(name)
}

fn has_kazoo_id(prefix: &str) -> bool {
    prefix.get(..KAZOO_ID).is_some_and(is_kazoo_id)
}

fn is_kazoo_id(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a prefix is one like `x-105-` or `x--105-`, to which this crate adds a unique id.
fn is_session_of_zookeepers(prefix: &str) -> bool {
    let Some(rest) = prefix.strip_prefix("x-").and_then(|rest| rest.strip_suffix('-')) else { return false };
    let session = match rest.len().checked_sub(UUID).and_then(|at| rest.split_at_checked(at)) {
        Some((session, id)) if uuid::Uuid::try_parse(id).is_ok() => session.strip_suffix('-').unwrap_or_default(),
        _ => rest,
    };
    session.parse::<i64>().is_ok()
}

/// The kind of lock that these contenders make.
pub(in crate::locks) fn kind_of(contenders: &[Named]) -> LockKind {
    let all = |word: NameWord| contenders.iter().all(|named| named.word == word);
    let any = |word: NameWord| contenders.iter().any(|named| named.word == word);
    if all(NameWord::Zookeepers) {
        LockKind::WriteLock
    } else if all(NameWord::Latch) {
        LockKind::LeaderLatch
    } else if any(NameWord::Latch) || any(NameWord::Zookeepers) {
        LockKind::Mixed
    } else if contenders.iter().any(|named| named.mode != EntryMode::Exclusive) {
        LockKind::ReadWrite
    } else {
        LockKind::Mutex
    }
}

/// Warnings to operators about names that stand side by side.
pub(in crate::locks) fn notes_on(kind: LockKind, contenders: &[Named]) -> Vec<String> {
    let any = |word: NameWord| contenders.iter().any(|named| named.word == word);
    let mut notes = Vec::new();
    if kind == LockKind::Mixed {
        notes.push("names of several recipes stand in one directory: each may have a holder of its own".to_owned());
    } else if any(NameWord::Curators) && any(NameWord::Kazoos) {
        let note = "names of Curator and kazoo's own stand in one directory: Curator and kazoo as it is do not wait for \
                    each other; kazoo needs extra_lock_patterns or Curator's names";
        notes.push(note.to_owned());
    }
    if any(NameWord::Other) {
        notes.push("some names are of no known recipe; every child with a sequence number counts here".to_owned());
    }
    notes
}

/// The states of these contenders, which stand in the order of the queue.
pub(in crate::locks) fn states(contenders: &[Named]) -> Vec<EntryState> {
    // The number of the first one that is no reader, and of the first one that nobody goes past.
    let (mut first_writer, mut first_unpassed, mut waiting) = (None, None, 0..);
    // Smaller, not equal: a writer with the reader's own number made this very reader by a downgrade.
    let is_free = |first: Option<i64>, named: &Named| first.is_none_or(|writer| writer >= named.sequence);
    let (mut readers_that_hold, mut upgradable) = (0, None);
    let state = |(place, named): (usize, &Named)| {
        let holds = match named.mode {
            // One that has not looked since an upgrade came behind it will queue anew. That its name does not tell.
            EntryMode::Read if named.mark.has(Mark::PASSES) => is_free(first_unpassed, named),
            EntryMode::Read | EntryMode::Upgradable => is_free(first_writer, named),
            // It holds beside the upgradable one that it was made of.
            _ if named.mark.has(Mark::UPGRADE) => upgradable.is_some() && readers_that_hold == 0,
            _ => place == 0,
        };
        // A reader with the number of the upgradable one is the same thread's.
        let is_in_the_way = holds && named.mode == EntryMode::Read && upgradable != Some(named.sequence);
        readers_that_hold += usize::from(is_in_the_way);
        match named.mode {
            EntryMode::Read => {}
            EntryMode::Upgradable => {
                upgradable = upgradable.or(Some(named.sequence).filter(|_| holds));
                first_writer.get_or_insert(named.sequence);
            }
            _ => {
                first_writer.get_or_insert(named.sequence);
                first_unpassed.get_or_insert(named.sequence);
            }
        }
        match holds {
            true if named.mark.has(Mark::IDLE) => EntryState::Cached(TenureState::HeldOrIdle),
            true => EntryState::Holds,
            false => EntryState::Waits(waiting.next().unwrap_or_default()),
        }
    };
    contenders.iter().enumerate().map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::znodes::create::protection;

    const ID: &str = "_c_90bd831e-1681-4114-b233-1c2e85f422cc-";
    const KAZOO: &str = "90bd831e16814114b2331c2e85f422cc";

    fn kind_and_states(names: &[String]) -> (LockKind, Vec<EntryState>) {
        let named: Vec<Named> = names.iter().map(|name| Named::of(name)).collect();
        (kind_of(&named), states(&named))
    }

    #[test]
    fn each_recipe_is_known_by_its_names() {
        use EntryMode::{Exclusive, Read, Write};
        #[rustfmt::skip]
        let table = [
            (format!("{ID}lock-0000000001"),        LockKind::Mutex,       NameStyle::Curator,   Exclusive),
            (format!("{ID}__READ__0000000001"),     LockKind::ReadWrite,   NameStyle::Curator,   Read),
            (format!("{ID}__WRIT__0000000001"),     LockKind::ReadWrite,   NameStyle::Curator,   Write),
            (format!("{ID}latch-0000000001"),       LockKind::LeaderLatch, NameStyle::Curator,   Exclusive),
            (format!("{KAZOO}__lock__0000000001"),  LockKind::Mutex,       NameStyle::Kazoo,     Exclusive),
            (format!("{KAZOO}__rlock__0000000001"), LockKind::ReadWrite,   NameStyle::Kazoo,     Read),
            (format!("{KAZOO}-lock-0000000001"),    LockKind::Mutex,       NameStyle::Kazoo,     Exclusive),
            ("x-72057594037927936-0000000001".into(), LockKind::WriteLock, NameStyle::ZooKeeper, Exclusive),
            ("x-105-90bd831e-1681-4114-b233-1c2e85f422cc-0000000001".into(), LockKind::WriteLock, NameStyle::ZooKeeper, Exclusive),
            ("x--105-0000000001".into(),            LockKind::WriteLock,   NameStyle::ZooKeeper, Exclusive),
            ("lock-0000000001".into(),              LockKind::Mutex,       NameStyle::Other,     Exclusive),
            ("anything0000000001".into(),           LockKind::Mutex,       NameStyle::Other,     Exclusive),
        ];
        for (name, kind, style, mode) in table {
            assert!(is_contender(&name), "{name}");
            let named = Named::of(&name);
            assert_eq!((kind_of(&[Named::of(&name)]), named.style, named.mode), (kind, style, mode), "{name}");
        }
        for name in ["locks", "lock", "leases", "keeper", "lock-1", KAZOO, "01234567890123456789012345678901"] {
            assert!(!is_contender(name), "{name}");
        }
    }

    #[test]
    fn readers_in_front_of_the_first_writer_hold_and_so_does_one_with_its_number() {
        use EntryState::{Holds, Waits};
        let read = |number: u32| format!("{ID}__READ__{number:010}");
        let write = |number: u32| format!("{ID}__WRIT__{number:010}");
        let table = [
            (vec![read(1), read(2), write(3), read(4)], vec![Holds, Holds, Waits(0), Waits(1)]),
            (vec![write(1), read(1), write(2), read(3)], vec![Holds, Holds, Waits(0), Waits(1)]),
            (vec![read(1), write(2), read(2)], vec![Holds, Waits(0), Holds]),
            (vec![write(5), write(6)], vec![Holds, Waits(0)]),
        ];
        for (names, expected) in table {
            assert_eq!(kind_and_states(&names), (LockKind::ReadWrite, expected), "{names:?}");
        }
    }

    #[test]
    fn a_name_says_whether_its_znode_may_stay_idle() {
        use EntryState::{Cached, Holds, Waits};
        let kept = |name: &str, number: u32| format!("{}{name}{number:010}", protection(Mark::IDLE));
        let own = |name: &str, number: u32| format!("{}{name}{number:010}", protection(Mark::NONE));
        let cached = Cached(TenureState::HeldOrIdle);
        let table = [
            (vec![kept("lock-", 1), kept("lock-", 2)], LockKind::Mutex, vec![cached, Waits(0)]),
            (vec![own("lock-", 1), kept("lock-", 2)], LockKind::Mutex, vec![Holds, Waits(0)]),
            (vec![kept("__READ__", 1), own("__READ__", 2)], LockKind::ReadWrite, vec![cached, Holds]),
            (vec![kept("__WRIT__", 1), own("__READ__", 1)], LockKind::ReadWrite, vec![cached, Holds]),
            // A uuid of Curator's with the same digits behind its version.
            (vec!["_c_90bd831e-1681-4001-b233-1c2e85f422cc-lock-0000000001".into()], LockKind::Mutex, vec![Holds]),
            (vec!["_c_90bd831e-1681-80-lock-0000000001".into()], LockKind::Mutex, vec![Holds]),
        ];
        for (names, kind, expected) in table {
            assert_eq!(kind_and_states(&names), (kind, expected), "{names:?}");
        }
        assert_ne!(kept("lock-", 1), kept("lock-", 1));
    }

    #[test]
    fn readers_that_go_past_an_upgradable_one_hold_beside_it_until_it_is_upgraded() {
        use EntryState::{Cached, Holds, Waits};
        let of = |mark: Mark, name: &str, number: u32| format!("{}{name}{number:010}", mark.sample());
        let passes = |number: u32| of(Mark::PASSES, "__READ__", number);
        let java = |number: u32| of(Mark::NONE, "__READ__", number);
        let upgradable = |number: u32| of(Mark::UPGRADABLE, "__WRIT__", number);
        let upgrade = |number: u32| of(Mark::UPGRADE, "__WRIT__", number);
        let writer = |number: u32| of(Mark::NONE, "__WRIT__", number);
        let kept = |number: u32| of(Mark::PASSES.and(Mark::IDLE), "__READ__", number);
        let cached = Cached(TenureState::HeldOrIdle);
        let table = [
            (vec![java(1), upgradable(2), passes(3), java(4)], vec![Holds, Holds, Holds, Waits(0)]),
            (vec![upgradable(1), upgradable(2), passes(3), kept(4)], vec![Holds, Waits(0), Holds, cached]),
            (vec![upgradable(1), writer(2), passes(3)], vec![Holds, Waits(0), Waits(1)]),
            (vec![writer(1), upgradable(2), passes(3)], vec![Holds, Waits(0), Waits(1)]),
            (vec![java(1), upgradable(2), upgrade(3), passes(4)], vec![Holds, Holds, Waits(0), Waits(1)]),
            (vec![upgradable(2), java(3), writer(4), upgrade(5)], vec![Holds, Waits(0), Waits(1), Holds]),
            (vec![upgradable(1), passes(2), upgrade(3)], vec![Holds, Holds, Waits(0)]),
            // The reader of the same thread.
            (vec![upgradable(1), passes(1), upgrade(3)], vec![Holds, Holds, Holds]),
        ];
        for (names, expected) in table {
            assert_eq!(kind_and_states(&names), (LockKind::ReadWrite, expected), "{names:?}");
        }
        assert_eq!(Named::of(&upgradable(1)).mode, EntryMode::Upgradable);
        assert_eq!(Named::of(&upgrade(1)).mode, EntryMode::Write);
    }

    #[test]
    fn names_that_do_not_go_together_are_noted() {
        let named = |names: &[String]| names.iter().map(|name| Named::of(name)).collect::<Vec<_>>();
        let both = named(&[format!("{ID}lock-0000000001"), format!("{KAZOO}__lock__0000000002")]);
        assert_eq!((kind_of(&both), notes_on(LockKind::Mutex, &both).len()), (LockKind::Mutex, 1));
        let mixed = named(&[format!("{ID}lock-0000000001"), format!("{ID}latch-0000000002")]);
        assert_eq!((kind_of(&mixed), notes_on(LockKind::Mixed, &mixed).len()), (LockKind::Mixed, 1));
        let fine = named(&[format!("{ID}lock-0000000001"), format!("{KAZOO}-lock-0000000002")]);
        assert_eq!((kind_of(&fine), notes_on(LockKind::Mutex, &fine).len()), (LockKind::Mutex, 0));
    }
}
