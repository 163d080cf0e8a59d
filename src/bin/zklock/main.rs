//! `zklock`: runs commands under locks of the cluster, and shows who holds what.
#![forbid(unsafe_code)]

mod args;
mod breaking;
mod connection;
mod doctor;
mod failure;
mod hosts;
mod logger;
mod login;
mod run;
mod show;
mod top;
mod tree;
mod voice;

use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, error::ErrorKind};

use args::{Cli, Command};
use failure::{FAILED, Failure, Result};

fn main() -> ExitCode {
    // Not for people, and not to be touched by the parser.
    let mut raw = env::args_os().skip(1);
    let parsed = match raw.next().as_ref().and_then(|first| first.to_str()) {
        Some(run::EXEC) => return run::exec(raw),
        Some(run::WATCH) => return run::watch(raw),
        #[cfg(target_os = "linux")]
        Some(run::KEEP) => Cli::try_parse_from([OsString::from("zklock")].into_iter().chain(raw)),
        _ => Cli::try_parse(),
    };
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            let help = || show::help(&error.render().ansi().to_string());
            // The output may not be read any more.
            let _ = match error.kind() {
                ErrorKind::DisplayHelp => show::print(&help()).is_ok(),
                ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                    anstream::stderr().write_all(help().as_bytes()).is_ok()
                }
                _ => error.print().is_ok(),
            };
            return if is_help { ExitCode::SUCCESS } else { failed(FAILED) };
        }
    };
    let status = match obey(&cli) {
        Ok(status) => ExitCode::from(status),
        Err(Failure { status, text }) => {
            if !text.is_empty() {
                voice::say(text);
            }
            failed(status)
        }
    };
    voice::finish();
    status
}

/// A shell that evaluates what `zklock lock` prints without a look at its status must not go on.
fn failed(status: u8) -> ExitCode {
    let words: Vec<String> = env::args_os().skip(1).filter_map(|word| word.into_string().ok()).collect();
    let is_helper = words.first().is_some_and(|first| first.starts_with("__"));
    // `run` may run a command of that name.
    let is_lock = words.iter().take_while(|word| *word != "run").any(|word| word == "lock");
    if !is_helper && is_lock && !io::stdout().is_terminal() {
        let _ = show::print(&format!("exit {status}\n"));
    }
    ExitCode::from(status)
}

fn obey(cli: &Cli) -> Result<u8> {
    logger::begin(cli.connection.verbose, cli.command.holds());
    match &cli.command {
        Command::Run(run) => return run::run(&cli.connection, run),
        #[cfg(target_os = "linux")]
        Command::Lock(lock) => return run::lock(&cli.connection, lock),
        #[cfg(target_os = "linux")]
        Command::Unlock(unlock) => run::unlock(unlock)?,
        Command::Ls(ls) => return show::ls(&cli.connection, ls),
        Command::Wait(wanted) => return show::wait(&cli.connection, wanted),
        Command::Tree(tree) => tree::tree(&cli.connection, tree)?,
        Command::Top(wanted) => return top::top(&cli.connection, wanted),
        Command::Revoke(revoke) => breaking::revoke(&cli.connection, revoke)?,
        Command::Break(wanted) => breaking::break_lock(&cli.connection, wanted)?,
        Command::Doctor(wanted) => return doctor::doctor(&cli.connection, wanted),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "zklock", &mut text);
            show::print(&String::from_utf8_lossy(&text))?;
        }
        Command::Man { of } => {
            show::print(&manual(of.as_deref())?)?;
        }
    }
    Ok(0)
}

/// The manual page of the program, or of one of its commands.
fn manual(of: Option<&str>) -> Result<String> {
    let mut program = Cli::command();
    // Otherwise the pages of its commands would lack its name and the global options.
    program.build();
    let page = match of {
        None => program,
        Some(name) => {
            let command =
                program.find_subcommand(name).ok_or_else(|| Failure::new(format!("no such command: {name}")))?;
            command.clone().display_name(format!("zklock-{name}"))
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(failure::cannot("make the manual page"))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}
