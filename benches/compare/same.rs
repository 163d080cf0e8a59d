//! Whether the bare socket sends what this crate sends: else it would be no limit.

use crate::{
    peer::{Kind, Peer},
    relay::Relay,
    run::Run,
    sides::Outcome,
};

/// A lock, and how many requests a cycle of it has.
const IMITATIONS: [(&str, usize); 6] =
    [("mutex", 3), ("unfair", 2), ("read", 3), ("write", 3), ("semaphore", 4), ("semaphore_mutex", 4)];

pub fn check(run: &Run) -> Outcome<()> {
    let relay = Relay::start(run.server.port(), true)?;
    let mut ours = Peer::start(Kind::CuratorLocks, &relay.address)?;
    let mut bare = Peer::start(Kind::BareSocket, &relay.address)?;
    for (lock, requests) in IMITATIONS {
        let cycle_of = |peer: &mut Peer| -> Outcome<Vec<Vec<u8>>> {
            let command = format!("cycles {lock} /same/{lock} 1");
            // The first time makes directories.
            peer.ask(&command)?;
            relay.take_sent();
            peer.ask(&command)?;
            let frames = frames(&relay.take_sent());
            Ok(frames[frames.len().saturating_sub(requests)..].to_vec())
        };
        let (ours, bare) = (cycle_of(&mut ours)?, cycle_of(&mut bare)?);
        if ours != bare {
            let text = |frames: &[Vec<u8>]| {
                frames.iter().map(|frame| String::from_utf8_lossy(frame).into_owned()).collect::<Vec<_>>()
            };
            return Err(format!("{lock}: {:?} is not what is sent: {:?}", text(&bare), text(&ours)).into());
        }
    }
    Ok(())
}

/// The requests, without xid, and with zeros for what is never twice the same.
fn frames(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    const HANDSHAKE: usize = 45;
    let mut frames = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let Some((frame, rest)) = rest.split_at_checked(u32::from_be_bytes(*length) as usize) else { break };
        bytes = rest;
        let Some((_, request)) = frame.split_at_checked(4) else { continue };
        let operation = request.first_chunk().map(|code| i32::from_be_bytes(*code));
        // Heartbeats, and what opens and closes a session.
        if !matches!(operation, Some(9 | 11 | -11)) && frame.len() != HANDSHAKE {
            frames.push(masked(request));
        }
    }
    frames
}

/// Hexadecimal digits become zeros where a uuid or a sequence number stands.
fn masked(request: &[u8]) -> Vec<u8> {
    let mut masked = request.to_vec();
    let is_uuid = |part: &[u8]| {
        part.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
    };
    for start in 0..masked.len() {
        for (length, matches) in
            [(36, &is_uuid as &dyn Fn(&[u8]) -> bool), (10, &|part| part.iter().all(u8::is_ascii_digit))]
        {
            if let Some(part) = masked.get_mut(start..start + length).filter(|part| matches(part)) {
                part.iter_mut().filter(|byte| byte.is_ascii_hexdigit()).for_each(|byte| *byte = b'0');
            }
        }
    }
    masked
}
