//! The flash sale of `examples/flash_sale`, small: what it prints last, and how it ends.
#![cfg(feature = "testing")]
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../support/examples.rs"]
mod examples;

use std::process::Output;

use curator_locks::testing::TestingServer;

fn demo(connect_string: Option<&str>, arguments: &[&str]) -> Output {
    let mut demo = examples::example("flash_sale");
    demo.args(["--processes", "2", "--threads", "4", "--stock", "20"]).args(arguments);
    if let Some(connect_string) = connect_string {
        demo.env("ZK_CONNECT", connect_string);
    }
    demo.output().unwrap()
}

fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).lines().last().unwrap_or_default().to_owned()
}

mod slow {
    use super::*;

    #[test]
    fn the_demo_sells_each_item_once_and_its_control_oversells() {
        let output = demo(None, &[]);
        let last = last_line(&output);
        let oversold = last
            .strip_prefix("demo: ok: 20 of 20 sold, 0 oversold (without the lock: ")
            .and_then(|rest| rest.strip_suffix(" oversold)"))
            .unwrap_or_else(|| panic!("{output:?}"));
        assert!(oversold.parse::<u32>().unwrap() > 0);
        assert!(output.status.success());
    }

    #[test]
    fn the_demo_compares_sales_with_and_without_caching() {
        let output = demo(None, &["--caching"]);
        assert!(last_line(&output).starts_with("demo: ok: 20 of 20 sold, 0 oversold"), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        let rate = |lock: &str| {
            let mut lines = text.lines().skip_while(|line| !line.ends_with("sales per second"));
            let rate = lines.find_map(|line| line.trim().strip_prefix(lock)?.trim().parse::<f64>().ok());
            rate.unwrap_or_else(|| panic!("{lock}: {text}"))
        };
        assert!(rate("InterProcessMutex (Caching)") > 0.0 && rate("InterProcessMutex ") > 0.0, "{text}");
    }

    #[test]
    fn the_demo_leaves_nothing_in_an_existing_ensemble() {
        let server = TestingServer::start().unwrap();
        let before = server.znode_count().unwrap();
        let output = demo(Some(&server.connect_string()), &[]);
        assert!(last_line(&output).starts_with("demo: ok: 20 of 20 sold, 0 oversold"), "{output:?}");
        assert_eq!(server.znode_count().unwrap(), before);
    }

    #[test]
    fn the_demo_fails_without_a_lock() {
        let output = demo(None, &["--lock", "none"]);
        assert!(last_line(&output).starts_with("demo: FAILED: "), "{output:?}");
        assert_eq!(output.status.code(), Some(1));
    }

    #[test]
    fn the_sale_runs_under_every_lock() {
        let server = TestingServer::start().unwrap();
        for lock in [
            "mutex",
            "cached-mutex",
            "mutex-watch-parent",
            "mutex-poll",
            "semaphore-mutex",
            "semaphore",
            "read-write",
            "multi",
            "unfair",
            "write-lock",
        ] {
            let output = demo(Some(&server.connect_string()), &["--lock", lock]);
            let last = last_line(&output);
            assert!(last.starts_with("demo: ok: 20 of 20 sold, 0 oversold"), "{lock}: {output:?}");
            assert!(output.status.success(), "{lock}");
        }
    }
}
