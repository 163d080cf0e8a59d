//! Who may do what: identities, and the checks of access control lists.

use super::code;
use crate::proto::types::Acl;

/// An identity of a connection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) scheme: String,
    pub(super) id: String,
}

impl Id {
    pub(super) fn new(scheme: &str, id: &str) -> Id {
        Id { scheme: scheme.to_owned(), id: id.to_owned() }
    }

    /// The name that `whoAmI` gives.
    pub(super) fn user(&self) -> &str {
        if self.scheme == "digest" { self.id.split(':').next().unwrap_or_default() } else { &self.id }
    }

    /// Who may do everything, as an administrator of the servers.
    pub(super) fn is_super(&self) -> bool {
        self.scheme == "super"
    }
}

/// Whether one of the identities has one of the permissions.
pub(super) fn may(acl: &[Acl], perms: i32, ids: &[Id]) -> bool {
    if acl.is_empty() || ids.iter().any(Id::is_super) {
        return true;
    }
    acl.iter().any(|entry| entry.perms & perms != 0 && applies(entry, ids))
}

fn applies(entry: &Acl, ids: &[Id]) -> bool {
    let of_scheme = |id: &&Id| id.scheme == entry.scheme;
    match entry.scheme.as_str() {
        "world" => entry.id == "anyone",
        "digest" => ids.iter().filter(of_scheme).any(|id| id.id == entry.id),
        "ip" => ids.iter().filter(of_scheme).any(|id| in_network(&id.id, &entry.id)),
        _ => false,
    }
}

/// The list as a znode keeps it: without duplicates, `auth` replaced by who the creator is.
pub(super) fn settle(acl: &[Acl], ids: &[Id]) -> Result<Vec<Acl>, i32> {
    let mut settled = Vec::new();
    for (place, entry) in acl.iter().enumerate() {
        if acl[..place].contains(entry) {
            continue;
        }
        match entry.scheme.as_str() {
            "world" if entry.id == "anyone" => settled.push(entry.clone()),
            "auth" => settled.extend(authenticated(entry.perms, ids)?),
            "digest" if has_two_parts(&entry.id) => settled.push(entry.clone()),
            "ip" if network(&entry.id).is_some() => settled.push(entry.clone()),
            _ => return Err(code::INVALID_ACL),
        }
    }
    if settled.is_empty() { Err(code::INVALID_ACL) } else { Ok(settled) }
}

fn authenticated(perms: i32, ids: &[Id]) -> Result<Vec<Acl>, i32> {
    let digests = ids.iter().filter(|id| id.scheme == "digest");
    let entries: Vec<Acl> = digests.map(|id| Acl { perms, scheme: id.scheme.clone(), id: id.id.clone() }).collect();
    if entries.is_empty() { Err(code::INVALID_ACL) } else { Ok(entries) }
}

/// As Java splits: empty parts at the end do not count.
fn has_two_parts(id: &str) -> bool {
    id.trim_end_matches(':').split(':').count() == 2
}

/// Whether the address is in the network, such as `10.0.0.0/8`.
fn in_network(address: &str, of: &str) -> bool {
    let (Some((address, _)), Some((network, bits))) = (network(address), network(of)) else { return false };
    let mask = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    address & mask == network & mask
}

fn network(text: &str) -> Option<(u32, u32)> {
    let (address, bits) = text.split_once('/').map_or((text, Some(32)), |(address, bits)| (address, bits.parse().ok()));
    let parts: Option<Vec<u8>> = address.split('.').map(|part| part.parse().ok()).collect();
    let bytes: [u8; 4] = parts?.try_into().ok()?;
    Some((u32::from_be_bytes(bytes), bits.filter(|bits| *bits <= 32)?))
}

/// What a reader without the right to administer gets to see: no hashes of passwords.
pub(super) fn without_hashes(acl: &[Acl]) -> Vec<Acl> {
    let hidden = |entry: &Acl| match entry.id.split_once(':') {
        Some((user, _)) if entry.scheme == "digest" => Acl { id: format!("{user}:x"), ..entry.clone() },
        _ => entry.clone(),
    };
    acl.iter().map(hidden).collect()
}

/// The identity of `user:password`: the user, and the hash of both.
pub(super) fn digest(credentials: &[u8]) -> Id {
    let text = String::from_utf8_lossy(credentials);
    let user = text.split(':').next().unwrap_or_default();
    Id::new("digest", &format!("{user}:{}", base64(&sha1(text.as_bytes()))))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word = (0..3).fold(0, |word, at| word << 8 | usize::from(*chunk.get(at).unwrap_or(&0)));
        let letter = |at: usize| char::from(LETTERS[word >> (18 - 6 * at) & 63]);
        text.extend((0..4).map(|at| if at > chunk.len() { '=' } else { letter(at) }));
    }
    text
}

fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded(message).chunks(64) {
        let rounds = sha1_rounds(state, &words(block));
        state.iter_mut().zip(rounds).for_each(|(word, round)| *word = word.wrapping_add(round));
    }
    let mut hash = [0; 20];
    hash.chunks_mut(4).zip(state).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_be_bytes()));
    hash
}

/// The message in whole blocks of 64 bytes, with its length in bits at the end.
fn padded(message: &[u8]) -> Vec<u8> {
    let mut bytes = [message, &[0x80]].concat();
    bytes.resize((bytes.len() + 8).next_multiple_of(64) - 8, 0);
    bytes.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    bytes
}

fn words(block: &[u8]) -> [u32; 80] {
    let mut words = [0_u32; 80];
    for at in 0..80 {
        words[at] = match block.chunks(4).nth(at) {
            Some(bytes) => u32::from_be_bytes(bytes.try_into().unwrap()),
            None => (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1),
        };
    }
    words
}

fn sha1_rounds([mut a, mut b, mut c, mut d, mut e]: [u32; 5], words: &[u32; 80]) -> [u32; 5] {
    for (round, word) in words.iter().enumerate() {
        let (mixed, constant) = match round {
            0..20 => (b & c | !b & d, 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => (b & c | b & d | c & d, 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let sum = [mixed, e, constant, *word].into_iter().fold(a.rotate_left(5), u32::wrapping_add);
        (a, b, c, d, e) = (sum, a, b.rotate_left(30), c, d);
    }
    [a, b, c, d, e]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_zookeeper_makes_of_the_credentials() {
        assert_eq!(base64(&sha1(b"abc")), "qZk+NkcGgWq6PiVxeFDCbJzQ2J0=");
        assert_eq!(digest(b"user:abc").user(), "user");
    }

    #[test]
    fn networks_hold_their_addresses() {
        assert!(in_network("127.0.0.1", "127.0.0.0/8") && in_network("127.0.0.1", "0.0.0.0/0"));
        assert!(!in_network("127.0.0.1", "127.0.0.2") && !in_network("127.0.0.1", "127.0.0.1/33"));
    }
}
