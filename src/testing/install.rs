//! Where ZooKeeper and Java are on this machine.

use std::{
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use super::error::TestingError;

const DEBIAN_JARS: &str = "/usr/share/java";

/// Without these no server starts.
const REQUIRED: [&str; 3] = ["zookeeper.jar", "zookeeper-jute.jar", "slf4j-api.jar"];

/// Named one by one, because the directory holds the jars of the whole distribution. ZooKeeper's own jar names most of
/// what it needs in its manifest, but for a part of Netty (for TLS) and a logger that writes to standard error. Versions
/// differ in what they need of these, so a missing one is left out.
const WANTED: [&str; 3] = ["netty-codec.jar", "netty-resolver.jar", "slf4j-simple.jar"];

/// The programs and files that start a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Installation {
    pub(super) java: PathBuf,
    pub(super) class_path: OsString,
}

impl Installation {
    /// Looks for ZooKeeper in `ZOOKEEPER_HOME`, then among Debian's jars; for Java in `JAVA_HOME`, then in `PATH`.
    pub(super) fn find() -> Result<Installation, TestingError> {
        Installation::find_with(&|name| env::var_os(name).filter(|value| !value.is_empty()), Path::new(DEBIAN_JARS))
    }

    fn find_with(
        variable: &dyn Fn(&str) -> Option<OsString>,
        debian_jars: &Path,
    ) -> Result<Installation, TestingError> {
        let jars = match variable("ZOOKEEPER_HOME") {
            Some(home) => jars_of_release(Path::new(&home))?,
            None => jars_of_debian(debian_jars)?,
        };
        let class_path = env::join_paths(jars)
            .map_err(|error| not_installed("ZooKeeper's jars", error.to_string(), "move them to another path"))?;
        Ok(Installation { java: java(variable)?, class_path })
    }
}

/// An unpacked release: its configuration of the log, its own jar at the top (before 3.5) or in `lib`.
fn jars_of_release(home: &Path) -> Result<Vec<PathBuf>, TestingError> {
    let mut jars: Vec<PathBuf> = [home, &home.join("lib")].into_iter().flat_map(jars_in).collect();
    let mut names = jars.iter().filter_map(|jar| jar.file_name());
    if !names.any(|name| name.to_string_lossy().starts_with("zookeeper")) {
        let searched = format!("ZOOKEEPER_HOME={}", home.display());
        return Err(not_installed("ZooKeeper", searched, "name an unpacked binary release, or unset ZOOKEEPER_HOME"));
    }
    jars.insert(0, home.join("conf"));
    Ok(jars)
}

fn jars_in(directory: &Path) -> Vec<PathBuf> {
    let entries = directory.read_dir().into_iter().flatten().flatten().map(|entry| entry.path());
    let mut jars: Vec<PathBuf> = entries.filter(|path| path.extension() == Some(OsStr::new("jar"))).collect();
    jars.sort();
    jars
}

fn jars_of_debian(directory: &Path) -> Result<Vec<PathBuf>, TestingError> {
    if !REQUIRED.iter().all(|jar| directory.join(jar).is_file()) {
        let searched = format!("ZOOKEEPER_HOME (not set) and {}", directory.display());
        return Err(not_installed("ZooKeeper", searched, "apt-get install zookeeper"));
    }
    let jars = REQUIRED.iter().chain(&WANTED).map(|jar| directory.join(jar));
    Ok(jars.filter(|jar| jar.is_file()).collect())
}

fn java(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, TestingError> {
    let home = variable("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
    let path = variable("PATH").unwrap_or_default();
    let mut candidates = home.into_iter().chain(env::split_paths(&path)).map(|directory| directory.join("java"));
    candidates
        .find(|java| java.is_file())
        .ok_or_else(|| not_installed("java", "JAVA_HOME and PATH".into(), "apt-get install default-jre-headless"))
}

fn not_installed(what: &'static str, searched: String, remedy: &str) -> TestingError {
    TestingError::NotInstalled { what, searched, remedy: remedy.into() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs;

    use super::*;

    fn touch(path: &Path) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "").unwrap();
    }

    fn find(variables: &[(&str, &Path)], debian_jars: &Path) -> Result<Installation, TestingError> {
        let variable = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.as_os_str().to_owned())
        };
        Installation::find_with(&variable, debian_jars)
    }

    #[test]
    fn a_missing_zookeeper_names_the_package() {
        let empty = tempfile::tempdir().unwrap();
        let error = find(&[], empty.path()).unwrap_err();
        assert!(error.to_string().contains("apt-get install zookeeper"), "{error}");
    }

    #[test]
    fn a_missing_java_names_the_package() {
        let jars = tempfile::tempdir().unwrap();
        REQUIRED.iter().for_each(|jar| touch(&jars.path().join(jar)));
        let error = find(&[("PATH", jars.path())], jars.path()).unwrap_err();
        assert!(error.to_string().contains("apt-get install default-jre-headless"), "{error}");
    }

    #[test]
    fn zookeeper_home_comes_before_debian_and_java_home_before_path() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        ["home/lib/zookeeper-3.9.3.jar", "home/lib/a.jar", "jdk/bin/java", "bin/java"]
            .iter()
            .for_each(|path| touch(&at(path)));
        let variables = [("ZOOKEEPER_HOME", at("home")), ("JAVA_HOME", at("jdk")), ("PATH", at("bin"))];
        let variables: Vec<(&str, &Path)> = variables.iter().map(|(name, path)| (*name, path.as_path())).collect();
        let found = find(&variables, Path::new(DEBIAN_JARS)).unwrap();
        assert_eq!(found.java, at("jdk/bin/java"));
        let jars = [at("home/conf"), at("home/lib/a.jar"), at("home/lib/zookeeper-3.9.3.jar")];
        assert_eq!(found.class_path, env::join_paths(jars).unwrap());
    }

    #[test]
    fn an_empty_zookeeper_home_is_an_error_rather_than_ignored() {
        let root = tempfile::tempdir().unwrap();
        let error = find(&[("ZOOKEEPER_HOME", root.path())], Path::new(DEBIAN_JARS)).unwrap_err();
        assert!(error.to_string().contains("ZOOKEEPER_HOME="), "{error}");
    }
}
