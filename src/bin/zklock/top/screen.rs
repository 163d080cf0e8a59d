//! The terminal while `zklock top` has it, and the way back.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    panic,
    sync::Once,
};

use nix::unistd::{getppid, getsid};
use parking_lot::Mutex;
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios, tcflush, tcgetattr,
    tcgetwinsize, tcsetattr,
};
use signal_hook::{consts::SIGTSTP, low_level::emulate_default_handler};

use crate::failure::{Result, cannot};

/// The alternate screen, no cursor, and long lines cut at its edge.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// A frame is shown as one, by terminals that know how. In front of each line its old one is taken away: behind it, the cursor
/// stands on the last character of a line that reaches the edge.
const BEGIN_OF_FRAME: &str = "\x1b[?2026h\x1b[H";
const END_OF_FRAME: &str = "\x1b[?2026l";
const CLEAR_LINE: &str = "\x1b[2K";

/// Where a terminal does not know its size.
const USUAL: (usize, usize) = (80, 24);

/// The terminal to give back, and its modes before. Not in the [`Screen`], as a thread that panics has to find it.
static TAKEN: Mutex<Option<(File, Termios)>> = Mutex::new(None);

/// The terminal, which is given back when this is dropped, and in front of a panic's message.
pub(super) struct Screen {
    terminal: File,
}

impl Screen {
    pub(super) fn enter() -> Result<Screen> {
        let terminal = io::stdout().as_fd().try_clone_to_owned().map_err(cannot("use the terminal"))?;
        Screen::on(terminal.into())
    }

    fn on(terminal: File) -> Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                give_back();
                usual(panic);
            }));
        });
        let screen = Screen { terminal };
        screen.take()?;
        Ok(screen)
    }

    /// Takes the terminal, unless this program has it; then it only sets the modes again, which a shell may have changed.
    pub(super) fn take(&self) -> Result<()> {
        let before = tcgetattr(&self.terminal).map_err(cannot("read the terminal's modes"))?;
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        // Ctrl-S would keep this program from its next line, and so from its end.
        modes.input_modes -= InputModes::IXON;
        modes.special_codes[SpecialCodeIndex::VMIN] = 1;
        modes.special_codes[SpecialCodeIndex::VTIME] = 0;
        {
            let mut taken = TAKEN.lock();
            if taken.is_none() {
                let terminal = self.terminal.try_clone().map_err(cannot("use the terminal"))?;
                *taken = Some((terminal, before));
            }
        }
        tcsetattr(&self.terminal, OptionalActions::Now, &modes).map_err(cannot("set the terminal's modes"))?;
        self.write(ENTER)
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (usize, usize) {
        match tcgetwinsize(&self.terminal) {
            Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
            _ => USUAL,
        }
    }

    /// Shows a line for each row.
    pub(super) fn draw(&self, lines: &[String]) -> Result<()> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{CLEAR_LINE}{line}")).collect();
        self.write(&format!("{BEGIN_OF_FRAME}{}{END_OF_FRAME}", lines.join("\r\n")))
    }

    /// Stops, as Ctrl-Z asks for, with the terminal as it was; and takes it again once this program goes on.
    pub(super) fn suspend(&self) -> Result<()> {
        // Where no shell of this terminal is the parent, nobody would have it go on.
        if getsid(Some(getppid())) != getsid(None) {
            return Ok(());
        }
        give_back();
        emulate_default_handler(SIGTSTP).map_err(cannot("stop"))?;
        self.take()
    }

    fn write(&self, text: &str) -> Result<()> {
        (&self.terminal).write_all(text.as_bytes()).map_err(cannot("write to the terminal"))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Throws away what the terminal has not taken, so that a thread that waits for that goes on.
pub(super) fn drop_output() {
    let terminal = TAKEN.lock().as_ref().and_then(|(terminal, _)| terminal.try_clone().ok());
    // It may be gone.
    let _ = terminal.map(|terminal| tcflush(&terminal, QueueSelector::OFlush));
}

/// Gives back what can be given back without a write.
pub(super) fn restore_modes() {
    let taken = TAKEN.lock().take();
    let _ = taken.map(|(terminal, before)| tcsetattr(&terminal, OptionalActions::Now, &before));
}

fn give_back() {
    let taken = TAKEN.lock().take();
    if let Some((mut terminal, before)) = taken {
        // It may be gone.
        let _ = terminal.write_all(LEAVE.as_bytes());
        let _ = tcsetattr(&terminal, OptionalActions::Now, &before);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::{io::Read, thread};

    use nix::pty::openpty;

    use super::*;

    #[test]
    fn a_panic_of_any_thread_gives_the_terminal_back_before_it_is_told() {
        let pty = openpty(None, None).unwrap();
        let (mut shown, terminal) = (File::from(pty.master), File::from(pty.slave));
        let echoes = |terminal: &File| tcgetattr(terminal).unwrap().local_modes.contains(LocalModes::ECHO);
        let seen = terminal.try_clone().unwrap();
        assert!(echoes(&seen));
        let screen = Screen::on(terminal).unwrap();
        assert!(!echoes(&seen) && screen.size() == USUAL);
        let panics = thread::spawn(|| "no number".parse::<i32>().unwrap());
        assert!(panics.join().is_err());
        assert!(echoes(&seen));
        screen.write("after it").unwrap();
        drop(screen);
        let (mut text, mut bytes) = (String::new(), [0; 64]);
        while !text.ends_with("after it") {
            let count = shown.read(&mut bytes).unwrap();
            text.push_str(&String::from_utf8_lossy(bytes.get(..count).unwrap()));
        }
        assert_eq!(text, format!("{ENTER}{LEAVE}after it"), "and once only");
    }
}
