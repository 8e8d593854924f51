//! Whether the broker can make the topics that transactions stand on, and what it makes of the topology's timeouts.
//! Where it can't, clients only see calls that never end.
#![allow(clippy::disallowed_methods)] // start-up calls with their own deadlines

use std::time::Duration;

use rdkafka::admin::{AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;

use super::client::{Reader, reader};
use super::live::admin;
use crate::error::{Code, Error, Result};
use crate::topology::{Assignor, TRANSACTION_MARGIN, Topology};

const CALL: Duration = Duration::from_secs(15);

/// The internal topics with the broker settings that say how they are made.
const INTERNAL: [(&str, &str, Option<&str>); 2] = [
    ("__transaction_state", "transaction.state.log.replication.factor", Some("transaction.state.log.min.isr")),
    ("__consumer_offsets", "offsets.topic.replication.factor", None),
];

/// Checks the internal topics that are not there yet, and the timeouts. A broker that doesn't say its settings is
/// trusted.
///
/// # Errors
/// `broker_unreachable`, `broker_refused` when a topic can't be made, `topology_timeouts`.
pub(super) fn check(client: &ClientConfig, topology: &Topology) -> Result<()> {
    let consumer: Reader = reader(client, "read_committed", "memsluice-preflight")?;
    let metadata = consumer
        .fetch_metadata(None, CALL)
        .map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
    let there = |name: &str| metadata.topics().iter().any(|t| t.name() == name && !t.partitions().is_empty());
    let brokers = metadata.brokers();
    let lacking: Vec<_> = INTERNAL.iter().filter(|(name, _, _)| !there(name)).collect();
    let Some(broker) = brokers.first() else { return Ok(()) };
    let Some(settings) = settings(client, broker.id())? else { return Ok(()) };
    let number = |key: &str| settings.get(key).and_then(|e| e.value.as_deref()?.parse::<usize>().ok());
    for (name, factor_key, isr_key) in lacking {
        let isr = isr_key.and_then(|key| Some((key, number(key)?)));
        if let Some(why) = impossible(brokers.len(), factor_key, number(factor_key), isr) {
            return Err(Error::new(Code::BrokerRefused, format!("the broker can't make {name}: {why}")));
        }
    }
    let said = |key: &str| Some(Duration::from_millis(settings.get(key)?.value.as_deref()?.parse().ok()?));
    match timeouts(topology, said) {
        Some(why) => Err(Error::new(Code::TopologyTimeouts, why)),
        None => Ok(()),
    }
}

/// What the broker's own limits make of the topology's timeouts; `said` gives those that it says.
fn timeouts(topology: &Topology, said: impl Fn(&str) -> Option<Duration>) -> Option<String> {
    let (consumer, transaction) = (&topology.main.consumer, topology.main.commit.transaction_timeout);
    let above = said("transaction.max.timeout.ms").filter(|max| transaction > *max);
    if let Some(max) = above {
        return Some(format!(
            "transaction_timeout is {transaction:?}, the broker's transaction.max.timeout.ms {max:?}"
        ));
    }
    // KIP-848: the session timeout is the broker's.
    if consumer.assignor == Assignor::ConsumerRange {
        let session = said("group.consumer.session.timeout.ms").filter(|s| transaction + TRANSACTION_MARGIN > *s)?;
        return Some(format!(
            "transaction_timeout {transaction:?} + {TRANSACTION_MARGIN:?} is above the broker's group.consumer.session.timeout.ms {session:?}"
        ));
    }
    let wanted = consumer.session_timeout;
    let low = said("group.min.session.timeout.ms").filter(|min| wanted < *min);
    let high = said("group.max.session.timeout.ms").filter(|max| wanted > *max);
    let limit = low.map(|l| ("min", l)).or_else(|| high.map(|h| ("max", h)));
    limit.map(|(name, v)| format!("session_timeout is {wanted:?}, the broker's group.{name}.session.timeout.ms {v:?}"))
}

/// Settings of a broker; `None` where they may not be read.
fn settings(client: &ClientConfig, id: i32) -> Result<Option<ConfigResource>> {
    let (admin, runtime) = admin(client)?;
    let options = AdminOptions::new().request_timeout(Some(CALL));
    let answers = runtime.block_on(admin.describe_configs(&[ResourceSpecifier::Broker(id)], &options));
    Ok(answers.ok().and_then(|a| a.into_iter().next()).and_then(std::result::Result::ok))
}

/// Why a topic of this replication can't be made or written.
fn impossible(brokers: usize, key: &str, factor: Option<usize>, isr: Option<(&str, usize)>) -> Option<String> {
    let factor = factor?;
    if factor > brokers {
        return Some(format!("{key} is {factor} and {brokers} broker(s) run"));
    }
    let (isr_key, isr) = isr?;
    (isr > factor).then(|| format!("{isr_key} is {isr}, above {key} {factor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_impossible() {
        let why = |brokers, factor, isr| impossible(brokers, "f", factor, isr);
        assert_eq!(why(1, Some(3), None).unwrap(), "f is 3 and 1 broker(s) run");
        assert_eq!(why(3, Some(1), Some(("i", 2))).unwrap(), "i is 2, above f 1");
        assert_eq!(why(3, Some(3), Some(("i", 2))), None);
        assert_eq!(why(1, None, Some(("i", 2))), None, "not said");
    }

    /// The sample: transactions of 10 s, sessions of 30 s.
    #[test]
    fn the_brokers_own_timeouts_are_kept() {
        let classic = Topology::sample().unwrap();
        let mut kip848 = classic.clone();
        kip848.main.consumer.assignor = Assignor::ConsumerRange;
        let cases = [
            (&classic, "transaction.max.timeout.ms", 9, false),
            (&classic, "transaction.max.timeout.ms", 10, true),
            (&classic, "group.min.session.timeout.ms", 31, false),
            (&classic, "group.max.session.timeout.ms", 29, false),
            (&classic, "group.max.session.timeout.ms", 30, true),
            (&classic, "group.consumer.session.timeout.ms", 5, true),
            (&kip848, "group.consumer.session.timeout.ms", 19, false),
            (&kip848, "group.consumer.session.timeout.ms", 20, true),
            (&kip848, "group.max.session.timeout.ms", 5, true),
        ];
        for (topology, key, seconds, good) in cases {
            let found = timeouts(topology, |k| (k == key).then_some(Duration::from_secs(seconds)));
            assert_eq!(found.is_none(), good, "{key} {seconds}: {found:?}");
        }
    }
}
