//! What adapters make of the shapes that producers document (docs/adapters.md): `tests/golden/adapters`.
//!
//! A case is a record with what comes of it, facts or an error code, in the shape of its folder; the same must
//! come of it under `auto`, unless the case says otherwise. `MEMSLUICE_BLESS=1` writes what came.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use memsluice::decode::{self, Retrieval, Rules};
use memsluice::schema::Headers;
use memsluice::source::{At, Fetched};
use memsluice::topology::{Format, Mapping, Role};
use serde_json::{Value, json};

/// Record time of every case: 2026-01-01T12:00:00Z.
const AT: i64 = 1_767_268_800_000;

fn cases() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/adapters");
    let folders = fs::read_dir(root).unwrap().map(|e| e.unwrap().path());
    let mut files: Vec<PathBuf> = folders.flat_map(|f| fs::read_dir(f).unwrap().map(|e| e.unwrap().path())).collect();
    files.sort();
    files
}

fn rules() -> Rules {
    Rules { max_bytes: 1 << 20, dimension: 4, units: None }
}

fn record(case: &Value) -> Fetched {
    let role: Role = serde_json::from_value(case["topic"].clone()).unwrap();
    let value = match &case["raw"] {
        Value::String(raw) => raw.clone().into_bytes(),
        _ => serde_json::to_vec(&case["value"]).unwrap(),
    };
    let named: BTreeMap<String, String> = serde_json::from_value(case["headers"].clone()).unwrap_or_default();
    let headers: Headers = named.into_iter().map(|(n, v)| (n, Some(v.into_bytes()))).collect();
    let at = At { generation: 0, role, partition: 0, offset: 0, timestamp: AT };
    Fetched { at, key: None, value: Some(value), headers }
}

fn mapping(case: &Value, format: &str) -> Mapping {
    let mut all = case.get("input").cloned().unwrap_or_else(|| json!({}));
    all["format"] = json!(format);
    serde_json::from_value(all).unwrap()
}

fn retrieval(r: &Retrieval) -> Value {
    let results: Vec<Value> = r.results.iter().map(|r| json!({ "id": r.id, "foreign": r.foreign })).collect();
    json!({
        "boundary": r.boundary.as_str(), "event_id": r.event_id, "session_id": r.session_id, "principal": r.principal,
        "query": r.query, "k": r.k, "output_id": r.output_id, "results": results,
    })
}

/// The facts as JSON, or the code.
fn taken(fetched: &Fetched, mapping: &Mapping) -> Value {
    let facts = match fetched.at.role {
        Role::RetrievalLogs => {
            decode::retrievals(fetched, &rules(), mapping).map(|all| all.iter().map(retrieval).collect())
        }
        _ => decode::writes(fetched, &rules(), mapping).map(|all| {
            all.writes.iter().map(|w| serde_json::from_slice(&decode::render(w)).unwrap()).collect::<Vec<Value>>()
        }),
    };
    match facts {
        Ok(facts) => json!({ "facts": facts }),
        Err(e) => json!({ "error": e.code().name(), "message": e.message() }),
    }
}

fn expected(case: &Value) -> Value {
    let kept = ["facts", "error", "message"].into_iter().filter_map(|n| Some((n.to_owned(), case.get(n)?.clone())));
    Value::Object(kept.collect())
}

#[test]
fn shapes_read_as_documented() {
    let bless = std::env::var_os("MEMSLUICE_BLESS").is_some();
    let mut wrong = Vec::new();
    for file in cases() {
        let name = file.strip_prefix(env!("CARGO_MANIFEST_DIR")).unwrap().display().to_string();
        let format = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
        let mut case: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let fetched = record(&case);
        let found = taken(&fetched, &mapping(&case, format));
        if bless && case.get("facts").or(case.get("error")).is_none() {
            case.as_object_mut().unwrap().extend(found.as_object().unwrap().clone());
            fs::write(&file, serde_json::to_string_pretty(&case).unwrap() + "\n").unwrap();
        }
        if found != expected(&case) {
            wrong.push(format!("{name}: {found}"));
        }
        let auto = taken(&fetched, &mapping(&case, "auto"));
        let good = match case["auto"].as_str() {
            Some("skip") => true,
            Some(code) => auto["error"] == code,
            // What has no shape is said otherwise.
            None if found["error"] == "shape_unknown" => auto["error"] == "shape_unknown",
            None => auto == found,
        };
        if !good {
            wrong.push(format!("{name} under auto: {auto}"));
        }
        // Where it is routed to is where it is decided.
        let boundary = decode::boundary_of(&fetched, 1 << 20, &mapping(&case, format));
        let first = found["facts"].as_array().and_then(|all| all.first());
        let its = first.map(|f| match f.get("boundary") {
            Some(b) => b.as_str().unwrap().to_owned(),
            None => format!("{}/{}", f["tenant"].as_str().unwrap(), f["store"].as_str().unwrap()),
        });
        if its.is_some() && boundary.map(|b| b.as_str().to_owned()) != its {
            wrong.push(format!("{name}: routed elsewhere"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every shape has cases, good ones and refused ones, and what can be searched has a search.
#[test]
fn every_shape_has_cases() {
    let mut seen: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for file in cases() {
        let case: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let format = file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
        let what = match (case.get("error").is_some(), case["topic"] == "retrieval-logs") {
            (true, _) => "refused",
            (_, true) => "search",
            _ => "write",
        };
        seen.entry(format).or_default().insert(what);
    }
    for format in Format::ALL.iter().filter(|f| **f != Format::Native) {
        let kinds = seen.get(format.as_str()).unwrap_or_else(|| panic!("no case of {}", format.as_str()));
        assert!(kinds.contains("write") && kinds.contains("refused"), "{}: {kinds:?}", format.as_str());
        let searches = !matches!(format, Format::Anthropic | Format::OpenAi | Format::CloudEvents);
        assert_eq!(kinds.contains("search"), searches, "{}", format.as_str());
    }
}

/// No error repeats the producer's text.
#[test]
fn messages_hold_no_content() {
    for file in cases() {
        let case: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        let message = case["message"].as_str().unwrap_or_default();
        assert!(!message.contains("poison") && message.len() < 200, "{}: {message}", file.display());
    }
}
