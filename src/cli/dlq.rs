//! `memsluice dlq list | show | redrive | skip`.

use std::fmt::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Common, Format, out};
use crate::clock::rfc3339;
use crate::dlq::{Act, DeadLetter, Handler, Queue, Selection};
use crate::error::{Code, Error, Result};
use crate::schema::Boundary;
use crate::source::Point;

#[derive(Debug, Args)]
pub(super) struct DlqArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// List dead letters: where, why, from which input. Prints no values.
    #[command(
        after_help = "Examples:\n  memsluice dlq list --topology topology\n  memsluice dlq list --code invalid_json --boundary acme/support --from 2026-11-30T02:00:00Z --output json"
    )]
    List {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        which: SelectArgs,
        /// Show those already redriven or skipped too
        #[arg(long)]
        all: bool,
        /// How the list is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Show one dead letter with its headers and its bytes.
    #[command(
        after_help = "Prints content: the value is what a producer sent.\n\nExamples:\n  memsluice dlq show 3/17 --topology topology\n  memsluice dlq show 3/17 --raw record.bin"
    )]
    Show {
        /// PARTITION/OFFSET in dead-letters
        #[arg(value_parser = place)]
        at: (i32, i64),
        #[command(flatten)]
        common: Common,
        /// Print the value as hex
        #[arg(long)]
        hex: bool,
        /// Write the value to this file instead
        #[arg(long, value_name = "FILE")]
        raw: Option<PathBuf>,
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Send dead letters to their input topic again. Without --execute nothing is written.
    #[command(
        after_help = "Key, value and headers are those of the input, with the header memsluice-redrive; the partition is murmur2 of the key (without a key: the input's). Each is sent once: what was redriven or skipped before is passed over.\n\nExamples:\n  memsluice dlq redrive --code embedding_dimension --limit 1000\n  memsluice dlq redrive --code embedding_dimension --limit 1000 --execute\n  memsluice dlq redrive --at 3/17 --edit corrected.json --execute"
    )]
    Redrive {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        which: SelectArgs,
        /// Send the bytes of this file as the value of a single dead letter
        #[arg(long, value_name = "FILE", requires = "at")]
        edit: Option<PathBuf>,
        /// Do it
        #[arg(long)]
        execute: bool,
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
    /// Give dead letters up, with a reason. Without --execute nothing is written.
    #[command(
        after_help = "Examples:\n  memsluice dlq skip --at 3/17 --reason 'test data' --execute\n  memsluice dlq skip --boundary acme/support --reason 'ticket 881' --release-key --execute"
    )]
    Skip {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        which: SelectArgs,
        /// Why, kept in the mark
        #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        reason: String,
        /// Also tell the stream to release a key that it holds because of this input
        #[arg(long)]
        release_key: bool,
        /// Do it
        #[arg(long)]
        execute: bool,
        /// How it is printed
        #[arg(long, value_enum, default_value = "table")]
        output: Format,
    },
}

/// Which dead letters.
#[derive(Debug, Args)]
struct SelectArgs {
    /// Only this one, PARTITION/OFFSET in dead-letters
    #[arg(long, value_parser = place, conflicts_with_all = ["partition", "from", "to"])]
    at: Option<(i32, i64)>,
    /// Only this partition
    #[arg(long)]
    partition: Option<i32>,
    /// From this offset or time (RFC 3339) of dead-letters on
    #[arg(long, value_name = "POINT")]
    from: Option<Point>,
    /// To below this offset or time
    #[arg(long, value_name = "POINT")]
    to: Option<Point>,
    /// Only this error code; repeat for more
    #[arg(long)]
    code: Vec<String>,
    /// Only with this key, tenant/store
    #[arg(long, value_name = "TENANT/STORE")]
    boundary: Option<String>,
    /// At most this many
    #[arg(long, default_value_t = 100)]
    limit: usize,
}

impl SelectArgs {
    fn selection(&self, handled: bool) -> Result<Selection> {
        Ok(Selection {
            at: self.at,
            partition: self.partition,
            from: self.from,
            to: self.to,
            codes: self.code.clone(),
            boundary: self.boundary.as_deref().map(Boundary::parse).transpose()?,
            handled,
            limit: self.limit,
        })
    }
}

fn place(text: &str) -> std::result::Result<(i32, i64), String> {
    let wrong = || "give PARTITION/OFFSET, such as 3/17".to_owned();
    let (partition, offset) = text.split_once('/').ok_or_else(wrong)?;
    let (partition, offset) = (partition.parse().map_err(|_| wrong())?, offset.parse().map_err(|_| wrong())?);
    if partition < 0 || offset < 0 { Err(wrong()) } else { Ok((partition, offset)) }
}

pub(super) fn run(args: &DlqArgs) -> Result<()> {
    match &args.command {
        Which::List { common, which, all, output } => list(common, &which.selection(*all)?, *output),
        Which::Show { common, at, hex, raw, output } => {
            let letter = Queue::open(&common.setup()?)?.one(at.0, at.1)?;
            show(&letter, *hex, raw.as_deref(), *output)
        }
        Which::Redrive { common, which, edit, execute, output } => {
            let read = |path: &PathBuf| {
                std::fs::read(path)
                    .map_err(|e| Error::with(Code::FileUnreadable, format!("can't read {}", path.display()), e))
            };
            let act = Act::Redrive { edit: edit.as_ref().map(read).transpose()? };
            handle(common, which, &act, *execute, *output)
        }
        Which::Skip { common, which, reason, release_key, execute, output } => {
            let act = Act::Skip { reason: reason.clone(), release_key: *release_key };
            handle(common, which, &act, *execute, *output)
        }
    }
}

fn list(common: &Common, selection: &Selection, output: Format) -> Result<()> {
    let queue = Queue::open(&common.setup()?)?;
    let (count, more) = queue.each(selection, |letter| row(&letter, output))?;
    if output == Format::Table {
        let more = if more { "; there are more: raise --limit" } else { "" };
        out::line(&format!("{count} dead letters{more}"))?;
    }
    Ok(())
}

/// Redrives or skips; a dry run says what would be done.
fn handle(common: &Common, which: &SelectArgs, act: &Act, execute: bool, output: Format) -> Result<()> {
    let setup = common.setup()?;
    let queue = Queue::open(&setup)?;
    if let Some((partition, offset)) = which.at {
        // One that isn't there, or can't be sent, is an error; one that was handled is not.
        let letter = queue.one(partition, offset)?;
        if letter.handled.is_none() {
            crate::dlq::sending(&letter, act)?;
        }
    }
    let selection = which.selection(false)?;
    // Fence first, read second: what another call did is seen.
    let mut handler = execute.then(|| Handler::start(&setup)).transpose()?;
    let bar = out::progress(which.limit as u64, "dead letters");
    let mut incomplete = 0_u64;
    let (count, more) = queue.each(&selection, |letter| {
        bar.inc(1);
        if matches!(act, Act::Redrive { .. }) && letter.incomplete.is_some() {
            incomplete += 1;
            if let Some(h) = &mut handler {
                h.leave();
            }
            return row(&letter, output);
        }
        match &mut handler {
            Some(h) => h.take(&letter, act),
            None => row(&letter, output),
        }
    })?;
    bar.finish_and_clear();
    let word = if matches!(act, Act::Redrive { .. }) { "redriven" } else { "skipped" };
    let Some(handler) = handler else {
        out::note(&format!(
            "dry run: {} would be {word}, {incomplete} are incomplete{}; nothing was written. --execute does it",
            count as u64 - incomplete,
            if more { ", and there are more: raise --limit" } else { "" }
        ));
        return Ok(());
    };
    let done = handler.finish()?;
    match output {
        Format::Json => out::json(&json!({"action": word, "done": done, "more": more})),
        Format::Table => out::line(&format!(
            "{} {word} in {} transactions, {} left: incomplete{}",
            done.handled,
            done.transactions,
            done.incomplete,
            if more { "; there are more: raise --limit" } else { "" }
        )),
    }
}

fn row(letter: &DeadLetter, output: Format) -> Result<()> {
    if output == Format::Json {
        return out::json(&summary(letter));
    }
    let state = match (letter.handled, letter.incomplete) {
        (Some(h), _) => h.as_str(),
        (None, Some(_)) => "incomplete",
        (None, None) => "open",
    };
    out::line(&format!(
        "{:<12} {:<24} {:<26} {:<10} {:>9} bytes  {}  from {}",
        format!("{}/{}", letter.at.partition, letter.at.offset),
        rfc3339(letter.timestamp),
        letter.code,
        state,
        letter.value.as_ref().map_or(0, Vec::len),
        printable(&letter.key),
        letter.source,
    ))
}

/// All but the bytes.
fn summary(letter: &DeadLetter) -> serde_json::Value {
    json!({
        "partition": letter.at.partition, "offset": letter.at.offset, "time": rfc3339(letter.timestamp), "code": letter.code, "stage": letter.stage,
        "message": letter.message, "version": letter.version, "input": letter.source.to_string(), "origin": letter.origin.to_string(), "key": printable(&letter.key),
        "bytes": letter.value.as_ref().map(Vec::len), "incomplete": letter.incomplete,
        "handled": letter.handled.map(crate::dlq::Handled::as_str),
    })
}

fn show(letter: &DeadLetter, as_hex: bool, raw: Option<&std::path::Path>, output: Format) -> Result<()> {
    let bytes = letter.value.as_deref();
    let text = bytes.filter(|_| !as_hex).and_then(|b| std::str::from_utf8(b).ok());
    if let Some(path) = raw {
        std::fs::write(path, bytes.unwrap_or_default())
            .map_err(|e| Error::with(Code::OutputFailed, format!("can't write {}", path.display()), e))?;
    }
    let headers = |f: fn(&[u8]) -> String| {
        letter.original.iter().map(move |(n, v)| (n.clone(), v.as_deref().map(f))).collect::<Vec<_>>()
    };
    if output == Format::Json {
        let mut all = summary(letter);
        all["headers"] = json!(headers(printable));
        if raw.is_none() {
            all["value"] = json!(text);
            all["value_hex"] = json!(bytes.filter(|_| text.is_none()).map(hex::encode));
        }
        return out::json(&all);
    }
    let handled = letter.handled.map_or("open", crate::dlq::Handled::as_str);
    let rows = [
        ("dead letter", letter.at.to_string()),
        ("time", rfc3339(letter.timestamp)),
        ("input", letter.source.to_string()),
        ("code", format!("{} (docs/errors/{}.md)", letter.code, letter.code)),
        ("stage", letter.stage.clone()),
        ("message", letter.message.clone()),
        ("version", letter.version.clone()),
        ("state", letter.incomplete.map_or(handled.to_owned(), |why| format!("{handled}; {why}"))),
        ("key", printable(&letter.key)),
        ("bytes", bytes.map_or("null".to_owned(), |b| b.len().to_string())),
    ];
    rows.iter().try_for_each(|(name, value)| out::line(&format!("{name:<12} {}", printable(value.as_bytes()))))?;
    for (name, value) in headers(printable) {
        let name = printable(name.as_bytes());
        out::line(&format!("header       {name}: {}", value.unwrap_or_else(|| "null".to_owned())))?;
    }
    match (raw, text, bytes) {
        (Some(path), _, _) => out::line(&format!("value        written to {}", path.display())),
        (None, Some(text), _) => out::line(&format!("value\n{}", escaped(text, true))),
        (None, None, Some(bytes)) => out::line(&format!("value, hex\n{}", hex::encode(bytes))),
        (None, None, None) => Ok(()),
    }
}

/// UTF-8 on one line with control characters escaped, so that no record can steer a terminal; else hex.
fn printable(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => escaped(text, false),
        Err(_) => format!("0x{}", hex::encode(bytes)),
    }
}

fn escaped(text: &str, lines: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let turns = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if (c.is_control() || turns) && !(lines && c == '\n') {
            let _ = write!(out, "{}", c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_record_steers_a_terminal() {
        assert_eq!(printable(b"a\x1b[2J\nb"), "a\\u{1b}[2J\\u{a}b");
        assert_eq!(printable("x\u{202e}y".as_bytes()), "x\\u{202e}y");
        assert_eq!(printable(&[0xff, 0]), "0xff00");
        assert_eq!(escaped("a\nb\r", true), "a\nb\\u{d}");
    }

    #[test]
    fn places() {
        assert_eq!(place("3/17"), Ok((3, 17)));
        assert!(["3", "3/", "-1/2", "3/-2", "a/b", "3/4/5"].iter().all(|t| place(t).is_err()));
    }
}
