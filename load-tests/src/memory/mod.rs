//! `memory`: resident memory of one process under bursts that its encoder can't follow.

mod metrics;
mod slope;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rdkafka::producer::BaseRecord;
use serde::Serialize;
use serde_json::json;

use crate::error::{Error, Result};
use crate::generate::rng::Rng;
use crate::generate::store;
use crate::generate::text::sentences;
use crate::kafka::{Counted, pair, producer, send};
use crate::memory::metrics::Spread;
use crate::memory::slope::{Slope, slope};
use crate::out::Out;
use crate::soak::cluster::{Cluster, finished};
use crate::soak::member::{Member, Setup};
use crate::soak::scene::{binary, environment, topology, write};

const PREFIX: &str = "memory.";
const TENANT: &str = "load";
const TICK: Duration = Duration::from_millis(50);
/// Time between two samples.
const SAMPLE: Duration = Duration::from_secs(1);
/// A burst in each of these, seconds; also the block of the bootstrap.
const PERIOD: u64 = 60;
/// RocksDB's share, MiB: small, so that its cache is full after the warm-up.
const STATE: f64 = 32.0;
/// What the limits allow: records in flight, histories and embeddings, RocksDB, the open transaction, the
/// producer's queue and 20 000 cached texts with their vectors (docs/architecture.md), MiB.
const BUDGET: f64 = 64.0 + 256.0 + STATE + 32.0 + 256.0 + 40.0;
const MIB: f64 = 1_048_576.0;

/// Sample the memory of one process while bursts overrun its encoder
///
/// Text without vectors at --rate, and --burst times as much for a sixth of each minute. Resident memory each
/// second; its slope after --warm by least squares, with a 95 % interval by a moving-block bootstrap in blocks of a
/// minute. Passes when the slope's interval reaches down to 0 and the peak is within what it held before the first
/// record plus the sum of its limits. With --metrics also the cost of a commit.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  load-tests memory --minutes 20 --set MEMSLUICE__SABOTAGE=encoder_slow\n  \
    load-tests memory --minutes 5 --partitions 64 --set MEMSLUICE__SABOTAGE=encoder_slow --metrics 127.0.0.1:9310")]
pub(crate) struct Args {
    /// Time of the load
    #[arg(long, default_value_t = 20.0)]
    minutes: f64,
    /// Time until caches are full, minutes
    #[arg(long, default_value_t = 5.0)]
    warm: f64,
    /// Partitions of every topic but the broadcast ones; two boundaries each
    #[arg(long, default_value_t = 6)]
    partitions: u32,
    /// Records per second between bursts; 2.5 times as many on average must be within what the encoder can do
    #[arg(long, default_value_t = 150)]
    rate: u32,
    /// A burst is this many times the rate
    #[arg(long, default_value_t = 10)]
    burst: u32,
    /// Length of a content, bytes
    #[arg(long, default_value_t = 400)]
    content_bytes: usize,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// A setting of the process; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
    /// Address of its metrics, to read the cost of a commit
    #[arg(long)]
    metrics: Option<String>,
    /// Port of the broker that is started
    #[arg(long, default_value_t = 19392)]
    port: u16,
    /// A broker that runs already
    #[arg(long)]
    bootstrap: Option<String>,
    /// The binary under test [default: memsluice beside this one]
    #[arg(long)]
    memsluice: Option<PathBuf>,
    /// The checkout, for scripts and topology
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/.."))]
    root: PathBuf,
    /// Work folder; kept when given
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Result; memory in MiB.
#[derive(Debug, Serialize)]
struct Report {
    ok: bool,
    seconds: u64,
    partitions: u32,
    sent: u64,
    start_mib: f64,
    end_mib: f64,
    peak_mib: f64,
    budget_mib: f64,
    /// MiB a minute after the warm-up; none for too short a run.
    slope_mib_per_minute: Option<Slope>,
    /// Seconds of a commit: drain, offsets, commit.
    commit_seconds: Option<Spread>,
    samples: usize,
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    let own = || std::env::temp_dir().join(format!("memsluice-memory-{}", std::process::id()));
    let folder = args.folder.clone().unwrap_or_else(own);
    fs::create_dir_all(folder.join("logs")).map_err(|e| Error::io("make", &folder, e))?;
    let report = measure(args, &folder, out)?;
    out.result(&report, || text(&report))?;
    if args.folder.is_none() {
        fs::remove_dir_all(&folder).map_err(|e| Error::io("remove", &folder, e))?;
    }
    Ok(report.ok)
}

fn measure(args: &Args, folder: &Path, out: &Out) -> Result<Report> {
    let partitions = format!("partitions: {},", args.partitions);
    let state = format!("state_bytes: {STATE}MiB");
    let changes = [
        ("retention: 7d", "retention: forever"),
        ("partitions: 6,", partitions.as_str()),
        ("state_bytes: 128MiB", state.as_str()),
    ];
    topology(&args.root, &folder.join("topology"), &changes)?;
    let cluster = match args.bootstrap {
        Some(_) => None,
        None => Some(Cluster::up(&args.root, args.port, folder.join("kafka"), 1)?),
    };
    let bootstrap = args.bootstrap.clone().or_else(|| cluster.as_ref().map(Cluster::bootstrap)).unwrap_or_default();
    let mut env = environment(folder, &bootstrap, PREFIX, "memory");
    env.extend(args.metrics.iter().map(|address| ("MEMSLUICE__HTTP__LISTEN".to_owned(), address.clone())));
    env.extend(args.settings.iter().cloned());
    let began = Instant::now();
    let setup = Setup { binary: binary(args.memsluice.as_ref())?, folder: folder.to_owned(), env, began };
    write(&folder.join("secret"), "a secret of thirty-two bytes or more")?;
    finished(setup.command(&["topology", "apply"]), "memsluice topology apply")?;
    let mut member = Member::new(0);
    member.start(&setup)?;
    sleep(Duration::from_secs(5));
    let start_mib = resident(&member, "VmRSS")?;
    let mut load = Load::new(args, &bootstrap)?;
    let samples = load.samples(&member, out)?;
    let peak_mib = resident(&member, "VmHWM")?;
    let page = args.metrics.as_deref().map(metrics::page).transpose()?;
    let commit_seconds = page.and_then(|p| metrics::histogram(&p, "memsluice_commit_latency_seconds"));
    member.stop(None);
    while !member.gone() {
        member.tend(&setup)?;
        sleep(TICK);
    }
    let warm = usize::try_from(Duration::from_secs_f64(args.warm * 60.0).as_secs()).unwrap_or(0);
    let block = usize::try_from(PERIOD).unwrap_or(1);
    let per_minute = |s: Slope| Slope { per_step: s.per_step * 60.0, low: s.low * 60.0, high: s.high * 60.0 };
    let found = slope(samples.get(warm..).unwrap_or_default(), block, args.seed).map(per_minute);
    let budget_mib = start_mib + BUDGET;
    Ok(Report {
        ok: found.is_some_and(|s| s.low <= 0.0) && peak_mib <= budget_mib,
        seconds: began.elapsed().as_secs(),
        partitions: args.partitions,
        sent: load.sent,
        start_mib,
        end_mib: samples.last().copied().unwrap_or(start_mib),
        peak_mib,
        budget_mib,
        slope_mib_per_minute: found,
        commit_seconds,
        samples: samples.len(),
    })
}

/// A line of `/proc/PID/status`, in MiB.
fn resident(member: &Member, name: &str) -> Result<f64> {
    let gone = || Error::Stalled("the process ended early: see its log".to_owned());
    let path = PathBuf::from(format!("/proc/{}/status", member.pid().ok_or_else(gone)?));
    let text = fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
    let kib = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(':')?.trim().strip_suffix("kB"));
    kib.and_then(|k| k.trim().parse::<f64>().ok()).map(|k| k * 1024.0 / MIB).ok_or_else(gone)
}

/// Writes text at a rate with bursts.
struct Load<'a> {
    args: &'a Args,
    producer: Counted,
    rng: Rng,
    stores: Vec<String>,
    sent: u64,
}

impl<'a> Load<'a> {
    fn new(args: &'a Args, bootstrap: &str) -> Result<Self> {
        let stores = (0..2 * args.partitions).map(|i| store(TENANT, i, args.partitions)).collect();
        let producer = producer(bootstrap, None, &[])?;
        Ok(Self { args, producer, rng: Rng::new(args.seed, 40), stores, sent: 0 })
    }

    /// Sends until the time is over; resident memory each second, MiB.
    fn samples(&mut self, member: &Member, out: &Out) -> Result<Vec<f64>> {
        let time = Duration::from_secs_f64(self.args.minutes * 60.0);
        let (began, mut samples, mut due) = (Instant::now(), Vec::new(), 0.0);
        let mut ticks = 0;
        while began.elapsed() < time {
            let second = began.elapsed().as_secs();
            let factor = if second % PERIOD < PERIOD / 6 { self.args.burst } else { 1 };
            due += f64::from(self.args.rate * factor) * TICK.as_secs_f64();
            while due >= 1.0 {
                due -= 1.0;
                self.one()?;
            }
            self.producer.poll(Duration::ZERO);
            if began.elapsed() >= SAMPLE * u32::try_from(samples.len()).unwrap_or(u32::MAX) {
                samples.push(resident(member, "VmRSS")?);
                if samples.len() % 30 == 0 {
                    out.note(&format!("{second} s: {:.0} MiB, {} sent", samples[samples.len() - 1], self.sent));
                }
            }
            ticks += 1;
            sleep((TICK * ticks).saturating_sub(began.elapsed()));
        }
        Ok(samples)
    }

    /// A write or a retrieval in turn: retrievals fill the state's write buffers.
    fn one(&mut self) -> Result<()> {
        let store = &self.stores[self.rng.below(self.stores.len())];
        let key = format!("{TENANT}/{store}");
        let text = sentences(&mut self.rng, self.args.content_bytes);
        let number = self.sent;
        self.sent += 1;
        let (topic, value) = if number % 2 == 1 {
            let value = json!({"tenant": TENANT, "store": store, "event_id": format!("e-{number}"), "session_id": format!("s-{}", number / 100),
                               "principal": "p", "results": [{"id": "m"}], "query": text});
            ("retrieval-logs", value)
        } else {
            let value = json!({"tenant": TENANT, "store": store, "record_id": format!("m-{number}"), "op": "create", "content": text,
                               "origin": "user_input"});
            ("memory-writes", value)
        };
        let (topic, value) = (format!("{PREFIX}{topic}"), value.to_string());
        send(&self.producer, BaseRecord::to(&topic).key(&key).payload(&value))
    }
}

fn text(report: &Report) -> String {
    let slope = report.slope_mib_per_minute.map_or_else(
        || "slope unknown: the run is too short".to_owned(),
        |s| format!("slope {:.2} MiB a minute (95 % interval {:.2} to {:.2})", s.per_step, s.low, s.high),
    );
    let commit = report.commit_seconds.map_or_else(String::new, |c| {
        format!("\ncommit {:.2} ms (median of {}, mean {:.2} ms)", c.median * 1000.0, c.count, c.mean * 1000.0)
    });
    format!(
        "{} partitions, {} records in {} s: {:.0} MiB before, {:.0} at the end, peak {:.0} of a budget of {:.0}; {slope}{commit}\n{}",
        report.partitions,
        report.sent,
        report.seconds,
        report.start_mib,
        report.end_mib,
        report.peak_mib,
        report.budget_mib,
        if report.ok { "ok" } else { "FAILED" }
    )
}
