//! A run's result in four forms: lines for people, JSON, Parquet, and one HTML page.

mod html;
mod parquet;
mod svg;
mod table;

pub use html::page;
pub use parquet::write as write_parquet;
pub use table::lines;

use std::path::Path;

use serde::Serialize;

use super::matrix::Corpus;
use super::{Cell, Row};
use crate::error::{Code, Error, Result};

/// Everything that was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Preset.
    pub preset: String,
    /// Seed.
    pub seed: u64,
    /// Ranks that count as retrieved.
    pub k: usize,
    /// Bootstrap resamples.
    pub resamples: usize,
    /// Encoder's identity.
    pub encoder: String,
    /// Boundaries.
    pub corpora: Vec<Corpus>,
    /// What could not be measured, and why.
    pub skipped: Vec<String>,
    /// Cells.
    pub cells: Vec<Cell>,
    /// Rows of presets.
    pub rows: Vec<Row>,
}

/// Writes `evaluation.json`, `evaluation.parquet` and `evaluation.html` into a folder.
///
/// # Errors
/// `output_failed`.
pub fn write(report: &Report, folder: &Path) -> Result<()> {
    let failed =
        |e: std::io::Error| Error::with(Code::OutputFailed, format!("can't write into {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    let json = serde_json::to_vec(report).map_err(|e| failed(e.into()))?;
    std::fs::write(folder.join("evaluation.json"), json).map_err(failed)?;
    std::fs::write(folder.join("evaluation.html"), page(report)).map_err(failed)?;
    write_parquet(report, &folder.join("evaluation.parquet"))
}

#[cfg(test)]
pub(in crate::evaluate) mod tests {
    use super::*;
    use crate::evaluate::matrix::{Options, describe, fields, run};
    use crate::evaluate::vectors::for_tests;
    use crate::evaluate::work::Work;

    /// A small report: the own corpus, two attacks, three defenses.
    pub(in crate::evaluate) fn small(work: &Work) -> Report {
        let options = Options {
            seed: 5,
            k: 5,
            resamples: 40,
            smoke: true,
            defenses: ["memsad-combined", "screen", "corroboration-naive"]
                .iter()
                .filter_map(|n| crate::evaluate::defenses::Kind::parse(n))
                .collect(),
            attacks: vec!["minja".into(), "injecmem".into()],
        };
        let encode = for_tests(None);
        let fields = fields(&options, None, None, &encode, |_| ()).unwrap();
        let cells = run(&options, &fields, &encode, work, |_| ()).unwrap();
        let rows = vec![Row::value("section", "name <&>", 0.5).published("1").note("a, \"note\"")];
        Report {
            preset: "matrix".into(),
            seed: 5,
            k: 5,
            resamples: 40,
            encoder: "hash".into(),
            corpora: describe(&fields),
            skipped: vec!["shared data: not given".into()],
            cells,
            rows,
        }
    }

    #[test]
    fn a_report_repeats_byte_for_byte_and_has_all_forms() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let work = Work::open(Some(one.path())).unwrap();
        write(&small(&work), one.path()).unwrap();
        write(&small(&Work::open(None).unwrap()), two.path()).unwrap();
        for file in ["evaluation.json", "evaluation.html", "evaluation.parquet"] {
            let bytes = std::fs::read(one.path().join(file)).unwrap();
            assert!(bytes.len() > 1000, "{file}");
            assert_eq!(bytes, std::fs::read(two.path().join(file)).unwrap(), "{file}");
        }
        // A second run takes every cell from the work folder.
        let kept = std::fs::read_dir(one.path().join("cells")).unwrap().count();
        assert_eq!(kept, 6);
        assert_eq!(small(&work).cells, small(&Work::open(None).unwrap()).cells);
    }

    #[test]
    fn a_cell_has_its_controls_denominators_and_tests() {
        let report = small(&Work::open(None).unwrap());
        assert_eq!(report.cells.len(), 6);
        for c in &report.cells {
            assert!(c.tpr.n > 0 && c.fpr.n > 0 && c.asr_before.n > 0 && c.utility_before.n > 0, "{}", c.defense);
            let names: Vec<&str> = c.controls.iter().map(|c| c.name.as_str()).collect();
            assert!(names.contains(&"random_trigger") && names.contains(&"benign_echo"), "{names:?}");
            assert_eq!(names.contains(&"outside_h"), c.attack == "minja");
            assert_eq!(c.p_mcnemar.is_some(), c.defense != "memsad-combined");
            assert_eq!(c.tests, 6 + 4);
            let [mean, _] = c.shuffled_auroc.unwrap();
            assert!((mean - 0.5).abs() < 0.05, "{}: {mean}", c.defense);
        }
        let of = |attack: &str, defense: &str| {
            report.cells.iter().find(|c| c.attack == attack && c.defense == defense).unwrap()
        };
        let minja = of("minja", "screen");
        assert!(minja.tpr.value() > 0.3 && minja.asr_after.x <= minja.asr_before.x, "{:?}", minja.tpr);
        let gate = of("minja", "corroboration-naive");
        assert!(gate.fpr.value() > 0.5, "a single true memory has no second source");
    }
}
