//! The names in the directory of ZooKeeper's own lock recipe, and their order.

use std::{cmp::Ordering, fmt};

/// The name of a contender's znode, in the order of the queue. Java: `ZNodeName` of ZooKeeper's lock recipe.
///
/// The text after the last `-` is the sequence number, a minus sign included; smaller numbers come first, then smaller
/// prefixes. A name without a number comes after all names with one. The whole name decides last, which Java leaves
/// undecided.
///
/// ```
/// use curator_locks::zookeeper_recipe::ZNodeName;
///
/// let first = ZNodeName::new("x-105-0000000002");
/// assert_eq!((first.prefix(), first.sequence()), ("x-105", Some(2)));
/// assert!(first < ZNodeName::new("x-104-0000000003"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ZNodeName {
    name: String,
    prefix_length: usize,
    sequence: Option<i32>,
}

impl ZNodeName {
    /// Takes a name, or a path, apart.
    #[must_use]
    pub fn new(name: impl Into<String>) -> ZNodeName {
        let name = name.into();
        let (prefix_length, sequence) = match name.rfind('-') {
            None => (name.len(), None),
            Some(dash) => {
                // A second dash in front of it is a separator, and this one a sign.
                let is_sign = name.get(..dash).is_some_and(|before| before.ends_with('-'));
                let end = if is_sign { dash - 1 } else { dash };
                (end, name.get(end + 1..).and_then(|number| number.parse().ok()))
            }
        };
        ZNodeName { name, prefix_length, sequence }
    }

    /// The whole name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The part in front of the sequence number, without the `-` between them.
    #[must_use]
    pub fn prefix(&self) -> &str {
        self.name.get(..self.prefix_length).unwrap_or_default()
    }

    /// The number that the server appended; `None` if the name ends in none.
    #[must_use]
    pub fn sequence(&self) -> Option<i32> {
        self.sequence
    }

    fn key(&self) -> (bool, Option<i32>, &str, &str) {
        (self.sequence.is_none(), self.sequence, self.prefix(), &self.name)
    }
}

impl Ord for ZNodeName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for ZNodeName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ZNodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart_as_in_java() {
        #[rustfmt::skip]
        let table = [
            ("x-105-0000000002",           "x-105",         Some(2)),
            ("/dir/x--105-0000000002",     "/dir/x--105",   Some(2)),
            ("x-105--000000007",           "x-105",         Some(-7)),
            ("x-105-2147483647",           "x-105",         Some(i32::MAX)),
            ("x-105--2147483648",          "x-105",         Some(i32::MIN)),
            ("x-105-2147483648",           "x-105",         None),
            ("x-105-abc",                  "x-105",         None),
            ("x-105-",                     "x-105",         None),
            ("lock",                       "lock",          None),
            ("-5",                         "",              Some(5)),
            ("--5",                        "",              Some(-5)),
            ("",                           "",              None),
        ];
        for (name, prefix, sequence) in table {
            let name = ZNodeName::new(name);
            assert_eq!((name.prefix(), name.sequence()), (prefix, sequence), "{name}");
        }
    }

    /// Before ZOOKEEPER-2931 ZooKeeper's own recipe put the smaller session first.
    #[test]
    fn a_later_contender_of_a_smaller_session_does_not_come_first() {
        let [holder, later] = ["x-9-0000000001", "x-1-0000000002"].map(ZNodeName::new);
        assert!(holder < later);
        assert!(later.prefix() < holder.prefix(), "the order before that ticket");
    }

    #[test]
    fn the_order_is_by_signed_number_then_by_prefix_and_names_without_number_come_last() {
        let sorted =
            ["z-1--2147483648", "y-1--000000001", "x-2-0000000001", "a-3-0000000002", "b-3-0000000002", "a", "b"];
        for (i, one) in sorted.iter().enumerate() {
            for (k, two) in sorted.iter().enumerate() {
                assert_eq!(ZNodeName::new(*one).cmp(&ZNodeName::new(*two)), i.cmp(&k), "{one} and {two}");
            }
        }
    }
}
