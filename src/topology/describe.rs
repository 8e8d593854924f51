//! The topology as text, golden-tested.

use std::fmt::Write;

use super::breaker::OnDeadLetter;
use super::detectors::{Form, Memsad, Switch};
use super::model::{Flow, Role, Topology};
use super::topic::Retention;

/// What runs, as text.
#[must_use]
pub fn describe(t: &Topology) -> String {
    let mut out = String::new();
    let m = &t.main;
    let _ = writeln!(out, "application {}  (topology {})", m.application, t.hash);
    for (name, flow) in [("writes", &m.flows.writes), ("retrievals", &m.flows.retrievals)] {
        let _ = writeln!(out, "flow {name}\n  {}", line(t, flow));
    }
    let _ = writeln!(out, "topics");
    for topic in t.sources.values().chain(Role::ALL.iter().map(|r| t.topic(*r))) {
        let retention = match topic.retention {
            Retention::Forever => "forever".to_owned(),
            Retention::For(d) => period(d),
        };
        let _ = writeln!(
            out,
            "  {:<20} {:>3} partitions  key {:<8}  {:<7}  {:<8}  {}",
            topic.name,
            topic.partitions,
            format!("{:?}", topic.key).to_lowercase(),
            format!("{:?}", topic.cleanup).to_lowercase(),
            retention,
            topic.schema.as_deref().unwrap_or("-"),
        );
    }
    let _ = writeln!(out, "stores");
    for (name, store) in &m.stores {
        let _ = writeln!(out, "  {name:<10} changelog {}", t.name(store.changelog));
    }
    let _ = writeln!(
        out,
        "unit       partition i of each co-partitioned topic; inputs by (timestamp, rank, offset); {} units\n\
         commit     every {} or {} inputs; transaction timeout {}\n\
         memsad     {}, {}, {} of {} queries, {}\n\
         screen     {}, campaigns in new forms {}, retract {}, sources idle {}\n\
         sprt       p1 {} p0 {} alpha {} beta {}, {} observations, idle {}{}\n\
         breaker    {} failures in a row or {} of {}, cool-down {}; stop at {} sources in {}",
        t.units(),
        period(m.commit.interval),
        m.commit.max_records,
        period(m.commit.transaction_timeout),
        format!("{:?}", m.memsad.mode).to_lowercase(),
        m.memsad.form.as_str(),
        m.memsad.statistic.as_str(),
        m.memsad.history,
        form(&m.memsad),
        format!("{:?}", m.screen.mode).to_lowercase(),
        format!("{:?}", m.screen.new_format).to_lowercase(),
        format!("{:?}", m.screen.retract).to_lowercase(),
        period(m.screen.source_idle),
        m.sprt.p1,
        m.sprt.p0,
        m.sprt.alpha,
        m.sprt.beta,
        m.sprt.max_observations,
        period(m.sprt.idle),
        if m.sprt.assumed { " (assumed)" } else { "" },
        m.breaker.consecutive,
        m.breaker.ratio,
        m.breaker.window,
        period(m.breaker.cool_down),
        m.breaker.stop_sources,
        period(m.breaker.stop_within),
    );
    out
}

fn line(t: &Topology, flow: &Flow) -> String {
    let to: Vec<&str> = flow.to.iter().map(|r| t.name(*r)).collect();
    let held = if flow.on_dead_letter == OnDeadLetter::HoldKey { "  (a dead letter holds its key)" } else { "" };
    let source = t.sources.get(&flow.from).map(|s| format!("{} -> repartition -> ", s.name)).unwrap_or_default();
    format!("{source}{} -> {} -> {}{held}", t.name(flow.from), flow.stages.join(" -> "), to.join(" | "))
}

/// Whole days as such; anything else as the crate writes it.
fn period(d: std::time::Duration) -> String {
    const DAY: u64 = 86_400;
    if d.as_secs() >= DAY && d.as_secs().is_multiple_of(DAY) && d.subsec_nanos() == 0 {
        return format!("{}d", d.as_secs() / DAY);
    }
    humantime::format_duration(d).to_string()
}

/// What the form alone has.
fn form(m: &Memsad) -> String {
    if m.form == Form::Reference {
        return format!("kappa {}", m.kappa);
    }
    let r = &m.rolling;
    let rolling = match r.mode {
        Switch::Off => "rows of the fit".to_owned(),
        Switch::On => format!(
            "rows roll after {}, by {} or every {}, at most {}",
            period(r.ageing),
            r.every,
            period(r.at_least),
            r.capacity
        ),
    };
    format!(
        "level {}, {} a principal, moved by {}, at most {} old, {} memories; {rolling}",
        m.level,
        m.per_principal,
        m.settle,
        period(m.query_age),
        m.memory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The internal topic stands where its source stood, is as wide as the units, and is the unit's input.
    #[test]
    fn a_repartitioned_input_is_shown_with_both_topics() {
        let topics = include_str!("../../topology/topics.yaml").replace(
            "memory-writes:    { partitions: 6, key: boundary,",
            "memory-writes:    { partitions: 12, key: original, repartition: auto,",
        );
        let mut t = Topology::parse(include_str!("../../topology/memsluice.yaml"), &topics).unwrap();
        t.prefix("x-");
        assert_eq!(
            (t.units(), t.is_repartitioned(Role::MemoryWrites), t.is_repartitioned(Role::RetrievalLogs)),
            (6, true, false)
        );
        assert_eq!(t.source(Role::MemoryWrites).name, "x-memory-writes");
        assert_eq!(t.name(Role::MemoryWrites), "x-memsluice-memory-writes-repartition");
        let text = describe(&t);
        for line in [
            "  x-memory-writes -> repartition -> x-memsluice-memory-writes-repartition -> decode -> ",
            "  x-memory-writes       12 partitions  key original  delete   7d        memory-write",
            "  x-memsluice-memory-writes-repartition   6 partitions  key boundary  delete   7d        memory-write",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        t.without_repartition();
        assert_eq!((t.name(Role::MemoryWrites), t.is_repartitioned(Role::MemoryWrites)), ("x-memory-writes", false));
    }
}
