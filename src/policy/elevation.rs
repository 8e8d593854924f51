//! The two ways around a low label, each for one thing only: independent domains for one claim, a fresh approval for
//! one action. Neither changes a label (`defenses.md` 2.1, 2.3).

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::label::TOOL;

/// Least number of independent domains.
pub const DOMAINS: u32 = 2;

/// One record that says the same as a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Support<'a> {
    /// The record.
    pub record: &'a str,
    /// Its authenticated principal's organisation; `None` when nobody is authenticated.
    pub domain: Option<&'a str>,
    /// Its label.
    pub trust: u8,
}

/// Domains of the trusted, authenticated supports: the number that counts, whatever the number of records.
#[must_use]
pub fn independent(supports: &[Support<'_>]) -> u32 {
    let trusted = supports.iter().filter(|s| s.trust >= TOOL);
    let domains: BTreeSet<&str> = trusted.filter_map(|s| s.domain).collect();
    u32::try_from(domains.len()).unwrap_or(u32::MAX)
}

/// SHA-256 of a tool and its canonical arguments, in full.
#[must_use]
pub fn action(tool: &str, arguments: &[u8]) -> [u8; 32] {
    let length = u64::try_from(tool.len()).unwrap_or(u64::MAX);
    let hash = Sha256::new().chain_update(length.to_be_bytes()).chain_update(tool).chain_update(arguments);
    hash.finalize().into()
}

/// Approvals of users, each for one action of one session, used up by it. Not `Clone`: a copy would be a second use.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Approvals(BTreeSet<(String, [u8; 32])>);

impl Approvals {
    /// A user approved an action.
    pub fn grant(&mut self, session: &str, action: [u8; 32]) {
        self.0.insert((session.to_owned(), action));
    }

    /// Uses the approval of an action up; `false` when there is none.
    pub fn take(&mut self, session: &str, action: &[u8; 32]) -> bool {
        self.0.remove(&(session.to_owned(), *action))
    }
}

/// Whether an action may follow from records with these labels. An action that no record caused is not this rule's.
#[must_use]
pub fn may_act(trusts: &[u8], approvals: &mut Approvals, session: &str, action: &[u8; 32]) -> bool {
    trusts.iter().all(|t| *t >= TOOL) || approvals.take(session, action)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn support<'a>(record: &'a str, domain: &'a str, trust: u8) -> Support<'a> {
        Support { record, domain: Some(domain), trust }
    }

    /// Published mistake 1: distinct records of one domain counted as independent.
    #[test]
    fn domains_count_and_records_do_not() {
        let same = ["a", "b", "c"].map(|r| support(r, "acme.example", 3));
        assert_eq!(independent(&same), 1);
        let two = [support("a", "acme.example", 3), support("b", "globex.example", 2)];
        assert_eq!(independent(&two), DOMAINS);
        assert_eq!(independent(&[two[0], support("b", "globex.example", 1)]), 1, "an untrusted support is none");
        assert_eq!(independent(&[two[0], Support { domain: None, ..two[1] }]), 1, "nobody is authenticated");
    }

    /// Published mistake 2: the action was not compared, the approval not used up, the record raised for good.
    #[test]
    fn an_approval_is_for_one_action_once() {
        let (pay, send) = (action("pay", b"{\"to\":\"a\"}"), action("send", b"{\"to\":\"a\"}"));
        let labels = [0, 3];
        let mut approvals = Approvals::default();
        approvals.grant("s-1", pay);
        assert!(!may_act(&labels, &mut approvals, "s-1", &send), "another action");
        assert!(may_act(&labels, &mut approvals, "s-1", &pay));
        assert!(!may_act(&labels, &mut approvals, "s-1", &pay), "used up");
        assert_eq!(labels, [0, 3], "the label is what it was");
        assert_ne!(action("pay", b"x"), action("payx", b""), "tool and arguments are kept apart");
    }

    /// Published mistake 3: the session of an approval was never compared.
    #[test]
    fn an_approval_is_of_its_session() {
        let pay = action("pay", b"{}");
        let mut approvals = Approvals::default();
        approvals.grant("s-1", pay);
        assert!(!may_act(&[0], &mut approvals, "s-2", &pay));
        assert!(may_act(&[0], &mut approvals, "s-1", &pay), "and is still there for its own");
    }

    /// Published mistake 5: digests cut to 16 hex digits.
    #[test]
    fn digests_are_compared_in_full() {
        let pay = action("pay", b"{}");
        let mut close = pay;
        close[31] ^= 1;
        let mut approvals = Approvals::default();
        approvals.grant("s-1", close);
        assert!(!may_act(&[0], &mut approvals, "s-1", &pay));
        let secret = crate::config::Secret::new(&[7; 32]).unwrap();
        assert_eq!(secret.hmac("acme/support", b"text").len(), 64, "content in decisions");
    }

    #[test]
    fn trusted_records_act_without_an_approval() {
        let pay = action("pay", b"{}");
        let mut approvals = Approvals::default();
        assert!(may_act(&[2, 3], &mut approvals, "s", &pay) && may_act(&[], &mut approvals, "s", &pay));
        assert!(!may_act(&[1], &mut approvals, "s", &pay));
    }
}
