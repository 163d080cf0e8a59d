//! Processes whose wall clocks step. A library that is loaded before libc tells them the time.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        OnceLock,
        atomic::{AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
};

const NAME: &str = "wall-clock.so";

/// The clock of one process, and of those that it starts.
pub struct WallClock {
    path: PathBuf,
    file: File,
    seconds: AtomicI64,
}

impl WallClock {
    /// Makes one that shows the system's time.
    pub fn new() -> WallClock {
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let name = format!("wall-clock-{}-{}", std::process::id(), MADE.fetch_add(1, Relaxed));
        let path = directory().join(name);
        let file = File::create(&path).unwrap();
        let clock = WallClock { path, file, seconds: AtomicI64::default() };
        clock.tell(0);
        clock
    }

    pub fn rules(&self, mut command: Command) -> Command {
        command.env("LD_PRELOAD", library()).env("WALL_CLOCK", &self.path);
        command
    }

    /// Whether this process has loaded the library.
    pub fn has_ruled(pid: i32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains(NAME))
    }

    /// Sets it this many seconds off the system's. The process sees it at its next look. `false`: it was there before.
    pub fn step_to(&self, seconds: i64) -> bool {
        self.tell(seconds);
        self.seconds.swap(seconds, Relaxed) != seconds
    }

    fn tell(&self, seconds: i64) {
        self.file.write_all_at(&(seconds * 1_000_000_000).to_ne_bytes(), 0).unwrap();
    }
}

impl Drop for WallClock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn directory() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Built once for each process of tests: others build theirs at the same time.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let (built, library) =
            (directory().join(format!("wall-clock-{}.so", std::process::id())), directory().join(NAME));
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-shared", "-fPIC", "-o"]).arg(&built);
        cc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/safety/wall_clock.c"));
        assert!(cc.status().unwrap().success(), "{cc:?}");
        fs::rename(&built, &library).unwrap();
        library
    })
}

#[test]
fn a_wall_clock_steps_in_its_process_alone() {
    let clock = WallClock::new();
    let since_epoch = |mut command: Command| {
        let said = command.arg("+%s").output().unwrap();
        String::from_utf8(said.stdout).unwrap().trim().parse::<i64>().unwrap()
    };
    for step in [0, 3600, -3600] {
        clock.step_to(step);
        let (own, stepped) = (since_epoch(Command::new("date")), since_epoch(clock.rules(Command::new("date"))));
        assert!((step - 60..=step + 60).contains(&(stepped - own)), "{stepped} where {own} and {step} seconds");
    }
}
