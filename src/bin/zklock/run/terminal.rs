//! The terminal, which belongs to one process group at a time.

use std::{
    fs::File,
    io::{self, IsTerminal},
};

use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal},
    unistd::{Pid, getpgrp, getpid, tcgetpgrp, tcsetpgrp},
};

/// Hands the terminal to the command if it is this program's, and takes it back when dropped.
pub(super) struct Terminal {
    group: Pid,
    /// The terminal of this program's session, if it has one.
    tty: Option<File>,
    has_it: bool,
}

impl Terminal {
    pub(super) fn new(group: Pid) -> Terminal {
        Terminal { group, tty: File::options().read(true).write(true).open("/dev/tty").ok(), has_it: false }
    }

    /// From here on the command reads the terminal, and gets what is typed to interrupt it. Beside other programs, in a
    /// pipeline or a script, it is only lent to a command that asks for it: another reader would stop this process, and
    /// an interrupt is meant for the script, too.
    pub(super) fn hand_over(&mut self) {
        let is_alone = io::stdin().is_terminal() && io::stdout().is_terminal() && getpgrp() == getpid();
        if is_alone {
            self.give();
        }
    }

    /// Gives the terminal, if it is this program's, to a command that was stopped for it. Returns whether the command has it.
    pub(super) fn give(&mut self) -> bool {
        let Some(tty) = &self.tty else { return false };
        self.has_it = match tcgetpgrp(tty) {
            Ok(owner) if owner == getpgrp() => tcsetpgrp(tty, self.group).is_ok(),
            owner => owner == Ok(self.group),
        };
        self.has_it
    }

    /// Whether the command has the terminal.
    pub(super) fn is_handed_over(&self) -> bool {
        self.has_it
    }

    pub(super) fn take_back(&mut self) {
        let Some(tty) = self.tty.as_ref().filter(|_| self.has_it) else { return };
        // Taking it back would stop this process. The mask is the command's, too: so it changes for a moment only.
        let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
        self.has_it = tcsetpgrp(tty, getpgrp()).is_err();
        let _ = before.map(|before| before.thread_set_mask());
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}
