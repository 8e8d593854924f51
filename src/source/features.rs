//! What the settings ask of librdkafka against what this build has, so that a lack is found at start and
//! not by a connection that never comes up.

use rdkafka::config::ClientConfig;

use crate::config::Properties;
use crate::error::{Code, Error, Result};

/// Listed by every CMake build of librdkafka, with Cyrus SASL or without it (2.12: it asks whether the macro is
/// defined, and it is defined as 0). This program is built without it (Cargo.toml).
const NOT_BUILT: &str = "sasl_gssapi";

/// Features of this build, as librdkafka lists them, without what it lists wrongly.
///
/// # Errors
/// `internal` when librdkafka does not say.
pub fn features() -> Result<String> {
    let unknown = |e| Error::with(Code::Internal, "the client library does not say what it has", e);
    let listed = ClientConfig::new().create_native_config().and_then(|c| c.get("builtin.features")).map_err(unknown)?;
    let kept: Vec<&str> = listed.split(',').map(str::trim).filter(|f| *f != NOT_BUILT).collect();
    Ok(kept.join(", "))
}

/// Refuses settings that ask for what the build lacks.
///
/// # Errors
/// `config_invalid`.
pub(super) fn check(properties: &Properties, features: &str) -> Result<()> {
    let has = |wanted: &str| features.split(',').any(|f| f.trim() == wanted);
    for (setting, feature) in needs(properties) {
        if !has(feature) {
            let what = format!("kafka.properties {setting}: this build has no {feature}; it has {features}");
            return Err(Error::new(Code::ConfigInvalid, what));
        }
    }
    Ok(())
}

/// Settings with the feature that each needs.
fn needs(properties: &Properties) -> Vec<(String, &'static str)> {
    let mut needed = Vec::new();
    let protocol = properties.protocol();
    if protocol.ends_with("SSL") {
        needed.push((format!("security.protocol = {protocol}"), "ssl"));
    }
    let Some(mechanism) = properties.mechanism() else { return needed };
    let feature = match mechanism.as_str() {
        "PLAIN" => "sasl_plain",
        "SCRAM-SHA-256" | "SCRAM-SHA-512" => "sasl_scram",
        "OAUTHBEARER" => "sasl_oauthbearer",
        _ => "sasl_gssapi",
    };
    needed.push((format!("sasl.mechanisms = {mechanism}"), feature));
    if properties.get("sasl.oauthbearer.method").is_some_and(|m| m.eq_ignore_ascii_case("oidc")) {
        needed.push(("sasl.oauthbearer.method = oidc".to_owned(), "oidc"));
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(pairs: &[(&str, &str)], features: &str) -> Result<()> {
        let mut properties = Properties::default();
        pairs.iter().for_each(|(k, v)| properties.insert(*k, *v));
        check(&properties, features)
    }

    /// What the documentation promises of every release.
    #[test]
    fn this_build_has_tls_sasl_and_oidc() {
        let features = features().unwrap();
        let has = |wanted: &str| features.split(',').any(|f| f.trim() == wanted);
        for wanted in ["ssl", "sasl", "sasl_plain", "sasl_scram", "sasl_oauthbearer", "http", "oidc"] {
            assert!(has(wanted), "{wanted} is not in {features}");
        }
        assert!(!has("sasl_gssapi"), "{features}");
    }

    #[test]
    fn a_lack_is_named_with_its_setting() {
        let asks: [(&[(&str, &str)], &str); 5] = [
            (&[("security.protocol", "ssl")], "ssl"),
            (&[("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanisms", "plain")], "sasl_plain"),
            (&[("security.protocol", "sasl_ssl"), ("sasl.mechanism", "SCRAM-SHA-512")], "sasl_scram"),
            (&[("security.protocol", "sasl_ssl"), ("sasl.mechanisms", "OAUTHBEARER")], "sasl_oauthbearer"),
            (&[("security.protocol", "sasl_ssl")], "sasl_gssapi"),
        ];
        let all = ["ssl", "sasl_plain", "sasl_scram", "sasl_oauthbearer", "sasl_gssapi", "oidc"];
        for (asked_for, feature) in asks {
            asked(asked_for, &all.join(", ")).unwrap();
            let rest: Vec<&str> = all.into_iter().filter(|f| *f != feature).collect();
            let error = asked(asked_for, &rest.join(", ")).unwrap_err();
            assert_eq!(error.code(), Code::ConfigInvalid);
            assert!(error.message().contains(&format!("has no {feature};")), "{error}");
        }
        let oidc = [
            ("security.protocol", "sasl_ssl"),
            ("sasl.mechanisms", "OAUTHBEARER"),
            ("sasl.oauthbearer.method", "oidc"),
        ];
        assert!(asked(&oidc, "ssl, sasl_oauthbearer").unwrap_err().message().contains("no oidc"));
        asked(&[], "").unwrap();
    }
}
