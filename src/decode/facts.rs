//! From a record to its facts: envelope, shape, boundary, ids.

use serde_json::Value;

use super::envelope::{self, Opened};
use super::native::{self, MAX_RESULTS, Retrieval, Returned, Rules, Write, id, optional_id, optional_time};
use super::shape::{Asked, Draft, MAX_FACTS, dead, derived};
use super::sniff::{self, Found};
use super::tree;
use crate::clock::{Millis, parse_rfc3339};
use crate::error::{Code, Result};
use crate::schema::{Boundary, Op, valid_id};
use crate::source::Fetched;
use crate::topology::{Format, Mapping, Part, Role};

/// What a record of `memory-writes` holds.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The facts in their order.
    pub writes: Vec<Write>,
    /// The record is one fact and nothing beside it, so that its bytes can stand for the fact.
    pub whole: bool,
}

/// Decodes a record of `memory-writes`: its facts in their order, all of one boundary; none where the producer
/// only says that nothing changed.
///
/// # Errors
/// Any code with action `DeadLetter`.
pub fn writes(fetched: &Fetched, rules: &Rules, mapping: &Mapping) -> Result<Facts> {
    let Some(value) = fetched.value.as_deref().filter(|_| mapping.format != Format::Native) else {
        return native::write(fetched, rules).map(|w| Facts { writes: vec![w], whole: true });
    };
    let opened = opened(fetched, value, rules, mapping)?;
    let mut whole = true;
    let writes = match sniff::writes(&opened.inner, mapping.format)? {
        Found::Native => vec![native::inner_write(&bytes(&opened, value), rules)?],
        Found::Shape(format, drafts) => {
            let drafts = counted(drafts)?;
            let several = drafts.len() > 1;
            // An empty message among others says nothing.
            let said =
                |d: &Draft| !d.passed_over && (!several || d.op == Some(Op::Delete) || !d.content.trim().is_empty());
            whole = !several;
            let context = Context { fetched, opened: &opened, mapping, format };
            let all = drafts.into_iter().filter(said).enumerate();
            all.map(|(i, draft)| context.write(i, draft)).collect::<Result<Vec<_>>>()?
        }
    };
    one_boundary(writes.iter().map(|w| &w.boundary), fetched, rules)?;
    Ok(Facts { whole: whole && writes.len() == 1, writes })
}

/// Decodes a record of `retrieval-logs`: its retrievals in their order, all of one boundary.
///
/// # Errors
/// Any code with action `DeadLetter`.
pub fn retrievals(fetched: &Fetched, rules: &Rules, mapping: &Mapping) -> Result<Vec<Retrieval>> {
    let Some(value) = fetched.value.as_deref().filter(|_| mapping.format != Format::Native) else {
        return native::retrieval(fetched, rules).map(|r| vec![r]);
    };
    let opened = opened(fetched, value, rules, mapping)?;
    let found = match sniff::reads(&opened.inner, mapping.format)? {
        Found::Native => vec![native::inner_retrieval(&bytes(&opened, value), rules)?],
        Found::Shape(format, asked) => {
            let context = Context { fetched, opened: &opened, mapping, format };
            let all = counted(asked)?.into_iter().enumerate();
            all.map(|(i, asked)| context.retrieval(i, asked)).collect::<Result<Vec<_>>>()?
        }
    };
    one_boundary(found.iter().map(|r| &r.boundary), fetched, rules)?;
    Ok(found)
}

/// The boundary of an input, as [`writes`] and [`retrievals`] would find it; `None` where they would refuse the
/// record, or find nothing in it.
#[must_use]
pub fn boundary_of(fetched: &Fetched, max_bytes: usize, mapping: &Mapping) -> Option<Boundary> {
    if mapping.format == Format::Native || fetched.value.is_none() {
        return native::boundary(fetched, max_bytes);
    }
    let rules = Rules { max_bytes, dimension: 0, units: None };
    let value = fetched.value.as_deref()?;
    let opened = opened(fetched, value, &rules, mapping).ok()?;
    let context = |format| Context { fetched, opened: &opened, mapping, format };
    let native = || {
        let field = |name: &str| opened.inner.get(name).and_then(Value::as_str);
        Boundary::new(field("tenant")?, field("store")?).ok()
    };
    if fetched.at.role == Role::RetrievalLogs {
        return match sniff::reads(&opened.inner, mapping.format).ok()? {
            Found::Native => native(),
            Found::Shape(format, all) => {
                let first = all.into_iter().next()?;
                context(format).boundary(first.tenant, first.store).ok()
            }
        };
    }
    match sniff::writes(&opened.inner, mapping.format).ok()? {
        Found::Native => native(),
        Found::Shape(format, all) => {
            let first = all.into_iter().find(|d| !d.passed_over)?;
            context(format).boundary(first.tenant, first.store).ok()
        }
    }
}

fn opened(fetched: &Fetched, value: &[u8], rules: &Rules, mapping: &Mapping) -> Result<Opened> {
    native::readable(fetched)?;
    if value.len() > rules.max_bytes {
        return Err(dead(Code::RecordTooLarge, format!("the value has {} bytes", value.len())));
    }
    let opened = envelope::open(fetched, tree::parse(value)?)?;
    if mapping.format == Format::CloudEvents && !opened.is_event() {
        return Err(dead(Code::ShapeUnknown, "the record is no CloudEvent"));
    }
    Ok(opened)
}

/// The document's own bytes; those of one out of an envelope are written anew.
fn bytes<'a>(opened: &Opened, value: &'a [u8]) -> std::borrow::Cow<'a, [u8]> {
    match &opened.outer {
        None => value.into(),
        Some(_) => serde_json::to_vec(&opened.inner).unwrap_or_default().into(),
    }
}

fn counted<T>(facts: Vec<T>) -> Result<Vec<T>> {
    if facts.len() <= MAX_FACTS {
        return Ok(facts);
    }
    Err(dead(Code::TooManyFacts, format!("the record holds {} facts, {MAX_FACTS} are taken", facts.len())))
}

/// Facts of two boundaries belong to two units, and would be decided apart.
fn one_boundary<'a>(mut all: impl Iterator<Item = &'a Boundary>, fetched: &Fetched, rules: &Rules) -> Result<()> {
    let Some(first) = all.next() else { return Ok(()) };
    if all.any(|b| b != first) {
        return Err(dead(Code::InvalidBoundary, "the facts of one record belong to several boundaries"));
    }
    native::placed(first, fetched, rules)
}

/// What stands around the facts of one record.
struct Context<'a> {
    fetched: &'a Fetched,
    opened: &'a Opened,
    mapping: &'a Mapping,
    format: Format,
}

impl Context<'_> {
    fn write(&self, index: usize, d: Draft) -> Result<Write> {
        let op = d.op.unwrap_or(Op::Create);
        if op != Op::Delete && d.content.trim().is_empty() {
            return Err(dead(Code::EmptyContent, "content is empty"));
        }
        let boundary = self.boundary(d.tenant, d.store)?;
        let created = d.created_at.or_else(|| self.opened.time.clone());
        let record_id = match d.id {
            Some(given) => id(given.into(), "record id")?,
            None if op == Op::Delete => return Err(dead(Code::ShapeIncomplete, "a delete names no record")),
            None => {
                let own = self.derive(index, &boundary, &[opt(&d.session), opt(&d.source), opt(&created), &d.content]);
                id(if d.under.is_empty() { own } else { format!("{}#{own}", d.under) }.into(), "record id")?
            }
        };
        Ok(Write {
            record_id,
            op,
            content: d.content,
            origin: d.origin,
            principal: optional_id(d.principal.map(Into::into), "principal")?,
            session_id: optional_id(d.session.map(Into::into), "session_id")?,
            output_id: d.output.filter(|o| valid_id(o)),
            written_by: d.written_by,
            source_ref: d.source.or_else(|| self.opened.source.clone()),
            derived_from: d.derived_from,
            created_at: created.as_deref().and_then(parse_rfc3339),
            expires_at: self.expires(d.expires_at, d.ttl_minutes)?,
            embedding: None,
            boundary,
        })
    }

    fn retrieval(&self, index: usize, a: Asked) -> Result<Retrieval> {
        let boundary = self.boundary(a.tenant, a.store)?;
        let lacks = || dead(Code::ShapeIncomplete, "the retrieval names neither a session nor who read");
        let session_id = a.session.clone().or_else(|| a.principal.clone()).ok_or_else(lacks)?;
        let principal = a.principal.or(a.session).ok_or_else(lacks)?;
        if a.results.len() > MAX_RESULTS {
            return Err(dead(Code::InvalidRecord, format!("results lists more than {MAX_RESULTS} records")));
        }
        let tenant = boundary.tenant();
        let returned = |(record, of): (String, Option<String>)| {
            let foreign = of.is_some_and(|t| t != tenant);
            id(record.into(), "the id of a result").map(|id| Returned { foreign, id })
        };
        let results = a.results.into_iter().map(returned).collect::<Result<Vec<_>>>()?;
        let event_id = a.id.or_else(|| self.opened.id.clone()).unwrap_or_else(|| {
            let ids: Vec<&str> = results.iter().map(|r| r.id.as_str()).collect();
            let at = self.fetched.at.timestamp.to_string();
            self.derive(index, &boundary, &[&session_id, opt(&a.query), &at, &ids.join("\n")])
        });
        Ok(Retrieval {
            event_id: id(event_id.into(), "event_id")?,
            session_id: id(session_id.into(), "session_id")?,
            principal: id(principal.into(), "principal")?,
            k: a.k.and_then(|k| usize::try_from(k).ok()).unwrap_or(results.len()),
            results,
            query: a.query.filter(|q| !q.trim().is_empty()),
            embedding: None,
            output_id: optional_id(a.output.map(Into::into), "output_id")?,
            background: false,
            boundary,
        })
    }

    /// The declared mapping, else what the shape says; a store without either is named after its shape.
    fn boundary(&self, tenant: Option<String>, store: Option<String>) -> Result<Boundary> {
        let tenant = match &self.mapping.tenant {
            Some(part) => self.part(part, "tenant")?,
            None => tenant.ok_or_else(|| {
                dead(Code::ShapeIncomplete, format!("{} names no tenant: declare input.tenant", self.format.as_str()))
            })?,
        };
        let store = match &self.mapping.store {
            Some(part) => self.part(part, "store")?,
            None => store.unwrap_or_else(|| self.format.as_str().to_owned()),
        };
        Boundary::new(&tenant, &store)
    }

    fn part(&self, part: &Part, what: &str) -> Result<String> {
        let found = match part {
            Part::Fixed(name) => Some(name.clone()),
            Part::Header(name) => {
                self.fetched.header(name).and_then(|v| std::str::from_utf8(v).ok()).map(str::to_owned)
            }
            Part::Field(path) => {
                let docs = [Some(&self.opened.inner), self.opened.outer.as_ref()];
                docs.into_iter().flatten().find_map(|d| at(d, path)).map(str::to_owned)
            }
        };
        found.ok_or_else(|| dead(Code::ShapeIncomplete, format!("the record has no {what} where input.{what} says")))
    }

    /// The same record gives the same id, wherever it stands.
    fn derive(&self, index: usize, boundary: &Boundary, parts: &[&str]) -> String {
        let number = index.to_string();
        let mut all = vec![self.format.as_str(), boundary.as_str(), opt(&self.opened.id), &number];
        all.extend_from_slice(parts);
        derived(&all)
    }

    fn expires(&self, at: Option<String>, ttl_minutes: Option<f64>) -> Result<Option<Millis>> {
        if let Some(day) = at.as_deref().filter(|t| t.len() == 10) {
            return optional_time(Some(&format!("{day}T00:00:00Z")), "expires_at");
        }
        if at.is_some() {
            return optional_time(at.as_deref(), "expires_at");
        }
        let Some(minutes) = ttl_minutes else { return Ok(None) };
        if !(0.0..=1e9).contains(&minutes) {
            return Err(dead(Code::InvalidRecord, "ttl is not between 0 and 1e9 minutes"));
        }
        #[allow(clippy::cast_possible_truncation)] // at most 6e13
        let more = (minutes * 60_000.0) as Millis;
        Ok(self.fetched.at.timestamp.checked_add(more))
    }
}

fn opt(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

/// The text at a path of names and places in lists.
fn at<'a>(v: &'a Value, path: &str) -> Option<&'a str> {
    let step = |v: &'a Value, part: &str| match v {
        Value::Array(items) => items.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    };
    path.split('.').try_fold(v, step)?.as_str()
}
