//! The client's log on standard error.

use log::{Level, LevelFilter, Log, Metadata, Record};

use crate::voice;

struct Logger;

impl Log for Logger {
    /// `log` has looked at the level.
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let level = match record.level() {
            Level::Error => "error: ",
            Level::Warn => "warning: ",
            Level::Info | Level::Debug | Level::Trace => "",
        };
        voice::say(format_args!("{level}{}", record.args()));
    }

    fn flush(&self) {}
}

/// Warnings are shown while a command runs; a mere look has its error, which says enough.
pub(crate) fn begin(verbose: u8, is_run: bool) {
    let level = match verbose {
        0 if is_run => LevelFilter::Warn,
        0 => LevelFilter::Off,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    };
    log::set_max_level(level);
    // The only logger of this program.
    let _ = log::set_logger(&Logger);
}
