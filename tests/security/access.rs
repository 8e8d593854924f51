//! The stream over each mechanism, and each refusal with its code and the setting to look at.

use crate::support::{Access, Bench, QUERIES};
use crate::tokens::{Endpoint, SECRET};

/// Every mechanism with the settings that it needs.
pub(crate) fn mechanisms(bench: &Bench, tokens: &Endpoint) -> Vec<(&'static str, Access)> {
    let s = &bench.secured;
    vec![
        ("TLS", s.tls()),
        ("mTLS", s.mtls()),
        ("PLAIN", s.sasl("PLAIN", "processor")),
        ("SCRAM-SHA-256", s.sasl("SCRAM-SHA-256", "processor")),
        ("SCRAM-SHA-512", s.sasl("SCRAM-SHA-512", "processor")),
        ("OAUTHBEARER", s.oidc(&tokens.url("good"))),
    ]
}

/// Consumer, transactional producer, admin client and restore of a lost state, over each mechanism and under
/// exactly the printed rights; alternately by file and by environment.
#[test]
fn the_stream_runs_over_every_mechanism() {
    let Some(bench) = Bench::new("access") else { return };
    let tokens = Endpoint::start(&bench.secured.folder);
    bench.give("processor", &bench.rights("processor"));
    bench.load(100);
    bench.run(&bench.secured.sasl("SCRAM-SHA-256", "processor")).ok();
    for (i, (name, access)) in mechanisms(&bench, &tokens).into_iter().enumerate() {
        bench.load(50);
        bench.wipe_state();
        let args = ["run", "--until-end", "--output", "json"];
        let ended = if i % 2 == 0 { bench.cli(&access, &args) } else { bench.cli_with_file(&access, &args) };
        let totals = ended.ok().totals();
        assert_eq!(totals["inputs"], 50 + QUERIES, "{name}: {totals}");
        assert!(totals["replayed"].as_u64().unwrap() > 0, "{name} restores: {totals}");
    }
    bench.verify();
}

/// Wrong credentials, certificates and tokens.
#[test]
fn every_refusal_names_its_setting() {
    let Some(bench) = Bench::new("refused") else { return };
    let tokens = Endpoint::start(&bench.secured.folder);
    let s = &bench.secured;
    let wrong = |mechanism: &str| s.sasl(mechanism, "processor").with("sasl.password", "not-the-password");
    let other = s.path("other-ca.pem");
    let port = |listener: &str| s.listener(listener).rsplit(':').next().unwrap().to_owned();
    let unused = "http://127.0.0.1:1/token";
    let (tls, user, oidc) = ("tls_failed", "authentication_failed", "sasl.oauthbearer.");
    let cases: Vec<(&str, Access, &str, &str)> = vec![
        ("PLAIN", wrong("PLAIN"), user, "sasl.password"),
        ("SCRAM-SHA-256", wrong("SCRAM-SHA-256"), user, "sasl.password"),
        ("SCRAM-SHA-512", wrong("SCRAM-SHA-512"), user, "sasl.password"),
        ("no such user", wrong("SCRAM-SHA-512").with("sasl.username", "nobody-knows"), user, "sasl.username"),
        ("untrusted authority", s.tls().with("ssl.ca.location", &other), tls, "ssl.ca.location"),
        ("the same under SASL", wrong("PLAIN").with("ssl.ca.location", &other), tls, "ssl.ca.location"),
        ("host name", s.tls().at(&format!("localhost:{}", port("tls"))), tls, "kafka.bootstrap"),
        ("no client certificate", s.tls().at(s.listener("mtls")), tls, "ssl.certificate.location"),
        (
            "certificate of another authority",
            s.mtls()
                .with("ssl.certificate.location", &s.path("other-client.pem"))
                .with("ssl.key.location", &s.path("other-client.key")),
            tls,
            "ssl.certificate.location",
        ),
        ("expired token", s.oidc(&tokens.url("expired")), user, oidc),
        ("token of another issuer's key", s.oidc(&tokens.url("foreign")), user, oidc),
        ("no token endpoint", s.oidc(unused), user, "sasl.oauthbearer.token.endpoint.url"),
        (
            "client secret",
            s.oidc(&tokens.url("good")).with("sasl.oauthbearer.client.secret", &SECRET[1..]),
            user,
            "sasl.oauthbearer.client.secret",
        ),
    ];
    for (what, access, code, named) in cases {
        let start = std::time::Instant::now();
        bench.run(&access).refused(3, code, named);
        eprintln!("{what}: {code} after {:.1} s", start.elapsed().as_secs_f64());
    }
}

/// What can be seen without the broker is an error of configuration.
#[test]
fn broken_settings_are_found_before_connecting() {
    let Some(bench) = Bench::without_topics("broken") else { return };
    let s = &bench.secured;
    let cases = [
        (s.mtls().with("ssl.key.password", "not-the-password"), "ssl.key"),
        (s.tls().with("ssl.ca.location", "/nonexistent.pem"), "ssl.ca.location"),
        (s.sasl("GSSAPI", "processor"), "sasl.mechanisms = GSSAPI: this build has no sasl_gssapi"),
        (s.sasl("PLAIN", "processor").with("plugin.library.paths", "x"), "plugin.library.paths"),
        (s.tls().with("enable.ssl.certificate.verification", "false"), "ssl.ca.location"),
        (s.tls().without("security.protocol").with("security.protokol", "ssl"), "security.protokol"),
        (s.tls().with("ssl.key.pem", "no key at all"), "ssl.key.pem"),
    ];
    for (access, named) in cases {
        bench.run(&access).refused(2, "config_invalid", named);
    }
}

/// Not the stream alone: admin, producer and reader commands sign in and are refused alike.
#[test]
fn commands_are_refused_alike() {
    let Some(bench) = Bench::new("commands") else { return };
    let honeypots = bench.folder.path().join("honeypots.jsonl");
    std::fs::write(&honeypots, r#"{"tenant":"acme","store":"support","honeypot_id":"hp-1","record_id":"m-1"}"#)
        .unwrap();
    let load = ["honeypots", "load", "--file", crate::support::text(&honeypots)];
    let commands: [&[&str]; 4] = [
        &["topology", "apply"],
        &["topology", "check", "--live"],
        &load,
        &["calibrate", "fit", "--topic-range", "--boundary", "acme/support"],
    ];
    let s = &bench.secured;
    let wrong = s.sasl("SCRAM-SHA-512", "processor").with("sasl.password", "not-the-password");
    let nobody = s.sasl("SCRAM-SHA-512", "nobody");
    for args in commands {
        bench.cli(&wrong, args).refused(3, "authentication_failed", "sasl.password");
        bench.cli(&s.tls().with("ssl.ca.location", &s.path("other-ca.pem")), args).refused(3, "tls_failed", "ssl.ca");
        if args != ["topology", "apply"] {
            bench.cli(&nobody, args).refused(3, "access_denied", "this principal lacks");
        }
    }
    let Some(other) = Bench::without_topics("commands2") else { return };
    other.cli(&nobody, &["topology", "apply"]).refused(3, "access_denied", "lacks CREATE on topic");
}
