//! The programs of `examples/`, as they are built.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    sync::OnceLock,
};

/// All of them. `cargo test --test NAME` alone does not build examples, so cargo is asked once more, and says where it has
/// put them; the same features and the same profile make that a matter of an instant where they are there.
fn programs() -> &'static [PathBuf] {
    static PROGRAMS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--examples", "--message-format=json", "--manifest-path"]);
        build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        build.arg(if cfg!(feature = "zookeeper") { "--all-features" } else { "--features=testing" });
        build.arg(if cfg!(debug_assertions) { "--profile=test" } else { "--release" });
        let output = build.stderr(Stdio::inherit()).output().unwrap();
        assert!(output.status.success(), "{build:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        let executable = |line: &str| Some(line.split_once(r#""executable":""#)?.1.split('"').next()?.into());
        said.lines().filter(|line| line.contains(r#""kind":["example"]"#)).filter_map(executable).collect()
    })
}

/// One of them, without `ZK_CONNECT`.
pub(crate) fn example(name: &str) -> Command {
    let program = programs().iter().find(|program| program.file_stem().is_some_and(|stem| stem == name));
    let mut command = Command::new(program.unwrap_or_else(|| panic!("no example {name}")));
    command.env_remove("ZK_CONNECT");
    command
}
