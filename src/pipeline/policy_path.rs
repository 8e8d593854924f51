//! The policy's last word on a write: what the scores found is known now.

use std::borrow::Cow;

use super::Engine;
use crate::decode::Write;
use crate::policy::{Facts, Ruling, Signals, memsad_p};
use crate::schema::{MemsadFacts, ScreenFacts};
use crate::source::At;
use crate::topology::Role;

impl Engine {
    /// The ruling of admission, or a new one where a rule asks for more than the record says. Labels of parents,
    /// growth and support are not known here: conditions on them count as for unknown ones.
    pub(super) fn ruled<'a>(
        &self,
        at: At,
        write: &Write,
        ruling: &'a Ruling,
        screen: Option<&ScreenFacts>,
        memsad: Option<&MemsadFacts>,
    ) -> Cow<'a, Ruling> {
        if !self.policy.is_late() {
            return Cow::Borrowed(ruling);
        }
        let facts = Facts { screen: screen.map(Signals::of), memsad_p: memsad.and_then(memsad_p), ..Facts::default() };
        Cow::Owned(self.policy.judge(Role::MemoryWrites.as_str(), write, at.timestamp, &facts))
    }
}
