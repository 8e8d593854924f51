//! Boundaries whose benign stream is published data (`hardened.md` 1).

use super::{Data, Row, cut, in_runs, interleave, texts};
use crate::error::Result;
use crate::evaluate::{Boundary, Rng, Write};

/// A boundary with the rows that were kept out of its stream.
#[derive(Debug, Clone)]
pub struct Ehr {
    /// The store.
    pub boundary: Boundary,
    /// Sessions of one question template each; these templates are not in the stream.
    pub template_sessions: Vec<Write>,
}

/// Persona chat by date with office notes in between.
///
/// # Errors
/// `file_unreadable`.
pub fn chat(data: &Data, seed: u64) -> Result<Boundary> {
    let mut rng = Rng::new(seed, "chat");
    let mut persona = data.rows("benign/memorybank_en_writes")?;
    persona.sort_by(|a, b| (&a.ts, &a.session).cmp(&(&b.ts, &b.session)));
    let mut sessions: Vec<Vec<Write>> = Vec::new();
    let mut last = None;
    for row in persona {
        if last.as_ref() != Some(&row.session) {
            sessions.push(Vec::new());
        }
        let write = Write::new(&row.id, &row.text).from_source(&row.session).of_template(&row.session);
        if let Some(group) = sessions.last_mut() {
            group.push(write);
        }
        last = Some(row.session);
    }
    let mut office = data.rows("benign/agent_memory_corpus")?;
    rng.shuffle(&mut office);
    let office = office.iter().map(|r| Write::new(&r.id, &r.text)).collect();
    let [fit, calibrate, test] = cut(interleave(sessions, in_runs(office, "office", &mut rng)));
    let queries = data.rows("benign/agent_memory_queries")?;
    let mut victims: Vec<String> =
        queries.iter().filter(|q| q.role == "victim_query").map(|q| q.text.clone()).collect();
    rng.shuffle(&mut victims);
    let mut persona = texts(&data.rows("benign/memorybank_en_queries")?);
    rng.shuffle(&mut persona);
    let (half, forty) = (victims.len() / 2, 40.min(persona.len()));
    let history = victims[..half].iter().chain(&persona[..forty]).cloned().collect();
    let others = victims[half..].iter().chain(&persona[forty..]).cloned().collect();
    Ok(Boundary { name: "chat".into(), fit, calibrate, test, history, queries: others, facts: facts(data)? })
}

/// Facts that the benchmark hands to its registry.
fn facts(data: &Data) -> Result<Vec<String>> {
    let mut facts: Vec<String> = data.rows("poison/mem_inv_bench")?.into_iter().flat_map(|r| r.trusted_facts).collect();
    facts.sort();
    facts.dedup();
    Ok(facts)
}

/// Templates kept out of the stream, and rows of each.
const TEMPLATES: (usize, usize) = (20, 5);

/// Questions with SQL and runs of a real agent; half of the runs as question and knowledge, so that the form alone
/// doesn't give poison away.
///
/// # Errors
/// `file_unreadable`.
pub fn ehr(data: &Data, seed: u64) -> Result<Ehr> {
    let mut rng = Rng::new(seed, "ehr");
    let mut rows = data.rows("benign/ehrsql_memory_writes")?;
    rng.shuffle(&mut rows);
    let mut names: Vec<String> = rows.iter().filter_map(|r| r.template.clone()).collect();
    names.sort();
    names.dedup();
    let held = rng.sample(&names, TEMPLATES.0);
    let mut template_sessions = Vec::new();
    for (session, name) in held.iter().enumerate() {
        let of = rows.iter().filter(|r| r.template.as_ref() == Some(name)).take(TEMPLATES.1);
        template_sessions.extend(of.map(|r| record(r).from_source(format!("template-session-{session}"))));
    }
    let kept: Vec<Write> =
        rows.iter().filter(|r| r.template.as_ref().is_none_or(|t| !held.contains(t))).map(record).collect();
    let run = |(i, r): (usize, &Row)| {
        let text =
            if i % 2 == 0 { r.text.clone() } else { format!("Question: {}\nKnowledge:\n{}", r.query, r.knowledge) };
        Write::new(&r.id, text)
    };
    let runs: Vec<Write> = data.rows("benign/ehragent_runs")?.iter().enumerate().map(run).collect();
    let groups = interleave(in_runs(kept, "sql", &mut rng), in_runs(runs, "agent", &mut rng));
    let [fit, calibrate, test] = cut(groups);
    let mut queries = texts(&data.rows("benign/ehrsql_queries")?);
    rng.shuffle(&mut queries);
    let history = queries[..100.min(queries.len())].to_vec();
    let queries = queries.iter().skip(100).take(60).cloned().collect();
    let boundary = Boundary { name: "ehr".into(), fit, calibrate, test, history, queries, facts: Vec::new() };
    Ok(Ehr { boundary, template_sessions })
}

fn record(r: &Row) -> Write {
    Write::new(&r.id, &r.text).of_template(r.template.as_ref().unwrap_or(&r.id))
}

/// Experiences of a data science agent: too few to cut, so all three parts are the whole and callers leave one out.
///
/// # Errors
/// `file_unreadable`.
pub fn ds(data: &Data, seed: u64) -> Result<Boundary> {
    let rows = data.rows("benign/memorygraft_experiences")?;
    let writes: Vec<Write> = rows
        .iter()
        .map(|r| {
            let value = r.text.strip_prefix(&r.task).unwrap_or(&r.text).trim().to_owned();
            Write::new(&r.id, &r.text).with_parts(&r.task, value)
        })
        .collect();
    let tasks: Vec<String> = rows.iter().map(|r| r.task.clone()).collect();
    let history = Rng::new(seed, "ds").sample(&tasks, 24);
    let queries = tasks.iter().filter(|t| !history.contains(t)).cloned().collect();
    let (fit, calibrate, test) = (writes.clone(), writes.clone(), writes);
    Ok(Boundary { name: "ds".into(), fit, calibrate, test, history, queries, facts: Vec::new() })
}
