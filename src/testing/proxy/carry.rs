//! The threads of one connection.
//!
//! There are two for each direction: one reads pieces and decides what becomes of them, the other does it when the time
//! has come. So a delay or a black hole never keeps bytes from being read.

use std::{
    io,
    net::{Shutdown, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, Scope},
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{
    connection::{Direction, Ending, OpenRequest, Proxied},
    dialect::{self, OwnAnswer},
    frame::{self, Piece, PieceReader},
    relay::Relay,
    rule::{Fault, Rule},
};

/// The number that replies to no request carry: notifications of watches.
const NOTIFICATION: i32 = -1;

/// Something on its way, and when it is to be delivered.
#[derive(Debug)]
struct Parcel {
    due: Instant,
    content: Content,
}

#[derive(Debug)]
enum Content {
    /// With what is to be done to it.
    Piece(Piece, Option<Treatment>),
    End(Ending),
}

/// What is done to a request or a reply.
#[derive(Debug)]
enum Treatment {
    /// A test's fault.
    Fault(Arc<Rule>),
    /// The connection ends, instead of this piece or behind it.
    HangUp { instead: bool },
}

/// Carries a new client's bytes, until both sides have closed or the connection is ended.
pub(super) fn begin(relay: &Arc<Relay>, client: TcpStream) {
    let Ok(connection) = relay.add_connection(client) else { return };
    let number = connection.number;
    let this = Arc::clone(relay);
    let thread = thread::Builder::new().name(format!("fault-proxy-{number}")).spawn(move || {
        if let Err(error) = carry(&this, &connection) {
            log::debug!("fault proxy: connection {number}: {error}");
        }
        drop(connection);
        this.forget(number);
    });
    if let Err(error) = thread {
        log::warn!("fault proxy: no thread for connection {number}: {error}");
        relay.forget(number);
    }
}

fn carry(relay: &Relay, connection: &Proxied) -> io::Result<()> {
    let client_gone = AtomicBool::new(false);
    thread::scope(|scope| {
        let carried = spawn_all(scope, relay, connection, &client_gone);
        if carried.is_err() {
            // Also wakes those threads that there are.
            relay.change(|_| connection.end(Ending::Reset));
        }
        carried
    })
}

fn spawn_all<'scope>(
    scope: &'scope Scope<'scope, '_>,
    relay: &'scope Relay,
    connection: &'scope Proxied,
    client_gone: &'scope AtomicBool,
) -> io::Result<()> {
    let (outgoing, requests) = unbounded();
    let (incoming, replies) = unbounded();
    spawn(scope, move || {
        let ending = collect(relay, connection, Direction::ToServer, &outgoing);
        client_gone.store(true, Ordering::SeqCst);
        // `connect` may wait for it.
        relay.change(|_| ());
        send(relay, &outgoing, Content::End(ending));
    })?;
    relay.connect(connection, client_gone)?;
    spawn(scope, move || {
        let ending = collect(relay, connection, Direction::ToClient, &incoming);
        send(relay, &incoming, Content::End(ending));
    })?;
    spawn(scope, move || deliver(relay, connection, Direction::ToClient, replies))?;
    spawn(scope, move || deliver(relay, connection, Direction::ToServer, requests))
}

fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) -> io::Result<()> {
    thread::Builder::new().name("fault-proxy-carry".into()).spawn_scoped(scope, work).map(drop)
}

/// Reads until the end of the stream, or until nobody delivers any more. Gives the way it ended.
fn collect(relay: &Relay, connection: &Proxied, direction: Direction, delivery: &Sender<Parcel>) -> Ending {
    let Ok(mut source) = connection.source(direction) else { return Ending::Reset };
    let mut reader = PieceReader::new(relay.framed);
    let mut handshake = true;
    loop {
        let piece = match reader.next(&mut source) {
            Ok(Some(Piece::Frame(frame))) if handshake && direction == Direction::ToServer => {
                Piece::Frame(dialect::handshake(relay.dialect, frame))
            }
            Ok(Some(piece)) => piece,
            Ok(None) => return Ending::Fin,
            Err(_) => return Ending::Reset,
        };
        let (piece, treatment) = match piece {
            Piece::Frame(frame) if !handshake => examine(relay, connection, direction, frame),
            piece => (piece, None),
        };
        handshake = false;
        if !send(relay, delivery, Content::Piece(piece, treatment)) {
            return Ending::Fin;
        }
    }
}

/// `false`: nobody delivers any more.
fn send(relay: &Relay, delivery: &Sender<Parcel>, content: Content) -> bool {
    delivery.send(Parcel { due: relay.due(), content }).is_ok()
}

/// Logs the request or reply. Gives the frame that goes on in its place, and what is to be done to that.
fn examine(relay: &Relay, connection: &Proxied, direction: Direction, frame: Vec<u8>) -> (Piece, Option<Treatment>) {
    let examined = match direction {
        Direction::ToClient => examine_reply(relay, connection, &frame),
        Direction::ToServer | Direction::Both => examine_request(relay, connection, &frame),
    };
    let (own, treatment) = examined.unwrap_or_default();
    (Piece::Frame(own.unwrap_or(frame)), treatment)
}

type Examined = (Option<Vec<u8>>, Option<Treatment>);

fn examine_reply(relay: &Relay, connection: &Proxied, frame: &[u8]) -> Option<Examined> {
    let (xid, error) = frame::reply(frame).filter(|(xid, _)| *xid != NOTIFICATION)?;
    let OpenRequest { place, rule, own, .. } = connection.take_reply(xid)?;
    let refusal = rule.as_ref().and_then(|rule| rule.fault.refusal()).or(own.map(OwnAnswer::code));
    relay.state.lock().log.replied(place, refusal.unwrap_or(error));
    let hang_up = || own.filter(|own| own.hangs_up()).map(|_| Treatment::HangUp { instead: false });
    Some((own.map(|own| own.reply(frame)), rule.map(Treatment::Fault).or_else(hang_up)))
}

fn examine_request(relay: &Relay, connection: &Proxied, frame: &[u8]) -> Option<Examined> {
    let request = frame::request(frame)?;
    let (place, rule) = relay.record(connection, &request);
    let own = OwnAnswer::to(relay.dialect, &request, frame);
    let of_reply = rule.clone().filter(|rule| rule.fault.is_of_reply());
    connection.await_reply(OpenRequest { xid: request.xid, place, rule: of_reply, own });
    let hang_up = || own.filter(|own| own.is_none()).map(|_| Treatment::HangUp { instead: true });
    let of_request = rule.filter(|rule| rule.fault.is_of_request()).map(Treatment::Fault);
    // The server is asked something harmless instead, so that the reply comes in its turn.
    Some((own.map(|_| frame::harmless(frame)), of_request.or_else(hang_up)))
}

/// Delivers each piece at its time, until the end of the stream or of the connection. A failing write is not the end: the
/// thread that reads from that side finds out what has become of it.
fn deliver(relay: &Relay, connection: &Proxied, direction: Direction, parcels: Receiver<Parcel>) {
    for Parcel { due, content } in parcels {
        if !relay.await_delivery(connection, direction, due) {
            return;
        }
        let delivered = match content {
            Content::Piece(piece, None) => connection.write(direction, piece.bytes()),
            Content::Piece(piece, Some(Treatment::Fault(rule))) => {
                deliver_faulty(relay, connection, direction, &piece, &rule)
            }
            Content::Piece(piece, Some(Treatment::HangUp { instead })) => {
                let written = if instead { Ok(()) } else { connection.write(direction, piece.bytes()) };
                relay.change(|_| connection.end(Ending::Fin));
                written
            }
            Content::End(Ending::Fin) => connection.sink(direction).and_then(|sink| sink.shutdown(Shutdown::Write)),
            Content::End(Ending::Reset) => {
                relay.change(|_| connection.end(Ending::Reset));
                return;
            }
        };
        if delivered.is_err() {
            return;
        }
    }
}

fn deliver_faulty(
    relay: &Relay,
    connection: &Proxied,
    direction: Direction,
    piece: &Piece,
    rule: &Rule,
) -> io::Result<()> {
    match rule.fault {
        Fault::DropRequest | Fault::DropReply => relay.change(|_| rule.hit()),
        Fault::CutInsteadOfRequest | Fault::CutInsteadOfReply => relay.cut(connection, rule),
        Fault::CutAfterRequest => {
            connection.write(direction, piece.bytes())?;
            relay.cut(connection, rule);
        }
        Fault::HoldRequest | Fault::HoldReply => {
            relay.change(|_| rule.hit());
            relay.await_release(connection, rule);
            connection.write(direction, piece.bytes())?;
        }
        // The server is asked something harmless instead, so that the reply comes in its turn.
        Fault::Refuse(_) if direction == Direction::ToServer => {
            connection.write(direction, &frame::harmless(piece.bytes()))?;
        }
        Fault::Refuse(code) => {
            relay.change(|_| rule.hit());
            connection.write(direction, &frame::refusal(piece.bytes(), code))?;
        }
    }
    Ok(())
}
