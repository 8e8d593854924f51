//! What the members of an application agree on: topology, policy, secret, formats of the state. It stands in the
//! compacted meta topic; a member that differs does not join, and a change is made in steps that work.

use std::time::Duration;

use serde::Serialize;

use crate::error::{Action, Code, Error, Result};
use crate::schema::{Agreement, ApplicationMeta, MemberMeta, Meta, ReadFormats, StateFormats};
use crate::sink::{CommitError, Output, Publication, TransactionalProducer, Transactions, publish};
use crate::source::{Client, FRAMING, Spans, each_pair};
use crate::state;
use crate::topology::{Change, Effect, META_ID, Role, Topology, changes};

/// The broker aborts an abandoned change after this; the next one aborts it at once.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Changes that others may make while this one is made.
const TRIES: usize = 10;

/// A member as it is: what it runs with, and what it reads.
#[derive(Debug, Clone)]
pub struct Own {
    /// Instance id.
    pub instance: String,
    /// What it runs with.
    pub agreement: Agreement,
    /// Formats that its program reads.
    pub reads: ReadFormats,
    /// Version of its program.
    pub program: String,
}

/// What stands in the meta topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recorded {
    /// Of the application; `None` before its first start.
    pub application: Option<ApplicationMeta>,
    /// What each instance started with last.
    pub members: Vec<MemberMeta>,
}

impl Own {
    fn member(&self) -> MemberMeta {
        MemberMeta {
            instance: self.instance.clone(),
            fingerprint: self.agreement.fingerprint.clone(),
            policy: self.agreement.policy.clone(),
            key_id: self.agreement.key_id.clone(),
            reads: self.reads,
            program: self.program.clone(),
        }
    }

    fn first(&self) -> ApplicationMeta {
        let format = StateFormats { min: self.reads.min, write: self.reads.min };
        let (agreement, program) = (self.agreement.clone(), self.program.clone());
        ApplicationMeta { revision: 1, agreement, next: None, format, program }
    }
}

/// Every difference of two agreements, the gravest first.
#[must_use]
pub fn differences(old: &Agreement, new: &Agreement) -> Vec<Change> {
    let of = |a: &Agreement| {
        let more = [("policy", &a.policy), ("secret", &a.key_id)];
        a.settings.clone().into_iter().chain(more.map(|(k, v)| (k.to_owned(), v.clone()))).collect()
    };
    changes(&of(old), &of(new))
}

fn listed(changes: &[Change]) -> String {
    changes.iter().map(|c| format!("\n  {c}")).collect()
}

/// Whether a member may join; the format that it writes. Pure.
///
/// # Errors
/// `member_differs`, `topology_incompatible`, `format_unsupported`.
pub fn admit(recorded: &ApplicationMeta, own: &Own) -> Result<StateFormats> {
    state::check_formats(own.reads, recorded.format)?;
    let differs = differences(&recorded.agreement, &own.agreement);
    if differs.is_empty() || recorded.next.as_ref().is_some_and(|n| differences(n, &own.agreement).is_empty()) {
        return Ok(recorded.format);
    }
    let what = format!("this member ({}) is not as the others; in force -> here:{}", own.instance, listed(&differs));
    Err(Error::new(refusal(&differs), what))
}

fn refusal(differs: &[Change]) -> Code {
    if differs.iter().any(|c| c.effect >= Effect::Reset) { Code::TopologyIncompatible } else { Code::MemberDiffers }
}

/// Admits the new agreement beside the one in force, or puts it in force where no member runs. Pure; `None` where
/// nothing is to be changed.
///
/// # Errors
/// `topology_incompatible`, `group_active`, `upgrade_unfinished` while another change is made, `format_unsupported`.
pub fn begin(recorded: &ApplicationMeta, own: &Own, members: &[String]) -> Result<Option<ApplicationMeta>> {
    state::check_formats(own.reads, recorded.format)?;
    if let Some(next) = &recorded.next {
        let differs = differences(next, &own.agreement);
        if differs.is_empty() {
            return Ok(None);
        }
        let what = format!("another change is being made; it -> here:{}", listed(&differs));
        return Err(Error::new(Code::UpgradeUnfinished, what));
    }
    let differs = differences(&recorded.agreement, &own.agreement);
    let Some(effect) = differs.iter().map(|c| c.effect).max() else { return Ok(None) };
    let mut changed = recorded.clone();
    changed.revision += 1;
    changed.program.clone_from(&own.program);
    match effect {
        Effect::Free | Effect::Rolling => changed.next = Some(own.agreement.clone()),
        Effect::Together if members.is_empty() => changed.agreement = own.agreement.clone(),
        Effect::Together => {
            let what = format!("members run ({}), and all must stop for:{}", members.join(", "), listed(&differs));
            return Err(Error::new(Code::GroupActive, what));
        }
        Effect::Reset | Effect::Refused => {
            return Err(Error::new(Code::TopologyIncompatible, format!("not without a reset:{}", listed(&differs))));
        }
    }
    Ok(Some(changed))
}

/// Makes this agreement the only one, and this program's newest format the written one. Pure; `None` where that
/// is so.
///
/// # Errors
/// `member_differs` when this is not what was begun, `upgrade_unfinished` while a live member is of the old kind.
pub fn finalize(recorded: &ApplicationMeta, own: &Own, live: &[Live]) -> Result<Option<ApplicationMeta>> {
    state::check_formats(own.reads, recorded.format)?;
    let wanted = recorded.next.as_ref().unwrap_or(&recorded.agreement);
    let differs = differences(wanted, &own.agreement);
    if !differs.is_empty() {
        return Err(Error::new(
            Code::MemberDiffers,
            format!("this is not what was begun; that -> here:{}", listed(&differs)),
        ));
    }
    let old: Vec<String> = live.iter().filter_map(|l| behind(l, own)).collect();
    if !old.is_empty() {
        return Err(Error::new(Code::UpgradeUnfinished, format!("members are not there yet: {}", old.join("; "))));
    }
    let format = StateFormats { min: recorded.format.min, write: own.reads.max };
    if recorded.next.is_none() && format == recorded.format {
        return Ok(None);
    }
    let (agreement, program) = (wanted.clone(), own.program.clone());
    Ok(Some(ApplicationMeta { revision: recorded.revision + 1, agreement, next: None, format, program }))
}

/// Takes an announced change back. Pure; `None` where there is none.
///
/// # Errors
/// `upgrade_unfinished` while a live member runs with it.
pub fn cancel(recorded: &ApplicationMeta, own: &Own, live: &[Live]) -> Result<Option<ApplicationMeta>> {
    if recorded.next.is_none() {
        return Ok(None);
    }
    let before = Own { agreement: recorded.agreement.clone(), reads: ReadFormats { min: 0, max: 0 }, ..own.clone() };
    let new: Vec<String> = live.iter().filter_map(|l| behind(l, &before)).collect();
    if !new.is_empty() {
        return Err(Error::new(Code::UpgradeUnfinished, format!("members run with the change: {}", new.join("; "))));
    }
    let mut changed = recorded.clone();
    (changed.next, changed.revision) = (None, recorded.revision + 1);
    Ok(Some(changed))
}

/// A member of the group, by its client, with what its instance started with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Live {
    /// As the broker shows it.
    pub client: String,
    /// `None` when the instance wrote nothing.
    pub member: Option<MemberMeta>,
}

/// Joins the group's members, `memsluice-<instance> (<host>)`, with their records.
#[must_use]
pub fn live(clients: &[String], members: &[MemberMeta]) -> Vec<Live> {
    let record = |client: &str| {
        let id = client.split(' ').next()?.strip_prefix("memsluice-")?;
        members.iter().find(|m| m.instance == id).cloned()
    };
    clients.iter().map(|c| Live { client: c.clone(), member: record(c) }).collect()
}

/// How a member differs from the wanted one, in words.
fn behind(live: &Live, own: &Own) -> Option<String> {
    let Some(m) = &live.member else { return Some(format!("{} left no record", live.client)) };
    let wanted = own.member();
    let pairs = [
        ("topology", &m.fingerprint, &wanted.fingerprint),
        ("policy", &m.policy, &wanted.policy),
        ("secret", &m.key_id, &wanted.key_id),
    ];
    let mut what: Vec<String> = pairs
        .iter()
        .filter(|(_, has, wants)| has != wants)
        .map(|(n, has, wants)| format!("{n} {has} not {wants}"))
        .collect();
    if m.reads.max < own.reads.max {
        what.push(format!("program {} reads formats to {} not {}", m.program, m.reads.max, own.reads.max));
    }
    (!what.is_empty()).then(|| format!("{} has {}", live.client, what.join(", ")))
}

/// The meta topic of an application.
#[derive(Debug)]
pub struct MetaTopic<'a> {
    client: &'a Client,
    topic: String,
    id: String,
    largest: usize,
}

impl<'a> MetaTopic<'a> {
    /// Of a topology; `ids` is where the application's transactional ids start.
    #[must_use]
    pub fn new(client: &'a Client, topology: &Topology, ids: &str) -> Self {
        let largest = topology.main.limits.max_output_bytes + FRAMING;
        Self { client, topic: topology.name(Role::Meta).to_owned(), id: format!("{ids}{META_ID}"), largest }
    }

    /// What is committed in it.
    ///
    /// # Errors
    /// `broker_unreachable`, `restore_stalled`, `format_unsupported` for a record that this program can't read.
    pub fn read(&self) -> Result<Recorded> {
        let spans = Spans::new(self.client)?;
        let bounds = spans.bounds(&self.topic, 0)?;
        let mut latest = std::collections::BTreeMap::new();
        if bounds.high > bounds.low {
            each_pair(spans.committed(), &self.topic, bounds.low, |key, value| {
                latest.insert(String::from_utf8_lossy(key).into_owned(), value.map(<[u8]>::to_vec));
            })?;
        }
        let mut out = Recorded::default();
        for (key, value) in latest {
            let Some(value) = value else { continue };
            match serde_json::from_slice(&value) {
                Ok(Meta::Application(a)) if key == Meta::APPLICATION => out.application = Some(a),
                Ok(Meta::Member(m)) => out.members.push(m),
                _ if key == Meta::APPLICATION => {
                    let what = format!("the record '{key}' of {} can't be read: a newer program wrote it", self.topic);
                    return Err(Error::new(Code::FormatUnsupported, what));
                }
                _ => tracing::warn!(key, "a record of the meta topic is ignored"),
            }
        }
        Ok(out)
    }

    /// Changes the application's record if nobody else does: all changes go through one transactional id, and who
    /// takes it fences whoever had it, so that what is read after that is the last change.
    ///
    /// # Errors
    /// What `change` returns, `broker_refused`, `broker_unreachable`, `access_denied`.
    pub fn change(
        &self,
        mut change: impl FnMut(&Recorded) -> Result<Option<ApplicationMeta>>,
    ) -> Result<Option<ApplicationMeta>> {
        for _ in 0..TRIES {
            let mut producer = TransactionalProducer::start(self.client, Some(&self.id), TIMEOUT, self.largest)?;
            let Some(application) = change(&self.read()?)? else { return Ok(None) };
            match self.write(&mut producer, &application) {
                Ok(()) => return Ok(Some(application)),
                Err(e) => {
                    if let Err(abort) = producer.abort() {
                        tracing::debug!(error = %abort.error, "the next change ends the transaction");
                    }
                    if e.action == Action::Stop {
                        return Err(e.error);
                    }
                    // Fenced, or of unknown outcome: what is read next says which.
                    tracing::info!(error = %e.error, "the meta record is changed once more");
                }
            }
        }
        Err(Error::new(Code::BrokerRefused, format!("others changed the record in {} each time", self.topic)))
    }

    fn write(&self, producer: &mut TransactionalProducer, a: &ApplicationMeta) -> std::result::Result<(), CommitError> {
        let meta = Meta::Application(a.clone());
        let value = serde_json::to_vec(&meta).unwrap_or_default();
        let output = Output {
            role: Role::Meta,
            partition: 0,
            key: meta.key().into_bytes(),
            value: Some(value),
            headers: Vec::new(),
        };
        producer.begin()?;
        producer.send(&self.topic, &output)?;
        producer.drain()?;
        producer.commit()
    }

    /// Before a member joins the group: agrees or refuses, and leaves what it runs with.
    ///
    /// # Errors
    /// Those of [`admit`] and of the broker.
    pub fn join(&self, own: &Own) -> Result<StateFormats> {
        let mut recorded = self.read()?;
        if recorded.application.is_none() {
            self.change(|r| Ok(r.application.is_none().then(|| own.first())))?;
            recorded = self.read()?;
        }
        let unread = || Error::new(Code::RestoreStalled, format!("{} does not hold what was written", self.topic));
        let format = admit(recorded.application.as_ref().ok_or_else(unread)?, own)?;
        let member = own.member();
        if !recorded.members.contains(&member) {
            let meta = Meta::Member(member);
            let value = serde_json::to_vec(&meta)
                .map_err(|e| Error::with(Code::Internal, "a member's record can't be written", e))?;
            let key = meta.key().into_bytes();
            publish(
                self.client,
                &[Publication { topic: self.topic.clone(), partition: Some(0), key, value, timestamp: None }],
            )?;
            // A change that was made since would not have seen it.
            let now = self.read()?.application;
            admit(now.as_ref().ok_or_else(unread)?, own)?;
        }
        Ok(format)
    }

    /// After a reset the settings of who reset it are in force: no state is older. The secret stays.
    ///
    /// # Errors
    /// Those of the broker.
    pub fn adopt(&self, new: &Agreement) -> Result<()> {
        let changed = |r: &Recorded| {
            let before = r.application.as_ref()?;
            let agreement = Agreement { key_id: before.agreement.key_id.clone(), ..new.clone() };
            let (revision, same) = (before.revision + 1, before.agreement == agreement && before.next.is_none());
            (!same).then(|| ApplicationMeta { revision, agreement, next: None, ..before.clone() })
        };
        self.change(|r| Ok(changed(r))).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{agreed, fingerprint};

    fn agreement(edit: (&str, &str)) -> Agreement {
        let main = include_str!("../topology/memsluice.yaml").replace(edit.0, edit.1);
        let topology = Topology::parse(&main, include_str!("../topology/topics.yaml")).unwrap();
        let settings = agreed(&topology.settings());
        Agreement { fingerprint: fingerprint(&settings), policy: "p1".into(), key_id: "k1".into(), settings }
    }

    fn own(instance: &str, agreement: Agreement, max: u8) -> Own {
        let reads = ReadFormats { min: 1, max };
        Own { instance: instance.to_owned(), agreement, reads, program: format!("0.{max}.0") }
    }

    const SAME: (&str, &str) = ("", "");
    const ROLLING: (&str, &str) = ("kappa: 2.0", "kappa: 2.5");
    const TOGETHER: (&str, &str) = ("history: 100 ", "history: 50 ");
    const RESET: (&str, &str) = ("history: 100 ", "history: 30 ");

    fn code<T>(r: Result<T>) -> Option<Code> {
        r.err().map(|e| e.code())
    }

    fn alive(owns: &[&Own]) -> Vec<Live> {
        let members: Vec<MemberMeta> = owns.iter().map(|o| o.member()).collect();
        let clients: Vec<String> = owns.iter().map(|o| format!("memsluice-{} (/h)", o.instance)).collect();
        live(&clients, &members)
    }

    #[test]
    fn a_member_that_differs_is_refused_with_what_differs() {
        let first = own("a", agreement(SAME), 1).first();
        assert!(admit(&first, &own("b", agreement(SAME), 1)).is_ok());
        assert!(admit(&first, &own("b", agreement(("interval: 100ms", "interval: 50ms")), 1)).is_ok());
        let error = admit(&first, &own("b", agreement(ROLLING), 1)).unwrap_err();
        assert_eq!(error.code(), Code::MemberDiffers);
        assert!(error.message().contains("memsad.kappa '2.0' -> '2.5'"), "{error}");
        assert_eq!(code(admit(&first, &own("b", agreement(RESET), 1))), Some(Code::TopologyIncompatible));
        for edit in [|a: &mut Agreement| a.policy = "p2".into(), |a: &mut Agreement| a.key_id = "k2".into()] {
            let mut other = agreement(SAME);
            edit(&mut other);
            assert_eq!(code(admit(&first, &own("b", other, 1))), Some(Code::MemberDiffers));
        }
    }

    /// The whole way of a rolling change of topology and program, with both kinds of members.
    #[test]
    fn a_rolling_change_admits_both_then_only_the_new_one() {
        let (old, new) = (own("a", agreement(SAME), 1), own("b", agreement(ROLLING), 2));
        let first = old.first();
        assert_eq!(first.format.write, 1);
        let both = begin(&first, &new, &["memsluice-a (/h)".into()]).unwrap().unwrap();
        assert!(admit(&both, &old).is_ok());
        assert_eq!(admit(&both, &new).unwrap().write, 1, "the old format is written while old members run");
        assert_eq!(begin(&both, &new, &[]).unwrap(), None);
        assert_eq!(code(begin(&both, &own("c", agreement(TOGETHER), 2), &[])), Some(Code::UpgradeUnfinished));
        let error = finalize(&both, &new, &alive(&[&old, &new])).unwrap_err();
        assert_eq!(error.code(), Code::UpgradeUnfinished);
        assert!(
            error.message().contains("memsluice-a (/h) has topology") && error.message().contains("reads formats to 1"),
            "{error}"
        );
        let unknown = Live { client: "other (/h)".into(), member: None };
        assert_eq!(code(finalize(&both, &new, &[unknown])), Some(Code::UpgradeUnfinished));
        assert_eq!(code(finalize(&both, &old, &[])), Some(Code::MemberDiffers));
        let done = finalize(&both, &new, &alive(&[&new])).unwrap().unwrap();
        assert_eq!((done.format, done.next.is_none()), (StateFormats { min: 1, write: 2 }, true));
        assert_eq!(code(admit(&done, &old)), Some(Code::FormatUnsupported));
        assert_eq!(code(admit(&done, &own("a", agreement(SAME), 2))), Some(Code::MemberDiffers));
        assert_eq!(finalize(&done, &new, &[]).unwrap(), None);
    }

    #[test]
    fn a_change_is_taken_back_while_nobody_runs_with_it() {
        let (old, new) = (own("a", agreement(SAME), 1), own("b", agreement(ROLLING), 1));
        let both = begin(&old.first(), &new, &[]).unwrap().unwrap();
        assert_eq!(code(cancel(&both, &old, &alive(&[&new]))), Some(Code::UpgradeUnfinished));
        let back = cancel(&both, &old, &alive(&[&old])).unwrap().unwrap();
        assert_eq!(code(admit(&back, &new)), Some(Code::MemberDiffers));
        assert_eq!(cancel(&back, &old, &[]).unwrap(), None);
    }

    #[test]
    fn what_no_two_members_may_differ_in_changes_while_none_runs() {
        let (first, new) = (own("a", agreement(SAME), 1).first(), own("a", agreement(TOGETHER), 1));
        assert_eq!(code(begin(&first, &new, &["memsluice-a (/h)".into()])), Some(Code::GroupActive));
        let changed = begin(&first, &new, &[]).unwrap().unwrap();
        assert!(changed.next.is_none() && admit(&changed, &new).is_ok());
        let refused = begin(&first, &own("a", agreement(RESET), 1), &[]);
        assert_eq!(code(refused), Some(Code::TopologyIncompatible));
    }
}
