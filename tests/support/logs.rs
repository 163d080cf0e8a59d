//! Catches everything that is logged in this process, and looks for secrets in it.

use std::{
    fmt::Write,
    sync::{Mutex, OnceLock},
};

/// What was logged so far, of every level and target.
static LOGGED: Mutex<String> = Mutex::new(String::new());

struct Catcher;

impl log::Log for Catcher {
    fn enabled(&self, _metadata: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let mut logged = LOGGED.lock().unwrap();
        writeln!(logged, "{} {}: {}", record.level(), record.target(), record.args()).unwrap();
    }

    fn flush(&self) {}
}

/// Begins to catch, up to this level. Can be called by every test, with one level in each binary.
pub fn catch_logs(level: log::LevelFilter) {
    static BEGUN: OnceLock<()> = OnceLock::new();
    BEGUN.get_or_init(|| {
        log::set_logger(&Catcher).unwrap();
        log::set_max_level(level);
    });
}

pub fn logged() -> String {
    LOGGED.lock().unwrap().clone()
}

/// Whether all of this stands in one line.
pub fn has_logged(parts: &[&str]) -> bool {
    LOGGED.lock().unwrap().lines().any(|line| parts.iter().all(|part| line.contains(part)))
}

/// In which of its usual forms a secret stands in the text: as it is, in hexadecimal, as a list of numbers.
pub fn found_in(text: &str, secret: &[u8]) -> Vec<&'static str> {
    assert!(secret.len() >= 8, "too short to be looked for");
    let list =
        |separator: &str, number: fn(&u8) -> String| secret.iter().map(number).collect::<Vec<_>>().join(separator);
    let lower = text.to_lowercase();
    let signed: fn(&u8) -> String = |byte| i8::from_ne_bytes([*byte]).to_string();
    let forms = [
        ("raw bytes", text.contains(&*String::from_utf8_lossy(secret))),
        ("escaped", lower.contains(&secret.escape_ascii().to_string().to_lowercase())),
        (
            "escaped by Debug",
            lower.contains(&String::from_utf8_lossy(secret).escape_debug().to_string().to_lowercase()),
        ),
        ("hexadecimal", lower.contains(&list("", |byte| format!("{byte:02x}")))),
        ("spaced hexadecimal", lower.contains(&list(" ", |byte| format!("{byte:02x}")))),
        ("hexadecimal list", lower.contains(&list(", ", |byte| format!("{byte:x}")))),
        ("prefixed hexadecimal list", lower.contains(&list(", ", |byte| format!("0x{byte:02x}")))),
        ("decimal list", text.contains(&list(", ", ToString::to_string))),
        ("dense decimal list", text.contains(&list(",", ToString::to_string))),
        // `{:#?}` puts each number on a line of its own.
        ("decimal lines", text.split_whitespace().collect::<String>().contains(&list(",", ToString::to_string))),
        ("signed list", text.contains(&list(", ", signed))),
    ];
    forms.into_iter().filter(|(_, found)| *found).map(|(form, _)| form).collect()
}
