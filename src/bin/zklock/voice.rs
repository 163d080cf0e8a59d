//! Messages on standard error. No thread waits until they are read: a full pipe or a stopped terminal must not keep a
//! heartbeat, or the end of a command, from its time.

use std::{
    io::{self, Write},
    sync::OnceLock,
    thread,
    time::Duration,
};

use crossbeam_channel::{Sender, bounded, unbounded};
use nix::sys::signal::{SigSet, Signal};

/// For how long the end of the program waits until all is written, if nothing reads it. A busy machine may not run the
/// thread that writes for some hundreds of milliseconds, and why the program has failed would not be said.
const PATIENCE: Duration = Duration::from_secs(5);

enum Word {
    Text(String),
    End(Sender<()>),
}

/// `None` if no thread could be started: then the speaking thread writes.
static VOICE: OnceLock<Option<Sender<Word>>> = OnceLock::new();

fn begin() -> Option<Sender<Word>> {
    let (sender, words) = unbounded();
    let write = move || {
        // A terminal that stops the programs in its background (`stty tostop`) must not stop the heartbeats.
        let _ = SigSet::from(Signal::SIGTTOU).thread_block();
        for word in words {
            match word {
                Word::Text(text) => put(&text),
                Word::End(written) => drop(written),
            }
        }
    };
    thread::Builder::new().name("voice".into()).spawn(write).ok().map(|_| sender)
}

/// The library's errors name its methods, and these are the flags by which this program has them. A name that contains
/// another one comes first.
const FLAGS: [(&str, &str); 14] = [
    ("Builder::create_chroot(true)", "--create-chroot"),
    ("Builder::sasl()", "--sasl-user and --kerberos"),
    ("Sasl::digest()", "--sasl-user"),
    ("server_principal()", "--server-principal"),
    ("principal()", "--principal"),
    ("a keytab()", "a --keytab"),
    ("keytab()", "--keytab"),
    ("root_certificates_pem()", "--tls-ca"),
    ("client_certificate_pem()", "--tls-cert"),
    ("invalid root_certificates_pem", "invalid --tls-ca"),
    ("invalid client_certificate_pem", "invalid --tls-cert"),
    ("invalid session_timeout", "invalid --session-timeout"),
    ("authorization()", "--auth"),
    ("canonicalize_hostname()", "the servers' names in --connect"),
];

/// A text of the library's for those who know the command alone.
pub(crate) fn in_flags(text: &str) -> String {
    FLAGS.iter().fold(text.to_owned(), |text, (method, flag)| text.replace(method, flag))
}

/// A line of this program's.
pub(crate) fn say(text: impl std::fmt::Display) {
    write(format!("zklock: {}\n", in_flags(&text.to_string())));
}

/// Text as it is.
pub(crate) fn write(text: String) {
    if let Some(voice) = VOICE.get_or_init(begin) {
        // The thread listens as long as the program lives.
        let _ = voice.send(Word::Text(text));
    } else {
        put(&text);
    }
}

fn put(text: &str) {
    // A failure cannot be reported anywhere else.
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Waits a moment until all is written.
pub(crate) fn finish() {
    if let Some(Some(voice)) = VOICE.get() {
        let (written, is_written) = bounded(0);
        let _ = voice.send(Word::End(written));
        let _ = is_written.recv_timeout(PATIENCE);
    }
}
