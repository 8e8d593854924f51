//! Rules of the source that no compiler checks: who imports whom, who knows the broker, where `unsafe`,
//! prints, clocks and the environment may stand.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file, lines; above the soft limit a file is named, above the hard limit it fails.
const SOFT: usize = 400;
const HARD: usize = 600;

/// Every module may import these.
const SHARED: [&str; 6] = ["clock", "config", "error", "schema", "telemetry", "topology"];

/// Intrinsics and foreign functions.
const UNSAFE: [&str; 4] =
    ["score/kernel/cuda.rs", "score/kernel/faiss.rs", "score/kernel/x86.rs", "source/topic_ids.rs"];

/// A source file.
struct Source {
    /// Path under `src/`, with `/`.
    path: String,
    lines: usize,
    /// Comments and literals blanked, lines kept.
    code: String,
}

impl Source {
    /// The top-level module that it belongs to.
    fn module(&self) -> &str {
        self.path.split('/').next().unwrap_or_default().trim_end_matches(".rs")
    }

    /// Lines of code with a word, as `path:line`.
    fn places(&self, word: &str) -> Vec<String> {
        let hit = |line: &str| find(line, word).next().is_some();
        let numbered = self.code.lines().zip(1..);
        numbered.filter(|(line, _)| hit(line)).map(|(_, n)| format!("src/{}:{n}", self.path)).collect()
    }
}

/// Starts of `word` in `text` that aren't part of a longer name.
fn find<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = text[..*at].chars().next_back();
        let after = text[at + word.len()..].chars().next();
        let longer = |next: Option<char>, own: bool| own && next.is_some_and(part);
        !longer(before, word.starts_with(part)) && !longer(after, word.ends_with(part))
    })
}

/// Blanks comments and string and character literals.
fn strip(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < chars.len() {
        let end = match (at(i), at(i + 1)) {
            ('/', '/') => line_end(&chars, i),
            ('/', '*') => block_end(&chars, i),
            ('r', '"' | '#') if !name_before(&chars, i) => raw_end(&chars, i).unwrap_or(i),
            ('"', _) => string_end(&chars, i),
            // A lifetime has no closing quote after one character.
            ('\'', '\\') => string_end(&chars, i),
            ('\'', _) if at(i + 2) == '\'' => i + 3,
            _ => i,
        };
        if end == i {
            out.push(at(i));
            i += 1;
        } else {
            out.extend(chars[i..end.min(chars.len())].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

fn name_before(chars: &[char], i: usize) -> bool {
    i > 0 && (chars[i - 1].is_alphanumeric() || chars[i - 1] == '_') && chars[i - 1] != 'b'
}

fn line_end(chars: &[char], i: usize) -> usize {
    (i..chars.len()).find(|j| chars[*j] == '\n').unwrap_or(chars.len())
}

fn block_end(chars: &[char], i: usize) -> usize {
    let mut depth = 0;
    let mut j = i;
    while j < chars.len() {
        match (chars[j], chars.get(j + 1)) {
            ('/', Some('*')) => depth += 1,
            ('*', Some('/')) if depth == 1 => return j + 2,
            ('*', Some('/')) => depth -= 1,
            _ => {
                j += 1;
                continue;
            }
        }
        j += 2;
    }
    chars.len()
}

fn string_end(chars: &[char], i: usize) -> usize {
    let mut j = i + 1;
    while j < chars.len() && chars[j] != chars[i] {
        j += if chars[j] == '\\' { 2 } else { 1 };
    }
    j + 1
}

fn raw_end(chars: &[char], i: usize) -> Option<usize> {
    let hashes = chars[i + 1..].iter().take_while(|c| **c == '#').count();
    let open = i + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |j: &usize| chars[*j] == '"' && chars[j + 1..].iter().take_while(|c| **c == '#').count() >= hashes;
    Some((open + 1..chars.len()).find(closes).map_or(chars.len(), |j| j + 1 + hashes))
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).unwrap();
        let path = file.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
        Source { path, lines: text.lines().count(), code: strip(&text) }
    };
    files.into_iter().map(read).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|e| e == "rs") {
            files.push(path);
        }
    }
}

/// Top-level modules in the order of `lib.rs`.
fn order() -> Vec<String> {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    let module = |l: &str| l.strip_prefix("pub mod ")?.strip_suffix(';').map(str::to_owned);
    text.lines().filter_map(module).collect()
}

/// Modules that code names as `crate::x`, `crate::{x, ...}`, or `super::x` from a top-level file.
fn imports(source: &Source) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let code = &source.code;
    for at in find(code, "crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(group_heads(group)),
            None => drop(found.insert(name(rest))),
        }
    }
    let depth = source.path.matches('/').count() - usize::from(source.path.ends_with("/mod.rs"));
    if depth == 0 {
        found.extend(find(code, "super::").map(|at| name(&code[at + "super::".len()..])));
    }
    found
}

/// First names of a `{a, b::{c, d}}` group, from behind its brace.
fn group_heads(group: &str) -> Vec<String> {
    let (mut depth, mut heads, mut head) = (0, Vec::new(), String::new());
    for c in group.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => heads.push(std::mem::take(&mut head)),
            _ if depth == 0 => head.push(c),
            _ => {}
        }
    }
    heads.push(head);
    let first = |h: &String| h.trim().split("::").next().unwrap_or_default().trim().to_owned();
    heads.iter().map(first).filter(|h| !h.is_empty()).collect()
}

/// Fails with all violations of a rule at once.
fn report(rule: &str, violations: &[String]) {
    assert!(violations.is_empty(), "{rule}:\n  {}", violations.join("\n  "));
}

#[test]
fn the_scanner_sees_what_it_must_and_nothing_else() {
    let code = strip(
        "use crate::alert; // use crate::app;\n/* unsafe /* */ unsafe */ let s = \"unsafe \\\" unsafe\"; let c = '\"';\n\
         let r = r#\"unsafe \" \"#; fn f<'a>(x: &'a str) {} let q = '\\''; unsafe { g() }",
    );
    let source = Source { path: "clock.rs".into(), lines: 3, code };
    assert_eq!(imports(&source), BTreeSet::from(["alert".to_owned()]));
    assert_eq!(source.places("unsafe"), ["src/clock.rs:3"]);
    let code = strip("use crate::{a::{b, c}, d};\nuse super::e::F;\nallow(unsafe_code); rdkafka::x; my_rdkafka");
    let source = Source { path: "x.rs".into(), lines: 3, code };
    assert_eq!(imports(&source), ["a", "d", "e"].map(str::to_owned).into());
    assert!(source.places("unsafe").is_empty());
    assert_eq!(source.places("rdkafka").len(), 1);
    assert!(sources().len() > 50 && order().len() > 15);
}

#[test]
fn modules_import_only_earlier_or_shared_ones() {
    let order = order();
    let place = |module: &str| order.iter().position(|m| m == module);
    assert!(SHARED.iter().all(|m| place(m).is_some()), "a shared module left lib.rs");
    let mut violations = Vec::new();
    for source in sources().iter().filter(|s| !matches!(s.module(), "lib" | "main")) {
        let Some(own) = place(source.module()) else {
            violations.push(format!("src/{} belongs to no module of lib.rs", source.path));
            continue;
        };
        for import in imports(source) {
            let Some(there) = place(&import) else { continue };
            if there > own && !SHARED.contains(&import.as_str()) {
                violations.push(format!("src/{} imports crate::{import}, which comes later", source.path));
            }
        }
    }
    report("a module imports only those before it in lib.rs and the shared ones", &violations);
}

#[test]
fn only_source_sink_and_state_know_the_broker_and_the_store() {
    let outside: Vec<Source> =
        sources().into_iter().filter(|s| !matches!(s.module(), "source" | "sink" | "state")).collect();
    let violations: Vec<String> =
        outside.iter().flat_map(|s| ["rdkafka", "rocksdb"].map(|word| s.places(word))).flatten().collect();
    report("only source, sink and state name rdkafka or rocksdb", &violations);
}

#[test]
fn unsafe_stands_in_kernel_and_ffi_alone() {
    let all = sources();
    let violations: Vec<String> =
        all.iter().filter(|s| !UNSAFE.contains(&s.path.as_str())).flat_map(|s| s.places("unsafe")).collect();
    report(&format!("unsafe stands only in {UNSAFE:?}"), &violations);
}

#[test]
fn files_are_short() {
    let all = sources();
    for s in all.iter().filter(|s| s.lines > SOFT) {
        println!("src/{} has {} lines, above the soft limit of {SOFT}", s.path, s.lines);
    }
    let violations: Vec<String> =
        all.iter().filter(|s| s.lines > HARD).map(|s| format!("src/{} has {} lines", s.path, s.lines)).collect();
    report(&format!("no file has more than {HARD} lines"), &violations);
}

/// Output goes through `cli::out`, wall time comes from `clock`, settings from `config`.
#[test]
fn prints_clocks_and_environment_have_one_place_each() {
    let rules: [(&str, &[&str]); 10] = [
        ("println!", &["cli/out.rs"]),
        ("print!", &["cli/out.rs"]),
        ("eprintln!", &["cli/out.rs"]),
        ("eprint!", &["cli/out.rs"]),
        ("dbg!", &[]),
        ("SystemTime::now", &["clock.rs"]),
        ("Timestamp::now", &["clock.rs"]),
        ("Zoned::now", &["clock.rs"]),
        ("env::var", &["config/mod.rs"]),
        ("env::var_os", &["config/mod.rs"]),
    ];
    let all = sources();
    let mut violations = Vec::new();
    for (word, allowed) in rules {
        for source in all.iter().filter(|s| !allowed.contains(&s.path.as_str())) {
            violations.extend(source.places(word).into_iter().map(|p| format!("{p} {word}")));
        }
    }
    report("prints, wall time and environment have one place each", &violations);
}
