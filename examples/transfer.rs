//! Transfers between accounts, each with a lock of its own: both locks at once or none, without deadlock.
//!
//! ```text
//! cargo run --features testing --example transfer
//! ```

mod common;

use std::{fs, path::Path, thread, time::Duration};

use common::{Result, Servers};
use curator_locks::{CuratorFramework, InterProcessMultiLock};

const ACCOUNTS: [&str; 3] = ["anna", "bert", "carl"];

fn balance(bank: &Path, account: &str) -> Result<i64> {
    Ok(fs::read_to_string(bank.join(account))?.parse()?)
}

/// Whether there was enough money.
fn transfer(client: &CuratorFramework, bank: &Path, from: &str, to: &str, amount: i64) -> Result<bool> {
    let paths = [from, to].map(|account| format!("/accounts/{account}"));
    // Acquired in the order of the paths, whatever the order given: two transfers never wait for each other.
    let both = InterProcessMultiLock::new(client, paths)?;
    let Some(held) = both.lock_timeout(Duration::from_secs(60))? else {
        let path = both.timed_out_at().unwrap_or_default();
        return Err(format!("somebody else holds {path}").into());
    };
    let (has, other) = (balance(bank, from)?, balance(bank, to)?);
    if has >= amount {
        fs::write(bank.join(from), (has - amount).to_string())?;
        thread::sleep(Duration::from_millis(1));
        fs::write(bank.join(to), (other + amount).to_string())?;
    }
    held.release()?;
    Ok(has >= amount)
}

fn main() -> Result<()> {
    let servers = Servers::find()?;
    let bank = tempfile::tempdir()?;
    for account in ACCOUNTS {
        fs::write(bank.path().join(account), "100")?;
    }
    let clients = (0..3).map(|_| servers.client()).collect::<Result<Vec<_>>>()?;
    // Around in a circle, and back: the order in which deadlocks are made.
    let routes = [("anna", "bert"), ("bert", "carl"), ("carl", "anna"), ("bert", "anna"), ("anna", "carl")];
    let done = thread::scope(|scope| {
        let tellers: Vec<_> = clients
            .iter()
            .map(|client| {
                let bank = bank.path();
                scope.spawn(move || {
                    let all = routes.iter().cycle().take(20);
                    all.map(|(from, to)| transfer(client, bank, from, to, 7)).collect::<Result<Vec<_>>>()
                })
            })
            .collect();
        tellers.into_iter().map(|teller| teller.join().map_err(|_| "a thread panicked")?).collect::<Result<Vec<_>>>()
    })?;
    let balances = ACCOUNTS.iter().map(|account| balance(bank.path(), account)).collect::<Result<Vec<_>>>()?;
    let sum: i64 = balances.iter().sum();
    println!("{} transfers of 3 tellers, none waits for ever", done.concat().len());
    println!("sum of all accounts: {sum}");
    Ok(())
}
