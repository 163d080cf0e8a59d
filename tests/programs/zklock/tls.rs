//! Encrypted, and with a certificate of one's own.

use std::fs;

use curator_locks::testing::{TestingAuthority, TestingServer};

use crate::{FAILED, path, stderr_of, stdout_of, zklock_at};

#[test]
fn the_command_line_and_a_file_say_whom_to_trust_and_who_one_is() {
    let authority = TestingAuthority::new("authority of the tests").unwrap();
    let tls = authority.server().unwrap().client_auth(true);
    let server = TestingServer::builder().secure_client_port(tls).start().unwrap();
    let address = server.secure_connect_string().unwrap();

    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = directory.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let client = authority.issue("client", None).unwrap();
    let (cert, key) = (write("client.pem", client.certificate_pem()), write("client.key", client.key_pem()));
    let ca = write("ca.pem", &authority.pem());
    let stranger = write("stranger.pem", &TestingAuthority::new("another authority").unwrap().pem());

    let own = ["--tls-cert", &cert, "--tls-key", &key];
    let run = |options: &[&str]| {
        let (path, timeout) = (path(), ["--connection-timeout", "60s"]);
        let words = [&["run"], &timeout[..], options, &[&path, "--", "sh", "-c", "exit 7"]].concat();
        zklock_at(&address, words).output().unwrap()
    };
    let good = run(&[&["--tls-ca", &ca], &own[..]].concat());
    assert_eq!(good.status.code(), Some(7), "{}", stderr_of(&good));

    let file = write("zklock.toml", &format!("tls-ca = {ca:?}\ntls-cert = {cert:?}\ntls-key = {key:?}\n"));
    let shown = zklock_at(&address, ["ls", "--config", &file, "/nothing"]).output().unwrap();
    assert!(stdout_of(&shown).contains("unused"), "{}", stderr_of(&shown));
    let doctor = zklock_at(&address, ["doctor", "--config", &file]).output().unwrap();
    assert!(stdout_of(&doctor).contains("acquired and released"), "{}", stdout_of(&doctor));
    assert!(stdout_of(&doctor).contains("TLS, with a certificate"), "{}", stdout_of(&doctor));

    let half = write("half.toml", &format!("tls-ca = {ca:?}\ntls-cert = {cert:?}\n"));
    let blind = write("blind.toml", &format!("tls-cert = {cert:?}\ntls-key = {key:?}\n"));
    let short = ["--connection-timeout", "6s"];
    for (options, expected) in [
        (vec!["--config", &half], "belong together"),
        (vec!["--config", &blind], "whom to trust?"),
        ([&["--tls-ca", &stranger], &own[..], &short[..]].concat(), "certificate"),
        ([&["--tls-ca", "/no/such/file"], &own[..]].concat(), "/no/such/file: No such file"),
    ] {
        let words = [&["ls"], &options[..], &["/x"]].concat();
        let output = zklock_at(&address, &words).output().unwrap();
        let said = stderr_of(&output);
        assert_eq!(output.status.code(), Some(FAILED), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    }
}
