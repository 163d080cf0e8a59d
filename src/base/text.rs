//! The data of a znode as a person reads them.

/// Longer data are cut.
const LONGEST: usize = 48;

/// Data on one line, in which nothing moves the cursor.
pub(crate) fn legible(data: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(data).trim().chars().flat_map(char::escape_debug).collect();
    cut(&text, LONGEST)
}

/// The text, or its begin with dots.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some(_) => text.chars().take(most.saturating_sub(3)).chain("...".chars()).take(most).collect(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stand_on_one_line_and_are_cut_with_dots() {
        assert_eq!(legible(b" host-17\n"), "host-17");
        assert_eq!(legible(b"a\nb\x1b[2J\xff"), "a\\nb\\u{1b}[2J\u{fffd}");
        let long = legible("\u{fc}".repeat(49).as_bytes());
        assert_eq!((long.chars().count(), long.ends_with("\u{fc}...")), (LONGEST, true));
        assert_eq!(cut("abcd", 4), "abcd");
        assert_eq!(["a...", "...", ".."], [4, 3, 2].map(|most| cut("abcde", most)));
    }
}
