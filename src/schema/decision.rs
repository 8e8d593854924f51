//! `decisions`: what was decided and why, hash-chained per partition.
//!
//! The canonical body (JCS, RFC 8785) is what a replay must reproduce byte for byte. Its structs list
//! their fields in ascending order and hold only strings, integers, booleans and null, so plain
//! serialisation is already canonical; a test compares with an independent JCS implementation.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::activation::Activation;

/// The verdict on a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Forwarded unchanged.
    Allow,
    /// Forwarded with parts removed.
    Redact,
    /// Held for review.
    Quarantine,
    /// Held, not releasable without a second reviewer.
    Block,
    /// Not decodable.
    DeadLetter,
}

impl Verdict {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Allow => "allow",
            Verdict::Redact => "redact",
            Verdict::Quarantine => "quarantine",
            Verdict::Block => "block",
            Verdict::DeadLetter => "dead_letter",
        }
    }
}

/// What the record of `decisions` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// On one write.
    Decision,
    /// A new version of a calibration or honeypot set came into force.
    Activation,
    /// An operator's record was consumed; it has no verdict and no other output.
    Control,
    /// An operator reset the application: what follows decides the inputs from `input_vector` on anew.
    Reset,
    /// On an input that isn't one fact: its facts have decisions of their own, before this one; no output belongs to
    /// it itself. Its verdict is the worst of theirs.
    Input,
    /// An earlier write that was allowed belongs to a campaign that `input` showed; it has no verdict.
    Retraction,
}

/// Facts about the content that reveal none of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ContentFacts {
    /// Length, bytes.
    pub bytes: u64,
    /// Length, characters.
    pub chars: u64,
    /// HMAC-SHA256 under the boundary's key, hex.
    pub hmac: String,
    /// Id of that key.
    pub key_id: String,
}

/// How the MEMSAD test stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemsadStatus {
    /// Its result counts.
    Enforced,
    /// Its result is recorded only.
    Shadow,
    /// There was nothing to test against.
    Uncalibrated,
}

/// The test of one score: p-value = rank / of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tail {
    /// Trusted writes that score at least as high, this write included.
    pub rank: u32,
    /// Conformal threshold; null with too few trusted writes.
    pub threshold: Option<i64>,
}

/// Conformal thresholds and p-values of the three scores, at the query window of the decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConformalFacts {
    /// Of `s_comb`.
    pub comb: Tail,
    /// Level in millionths.
    pub level: u32,
    /// Of `s_max`.
    pub max: Tail,
    /// Of `s_mean`.
    pub mean: Tail,
    /// Trusted writes and this one.
    pub of: u32,
}

/// What can be said exactly about a score and its threshold (`memsad.md` 3.4). Nothing here gates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    /// Queries for which fewer than `k` stored memories lie at least as near as this write: it would push a memory
    /// out of their first `k`, or fill an empty place.
    pub contrast: u32,
    /// Queries for which no accepted write with this mean score can be among the first `k`; null without a
    /// threshold.
    pub coverage: Option<u32>,
    /// Places that a reader takes.
    pub k: u32,
    /// Lipschitz constant of the tested score, in millionths, rounded up.
    pub lipschitz: u32,
    /// Largest cosine of a stored memory with the query that is nearest to this write; null where none is stored.
    pub nearest: Option<i64>,
    /// The published condition, which guarantees nothing: `s_max` is above `nearest` by kappa deviations and the
    /// published error bound. Null without a threshold or a stored memory.
    pub paper_condition: Option<bool>,
    /// The test's result is the same for each vector within this distance of the write's, in millionths of the unit
    /// sphere's radius, rounded down; null without a threshold.
    pub radius: Option<u64>,
    /// Stored memories that were compared with: the newest accepted ones.
    pub stored: u32,
}

/// The query window of a hardened score.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WindowFacts {
    /// First 16 hex digits of SHA-256 over its queries.
    pub digest: String,
    /// Queries left out: they caused the write, or are of the same principal's session.
    pub excluded: u32,
    /// Version.
    pub version: u64,
}

/// Scores in units of 1 / 32767^2 (one = 1073676289).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemsadFacts {
    /// `scope@version` of the calibration, with `+rolling.<number>` where the stream made its rows, or
    /// `rolling/<boundary>@<number>` where it made all; null when none applies.
    pub calibration: Option<String>,
    /// Present in the hardened form.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub certificate: Option<Certificate>,
    /// Present in the hardened form with a calibration.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub conformal: Option<ConformalFacts>,
    /// Score above the threshold.
    pub flagged: bool,
    /// Number of queries that were scored against.
    pub m: u32,
    /// floor((s_max + s_mean) / 2).
    pub s_comb: i64,
    /// Largest dot product with the history.
    pub s_max: i64,
    /// floor of the mean dot product.
    pub s_mean: i64,
    /// Which of the three is tested.
    pub statistic: String,
    /// How the result counts.
    pub status: MemsadStatus,
    /// Threshold; null when uncalibrated.
    pub threshold: Option<i64>,
    /// Present in the hardened form.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub window: Option<WindowFacts>,
}

/// How the screen stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScreenStatus {
    /// Its verdict counts.
    Enforced,
    /// Its verdict is recorded only.
    Shadow,
    /// Its floors decide alone: there are too few trusted writes to rank against.
    Uncalibrated,
}

/// How unusual the characters of a text are among trusted texts of like length. Reported; nothing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CharacterFacts {
    /// Cross-entropy of its trigrams under those of trusted texts, thousandths of a bit a character.
    pub cost: u32,
    /// Characters of its normal form.
    pub length: u32,
    /// Trusted texts of like length, and this one.
    pub of: u32,
    /// Those that cost at least as much, this one included.
    pub rank: u32,
}

/// What the screen found. Scores in millionths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScreenFacts {
    /// Near duplicates of the source under the same key.
    pub b: u32,
    /// Largest number of new word trigrams shared with an earlier write of the source, discounted by alike keys.
    pub c: u64,
    /// Whether C counts: the writer's form of record is known.
    pub c_counts: bool,
    /// `scope@version` of the calibration; null when none applies.
    pub calibration: Option<String>,
    /// Its characters; absent without a calibration that has them. Decisions of earlier programs have no such field,
    /// and their hashes hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub characters: Option<CharacterFacts>,
    /// Classes of wording.
    pub classes: Vec<String>,
    /// Drift between key and value.
    pub d: u64,
    /// Floors that were reached: `payload`, `campaign`, `near_duplicate`, `drift`.
    pub floors: Vec<String>,
    /// `text`, `question` or `instruction`.
    pub form: String,
    /// Invisible characters that neither script nor emoji needs.
    pub hidden: u32,
    /// Stray characters.
    pub j: u32,
    /// Version of the lexicon.
    pub lexicon: String,
    /// Rows of the rank, this write included; null where it wasn't ranked.
    pub of: Option<u32>,
    /// Payload.
    pub p: u64,
    /// Rows at least as unusual, this write included: p-value = rank / of.
    pub rank: Option<u32>,
    /// Present where this write fills a block of the boundary's writes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub share: Option<ShareFacts>,
    /// How the verdict counts.
    pub status: ScreenStatus,
    /// Calls and environment names that are new in the boundary.
    pub unseen_calls: u32,
    /// Mails, hosts and accounts that are new in the boundary.
    pub unseen_sinks: u32,
    /// What the screen alone would say.
    pub verdict: Verdict,
}

/// Screened writes, and those of them that reach a floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Writes that reach a floor.
    pub hits: u32,
    /// Writes.
    pub n: u32,
}

/// How the share of writes that reach a floor stands, once a block of writes is full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShareFacts {
    /// The alarm that stands behind this block: `up` or `down`; null where there is none.
    pub alarm: Option<String>,
    /// What the block is compared with; null where it becomes that itself.
    pub base: Option<Tally>,
    /// The block that this write fills.
    pub block: Tally,
    /// Where `base` comes from: `scope@version` of the calibration in force, or `stream`, the first full block.
    pub of: String,
    /// Whether this block raised a finding.
    pub raised: bool,
}

/// Which allowed write is taken back, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RetractionFacts {
    /// `flag`: recorded; `tombstone`: removed from `committed-memory` too.
    pub action: String,
    /// Id of the decision that allowed it.
    pub decision: String,
    /// The write.
    pub input: InputRef,
}

/// What the policy said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PolicyFacts {
    /// Rule that decided; null when none matched.
    pub rule: Option<String>,
    /// Rules in shadow mode that would have held or shortened it.
    pub shadow: Vec<String>,
}

/// Who and where from, as derived and not as claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SourceFacts {
    /// Why the origin is believed: `topic` or `none`.
    pub basis: String,
    /// Effective origin.
    pub origin: String,
    /// Claimed principal.
    pub principal: Option<String>,
    /// Session.
    pub session_id: Option<String>,
    /// Label of the write, 0 to 3: what its origin is worth, at most the least label of the records in
    /// `derived_from`. Absent in decisions of earlier programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust: Option<u8>,
}

/// Coordinates of the input.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InputRef {
    /// Offset.
    pub offset: i64,
    /// Partition.
    pub partition: i32,
    /// Topic.
    pub topic: String,
}

/// Versions that were in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Versions {
    /// Opaque keyed hash of the rest of the configuration.
    pub config_set: String,
    /// Encoder identity.
    pub encoder: String,
    /// SHA-256 of the policy, hex, first 16 digits.
    pub policy: String,
    /// Program version.
    pub program: String,
    /// SHA-256 of the topology, hex, first 16 digits.
    pub topology: String,
}

/// What an operator's reset moved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResetFacts {
    /// Next offset of each input of the unit before the reset; `input_vector` has those after it.
    pub before: BTreeMap<String, i64>,
    /// Next offset of each output of the unit: what stands below was made before the reset.
    pub outputs: BTreeMap<String, i64>,
}

/// The canonical body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionBody {
    /// Present on activations.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub activation: Option<Activation>,
    /// Which fact of its input this is about, from 1 on; absent where the input is one fact.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub child: Option<u32>,
    /// Facts about the content; null for deletes and dead letters.
    pub content: Option<ContentFacts>,
    /// Error code of a dead letter.
    pub error: Option<String>,
    /// When the memory ends, RFC 3339.
    pub expires_at: Option<String>,
    /// On an input that isn't one fact: how many it holds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub facts: Option<u32>,
    /// `truncated`, `uncalibrated`, `embedding_ignored`, `fallback_*`, ...
    pub flags: Vec<String>,
    /// UUIDv5.
    pub id: String,
    /// The input; null on activations.
    pub input: Option<InputRef>,
    /// Next offset of each input of the unit, this one included.
    pub input_vector: BTreeMap<String, i64>,
    /// What this record is.
    pub kind: DecisionKind,
    /// MEMSAD; null where nothing was scored.
    pub memsad: Option<MemsadFacts>,
    /// Operation.
    pub op: Option<String>,
    /// Policy; null where it wasn't reached.
    pub policy: Option<PolicyFacts>,
    /// Codes of every rule or filter that held the write, policy first.
    pub reasons: Vec<String>,
    /// Record id.
    pub record_id: Option<String>,
    /// Present on resets.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reset: Option<ResetFacts>,
    /// Present on retractions.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retraction: Option<RetractionFacts>,
    /// The screen; absent where nothing was screened.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub screen: Option<ScreenFacts>,
    /// Source.
    pub source: Option<SourceFacts>,
    /// Store.
    pub store: Option<String>,
    /// Tenant.
    pub tenant: Option<String>,
    /// Record time of the input, RFC 3339.
    pub time: String,
    /// Verdict; null on activations.
    pub verdict: Option<Verdict>,
    /// Versions.
    pub versions: Arc<Versions>,
}

/// The chain fields: `entry_hash = SHA-256(prev_hash bytes || canonical body)`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChainLink {
    /// Hex.
    pub entry_hash: String,
    /// Hex; 64 zeros for the first.
    pub prev_hash: String,
    /// From 0, per partition.
    pub seq: u64,
}

/// A record of `decisions`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "decision")]
pub struct Decision {
    /// Canonical body.
    pub body: DecisionBody,
    /// Chain.
    pub chain: ChainLink,
}

/// Canonical bytes of a body.
///
/// # Panics
/// Never: the body holds no map with non-string keys and no failing serialiser.
#[must_use]
pub fn canonical(body: &DecisionBody) -> Vec<u8> {
    serde_json::to_vec(body).unwrap_or_default()
}

impl ChainLink {
    /// The link after `prev` (its hash) for `body` bytes, and its hash.
    #[must_use]
    pub fn next(seq: u64, prev: &[u8; 32], body: &[u8]) -> (Self, [u8; 32]) {
        let mut hasher = Sha256::new();
        hasher.update(prev);
        hasher.update(body);
        let hash: [u8; 32] = hasher.finalize().into();
        (Self { seq, prev_hash: hex::encode(prev), entry_hash: hex::encode(hash) }, hash)
    }
}
