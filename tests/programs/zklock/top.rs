//! `zklock top` at a terminal: what it shows, its keys, and that the terminal is as it was on every way out.

use std::{os::fd::AsFd, process::Child};

use curator_locks::{
    InterProcessMutex, InterProcessReadWriteLock,
    testing::{Direction, FaultProxy},
};
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        termios::{Termios, tcgetattr},
    },
    unistd::Pid,
};

use crate::{
    FAILED, Running, path, stderr_of, stdout_of, support,
    support::eventually,
    terminal::{Screen, words},
    zklock, zklock_at,
};

const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

fn client() -> curator_locks::CuratorFramework {
    support::connect(support::builder(support::server(), ""))
}

/// The program at a terminal. Killed when dropped.
struct Shown(Child);

impl Shown {
    fn at<'a>(screen: &Screen, arguments: impl IntoIterator<Item = &'a str>) -> Shown {
        Shown(screen.run(&zklock(["top"].into_iter().chain(arguments))))
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.0.id()).unwrap()), signal).unwrap();
    }

    fn status(&mut self) -> Option<i32> {
        self.0.wait().unwrap().code()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn modes(screen: &Screen) -> Termios {
    tcgetattr(&screen.program).unwrap()
}

/// The lines of the last whole frame, without colours.
fn frame(screen: &Screen) -> Vec<String> {
    let text = screen.text();
    let whole = text.rsplit_once("\x1b[?2026l").map_or("", |(whole, _)| whole);
    let last = whole.rsplit_once("\x1b[H").map_or("", |(_, last)| last);
    anstream::adapter::strip_str(last)
        .to_string()
        .split('\n')
        .map(|line| line.trim_end_matches('\r').to_owned())
        .collect()
}

/// The first frame of which this is true.
#[track_caller]
fn await_frame(screen: &Screen, what: &str, is_it: impl Fn(&[String]) -> bool) -> Vec<String> {
    let mut lines = Vec::new();
    eventually(&format!("{what}, at last not in\n{}", frame(screen).join("\n")), || {
        lines = frame(screen);
        is_it(&lines)
    });
    lines
}

fn has(lines: &[String], text: &str) -> bool {
    lines.iter().any(|line| line.contains(text))
}

/// The index of the line in which a lock's path and what is known of it stand.
fn line_of(lines: &[String], path: &str) -> usize {
    lines.iter().position(|line| line.starts_with(&format!("{path}  "))).unwrap_or_else(|| panic!("{path}: {lines:#?}"))
}

#[track_caller]
fn assert_ends(screen: &Screen, run: &mut Shown, status: i32, before: &Termios) {
    assert_eq!(run.status(), Some(status));
    eventually("the screen is left", || screen.text().ends_with(LEAVE));
    assert_eq!(modes(screen), *before);
}

#[test]
fn the_longest_wait_stands_first_and_shows_whom_it_waits_for() {
    let (client, root) = (client(), format!("/{}", support::namespace()));
    let (first, second) = (format!("{root}/a"), format!("{root}/b"));
    let hold =
        |path: &str, data: &str| InterProcessMutex::new(&client, path).unwrap().with_lock_data(data).lock().unwrap();
    let (of_a, of_b) = (hold(&first, "the holder of a"), hold(&second, "the holder of b"));
    let wait = |path: &str, data: &str, count| {
        let run = Running::start(zklock(["run", "--data", data, path, "--", "sleep", "1000"]));
        support::await_queue(&client, path, count);
        run
    };
    let waiters = [wait(&second, "longest\x1b[2J", 2), wait(&second, "behind it", 3), wait(&first, "shortest", 2)];

    let screen = Screen::of((80, 24));
    let before = modes(&screen);
    let mut run = Shown::at(&screen, ["--watch", "100ms", &root]);
    let shows_all = |lines: &[String]| ["longest", "behind it", "shortest"].iter().all(|name| has(lines, name));
    let lines = await_frame(&screen, "all contenders", shows_all);
    assert!(lines.len() == 24 && lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert!(lines[0].contains("2 locks, 2 held, 3 wait") && lines[1].starts_with("by longest wait"), "{lines:#?}");
    assert!(line_of(&lines, &second) < line_of(&lines, &first), "{lines:#?}");
    assert!(has(&lines, "AGE      DATA"), "an age of 7 characters moves no column: {lines:#?}");
    let of = |name: &str| lines.iter().find(|line| line.contains(&format!("  {name}"))).unwrap();
    assert!(of("longest\\u{1b}[2J").ends_with("  the holder of b"), "{lines:#?}");
    assert!(of("behind it").ends_with("  longest\\u{1b}[2J"), "{lines:#?}");
    assert!(lines[line_of(&lines, &second)].contains("1 holds, 2 wait, longest "), "{lines:#?}");

    screen.type_in("ssss");
    let sorted = |lines: &[String]| has(lines, "by path") && line_of(lines, &first) < line_of(lines, &second);
    await_frame(&screen, "in the order of the paths", sorted);
    assert!(!has(&frame(&screen), "LAST GRANTS"));
    of_a.release().unwrap();
    let granted = |lines: &[String]| {
        let grants = lines.iter().skip_while(|line| *line != "LAST GRANTS").skip(1);
        grants.into_iter().any(|line| line.contains("waited ") && line.contains(&first) && line.ends_with("shortest"))
    };
    let lines = await_frame(&screen, "a grant", granted);
    assert!(lines[line_of(&lines, &first)].contains(" hand-overs/s"), "{lines:#?}");
    of_b.release().unwrap();
    await_frame(&screen, "another grant", |lines| has(lines, "2 locks, 2 held, 1 waits"));
    let third = format!("{root}/c");
    let readers = ["one reader", "other reader"].map(|data| {
        let lock = InterProcessReadWriteLock::new(&client, &third).unwrap().with_lock_data(data);
        lock.read_lock().lock().unwrap()
    });
    let mut writer = Running::start(zklock(["run", "--write", "--data", "the writer", &third, "--", "true"]));
    await_frame(&screen, "several holders", |lines| {
        lines.iter().any(|line| line.contains("  the writer ") && line.ends_with("  2 holders, other reader"))
    });
    drop(readers);
    writer.await_end();
    screen.type_in("q");
    assert_ends(&screen, &mut run, 0, &before);
    assert!(screen.text().starts_with(ENTER), "{}", screen.text());
    for mut waiter in waiters {
        waiter.signal(Signal::SIGTERM);
        waiter.await_end();
    }
}

#[test]
fn what_does_not_fit_is_scrolled_and_a_wide_terminal_shows_more() {
    let (client, root) = (client(), format!("/{}", support::namespace()));
    let held: Vec<_> = (0..30)
        .map(|number| {
            let mutex = InterProcessMutex::new(&client, &format!("{root}/lock-{number:02}")).unwrap();
            mutex.with_lock_data("host ".repeat(30)).lock().unwrap()
        })
        .collect();
    let (small, large) = (Screen::of((80, 24)), Screen::of((200, 60)));
    let mut runs = [&small, &large].map(|screen| Shown::at(screen, ["--watch", "1h", &root]));
    let lines = await_frame(&small, "30 locks", |lines| has(lines, "30 locks"));
    assert!(lines.len() == 24 && lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
    assert!(lines[1].ends_with("  1-21/60") && has(&lines, "lock-00") && !has(&lines, "SESSION"), "{lines:#?}");
    small.type_in("jj\x1b[Bk");
    await_frame(&small, "two lines further below", |lines| lines[1].ends_with("  3-23/60") && !has(lines, "lock-00"));
    small.type_in("G");
    await_frame(&small, "the end", |lines| lines[1].ends_with("  40-60/60") && has(lines, "lock-29"));
    small.type_in("\x1b[5~");
    await_frame(&small, "a page up", |lines| lines[1].ends_with("  19-39/60"));
    let lines = await_frame(&large, "30 locks", |lines| has(lines, "30 locks"));
    assert!(lines.len() == 60 && lines.iter().all(|line| line.chars().count() <= 200), "{lines:#?}");
    assert!(has(&lines, "SESSION") && has(&lines, &format!("{:#x}", client.session_id())), "{lines:#?}");
    for (screen, run) in [&small, &large].into_iter().zip(&mut runs) {
        screen.type_in("q");
        assert_eq!(run.status(), Some(0));
    }
    drop(held);
}

#[test]
fn on_every_way_out_the_terminal_is_as_it_was() {
    let ends: [(&str, Option<Signal>, i32); 6] = [
        ("q", None, 0),
        ("\x03", None, 130),
        ("", Some(Signal::SIGINT), 130),
        ("", Some(Signal::SIGTERM), 143),
        ("", Some(Signal::SIGHUP), 129),
        ("", Some(Signal::SIGQUIT), 131),
    ];
    for (typed, signal, status) in ends {
        let screen = Screen::of((80, 24));
        let before = modes(&screen);
        let mut run = Shown::at(&screen, [&*path()]);
        await_frame(&screen, "the first frame", |lines| has(lines, "no locks below"));
        assert!(modes(&screen) != before);
        screen.type_in(typed);
        if let Some(signal) = signal {
            run.signal(signal);
        }
        assert_ends(&screen, &mut run, status, &before);
    }
}

#[test]
fn what_is_wrong_from_the_beginning_leaves_the_terminal_alone() {
    let screen = Screen::of((80, 24));
    assert_eq!(Shown::at(&screen, ["no/path"]).status(), Some(FAILED));
    screen.await_text("no/path");
    assert!(!screen.text().contains(ENTER), "{}", screen.text());
}

#[test]
fn where_there_is_no_terminal_it_says_what_else_there_is() {
    let output = zklock(["top"]).output().unwrap();
    assert_eq!((output.status.code(), stdout_of(&output).as_str()), (Some(FAILED), ""));
    assert!(stderr_of(&output).contains("`zklock ls --watch PATH`"), "{}", stderr_of(&output));
}

/// As with every program at a shell.
#[test]
fn it_is_suspended_with_the_terminal_as_it_was_and_goes_on() {
    let screen = Screen::of((80, 24));
    let inner = zklock(["top", "--watch", "1h", &path()]);
    let script = format!("set -m; {}; echo is stopped; read line; fg; echo has ended", words(&inner));
    let mut run = Shown(screen.run_in("bash", &script, &inner));
    await_frame(&screen, "the first frame", |lines| has(lines, "no locks below"));
    let before = screen.text().len();
    screen.type_in("\x1a");
    screen.await_text("is stopped");
    assert!(screen.text()[before..].contains(LEAVE), "{}", screen.text());
    screen.type_in("go on\n");
    eventually("it draws again", || {
        let text = screen.text();
        text.rsplit("is stopped").next().is_some_and(|after| after.contains(ENTER) && after.contains("no locks below"))
    });
    screen.type_in("q");
    screen.await_text("has ended");
    assert_eq!(run.status(), Some(0));
}

/// Its parent is no shell of this terminal.
#[test]
fn it_is_not_suspended_where_nobody_would_have_it_go_on() {
    let screen = Screen::of((80, 24));
    let mut run = Shown::at(&screen, ["--watch", "1h", &path()]);
    await_frame(&screen, "the first frame", |lines| has(lines, "by longest wait"));
    screen.type_in("\x1as");
    await_frame(&screen, "a key's effect", |lines| has(lines, "by longest hold"));
    screen.type_in("q");
    assert_eq!(run.status(), Some(0));
}

#[test]
fn an_outage_is_shown_and_keeps_no_key_from_its_effect() {
    let (proxy, screen) = (FaultProxy::start(support::server().connect_string()).unwrap(), Screen::of((80, 24)));
    let before = modes(&screen);
    let arguments = ["top", "--connection-timeout", "2s", "--watch", "100ms", &path()];
    let mut run = Shown(screen.run(&zklock_at(&proxy.connect_string(), arguments)));
    await_frame(&screen, "the first frame", |lines| has(lines, "no locks below") && !has(lines, "no look"));
    // As by a server that hangs: long before the client gives it up.
    proxy.black_hole(Direction::ToClient);
    let lines = await_frame(&screen, "no answer", |lines| lines[2].starts_with("no look has come back for "));
    assert!(lines[2].ends_with(lines[0].split("  ").nth(1).unwrap()), "of that time of day: {lines:#?}");
    screen.type_in("s");
    await_frame(&screen, "a key's effect", |lines| has(lines, "by longest hold"));
    proxy.pass().unwrap();
    await_frame(&screen, "the answer", |lines| !has(lines, "no look"));
    proxy.refuse();
    proxy.cut();
    await_frame(&screen, "the outage", |lines| has(lines, "since then: "));
    screen.type_in("s");
    await_frame(&screen, "a key's effect", |lines| has(lines, "by most waiters"));
    proxy.pass().unwrap();
    await_frame(&screen, "its end", |lines| !has(lines, "since then: "));
    screen.type_in("q");
    assert_ends(&screen, &mut run, 0, &before);
}

/// As one that is stopped, or whose connection is gone without a word.
#[test]
fn a_terminal_that_takes_nothing_keeps_no_signal_from_its_effect() {
    let screen = Screen::unread((200, 60));
    let before = modes(&screen);
    let mut run = Shown::at(&screen, ["--watch", "100ms", &path()]);
    eventually("the terminal takes nothing more", || {
        let mut waits = [PollFd::new(screen.program.as_fd(), PollFlags::POLLOUT)];
        modes(&screen) != before && poll(&mut waits, PollTimeout::ZERO).unwrap() == 0
    });
    run.signal(Signal::SIGTERM);
    assert_eq!(run.status(), Some(143));
    assert_eq!(modes(&screen), before);
}
