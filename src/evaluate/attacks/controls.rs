//! Controls that stand beside every attack number.

use super::{Scene, random_trigger};
use crate::evaluate::corpus::{echoes, hard_benign};
use crate::evaluate::stats::permuted_auroc;
use crate::evaluate::{Control, Rng, Truth, Write};

/// Honest memories that quote the attacked queries.
pub(super) fn echo_control(scene: &Scene<'_>) -> Control {
    Control {
        name: "benign_echo".into(),
        truth: Truth::Benign,
        writes: echoes(scene.victims, &mut scene.rng("echo")),
        victims: scene.victims.to_vec(),
    }
}

/// Benign rows that look like attacks.
pub(super) fn hard_control() -> Control {
    Control { name: "hard_benign".into(), truth: Truth::Benign, writes: hard_benign(), victims: Vec::new() }
}

/// For an attack without a trigger: the same texts behind five random words, the same attack on queries outside of
/// the history, and echoes.
#[must_use]
pub fn standard(scene: &Scene<'_>, poison: &[Write], outside: Vec<Write>) -> Vec<Control> {
    let random = random_trigger(&mut scene.rng("random trigger"));
    let behind = |w: &Write| {
        let mut w = w.clone();
        // In a record with parts the words go where the attacker writes: into the key.
        match w.key.clone() {
            Some(key) => {
                w.text = w.text.replacen(&key, &format!("{random} {key}"), 1);
                w.key = Some(format!("{random} {key}"));
            }
            None => {
                w.text = format!("{random} {}", w.text);
                w.value.clone_from(&w.text);
            }
        }
        w
    };
    vec![
        Control {
            name: "random_trigger".into(),
            truth: Truth::Poison,
            writes: poison.iter().map(behind).collect(),
            victims: scene.victims.iter().map(|q| format!("{random} {q}")).collect(),
        },
        Control { name: "outside_h".into(), truth: Truth::Poison, writes: outside, victims: scene.outside.to_vec() },
        echo_control(scene),
        hard_control(),
    ]
}

/// Mean area and its deviation over 200 permutations of the labels.
#[must_use]
pub fn permuted(benign: &[f64], poison: &[f64], seed: u64) -> Option<[f64; 2]> {
    permuted_auroc(benign, poison, 200, &mut Rng::new(seed, "permuted labels"))
}
