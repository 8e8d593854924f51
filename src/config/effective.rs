//! The settings in force, each with where it came from, secrets masked.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::Config;
use super::mask::hide;
use crate::error::{Code, Error, Result};

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// Dotted key; librdkafka's own key follows `kafka.properties.`.
    pub key: String,
    /// Value as text; empty when none is set.
    pub value: String,
    /// `default`, `the environment`, or the file.
    pub origin: String,
}

impl Config {
    /// All settings in force in the order of their keys, secrets masked.
    ///
    /// # Errors
    /// `internal` when a value can't be written.
    pub fn effective(&self) -> Result<Vec<Setting>> {
        let tree = serde_json::to_value(self)
            .map_err(|e| Error::with(Code::Internal, "the configuration can't be written", e))?;
        let mut settings = Vec::new();
        flatten("", &tree, &mut |key, value| {
            let origin = self.origins.get(key).map_or("default", String::as_str);
            settings.push(Setting { key: key.to_owned(), value, origin: origin.to_owned() });
        });
        Ok(settings)
    }
}

fn flatten(path: &str, value: &Value, each: &mut impl FnMut(&str, String)) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let dot = if path.is_empty() { "" } else { "." };
                flatten(&format!("{path}{dot}{key}"), value, each);
            }
        }
        Value::Null => each(path, String::new()),
        Value::String(text) => each(path, text.clone()),
        other => each(path, other.to_string()),
    }
}

/// Where each value came from, by its key as `effective` names it.
pub(super) fn origins(tree: &config::Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    leaves("", tree, &mut |key, value| {
        if let Some(origin) = value.origin() {
            found.insert(key.to_owned(), origin.to_owned());
        }
    });
    let underscored: Vec<String> = found.keys().filter(|k| k.starts_with(PROPERTIES)).cloned().collect();
    for key in underscored {
        let name = key[PROPERTIES.len()..].replace('_', ".");
        let name = name.strip_suffix(".file").unwrap_or(&name);
        let from_environment = key[PROPERTIES.len()..].contains('_');
        if let Some(origin) = found.get(&key).cloned()
            && from_environment
        {
            found.insert(format!("{PROPERTIES}{name}"), origin);
        }
    }
    found
}

const PROPERTIES: &str = "kafka.properties.";

/// An error's text without any value of `kafka.properties`: the parser repeats what it could not take.
pub(super) fn without_values(text: &str, tree: &config::Value) -> String {
    let mut values = Vec::new();
    leaves("", tree, &mut |key, value| {
        if key.starts_with("kafka.properties")
            && let Ok(text) = value.clone().into_string()
        {
            values.push(text);
        }
    });
    values.sort_by_key(|v| std::cmp::Reverse(v.len()));
    hide(text, &values).into_owned()
}

fn leaves(path: &str, value: &config::Value, each: &mut impl FnMut(&str, &config::Value)) {
    let config::ValueKind::Table(table) = &value.kind else { return each(path, value) };
    for (key, value) in table {
        let dot = if path.is_empty() { "" } else { "." };
        leaves(&format!("{path}{dot}{key}"), value, each);
    }
}
