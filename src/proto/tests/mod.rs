//! Every message byte by byte, as a ZooKeeper 3.8 server took or sent it, and what happens to messages gone wrong.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic)]

pub(crate) mod corpus;
pub(crate) mod frames;
mod hostile;
mod peer;
mod replies;
mod requests;

/// Bytes from hex digits; blanks separate the fields.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}
