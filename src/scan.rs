//! The pipeline over files, without Kafka: same stages, same order within a boundary, same decisions.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use crate::clock::monotonic;
use crate::embed::{Embedder, Encoded, Job, Resequencer};
use crate::error::Result;
use crate::files::Lines;
use crate::pipeline::{Embeds, Engine, Pending, Registry, Summary, Unit};
use crate::sink::Output;
use crate::source::{Merge, Wait};
use crate::state::{MemoryStore, State};
use crate::topology::Role;

/// What to read.
#[derive(Debug, Clone, Default)]
pub struct ScanInput {
    /// Files of writes.
    pub writes: Vec<PathBuf>,
    /// Files of retrievals.
    pub queries: Vec<PathBuf>,
}

/// Records in flight: read, not yet decided.
const IN_FLIGHT: usize = 1024;

struct Scan<'a> {
    engine: &'a Engine,
    embedder: &'a Embedder,
    registry: &'a Registry,
    state: State<MemoryStore>,
    merges: BTreeMap<i32, Merge>,
    units: BTreeMap<i32, Unit>,
    pending: Resequencer<Pending, Option<Result<Encoded>>>,
    summary: Summary,
}

/// Runs the files through the engine; `each` gets every output in order, `progress` the bytes read.
///
/// # Errors
/// `file_unreadable`, `state_format`.
pub fn scan(
    input: &ScanInput,
    engine: &Engine,
    embedder: &Embedder,
    registry: &Registry,
    mut each: impl FnMut(&Output) -> Result<()>,
    mut progress: impl FnMut(u64),
) -> Result<Summary> {
    let units = engine.units().unwrap_or(1);
    let mut scan = Scan {
        engine,
        embedder,
        registry,
        state: State::new(MemoryStore::default()),
        merges: BTreeMap::new(),
        units: BTreeMap::new(),
        pending: Resequencer::default(),
        summary: Summary::default(),
    };
    let inputs = [Role::RetrievalLogs, Role::MemoryWrites];
    for unit in 0..units {
        scan.units.insert(unit, Unit::load(unit, BTreeMap::new(), BTreeMap::new(), &scan.state)?);
        scan.merges.insert(unit, Merge::new(&inputs, Wait::UntilEnd));
    }
    // The merge waits for both inputs of a unit, so the side inputs are read whole: a retrieval log is
    // small beside what encoding it costs.
    let mut queries = Lines::new(Role::RetrievalLogs, units, &input.queries);
    while let Some(record) = queries.next_record()? {
        scan.push(record);
    }
    scan.merges.values_mut().for_each(|m| m.end(Role::RetrievalLogs));
    let mut writes = Lines::new(Role::MemoryWrites, units, &input.writes);
    loop {
        let mut more = true;
        while more && scan.pending.len() < IN_FLIGHT {
            match writes.next_record()? {
                Some(record) => scan.push(record),
                None => {
                    more = false;
                    scan.merges.values_mut().for_each(|m| m.end(Role::MemoryWrites));
                }
            }
            scan.admit();
        }
        scan.turn(&mut each)?;
        progress(queries.read_bytes() + writes.read_bytes());
        if !more {
            break;
        }
    }
    while !scan.pending.is_empty() || !scan.merges.values().all(Merge::finished) {
        scan.admit();
        scan.turn(&mut each)?;
    }
    Ok(scan.summary)
}

impl Scan<'_> {
    fn push(&mut self, record: crate::source::Fetched) {
        if let Some(merge) = self.merges.get_mut(&record.at.partition) {
            merge.push(record);
        }
    }

    fn admit(&mut self) {
        let now = monotonic();
        let mut taken = VecDeque::new();
        for (unit, merge) in &mut self.merges {
            while self.pending.len() + taken.len() < IN_FLIGHT {
                let Some(record) = merge.next(now) else { break };
                taken.push_back((*unit, record));
            }
        }
        for (unit, record) in taken {
            let (pending, embeds) = self.engine.admit(record);
            for (part, embeds) in self.engine.parts(&pending) {
                self.place(unit, part, embeds);
            }
            self.place(unit, pending, embeds);
        }
    }

    fn place(&mut self, unit: i32, pending: Pending, embeds: Embeds) {
        match embeds {
            Embeds::Nothing => {
                self.pending.admit(unit, pending, Some(None));
            }
            Embeds::Given(vector) => {
                self.pending.admit(unit, pending, Some(Some(Ok(Encoded::given(vector)))));
            }
            Embeds::Text(text) => {
                let ticket = self.pending.admit(unit, pending, None);
                self.embedder.submit(Job { unit, ticket, text, retry_until: None });
            }
        }
    }

    /// Finishes what is ready; waits for a vector when nothing is.
    fn turn(&mut self, each: &mut impl FnMut(&Output) -> Result<()>) -> Result<()> {
        while let Ok(done) = self.embedder.done().try_recv() {
            self.pending.complete(done.unit, done.ticket, Some(done.result));
        }
        if !self.finish(each)? && !self.pending.is_empty() {
            if let Ok(done) = self.embedder.done().recv() {
                self.pending.complete(done.unit, done.ticket, Some(done.result));
            }
            self.finish(each)?;
        }
        Ok(())
    }

    fn finish(&mut self, each: &mut impl FnMut(&Output) -> Result<()>) -> Result<bool> {
        let mut any = false;
        for unit in self.pending.units() {
            while let Some((pending, embedded)) = self.pending.pop(unit) {
                any = true;
                let Some(of) = self.units.get_mut(&unit) else {
                    continue;
                };
                let counts = u64::from(!pending.is_part());
                let outputs = self.engine.finish(pending, embedded, of, &mut self.state, self.registry)?;
                self.summary.inputs += counts;
                for o in &outputs {
                    self.summary.count(o);
                    each(o)?;
                }
            }
        }
        if any {
            for unit in self.units.values_mut() {
                unit.flush(&mut self.state);
            }
            self.state.commit(Vec::new())?;
        }
        Ok(any)
    }
}
