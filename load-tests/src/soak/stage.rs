//! Sets the scene, strikes, drains, stops and hands over to `verify`.

use std::fs;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::{Error, Result};
use crate::out::Out;
use crate::read::Isolation;
use crate::soak::Args;
use crate::soak::cluster::{Cluster, finished};
use crate::soak::load::{Load, Sent, Target};
use crate::soak::member::{Exit, Member, Setup};
use crate::soak::plan::{Fault, Frame, plan};
use crate::soak::scene::{binary, environment, topology, write};
use crate::soak::settle::behind;
use crate::soak::traffic::Traffic;
use crate::verify;

const TICK: Duration = Duration::from_millis(20);
const PREFIX: &str = "soak.";
const GROUP: &str = "soak";
/// Of the sample topology.
const PARTITIONS: u32 = 6;
const BOUNDARIES: u32 = 12;
/// The shortest session that a transaction of 5 s allows: a member that is away for longer loses its units.
const SESSION: Duration = Duration::from_secs(15);
/// The group must reach the end of its inputs within this time.
const DRAIN: Duration = Duration::from_secs(240);
/// Time between two lines of progress.
const NOTE: Duration = Duration::from_secs(20);

/// Faults that were made.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Struck {
    pub(crate) kills: u32,
    pub(crate) terms: u32,
    pub(crate) pauses: u32,
    pub(crate) joins: u32,
    pub(crate) bounces: u32,
}

/// A broker that was killed.
#[derive(Debug)]
struct Down {
    node: usize,
    until: Instant,
    starting: Option<Child>,
}

impl Down {
    /// Starts it, without waiting; whether it answers again.
    fn back(&mut self, cluster: &Cluster) -> Result<bool> {
        let starting = match &mut self.starting {
            Some(child) => child,
            None => self.starting.insert(cluster.start(self.node)?),
        };
        let ended =
            starting.try_wait().map_err(|source| Error::Io { what: "can't wait for a broker".to_owned(), source })?;
        match ended {
            Some(status) if !status.success() => Err(Error::Input(format!("broker {} did not start again", self.node))),
            ended => Ok(ended.is_some()),
        }
    }
}

/// Everything that runs.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Dropped before the cluster.
    members: Vec<Member>,
    load: Option<Load>,
    setup: Setup,
    bootstrap: String,
    /// What was struck so far.
    pub(crate) struck: Struck,
    /// Processes that ended.
    pub(crate) exits: Vec<Exit>,
    /// Of the members that are there all the time.
    wanted: usize,
    /// When the member that joined leaves.
    leaves: Option<Instant>,
    /// A broker that is down.
    down: Option<Down>,
    cluster: Option<Cluster>,
}

impl Stage {
    /// Brokers, topics, honeypots, load and members.
    pub(crate) fn set(args: &Args, folder: &Path, out: &Out) -> Result<Self> {
        let began = Instant::now();
        let made = |path: &Path| fs::create_dir_all(path).map_err(|e| Error::io("make", path, e));
        made(&folder.join("logs"))?;
        let mut changes = vec![
            ("retention: 7d", "retention: forever"),
            ("session_timeout: 30s", "session_timeout: 15s"),
            ("transaction_timeout: 10s", "transaction_timeout: 5s"),
            // The broken records are there to be accounted for, not to be cut off.
            ("consecutive: 20", "consecutive: 0"),
            ("ratio: 0.5", "ratio: 0"),
        ];
        if args.standby {
            changes.push(("{ changelog: changelog }", "{ changelog: changelog, standby: true }"));
        }
        topology(&args.root, &folder.join("topology"), &changes)?;
        out.note(&format!("seed {}, folder {}", args.seed, folder.display()));
        let cluster = match args.bootstrap {
            Some(_) => None,
            None => Some(Cluster::up(&args.root, args.port, folder.join("kafka"), args.brokers)?),
        };
        let bootstrap = args.bootstrap.clone().or_else(|| cluster.as_ref().map(Cluster::bootstrap)).unwrap_or_default();
        let binary = binary(args.memsluice.as_ref())?;
        let mut env = environment(folder, &bootstrap, PREFIX, GROUP);
        env.extend(args.sabotage.iter().map(|s| ("MEMSLUICE__SABOTAGE".to_owned(), s.clone())));
        let setup = Setup { binary, folder: folder.to_owned(), env, began };
        write(&folder.join("secret"), "a secret of thirty-two bytes or more")?;
        let traffic = Traffic::new(args.seed, BOUNDARIES, PARTITIONS);
        write(&folder.join("honeypots.jsonl"), &traffic.honeypots())?;
        let replicas = args.brokers.to_string();
        finished(setup.command(&["topology", "apply", "--replication", &replicas]), "memsluice topology apply")?;
        finished(setup.command(&["honeypots", "load", "--file", "honeypots.jsonl"]), "memsluice honeypots load")?;
        let target = Target {
            bootstrap: bootstrap.clone(),
            writes: format!("{PREFIX}memory-writes"),
            retrievals: format!("{PREFIX}retrieval-logs"),
            writes_per_s: args.writes,
            retrievals_per_s: args.retrievals,
        };
        let wanted = usize::from(args.members);
        let mut members: Vec<Member> = (0..=wanted).map(Member::new).collect();
        for member in members.iter_mut().take(wanted) {
            member.start(&setup)?;
        }
        Ok(Self {
            members,
            load: Some(Load::start(target, traffic)?),
            setup,
            bootstrap,
            struck: Struck::default(),
            exits: Vec::new(),
            wanted,
            leaves: None,
            down: None,
            cluster,
        })
    }

    /// Makes every planned fault, each as soon as there is something that it can strike.
    pub(crate) fn strike(&mut self, args: &Args, time: Duration, out: &Out) -> Result<()> {
        let frame = Frame { time, kills: args.kills, bounce: args.bounce && self.cluster.is_some(), session: SESSION };
        let mut planned = plan(args.seed, frame).into_iter().peekable();
        let (began, mut noted) = (Instant::now(), Instant::now());
        // Faults that found nothing to strike get half of the time again.
        while began.elapsed() < time * 3 / 2 {
            self.tend()?;
            match planned.peek().copied() {
                None if began.elapsed() >= time => break,
                Some(next) if next.at <= began.elapsed() && self.make(next.fault, next.pick)? => {
                    planned.next();
                }
                _ => {}
            }
            if noted.elapsed() > NOTE {
                noted = Instant::now();
                out.note(&format!("{:.0} s: {:?}", began.elapsed().as_secs_f64(), self.struck));
            }
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Makes a fault; `false` when there is nothing to strike now.
    fn make(&mut self, fault: Fault, pick: usize) -> Result<bool> {
        let running: Vec<usize> = (0..self.members.len()).filter(|i| self.members[*i].running()).collect();
        let victim = running.get(pick % running.len().max(1)).copied();
        match (fault, victim) {
            (Fault::Kill(down), Some(i)) => {
                self.members[i].kill(down);
                self.struck.kills += 1;
            }
            (Fault::Term(down), Some(i)) => {
                self.members[i].stop(Some(down));
                self.struck.terms += 1;
            }
            (Fault::Pause(time), Some(i)) => {
                self.members[i].pause(time);
                self.struck.pauses += 1;
            }
            (Fault::Join(time), _) if self.members[self.wanted].gone() => {
                self.members[self.wanted].start(&self.setup)?;
                self.leaves = Some(Instant::now() + time);
                self.struck.joins += 1;
            }
            (Fault::Bounce(time), _) => return self.bounce(time, pick),
            _ => return Ok(matches!(fault, Fault::Join(_))),
        }
        Ok(true)
    }

    fn bounce(&mut self, time: Duration, pick: usize) -> Result<bool> {
        let Some(cluster) = self.cluster.as_ref().filter(|_| self.down.is_none()) else {
            return Ok(self.cluster.is_none());
        };
        let node = 1 + pick % usize::from(cluster.brokers());
        cluster.kill(node)?;
        self.down = Some(Down { node, until: Instant::now() + time, starting: None });
        self.struck.bounces += 1;
        Ok(true)
    }

    /// Looks after processes, the visitor and the broker.
    fn tend(&mut self) -> Result<()> {
        for member in &mut self.members {
            self.exits.extend(member.tend(&self.setup)?);
        }
        if self.leaves.is_some_and(|t| Instant::now() >= t) {
            self.leaves = None;
            self.members[self.wanted].stop(None);
        }
        if let (Some(down), Some(cluster)) = (&mut self.down, &self.cluster)
            && Instant::now() >= down.until
            && down.back(cluster)?
        {
            self.down = None;
        }
        match &self.load {
            Some(load) if load.ended() => Err(Error::Stalled("the load ended early".to_owned())),
            _ => Ok(()),
        }
    }

    /// Ends the load and waits until the group has taken all of it: what was sent, the time it took, and
    /// whether it got there.
    pub(crate) fn drain(&mut self, out: &Out) -> Result<(Sent, Duration, bool)> {
        self.leaves = self.leaves.map(|_| Instant::now());
        while self.down.is_some() {
            self.tend()?;
            std::thread::sleep(TICK);
        }
        let sent = self.load.take().map(Load::finish).transpose()?.unwrap_or_default();
        out.note(&format!("faults are over ({:?}); draining", self.struck));
        let began = Instant::now();
        let topics = ["memory-writes", "retrieval-logs"].map(|t| format!("{PREFIX}{t}"));
        while began.elapsed() < DRAIN {
            self.tend()?;
            if behind(&self.bootstrap, GROUP, &topics)? == 0 {
                return Ok((sent, began.elapsed(), true));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        Ok((sent, began.elapsed(), false))
    }

    /// SIGTERM to all, and waits for them.
    pub(crate) fn stop(&mut self) -> Result<()> {
        self.members.iter_mut().for_each(|m| m.stop(None));
        while !self.members.iter().all(Member::gone) {
            self.tend()?;
            std::thread::sleep(TICK);
        }
        Ok(())
    }

    /// Accounts for everything, the local state of every member included.
    pub(crate) fn verify(&self, reader: Isolation, out: &Out) -> Result<verify::Report> {
        let started = (0..self.members.len()).filter(|i| self.members[*i].runs() > 0);
        let folders = started.map(|i| self.setup.state(i)).collect();
        verify::verify(&verify::Args::whole(&self.bootstrap, PREFIX, reader, folders), out)
    }
}
