//! Records of the inputs and of the topics that are read back.

use std::hint::black_box;

use memsluice::breaker::{Peek, record_key};
use memsluice::clock::{parse_rfc3339, rfc3339};
use memsluice::decode::{self, Rules};
use memsluice::dlq::Letter;
use memsluice::reset::chain_of;
use memsluice::schema::{Boundary, Coordinates, Headers, Scope, SourceStamp, header};
use memsluice::source::{At, Fetched, Point};
use memsluice::topology::{Format, Mapping, Part, Role};

use crate::bytes::Bytes;

const MAX_BYTES: usize = 1 << 16;

fn rules(units: Option<i32>) -> Rules {
    Rules { max_bytes: MAX_BYTES, dimension: 4, units }
}

/// The lenient looks at a record agree with its decoding.
fn looks(fetched: &Fetched, decoded: Option<&Boundary>) {
    for refused in [decoded.is_none(), false] {
        let peek = Peek::of(fetched, refused);
        black_box((peek.source(fetched), peek.subject(fetched), peek.unreadable(fetched), record_key(fetched)));
    }
    if let Some(boundary) = decoded {
        assert_eq!(decode::boundary(fetched, MAX_BYTES).as_ref(), Some(boundary));
    }
}

/// A record of `memory-writes`: native JSON, or a null value with headers.
pub fn write(data: &[u8]) {
    let fetched = Bytes::new(data).record(Role::MemoryWrites);
    black_box(decode::write(&fetched, &rules(Some(4))).err());
    let write = decode::write(&fetched, &rules(None));
    looks(&fetched, write.as_ref().ok().map(|w| &w.boundary));
}

/// A record in any producer's shape, of either input: the first byte chooses the shape, the rest is the value.
/// What is routed by its boundary is decided there, a fact is one of our own writes, and both readings agree.
pub fn adapters(data: &[u8]) {
    let Some((first, value)) = data.split_first() else { return };
    let format = Format::ALL[usize::from(*first) % Format::ALL.len()];
    let part = |name: &str| Part::try_from(name.to_owned()).ok();
    let tenant = if *first >= 128 { part("fixed:acme") } else { None };
    for role in [Role::MemoryWrites, Role::RetrievalLogs] {
        let mapping = Mapping { format, tenant: tenant.clone(), ..Mapping::default() };
        let at = At { generation: 0, role, partition: 0, offset: 0, timestamp: 1_790_000_000_000 };
        let fetched = Fetched { at, key: None, value: Some(value.to_vec()), headers: Headers::new() };
        let boundary = decode::boundary_of(&fetched, MAX_BYTES, &mapping);
        if role == Role::RetrievalLogs {
            for found in decode::retrievals(&fetched, &rules(None), &mapping).into_iter().flatten() {
                assert_eq!(boundary.as_ref(), Some(&found.boundary));
            }
            continue;
        }
        let Ok(facts) = decode::writes(&fetched, &rules(None), &mapping) else { continue };
        assert!(facts.writes.len() <= decode::MAX_FACTS && (!facts.whole || facts.writes.len() == 1));
        for write in facts.writes {
            assert_eq!(boundary.as_ref(), Some(&write.boundary));
            let native = Fetched { value: Some(decode::render(&write)), ..fetched.clone() };
            let large = Rules { max_bytes: 16 * MAX_BYTES, ..rules(None) };
            let again = decode::write(&native, &large).map(|w| (w.record_id, w.content, w.origin));
            assert_eq!(again.ok(), Some((write.record_id, write.content, write.origin)));
        }
    }
}

/// A record of `retrieval-logs`.
pub fn retrieval(data: &[u8]) {
    let fetched = Bytes::new(data).record(Role::RetrievalLogs);
    black_box(decode::retrieval(&fetched, &rules(Some(4))).err());
    let retrieval = decode::retrieval(&fetched, &rules(None));
    looks(&fetched, retrieval.as_ref().ok().map(|r| &r.boundary));
}

/// A record of `dead-letters`.
pub fn letter(data: &[u8]) {
    let fetched = Bytes::new(data).record(Role::DeadLetters);
    match Letter::parse("dead-letters", fetched) {
        Letter::Dead(letter) => drop(black_box(format!("{} {letter:?}", letter.origin))),
        Letter::Mark(mark) => assert!(mark.offset >= 0),
        Letter::Other => {}
    }
}

/// The last record of `decisions`, which a start and a reset read.
pub fn decision(data: &[u8]) {
    if let Ok(chain) = chain_of(0, Some(data)) {
        assert!(chain.next_seq > 0);
    }
}

/// What is written in headers, keys and arguments: stamps, coordinates, boundaries, scopes, times.
pub fn headers(data: &[u8]) {
    let stamped: Headers = vec![(header::SOURCE_STAMP.to_owned(), Some(data.to_vec()))];
    if let Some(stamp) = SourceStamp::of(&stamped) {
        let mut again = Headers::new();
        stamp.attach(&mut again);
        assert_eq!(SourceStamp::of(&again), Some(stamp));
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(at) = text.parse::<Coordinates>() {
        assert_eq!(at.to_string().parse::<Coordinates>().ok(), Some(at));
    }
    if let Ok(boundary) = Boundary::parse(text) {
        assert_eq!(boundary.as_str(), text);
    }
    if let Some(scope) = Scope::parse(text) {
        assert_eq!(scope.name(), text);
    }
    if let Some(time) = parse_rfc3339(text) {
        assert_eq!(parse_rfc3339(&rfc3339(time)), Some(time), "{text}");
    }
    black_box(text.parse::<Point>().is_ok());
}
