//! Topology, settings and binary of a run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// The sample topology with texts replaced; each must be there.
pub(crate) fn topology(root: &Path, folder: &Path, changes: &[(&str, &str)]) -> Result<()> {
    fs::create_dir_all(folder).map_err(|e| Error::io("make", folder, e))?;
    let mut missing: Vec<&str> = changes.iter().map(|(from, _)| *from).collect();
    for name in ["memsluice.yaml", "topics.yaml", "policy.yaml"] {
        let source = root.join("topology").join(name);
        let mut text = fs::read_to_string(&source).map_err(|e| Error::io("read", &source, e))?;
        for (from, to) in changes {
            missing.retain(|m| !text.contains(m));
            text = text.replace(from, to);
        }
        write(&folder.join(name), &text)?;
    }
    if missing.is_empty() { Ok(()) } else { Err(Error::Input(format!("the sample topology has no {missing:?}"))) }
}

/// Environment of a member, but for its id and state folder.
pub(crate) fn environment(folder: &Path, bootstrap: &str, prefix: &str, group: &str) -> Vec<(String, String)> {
    let path = |name: &str| folder.join(name).display().to_string();
    let all = [
        ("MEMSLUICE__KAFKA__BOOTSTRAP", bootstrap.to_owned()),
        ("MEMSLUICE__KAFKA__TOPIC_PREFIX", prefix.to_owned()),
        ("MEMSLUICE__KAFKA__GROUP", group.to_owned()),
        ("MEMSLUICE__SECRET_FILE", path("secret")),
        ("MEMSLUICE__ENCODER__BACKEND", "hash".to_owned()),
        ("MEMSLUICE_TOPOLOGY", path("topology")),
        // Members of one host would share the port.
        ("MEMSLUICE__HTTP__LISTEN", "off".to_owned()),
        ("MEMSLUICE_LOG", "info".to_owned()),
        ("NO_COLOR", "1".to_owned()),
    ];
    all.map(|(key, value)| (key.to_owned(), value)).into()
}

/// The binary under test: as given, else beside this one.
pub(crate) fn binary(given: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(path) = given {
        return Ok(path.clone());
    }
    let own = std::env::current_exe();
    own.map(|path| path.with_file_name("memsluice"))
        .map_err(|source| Error::Io { what: "can't find memsluice".to_owned(), source })
}

/// Writes a file.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|e| Error::io("write", path, e))
}
