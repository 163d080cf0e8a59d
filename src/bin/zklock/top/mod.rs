//! `zklock top`: every lock below a path on the whole terminal, again and again.
//!
//! One thread looks at the servers, one reads the keys and one gets the signals; this one draws, and waits for none of
//! them by name: an outage keeps no key from its effect. [`page`] is what is drawn, [`history`] what has changed between two
//! looks, [`screen`] the terminal and its way back.

mod history;
mod keys;
mod page;
mod screen;

use std::{
    env, io,
    io::IsTerminal,
    process, thread,
    time::{Duration, Instant},
};

use crossbeam_channel::{Receiver, Sender, after, bounded, never, select, tick, unbounded};
use curator_locks::CuratorFramework;
use signal_hook::{
    consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGWINCH},
    iterator::Signals,
};

use self::{keys::Key, page::State, screen::Screen};
use crate::{
    args::{Connection, Top},
    connection::connect,
    failure::{Failure, Result, cannot},
    show,
    tree::Walk,
};

/// No pause between two looks is shorter, as with `--watch`.
const SHORTEST: Duration = Duration::from_millis(100);

/// How often the page is drawn without news: ages go on, and so does that of a look whose answer does not come.
const REDRAW: Duration = Duration::from_secs(1);

/// The signals that end it, and how long it waits for a terminal that takes nothing before it goes on with the end.
const ENDING: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];
const UNREAD: Duration = Duration::from_secs(1);

pub(crate) fn top(connection: &Connection, args: &Top) -> Result<u8> {
    let is_dumb = env::var("TERM").is_ok_and(|terminal| terminal == "dumb");
    if is_dumb || !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::new(
            "top draws on a terminal and reads its keys, and there is none: use `zklock ls --watch PATH`, or `zklock tree --watch \
             ROOT`",
        ));
    }
    show::choose_colors(args.color);
    let has_colors = anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never;
    let client = connect(connection)?;
    // Errors of the first look are said on the terminal as it was.
    let first = Walk::through(&client, &args.root, args.limit)?;
    if io::stderr().is_terminal() {
        // The client's log would be written across the screen.
        log::set_max_level(log::LevelFilter::Off);
    }
    let mut state = State::new(&args.root, args.watch.max(SHORTEST), has_colors);
    state.seen(Ok(first), Instant::now());
    let status = show_on_screen(&client, args, state);
    client.close();
    status
}

/// Until `q`, a signal, or the end of the terminal. On every way out the terminal is as it was.
fn show_on_screen(client: &CuratorFramework, args: &Top, mut state: State) -> Result<u8> {
    let (ask, looks) = look_when_asked(client, args)?;
    let signals = catch_signals()?;
    let screen = Screen::enter()?;
    let keys = read_keys()?;
    let pause = args.watch.max(SHORTEST);
    let (mut next, redraws) = (after(pause), tick(REDRAW));
    loop {
        screen.draw(&state.page(screen.size(), Instant::now()))?;
        select! {
            recv(keys) -> key => match key {
                Ok(Key::Look) => _ = ask.try_send(()),
                Ok(Key::Quit) | Err(_) => return Ok(0),
                Ok(key) => state.press(key),
            },
            recv(signals) -> signal => match signal {
                Ok(SIGTSTP) => screen.suspend()?,
                Ok(SIGCONT) => screen.take()?,
                Ok(SIGWINCH) => {}
                Ok(signal) => return Err(Failure::ended_by(signal)),
                Err(_) => return Err(Failure::new("the thread that gets the signals has ended")),
            },
            recv(looks) -> walk => {
                let walk = walk.map_err(|_| Failure::new("the thread that looks has ended"))?;
                state.seen(walk, Instant::now());
                next = after(pause);
            }
            recv(next) -> _ => {
                _ = ask.try_send(());
                next = never();
            }
            recv(redraws) -> _ => {}
        }
    }
}

/// Looks each time that it is asked to; a request during a look is another look after it.
fn look_when_asked(client: &CuratorFramework, args: &Top) -> Result<(Sender<()>, Receiver<Result<Walk>>)> {
    let ((ask, asked), (tell, told)) = (bounded(1), unbounded());
    let (client, root, limit) = (client.clone(), args.root.clone(), args.limit);
    let look = move || {
        for () in asked {
            // The receiver may be gone.
            if tell.send(Walk::through(&client, &root, limit)).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("look".into()).spawn(look).map_err(cannot("start a thread"))?;
    Ok((ask, told))
}

/// The keys that are typed; closed once there is no terminal any more.
fn read_keys() -> Result<Receiver<Key>> {
    let (sender, keys) = unbounded();
    let read = move || keys::read(io::stdin(), |key| sender.send(key).is_ok());
    thread::Builder::new().name("keys".into()).spawn(read).map_err(cannot("start a thread"))?;
    Ok(keys)
}

fn catch_signals() -> Result<Receiver<i32>> {
    let caught = [&ENDING[..], &[SIGTSTP, SIGCONT, SIGWINCH]].concat();
    let mut signals = Signals::new(caught).map_err(cannot("catch signals"))?;
    let (sender, receiver) = unbounded();
    let pass_on = move || {
        for signal in signals.forever() {
            // The receiver may be gone at the end of the program.
            let _ = sender.send(signal);
            if ENDING.contains(&signal) {
                end_unread(signal);
            }
        }
    };
    thread::Builder::new().name("signals".into()).spawn(pass_on).map_err(cannot("start a thread"))?;
    Ok(receiver)
}

/// Ends the program if its end does not come: a terminal that takes nothing, as one whose other side is stopped, keeps the
/// thread that draws.
fn end_unread(signal: i32) {
    thread::sleep(UNREAD);
    screen::drop_output();
    thread::sleep(UNREAD);
    screen::restore_modes();
    process::exit(Failure::ended_by(signal).status.into());
}
