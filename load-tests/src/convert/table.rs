//! Which row becomes what: the one table of origins, and the conversion of one row. Pure.
//!
//! A row's own `origin` or `source` wins where it holds a known word. Otherwise the file says which
//! channel its texts would arrive by. A benign set and an attack on the same kind of memory get the same
//! origin on purpose: an origin that told them apart would make every detector look good.

use serde::{Deserialize, Serialize};

use crate::time::{millis, rfc3339};

/// Tenant of everything converted.
pub(crate) const TENANT: &str = "data";

/// Line n of a file without times is at this plus n seconds: 2026-01-01T00:00:00Z.
const EPOCH: i64 = 1_767_225_600_000;

/// File stem, origin, why.
const ORIGINS: &[(&str, &str, &str)] = &[
    ("memorybank_en_writes", "user_input", "turns that a user typed"),
    ("agent_memory_corpus", "agent_generated", "short facts as an agent's extractor notes them"),
    ("memorygraft_experiences", "agent_generated", "experiences that an agent recorded of itself"),
    ("ehragent_runs", "agent_generated", "runs that the agent stored"),
    ("ehrsql_memory_writes", "agent_generated", "question and solution as the same agent would store them"),
    ("minja_reconstructed", "agent_generated", "runs that the agent stored; that a user led it is not visible there"),
    ("memorygraft_poison", "agent_generated", "poses as the agent's own experience, like memorygraft_experiences"),
    ("agentpoison_records", "external", "put into the knowledge base from outside"),
    ("poisonedrag_texts", "retrieved", "passages of web pages"),
    ("mem_inv_bench", "tool_output", "notes taken from mail, pages and tickets, benign ones too"),
    ("aws_write_cases", "user_input", "what a user asks the agent to remember"),
    ("owasp_amg_corpus", "user_input", "memory values of a chat agent, benign ones too"),
    ("memsad_templates", "user_input", "passages that an ordinary account wrote to a shared memory"),
];

/// Origin where neither the row nor the table says one.
const UNKNOWN: &str = "external";

/// Words a row may use itself, and what they mean.
const WORDS: &[(&str, &str)] = &[
    ("user_input", "user_input"),
    ("user_message", "user_input"),
    ("system", "system"),
    ("operator", "system"),
    ("agent_generated", "agent_generated"),
    ("tool_output", "tool_output"),
    ("retrieved", "retrieved"),
    ("web_page", "retrieved"),
    ("external", "external"),
];

/// What is read of a row.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) kind: String,
    pub(crate) text: Option<String>,
    label: Option<String>,
    ts: Option<String>,
    user: Option<String>,
    session: Option<String>,
    origin: Option<String>,
    source: Option<String>,
}

/// A memory-write as memsluice reads it. `label` is for the reader of results.
#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Write {
    tenant: &'static str,
    store: String,
    record_id: String,
    op: &'static str,
    content: String,
    origin: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

/// A retrieval event without results.
#[derive(Debug, Serialize, PartialEq)]
pub(crate) struct Query {
    tenant: &'static str,
    store: String,
    event_id: String,
    session_id: String,
    principal: String,
    results: [(); 0],
    query: String,
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
}

/// What a row became.
#[derive(Debug, PartialEq)]
pub(crate) enum Converted {
    /// A memory-write.
    Write(Write),
    /// A retrieval event.
    Query(Query),
    /// Nothing, with the reason.
    Skipped(&'static str),
}

/// Where a row stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    /// File name without extension.
    pub(crate) stem: &'a str,
    /// Store it goes to.
    pub(crate) store: &'a str,
    /// From 1.
    pub(crate) line: u64,
}

/// A file stem as a boundary part: other characters become `_`, 128 bytes at most.
pub(crate) fn store_of(stem: &str) -> String {
    let keep = |c: char| {
        if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' }
    };
    stem.chars().map(keep).take(128).collect()
}

/// The origin of a row.
fn origin(stem: &str, row: &Row) -> &'static str {
    let word = |w: &str| WORDS.iter().find(|(name, _)| *name == w).map(|(_, origin)| *origin);
    let own = [&row.origin, &row.source].into_iter().flatten().find_map(|w| word(w));
    own.or_else(|| ORIGINS.iter().find(|(name, _, _)| *name == stem).map(|(_, origin, _)| *origin)).unwrap_or(UNKNOWN)
}

/// RFC 3339 time of a row: its `ts`, else its line; `None` where `ts` is no time.
fn time(row: &Row, line: u64) -> Option<String> {
    let ms = match &row.ts {
        Some(ts) => millis(ts)?,
        None => EPOCH + i64::try_from(line).ok()?.checked_mul(1000)?,
    };
    rfc3339(ms)
}

/// Converts one row.
pub(crate) fn convert(place: Place<'_>, row: Row) -> Converted {
    match row.kind.as_str() {
        "memory_write" | "query" => {}
        "trigger" => return Converted::Skipped("trigger"),
        "injected_instruction" => return Converted::Skipped("instruction only"),
        "session" => return Converted::Skipped("multi-turn session"),
        _ => return Converted::Skipped("unknown kind"),
    }
    let Some(at) = time(&row, place.line) else {
        return Converted::Skipped("bad ts");
    };
    let origin = origin(place.stem, &row);
    let Some(text) = row.text.filter(|t| !t.trim().is_empty()) else {
        return Converted::Skipped("no text");
    };
    let store = place.store.to_owned();
    if row.kind == "query" {
        let session_id = row.session.unwrap_or_else(|| store.clone());
        let principal = row.user.unwrap_or_else(|| store.clone());
        let (event_id, label) = (row.id, row.label);
        return Converted::Query(Query {
            tenant: TENANT,
            store,
            event_id,
            session_id,
            principal,
            results: [],
            query: text,
            at,
            label,
        });
    }
    Converted::Write(Write {
        tenant: TENANT,
        store,
        record_id: row.id,
        op: "create",
        content: text,
        origin,
        principal: row.user,
        session_id: row.session,
        created_at: at,
        label: row.label,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str) -> Row {
        Row { id: "r1".into(), kind: kind.into(), text: Some("a text".into()), ..Row::default() }
    }

    fn place(stem: &str) -> Place<'_> {
        Place { stem, store: stem, line: 2 }
    }

    #[test]
    fn a_write_takes_its_origin_from_the_file() {
        let Converted::Write(write) = convert(place("poisonedrag_texts"), row("memory_write")) else {
            panic!("not a write")
        };
        let json = serde_json::to_string(&write).unwrap();
        assert_eq!(
            json,
            r#"{"tenant":"data","store":"poisonedrag_texts","record_id":"r1","op":"create","content":"a text","origin":"retrieved","created_at":"2026-01-01T00:00:02Z"}"#
        );
    }

    #[test]
    fn the_rows_own_word_wins_and_an_unknown_file_is_external() {
        let own = Row { source: Some("web_page".into()), ..row("memory_write") };
        assert_eq!(origin("aws_write_cases", &own), "retrieved");
        assert_eq!(origin("never_heard_of", &row("memory_write")), "external");
        let nonsense = Row { origin: Some("moon".into()), ..row("memory_write") };
        assert_eq!(origin("aws_write_cases", &nonsense), "user_input");
    }

    #[test]
    fn a_query_keeps_user_and_date() {
        let asked = Row { user: Some("Emily".into()), ts: Some("2023-04-27".into()), ..row("query") };
        let Converted::Query(query) = convert(place("q"), asked) else { panic!("not a query") };
        let json = serde_json::to_string(&query).unwrap();
        assert_eq!(
            json,
            r#"{"tenant":"data","store":"q","event_id":"r1","session_id":"q","principal":"Emily","results":[],"query":"a text","at":"2023-04-27T00:00:00Z"}"#
        );
    }

    #[test]
    fn what_is_no_single_text_is_skipped() {
        for (kind, why) in
            [("trigger", "trigger"), ("injected_instruction", "instruction only"), ("session", "multi-turn session")]
        {
            assert_eq!(convert(place("f"), row(kind)), Converted::Skipped(why));
        }
        assert_eq!(convert(place("f"), Row { text: Some(" ".into()), ..row("query") }), Converted::Skipped("no text"));
        assert_eq!(convert(place("f"), Row { ts: Some("soon".into()), ..row("query") }), Converted::Skipped("bad ts"));
    }

    #[test]
    fn stores_hold_allowed_characters_only() {
        assert_eq!(store_of("a b/ü.x-1_"), "a_b__.x-1_");
    }

    #[test]
    fn the_table_is_clean() {
        for (i, (stem, origin, why)) in ORIGINS.iter().enumerate() {
            assert!(WORDS.iter().any(|(_, o)| o == origin), "{stem}");
            assert!(!why.is_empty() && !ORIGINS[..i].iter().any(|(s, _, _)| s == stem), "{stem}");
        }
    }
}
