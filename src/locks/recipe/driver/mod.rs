//! Decides from the names of a directory's children alone who has the lock, and which znode every waiter watches.
//!
//! Nothing here talks to a server, so each rule is tested as a table of names. [`LockInternals`](crate::LockInternals)
//! lists the children and acts on the [`Decision`].

use crate::{framework::znodes::create::Mark, locks::recipe::znode_name::ZNodeName};

/// From this sequence number on no lock is granted: at 2^31 the server stops counting properly.
const FIRST_EXHAUSTED: i64 = i32::MAX as i64 - 1_000_000;

/// The lock name of a mutex: the text before the sequence number.
const MUTEX_NAME: &str = "lock-";
const READ_NAME: &str = "__READ__";
const WRITE_NAME: &str = "__WRIT__";

/// kazoo's name for a reader.
const KAZOO_READ_NAME: &str = "__rlock__";

/// Says which part of a child's name it is sorted by. Java: `LockInternalsSorter`.
///
/// ```
/// use curator_locks::{LockInternalsSorter, StandardLockInternalsDriver};
///
/// let sorter = StandardLockInternalsDriver::new();
/// assert_eq!(sorter.fix_for_sorting("_c_4f1e-lock-0000000007", "lock-"), "0000000007");
/// ```
pub trait LockInternalsSorter {
    /// The part of `name` to compare; by default the text after the last `lock_name` in it, or all of it.
    fn fix_for_sorting<'a>(&self, name: &'a str, lock_name: &str) -> &'a str {
        name.rfind(lock_name).and_then(|at| name.get(at + lock_name.len()..)).unwrap_or(name)
    }
}

/// The meaning of a lock's directory for one contender.
///
/// ```
/// use curator_locks::{Decision, LockInternalsDriver, StandardLockInternalsDriver};
///
/// let driver = StandardLockInternalsDriver::new();
/// let children = ["lock-0000000001", "lock-0000000002"].map(String::from);
/// assert_eq!(driver.decide(&children, "lock-0000000001", 1), Decision::Granted);
/// let behind = Decision::Wait { watch: "lock-0000000001".into(), first: true };
/// assert_eq!(driver.decide(&children, "lock-0000000002", 1), behind);
/// assert_eq!(driver.decide(&children, "lock-0000000003", 1), Decision::Missing);
/// ```
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// The contender has the lock.
    Granted,
    /// Another one is in front.
    Wait {
        /// The child to watch: when it is gone, look again.
        watch: String,
        /// The watched child was the very first contender in this listing, so it holds the lock.
        first: bool,
    },
    /// The contender's own node is not listed (or is no contender, without a sequence number): start again.
    Missing,
    /// The contender may neither hold nor wait where it stands: queue anew, behind all that are listed.
    Requeue,
}

/// [`Decision`] in the shape that Curator's drivers return; `into()` makes one of it. Java: `PredicateResults`.
///
/// ```
/// use curator_locks::{Decision, PredicateResults};
///
/// assert_eq!(Decision::from(PredicateResults::new(None, true)), Decision::Granted);
/// let behind = PredicateResults::new(Some("lock-0000000007".into()), false);
/// assert_eq!(Decision::from(behind), Decision::Wait { watch: "lock-0000000007".into(), first: false });
/// ```
///
/// Built and read:
///
/// ```
/// use curator_locks::PredicateResults;
///
/// let behind = PredicateResults::new(Some("lock-0000000007".into()), false).with_predecessor_first(true);
/// assert_eq!(behind.path_to_watch(), Some("lock-0000000007"));
/// assert!(!behind.gets_the_lock() && behind.predecessor_is_first());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PredicateResults {
    path_to_watch: Option<String>,
    gets_the_lock: bool,
    predecessor_is_first: bool,
}

impl PredicateResults {
    /// `path_to_watch` is the name of a child, not a path, and is not looked at where the lock is granted.
    #[must_use]
    pub fn new(path_to_watch: Option<String>, gets_the_lock: bool) -> PredicateResults {
        PredicateResults { path_to_watch, gets_the_lock, predecessor_is_first: false }
    }

    /// Adds that the child to watch is the first contender of all, so that it holds the lock.
    #[must_use]
    pub fn with_predecessor_first(mut self, predecessor_is_first: bool) -> PredicateResults {
        self.predecessor_is_first = predecessor_is_first;
        self
    }

    /// The name of the child to watch.
    #[must_use]
    pub fn path_to_watch(&self) -> Option<&str> {
        self.path_to_watch.as_deref()
    }

    /// Whether the contender has the lock.
    #[must_use]
    pub fn gets_the_lock(&self) -> bool {
        self.gets_the_lock
    }

    /// Whether the child to watch is the first contender of all.
    #[must_use]
    pub fn predecessor_is_first(&self) -> bool {
        self.predecessor_is_first
    }
}

impl From<PredicateResults> for Decision {
    /// Neither granted nor anybody to watch means [`Decision::Missing`].
    fn from(results: PredicateResults) -> Decision {
        match results {
            PredicateResults { gets_the_lock: true, .. } => Decision::Granted,
            PredicateResults { path_to_watch: Some(watch), predecessor_is_first: first, .. } => {
                Decision::Wait { watch, first }
            }
            PredicateResults { path_to_watch: None, .. } => Decision::Missing,
        }
    }
}

/// The rules of one kind of lock: how its nodes are named, and who has the lock. Java: `LockInternalsDriver`.
///
/// ```
/// use curator_locks::{Decision, LockInternalsDriver, StandardLockInternalsDriver};
///
/// /// A mutex whose nodes tell whose they are.
/// struct OfTeam(&'static str);
///
/// impl LockInternalsDriver for OfTeam {
///     fn decide(&self, children: &[String], own: &str, max_leases: usize) -> Decision {
///         StandardLockInternalsDriver::new().decide(children, own, max_leases)
///     }
///     fn lock_name(&self) -> &str {
///         self.0
///     }
/// }
///
/// let children = ["billing-0000000002".to_string(), "sales-0000000001".to_string()];
/// assert_eq!(OfTeam("sales-").decide(&children, "sales-0000000001", 1), Decision::Granted);
/// ```
pub trait LockInternalsDriver: Send + Sync + 'static {
    /// Decides by the names of the directory's children who has the lock. Java: `getsTheLock`.
    ///
    /// `children` come in any order and with everything that does not belong to the lock. `own` is the name of the
    /// contender's node, `max_leases` how many may hold the lock at a time. Called often and with thousands of children:
    /// it should be linear, and must not block. All processes must come to the same order.
    fn decide(&self, children: &[String], own: &str, max_leases: usize) -> Decision;

    /// The part of the node's name between the protection prefix and the sequence number.
    fn lock_name(&self) -> &str;

    /// Whether a contender that watched the holder has the lock as soon as the holder's node is deleted, without
    /// another look at the directory. Asked only where one contender holds the lock at a time. Defaults to `false`.
    ///
    /// True only if no contender can ever get in front of another one. Not true of read/write locks: a downgrade
    /// creates a read node with the writer's own number, in front of waiting writers.
    fn successor_follows_holder(&self) -> bool {
        false
    }
}

/// First come, first served, whatever the others are called. Java: `StandardLockInternalsDriver`.
///
/// A contender has the lock if fewer than `max_leases` contenders are in front of it; otherwise it watches the one that
/// is `max_leases` places in front of it. Every child that ends in a sequence number is a contender, whatever its lock
/// name; all other children are ignored.
///
/// ```
/// # curator_locks::docs::example(|client| {
/// use curator_locks::{InterProcessMutex, LockInternalsDriver, StandardLockInternalsDriver};
///
/// assert_eq!(StandardLockInternalsDriver::new().lock_name(), "lock-");
/// let driver = StandardLockInternalsDriver::with_lock_name("build-");
/// let mutex = InterProcessMutex::with_driver(&client, "/locks/build", driver)?;
/// let held = mutex.lock()?;
/// assert!(held.path().ends_with("-build-0000000000"));
/// held.release()?;
/// # Ok(()) });
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandardLockInternalsDriver {
    lock_name: String,
}

impl StandardLockInternalsDriver {
    /// A driver with the lock name of a mutex, `lock-`.
    #[must_use]
    pub fn new() -> StandardLockInternalsDriver {
        StandardLockInternalsDriver::with_lock_name(MUTEX_NAME)
    }

    /// A driver with another lock name; it should not be empty, contain `/` or end in a digit.
    #[must_use]
    pub fn with_lock_name(lock_name: impl Into<String>) -> StandardLockInternalsDriver {
        StandardLockInternalsDriver { lock_name: lock_name.into() }
    }
}

impl Default for StandardLockInternalsDriver {
    fn default() -> StandardLockInternalsDriver {
        StandardLockInternalsDriver::new()
    }
}

impl LockInternalsSorter for StandardLockInternalsDriver {}

impl LockInternalsDriver for StandardLockInternalsDriver {
    fn decide(&self, children: &[String], own: &str, max_leases: usize) -> Decision {
        decide_exclusive(children, own, max_leases, &self.lock_name)
    }

    fn successor_follows_holder(&self) -> bool {
        true
    }

    fn lock_name(&self) -> &str {
        &self.lock_name
    }
}

/// The write half of a read/write lock: behind everybody in front, reader or writer. Java: the driver inside
/// `InterProcessReadWriteLock.WriteLock`.
///
/// ```
/// use curator_locks::{Decision, LockInternalsDriver, WriteLockDriver};
///
/// let children = ["a-__READ__0000000001", "b-__WRIT__0000000002"].map(String::from);
/// let behind = Decision::Wait { watch: children[0].clone(), first: true };
/// assert_eq!(WriteLockDriver.decide(&children, &children[1], 1), behind); // waits for the reader
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteLockDriver;

impl LockInternalsSorter for WriteLockDriver {}

impl LockInternalsDriver for WriteLockDriver {
    fn decide(&self, children: &[String], own: &str, max_leases: usize) -> Decision {
        decide_exclusive(children, own, max_leases, WRITE_NAME)
    }

    fn lock_name(&self) -> &str {
        WRITE_NAME
    }
}

/// The read half of a read/write lock: behind every writer in front. Java: the driver inside
/// `InterProcessReadWriteLock.ReadLock`.
///
/// It watches the last writer in front of it, so that it wakes once, not once per writer. A contender that is not known
/// to be a reader counts as a writer. `max_leases` is not looked at: any number of readers hold the lock together.
///
/// An [`InterProcessReadLock`](crate::InterProcessReadLock), whose znodes are marked for it, goes past those of
/// [`InterProcessUpgradableLock`](crate::InterProcessUpgradableLock)s, and queues anew where one of them is about to be a writer.
///
/// ```
/// use curator_locks::{Decision, LockInternalsDriver, ReadLockDriver};
///
/// let children = ["a-__READ__0000000001", "b-__READ__0000000002"].map(String::from);
/// assert_eq!(ReadLockDriver.decide(&children, &children[1], 1), Decision::Granted); // beside the first
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadLockDriver;

impl LockInternalsSorter for ReadLockDriver {}

impl LockInternalsDriver for ReadLockDriver {
    fn decide(&self, children: &[String], own: &str, _max_leases: usize) -> Decision {
        decide_shared(children, own, READ_NAME)
    }

    fn lock_name(&self) -> &str {
        READ_NAME
    }
}

/// A writer to others, and one at a time: behind every writer in front, but beside readers.
///
/// # Why it is safe
/// Readers that bear a mark go past it, as its own name is [marked](Mark::UPGRADABLE); all others wait for it as for a writer. Its
/// upgrade is a second znode at the end of the queue, decided by [`UpgradeDriver`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(unreachable_pub, reason = "the model check reaches it through a hidden door of the feature `testing`")]
pub struct UpgradableLockDriver;

impl LockInternalsDriver for UpgradableLockDriver {
    fn decide(&self, children: &[String], own: &str, _max_leases: usize) -> Decision {
        decide_shared(children, own, WRITE_NAME)
    }

    fn lock_name(&self) -> &str {
        WRITE_NAME
    }
}

/// The upgrade of an upgradable lock that is held: it waits for the readers that may hold, and for nobody else.
///
/// These are all readers in front of the upgradable znode, and of those that go past it the ones that no writer keeps waiting:
/// in front of the first writer behind it, which may be the upgrade itself.
///
/// A reader behind another writer cannot hold, until that writer gives up: then it finds the upgrade behind itself, and queues
/// anew. By its number alone it would hold beside an upgrade that was granted before.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(unreachable_pub, reason = "as above")]
pub struct UpgradeDriver {
    /// The name of the upgradable znode.
    pub upgradable: String,
}

impl LockInternalsDriver for UpgradeDriver {
    fn decide(&self, children: &[String], own: &str, _max_leases: usize) -> Decision {
        let own = listed(children, own, WRITE_NAME);
        let Some((own, upgradable)) = own.zip(Listed::of(&self.upgradable, WRITE_NAME)) else {
            return Decision::Missing;
        };
        let first_writer = first_writer_behind(children, &self.upgradable, |_| true);
        let end = first_writer.and_then(|name| sequence_for(name, WRITE_NAME)).unwrap_or(own.sequence);
        let may_hold = |reader: &Listed<'_>| {
            let goes_past = reader.sequence > upgradable.sequence && reader.sequence < end;
            reader.sequence < upgradable.sequence || goes_past && Mark::of(reader.name).has(Mark::PASSES)
        };
        let readers = children.iter().filter_map(|child| Listed::of(child, WRITE_NAME)).filter(|other| other.is_reader);
        readers.filter(may_hold).max().map_or(Decision::Granted, |reader| reader.wait(false))
    }

    fn lock_name(&self) -> &str {
        WRITE_NAME
    }
}

/// First come, first served by the order of [`ZNodeName`](crate::zookeeper_recipe::ZNodeName), as in ZooKeeper's own
/// lock recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(unreachable_pub, reason = "the model check reaches it through a hidden door of the feature `testing`")]
pub struct ZNodeNameDriver;

impl LockInternalsDriver for ZNodeNameDriver {
    fn decide(&self, children: &[String], own: &str, _max_leases: usize) -> Decision {
        if !children.iter().any(|child| child == own) {
            return Decision::Missing;
        }
        let own = ZNodeName::new(own);
        let in_front = children.iter().map(ZNodeName::new).filter(|name| *name < own);
        let (count, last) = in_front.fold((0_usize, None), |(count, last), name| (count + 1, last.max(Some(name))));
        last.map_or(Decision::Granted, |last| Decision::Wait { watch: last.name().to_owned(), first: count == 1 })
    }

    fn lock_name(&self) -> &str {
        ""
    }
}

/// A contender's place in the queue: smaller is further in front.
///
/// Numbers are equal only where a writer's downgrade made a read node with the writer's own number, and the reader comes
/// after that writer then. Names come last, so that all processes have one order whatever the server lists first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Listed<'a> {
    sequence: i64,
    is_reader: bool,
    name: &'a str,
}

impl<'a> Listed<'a> {
    /// `None` for a child that is no contender.
    fn of(name: &'a str, lock_name: &str) -> Option<Listed<'a>> {
        let (prefix, sequence) = split_sequence(name, lock_name)?;
        let is_reader = prefix.ends_with(READ_NAME) || prefix.ends_with(KAZOO_READ_NAME);
        Some(Listed { sequence, is_reader, name })
    }

    fn wait(self, first: bool) -> Decision {
        Decision::Wait { watch: self.name.to_owned(), first }
    }
}

fn decide_exclusive(children: &[String], own: &str, max_leases: usize, lock_name: &str) -> Decision {
    let Some(own) = listed(children, own, lock_name) else { return Decision::Missing };
    if max_leases == 0 {
        return own.wait(false);
    }
    let in_front = || children.iter().filter_map(|child| Listed::of(child, lock_name)).filter(|other| *other < own);
    if max_leases == 1 {
        // One pass without a list: 3,000 waiters read 3,000 names each.
        let (count, last) = in_front().fold((0_usize, None), |(count, last), place| (count + 1, last.max(Some(place))));
        return last.map_or(Decision::Granted, |last| last.wait(count == 1));
    }
    let mut in_front: Vec<Listed<'_>> = in_front().collect();
    let Some(index) = in_front.len().checked_sub(max_leases) else { return Decision::Granted };
    let (_, watched, _) = in_front.select_nth_unstable(index);
    watched.wait(index == 0)
}

fn decide_shared(children: &[String], own: &str, lock_name: &str) -> Decision {
    let Some(own) = listed(children, own, lock_name) else { return Decision::Missing };
    let goes_past = Mark::of(own.name).has(Mark::PASSES);
    let (mut first, mut last_writer, mut has_passed, mut is_upgraded) = (own, None, false, false);
    for place in children.iter().filter_map(|child| Listed::of(child, lock_name)) {
        first = first.min(place);
        // Smaller, not equal: a writer with the reader's own number made this very reader by a downgrade.
        match place.sequence < own.sequence {
            _ if place.is_reader => {}
            true if goes_past && is_upgradable(place.name) => has_passed = true,
            true => last_writer = last_writer.max(Some(place)),
            false => is_upgraded |= goes_past && Mark::of(place.name).has(Mark::UPGRADE),
        }
    }
    match last_writer {
        Some(writer) => writer.wait(writer == first),
        None if has_passed && is_upgraded => Decision::Requeue,
        None => Decision::Granted,
    }
}

fn is_upgradable(name: &str) -> bool {
    Mark::of(name).has(Mark::UPGRADABLE)
}

/// The first contender behind this one that nobody goes past, what is neither a reader nor upgradable, of those that count.
pub(crate) fn first_writer_behind<'a>(
    children: &'a [String],
    name: &str,
    counts: impl Fn(&str) -> bool,
) -> Option<&'a str> {
    let number = sequence_for(name, WRITE_NAME)?;
    let others = children.iter().filter_map(|child| Listed::of(child, WRITE_NAME));
    let behind = others.filter(|other| !other.is_reader && other.sequence > number && !is_upgradable(other.name));
    behind.filter(|other| counts(other.name)).min().map(|writer| writer.name)
}

fn listed<'a>(children: &'a [String], own: &str, lock_name: &str) -> Option<Listed<'a>> {
    children.iter().find(|child| *child == own).and_then(|own| Listed::of(own, lock_name))
}

/// The contenders among a directory's children, the holder first.
pub(crate) fn sorted_contenders(children: &[String]) -> Vec<&str> {
    let mut places: Vec<Listed<'_>> = children.iter().filter_map(|child| Listed::of(child, "")).collect();
    places.sort_unstable();
    places.into_iter().map(|place| place.name).collect()
}

/// Whether another contender in a directory cannot hold beside `own`. Readers hold beside readers, and beside what they go past.
pub(crate) fn stands_in_the_way(children: &[String], own: &str, is_shared: bool) -> bool {
    let mut others = children.iter().filter(|name| *name != own).filter_map(|child| Listed::of(child, ""));
    others.any(|other| !(is_shared && (other.is_reader || is_upgradable(other.name))))
}

/// All children in the order of their texts after the lock name. Java: `LockInternals.getSortedChildren`.
pub(crate) fn sorted_children<'a>(
    children: &'a [String],
    lock_name: &str,
    sorter: &dyn LockInternalsSorter,
) -> Vec<&'a str> {
    let mut names: Vec<&str> = children.iter().map(String::as_str).collect();
    names.sort_by_key(|name| sorter.fix_for_sorting(name, lock_name));
    names
}

/// Whether a contender with this number has to give up with
/// [`Error::SequenceExhausted`](crate::Error::SequenceExhausted).
pub(crate) fn is_exhausted(sequence: i64) -> bool {
    !(0..FIRST_EXHAUSTED).contains(&sequence)
}

/// The number that the server appended to a child's name; `None` if it ends in none.
pub(crate) fn sequence_for(name: &str, lock_name: &str) -> Option<i64> {
    split_sequence(name, lock_name).map(|(_, sequence)| sequence)
}

/// Whether a child bears this lock name in front of its number, so that it is a contender of the same kind.
pub(crate) fn is_kin(name: &str, lock_name: &str) -> bool {
    split_sequence(name, lock_name).is_some_and(|(prefix, _)| prefix.ends_with(lock_name))
}

/// A sequential znode's number as the server wrote it: 10 characters, below zero 11 at times.
pub(crate) fn number_text(name: &str) -> &str {
    split_sequence(name, WRITE_NAME).and_then(|(prefix, _)| name.get(prefix.len()..)).unwrap_or_default()
}

/// The text before the number that the server appended to a child's name, and that number.
///
/// Beyond 2^31 - 1 the server goes on below zero, where the minus sign can be taken for the end of the lock name. It
/// counts as a sign after the child's own lock name, if that is known, after `-` or `__`, in which all known lock names
/// end, and where nothing stands before it.
fn split_sequence<'a>(name: &'a str, lock_name: &str) -> Option<(&'a str, i64)> {
    let after_own_name = |split: &(&str, i64)| !lock_name.is_empty() && split.0.ends_with(lock_name);
    let short = split_number(name, 10);
    // Nearly every name is done here: without a dash in front, nothing can be a sign.
    if let Some(split) = short.filter(|split| after_own_name(split) || (split.1 >= 0 && !split.0.ends_with('-'))) {
        return Some(split);
    }
    let long = split_number(name, 11);
    let plausible = |&(prefix, sequence): &(&str, i64)| {
        sequence >= 0 || prefix.is_empty() || prefix.ends_with('-') || prefix.ends_with("__")
    };
    long.filter(after_own_name).or(long.filter(plausible)).or(short.filter(plausible))
}

fn split_number(name: &str, width: usize) -> Option<(&str, i64)> {
    let (prefix, number) = name.split_at_checked(name.len().checked_sub(width)?)?;
    Some((prefix, printed_number(number)?))
}

/// Reads a 32-bit number as Java's `%010d` prints it: padded with zeros to 10 characters, the sign included.
fn printed_number(text: &str) -> Option<i64> {
    let number: i32 = text.parse().ok()?;
    let is_printed_so = match text.len() {
        10 => !text.starts_with('+') && text.starts_with('-') == (number < 0),
        _ => number <= -1_000_000_000,
    };
    is_printed_so.then(|| i64::from(number))
}

#[cfg(test)]
mod tests;
