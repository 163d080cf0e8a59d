//! Jobs that several machines could run, each of which is to be done once, also if a machine dies in the midst of it.
//!
//! ```text
//! cargo run --features testing --example job_runner
//! ```

mod common;

use std::{fs, io::ErrorKind, path::Path, thread, time::Duration};

use common::{Result, Servers};
use curator_locks::{AcquireOptions, CuratorFramework, InterProcessMutex, testing::expire_session};

const STEPS: usize = 5;

struct Runner {
    name: &'static str,
    client: CuratorFramework,
}

impl Runner {
    fn run_all(&self, jobs: &[String], results: &Path) -> Result<()> {
        while !jobs.iter().all(|job| results.join(job).exists()) {
            jobs.iter().try_for_each(|job| self.run(job, results, STEPS))?;
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Does the job unless it is done, or somebody else is at it. `steps`: after so many this machine dies.
    fn run(&self, job: &str, results: &Path, steps: usize) -> Result<()> {
        let (partial, done) = (results.join(format!("{job}.partial")), results.join(job));
        let mutex = InterProcessMutex::new(&self.client, &format!("/jobs/{job}"))?
            .with_lock_data(self.name)
            // Whoever comes after one that died is told, and waits for what that one still had under way.
            .with_unclean_deaths(Duration::from_millis(100));
        // Without waiting for others, and only if the lock is certain for the next second.
        let now = AcquireOptions::new().timeout(Duration::ZERO).min_validity(Duration::from_secs(1));
        let Some(held) = mutex.lock_with(&now)? else { return Ok(()) };
        if done.exists() {
            return Ok(held.release()?);
        }
        for death in held.unclean_deaths() {
            println!("{} died over {job}: its half of the work is thrown away", String::from_utf8_lossy(&death.data));
            discard(&partial)?;
        }
        // A step takes less than a second, so no step is begun when less than that is certain.
        let deadline = held.deadline(Duration::from_secs(1));
        let mut work = String::new();
        for step in 0..STEPS {
            if step == steps {
                std::mem::forget(held); // who dies releases nothing
                return Ok(());
            }
            if deadline.is_near() {
                discard(&partial)?;
                return Ok(()); // whoever has the lock next begins anew
            }
            thread::sleep(Duration::from_millis(5));
            work.push_str(&format!("{} did step {step}\n", self.name));
            fs::write(&partial, &work)?;
        }
        fs::rename(partial, done)?;
        Ok(held.release()?)
    }
}

/// Not even the first step may have been done.
fn discard(partial: &Path) -> Result<()> {
    match fs::remove_file(partial) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let names = ["runner-1", "runner-2", "runner-3"];
    let runners =
        names.map(|name| Ok(Runner { name, client: servers.client()? })).into_iter().collect::<Result<Vec<_>>>()?;
    let results = tempfile::tempdir()?;
    let jobs: Vec<String> = (1..=6).map(|number| format!("job-{number}")).collect();

    let [first, others @ ..] = &*runners else { return Err("no runners".into()) };
    first.run("job-1", results.path(), 2)?;
    // That its session ends is what the others wait for, here without the wait.
    expire_session(servers.connect_string(), first.client.session_id(), &first.client.session_password())?;

    thread::scope(|scope| {
        let running: Vec<_> =
            others.iter().map(|runner| scope.spawn(|| runner.run_all(&jobs, results.path()))).collect();
        running.into_iter().try_for_each(|runner| runner.join().map_err(|_| "a thread panicked")?)
    })?;
    for job in &jobs {
        let work = fs::read_to_string(results.path().join(job))?;
        let runner = work.split(' ').next().unwrap_or_default();
        let is_whole = work.lines().count() == STEPS && work.lines().all(|line| line.starts_with(runner));
        println!("{job}: done once, by one runner: {is_whole}");
    }
    Ok(())
}
