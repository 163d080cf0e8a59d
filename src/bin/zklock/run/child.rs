//! The command's process: this program once more, for a moment, so that the command dies with its parent.

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::process::CommandExt,
    process::{Child, Command, ExitCode},
    time::Duration,
};

use nix::unistd::{getegid, getpid, getppid};

use super::{clock, mark::KEEPER};
use crate::{
    failure::{FAILED, LOST, NOT_EXECUTABLE, NOT_FOUND},
    login::PASSWORD,
    voice,
};

/// The first argument that means: become the command.
pub(crate) const EXEC: &str = "__exec";
/// Be the watchdog.
pub(crate) const WATCH: &str = "__watch";
/// Keep the lock of a script.
#[cfg(target_os = "linux")]
pub(crate) const KEEP: &str = "__keep";

const AUTH: &str = "ZKLOCK_AUTH";
const SASL_USER: &str = "ZKLOCK_SASL_USER";

/// Takes away what others may read in a log or a core of that process. A user is of no use without a password.
pub(super) fn remove_secrets(command: &mut Command) {
    if env::var_os(PASSWORD).is_some() {
        command.env_remove(SASL_USER);
    }
    command.env_remove(AUTH).env_remove(PASSWORD);
}

/// Takes away what shows under which locks this process runs, for one that has to outlive them.
pub(super) fn remove_marks(command: &mut Command) {
    command.env_remove(KEEPER);
}

/// This program; by a name under which it is found also if its file was replaced meanwhile.
pub(super) fn this_program() -> Command {
    let path =
        if cfg!(target_os = "linux") { "/proc/self/exe".into() } else { std::env::current_exe().unwrap_or_default() };
    let mut command = Command::new(path);
    command.arg0("zklock");
    command
}

/// Starts the command, in a process group of its own, unless this moment has passed by then. Only a thread that lives
/// as long as the process may call this: the command dies with the thread that started it. The signals 32 and 33, which are
/// the C library's own, are ignored by the command if `ignores_internal`: glibc's posix_spawn has it ignore them, through every
/// exec, and a fork does not.
pub(super) fn start(
    until: Duration,
    command: &[OsString],
    variables: &[(&str, String)],
    ignores_internal: bool,
) -> io::Result<Child> {
    let mut shim = this_program();
    shim.arg(EXEC).arg(getpid().to_string()).arg(until.as_nanos().to_string()).args(command);
    remove_secrets(&mut shim);
    shim.envs(variables.iter().map(|(name, value)| (name, value)));
    if !ignores_internal {
        // The group that it has: the standard library forks where it is asked for one.
        shim.gid(getegid().as_raw());
    }
    shim.process_group(0).spawn()
}

/// A process that works for this program begins so: it is called `zklock`, and keeps nothing open that it has inherited, such as the
/// lock of another file or the pipe of another script's lock.
#[cfg(target_os = "linux")]
pub(super) fn begin_helper() {
    let _ = nix::sys::prctl::set_name(c"zklock");
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let inherited = descriptors.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    // That of the list itself is closed by then.
    for descriptor in inherited.filter(|descriptor| *descriptor > 2).collect::<Vec<_>>() {
        let _ = nix::unistd::close(descriptor);
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn begin_helper() {}

/// Asks the kernel to kill this process with its parent, and becomes the command.
pub(crate) fn exec(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
    let (parent, until) = (number(), number().map(Duration::from_nanos));
    #[cfg(target_os = "linux")]
    if let Err(error) = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL) {
        return fail(FAILED, format!("cannot bind the command's life to this program's: {error}"));
    }
    // The parent may have died before that.
    let has_parent = parent.and_then(|parent| i32::try_from(parent).ok()) == Some(getppid().as_raw());
    let (true, Some(until), Some(program)) = (has_parent, until, arguments.next()) else {
        return ExitCode::from(FAILED);
    };
    // This process may have been stopped on the way here.
    if clock::now() >= until {
        return fail(LOST, "the lock may be lost: the command is not run".to_owned());
    }
    let error = Command::new(&program).args(arguments).exec();
    let is_missing = error.kind() == io::ErrorKind::NotFound;
    fail(if is_missing { NOT_FOUND } else { NOT_EXECUTABLE }, format!("cannot run {}: {error}", program.display()))
}

fn fail(status: u8, text: String) -> ExitCode {
    voice::say(text);
    voice::finish();
    ExitCode::from(status)
}
