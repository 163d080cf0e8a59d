//! As a user with a password, and as a Kerberos principal.

use std::{fs, process::Command, time::Duration};

use curator_locks::testing::{TestingKdc, TestingServer};

use crate::{FAILED, path, stderr_of, stdout_of, zklock_at};

/// Runs a command that ends with 7.
fn run(command: &mut Command) -> Option<i32> {
    let path = path();
    let output =
        command.args(["run", "--connection-timeout", "60s", &path, "--", "sh", "-c", "exit 7"]).output().unwrap();
    println!("{}", stderr_of(&output));
    output.status.code()
}

#[test]
fn the_command_line_the_environment_and_a_file_say_which_user_one_is() {
    let server = TestingServer::builder().sasl_user("shop", "secret").property("sessionRequireClientSASLAuth", "true");
    let server = server.start().unwrap();
    let at = |options: &[&str]| zklock_at(&server.connect_string(), options);
    assert_eq!(run(at(&["--sasl-user", "shop"]).env("ZKLOCK_SASL_PASSWORD", "secret")), Some(7));
    assert_eq!(run(at(&[]).env("ZKLOCK_SASL_USER", "shop").env("ZKLOCK_SASL_PASSWORD", "secret")), Some(7));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("zklock.toml");
    fs::write(&file, "sasl-user = \"shop\"\nsasl-password = \"secret\"\n").unwrap();
    assert_eq!(run(&mut at(&["--config", file.to_str().unwrap()])), Some(7));

    let refused = |command: &mut Command, expected: &str| {
        let output = command.args(["ls", "/x"]).output().unwrap();
        let said = stderr_of(&output);
        assert_eq!(output.status.code(), Some(FAILED), "{said}");
        assert!(said.contains(expected) && !said.contains("wr0ng"), "{said}");
    };
    let doctor = at(&["doctor", "--sasl-user", "shop"]).env("ZKLOCK_SASL_PASSWORD", "secret").output().unwrap();
    let said = stdout_of(&doctor);
    assert!(said.contains("not encrypted: the password of --sasl-user") && !said.contains("secret"), "{said}");
    refused(at(&["--sasl-user", "shop"]).env("ZKLOCK_SASL_PASSWORD", "wr0ng"), "DigestLoginModule");
    refused(&mut at(&["--sasl-user", "shop"]), "ZKLOCK_SASL_PASSWORD");
    refused(&mut at(&["--sasl-user", "shop", "--kerberos"]), "a password or Kerberos?");
    refused(&mut at(&[]), "demand it");
}

#[test]
fn the_command_line_and_a_file_say_which_principal_one_is() {
    let kdc = TestingKdc::start(Duration::from_secs(600)).unwrap();
    let server = TestingServer::builder().kerberos(&kdc).unwrap().property("sessionRequireClientSASLAuth", "true");
    let server = server.start().unwrap();
    let keytab = kdc.keytab("shop").unwrap();
    let keytab = keytab.to_str().unwrap();
    let at = |options: &[&str], environment: [(&'static str, String); 2]| {
        let mut command = zklock_at(&server.connect_string(), options);
        command.envs(environment);
        command
    };
    let cached = kdc.environment();
    assert_eq!(run(&mut at(&["--keytab", keytab, "--principal", "shop"], cached.clone())), Some(7));
    assert_eq!(run(&mut at(&["--kerberos"], cached.clone())), Some(7), "with the ticket that the keytab has left");
    assert_eq!(run(&mut at(&["--server-principal", "zookeeper/127.0.0.1"], cached)), Some(7));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("zklock.toml");
    fs::write(&file, format!("keytab = {keytab:?}\nprincipal = \"shop\"\n")).unwrap();
    assert_eq!(run(&mut at(&["--config", file.to_str().unwrap()], kdc.environment())), Some(7));
    let doctor = at(&["doctor", "--keytab", keytab, "--principal", "shop"], kdc.environment()).output().unwrap();
    assert!(stdout_of(&doctor).contains("acquired and released"), "{}", stdout_of(&doctor));
    assert!(stdout_of(&doctor).contains("not encrypted: a ticket proves"), "{}", stdout_of(&doctor));

    let without = at(&["--kerberos", "ls", "/x"], kdc.environment()).output().unwrap();
    let said = stderr_of(&without);
    assert!(without.status.code() == Some(FAILED) && said.contains("run kinit"), "{said}");
    let nameless = at(&["--keytab", keytab, "ls", "/x"], kdc.environment()).output().unwrap();
    let said = stderr_of(&nameless);
    assert!(nameless.status.code() == Some(FAILED) && said.contains("principal"), "{said}");
}
