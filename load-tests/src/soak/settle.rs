//! Whether a group has taken everything that was written.
#![allow(clippy::disallowed_methods)] // nobody waits for this thread

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::error::{Doing, Result};
use crate::kafka::{CALL, client};
use crate::read;

/// Inputs behind the end of their partitions, by the group's committed offsets. The partitions must end
/// with plain records: a marker at the end is never taken.
pub(crate) fn behind(bootstrap: &str, group: &str, topics: &[String]) -> Result<i64> {
    let consumer: BaseConsumer =
        client(bootstrap, &[("group.id".to_owned(), group.to_owned())]).create().doing("making a consumer")?;
    let mut total = 0;
    for topic in topics {
        let bounds = read::bounds(bootstrap, topic)?;
        let mut list = TopicPartitionList::new();
        for &partition in bounds.keys() {
            list.add_partition(topic, partition);
        }
        let found = consumer.committed_offsets(list, CALL).doing("reading committed offsets")?;
        for (partition, b) in bounds {
            let at = found.find_partition(topic, partition).map(|p| p.offset());
            let next = if let Some(Offset::Offset(n)) = at { n } else { b.low };
            total += (b.high - next).max(0);
        }
    }
    Ok(total)
}
