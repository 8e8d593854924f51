//! Group membership: partition i of two topics goes to one member.

use std::collections::BTreeSet;
use std::time::Duration;

use rdkafka::consumer::Consumer;

use super::bench::{Bench, Consuming};
use super::{Trouble, Verdict, broken, unknown};
use crate::clock::monotonic;

/// Longest wait for an assignment: brokers hold a new group's first rebalance back for 3 s by default.
const JOIN: Duration = Duration::from_secs(30);
/// Assignments that have not moved for this long are taken for final.
const CALM: Duration = Duration::from_secs(2);

/// The classic protocol with the assignor `range`.
pub(super) const CLASSIC: [(&str, &str); 3] =
    [("partition.assignment.strategy", "range"), ("session.timeout.ms", "10000"), ("heartbeat.interval.ms", "500")];
const CONSUMER: [(&str, &str); 2] = [("group.protocol", "consumer"), ("group.remote.assignor", "range")];

/// Classic protocol.
pub(super) fn range(b: &Bench) -> Verdict {
    co_assigned(b, "classic", &CLASSIC)
}

/// KIP-848.
pub(super) fn consumer_range(b: &Bench) -> Verdict {
    co_assigned(b, "consumer", &CONSUMER)
}

fn co_assigned(b: &Bench, group: &str, settings: &[(&str, &str)]) -> Verdict {
    let (one, two) = (member(b, group, settings)?, member(b, group, settings)?);
    let (left, right) = (b.name("left"), b.name("right"));
    one.subscribe(&[&left, &right])?;
    two.subscribe(&[&left, &right])?;
    settled(&[&one, &two], || !partitions(&one).is_empty() && !partitions(&two).is_empty())?;
    let mut all = BTreeSet::new();
    for member in [&one, &two] {
        let of = |topic: &str| -> BTreeSet<i32> {
            partitions(member).into_iter().filter(|(t, _)| t == topic).map(|(_, p)| p).collect()
        };
        let (a, b) = (of(&left), of(&right));
        if a != b {
            return broken(format!("one member got partitions {a:?} of one topic and {b:?} of the other"));
        }
        all.extend(a);
    }
    if all.len() == 4 { Ok(()) } else { broken(format!("of 4 partitions the members got {all:?}")) }
}

/// A member of a group of this run.
pub(super) fn member(b: &Bench, group: &str, settings: &[(&str, &str)]) -> Result<Consuming, Trouble> {
    Ok(b.consumer(group, "read_committed", settings)?)
}

/// What a member holds.
pub(super) fn partitions(member: &Consuming) -> BTreeSet<(String, i32)> {
    let held =
        member.assignment().map(|l| l.elements().iter().map(|e| (e.topic().to_owned(), e.partition())).collect());
    held.unwrap_or_default()
}

/// Polls all members until something holds.
pub(super) fn until(members: &[&Consuming], done: impl Fn() -> bool) -> Verdict {
    let end = monotonic() + JOIN;
    let mut last = String::new();
    while !done() {
        if monotonic() > end {
            return Err(unknown(format!("no assignment in {} s {last}", JOIN.as_secs())));
        }
        for member in members {
            if let Some(Err(e)) = member.poll(Duration::from_millis(50)) {
                last = format!("({e})");
            }
        }
    }
    Ok(())
}

/// The same, and then until assignments stand still.
pub(super) fn settled(members: &[&Consuming], done: impl Fn() -> bool) -> Verdict {
    until(members, done)?;
    let held = || members.iter().map(|m| partitions(m)).collect::<Vec<_>>();
    let (mut before, mut since) = (held(), monotonic());
    let end = monotonic() + JOIN;
    while since.elapsed() < CALM {
        members.iter().for_each(|m| drop(m.poll(Duration::from_millis(20))));
        let now = held();
        if now != before {
            (before, since) = (now, monotonic());
        }
        if monotonic() > end {
            return Err(unknown("assignments did not come to rest"));
        }
    }
    Ok(())
}
