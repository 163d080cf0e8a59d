//! `zklock`: runs commands under locks of the cluster, and shows who holds what.
#![forbid(unsafe_code)]

mod args;
mod breaking;
mod connection;
mod doctor;
mod failure;
mod logger;
mod run;
mod show;
mod tree;

use std::{env, io, process::ExitCode};

use clap::{CommandFactory, Parser, error::ErrorKind};

use args::{Cli, Command};
use failure::{FAILED, Failure, Result};

fn main() -> ExitCode {
    // Not for people, and not to be touched by the parser.
    let mut raw = env::args_os().skip(1);
    match raw.next().as_ref().and_then(|first| first.to_str()) {
        Some(run::EXEC) => return run::exec(raw),
        Some(run::WATCH) => return run::watch(raw),
        _ => {}
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            // Nobody may read it any more.
            let _ = error.print();
            return if is_help { ExitCode::SUCCESS } else { ExitCode::from(FAILED) };
        }
    };
    match obey(&cli) {
        Ok(status) => ExitCode::from(status),
        Err(Failure { status, text }) => {
            if !text.is_empty() {
                anstream::eprintln!("zklock: {text}");
            }
            ExitCode::from(status)
        }
    }
}

fn obey(cli: &Cli) -> Result<u8> {
    logger::begin(cli.connection.verbose, matches!(cli.command, Command::Run(_)));
    match &cli.command {
        Command::Run(run) => return run::run(&cli.connection, run),
        Command::Ls(ls) => show::ls(&cli.connection, ls)?,
        Command::Tree(tree) => tree::tree(&cli.connection, tree)?,
        Command::Revoke(revoke) => breaking::revoke(&cli.connection, revoke)?,
        Command::Break(wanted) => breaking::break_lock(&cli.connection, wanted)?,
        Command::Doctor(wanted) => return doctor::doctor(&cli.connection, wanted),
        Command::Completions { shell } => {
            clap_complete::generate(*shell, &mut Cli::command(), "zklock", &mut io::stdout());
        }
        Command::Man => {
            let man = clap_mangen::Man::new(Cli::command());
            man.render(&mut io::stdout()).map_err(failure::cannot("print the manual page"))?;
        }
    }
    Ok(0)
}
