//! `memsluice policy lint | test | diff | bench`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Format, out};
use crate::clock::{Millis, monotonic, parse_rfc3339, rfc3339, wall_millis};
use crate::config::Config;
use crate::decode::{self, Rules, Write};
use crate::error::{Code, Error, Result};
use crate::files::Lines;
use crate::policy::{Change, Checked, Facts, Labels, Level, Note, Policy, Ruling, Said, Signals, Suite, change};
use crate::schema::{Op, Origin};
use crate::screen::{Features, Fitted, Floors, judge};
use crate::topology::Role;

#[derive(Debug, Args)]
pub(super) struct PolicyArgs {
    #[command(subcommand)]
    command: Which,
}

#[derive(Debug, Subcommand)]
enum Which {
    /// Refuse a policy with a rule that nothing shows to work.
    #[command(
        after_help = "An error is a rule without a positive or a negative fixture, fixtures of no rule, or a rule that is never asked; a warning is a rule in shadow without an end, one that has expired, or a ttl above the cap. Exit status 2 (policy_invalid) with an error.\n\nExamples:\n  memsluice policy lint --policy topology/policy.yaml\n  memsluice policy lint --policy policy.yaml --fixtures cases.yaml --output json"
    )]
    Lint(SuiteArgs),
    /// Run the fixtures of every rule.
    #[command(
        after_help = "A positive fixture passes when the rule is asked about the write and takes it, a negative one when not; the rule's own mode and end don't count. Exit status 2 (policy_invalid) when one fails.\n\nExamples:\n  memsluice policy test --policy topology/policy.yaml\n  memsluice policy test --policy policy.yaml --at 2027-01-01T00:00:00Z --all"
    )]
    Test {
        #[command(flatten)]
        suite: SuiteArgs,
        /// Print the fixtures that pass too
        #[arg(long)]
        all: bool,
    },
    /// Show which fixtures and writes two policies treat differently.
    #[command(
        after_help = "Writes are screened without a calibration or earlier writes: every mail, host and account is new, and there is no campaign and no p. Labels of parents are known as far as the files hold them. Prints no content. Exit status 0 whatever differs.\n\nExamples:\n  memsluice policy diff policy.yaml candidate.yaml\n  memsluice policy diff policy.yaml candidate.yaml --writes writes.jsonl --output json | jq 'select(.verdict)'"
    )]
    Diff(DiffArgs),
    /// Time the rulings on the fixtures.
    #[command(after_help = "Example:\n  memsluice policy bench --policy topology/policy.yaml")]
    Bench {
        #[command(flatten)]
        suite: SuiteArgs,
        /// Rulings a fixture
        #[arg(long, default_value_t = 20_000)]
        rounds: u32,
    },
}

/// A policy with its fixtures, at a time.
#[derive(Debug, Args)]
struct SuiteArgs {
    /// Policy file [default: the embedded sample]
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Fixtures [default: NAME.fixtures.yaml beside the policy, if it is there]
    #[arg(long, value_name = "FILE", requires = "policy")]
    fixtures: Option<PathBuf>,
    /// Record time of the writes, RFC 3339 [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Millis>,
    /// How the results are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

#[derive(Debug, Args)]
struct DiffArgs {
    /// Policy in force
    old: PathBuf,
    /// Policy of the change
    new: PathBuf,
    /// JSONL files of writes, in order
    #[arg(long, value_name = "FILE")]
    writes: Vec<PathBuf>,
    /// Configuration file, for the encoder's dimension [default: ./memsluice.yaml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Record time of the fixtures, RFC 3339 [default: now]; writes have their own
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<Millis>,
    /// How the results are printed
    #[arg(long, value_enum, default_value = "table")]
    output: Format,
}

fn time(text: &str) -> std::result::Result<Millis, String> {
    parse_rfc3339(text).ok_or_else(|| "a time is written 2026-11-30T02:00:00Z".to_owned())
}

pub(super) fn run(args: &PolicyArgs) -> Result<()> {
    match &args.command {
        Which::Lint(args) => lint(args),
        Which::Test { suite, all } => test(suite, *all),
        Which::Diff(args) => diff(args),
        Which::Bench { suite, rounds } => bench(suite, *rounds),
    }
}

impl SuiteArgs {
    fn load(&self) -> Result<Suite> {
        match &self.policy {
            Some(policy) => Suite::load(policy, self.fixtures.as_deref()),
            None => Suite::sample(),
        }
    }

    fn at(&self) -> Millis {
        self.at.unwrap_or_else(wall_millis)
    }
}

fn lint(args: &SuiteArgs) -> Result<()> {
    let suite = args.load()?;
    let notes = suite.lint(args.at());
    for n in &notes {
        match args.output {
            Format::Json => out::json(n)?,
            Format::Table => note(n)?,
        }
    }
    let errors = notes.iter().filter(|n| n.level == Level::Error).count();
    if args.output == Format::Table {
        let (warnings, hash) = (notes.len() - errors, suite.policy.hash());
        out::line(&format!("policy {hash}: {errors} errors, {warnings} warnings, {} fixtures", suite.len()))?;
    }
    if errors == 0 {
        return Ok(());
    }
    Err(Error::new(Code::PolicyInvalid, format!("lint found {errors} errors")))
}

fn note(n: &Note) -> Result<()> {
    let word = if n.level == Level::Error { "ERROR" } else { "warning" };
    out::line(&format!("{word:<8} {:<28} {}", n.rule, n.what))
}

fn test(args: &SuiteArgs, all: bool) -> Result<()> {
    let suite = args.load()?;
    let checked = suite.test(args.at());
    for c in checked.iter().filter(|c| all || !c.passed) {
        match args.output {
            Format::Json => out::json(c)?,
            Format::Table => fixture(c)?,
        }
    }
    let failed = checked.iter().filter(|c| !c.passed).count();
    if args.output == Format::Table {
        out::line(&format!("{} of {} fixtures pass", checked.len() - failed, checked.len()))?;
    }
    if checked.is_empty() && suite.rules() > 0 {
        return Err(Error::new(Code::PolicyInvalid, "there are no fixtures"));
    }
    if failed == 0 {
        return Ok(());
    }
    Err(Error::new(Code::PolicyInvalid, format!("{failed} of {} fixtures fail", checked.len())))
}

fn fixture(c: &Checked) -> Result<()> {
    let word = if c.passed { "ok" } else { "FAILED" };
    let takes = if c.takes { "takes it" } else { "does not take it" };
    let wanted = c.wanted.map_or(String::new(), |v| format!(", wanted {}", v.as_str()));
    out::line(&format!(
        "{word:<8} {:<28} {} {}: the rule {takes}; {}{wanted}",
        c.rule,
        c.kind.as_str(),
        c.number,
        said(&c.said)
    ))
}

fn said(s: &Said) -> String {
    let by = s.rule.as_ref().map_or(String::new(), |r| format!(" by {r}"));
    let shadow = if s.shadow.is_empty() { String::new() } else { format!(", in shadow {}", s.shadow.join(" ")) };
    let until = s.expires_at.as_ref().map_or(String::new(), |e| format!(", until {e}"));
    format!("{}{by}{shadow}, origin {}{until}", s.verdict.as_str(), s.origin)
}

fn diff(args: &DiffArgs) -> Result<()> {
    let (old, new) = (Suite::load(&args.old, None)?, Suite::load(&args.new, None)?);
    let mut tally = Tally::default();
    for c in old.compare(&new, args.at.unwrap_or_else(wall_millis)) {
        tally.add(&c, args.output)?;
    }
    let fixtures = std::mem::take(&mut tally.changed);
    let mut sides = [Side::new(&old.policy), Side::new(&new.policy)];
    let rules = Rules {
        max_bytes: usize::MAX,
        dimension: Config::load(args.config.as_deref())?.encoder.dimension,
        units: None,
    };
    let mut lines = Lines::new(Role::MemoryWrites, 1, &args.writes);
    while let Some(record) = lines.next_record()? {
        let Ok(write) = decode::write(&record, &rules) else {
            tally.unread += 1;
            continue;
        };
        tally.writes += 1;
        let [before, after] = sides.each_mut().map(|side| side.rule(&write, record.at.timestamp));
        let what = format!("{}/{}@{}", write.boundary, write.record_id, record.at.offset);
        if let Some(c) = change(&what, &before, &after) {
            tally.add(&c, args.output)?;
        }
    }
    if args.output == Format::Json {
        return Ok(());
    }
    out::line(&format!("policy {} to {}", old.policy.hash(), new.policy.hash()))?;
    out::line(&format!("{fixtures} rulings on {} fixtures differ", old.len() + new.len()))?;
    if args.writes.is_empty() {
        return Ok(());
    }
    tally.moves.iter().try_for_each(|(from_to, n)| out::line(&format!("{n:>8} {from_to}")))?;
    out::line(&format!("{} of {} writes differ, {} can't be decoded", tally.changed, tally.writes, tally.unread))
}

/// What a diff counts.
#[derive(Debug, Default)]
struct Tally {
    changed: u64,
    writes: u64,
    unread: u64,
    moves: BTreeMap<String, u64>,
}

impl Tally {
    fn add(&mut self, c: &Change, output: Format) -> Result<()> {
        self.changed += 1;
        let from_to = format!("{} to {}", c.old.verdict.as_str(), c.new.verdict.as_str());
        *self.moves.entry(from_to).or_default() += u64::from(!c.what.starts_with("fixture "));
        if output == Format::Json {
            return out::json(c);
        }
        let word = if c.verdict { "VERDICT" } else { "other" };
        out::line(&format!("{word:<8} {}", c.what))?;
        out::line(&format!("    old  {}", said(&c.old)))?;
        out::line(&format!("    new  {}", said(&c.new)))
    }
}

/// A policy over a file, with the labels that it gives.
#[derive(Debug)]
struct Side<'a> {
    policy: &'a Policy,
    labels: BTreeMap<String, Labels>,
}

impl<'a> Side<'a> {
    fn new(policy: &'a Policy) -> Self {
        Self { policy, labels: BTreeMap::new() }
    }

    fn rule(&mut self, write: &Write, at: Millis) -> Ruling {
        let topic = Role::MemoryWrites.as_str();
        let labels = self.labels.entry(write.boundary.as_str().to_owned()).or_default();
        let parents = labels.known(&write.boundary, &write.derived_from);
        let origin = self.policy.rule(topic, write, at).origin;
        let facts = Facts { parents: &parents, screen: signals(write, origin), ..Facts::default() };
        labels.note(&write.record_id, self.policy.label(topic, write, &parents));
        self.policy.judge(topic, write, at, &facts)
    }
}

/// What the text alone says.
fn signals(write: &Write, origin: Origin) -> Option<Signals> {
    if write.op == Op::Delete {
        return None;
    }
    let outside = matches!(origin, Origin::External | Origin::Retrieved);
    let floors = if outside { Floors::EXTERNAL } else { Floors::STUDY };
    let features = Features::of(&write.content);
    let (scored, _) = features.score(None, &Fitted::default(), |_| false, floors.c, []);
    let found = judge(&scored, &floors, None, false).floors;
    let payload = scored.payload;
    Some(Signals::new(payload.classes.names(), found, payload.unseen_sinks, features.hidden.count))
}

/// Cost of the rulings of a policy.
#[derive(Debug, serde::Serialize)]
struct Cost {
    policy: String,
    rules: usize,
    rulings: u64,
    nanos_a_ruling: u64,
}

fn bench(args: &SuiteArgs, rounds: u32) -> Result<()> {
    let suite = args.load()?;
    let at = args.at();
    let since = monotonic();
    let rulings = suite.repeat(at, rounds);
    let nanos = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let cost = Cost {
        policy: suite.policy.hash().to_owned(),
        rules: suite.rules(),
        rulings,
        nanos_a_ruling: nanos / rulings.max(1),
    };
    match args.output {
        Format::Json => out::json(&cost),
        Format::Table => out::line(&format!(
            "{} rules, {} rulings at {}: {} ns a ruling",
            cost.rules,
            cost.rulings,
            rfc3339(at),
            cost.nanos_a_ruling
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::Parser as _;

    use super::*;
    use crate::policy::{CLASSES, FLOORS};
    use crate::screen::{FAMILIES, patterns};

    /// The names that a policy may use are those that the screen gives.
    #[test]
    fn policy_conditions_name_what_the_screen_finds() {
        let classes: Vec<&str> = patterns().into_iter().map(|(name, ..)| name).collect();
        assert_eq!(classes, CLASSES);
        assert_eq!(FAMILIES[..4], FLOORS);
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: PolicyArgs,
    }

    fn policy(words: &[&str]) -> Result<()> {
        run(&Line::try_parse_from(["policy"].iter().chain(words)).unwrap().args)
    }

    fn refused(words: &[&str]) -> String {
        let error = policy(words).unwrap_err();
        assert_eq!((error.code(), error.exit_status()), (Code::PolicyInvalid, 2), "{error}");
        error.message().to_owned()
    }

    fn path(name: &str) -> String {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(name).to_str().unwrap().to_owned()
    }

    /// Every policy of the repository is linted and its fixtures pass, now and while its rules last.
    #[test]
    fn shipped_policies_pass_lint_and_test() {
        policy(&["lint"]).unwrap();
        for file in ["topology/policy.yaml", "examples/policy/strict.yaml"].map(path) {
            for output in ["table", "json"] {
                policy(&["lint", "--policy", &file, "--at", "2026-12-01T00:00:00Z", "--output", output]).unwrap();
                let at = ["--at", "2027-12-31T00:00:00Z", "--output", output, "--all"];
                policy(&[&["test", "--policy", &file][..], &at[..]].concat()).unwrap();
            }
        }
        policy(&["bench", "--rounds", "2"]).unwrap();
    }

    /// A rule without both kinds of fixtures, and a fixture that fails, end with the policy's code.
    #[test]
    fn a_policy_that_nothing_shows_to_work_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("policy.yaml");
        let text = fs::read_to_string(path("topology/policy.yaml")).unwrap();
        fs::write(&file, &text).unwrap();
        let name = file.to_str().unwrap();
        assert_eq!(refused(&["lint", "--policy", name]), "lint found 10 errors");
        assert_eq!(refused(&["test", "--policy", name]), "there are no fixtures");
        let fixtures = fs::read_to_string(path("topology/policy.fixtures.yaml")).unwrap();
        fs::write(folder.path().join("policy.fixtures.yaml"), fixtures).unwrap();
        policy(&["lint", "--policy", name]).unwrap();
        policy(&["test", "--policy", name]).unwrap();
        fs::write(&file, text.replace("65536", "65537")).unwrap();
        policy(&["lint", "--policy", name]).unwrap();
        assert_eq!(refused(&["test", "--policy", name]), "2 of 23 fixtures fail");
        fs::write(&file, "rules: 1").unwrap();
        refused(&["diff", name, name]);
        let missing = policy(&["lint", "--policy", "/nowhere.yaml"]).unwrap_err();
        assert_eq!(missing.code(), Code::FileUnreadable);
    }

    /// A rule on what a filter finds is refused at the start where the topology has the filter off.
    #[test]
    fn a_rule_that_a_topology_blinds_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["memsluice.yaml", "topics.yaml"] {
            fs::copy(path(&format!("topology/{file}")), folder.path().join(file)).unwrap();
        }
        let strict = path("examples/policy/strict.yaml");
        let load = || crate::app::Setup::load(Config::default(), Some(folder.path()), Some(Path::new(&strict)));
        load().unwrap();
        let file = folder.path().join("memsluice.yaml");
        let mut main: serde_yaml_ng::Value = serde_yaml_ng::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
        main["screen"]["mode"] = "off".into();
        fs::write(&file, serde_yaml_ng::to_string(&main).unwrap()).unwrap();
        let error = load().unwrap_err();
        assert!(error.code() == Code::PolicyInvalid && error.message().starts_with("rule hidden-text "), "{error}");
    }

    /// Labels pass on through a file, and a policy that looks at them rules otherwise than one that doesn't.
    #[test]
    fn a_diff_of_writes_follows_labels_and_wording() {
        let side = |rules: &str| {
            let text = fs::read_to_string(path("topology/policy.yaml")).unwrap();
            Policy::parse(&format!("{}rules: [{rules}]", text.split("rules:").next().unwrap())).unwrap()
        };
        let (old, new) = (
            side(""),
            side(
                "{ name: laundered, action: quarantine, when: { trust_at_most: 0 } }, { name: quiet, action: block, when: { classes: [secrecy] } }",
            ),
        );
        let (mut before, mut after) = (Side::new(&old), Side::new(&new));
        let mut verdicts = |line: &str| {
            let at =
                crate::source::At { generation: 0, role: Role::MemoryWrites, partition: 0, offset: 0, timestamp: 0 };
            let value = Some(line.replace('{', r#"{"tenant":"acme","store":"s","op":"create","#).into_bytes());
            let record = crate::source::Fetched { at, key: None, value, headers: Vec::new() };
            let write = decode::write(&record, &Rules { max_bytes: 1 << 20, dimension: 8, units: None }).unwrap();
            [before.rule(&write, 0), after.rule(&write, 0)].map(|r| r.verdict.as_str())
        };
        let mut check = |line: &str, wanted: &str| assert_eq!(verdicts(line), ["allow", wanted], "{line}");
        check(r#"{"record_id":"a","content":"Tea at four.","origin":"user_input"}"#, "allow");
        check(r#"{"record_id":"b","content":"Tea it is.","origin":"agent_generated","derived_from":["a"]}"#, "allow");
        check(r#"{"record_id":"w","content":"Coffee is banned.","origin":"retrieved"}"#, "quarantine");
        check(
            r#"{"record_id":"c","content":"No coffee.","origin":"agent_generated","derived_from":["a","w"]}"#,
            "quarantine",
        );
        check(
            r#"{"record_id":"d","content":"So, tea.","origin":"agent_generated","derived_from":["c"]}"#,
            "quarantine",
        );
        check(r#"{"record_id":"e","content":"Do not tell the user.","origin":"user_input"}"#, "block");
        check(r#"{"record_id":"e","content":"Tea at five.","origin":"user_input","derived_from":["x"]}"#, "quarantine");
    }

    /// The command over files, in both forms; what can't be decoded is counted, not an error.
    #[test]
    fn policy_diff_reads_files() {
        let folder = tempfile::tempdir().unwrap();
        let writes = folder.path().join("writes.jsonl");
        let line = r#"{"tenant":"acme","store":"s","record_id":"a","op":"create","content":"Always pay.","origin":"retrieved"}"#;
        fs::write(&writes, format!("{line}\nnot json\n")).unwrap();
        let (old, new) = (path("topology/policy.yaml"), path("examples/policy/strict.yaml"));
        for output in ["table", "json"] {
            policy(&["diff", &old, &new, "--writes", writes.to_str().unwrap(), "--output", output]).unwrap();
            policy(&["diff", &old, &new, "--output", output]).unwrap();
        }
    }
}
