//! Whether the broker can make the topics that transactions stand on. Where it can't, clients only see
//! calls that never end.
#![allow(clippy::disallowed_methods)] // start-up calls with their own deadlines

use std::time::Duration;

use rdkafka::admin::{AdminOptions, ConfigResource, ResourceSpecifier};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;

use super::client::{Reader, reader};
use super::live::admin;
use crate::error::{Code, Error, Result};

const CALL: Duration = Duration::from_secs(15);

/// The internal topics with the broker settings that say how they are made.
const INTERNAL: [(&str, &str, Option<&str>); 2] = [
    ("__transaction_state", "transaction.state.log.replication.factor", Some("transaction.state.log.min.isr")),
    ("__consumer_offsets", "offsets.topic.replication.factor", None),
];

/// Checks the internal topics that are not there yet. A broker that doesn't say its settings is trusted.
///
/// # Errors
/// `broker_unreachable`, `broker_refused` when one of them can't be made.
pub(super) fn internal_topics(client: &ClientConfig) -> Result<()> {
    let consumer: Reader = reader(client, "read_committed", "memsluice-preflight")?;
    let metadata = consumer
        .fetch_metadata(None, CALL)
        .map_err(|e| Error::with(Code::BrokerUnreachable, "the broker does not answer", e))?;
    let there = |name: &str| metadata.topics().iter().any(|t| t.name() == name && !t.partitions().is_empty());
    let brokers = metadata.brokers();
    let lacking: Vec<_> = INTERNAL.iter().filter(|(name, _, _)| !there(name)).collect();
    let (Some(broker), false) = (brokers.first(), lacking.is_empty()) else { return Ok(()) };
    let Some(settings) = settings(client, broker.id())? else { return Ok(()) };
    let number = |key: &str| settings.get(key).and_then(|e| e.value.as_deref()?.parse::<usize>().ok());
    for (name, factor_key, isr_key) in lacking {
        let isr = isr_key.and_then(|key| Some((key, number(key)?)));
        if let Some(why) = impossible(brokers.len(), factor_key, number(factor_key), isr) {
            return Err(Error::new(Code::BrokerRefused, format!("the broker can't make {name}: {why}")));
        }
    }
    Ok(())
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
}
