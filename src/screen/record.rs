//! A calibration of the screen, ready to use.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::characters::Characters;
use super::conformal::{Conformal, LEAST, MOST, Rank, Row};
use super::normal::{Form, Hashes};
use super::{Fitted, LEXICON};
use crate::error::{Code, Error, Result};
use crate::schema::{ScreenCalibration, Tally};

/// Accepted writes from which a form of record is known, and C counts for it.
const KNOWN: u32 = 100;

/// Trusted writes of one writer in one form.
#[derive(Debug, Clone, Default)]
pub struct Group {
    /// Accepted writes of both halves.
    pub accepted: u32,
    /// Rows to rank against.
    pub rows: Conformal,
}

/// A calibration with its sets and ranks built.
#[derive(Debug, Clone, Default)]
pub struct Screening {
    /// `scope@version`.
    pub name: String,
    /// Encoder identity.
    pub encoder: String,
    /// Version of the lexicon.
    pub lexicon: String,
    /// What trusted writes contain.
    pub fitted: Fitted,
    /// Newer trusted writes, and those that reach a floor.
    pub share: Tally,
    /// What their characters are like.
    pub characters: Characters,
    groups: BTreeMap<(Option<String>, Form), Group>,
}

impl Screening {
    /// Builds it from its record.
    ///
    /// # Errors
    /// `calibration_invalid`.
    pub fn of(record: &ScreenCalibration) -> Result<Self> {
        let invalid = |what: &str| Error::new(Code::CalibrationInvalid, format!("a screen calibration has {what}"));
        let hashes = |text: &str| {
            let bytes = STANDARD.decode(text).ok()?;
            Hashes::from_bytes(&bytes).filter(|h| h.to_bytes() == bytes)
        };
        let fitted = Fitted {
            shingles: hashes(&record.shingles).ok_or_else(|| invalid("shingles that are no sorted hashes"))?,
            entities: hashes(&record.entities).ok_or_else(|| invalid("entities that are no sorted hashes"))?,
        };
        let characters = match &record.characters {
            Some(c) => Characters::from_record(c).ok_or_else(|| invalid("characters that can't be"))?,
            None => Characters::default(),
        };
        let mut groups = BTreeMap::new();
        let mut rows = 0;
        for g in &record.groups {
            let form = g.form.parse().map_err(|()| invalid("a form that isn't known"))?;
            rows += g.rows.len();
            let accepted = g.fitted.saturating_add(u32::try_from(g.rows.len()).unwrap_or(u32::MAX));
            let group = Group { accepted, rows: Conformal::new(g.rows.clone()) };
            if groups.insert((g.writer.clone(), form), group).is_some() {
                return Err(invalid("a group twice"));
            }
        }
        if rows != record.n as usize || rows > MOST {
            return Err(invalid("a number of rows that can't be"));
        }
        let share = Tally { hits: record.held.flagged, n: record.held.n };
        if share.hits > share.n {
            return Err(invalid("a share above one"));
        }
        let name = format!("{}@{}", record.scope, record.version);
        Ok(Self {
            name,
            encoder: record.encoder.clone(),
            lexicon: record.lexicon.clone(),
            fitted,
            share,
            characters,
            groups,
        })
    }

    /// Whether it was made with this lexicon and encoder.
    #[must_use]
    pub fn fits(&self, encoder: &str) -> bool {
        self.lexicon == LEXICON && self.encoder == encoder
    }

    fn group(&self, writer: Option<&str>, form: Form) -> Option<&Group> {
        self.groups.get(&(writer.map(str::to_owned), form))
    }

    /// Whether the writer's form is known well enough for C to count.
    #[must_use]
    pub fn knows(&self, writer: Option<&str>, form: Form) -> bool {
        self.group(writer, form).is_some_and(|g| g.accepted >= KNOWN)
    }

    /// The rank among the trusted writes of the same writer and form, if there are enough.
    #[must_use]
    pub fn rank(&self, writer: Option<&str>, form: Form, row: &Row) -> Option<Rank> {
        self.group(writer, form).filter(|g| g.rows.len() >= LEAST).map(|g| g.rows.rank(row))
    }
}
