//! The terminal, which belongs to one process group at a time.

use std::io::{self, IsTerminal};

use nix::{
    sys::signal::{SigSet, Signal},
    unistd::{Pid, getpgrp, tcgetpgrp, tcsetpgrp},
};

/// Hands the terminal to the command if it is this program's, and takes it back when dropped.
pub(super) struct Terminal {
    group: Pid,
    has_it: bool,
}

impl Terminal {
    pub(super) fn new(group: i32) -> Terminal {
        // Or this process would be stopped when it takes the terminal back.
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGTTOU);
        let _ = blocked.thread_block();
        Terminal { group: Pid::from_raw(group), has_it: false }
    }

    /// From here on the command reads the terminal, and gets what is typed to interrupt it.
    pub(super) fn hand_over(&mut self) {
        let stdin = io::stdin();
        if stdin.is_terminal() && tcgetpgrp(&stdin) == Ok(getpgrp()) {
            self.has_it = tcsetpgrp(&stdin, self.group).is_ok();
        }
    }

    /// Whether the command has it.
    pub(super) fn is_handed_over(&self) -> bool {
        self.has_it
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if self.has_it {
            let _ = tcsetpgrp(io::stdin(), getpgrp());
        }
    }
}
