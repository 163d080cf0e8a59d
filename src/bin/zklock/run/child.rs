//! The command's process: this program once more, for a moment, so that the command dies with its parent.

use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode},
};

use nix::unistd::{getpid, getppid};

use crate::failure::{FAILED, NOT_EXECUTABLE, NOT_FOUND};

/// The first argument that means: become the command.
pub(crate) const EXEC: &str = "__exec";

/// This program; by a name under which it is found also if its file was replaced meanwhile.
pub(super) fn this_program() -> Command {
    let path =
        if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe().unwrap_or_default() };
    let mut command = Command::new(path);
    command.arg0("zklock");
    command
}

/// Starts the command in a process group. Not to be called but by a thread that lives as long as the process: the command
/// dies with the thread that started it.
pub(super) fn start(group: i32, command: &[OsString], variables: &[(&str, String)]) -> io::Result<Child> {
    let mut shim = this_program();
    shim.arg(EXEC).arg(getpid().to_string()).args(command);
    shim.envs(variables.iter().map(|(name, value)| (name, value)));
    shim.process_group(group).spawn()
}

/// Has the kernel kill this process with its parent, and becomes the command.
pub(crate) fn exec(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|parent| parent.to_str()?.parse::<i32>().ok());
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL) {
        eprintln!("zklock: cannot bind the command's life to this program's: {error}");
        return ExitCode::from(FAILED);
    }
    // It may have died before that.
    if parent != Some(getppid().as_raw()) {
        return ExitCode::from(FAILED);
    }
    let Some(program) = arguments.next() else { return ExitCode::from(FAILED) };
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("zklock: cannot run {}: {error}", program.display());
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    ExitCode::from(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE })
}
