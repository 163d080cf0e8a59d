//! The number that storage checks.

use std::{fmt, str::FromStr};

use crate::error::Error;

/// A number that tells an earlier holder of a lock from a later one, over all processes.
///
/// Each grant's token is larger than those of all earlier grants that [exclude it](crate::Hold::fencing_token). Hand it
/// to the storage that the lock protects, and have that refuse a smaller number than it has seen before: then a holder
/// that was paused for too long does no harm. The token is the transaction id in which the lock's znode was created
/// (czxid), so it keeps growing when the lock's directory was removed and made anew, which restarts the sequence
/// numbers. The storage's side is a [`FencingChecker`](crate::FencingChecker); [the chapter on
/// guarantees](crate::docs::guarantees#fencing) has an example.
/// With [`Caching`](crate::Caching) one znode serves many grants. There the token has a second part, the number of the
/// [grant](FencingToken::grant), and storage has to compare both: [`value`](FencingToken::value) alone does not tell two
/// threads of one process apart. So has the token of an [upgradable lock](crate::InterProcessUpgradableLock), or of its upgrade,
/// that is granted while a writer waits behind it: it lies between the number before that writer's znode and the writer's.
/// What is said of caching below holds for it, too.
///
/// # Forms
/// | form | without caching | with caching | sorts |
/// |---|---|---|---|
/// | [`value`](FencingToken::value) | the number | the first part | without caching |
/// | [`to_bytes`](FencingToken::to_bytes) | 16 bytes, big-endian | the same | always |
/// | `Display` and `FromStr` | the plain number | both parts, each at full width | as text with caching; as a number without |
///
/// ```
/// # curator_locks::docs::example(|client| {
/// # use curator_locks::FencingToken;
/// # fn write_to_storage(_: FencingToken) {}
/// # let mutex = &curator_locks::InterProcessMutex::new(client, "/example")?;
/// let held = mutex.lock()?;
/// write_to_storage(held.fencing_token());
/// held.release()?;
/// # Ok(()) });
/// ```
///
/// On its way to the storage and there:
///
/// ```
/// use curator_locks::FencingToken;
///
/// let (early, late) = (FencingToken::from_value(7), FencingToken::from_value(12));
/// assert!(early < late && early.to_bytes() < late.to_bytes());
/// assert_eq!(FencingToken::from_bytes(late.to_bytes()), late);
/// assert_eq!((late.value(), late.grant()), (12, 0)); // no caching: the first part is all
/// assert_eq!("12".parse::<FencingToken>()?, late);
/// # Ok::<(), curator_locks::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken {
    czxid: i64,
    /// Counted from 1 in each tenure; 0 without caching. From 2^63 on it lies between the znode with this czxid and the next.
    grant: u64,
}

impl FencingToken {
    pub(crate) fn of_grant(czxid: i64, grant: u64) -> Self {
        FencingToken { czxid, grant }
    }

    /// A token that came as a number, for instance over the network to the storage.
    #[must_use]
    pub fn from_value(value: i64) -> FencingToken {
        FencingToken { czxid: value, grant: 0 }
    }

    /// The number as such; with caching the first part of the token, which many grants share.
    #[must_use]
    pub fn value(self) -> i64 {
        self.czxid
    }

    /// Which grant of its znode it is, counted from 1; 0 without [`Caching`](crate::Caching). Of an [upgradable
    /// lock](crate::InterProcessUpgradableLock) any number.
    #[must_use]
    pub fn grant(self) -> u64 {
        self.grant
    }

    /// Both parts, big-endian, so that the bytes sort as the tokens do.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        // Transaction ids are positive.
        ((u128::from(self.czxid.cast_unsigned()) << 64) | u128::from(self.grant)).to_be_bytes()
    }

    /// The token that [`to_bytes`](FencingToken::to_bytes) made these of.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 16]) -> FencingToken {
        let both = u128::from_be_bytes(bytes);
        let low = |part: u128| u64::try_from(part & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        FencingToken { czxid: low(both >> 64).cast_signed(), grant: low(both) }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.grant {
            0 => self.czxid.fmt(f),
            grant => f.pad(&format!("{:019}.{grant:020}", self.czxid)),
        }
    }
}

impl FromStr for FencingToken {
    type Err = Error;

    /// Reads what `Display` wrote.
    fn from_str(text: &str) -> Result<FencingToken, Error> {
        let (czxid, grant) = text.split_once('.').map_or((text, Some(0)), |(czxid, grant)| (czxid, grant.parse().ok()));
        match (czxid.parse(), grant) {
            (Ok(czxid), Some(grant)) => Ok(FencingToken { czxid, grant }),
            _ => {
                let rule = "a number, or two with a dot in between".into();
                Err(Error::InvalidArgument { name: "token", value: text.to_owned(), rule })
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The tokens, in their order.
    fn tokens() -> Vec<FencingToken> {
        let of = FencingToken::of_grant;
        vec![
            of(7, 0),
            of(7, 1),
            of(7, 2),
            of(7, 10),
            of(8, 1),
            of(12, 0),
            of(12, 300),
            of(i64::MAX, 1),
            of(i64::MAX, u64::MAX),
        ]
    }

    #[test]
    fn the_bytes_sort_as_the_tokens_do() {
        let tokens = tokens();
        assert!(tokens.is_sorted());
        assert!(tokens.iter().map(|token| token.to_bytes()).is_sorted());
        assert!(tokens.iter().all(|token| FencingToken::from_bytes(token.to_bytes()) == *token));
    }

    #[test]
    fn without_caching_the_text_is_the_plain_number() {
        let token = FencingToken::from_value(42);
        assert_eq!((token.to_string().as_str(), token.value(), token.grant()), ("42", 42, 0));
        assert_eq!(format!("{token:>5}"), "   42");
    }

    #[test]
    fn with_caching_the_text_sorts_as_the_tokens_do() {
        let cached: Vec<_> = tokens().into_iter().filter(|token| token.grant() > 0).collect();
        assert!(cached.iter().map(ToString::to_string).is_sorted());
        let first = cached.first().map(ToString::to_string);
        assert_eq!(first.as_deref(), Some("0000000000000000007.00000000000000000001"));
    }

    #[test]
    fn the_text_is_read_back() {
        for token in tokens() {
            assert_eq!(token.to_string().parse::<FencingToken>().unwrap(), token);
        }
        for text in ["", "x", "7.", ".7", "7.8.9", "7,8", "99999999999999999999"] {
            assert!(
                matches!(text.parse::<FencingToken>(), Err(Error::InvalidArgument { name: "token", .. })),
                "{text}"
            );
        }
    }
}
