//! The command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, ColorChoice, Parser, Subcommand};
use jiff::SignedDuration;

// A paragraph is one line: `show::help` breaks it where the terminal ends.

const EXAMPLES: &str = "\
Examples:
  zklock run /jobs/report -- make report           one machine at a time
  zklock run --nonblock /jobs/report -- make report || echo 'somebody else does'
  zklock run /jobs/report -c 'make report && mail report'
  zklock run --semaphore 3 /downloads -- wget URL  at most three at a time
  zklock ls /jobs/report                           who holds it, who waits
  zklock tree / --watch                            every lock, again and again
  zklock top                                       the same on the whole screen
  zklock doctor                                    what is wrong, what to set

The servers come from --connect, from ZK_CONNECT, or from a line such as
  connect = \"zk1:2181,zk2:2181,zk3:2181/app\"
in ~/.config/zklock.toml or /etc/zklock.toml.";

const RUN_HELP: &str = "\
The command gets these variables:
  ZKLOCK_PATH       the lock's path (with --also: one on each line, in the order of the paths)
  ZKLOCK_NODE       the znode that is the hold (one on each line)
  ZKLOCK_TOKEN      the fencing token, which grows with every grant (one on each line)
  ZKLOCK_SESSION    the id of the session
  ZK_CONNECT        the servers
and ZKLOCK_KEEPER, which is for zklock. It does not get ZKLOCK_AUTH and ZKLOCK_SASL_PASSWORD: a zklock that it runs finds credentials in the file, and its servers, too, \
if --config or ZKLOCK_CONFIG names one with servers.

Exit status: the command's own; 128 + N if it died of signal N. Besides:
  123  the lock was lost or about to be lost, and the command was ended; if it had ended by itself before, its own
  124  the lock was not to be had: --nonblock, or --timeout is over (see --conflict-exit-code)
  125  zklock itself failed, and the command was not run, or not to its end; also where --timeout is over before there is \
a connection
  126  the command cannot be executed
  127  the command was not found

While the command runs, zklock keeps the session alive. If the servers may be about to give the lock to somebody else, the \
command's processes get TERM when 15 % of the session timeout are left, and KILL when 5 % are left, by this machine's clock. If \
zklock dies, they are killed; on Linux it is killed itself if it is stopped until the lock is another's (status 137). The \
lock is given back when the command and all that it has started have ended. To its processes \
belong its process group and what an interactive shell starts in groups of its own; but not what begins a session of its own \
(setsid), nor what gets other rights (sudo): let sudo run zklock instead.
HUP, INT, QUIT, TERM, USR1, USR2 and CONT go on to the command. `zklock revoke` makes it TERM.

A script that needs the lock from its first line to its last begins with this line, and needs no other one:
  [ \"$ZKLOCK_PATH\" = /jobs/report ] || exec zklock run /jobs/report -- \"$0\" \"$@\"
For a part of it there is -c, or `zklock lock`.

Examples:
  zklock run /jobs/report -- make report
  zklock run --timeout 30s /jobs/report -c 'make report && mail report'
  zklock run --also /accounts/17 /accounts/4 -- ./transfer 4 17 100
  zklock run --retry-lost 3 /jobs/report -- make report  again if it was lost
  zklock run --at-least 1m /cron/nightly -- ./nightly    clocks differ by less";

#[cfg(target_os = "linux")]
const LOCK_HELP: &str = "\
Two lines take the lock, and one gives it back:
  held=$(zklock lock --for $$ /jobs/report) || exit
  eval \"$held\"
  make report
  zklock unlock

Written so, the script ends where the lock is not to be had or zklock is missing. `eval \"$(zklock lock ..)\"` or `local held=$(..)` \
hides that, and the script may go on without the lock. The second line comes before all that needs the lock, and before \
the next lock is asked for. It sets ZKLOCK_PATH, ZKLOCK_NODE, ZKLOCK_TOKEN and ZKLOCK_SESSION, as `zklock run` does, but does not \
export them: what the script starts may outlast the lock. It exports ZKLOCK_KEEPER, and opens a descriptor (9, or the next lower one \
that is free), by which zklock knows what the script has started.

A process in the background holds the lock: until `zklock unlock`, or until the script and all that it has started since \
have ended. If the servers may be about to give the lock to somebody else, the script and these processes get TERM and KILL as the \
command of `zklock run` does, and TERM upon `zklock revoke`. As there, what begins a session of its own (setsid) or gets \
other rights (sudo) is not ended; nor is what has neither that variable nor that descriptor and outlives the script.

`zklock run` is the safer one of the two: its command is bound by the kernel to the process that holds the lock. A script is not. If \
that process is killed, a second one ends the script, and if both are, or both are stopped for longer than the lock lasts, the script \
goes on without a lock. The first process of a container, which nobody can kill from inside, needs `zklock run`, too.

Locks are not re-entrant: a script that asks for what it has, or for --write behind its own --shared, waits for itself.

For those who know flock(1): `exec 9>FILE; flock 9` are the first two lines, and `flock -u 9` is the last one. What differs: a lock that \
a subshell has taken is the script's, and lasts until `zklock unlock` or the end of the script.

Where the output of the script is awaited to its end, as in `$(./script 2>&1)` or `./script 2>&1 | cat`, so is that of the process in \
the background, which ends with the script; inside of the script such a pipe around both lines waits for itself. In ksh and mksh \
what is started with env -i is not known.

Exit status: 0, the lock is held; 123, it was lost at once; 124, it was not to be had (see --conflict-exit-code); 125, zklock itself \
failed; 128 + N, signal N ended it.

Examples:
  held=$(zklock lock --for $$ --nonblock /jobs/report) || exit
  held=$(zklock lock --for $$ --also /accounts/17 /accounts/4) || exit";

#[cfg(target_os = "linux")]
const UNLOCK_HELP: &str = "\
It returns once the lock is given back. Call it from the shell of the script, and not through a program such as timeout or xargs, nor as \
the last command of `sh -c`, which becomes that command. It gives back what this script has taken, and no lock under which the script itself runs. What \
the script has started in the background goes on, without a lock: wait for it before. ZKLOCK_PATH and the others stay as they are. Of \
several locks that were taken together each path means all of them. It speaks with the process that holds the lock, and needs no servers.

Exit status: 0, the lock is given back; 125, the script has no such lock, or several, or has not evaluated what `zklock lock` printed.";

const LS_HELP: &str = "\
STATE is one of
  holds     it holds the lock, or a lease
  asked     it holds it, and was asked to let go (zklock revoke); with --json \"asked_back\", whatever the state
  cached    it holds the lock or keeps it idle: its process hands the lock from thread to thread, keeps it while none of them \
uses it, and nobody else can tell which. Who queues for an idle lock gets it at once, and `zklock revoke` has \
it given back; `zklock run --nonblock` is refused
  waits N   it is the N-th in line; with --json \"position\" counts from 0

The data are cut so that a row of Latin letters fits 80 columns without --hosts, and --long shows NODE, which `zklock break` takes.
SINCE and AGE are those of the znode: under \"cached\" many threads may have held the lock since.";

const TOP_HELP: &str = "\
Keys, as in top(1):
  q                 quit; the terminal is as it was, as after INT, TERM and every other end
  space             look now
  s                 sort by longest wait, longest hold, most waiters, most hand-overs, path
  up, down, k, j    scroll; also page up, page down, home (g), end (G)

A waiter is yellow once it has waited for 10 s, and red after 1 m. WAITS FOR is the next one in front that excludes it, or the \
holders. Of each lock the first five contenders are shown; `zklock ls PATH` shows all.
A hand-over is a holder that the look before had not seen, counted over the last 30 s: of a lock that is passed on faster than \
the looks follow each other, each look sees one.";

const BREAK_HELP: &str = "\
Examples, all for one and the same znode:
  zklock break /report/_c_16dbd9c9-82c9-41b7-aeed-60d217031502-lock-0000000000
  zklock break /report _c_16dbd9c9-82c9-41b7-aeed-60d217031502-lock-0000000000
  zklock break _c_16dbd9c9-82c9-41b7-aeed-60d217031502-lock-0000000000";

/// Locks of a cluster, on ZooKeeper, for scripts and operators.
///
/// They are the locks of Apache Curator: processes in Java, Rust and Python queue in the same directories.
#[derive(Debug, Parser)]
#[command(name = "zklock", version, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How to reach the servers.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The servers: host:port,host:port/chroot [env: ZK_CONNECT, unless --config names a file with servers]
    #[arg(long, global = true, value_name = "SERVERS")]
    pub(crate) connect: Option<String>,
    /// A configuration file instead of ~/.config/zklock.toml and /etc/zklock.toml
    #[arg(long, env = "ZKLOCK_CONFIG", global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The time after the last sign of life at which the servers give the lock to the next one [default: 20s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) session_timeout: Option<Duration>,
    /// How long to try to connect [default: 15s]
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub(crate) connection_timeout: Option<Duration>,
    /// Credentials, SCHEME:CREDENTIALS, for instance digest:user:password; better in ZKLOCK_AUTH or the file, as others see
    /// the command line
    #[arg(long, env = "ZKLOCK_AUTH", hide_env_values = true, global = true, value_name = "AUTH")]
    pub(crate) auth: Vec<String>,
    /// What is created may be used by those with these credentials only
    #[arg(long, global = true)]
    pub(crate) creator_acl: bool,
    /// Authenticate with SASL as this user of the servers' DigestLoginModule; the password comes from ZKLOCK_SASL_PASSWORD or
    /// the file
    #[cfg(feature = "sasl")]
    #[arg(long, env = "ZKLOCK_SASL_USER", global = true, value_name = "USER")]
    pub(crate) sasl_user: Option<String>,
    /// Authenticate with the Kerberos ticket of the credential cache (KRB5CCNAME)
    #[cfg(feature = "kerberos")]
    #[arg(long, global = true)]
    pub(crate) kerberos: bool,
    /// Authenticate with Kerberos, and get the tickets with the keys in this file
    #[cfg(feature = "kerberos")]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) keytab: Option<PathBuf>,
    /// The Kerberos principal; a keytab needs it [default: the credential cache's]
    #[cfg(feature = "kerberos")]
    #[arg(long, global = true, value_name = "NAME@REALM")]
    pub(crate) principal: Option<String>,
    /// The servers' Kerberos principal [default: zookeeper/HOST]
    #[cfg(feature = "kerberos")]
    #[arg(long, global = true, value_name = "SERVICE/HOST@REALM")]
    pub(crate) server_principal: Option<String>,
    /// Make the chroot, with which --connect ends, where the servers have none
    #[arg(long, global = true)]
    pub(crate) create_chroot: bool,
    /// Encrypt, and trust what the certificates in this PEM file have issued
    #[cfg(feature = "tls")]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The client's certificate, PEM
    #[cfg(feature = "tls")]
    #[arg(long, global = true, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The client's private key, PEM
    #[cfg(feature = "tls")]
    #[arg(long, global = true, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
    /// Log to standard error what the client does; twice for more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    #[command(after_help = RUN_HELP)]
    Run(Run),
    /// Take a lock for the rest of a script, or until `zklock unlock`
    #[cfg(target_os = "linux")]
    #[command(after_help = LOCK_HELP)]
    Lock(Lock),
    /// Give back what `zklock lock` has taken for this script
    #[cfg(target_os = "linux")]
    #[command(after_help = UNLOCK_HELP)]
    Unlock(Unlock),
    /// Show who holds a lock and who waits for it
    #[command(after_help = LS_HELP)]
    Ls(Ls),
    /// Wait until nobody holds a lock, and take nothing
    ///
    /// It looks four times a second. Whoever is to have the lock next takes it with `zklock run`: by the time that this command has
    /// ended somebody else may hold it.
    Wait(Wait),
    /// Show every lock below a path, and who waits for whom in a circle
    #[command(after_help = LS_HELP)]
    Tree(Tree),
    /// Show every lock below a path on the whole terminal, the longest wait first, until `q`
    #[command(after_help = TOP_HELP)]
    Top(Top),
    /// Ask a holder to give its lock back
    ///
    /// A command under `zklock run` gets TERM. Other holders may listen or not. Without --why holders of all languages
    /// understand it, and what their znode carried is lost.
    Revoke(Revoke),
    /// Take a lock from its holder by deleting its znode
    #[command(after_help = BREAK_HELP)]
    Break(Break),
    /// Check the set-up: connection, permissions, latency, clocks, timeouts
    Doctor(Doctor),
    /// Print completions for a shell
    #[command(after_help = "Example: zklock completions bash > /etc/bash_completion.d/zklock")]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page, of the program or of one of its commands
    #[command(after_help = "Example: zklock man run > /usr/local/share/man/man1/zklock-run.1")]
    Man {
        /// The command
        #[arg(value_name = "COMMAND")]
        of: Option<String>,
    },
}

#[derive(Debug, Args)]
#[group(id = "kind", multiple = false)]
pub(crate) struct Kind {
    /// A read lock: beside other readers, not beside --write
    #[arg(long, group = "kind")]
    pub(crate) shared: bool,
    /// The write lock of those who read with --shared
    #[arg(long, group = "kind")]
    pub(crate) write: bool,
    /// One of N leases
    #[arg(long, group = "kind", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) semaphore: Option<u32>,
    /// A lock without a queue: cheapest where nobody waits
    #[arg(long, group = "kind")]
    pub(crate) unfair: bool,
}

impl Command {
    /// Whether this process holds a lock meanwhile.
    pub(crate) fn holds(&self) -> bool {
        match self {
            Command::Run(_) => true,
            #[cfg(target_os = "linux")]
            Command::Lock(_) => true,
            _ => false,
        }
    }
}

/// Which locks, and how to wait for them.
#[derive(Debug, Args)]
pub(crate) struct Wanted {
    #[command(flatten)]
    pub(crate) kind: Kind,
    /// Wait at most so long for the lock, a connection included; 0: as --nonblock
    #[arg(long, short, value_name = "DURATION", value_parser = duration, conflicts_with = "nonblock")]
    pub(crate) timeout: Option<Duration>,
    /// Do not wait at all for others
    #[arg(long, short)]
    pub(crate) nonblock: bool,
    /// One more lock of the same kind; all or none, in sorted order
    #[arg(long, value_name = "PATH", conflicts_with = "semaphore")]
    pub(crate) also: Vec<String>,
    /// Take the lock also where one of another kind is used at the same path, which does not exclude this one
    #[arg(long)]
    pub(crate) mixed: bool,
    /// The exit status if the lock was not to be had
    #[arg(long, short = 'E', value_name = "STATUS", default_value_t = crate::failure::NOT_HAD)]
    pub(crate) conflict_exit_code: u8,
    /// What others see in the lock's znode [default: host, process id and name]
    #[arg(long, value_name = "TEXT")]
    pub(crate) data: Option<String>,
    /// No waiting line on the terminal
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// The lock's path
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) wanted: Wanted,
    /// Keep the lock at least so long, also if the command ends earlier
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) at_least: Option<Duration>,
    /// Give the lock back after so long, at least a fifth of the session timeout: the command is ended before, as if the lock were about
    /// to be lost (status 123)
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) at_most: Option<Duration>,
    /// If the lock was lost and the command ended (status 123), wait for the lock and run the command again, so many times at most;
    /// not after HUP, INT, QUIT or TERM
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "at_most")]
    pub(crate) retry_lost: u32,
    /// The command, as a line for sh
    #[arg(long, short = 'c', value_name = "LINE", conflicts_with = "command")]
    pub(crate) shell: Option<OsString>,
    /// The command and its arguments; behind `--` where one of its own options would be taken for one of these
    #[arg(trailing_var_arg = true, required_unless_present = "shell", value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The locks of a script.
#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Lock {
    /// The script, by its process id, which sh knows as $$: the lock ends with it
    #[arg(long = "for", value_name = "PID", value_parser = clap::value_parser!(i32).range(2..))]
    pub(crate) script: i32,
    #[command(flatten)]
    pub(crate) wanted: Wanted,
}

#[cfg(target_os = "linux")]
#[derive(Debug, Args)]
pub(crate) struct Unlock {
    /// The path of the lock; needed only where the script has several locks
    #[arg(value_name = "PATH")]
    pub(crate) path: Option<String>,
}

impl Run {
    /// Whether a command without `--` in front of it has one in its midst: it may be meant as the end of options that come too
    /// late, such as a second path.
    pub(crate) fn is_ambiguous(&self) -> bool {
        let words: Vec<OsString> = std::env::args_os().collect();
        let in_front = words.len().checked_sub(self.command.len() + 1).and_then(|index| words.get(index));
        self.command.iter().any(|word| word == "--") && in_front.is_none_or(|word| word != "--")
    }

    /// The command to run.
    pub(crate) fn line(&self) -> Vec<OsString> {
        match &self.shell {
            Some(line) => vec!["sh".into(), "-c".into(), line.clone()],
            None => self.command.clone(),
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
    /// All columns: also since when, and the znode
    #[arg(long, short)]
    pub(crate) long: bool,
    /// Show it again and again, until interrupted
    #[arg(long, short, value_name = "DURATION", num_args = 0..=1, default_missing_value = "2s", value_parser = duration)]
    pub(crate) watch: Option<Duration>,
    /// Ask the servers where each session is connected from (needs cons in 4lw.commands.whitelist)
    #[arg(long)]
    pub(crate) hosts: bool,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
}

#[derive(Debug, Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) show: Show,
    /// Exit with 1 if one of the locks is held, with 0 if all are free
    #[arg(long, conflicts_with = "watch")]
    pub(crate) exit_code: bool,
    /// The lock's path
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Wait {
    /// Wait at most so long; then the exit status is 124. 0: one look
    #[arg(long, short, value_name = "DURATION", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    /// The lock's path
    #[arg(value_name = "PATH", required = true)]
    pub(crate) paths: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Tree {
    #[command(flatten)]
    pub(crate) show: Show,
    /// Where to begin
    #[arg(value_name = "ROOT", default_value = "/")]
    pub(crate) root: String,
    /// Look into so many directories at most
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// The pause between two looks
    #[arg(long, short, value_name = "DURATION", default_value = "2s", value_parser = duration)]
    pub(crate) watch: Duration,
    /// When to use colours
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// Where to begin
    #[arg(value_name = "ROOT", default_value = "/")]
    pub(crate) root: String,
    /// Look into so many directories at most
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    pub(crate) limit: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Revoke {
    /// A lock's path, which means its holders, or the znode of a holder
    #[arg(value_name = "PATH")]
    pub(crate) path: String,
    /// Say who asks, and this; only holders of this library understand that
    #[arg(long, value_name = "TEXT")]
    pub(crate) why: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Break {
    /// The whole path of a holder's or waiter's znode, or its name as `zklock ls --long` shows it. A name alone is looked for below the
    /// lock's path if that stands in front of it, and otherwise in every lock
    #[arg(value_names = ["PATH", "NODE"], num_args = 1..=2, required = true)]
    pub(crate) node: Vec<String>,
    /// Do not ask
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// JSON: a list of checks, each with its verdict (ok, mind or wrong) and what was found
    #[arg(long)]
    pub(crate) json: bool,
    /// Where to try out whether locks can be made; what is made there is removed
    #[arg(long, value_name = "PATH", default_value = "/zklock-doctor")]
    pub(crate) path: String,
}

/// `30s`, `1m 30s`, `1.5h`; a bare number means seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bare = text.parse::<f64>().ok().map(Duration::try_from_secs_f64);
    if let Some(seconds) = bare {
        return seconds.map_err(|error| error.to_string());
    }
    let signed: SignedDuration = text.parse().map_err(|error: jiff::Error| error.to_string())?;
    Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_what_people_write() {
        for (text, millis) in [("5", 5000), ("0.5", 500), ("30s", 30_000), ("1m 30s", 90_000), ("250ms", 250), ("0", 0)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "x", "-5", "-5s", "1e400", "NaN"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
