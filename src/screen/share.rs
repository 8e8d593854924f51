//! Drift of the share of writes that reach a floor (`hardened.md` 6.9): blocks of a fixed count are compared with what
//! the calibration saw. Pure; counts alone move it.

use serde::{Deserialize, Serialize};

use crate::schema::{ShareFacts, Tally};
use crate::score::clopper_pearson_at;

/// Screened writes of a block.
pub const BLOCK: u32 = 500;
/// A share that moves by this factor is looked at.
const FACTOR: u64 = 3;
/// What an interval may miss on each side: of 99 %.
const TAIL: f64 = 0.005;
/// Fewer writes in a calibration say nothing about a share: the stream's first block is taken.
const FEWEST: u32 = 100;
/// A larger sample counts as one of this size, so that a comparison takes no time.
const MOST: u32 = 1 << 16;
/// Name of the stream's own first block.
const STREAM: &str = "stream";

/// Where a share goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Moved {
    /// More writes reach a floor.
    Up,
    /// Fewer do.
    Down,
}

impl Moved {
    /// The wire word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Moved::Up => "up",
            Moved::Down => "down",
        }
    }
}

/// An alarm that stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Where the share went.
    pub to: Moved,
    /// The block that raised it.
    pub at: Tally,
}

/// Where a boundary stands, in the state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ShareMark {
    /// Calibration in force, `scope@version`; empty where none applies.
    pub calibration: String,
    /// The open block.
    pub open: Tally,
    /// The first full block under the calibration, where its record says too little.
    pub own: Option<Tally>,
    /// The alarm that stands.
    pub alarm: Option<Alarm>,
}

impl ShareMark {
    /// Whether the counts can be.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let sane = |t: &Tally| t.hits <= t.n && t.n <= MOST;
        sane(&self.open) && self.own.iter().chain(self.alarm.iter().map(|a| &a.at)).all(sane)
    }

    /// Begins anew where another calibration, or none, is in force.
    pub fn sync(&mut self, calibration: &str) {
        if self.calibration != calibration {
            *self = Self { calibration: calibration.to_owned(), ..Self::default() };
        }
    }

    /// Counts a screened write; facts once it fills a block. `known` is what the calibration saw.
    pub fn count(&mut self, hit: bool, known: Option<Tally>) -> Option<ShareFacts> {
        self.open.n += 1;
        self.open.hits += u32::from(hit);
        if self.open.n < BLOCK {
            return None;
        }
        let block = std::mem::take(&mut self.open);
        let known = known.and_then(sample);
        let of = if known.is_some() { self.calibration.clone() } else { STREAM.to_owned() };
        let Some(base) = known.or(self.own) else {
            self.own = Some(block);
            return Some(ShareFacts { alarm: None, base: None, block, of, raised: false });
        };
        let raised = self.judge(&base, &block);
        let alarm = self.alarm.map(|a| a.to.as_str().to_owned());
        Some(ShareFacts { alarm, base: Some(base), block, of, raised })
    }

    /// Whether a full block raises an alarm. One that stands is raised again only where the share has gone on by the
    /// factor; it ends once the share is back within it.
    fn judge(&mut self, base: &Tally, block: &Tally) -> bool {
        let now = moved(base, block);
        let raised = match (now, self.alarm) {
            (Some(to), Some(alarm)) if alarm.to == to => moved(&alarm.at, block) == Some(to),
            (Some(_), _) => true,
            (None, _) => false,
        };
        match now {
            Some(to) if raised => self.alarm = Some(Alarm { to, at: *block }),
            Some(_) => {}
            None => self.alarm = self.alarm.filter(|a| stays(a.to, base, block)),
        }
        raised
    }
}

/// What a calibration saw, where that is enough.
fn sample(t: Tally) -> Option<Tally> {
    let hits = |n: u32| u64::from(t.hits) * u64::from(n) / u64::from(t.n);
    let n = t.n.min(MOST);
    (t.n >= FEWEST).then(|| Tally { hits: u32::try_from(hits(n)).unwrap_or(n), n })
}

/// Where the share went, by the factor and by more than chance: the 99 % intervals of both lie apart.
#[must_use]
pub fn moved(base: &Tally, block: &Tally) -> Option<Moved> {
    if is_above(block, base) && is_apart(base, block) {
        return Some(Moved::Up);
    }
    (is_above(base, block) && is_apart(block, base)).then_some(Moved::Down)
}

/// Whether a share is still away by the factor. Against none at all any share is, so that chance alone says.
fn stays(to: Moved, base: &Tally, block: &Tally) -> bool {
    match to {
        Moved::Up => base.hits > 0 && is_above(block, base),
        Moved::Down => is_above(base, block),
    }
}

/// Whether a share is at least the factor times another one; two of 0 are the same.
fn is_above(a: &Tally, b: &Tally) -> bool {
    a.hits > 0 && u64::from(a.hits) * u64::from(b.n) >= FACTOR * u64::from(b.hits) * u64::from(a.n)
}

fn is_apart(low: &Tally, high: &Tally) -> bool {
    clopper_pearson_at(TAIL, low.hits, low.n)[1] < clopper_pearson_at(TAIL, high.hits, high.n)[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(hits: u32, n: u32) -> Tally {
        Tally { hits, n }
    }

    /// A block with so many hits.
    fn block(mark: &mut ShareMark, hits: u32, known: Option<Tally>) -> ShareFacts {
        let mut full: Vec<ShareFacts> = (0..BLOCK).filter_map(|i| mark.count(i < hits, known)).collect();
        assert_eq!(full.len(), 1);
        full.remove(0)
    }

    #[test]
    fn the_factor_and_the_intervals_both_count() {
        for (base, block, wanted) in [
            (tally(15, 500), tally(45, 500), Some(Moved::Up)),
            (tally(15, 500), tally(44, 500), None),
            (tally(45, 500), tally(15, 500), Some(Moved::Down)),
            (tally(44, 500), tally(15, 500), None),
            // Three times, and chance explains it.
            (tally(10, 500), tally(34, 500), None),
            (tally(10, 500), tally(35, 500), Some(Moved::Up)),
            (tally(6, 500), tally(0, 500), None),
            (tally(25, 500), tally(0, 500), Some(Moved::Down)),
            (tally(0, 500), tally(0, 500), None),
            (tally(0, 2000), tally(4, 500), None),
            (tally(0, 2000), tally(12, 500), Some(Moved::Up)),
            (tally(500, 500), tally(100, 500), Some(Moved::Down)),
        ] {
            assert_eq!(moved(&base, &block), wanted, "{base:?} {block:?}");
        }
    }

    /// One alarm for a move, however long it lasts; another one when it goes on by the factor, turns round, or comes
    /// again after it was over; none after another calibration before there is a share to compare with.
    #[test]
    fn a_move_is_told_once() {
        let known = Some(tally(10, 500));
        let mut mark = ShareMark::default();
        mark.sync("acme@1");
        for (hits, raised, alarm) in [
            (12, false, None),
            (40, true, Some("up")),
            (45, false, Some("up")),
            (30, false, Some("up")),
            (200, true, Some("up")),
            (190, false, Some("up")),
            (29, false, None),
            (35, true, Some("up")),
            (0, false, None),
        ] {
            let facts = block(&mut mark, hits, known);
            assert_eq!((facts.raised, facts.alarm.as_deref()), (raised, alarm), "{hits}");
            assert_eq!((facts.of.as_str(), facts.base, facts.block), ("acme@1", known, tally(hits, BLOCK)));
        }
        let mut mark = ShareMark::default();
        let many = Some(tally(100, 500));
        let seen: Vec<bool> = [0, 400, 400, 5].map(|hits| block(&mut mark, hits, many).raised).to_vec();
        assert_eq!(seen, [true, true, false, true], "down, up, still up, down");
        mark.sync("acme@2");
        assert_eq!(mark, ShareMark { calibration: "acme@2".into(), ..ShareMark::default() });
    }

    /// Without a share of a calibration the first full block is what later ones are compared with.
    #[test]
    fn the_first_block_stands_in() {
        for known in [None, Some(tally(0, 0)), Some(tally(50, FEWEST - 1))] {
            let mut mark = ShareMark::default();
            mark.sync("acme@1");
            let first = block(&mut mark, 5, known);
            assert_eq!((first.of.as_str(), first.base, first.raised), ("stream", None, false));
            let second = block(&mut mark, 60, known);
            assert_eq!((second.of.as_str(), second.base, second.raised), ("stream", Some(tally(5, BLOCK)), true));
        }
        // From none to some is a move once chance doesn't explain it, and over once it does.
        let mut mark = ShareMark::default();
        let seen: Vec<bool> = [0, 3, 40, 45, 2, 40].map(|hits| block(&mut mark, hits, None).raised).to_vec();
        assert_eq!(seen, [false, false, true, false, false, true]);
    }

    #[test]
    fn what_cant_be_is_refused_and_large_samples_are_bounded() {
        assert_eq!(sample(tally(30_000_000, 3_000_000_000)), Some(tally(655, MOST)));
        assert_eq!(sample(tally(u32::MAX, u32::MAX)), Some(tally(MOST, MOST)));
        let good = ShareMark { open: tally(3, 9), own: Some(tally(1, 500)), ..ShareMark::default() };
        assert!(good.is_possible() && !ShareMark { open: tally(4, 3), ..good.clone() }.is_possible());
        assert!(!ShareMark { own: Some(tally(1, MOST + 1)), ..good }.is_possible());
    }

    /// The chance of an alarm when nothing moves, exactly: two blocks of one share.
    #[test]
    fn chance_alone_hardly_raises_one() {
        let intervals: Vec<[f64; 2]> = (0..=BLOCK).map(|x| clopper_pearson_at(TAIL, x, BLOCK)).collect();
        let mut worst = 0.0_f64;
        for share in [0.001, 0.004, 0.01, 0.02, 0.025, 0.03, 0.035, 0.05, 0.1, 0.3_f64] {
            let mut mass = vec![(1.0 - share).powi(500)];
            for k in 0..BLOCK {
                let last = mass[k as usize];
                mass.push(last * f64::from(BLOCK - k) / f64::from(k + 1) * share / (1.0 - share));
            }
            let mut alarm = 0.0;
            for x in 0..=BLOCK {
                for y in 0..=BLOCK {
                    let (a, b) = (tally(x, BLOCK), tally(y, BLOCK));
                    let apart = |low: u32, high: u32| intervals[low as usize][1] < intervals[high as usize][0];
                    if is_above(&b, &a) && apart(x, y) || is_above(&a, &b) && apart(y, x) {
                        alarm += mass[x as usize] * mass[y as usize];
                    }
                }
            }
            worst = worst.max(alarm);
        }
        assert!((1e-4..2e-4).contains(&worst), "{worst}");
    }
}
