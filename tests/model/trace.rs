//! The words of a trace.

use curator_locks::unversioned::{
    Request, Response, WatchEvent,
    contender::{Do, Input, WatchId},
};

use super::thread::{Error, Failure};

pub fn request(request: &Request) -> String {
    let watched = |watch: &bool| if *watch { " and watch" } else { "" };
    match request {
        Request::Create { path, .. } => format!("create {path}"),
        Request::Delete { path, .. } => format!("delete {path}"),
        Request::Exists { path, watch } => format!("exists {path}{}", watched(watch)),
        Request::GetData { path, watch } => format!("read {path}{}", watched(watch)),
        Request::GetChildren { path, watch, .. } => format!("list {path}{}", watched(watch)),
        Request::Multi(steps) => format!("at once: {}", all(steps.iter().map(self::request))),
        Request::Sync { .. } => "sync".to_owned(),
        other => format!("{other:?}"),
    }
}

pub fn input(input: &Input<Error>) -> String {
    match input {
        Input::Answers(answers) => all(answers.iter().map(answer)),
        Input::DirectoryMade(Ok(())) => "directory made".to_owned(),
        Input::DirectoryMade(Err(failed)) | Input::Failed(failed) => failure(failed),
        Input::Event(watch, event) => format!("{} {}", of(*watch), what(event)),
        other => format!("{other:?}").to_lowercase(),
    }
}

pub fn next(next: &Do<Error>) -> String {
    match next {
        Do::Ask(ask) => all(ask.iter().map(|(asked, _)| request(asked))),
        Do::End(end) => format!("end: {end:?}"),
        Do::Again(error) => format!("again? {error}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

fn all(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<String>>().join("; ")
}

fn answer(answer: &Result<Response, Failure>) -> String {
    match answer {
        Ok(Response::Created { path, czxid }) => format!("created {path} (zxid {czxid})"),
        Ok(Response::Children { names, .. }) => format!("[{}]", names.join(", ")),
        Ok(Response::Stat(stat) | Response::Data { stat, .. }) => format!("of session {}", stat.ephemeral_owner),
        Ok(_) => "done".to_owned(),
        Err(failed) => failure(failed),
    }
}

fn failure(failed: &Failure) -> String {
    let outcome = if failed.maybe_done { ", maybe done" } else { "" };
    match failed.code {
        Some(code) => format!("{code:?}"),
        None => format!("{}{outcome}", failed.error),
    }
}

fn of(watch: WatchId) -> &'static str {
    match watch {
        WatchId::Predecessor(_) => "predecessor",
        WatchId::Ahead(_) => "in front of the predecessor",
        WatchId::Own(_) => "own znode",
        WatchId::Directory(_) => "directory",
    }
}

fn what(event: &WatchEvent) -> String {
    match event {
        WatchEvent::Node { event, connection } => format!("{event:?} over connection {connection}"),
        other => format!("{other:?}"),
    }
}
