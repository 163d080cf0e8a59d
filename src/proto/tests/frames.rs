//! A million random and mutated frames into the codec.

use allocation_counter::measure;

use super::corpus::{KINDS, body, greeting, mutate, noise, notification, reply};
use crate::proto::{
    connect::ConnectResponse, error::ProtoError, frame::FrameBuffer, header::decode_header, response::Response,
    types::Notification,
};

pub(crate) const FRAMES: usize = 1_000_000;

/// The seed, so that a failure can be found again.
pub(crate) const SEED: u64 = 0x0005_EED0_F1CE;

/// The frame limit. Nothing that is allocated at one time, all together, may be more.
pub(crate) const LIMIT: usize = 64 * 1024;

/// The memory that a buffer takes beyond a frame: the frame's length, room to read into, and for a moment the first,
/// smaller buffer that it has grown out of.
const ROOM: usize = 4 + 4 * 1024 + 16 * 1024;

/// A message of one of the kinds there are.
fn message(rng: &mut fastrand::Rng) -> Vec<u8> {
    match rng.usize(..KINDS.len() + 3) {
        0 => notification(rng.i32(0..8), rng.i32(0..6), "/locks/one"),
        1 => greeting(),
        2 => noise(rng),
        kind => {
            let err = *rng.choice(&[0, 0, 0, -101, -112]).unwrap();
            reply(rng.i32(-9..99), rng.i64(0..99), err, &body(KINDS[kind - 3]))
        }
    }
}

fn mutated(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = message(rng);
    for _ in 0..rng.usize(..4) {
        mutate(rng, &mut bytes);
    }
    bytes
}

/// Decodes as everything there is. Gives how often that was a success.
fn decode(bytes: &[u8]) -> usize {
    let mut successes = 0;
    let body = decode_header(bytes).map_or(bytes, |(_, body)| body);
    successes += usize::from(ConnectResponse::decode(bytes).is_ok());
    successes += usize::from(Notification::decode(body).is_ok());
    successes + KINDS.iter().filter(|op_code| Response::decode(**op_code, 9, body).is_ok()).count()
}

/// Reads the stream through a buffer, in pieces of this size.
fn cut_up(buffer: &mut FrameBuffer, mut stream: &[u8], piece: usize) -> Result<usize, ProtoError> {
    let mut count = 0;
    while !stream.is_empty() {
        let space = buffer.space();
        let (now, later) = stream.split_at(stream.len().min(piece).min(space.len()));
        space[..now.len()].copy_from_slice(now);
        buffer.filled(now.len());
        stream = later;
        while let Some(frame) = buffer.next_frame()? {
            assert!(frame.len() <= LIMIT);
            count += 1;
        }
    }
    Ok(count)
}

mod slow {
    use super::*;

    #[test]
    fn a_million_random_and_mutated_frames_into_the_codec_do_no_harm() {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let (mut most, mut decoded) = (0, 0);
        for number in 0..FRAMES {
            let bytes = mutated(&mut rng);
            let mut successes = 0;
            let used = measure(|| successes = decode(&bytes)).bytes_max;
            // A result of a multi takes 9 bytes on the wire and about 100 in memory, in a vector that doubles.
            let most_allowed = (32 * bytes.len() + 512).min(LIMIT);
            assert!(used <= most_allowed as u64, "frame {number} of seed {SEED:#x}: {used} bytes for {bytes:x?}");
            most = most.max(used);
            decoded += usize::from(successes > 0);
        }
        println!("codec: seed: {SEED:#x}");
        println!("codec: frames, and how many of them meant something: {:?}", (FRAMES, decoded));
        println!("codec: most bytes allocated at one time: {most:?}");
        assert!(decoded > FRAMES / 10 && decoded < FRAMES, "{decoded} frames meant something");
    }

    /// Frames in a stream, cut anywhere, with lengths that may say anything.
    #[test]
    fn a_million_frames_in_a_broken_stream_do_no_harm() {
        let mut rng = fastrand::Rng::with_seed(SEED);
        let (mut most, mut passed, mut refused) = (0, 0, 0);
        while passed < FRAMES {
            let mut buffer = FrameBuffer::new(LIMIT);
            let mut stream = Vec::new();
            for _ in 0..rng.usize(1..40) {
                let bytes = message(&mut rng);
                let mut length = i32::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
                if rng.u8(..60) == 0 {
                    mutate(&mut rng, &mut length);
                }
                stream.extend(length);
                stream.extend(bytes);
            }
            let piece = rng.usize(16..5000);
            let used = measure(|| match cut_up(&mut buffer, &stream, piece) {
                Ok(count) => passed += count,
                Err(error) => {
                    assert!(matches!(error, ProtoError::FrameTooLarge { .. } | ProtoError::NegativeLength { .. }));
                    refused += 1;
                }
            });
            assert!(used.bytes_max <= (LIMIT + ROOM) as u64, "seed {SEED:#x}: {} bytes", used.bytes_max);
            most = most.max(used.bytes_max);
        }
        println!("stream: frames passed, connections refused: {:?}", (passed, refused));
        println!("stream: most bytes allocated at one time, beside the limit: {:?}", (most, LIMIT));
        assert!(refused > 1000);
    }
}
