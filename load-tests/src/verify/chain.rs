//! The hash chain of one partition of `decisions`. Pure.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// `chain` of a record.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Link {
    pub(crate) seq: u64,
    pub(crate) prev_hash: String,
    pub(crate) entry_hash: String,
}

/// Follows one partition.
#[derive(Debug)]
pub(crate) struct Chain {
    /// What the next record must say; `None` before the first record of a log whose start is gone.
    next: Option<(u64, [u8; 32])>,
}

impl Chain {
    /// `whole`: the log still has its first record.
    pub(crate) fn new(whole: bool) -> Self {
        Self { next: whole.then_some((0, [0; 32])) }
    }

    /// Number of the next record and hash of the last, as far as they are known.
    pub(crate) fn head(&self) -> Option<(u64, [u8; 32])> {
        self.next
    }

    /// Whether `link` follows and its hash is that of `body`, byte for byte. Goes on from what the record
    /// says, so that one break counts once.
    pub(crate) fn follows(&mut self, link: &Link, body: &[u8]) -> bool {
        let (Some(prev), Some(entry)) = (hash(&link.prev_hash), hash(&link.entry_hash)) else {
            return false;
        };
        let expected = self.next.is_none_or(|next| next == (link.seq, prev));
        let computed: [u8; 32] = Sha256::new().chain_update(prev).chain_update(body).finalize().into();
        self.next = Some((link.seq.saturating_add(1), entry));
        expected && computed == entry
    }
}

/// 64 lower-case hex digits.
fn hash(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let lower = !text.bytes().any(|b| b.is_ascii_uppercase());
    (lower && hex::decode_to_slice(text, &mut bytes).is_ok()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links over `bodies` from the start.
    fn links(bodies: &[&str]) -> Vec<Link> {
        let mut prev = [0_u8; 32];
        let mut made = Vec::new();
        for (seq, body) in bodies.iter().enumerate() {
            let bytes: Vec<u8> = prev.iter().copied().chain(body.bytes()).collect();
            let entry: [u8; 32] = Sha256::digest(&bytes).into();
            made.push(Link { seq: seq as u64, prev_hash: hex::encode(prev), entry_hash: hex::encode(entry) });
            prev = entry;
        }
        made
    }

    fn broken(links: &[Link], bodies: &[&str], whole: bool) -> usize {
        let mut chain = Chain::new(whole);
        links.iter().zip(bodies).filter(|(link, body)| !chain.follows(link, body.as_bytes())).count()
    }

    const BODIES: [&str; 4] = ["{\"a\":1}", "{\"a\":2}", "{}", "{\"b\":null}"];

    #[test]
    fn a_known_first_hash() {
        // sha256 of 32 zero bytes and "{}", from coreutils
        let link = &links(&["{}"])[0];
        assert_eq!(link.prev_hash, "0".repeat(64));
        assert_eq!(link.entry_hash, KNOWN);
    }
    const KNOWN: &str = "fb1634c4e6cd4b1f1afe3ce2d6ef080f7ac5d1f357d723ad4dfca782733b62db";

    #[test]
    fn an_intact_chain_and_its_tail() {
        let all = links(&BODIES);
        assert_eq!(broken(&all, &BODIES, true), 0);
        assert_eq!(broken(&all[2..], &BODIES[2..], false), 0);
        assert_eq!(broken(&all[2..], &BODIES[2..], true), 1);
    }

    #[test]
    fn each_kind_of_break_counts_once() {
        let all = links(&BODIES);
        let mut edited = BODIES;
        edited[1] = "{\"a\":3}";
        assert_eq!(broken(&all, &edited, true), 1);

        let mut gap = all.clone();
        gap.remove(1);
        assert_eq!(broken(&gap, &[BODIES[0], BODIES[2], BODIES[3]], true), 1);

        let twice = vec![all[0].clone(), all[1].clone(), all[1].clone(), all[2].clone(), all[3].clone()];
        assert_eq!(broken(&twice, &[BODIES[0], BODIES[1], BODIES[1], BODIES[2], BODIES[3]], true), 1);

        let mut garbled = all;
        garbled[3].entry_hash = "xyz".to_owned();
        assert_eq!(broken(&garbled, &BODIES, true), 1);
    }

    #[test]
    fn a_rewritten_chain_that_starts_anew_is_broken() {
        let (mut all, tail) = (links(&BODIES[..2]), links(&BODIES[2..]));
        all.extend(tail);
        assert_eq!(broken(&all, &BODIES, true), 1);
    }
}
