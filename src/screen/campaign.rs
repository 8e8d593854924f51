//! C and B: does one source repeat itself (`hardened.md` 6.4)? C finds one value under many keys, B many wordings
//! of one value under the same key.

use super::normal::{Hashes, Keyed, Probe, norm, shingles, token_set};
use crate::schema::{ONE, Vector, dot};

/// Shingles kept of a text; more are cut, the smallest stay.
const KEPT: usize = 1024;
/// A cosine from here is a near duplicate: .8.
const NEAR: i64 = ONE / 5 * 4;

/// The tokens of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyTokens {
    /// As they are.
    pub exact: Hashes,
    /// With digits folded.
    pub folded: Hashes,
}

/// What a source's ring keeps of a write: hashes alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// Shingles of the value.
    pub value: Hashes,
    /// Shingles of the text, where the value isn't all of it.
    pub text: Option<Hashes>,
    /// Key, if it had one.
    pub key: Option<KeyTokens>,
}

impl Trace {
    /// Of a record; `text` is its text in normal form.
    #[must_use]
    pub fn of(keyed: &Keyed<'_>, text: &str) -> Self {
        let key = keyed.key.map(norm);
        let mut all = shingles(text);
        all.cut(KEPT);
        let Some(key) = key else {
            return Self { value: all, text: None, key: None };
        };
        let mut value = shingles(&norm(keyed.value));
        value.cut(KEPT);
        let key = KeyTokens { exact: token_set(&key, false), folded: token_set(&key, true) };
        Self { value, text: Some(all), key: Some(key) }
    }

    /// Shingles of the text.
    #[must_use]
    pub fn text(&self) -> &Hashes {
        self.text.as_ref().unwrap_or(&self.value)
    }

    /// Whether both have the same key: Jaccard from .9, or no key on a side.
    fn same_key(&self, other: &Self) -> bool {
        let (Some(a), Some(b)) = (&self.key, &other.key) else { return true };
        let (shared, all) = a.exact.jaccard(&b.exact);
        10 * shared >= 9 * all
    }

    /// Shared new shingles, times 1 - Jaccard of the keys where both have one; millionths.
    fn shared_new(&self, shared: u32, earlier: &Self) -> u64 {
        let shared = u64::from(shared) * 1_000_000;
        let (Some(a), Some(b)) = (&self.key, &earlier.key) else { return shared };
        let (common, all) = a.folded.jaccard(&b.folded);
        shared * (all - common) / all
    }
}

/// An earlier write of the same source.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a> {
    /// Its trace.
    pub trace: &'a Trace,
    /// Its vector, if it has one.
    pub vector: Option<&'a Vector>,
}

/// How a write stands to the earlier ones of its source.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Campaign {
    /// New shingles of the value.
    pub new: u32,
    /// C, in millionths.
    pub c: u64,
    /// B.
    pub b: u32,
    /// B by wording alone.
    pub b_wording: u32,
    /// Indices of the earlier writes that share from `floor` new shingles.
    pub campaign: Vec<usize>,
    /// Indices of the near duplicates under the same key.
    pub duplicates: Vec<usize>,
}

/// Compares a write with the earlier ones, at most 50. `fitted` are the shingles of the boundary's trusted rows,
/// `floor` that of C in millionths.
#[must_use]
pub fn campaign<'a>(
    write: &Trace,
    vector: Option<&Vector>,
    fitted: &Hashes,
    floor: u64,
    earlier: impl IntoIterator<Item = Earlier<'a>>,
) -> Campaign {
    let new = write.value.minus(fitted);
    let probe = Probe::new(&new, write.text());
    let mut found = Campaign { new: u32::try_from(new.len()).unwrap_or(u32::MAX), ..Campaign::default() };
    for (i, e) in earlier.into_iter().enumerate() {
        let (new, value) = probe.shared(&e.trace.value);
        let c = write.shared_new(new, e.trace);
        found.c = found.c.max(c);
        if c >= floor {
            found.campaign.push(i);
        }
        if !write.same_key(e.trace) {
            continue;
        }
        let shared = e.trace.text.as_ref().map_or(value, |text| probe.shared(text).1);
        let wording = 2 * u64::from(shared) >= probe.all(e.trace.text(), shared);
        let meaning = vector.zip(e.vector).is_some_and(|(a, b)| same_dimension(a, b) && dot(a, b) >= NEAR);
        found.b_wording += u32::from(wording);
        if wording || meaning {
            found.b += 1;
            found.duplicates.push(i);
        }
    }
    found
}

fn same_dimension(a: &Vector, b: &Vector) -> bool {
    a.as_slice().len() == b.as_slice().len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Trace {
        Trace::of(&Keyed::of(text), &norm(text))
    }

    fn against(text: &str, earlier: &[&str], fitted: &Hashes) -> Campaign {
        let earlier: Vec<Trace> = earlier.iter().map(|t| trace(t)).collect();
        let views = earlier.iter().map(|trace| Earlier { trace, vector: None });
        campaign(&trace(text), None, fitted, 6_000_000, views)
    }

    const VALUE: &str = "the chart was merged and its rows are kept elsewhere now";

    #[test]
    fn one_value_under_other_keys_is_a_campaign() {
        let first = format!("Question: where is the chart of ward one?\n{VALUE}");
        let second = format!("Question: who signed the form yesterday?\n{VALUE}");
        let none = Hashes::default();
        let found = against(&second, &[&first], &none);
        assert_eq!((found.new, found.c >= 6_000_000, found.b, found.campaign.as_slice()), (9, true, 0, &[0][..]));
        // The same key: no discount is left, but a duplicate.
        let found = against(&first, &[&first, &first], &none);
        assert_eq!((found.c, found.b, found.duplicates.len()), (0, 2, 2));
        // Trusted wording is not new.
        let found = against(&second, &[&first], &trace(VALUE).value);
        assert_eq!((found.new, found.c), (0, 0));
    }

    #[test]
    fn without_a_key_duplicates_count_as_the_same_key() {
        let found = against(VALUE, &[VALUE, "something else was said here today", VALUE], &Hashes::default());
        assert_eq!((found.c, found.b, found.duplicates.as_slice()), (9_000_000, 2, &[0, 2][..]));
    }

    #[test]
    fn vectors_find_other_wordings() {
        let vector = |x: f64| Vector::from_f64(&[x, 1.0]).unwrap();
        let (a, b) = (trace("one wording of it"), trace("quite another sentence"));
        let near = |v: &Vector| {
            campaign(&a, Some(&vector(0.0)), &Hashes::default(), 6_000_000, [Earlier { trace: &b, vector: Some(v) }]).b
        };
        assert_eq!((near(&vector(0.7)), near(&vector(0.8))), (1, 0));
    }

    /// A long text keeps the same smallest shingles, wherever they stand.
    #[test]
    fn long_texts_are_cut_alike() {
        let words: Vec<String> =
            (0..3000).map(|i| format!("w{}", (b'a' + (i % 26) as u8) as char).repeat(1 + i / 26)).collect();
        let text = words.join(" ");
        let long = trace(&text);
        assert_eq!(long.value.len(), KEPT);
        let kept = trace(&format!("{text} {text}")).value;
        assert!(long.value.shared(&kept) >= KEPT - 2);
    }
}
