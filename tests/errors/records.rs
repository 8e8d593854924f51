//! Records that are refused, in decoding and through the engine.

use std::sync::LazyLock;

use base64::Engine as _;
use memsluice::config::Backend;
use memsluice::decode::{self, Rules};
use memsluice::error::{Action, Code};
use memsluice::schema::{DeadLetterHeaders, DeadLetterStub, header};
use memsluice::sink::Output;
use memsluice::source::Fetched;
use memsluice::topology::Role;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::{Bench, CONTENT, DIMENSION, KEY, fetched, patched, valid_retrieval, valid_write};

fn rules() -> Rules {
    Rules { max_bytes: 1 << 20, dimension: DIMENSION, units: Some(6) }
}

/// A write whose text has `from` replaced, for what a JSON value can't hold.
fn edited(from: &str, to: &[u8]) -> Vec<u8> {
    let text = serde_json::to_string(&valid_write()).unwrap();
    let (before, after) = text.split_once(from).unwrap();
    [before.as_bytes(), to, after.as_bytes()].concat()
}

fn packed(values: &[i16]) -> Value {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    json!({ "i16": base64::engine::general_purpose::STANDARD.encode(bytes) })
}

/// Every dead-letter code of decoding, with records that raise it.
pub(crate) fn decode_cases() -> Vec<(Code, &'static str, Fetched)> {
    let mut out = Vec::new();
    let mut raw = |code, what, value: &[u8]| out.push((code, what, fetched(Role::MemoryWrites, Some(value.to_vec()))));
    raw(Code::InvalidJson, "nothing", b"");
    raw(Code::InvalidJson, "cut", &edited("\"op\"", b"")[..40]);
    raw(Code::InvalidJson, "NaN in the embedding", &edited("-0.5", b"NaN"));
    raw(Code::InvalidJson, "NaN in an unknown field", &edited("null", b"NaN"));
    raw(Code::InvalidJson, "Infinity", &edited("-0.5", b"-Infinity"));
    raw(Code::InvalidJson, "outside of f64", &edited("-0.5", b"1e999"));
    raw(Code::InvalidJson, "lone surrogate", &edited(CONTENT, br"a\ud800"));
    raw(Code::InvalidJson, "lone low surrogate", &edited(CONTENT, br"a\udc00"));
    raw(Code::InvalidJson, "surrogate without its half", &edited(CONTENT, br"\ud83d\u0041"));
    raw(Code::InvalidJson, "not UTF-8", &edited(CONTENT, b"\xff\xfe"));
    raw(Code::InvalidJson, "control character in a string", &edited(CONTENT, b"a\nb"));
    raw(Code::InvalidJson, "a second document", &edited("\"acme\"}", br#""acme"}{}"#));
    raw(
        Code::InvalidJson,
        "schema-registry framing",
        &[&[0, 0, 0, 0, 1], valid_write().to_string().as_bytes()].concat(),
    );
    raw(Code::InvalidRecord, "a list", b"[]");
    raw(Code::InvalidRecord, "null", b"null");
    raw(Code::InvalidRecord, "a field twice", &edited("\"op\":\"create\"", br#""op":"create","op":"delete""#));
    raw(Code::RecordTooLarge, "50 MB", &patched(valid_write(), &json!({ "content": "x".repeat(50_000_000) })));

    let mut write = |code, what, patch: Value| {
        out.push((code, what, fetched(Role::MemoryWrites, Some(patched(valid_write(), &patch)))));
    };
    write(Code::InvalidRecord, "no tenant", json!({ "tenant": null }));
    write(Code::InvalidRecord, "no op", json!({ "op": null }));
    write(Code::InvalidRecord, "unknown op", json!({ "op": "merge" }));
    write(Code::InvalidRecord, "content is a list", json!({ "content": [CONTENT] }));
    write(Code::InvalidRecord, "record_id is a number", json!({ "record_id": 1 }));
    write(Code::InvalidRecord, "no time", json!({ "expires_at": "tomorrow" }));
    write(Code::InvalidRecord, "a time without zone", json!({ "expires_at": "2027-01-01T00:00:00" }));
    write(Code::InvalidRecord, "no base64", json!({ "embedding": { "i16": "***" } }));
    write(Code::InvalidRecord, "embedding is a text", json!({ "embedding": "0.5" }));
    write(Code::InvalidBoundary, "space", json!({ "tenant": "ac me" }));
    write(Code::InvalidBoundary, "slash", json!({ "store": "a/b" }));
    write(Code::InvalidBoundary, "empty", json!({ "store": "" }));
    write(Code::InvalidBoundary, "129 characters", json!({ "tenant": "a".repeat(129) }));
    write(Code::InvalidBoundary, "outside of ASCII", json!({ "tenant": "ac\u{e9}" }));
    write(Code::InvalidId, "empty", json!({ "record_id": "" }));
    write(Code::InvalidId, "513 bytes", json!({ "record_id": "a".repeat(513) }));
    write(Code::InvalidId, "zero byte", json!({ "record_id": "a\0b" }));
    write(Code::InvalidId, "C1 control", json!({ "principal": "a\u{85}" }));
    write(Code::InvalidId, "empty session", json!({ "session_id": "" }));
    write(Code::EmptyContent, "absent", json!({ "content": null }));
    write(Code::EmptyContent, "empty", json!({ "content": "" }));
    write(Code::EmptyContent, "white space", json!({ "op": "update", "content": " \n\u{2003}" }));
    write(Code::UnknownOrigin, "unknown", json!({ "origin": "hearsay" }));
    write(Code::UnknownOrigin, "case", json!({ "origin": "User_Input" }));
    write(Code::EmbeddingDimension, "numbers", json!({ "embedding": [1.0, 0.0] }));
    write(Code::EmbeddingDimension, "none", json!({ "embedding": [] }));
    write(Code::EmbeddingDimension, "i16", json!({ "embedding": packed(&[i16::MAX; 3]) }));
    write(Code::EmbeddingDimension, "odd bytes", json!({ "embedding": { "i16": "AAAAAAAAAAAAAAAAAAAAAAA=" } }));
    write(Code::EmbeddingNotFinite, "1e308", json!({ "embedding": vec![1e308; DIMENSION] }));
    write(Code::EmbeddingNotFinite, "zeros", json!({ "embedding": vec![0; DIMENSION] }));
    write(Code::EmbeddingNotFinite, "norm below f64", json!({ "embedding": vec![1e-200; DIMENSION] }));
    write(Code::EmbeddingNotUnit, "zeros", json!({ "embedding": packed(&[0; DIMENSION]) }));
    write(Code::EmbeddingNotUnit, "scale 127", json!({ "embedding": packed(&[127, 0, 0, 0, 0, 0, 0, 0]) }));
    write(Code::EmbeddingNotUnit, "norm 1.02", json!({ "embedding": packed(&[32_767, 6_600, 0, 0, 0, 0, 0, 0]) }));
    write(Code::EmbeddingNotUnit, "smallest i16", json!({ "embedding": packed(&[i16::MIN; DIMENSION]) }));
    write(Code::MisplacedPartition, "another tenant", json!({ "tenant": "globex" }));

    let mut event = |code, what, patch: Value| {
        out.push((code, what, fetched(Role::RetrievalLogs, Some(patched(valid_retrieval(), &patch)))));
    };
    event(Code::InvalidRecord, "no results", json!({ "results": null }));
    event(Code::InvalidRecord, "10001 results", json!({ "results": vec![json!({ "id": "m" }); 10_001] }));
    event(Code::InvalidRecord, "negative k", json!({ "k": -1 }));
    event(Code::InvalidBoundary, "retrieval", json!({ "tenant": "*" }));
    event(Code::InvalidId, "event", json!({ "event_id": "" }));
    event(Code::InvalidId, "result", json!({ "results": [{ "id": "m\u{7f}" }] }));
    event(Code::InvalidId, "answer", json!({ "output_id": "o\n" }));
    event(Code::EmbeddingDimension, "query", json!({ "query_embedding": [1] }));
    event(Code::EmbeddingNotFinite, "query", json!({ "query_embedding": [-1e308, 0, 0, 0, 0, 0, 0, 1e308] }));
    event(Code::MisplacedPartition, "retrieval", json!({ "store": "notes-2" }));
    out.push((Code::InvalidRecord, "retrieval without a value", fetched(Role::RetrievalLogs, None)));

    let mut null = |code, what, key: Option<&str>, id: Option<Option<&[u8]>>| {
        let mut f = fetched(Role::MemoryWrites, None);
        f.key = key.map(Into::into);
        f.headers.extend(id.map(|v| (header::RECORD_ID.to_owned(), v.map(<[u8]>::to_vec))));
        out.push((code, what, f));
    };
    null(Code::TombstoneWithoutRecord, "no header", Some(KEY), None);
    null(Code::TombstoneWithoutRecord, "null header", Some(KEY), Some(None));
    null(Code::TombstoneWithoutRecord, "header is not UTF-8", Some(KEY), Some(Some(b"\xff")));
    null(Code::InvalidId, "empty header", Some(KEY), Some(Some(b"")));
    null(Code::InvalidBoundary, "null without a key", None, Some(Some(b"m-1")));
    null(Code::InvalidBoundary, "null under a key without slash", Some("acme"), Some(Some(b"m-1")));
    null(Code::MisplacedPartition, "null under another key", Some("globex/notes"), Some(Some(b"m-1")));
    out
}

fn decoded(f: &Fetched) -> memsluice::error::Result<()> {
    match f.at.role {
        Role::RetrievalLogs => decode::retrieval(f, &rules()).map(drop),
        _ => decode::write(f, &rules()).map(drop),
    }
}

/// Records that are refused, each with its code, and no message that repeats the content.
#[test]
fn undecodable_records_have_their_code() {
    for value in [valid_write(), json!({"tenant":"acme","store":"support","record_id":"m-1","op":"delete"})] {
        decoded(&fetched(Role::MemoryWrites, Some(value.to_string().into()))).unwrap();
    }
    decoded(&fetched(Role::RetrievalLogs, Some(valid_retrieval().to_string().into()))).unwrap();
    for (code, what, record) in decode_cases() {
        let error = decoded(&record).err().unwrap_or_else(|| panic!("{}: {what} is valid", code.name()));
        assert_eq!(error.code(), code, "{what}: {error}");
        assert_eq!(code.action(), Action::DeadLetter, "{what}");
        assert!(!error.to_string().contains(CONTENT) && error.to_string().len() < 500, "{what}: {error}");
    }
}

fn of(outputs: &[Output], role: Role) -> Vec<&Output> {
    outputs.iter().filter(|o| o.role == role).collect()
}

fn decision(outputs: &[Output]) -> Value {
    let decisions = of(outputs, Role::Decisions);
    assert_eq!(decisions.len(), 1, "{outputs:?}");
    serde_json::from_slice::<Value>(decisions[0].value.as_ref().unwrap()).unwrap()["body"].clone()
}

static BENCH: LazyLock<Bench> = LazyLock::new(|| Bench::new(Backend::Hash, "{}"));

/// What can't be decoded keeps its bytes, gets every header it should have and no other, and a write its
/// decision; bytes that fit nowhere get a stub.
#[test]
fn dead_letters_keep_the_bytes() {
    for (code, what, record) in decode_cases() {
        let outputs = BENCH.take(record.clone());
        let letters = of(&outputs, Role::DeadLetters);
        assert_eq!(letters.len(), 1, "{what}");
        let letter = letters[0];
        assert_eq!(letter.partition, record.at.partition, "{what}");
        if code == Code::RecordTooLarge {
            check_stub(&BENCH, &record, letter, code);
        } else {
            assert_eq!(letter.value, record.value, "{what}");
            assert_eq!(letter.key, record.key.clone().unwrap_or_default(), "{what}");
        }
        check_headers(&record, letter, code);
        let decisions = usize::from(record.at.role == Role::MemoryWrites);
        assert_eq!(outputs.len(), 1 + decisions, "{what}");
        if decisions == 1 {
            let body = decision(&outputs);
            assert_eq!(body["verdict"], "dead_letter", "{what}");
            assert_eq!(body["reasons"], json!([format!("dead_letter:{}", code.name())]), "{what}");
        }
    }
}

/// The headers of a dead letter, one by one and in order; the record's own stand under a prefix.
fn check_headers(record: &Fetched, letter: &Output, code: Code) {
    let stub = code == Code::RecordTooLarge;
    let at = record.at;
    let message = letter.header(header::MESSAGE).unwrap();
    assert!(!message.is_empty() && !message.contains(CONTENT), "{message}");
    let text = |name: &str, value: String| (name.to_owned(), Some(value.into_bytes()));
    let kept = record.headers.iter().filter(|_| !stub);
    let mut wanted: Vec<_> = kept.map(|(name, value)| (format!("memsluice-original.{name}"), value.clone())).collect();
    wanted.extend([
        text("__streams.errors.exception", code.name().to_owned()),
        text("__streams.errors.message", message.to_owned()),
        text("__streams.errors.stacktrace", "decode".to_owned()),
        text("__streams.errors.topic", at.role.as_str().to_owned()),
        text("__streams.errors.partition", at.partition.to_string()),
        text("__streams.errors.offset", at.offset.to_string()),
        text("memsluice-error-code", code.name().to_owned()),
        text("memsluice-error-stage", "decode".to_owned()),
        text("memsluice-version", env!("CARGO_PKG_VERSION").to_owned()),
        text("memsluice-input-timestamp", at.timestamp.to_string()),
        text("memsluice-dlq-origin", format!("{}/{}/{}", at.role.as_str(), at.partition, at.offset)),
    ]);
    wanted.extend(record.key.is_none().then(|| text("memsluice-null-key", "true".to_owned())));
    wanted.extend(stub.then(|| text("memsluice-stub", "true".to_owned())));
    assert_eq!(letter.headers, wanted);
    let read = DeadLetterHeaders::read(&letter.headers).unwrap();
    assert_eq!((read.input.partition, read.input.offset, read.timestamp), (at.partition, at.offset, at.timestamp));
    assert_eq!((read.input.topic.as_str(), read.code.as_str()), (at.role.as_str(), code.name()));
    assert_eq!((read.null_key, read.stub, read.isolation), (record.key.is_none(), stub, None));
    assert!(stub || read.original == record.headers);
}

/// A null key and an empty one are told apart; a producer's header can't pass for one of ours.
#[test]
fn keys_and_forged_headers_of_dead_letters() {
    let letter = |key: Option<&[u8]>| {
        let mut record = fetched(Role::MemoryWrites, Some(b"{".to_vec()));
        record.key = key.map(<[u8]>::to_vec);
        for name in [header::ERROR_CODE, header::OFFSET, header::NULL_KEY, header::STUB, header::DLQ_ORIGIN] {
            record.headers.push((name.to_owned(), Some(b"true".to_vec())));
        }
        let outputs = BENCH.take(record.clone());
        check_headers(&record, of(&outputs, Role::DeadLetters)[0], Code::InvalidJson);
        DeadLetterHeaders::read(&of(&outputs, Role::DeadLetters)[0].headers).unwrap()
    };
    assert!(letter(None).null_key && !letter(Some(b"")).null_key && !letter(Some(b"k")).null_key);
}

/// A stub says where the bytes are and names them by keyed hash; it holds nothing of them.
fn check_stub(bench: &Bench, record: &Fetched, letter: &Output, code: Code) {
    let value = record.value.as_deref().unwrap();
    let stub: DeadLetterStub = serde_json::from_slice(letter.value.as_ref().unwrap()).unwrap();
    let wanted = DeadLetterStub {
        code: code.name().to_owned(),
        length: value.len() as u64,
        hmac: bench.secret.hmac("deployment", value),
        key_id: bench.secret.key_id().to_owned(),
        topic: record.at.role.as_str().to_owned(),
        partition: record.at.partition,
        offset: record.at.offset,
    };
    assert_eq!(stub, wanted);
    assert_eq!(letter.header(header::STUB), Some("true"));
    assert_eq!(letter.header("from"), None, "headers of the record are left out");
    assert_eq!(letter.key, KEY.as_bytes());
    assert!(!String::from_utf8_lossy(letter.value.as_ref().unwrap()).contains(CONTENT));
}

fn small() -> Bench {
    Bench::new(Backend::Hash, "main: { limits: { max_output_bytes: 4096 } }")
}

fn write_of(content: usize) -> Fetched {
    let patch = json!({ "content": format!("{CONTENT} {}", "x".repeat(content)) });
    fetched(Role::MemoryWrites, Some(patched(valid_write(), &patch)))
}

/// The larger a write, the less of it can be written: forwarded, then a dead letter with its bytes, then
/// a stub. Nothing is ever above the limit, but for the headers of a dead letter.
#[test]
fn outputs_stay_below_the_limit() {
    let bench = small();
    let mut stages = Vec::new();
    for size in (2_000..6_000).step_by(20) {
        let record = write_of(size);
        let outputs = bench.take(record.clone());
        let room = |o: &Output| if o.role == Role::DeadLetters { 1024 } else { 0 };
        assert!(outputs.iter().all(|o| o.bytes() <= 4096 + room(o)), "{size}");
        let verdict = decision(&outputs)["verdict"].clone();
        let stage = match of(&outputs, Role::DeadLetters)[..] {
            [] => {
                assert_eq!(verdict, "allow", "{size}");
                "forwarded"
            }
            [letter] => {
                assert_eq!(verdict, "dead_letter", "{size}");
                assert_eq!(letter.header(header::ERROR_CODE), Some("output_too_large"), "{size}");
                assert_eq!(outputs.len(), 2, "{size}");
                if letter.value == record.value {
                    "raw"
                } else {
                    check_stub(&bench, &record, letter, Code::OutputTooLarge);
                    "stub"
                }
            }
            _ => panic!("{size}: {outputs:?}"),
        };
        if stages.last() != Some(&stage) {
            stages.push(stage);
        }
    }
    assert_eq!(stages, ["forwarded", "raw", "stub"]);
}

/// A long key leaves the stub, so that the stub itself always fits.
#[test]
fn a_stub_fits_under_any_key() {
    let mut record = write_of(6_000);
    record.key = Some(vec![b'k'; 5_000]);
    let outputs = small().take(record);
    let letter = of(&outputs, Role::DeadLetters)[0];
    assert!(letter.key.is_empty() && letter.bytes() <= 4096);
    assert_eq!(letter.header(header::STUB), Some("true"));
}

/// A text without a vector is held by the posture and says so.
#[test]
fn a_failed_encoder_holds_the_write() {
    for (posture, verdict) in [("quarantine", "quarantine"), ("hold", "quarantine"), ("pass_marked", "allow")] {
        let bench = Bench::new(Backend::Precomputed, &format!("main: {{ posture: {{ on_error: {posture} }} }}"));
        let record = fetched(Role::MemoryWrites, Some(patched(valid_write(), &json!({ "embedding": null }))));
        let body = decision(&bench.take(record));
        assert_eq!(body["verdict"], verdict, "{posture}");
        assert_eq!(body["flags"], json!(["fallback_encoder_failed"]), "{posture}");
    }
}

#[derive(Debug, Clone)]
enum Edit {
    Set(usize, u8),
    Insert(usize, u8),
    Remove(usize, usize),
    Repeat(usize, usize),
    Cut(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let byte = || prop_oneof![any::<u8>(), prop::sample::select(br#"{}[]",:\-0e9.un"#.to_vec())];
    let edit = prop_oneof![
        4 => (any::<usize>(), byte()).prop_map(|(at, b)| Edit::Set(at, b)),
        3 => (any::<usize>(), byte()).prop_map(|(at, b)| Edit::Insert(at, b)),
        2 => (any::<usize>(), 1..40_usize).prop_map(|(at, n)| Edit::Remove(at, n)),
        2 => (any::<usize>(), 1..40_usize).prop_map(|(at, n)| Edit::Repeat(at, n)),
        1 => any::<usize>().prop_map(Edit::Cut),
    ];
    prop::collection::vec(edit, 0..4)
}

fn apply(mut bytes: Vec<u8>, edits: &[Edit]) -> Vec<u8> {
    for edit in edits {
        let len = bytes.len().max(1);
        let range = |at: usize, n: usize| (at % len).min(bytes.len())..(at % len + n).min(bytes.len());
        match *edit {
            Edit::Set(at, b) => {
                if let Some(x) = bytes.get_mut(at % len) {
                    *x = b;
                }
            }
            Edit::Insert(at, b) => bytes.insert((at % len).min(bytes.len()), b),
            Edit::Remove(at, n) => drop(bytes.drain(range(at, n))),
            Edit::Repeat(at, n) => {
                let part = bytes[range(at, n)].to_vec();
                let to = (at % len).min(bytes.len());
                bytes.splice(to..to, part);
            }
            Edit::Cut(at) => bytes.truncate(at % len),
        }
    }
    bytes
}

/// Every input has one fate: a write one decision and one of three topics; an event no decision.
fn one_fate(record: Fetched) -> Result<(), TestCaseError> {
    let refused = decoded(&record).err();
    if let Some(error) = &refused {
        prop_assert_eq!(error.code().action(), Action::DeadLetter);
    }
    let role = record.at.role;
    let outputs = BENCH.take(record);
    let count = |r: Role| of(&outputs, r).len();
    prop_assert_eq!(count(Role::DeadLetters) == 1, refused.is_some());
    let is_write = role == Role::MemoryWrites;
    prop_assert_eq!(count(Role::Decisions), usize::from(is_write));
    let fates = count(Role::CommittedMemory) + count(Role::Quarantine) + count(Role::DeadLetters);
    prop_assert!(fates == 1 || (!is_write && fates == 0));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// No bytes, key or header make decoding panic.
    #[test]
    fn random_bytes_never_panic(
        value in prop::option::of(prop::collection::vec(any::<u8>(), 0..400)),
        key in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
        id in prop::option::of(prop::collection::vec(any::<u8>(), 0..600)),
        is_write in any::<bool>(),
    ) {
        let mut record = fetched(if is_write { Role::MemoryWrites } else { Role::RetrievalLogs }, value);
        record.key = key;
        record.headers.push((header::RECORD_ID.to_owned(), id));
        one_fate(record)?;
    }

    /// Nor does any small damage to a valid record.
    #[test]
    fn damaged_records_never_panic(edits in edits(), is_write in any::<bool>()) {
        let (role, valid) = if is_write {
            (Role::MemoryWrites, valid_write())
        } else {
            (Role::RetrievalLogs, valid_retrieval())
        };
        one_fate(fetched(role, Some(apply(valid.to_string().into_bytes(), &edits))))?;
    }
}
