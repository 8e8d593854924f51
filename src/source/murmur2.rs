//! The Java producer's default partitioner (`Utils.murmur2`), so that both clients place a key alike.

/// Partition of a key among `count`.
#[must_use]
pub fn partition_of(key: &[u8], count: i32) -> i32 {
    let positive = murmur2(key) & 0x7fff_ffff;
    i32::try_from(positive % u32::try_from(count.max(1)).unwrap_or(1)).unwrap_or_default()
}

fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut h: u32 = 0x9747_b28c ^ length;
    let mut chunks = data.chunks_exact(4);
    for c in &mut chunks {
        let mut k = u32::from_le_bytes([c[0], c[1], c[2], c[3]]).wrapping_mul(M);
        k ^= k >> 24;
        h = h.wrapping_mul(M) ^ k.wrapping_mul(M);
    }
    let rest = chunks.remainder();
    for (i, byte) in rest.iter().enumerate() {
        h ^= u32::from(*byte) << (8 * i);
    }
    if !rest.is_empty() {
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ h >> 15
}

#[cfg(test)]
mod tests {
    use super::murmur2;

    /// Values of Apache Kafka's own `UtilsTest.testMurmur2`.
    #[test]
    fn equals_java() {
        for (text, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text}");
        }
    }
}
