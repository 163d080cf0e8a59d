//! What the client says to those who read its log.

use std::sync::{Mutex, Once};

static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Catcher;

impl log::Log for Catcher {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        ERRORS.lock().unwrap().push(record.args().to_string());
    }

    fn flush(&self) {}
}

/// Begins to catch errors. Can be called by every test.
pub fn catch() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        log::set_logger(&Catcher).unwrap();
        log::set_max_level(log::LevelFilter::Error);
    });
}

/// Whether all of this stands in one message.
pub fn has(parts: &[&str]) -> bool {
    ERRORS.lock().unwrap().iter().any(|message| parts.iter().all(|part| message.contains(part)))
}
