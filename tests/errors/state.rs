//! State values that no stream has written: a start or the next record of their boundary refuses them.
//! Found by `scripts/fuzz`, or while its targets were written (docs/fuzzing.md).

use memsluice::config::Backend;
use memsluice::error::Code;
use memsluice::schema::Vector;
use memsluice::score::{AcceptedValue, Keys, QueryValue, RollingMark, WindowMark};
use memsluice::state::{Change, Kind, encode, key};
use memsluice::topology::Role;

use crate::support::{Bench, DIMENSION, KEY, Line, fetched, partition, valid_retrieval};

/// A session of counts `n` and `hits`, in the format of state values.
fn session(n: u8, hits: u8) -> Vec<u8> {
    vec![1, 0, n, hits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
}

fn query(seq: u64, components: &[i16]) -> Vec<Change> {
    let vector = components.iter().flat_map(|c| c.to_le_bytes()).collect();
    let value = QueryValue { at: 0, keys: Keys::default(), vector };
    let next = seq.saturating_add(1);
    let mark = (WindowMark { next, settled: next }, 0_u64);
    vec![
        (key(Kind::Query, partition(), &[KEY], Some(seq), &[]), Some(encode(&value))),
        (key(Kind::Window, partition(), &[KEY], None, &[]), Some(encode(&mark))),
    ]
}

fn rolling(mark: &RollingMark, seq: u64, components: &[i16]) -> Vec<Change> {
    let vector = components.iter().flat_map(|c| c.to_le_bytes()).collect();
    let value = AcceptedValue { at: 0, source: [1; 16], record: [2; 16], keys: Keys::default(), vector };
    vec![
        (key(Kind::RollingRow, partition(), &[KEY], Some(seq), &[]), Some(encode(&value))),
        (key(Kind::Rolling, partition(), &[KEY], None, &[]), Some(encode(mark))),
    ]
}

fn expired(n: u8, hits: u8) -> Vec<Change> {
    let due = key(Kind::SessionExpiry, partition(), &[KEY], Some(0), &["s-0"]);
    vec![(due, Some(Vec::new())), (key(Kind::Session, partition(), &[KEY, "s-0"], None, &[]), Some(session(n, hits)))]
}

/// What one retrieval over this state ends with.
fn taken(bench: &Bench, changes: Vec<Change>) -> Option<Code> {
    let mut line = Line::over(bench, changes);
    let record = fetched(Role::RetrievalLogs, Some(valid_retrieval().to_string().into_bytes()));
    line.take(record).err().map(|e| e.code())
}

#[test]
fn impossible_state_is_refused() {
    let bench = Bench::new(Backend::Hash, "{}");
    let mut numbers = vec![0.0; DIMENSION];
    numbers[0] = 1.0;
    let unit = Vector::from_f64(&numbers).unwrap();
    assert_eq!(taken(&bench, query((1 << 53) - 1, unit.as_slice())), None);
    assert_eq!(taken(&bench, expired(1, 1)), None);
    let mark = RollingMark { next: 9, settled: 7, ..RollingMark::default() };
    assert_eq!(taken(&bench, rolling(&mark, 8, unit.as_slice())), None);
    let broken = [
        ("a number that overflows", query(u64::MAX, unit.as_slice())),
        ("a vector whose products overflow", query(1, &[i16::MIN; DIMENSION])),
        ("a query behind the next one", query(7, unit.as_slice()).into_iter().take(1).collect()),
        ("a row behind the next one", rolling(&mark, 9, unit.as_slice())),
        ("a row whose products overflow", rolling(&mark, 8, &[i16::MIN; DIMENSION])),
        ("rows behind the next one", rolling(&RollingMark { settled: 10, ..mark.clone() }, 8, unit.as_slice())),
        ("a drift that is no number", rolling(&RollingMark { drift: u64::MAX, ..mark.clone() }, 8, unit.as_slice())),
        ("a balance without end", rolling(&RollingMark { balance: i64::MIN, ..mark.clone() }, 8, unit.as_slice())),
        ("more hits than observations", expired(0, 1)),
    ];
    for (what, changes) in broken {
        assert_eq!(taken(&bench, changes), Some(Code::StateFormat), "{what}");
    }
}
