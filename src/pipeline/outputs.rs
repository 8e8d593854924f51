//! Records of the outputs: forwarded bytes, decisions, activations, findings, dead letters.

use std::sync::Arc;

use super::engine::Taken;
use super::{Engine, Unit};
use crate::clock::rfc3339;
use crate::error::{Code, Error, Result};
use crate::schema::{
    Activation, Attack, Boundary, ChainLink, Coordinates, DeadLetterHeaders, DeadLetterStub, DecisionBody,
    DecisionKind, Headers, Verdict, Versions, canonical, header as h,
};
use crate::sink::{Output, size};
use crate::source::At;
use crate::topology::Role;

/// Largest key that a stub keeps, bytes.
const STUB_KEY: usize = 1024;

/// Makes the headers of a forwarded or held record.
pub(super) struct Forward<'a> {
    pub(super) body: &'a DecisionBody,
    pub(super) application: &'a str,
    pub(super) boundary: &'a Boundary,
}

impl Forward<'_> {
    /// The producer's headers but for names we own, then ours.
    pub(super) fn headers(&self, original: &Headers, allowed: bool) -> Headers {
        let ours = |n: &str| n.starts_with("ce_") || n.starts_with("memsluice-");
        let mut out: Headers = original.iter().filter(|(n, _)| !ours(n)).cloned().collect();
        if !original.iter().any(|(n, _)| n == h::CONTENT_TYPE) {
            add(&mut out, h::CONTENT_TYPE, "application/json");
        }
        let body = self.body;
        let kind = if allowed { "io.memsluice.memory.committed" } else { "io.memsluice.memory.quarantined" };
        cloud_event(&mut out, self.application, kind, &body.id, &body.time);
        add(&mut out, h::CE_SUBJECT, &format!("{}/{}", self.boundary, body.record_id.as_deref().unwrap_or_default()));
        if let Some(input) = &body.input {
            add(&mut out, h::CE_SEQUENCE, &format!("{}-{}-{}", input.topic, input.partition, input.offset));
        }
        if let Some(expires) = &body.expires_at {
            add(&mut out, h::CE_EXPIRYTIME, expires);
        }
        add(&mut out, h::DECISION, &body.id);
        add(&mut out, h::VERDICT, body.verdict.map_or("", Verdict::as_str));
        if !body.reasons.is_empty() {
            add(&mut out, h::REASONS, &body.reasons.join(","));
        }
        out
    }
}

fn add(headers: &mut Headers, name: &str, value: &str) {
    headers.push((name.to_owned(), Some(value.as_bytes().to_vec())));
}

fn cloud_event(headers: &mut Headers, application: &str, kind: &str, id: &str, time: &str) {
    add(headers, h::CE_SPECVERSION, "1.0");
    add(headers, h::CE_ID, id);
    add(headers, h::CE_SOURCE, &format!("/memsluice/{application}"));
    add(headers, h::CE_TYPE, kind);
    add(headers, h::CE_TIME, time);
}

/// A finding, keyed by its uid.
pub(super) fn finding(engine: &Engine, partition: i32, attack: &Attack) -> Result<Output> {
    let value = serde_json::to_vec(attack).map_err(|e| Error::with(Code::Internal, "a finding can't be written", e))?;
    let mut headers = Headers::new();
    add(&mut headers, h::CONTENT_TYPE, "application/json");
    let time = rfc3339(attack.time);
    cloud_event(&mut headers, &engine.topology.main.application, "io.memsluice.alert", &attack.metadata.uid, &time);
    add(&mut headers, h::CE_SUBJECT, &attack.unmapped.boundary);
    add(&mut headers, h::CE_SEVERITYNUMBER, &attack.severity_id.to_string());
    add(&mut headers, h::CE_DATASCHEMA, "urn:memsluice:attack:v1");
    let key = attack.finding_info.uid.clone().into_bytes();
    Ok(Output { role: Role::Attacks, partition, key, value: Some(value), headers })
}

impl Engine {
    /// The next record of the unit's decision chain.
    pub(super) fn decision(&self, unit: &mut Unit, key: Vec<u8>, body: &DecisionBody) -> Output {
        let bytes = canonical(body);
        let (link, head) = ChainLink::next(unit.meta.chain.next_seq, &unit.meta.chain.head, &bytes);
        unit.append_to_chain(head);
        let mut value = Vec::with_capacity(bytes.len() + 256);
        value.extend_from_slice(b"{\"body\":");
        value.extend_from_slice(&bytes);
        let chain = format!(
            ",\"chain\":{{\"entry_hash\":\"{}\",\"prev_hash\":\"{}\",\"seq\":{}}}}}",
            link.entry_hash, link.prev_hash, link.seq
        );
        value.extend_from_slice(chain.as_bytes());
        let mut headers = Headers::new();
        add(&mut headers, h::CONTENT_TYPE, "application/json");
        cloud_event(&mut headers, &self.topology.main.application, "io.memsluice.decision", &body.id, &body.time);
        if body.flags.iter().any(|f| f == "uncalibrated") {
            add(&mut headers, h::UNCALIBRATED, "true");
        }
        Output { role: Role::Decisions, partition: unit.partition, key, value: Some(value), headers }
    }

    /// Says that a version came into force.
    pub(super) fn activation(&self, unit: &mut Unit, what: &str, version: u64, at: At) -> Output {
        // The registry alone says which boundary has honeypots.
        let shown = match what.split_once('/') {
            Some(("honeypots", scope)) => {
                format!("registry/{}", &self.secret.hmac("deployment", scope.as_bytes())[..16])
            }
            _ => what.to_owned(),
        };
        let mut body = self.body(unit, at, None);
        body.id = self.ids.of_activation(
            unit.partition,
            &shown,
            version,
            i64::try_from(unit.meta.chain.next_seq).unwrap_or(i64::MAX),
        );
        body.kind = DecisionKind::Activation;
        let key = format!("activation/{shown}").into_bytes();
        body.activation = Some(Activation { rolling: None, version, what: shown });
        self.decision(unit, key, &body)
    }

    /// Versions in force for a boundary; `config_set` is an opaque keyed hash of the rest.
    pub(super) fn versions_of(&self, unit: &mut Unit, boundary: &Boundary) -> Arc<Versions> {
        if let Some(known) = unit.versions.get(boundary) {
            return known.clone();
        }
        let main = &self.topology.main;
        let set = unit.traps.get(boundary).map_or(0, |t| t.version);
        let text = format!("{:?}\n{:?}\n{:?}\n{:?}\n{set}", main.sprt, main.memsad, main.screen, main.posture);
        let config_set = self.secret.hmac(boundary.as_str(), text.as_bytes())[..16].to_owned();
        let versions = Arc::new(Versions { config_set, ..(*self.versions).clone() });
        unit.versions.insert(boundary.clone(), versions.clone());
        versions
    }

    /// Raw bytes with the record's headers under a prefix and KIP-1034 headers; a stub where they would not
    /// fit. An input of `memory-writes` also gets its decision.
    pub(super) fn dead_letter(&self, unit: &mut Unit, taken: Taken, error: &Error) -> Result<Vec<Output>> {
        let Taken { fetched, input, origin, isolation } = taken;
        let at = fetched.at;
        let topic = self.topology.name(at.role).to_owned();
        let mut letter = DeadLetterHeaders {
            input: Coordinates { topic: input.topic.clone(), partition: input.partition, offset: input.offset },
            timestamp: at.timestamp,
            code: error.code().name().to_owned(),
            message: error.message().to_owned(),
            stage: stage(error.code()).to_owned(),
            version: self.versions.program.clone(),
            origin: Coordinates { topic, partition: at.partition, offset: origin },
            null_key: fetched.key.is_none(),
            stub: false,
            isolation,
            original: fetched.headers,
        };
        let (key, value) = (fetched.key.unwrap_or_default(), fetched.value);
        let headers = letter.to_headers();
        // Ours are short, and the topics have room for them: what can't be forwarded keeps its bytes here.
        let own = size(key.len(), value.as_deref(), &headers[..letter.original.len()]);
        let output = if own <= self.topology.main.limits.max_output_bytes {
            Output { role: Role::DeadLetters, partition: unit.partition, key, value, headers }
        } else {
            letter.stub = true;
            letter.original.clear();
            self.stub(unit.partition, &letter, key, value.as_deref().unwrap_or_default())?
        };
        let mut outputs = vec![output];
        if at.role == Role::MemoryWrites {
            let mut body = self.body(unit, at, Some(&input));
            body.error = Some(error.code().name().to_owned());
            body.reasons = vec![format!("dead_letter:{}", error.code().name())];
            body.verdict = Some(Verdict::DeadLetter);
            let key = format!("dead-letter/{}/{}/{}", input.topic, input.partition, input.offset).into_bytes();
            outputs.push(self.decision(unit, key, &body));
        }
        Ok(outputs)
    }

    fn stub(&self, partition: i32, letter: &DeadLetterHeaders, mut key: Vec<u8>, value: &[u8]) -> Result<Output> {
        let stub = DeadLetterStub {
            code: letter.code.clone(),
            length: value.len() as u64,
            hmac: self.secret.hmac("deployment", value),
            key_id: self.secret.key_id().to_owned(),
            topic: letter.input.topic.clone(),
            partition: letter.input.partition,
            offset: letter.input.offset,
        };
        let value = serde_json::to_vec(&stub).map_err(|e| Error::with(Code::Internal, "a stub can't be written", e))?;
        if key.len() > STUB_KEY {
            key.clear();
        }
        Ok(Output { role: Role::DeadLetters, partition, key, value: Some(value), headers: letter.to_headers() })
    }
}

/// The stage that refused the record.
fn stage(code: Code) -> &'static str {
    match code {
        Code::SourceIsolated => "breaker",
        Code::KeyHeld => "hold",
        Code::OutputTooLarge => "decide",
        _ => "decode",
    }
}
