//! `kafka.properties`: verbatim librdkafka settings, with what is refused and why, and with secrets that
//! neither `Debug` nor `Serialize` shows.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize, Serializer};

use super::mask::{MASK, remember};
use crate::error::{Code, Error, Result};

/// Keys whose value may stand in a file, named by `<key>_file`.
const FROM_FILE: &[&str] = &[
    "sasl.username",
    "sasl.password",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.config",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.private.key.pem",
    "ssl.key.password",
    "ssl.keystore.password",
    "ssl.key.pem",
    "ssl.certificate.pem",
    "ssl.ca.pem",
    "https.ca.pem",
];

/// Keys that would break exactly-once, the order of a unit or secrecy, and why.
const DENIED: &[(&str, &str)] = &[
    ("isolation.level", "reading uncommitted records breaks exactly-once"),
    ("transactional.id", "derived from the application and instance id"),
    ("enable.auto.commit", "offsets move in the transaction"),
    ("auto.commit.enable", "offsets move in the transaction"),
    ("enable.auto.offset.store", "offsets move in the transaction"),
    ("auto.offset.reset", "a lost offset stops the stream; skipping inputs without a word breaks exactly-once"),
    ("enable.idempotence", "always on"),
    ("acks", "always all"),
    ("request.required.acks", "always all"),
    ("queuing.strategy", "lifo breaks the order of outputs"),
    ("partition.assignment.strategy", "set consumer.assignor in the topology"),
    ("group.protocol", "set consumer.assignor in the topology"),
    ("group.remote.assignor", "set consumer.assignor in the topology"),
    ("group.id", "set kafka.group"),
    ("group.instance.id", "set kafka.instance_id"),
    ("bootstrap.servers", "set kafka.bootstrap"),
    ("metadata.broker.list", "set kafka.bootstrap"),
    ("allow.auto.create.topics", "topics are created from the topology alone"),
    ("enable.partition.eof", "used to find the end of inputs"),
    ("partitioner", "outputs name their partition"),
    ("transaction.timeout.ms", "set commit.transaction_timeout in the topology"),
    ("session.timeout.ms", "set consumer.session_timeout in the topology"),
    ("plugin.library.paths", "loads code into the process that could read every memory"),
    ("ssl.engine.location", "loads code into the process that could read every memory"),
    ("ssl.providers", "loads code into the process that could read every memory"),
    ("sasl.kerberos.kinit.cmd", "runs a shell command; this build has no Kerberos"),
    ("builtin.features", "says what the build has; it can't be set"),
];

/// Values that are refused under a key that is allowed, and why.
const DENIED_VALUES: &[(&str, &str, &str)] = &[
    (
        "enable.ssl.certificate.verification",
        "false",
        "anyone on the way could read every memory; name the authority in ssl.ca.location",
    ),
    (
        "ssl.endpoint.identification.algorithm",
        "none",
        "any holder of a certificate of the authority could pose as the broker; use a name that its certificate has",
    ),
    (
        "enable.sasl.oauthbearer.unsecure.jwt",
        "true",
        "an unsigned token proves nothing; use sasl.oauthbearer.method=oidc",
    ),
];

/// Checked settings of every Kafka client, by librdkafka's own keys.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Properties {
    values: BTreeMap<String, String>,
    /// Sabotage only: secrets are shown.
    #[serde(skip)]
    shown: bool,
}

impl Properties {
    /// Sets a key.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) {
        self.values.insert(key.into(), value.into());
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// All keys with their values, secrets included.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// All keys with what a reader may see.
    pub fn visible(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().map(|(k, v)| (k, if self.masks(k, v) { MASK } else { v }))
    }

    /// Whether a value must not be shown.
    #[must_use]
    pub fn masks(&self, key: &str, value: &str) -> bool {
        !self.shown && is_secret(key, value)
    }

    /// The SASL mechanism in capitals; librdkafka's default when SASL is asked for is GSSAPI.
    #[must_use]
    pub fn mechanism(&self) -> Option<String> {
        if !self.protocol().starts_with("SASL_") {
            return None;
        }
        let named = self.get("sasl.mechanisms").or_else(|| self.get("sasl.mechanism"));
        Some(named.unwrap_or("GSSAPI").to_ascii_uppercase())
    }

    /// The security protocol in capitals.
    #[must_use]
    pub fn protocol(&self) -> String {
        self.get("security.protocol").unwrap_or("PLAINTEXT").to_ascii_uppercase()
    }

    /// Turns `_` into `.`, reads `<key>_file`, refuses what is denied, and remembers secrets for the mask.
    ///
    /// # Errors
    /// `config_invalid`.
    pub(super) fn resolve(self, shown: bool) -> Result<Self> {
        let mut values = BTreeMap::new();
        // Names with an underscore come from the environment, which wins.
        let (from_environment, from_file): (Vec<_>, Vec<_>) =
            self.values.into_iter().partition(|(key, _)| key.contains('_'));
        values.extend(from_file);
        values.extend(from_environment.into_iter().map(|(key, value)| (key.replace('_', "."), value)));
        for key in FROM_FILE {
            read_file(&mut values, key)?;
        }
        let this = Self { values, shown };
        this.check()?;
        if !shown {
            this.iter().filter(|(k, v)| is_secret(k, v)).for_each(|(_, v)| remember(v));
        }
        Ok(this)
    }

    fn check(&self) -> Result<()> {
        let refuse = |what: String, why: &str| {
            Err(Error::new(Code::ConfigInvalid, format!("kafka.properties may not set {what}: {why}")))
        };
        for (key, why) in DENIED {
            if self.values.contains_key(*key) {
                return refuse((*key).to_owned(), why);
            }
        }
        for (key, value, why) in DENIED_VALUES {
            if self.get(key).is_some_and(|v| v.trim().eq_ignore_ascii_case(value)) {
                return refuse(format!("{key} to {value}"), why);
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Properties {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.visible()).finish()
    }
}

impl Serialize for Properties {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_map(self.visible())
    }
}

/// Whether a value must not be shown: by the words of its key, or a URL with a password in it.
fn is_secret(key: &str, value: &str) -> bool {
    let public = [".location", ".file", ".url", ".algorithm"].iter().any(|end| key.ends_with(end));
    let named = ["password", "secret", "passphrase", ".pem", "token", "private"].iter().any(|w| key.contains(w));
    let url = value.split_once("://").is_some_and(|(_, rest)| rest.split('/').next().is_some_and(|h| h.contains('@')));
    url || key == "sasl.oauthbearer.config" || (named && !public)
}

/// Replaces `<key>.file` (as `<key>_file` is by now) by the content of the file, without its last newline.
fn read_file(values: &mut BTreeMap<String, String>, key: &str) -> Result<()> {
    let Some(path) = values.remove(&format!("{key}.file")) else { return Ok(()) };
    let invalid = |what: &str| Error::new(Code::ConfigInvalid, format!("kafka.properties {key}_file: {what}"));
    if values.contains_key(key) {
        return Err(invalid(&format!("{key} is set too; keep one")));
    }
    let content = std::fs::read_to_string(&path).map_err(|e| invalid(&format!("can't read {path}: {e}")))?;
    let content = content.strip_suffix('\n').unwrap_or(&content);
    let content = content.strip_suffix('\r').unwrap_or(content);
    if content.is_empty() {
        return Err(invalid(&format!("{path} is empty")));
    }
    values.insert(key.to_owned(), content.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Properties {
        let mut p = Properties::default();
        pairs.iter().for_each(|(k, v)| p.insert(*k, *v));
        p
    }

    fn refused(pairs: &[(&str, &str)]) -> String {
        let error = of(pairs).resolve(false).unwrap_err();
        assert_eq!(error.code(), Code::ConfigInvalid);
        error.to_string()
    }

    #[test]
    fn the_environment_names_keys_by_underscores_and_wins() {
        let p = of(&[("sasl.username", "file"), ("sasl_username", "env"), ("ssl_ca_location", "/ca")]);
        let p = p.resolve(false).unwrap();
        assert_eq!((p.get("sasl.username"), p.get("ssl.ca.location")), (Some("env"), Some("/ca")));
    }

    #[test]
    fn every_denied_key_is_refused_with_its_reason() {
        for (key, why) in DENIED {
            assert!(refused(&[(key, "x")]).contains(why), "{key}");
            assert!(refused(&[(&key.replace('.', "_"), "x")]).contains(why), "{key} from the environment");
        }
        for (key, value, why) in DENIED_VALUES {
            assert!(refused(&[(key, &value.to_uppercase())]).contains(why), "{key}");
        }
        of(&[("enable.ssl.certificate.verification", "true")]).resolve(false).unwrap();
    }

    #[test]
    fn secrets_come_from_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("p");
        let path = path.to_str().unwrap();
        std::fs::write(path, "from-the-file\r\n").unwrap();
        for name in ["sasl.password_file", "sasl_password_file"] {
            assert_eq!(of(&[(name, path)]).resolve(false).unwrap().get("sasl.password"), Some("from-the-file"));
        }
        // librdkafka's own key of this form stays as it is.
        let own = of(&[("sasl.oauthbearer.assertion.file", path)]).resolve(false).unwrap();
        assert_eq!(own.get("sasl.oauthbearer.assertion.file"), Some(path));
        assert!(refused(&[("sasl.password", "inline-value"), ("sasl.password_file", path)]).contains("keep one"));
        assert!(refused(&[("ssl.key.password_file", "/nonexistent")]).contains("ssl.key.password_file: can't read"));
        std::fs::write(path, "\n").unwrap();
        assert!(refused(&[("sasl.password_file", path)]).contains("is empty"));
    }

    #[test]
    fn neither_debug_nor_serialize_shows_a_secret() {
        let secret = "correct-horse";
        let keys = FROM_FILE.iter().filter(|k| !matches!(**k, "sasl.username" | "sasl.oauthbearer.client.id"));
        for key in keys.chain(&["ssl.truststore.password", "some.future.secret"]) {
            let p = of(&[(key, secret), ("ssl.key.location", "/path/key.pem")]);
            let text = format!("{p:?} {}", serde_json::to_string(&p).unwrap());
            assert!(!text.contains(secret), "{key}: {text}");
            assert_eq!(text.matches("/path/key.pem").count(), 2, "a path is no secret: {text}");
        }
        let url = format!("https://user:{secret}@host/token");
        assert!(!format!("{:?}", of(&[("sasl.oauthbearer.token.endpoint.url", &url)])).contains(secret));
        let plain = of(&[("sasl.oauthbearer.token.endpoint.url", "https://host/token@2")]);
        assert!(format!("{plain:?}").contains("https://host/token@2"));
    }
}
