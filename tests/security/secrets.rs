//! No secret in anything that is printed: logs at their most talkative, errors, settings, panics.

use crate::access::mechanisms;
use crate::support::{Bench, Ended};
use crate::tokens::{Endpoint, SECRET};

/// Secrets that stand in a text.
fn found(bench: &Bench, ended: &Ended) -> Vec<String> {
    let key = std::fs::read_to_string(bench.secured.folder.join("client.key")).unwrap();
    let lines = key.lines().filter(|l| !l.starts_with("-----")).map(str::to_owned);
    let all = ended.all();
    let secrets = bench.secured.passwords().map(str::to_owned).chain([SECRET.to_owned(), WRONG.to_owned()]);
    secrets.chain(lines).filter(|s| all.contains(s.as_str())).collect()
}

const WRONG: &str = "wrong-password-93ab";

fn talkative(name: &str) -> Option<Bench> {
    let mut bench = Bench::new(name)?;
    bench.set("MEMSLUICE_LOG", "trace");
    bench.set("MEMSLUICE__KAFKA__PROPERTIES__DEBUG", "generic,security,conf,feature,admin,eos,cgrp");
    bench.give("processor", &bench.rights("processor"));
    bench.load(20);
    Some(bench)
}

/// Succeeding and failing runs of each mechanism, with the client's debug log on.
#[test]
fn no_secret_is_printed() {
    let Some(bench) = talkative("secrets") else { return };
    let tokens = Endpoint::start(&bench.secured.folder);
    for (name, access) in mechanisms(&bench, &tokens) {
        // All of it floods the drain loop of a run that goes on; a failing run ends before.
        let good = bench.run(&access.clone().with("debug", "generic,security,conf,feature,admin,eos,cgrp")).ok();
        let access = access.with("debug", "all");
        assert!(good.stderr.contains("librdkafka") && good.stderr.len() > 20_000, "{name}: the log is not talkative");
        let mut all = vec![good, bench.cli(&access, &["run", "--print-config"]).ok()];
        all.push(bench.cli_with_file(&access, &["run", "--print-config", "--output", "json"]).ok());
        for key in ["sasl.password", "sasl.oauthbearer.client.secret", "ssl.key.password"] {
            if access.sets(key) {
                all.push(bench.run(&access.clone().with(key, WRONG)));
            }
        }
        for ended in &all {
            assert_eq!(found(&bench, ended), Vec::<String>::new(), "{name}: {:?}", ended.status);
            assert!(!ended.all().contains("eyJhbGciOi"), "{name}: a token is printed");
        }
    }
}

/// Keys in the settings themselves, and settings that can't be taken.
#[test]
fn no_secret_is_printed_with_a_broken_setting() {
    let Some(bench) = talkative("broken") else { return };
    let key = std::fs::read_to_string(bench.secured.folder.join("client.key")).unwrap();
    let pem = std::fs::read_to_string(bench.secured.folder.join("client.pem")).unwrap();
    let inline = bench.secured.mtls().without("ssl.key.location").without("ssl.certificate.location");
    let inline = inline.without("ssl.key.password").with("ssl.key.pem", &key).with("ssl.certificate.pem", &pem);
    let plain = bench.secured.sasl("PLAIN", "processor");
    let file = bench.folder.path().join("password");
    std::fs::write(&file, format!("{}\n", bench.secured.password("processor"))).unwrap();
    let by_file = plain.clone().without("sasl.password").with("sasl.password.file", crate::support::text(&file));
    let runs = [
        bench.run(&inline).ok(),
        bench.run(&by_file).ok(),
        bench.run(&inline.clone().with("ssl.key.pem", &key.replace("BEGIN", "BEGUN"))),
        bench.run(&inline.clone().with("ssl.keystore.location", "/nonexistent").with("ssl.keystore.password", WRONG)),
        bench.run(&plain.clone().with("no.such.password", WRONG)),
        bench.run(&plain.clone().with("plugin.library.paths", WRONG)),
    ];
    for ended in runs.iter().skip(2) {
        assert_eq!(ended.status, Some(2), "{}", ended.stderr.lines().last().unwrap_or_default());
    }
    let shown: Vec<_> = runs.iter().map(|r| found(&bench, r)).collect();
    assert!(shown.iter().all(Vec::is_empty), "{shown:?}");
}

/// The guard goes red: with the masks off the same search finds the password.
#[test]
fn shown_secrets_go_red() {
    let Some(mut bench) = talkative("shown") else { return };
    bench.set("MEMSLUICE__SABOTAGE", "secrets_shown");
    let ended = bench.run(&bench.secured.sasl("PLAIN", "processor"));
    assert!(found(&bench, &ended).contains(&bench.secured.password("processor").to_owned()));
}

/// What `--print-config` shows: every key, masked, with its origin.
#[test]
fn settings_are_printed_with_their_origin() {
    let Some(bench) = Bench::without_topics("printed") else { return };
    let printed = bench.cli_with_file(&bench.secured.mtls(), &["run", "--print-config"]).ok().stdout;
    let line = |key: &str| {
        let found = printed.lines().find(|l| l.split_whitespace().next() == Some(key));
        found.unwrap_or_else(|| panic!("no {key}: {printed}")).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(line("kafka.properties.ssl.key.password"), "kafka.properties.ssl.key.password **** (memsluice.yaml)");
    assert_eq!(line("kafka.properties.security.protocol"), "kafka.properties.security.protocol ssl (memsluice.yaml)");
    assert_eq!(line("encoder.backend"), "encoder.backend hash (the environment)");
    assert_eq!(line("encoder.dimension"), "encoder.dimension 384 (default)");
    let printed = bench.cli(&bench.secured.tls(), &["run", "--print-config"]).ok().stdout;
    assert!(printed.contains("kafka.properties.ssl.ca.location") && printed.contains("ca.pem  (the environment)"));
}
