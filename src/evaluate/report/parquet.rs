//! The cells, their controls and the rows as one flat Parquet table.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::Report;
use crate::error::{Code, Error, Result};
use crate::evaluate::stats::{Rate, bonferroni};

/// A line: text columns, whole numbers, fractions; a missing value is null.
#[derive(Debug, Default, Clone)]
struct Line {
    texts: [Option<String>; 8],
    numbers: [Option<i64>; 9],
    fractions: [Option<f64>; 18],
}

const TEXTS: [&str; 8] = ["kind", "boundary", "attack", "provenance", "defense", "name", "published", "note"];
const NUMBERS: [&str; 9] =
    ["records", "templates", "flagged", "texts", "blocked", "false_alarms", "benign", "victims_before", "victims"];
const FRACTIONS: [&str; 18] = [
    "value",
    "value_low",
    "value_high",
    "flagged_low",
    "flagged_high",
    "false_alarms_low",
    "false_alarms_high",
    "auroc",
    "auroc_low",
    "auroc_high",
    "tpr_at_fpr_1",
    "margin",
    "asr_before",
    "asr_after",
    "utility_before",
    "utility_after",
    "p_fisher_corrected",
    "p_mcnemar_corrected",
];

/// Writes the table.
///
/// # Errors
/// `output_failed`.
pub fn write(report: &Report, path: &Path) -> Result<()> {
    let failed = |e: String| Error::with(Code::OutputFailed, format!("can't write {}", path.display()), e);
    let file = File::create(path).map_err(|e| failed(e.to_string()))?;
    table(&lines(report), file).map_err(|e| failed(e.to_string()))
}

fn lines(report: &Report) -> Vec<Line> {
    let mut out = Vec::new();
    for c in &report.cells {
        let named = [Some("cell"), Some(&c.boundary), Some(&c.attack), Some(c.provenance.as_str()), Some(&c.defense)];
        let mut line = Line::default();
        line.texts[..5].clone_from_slice(&named.map(|t| t.map(str::to_owned)));
        line.numbers[..2].copy_from_slice(&[whole(c.records), whole(c.templates)]);
        line.numbers[2..].copy_from_slice(&[
            Some(c.tpr.x.into()),
            Some(c.tpr.n.into()),
            Some(c.blocked.x.into()),
            Some(c.fpr.x.into()),
            Some(c.fpr.n.into()),
            Some(c.asr_before.x.into()),
            Some(c.asr_before.n.into()),
        ]);
        let interval = |r: Rate| r.interval.map(Some);
        let area = c.auroc.map_or([None; 3], |e| [Some(e.value), Some(e.interval[0]), Some(e.interval[1])]);
        line.fractions[0] = Some(c.tpr.value());
        line.fractions[3..5].copy_from_slice(&interval(c.tpr));
        line.fractions[5..7].copy_from_slice(&interval(c.fpr));
        line.fractions[7..10].copy_from_slice(&area);
        line.fractions[10..].copy_from_slice(&[
            Some(c.tpr_at_one.value()),
            c.margin,
            Some(c.asr_before.value()),
            Some(c.asr_after.value()),
            Some(c.utility_before.value()),
            Some(c.utility_after.value()),
            Some(bonferroni(c.p_fisher, c.tests)),
            c.p_mcnemar.map(|p| bonferroni(p, c.tests)),
        ]);
        let key = line.texts.clone();
        out.push(line);
        for control in &c.controls {
            let mut line = Line { texts: key.clone(), ..Line::default() };
            line.texts[0] = Some("control".into());
            line.texts[5] = Some(control.name.clone());
            line.numbers[2..4].copy_from_slice(&[Some(control.flagged.x.into()), Some(control.flagged.n.into())]);
            line.fractions[0] = Some(control.flagged.value());
            line.fractions[3..5].copy_from_slice(&interval(control.flagged));
            line.fractions[7] = control.auroc;
            line.fractions[12] = control.asr_before.map(|r| r.value());
            line.fractions[13] = control.asr_after.map(|r| r.value());
            out.push(line);
        }
    }
    for r in &report.rows {
        let mut line = Line::default();
        line.texts[0] = Some("row".into());
        line.texts[1] = Some(r.section.clone());
        line.texts[5] = Some(r.name.clone());
        line.texts[6].clone_from(&r.published);
        line.texts[7] = Some(r.note.clone());
        line.fractions[0] = Some(r.value);
        if let Some(rate) = r.rate {
            line.numbers[2..4].copy_from_slice(&[Some(rate.x.into()), Some(rate.n.into())]);
            line.fractions[3..5].copy_from_slice(&rate.interval.map(Some));
        }
        if let Some(range) = r.range {
            line.fractions[1..3].copy_from_slice(&range.map(Some));
        }
        out.push(line);
    }
    out
}

fn whole(n: usize) -> Option<i64> {
    i64::try_from(n).ok()
}

fn table(lines: &[Line], file: File) -> parquet::errors::Result<()> {
    let of = |kind: &str, names: &[&str]| names.iter().map(|n| format!("optional {kind} {n};")).collect::<String>();
    let text = TEXTS.iter().map(|n| format!("optional binary {n} (UTF8);")).collect::<String>();
    let message = format!("message evaluation {{ {text} {} {} }}", of("int64", &NUMBERS), of("double", &FRACTIONS));
    let schema = Arc::new(parse_message_type(&message)?);
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(WriterProperties::builder().build()))?;
    let mut group = writer.next_row_group()?;
    let mut at = 0;
    while let Some(mut column) = group.next_column()? {
        match at {
            n if n < TEXTS.len() => texts(&mut column, lines, n)?,
            n if n < TEXTS.len() + NUMBERS.len() => {
                let (levels, values) = present(lines.iter().map(|l| l.numbers[n - TEXTS.len()]));
                column.typed::<Int64Type>().write_batch(&values, Some(&levels), None)?;
            }
            n => {
                let (levels, values) = present(lines.iter().map(|l| l.fractions[n - TEXTS.len() - NUMBERS.len()]));
                column.typed::<DoubleType>().write_batch(&values, Some(&levels), None)?;
            }
        }
        column.close()?;
        at += 1;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

fn texts(column: &mut SerializedColumnWriter<'_>, lines: &[Line], at: usize) -> parquet::errors::Result<()> {
    let (levels, values) = present(lines.iter().map(|l| l.texts[at].as_deref().map(ByteArray::from)));
    column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None)?;
    Ok(())
}

/// Definition levels, and the values that are there.
fn present<T>(values: impl Iterator<Item = Option<T>>) -> (Vec<i16>, Vec<T>) {
    let (mut levels, mut there) = (Vec::new(), Vec::new());
    for value in values {
        levels.push(i16::from(value.is_some()));
        there.extend(value);
    }
    (levels, there)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    use super::*;
    use crate::evaluate::report::tests::small;
    use crate::evaluate::work::Work;

    #[test]
    fn the_table_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.parquet");
        let report = small(&Work::open(None).unwrap());
        write(&report, &path).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<_> = reader.get_row_iter(None).unwrap().map(|r| r.unwrap()).collect();
        let controls: usize = report.cells.iter().map(|c| c.controls.len()).sum();
        assert_eq!(rows.len(), report.cells.len() + controls + report.rows.len());
        assert_eq!(rows[0].get_string(0).unwrap(), "cell");
        assert_eq!(rows[0].get_long(11).unwrap(), i64::from(report.cells[0].tpr.n));
        assert_eq!(rows.last().unwrap().get_string(5).unwrap(), "name <&>");
    }
}
