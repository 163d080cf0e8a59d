//! What the figures were measured on.

use std::{fs, path::Path, process::Command};

use crate::peer::python;

/// Processors, memory, kernel, versions, and where the server keeps its data.
pub fn describe(data: &Path) -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (cpu, memory) = (text("/proc/cpuinfo"), text("/proc/meminfo"));
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let kib: u64 = value(&memory, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
    let java = first_line(Command::new("java").arg("-version"));
    let versions =
        "import sys, kazoo.version; print('Python', sys.version.split()[0], 'kazoo', kazoo.version.__version__)";
    let kazoo = first_line(Command::new(python()).args(["-c", versions]));
    let (kernel, load) = (text("/proc/sys/kernel/osrelease"), text("/proc/loadavg"));
    format!(
        "Machine: {cores} cores ({}), {} GiB, Linux {}; load {} when the run began.\n\
         Server: ZooKeeper {} in one process, {java}; sides: Curator {}, {kazoo}.\n\
         Data: {}, first pass in memory (tmpfs), second pass on disk ({}) with forced sync.",
        value(&cpu, "model name"),
        kib >> 20,
        kernel.trim(),
        load.split_whitespace().next().unwrap_or_default(),
        version("libzookeeper-java"),
        version("libcurator-recipes-java"),
        data.parent().unwrap_or(data).display(),
        file_system(Path::new(env!("CARGO_MANIFEST_DIR"))),
    )
}

fn first_line(command: &mut Command) -> String {
    let Ok(output) = command.output() else { return "not installed".into() };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).lines().next().unwrap_or_default().replace('"', "")
}

/// Of a package of Debian's.
fn version(package: &str) -> String {
    first_line(Command::new("dpkg-query").args(["-W", "-f", "${Version}", package]))
}

fn file_system(path: &Path) -> String {
    let kind = first_line(Command::new("stat").args(["-f", "-c", "%T"]).arg(path));
    if kind.is_empty() { "unknown".into() } else { kind }
}
