//! The printed rights of the sample topology, held to a file. Needs no broker.

use std::path::Path;
use std::process::Command;

const ROLES: [&str; 6] = ["processor", "reviewer", "auditor", "committer", "honeypot-keeper", "operator"];

fn printed(role: &str, output: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memsluice"));
    for (key, _) in std::env::vars().filter(|(k, _)| k.starts_with("MEMSLUICE")) {
        command.env_remove(key);
    }
    let principal = format!("User:{role}");
    let args = ["topology", "acls", "--role", role, "--principal", &principal, "--output", output];
    let out = command.args(args).env("MEMSLUICE__KAFKA__TOPIC_PREFIX", "eu-").output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// `MEMSLUICE_BLESS=1` writes the file anew.
#[test]
fn the_rights_of_every_role() {
    let tables = ROLES.map(|role| printed(role, "table")).join("\n");
    let found = format!("{tables}\n{}", printed("processor", "kafka-acls"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/acls.txt");
    if std::env::var_os("MEMSLUICE_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), found);
}

/// Secrecy by rights: only the keeper and the processor may read the registry.
#[test]
fn honeypots_stay_with_their_keeper() {
    for role in ROLES {
        let may_read = printed(role, "json").lines().any(|l| l.contains("\"eu-honeypots\"") && l.contains("\"READ\""));
        assert_eq!(may_read, ["processor", "honeypot-keeper"].contains(&role), "{role}");
    }
}
