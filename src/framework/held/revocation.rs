//! Requests to give a lock back, as they stand in the data of its znode.

/// The data that a request writes, the same in all languages.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// The mark between the data of a znode and a request's name and reason. Curator's holders understand only the bare
/// message.
const REQUEST_MARK: &[u8] = b"\n__REVOKE_BY__\n";

/// Data with a request behind them, in the place of an earlier one.
pub(crate) fn with_request(data: &[u8], who: &str, why: &str) -> Vec<u8> {
    let who = who.replace('\n', " ");
    [without_request(data), REQUEST_MARK, who.as_bytes(), b"\n", why.as_bytes()].concat()
}

/// The znode's data without a request.
pub(crate) fn without_request(data: &[u8]) -> &[u8] {
    mark_in(data).and_then(|at| data.get(..at)).unwrap_or(data)
}

fn mark_in(data: &[u8]) -> Option<usize> {
    data.windows(REQUEST_MARK.len()).rposition(|window| window == REQUEST_MARK)
}

/// The asker's name and the reason of the request in this data, both empty if the request does not give them.
pub(crate) fn request_in(data: &[u8]) -> Option<(String, String)> {
    if data == REVOKE_MESSAGE {
        return Some(Default::default());
    }
    let text = data.get(mark_in(data)? + REQUEST_MARK.len()..)?;
    let text = String::from_utf8_lossy(text);
    let (who, why) = text.split_once('\n').unwrap_or((&text, ""));
    Some((who.to_owned(), why.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_stands_behind_the_data_and_is_read_back() {
        for data in [&b""[..], b"host-7", b"__REVOKE__", b"a\n__REVOKE_BY__\nearlier\nreason"] {
            let asked = with_request(data, "the\noperator", "at noon\nfor an hour");
            let (who, why) = request_in(&asked).unwrap_or_default();
            assert_eq!((who.as_str(), why.as_str()), ("the operator", "at noon\nfor an hour"));
            assert_eq!(without_request(&asked), without_request(data));
            assert_ne!(asked, REVOKE_MESSAGE);
        }
        assert_eq!(request_in(b"__REVOKE__"), Some((String::new(), String::new())));
        assert_eq!(request_in(b"host-7"), None);
        assert_eq!(without_request(b"host-7"), b"host-7");
    }
}
