//! The keys of `zklock top`, as a terminal sends them.

use std::io::{ErrorKind, Read};

const ESCAPE: u8 = 0x1b;

/// No key sends more.
const LONGEST: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Look,
    Sort,
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
}

/// Tells each key until the terminal is gone or nobody listens.
pub(super) fn read(mut terminal: impl Read, mut tell: impl FnMut(Key) -> bool) {
    let (mut keys, mut bytes) = (Keys::default(), [0; 256]);
    loop {
        match terminal.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return,
            Ok(count) => {
                let mut typed = bytes.iter().take(count).filter_map(|byte| keys.push(*byte));
                if !typed.all(&mut tell) {
                    return;
                }
            }
        }
    }
}

/// The begin of a key's sequence, whose rest is still to come.
#[derive(Default)]
struct Keys(Vec<u8>);

impl Keys {
    fn push(&mut self, byte: u8) -> Option<Key> {
        match (self.0.as_slice(), byte) {
            ([], ESCAPE) | ([ESCAPE], b'[' | b'O') => self.begin_or_go_on(byte),
            ([ESCAPE, b'[', ..], b'0'..=b'9' | b';') if self.0.len() < LONGEST => self.begin_or_go_on(byte),
            ([ESCAPE, _, number @ ..], last) => {
                let key = sequence(number, last);
                self.0.clear();
                key
            }
            ([ESCAPE], ESCAPE) => None,
            // An escape by itself means nothing, and what follows it is a key of its own.
            _ => {
                self.0.clear();
                plain(byte)
            }
        }
    }

    fn begin_or_go_on(&mut self, byte: u8) -> Option<Key> {
        self.0.push(byte);
        None
    }
}

fn plain(byte: u8) -> Option<Key> {
    match byte {
        b'q' | b'Q' => Some(Key::Quit),
        b' ' => Some(Key::Look),
        b's' => Some(Key::Sort),
        b'k' => Some(Key::Up),
        b'j' => Some(Key::Down),
        b'g' => Some(Key::First),
        b'G' => Some(Key::Last),
        _ => None,
    }
}

/// A key that has no letter: `ESC [ A`, `ESC O A` or `ESC [ 5 ~`.
fn sequence(number: &[u8], last: u8) -> Option<Key> {
    match (number, last) {
        (_, b'A') => Some(Key::Up),
        (_, b'B') => Some(Key::Down),
        (_, b'H') | (b"1" | b"7", b'~') => Some(Key::First),
        (_, b'F') | (b"4" | b"8", b'~') => Some(Key::Last),
        (b"5", b'~') => Some(Key::PageUp),
        (b"6", b'~') => Some(Key::PageDown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(typed: &str) -> Vec<Key> {
        let mut keys = Vec::new();
        read(typed.as_bytes(), |key| {
            keys.push(key);
            true
        });
        keys
    }

    #[test]
    fn letters_and_sequences_are_keys_and_all_else_is_none() {
        assert_eq!(keys("jk sq"), [Key::Down, Key::Up, Key::Look, Key::Sort, Key::Quit]);
        assert_eq!(keys("\x1b[A\x1bOB\x1b[5~\x1b[6~"), [Key::Up, Key::Down, Key::PageUp, Key::PageDown]);
        assert_eq!(keys("\x1b[H\x1b[4~gG"), [Key::First, Key::Last, Key::First, Key::Last]);
        assert_eq!(keys("\x1bq\x1b\x1b[B"), [Key::Quit, Key::Down], "an escape by itself");
        assert_eq!(keys("xyz\x1b[15~\x1b[1;5Q\u{fc}"), []);
        assert_eq!(keys(&format!("\x1b[{}j", "1".repeat(1000))).last(), Some(&Key::Down));
    }

    #[test]
    fn nothing_is_read_any_more_where_nobody_listens() {
        let mut told = 0;
        read(&b"jjj"[..], |_| {
            told += 1;
            false
        });
        assert_eq!(told, 1);
    }
}
