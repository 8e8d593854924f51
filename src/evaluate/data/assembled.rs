//! Boundaries put together here from published parts: their rates are no results on published streams.

use super::{Data, Golden, cut, in_runs, texts};
use crate::error::Result;
use crate::evaluate::{Boundary, Rng, Write};

/// Answered questions: the right answers to the PoisonedRAG questions, other questions with stock answers, and
/// StrategyQA reasoning without its attack sentences.
///
/// # Errors
/// `file_unreadable`.
pub fn qa(data: &Data, golden: &Golden, seed: u64) -> Result<Boundary> {
    let mut rng = Rng::new(seed, "qa");
    let mut questions: Vec<(String, String)> = Vec::new();
    for row in data.rows("poison/poisonedrag_texts")? {
        if questions.last().is_none_or(|(q, _)| *q != row.victim_query) {
            questions.push((row.victim_query, row.correct));
        }
    }
    let asked: Vec<String> = questions.iter().map(|(q, _)| q.clone()).collect();
    let off_topic: Vec<String> = data
        .rows("benign/agent_memory_queries")?
        .into_iter()
        .filter(|r| r.role == "off_topic_query")
        .map(|r| r.text)
        .collect();
    let intents = texts(&data.rows("benign/clinc150_queries")?);
    for query in off_topic.iter().cloned().chain(rng.sample(&intents, 300)) {
        questions.push((query, rng.pick(&golden.own_test_rows.echo_answers).clone()));
    }
    let wordings = &golden.own_test_rows.echo_wordings;
    let mut writes: Vec<Write> = questions
        .iter()
        .enumerate()
        .map(|(i, (q, a))| {
            let form = i % wordings.len().max(1);
            let text = wordings[form].replace("{q}", q).replace("{a}", a);
            Write::new(format!("qa-{i}"), text).of_template(format!("echo/{form}")).caused_by(q.clone())
        })
        .collect();
    writes.extend(traces(data)?);
    rng.shuffle(&mut writes);
    let [fit, calibrate, test] = cut(in_runs(writes, "qa", &mut rng));
    let mut history = rng.sample(&asked, 60);
    history.extend(rng.sample(&off_topic, 40));
    let queries = asked.iter().filter(|q| !history.contains(q)).take(60).cloned().collect();
    Ok(Boundary { name: "qa".into(), fit, calibrate, test, history, queries, facts: Vec::new() })
}

/// The reasoning of the AgentPoison records, sentences of the attack taken out.
fn traces(data: &Data) -> Result<Vec<Write>> {
    let mut seen = std::collections::BTreeSet::new();
    let mut out = Vec::new();
    for row in data.rows("poison/agentpoison_records")? {
        if row.agent != "react-strategyqa" || row.provenance.published || !seen.insert(row.base_question.clone()) {
            continue;
        }
        let Some((_, value)) = row.text.split_once('\n') else { continue };
        let attack =
            |s: &&str| s.contains(&row.trigger) || ["answer", "quota", "inverted"].iter().any(|w| s.contains(w));
        let kept: Vec<&str> = value.split(". ").filter(|s| !attack(s)).collect();
        let thought = kept.join(". ").replace("Thought: ", "");
        let text = format!("Question: {}\nThought: {}", row.base_question, thought.trim());
        out.push(Write::new(format!("trace-{}", out.len()), text));
    }
    Ok(out)
}

/// Shopping runs; three in ten search with a word that the request doesn't have.
///
/// # Errors
/// `file_unreadable`.
pub fn shop(data: &Data, seed: u64) -> Result<Boundary> {
    const OTHER: [&str; 8] = ["sale", "deluxe", "classic", "bundle", "set", "brand", "cheap", "new"];
    let mut rng = Rng::new(seed, "shop");
    let goals = rng.sample(&texts(&data.rows("benign/webshop_queries")?), 600);
    let mut writes = Vec::new();
    for (i, goal) in goals.iter().take(499).enumerate() {
        let words = crate::evaluate::text::words(goal);
        let mut search: Vec<String> = words.iter().filter(|w| w.len() > 4).take(3).cloned().collect();
        if rng.below(10) < 3 {
            search.push((*rng.pick(&OTHER)).to_owned());
        }
        let search = search.join(" ");
        let text = format!(
            "Instruction: {goal}\nAction: think[I look for what was asked.]\nAction: search[{search}]\nAction: \
             click[{search}]"
        );
        writes.push(Write::new(format!("shop-{i}"), text));
    }
    let [fit, calibrate, test] = cut(in_runs(writes, "shop", &mut rng));
    let history = goals.iter().skip(499).take(100).cloned().collect();
    let queries = goals.iter().take(40).cloned().collect();
    Ok(Boundary { name: "shop".into(), fit, calibrate, test, history, queries, facts: Vec::new() })
}
