//! The hash by which Java producers choose a partition.

const M: u32 = 0x5bd1_e995;
const SEED: u32 = 0x9747_b28c;

/// murmur2 of Kafka.
fn murmur2(data: &[u8]) -> u32 {
    // The length is part of the hash as 32 bits.
    let length = u32::try_from(data.len() & 0xffff_ffff).unwrap_or(u32::MAX);
    let mut hash = SEED ^ length;
    let mut blocks = data.chunks_exact(4);
    for block in &mut blocks {
        let mut k = block.iter().rev().fold(0_u32, |k, byte| (k << 8) | u32::from(*byte));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        hash = hash.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = blocks.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0_u32, |k, byte| (k << 8) | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash ^= hash >> 13;
    hash = hash.wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// The partition of a key among `partitions`, as Java's default partitioner says.
pub(crate) fn partition(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::cast_possible_wrap)] // Java prints it signed
    fn hashes_of_the_kafka_tests() {
        for (key, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()) as i32, hash, "{key}");
        }
    }
}
