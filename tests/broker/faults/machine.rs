//! The process and its machine: paused, silent, without disk space.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::support::{self, Bench, Outcome, Run};

/// Stopped for longer than its session, then continued: the other member has its units by then, and what the
/// zombie had open is never committed.
#[test]
fn a_stopped_process_comes_back_as_a_zombie() {
    let Some(mut bench) = Bench::new("zombie") else { return };
    bench.short_session();
    bench.replace_policy("may_embed: true", "may_embed: false");
    bench.set("MEMSLUICE__SABOTAGE", "encoder_slow");
    let data = support::generated(6_000, 100);
    bench.load(&data);
    let first = bench.spawn(Run::live("first"));
    bench.wait_for_committed(500, Duration::from_secs(60));
    first.signal("STOP");
    let second = bench.spawn(Run::live("second"));
    bench.wait_for_committed(3_000, Duration::from_secs(90));
    first.signal("CONT");
    bench.load_more(&data, 1_000);
    bench.wait_for_decisions(7_000, Duration::from_secs(120));
    let log = first.log();
    assert!(log.contains("rolled back") || log.contains("rebuilding") || log.contains("lost=true"), "{log}");
    assert_eq!(first.terminate(), Outcome::Exit(0));
    assert_eq!(second.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 7_000, "{found:?}");
}

/// The poll thread is silent for longer than `max.poll.interval.ms`: the member is out, and joins again.
#[test]
fn a_silent_poll_thread_rejoins() {
    let Some(mut bench) = Bench::new("maxpoll") else { return };
    bench.short_session();
    bench.property("max.poll.interval.ms", "14000");
    bench.set("MEMSLUICE__SABOTAGE", "poll_stalls");
    let data = support::generated(10_000, 100);
    bench.load(&data);
    let running = bench.spawn(Run::live("one"));
    bench.wait_for_decisions(10_000, Duration::from_secs(150));
    let log = running.log();
    assert!(log.contains("maximum poll interval"), "{log}");
    assert!(log.matches("assigned").count() > 1, "{log}");
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 10_000, "{found:?}");
}

/// Partitions stay paused though they were resumed, as when librdkafka drops a resume.
#[test]
fn a_lost_resume_is_made_again() {
    let Some(mut bench) = Bench::new("resume-lost") else { return };
    bench.set("MEMSLUICE__SABOTAGE", "resume_lost");
    bench.load(&support::generated(2_000, 100));
    let running = bench.spawn(Run::live("one"));
    bench.wait_for_decisions(2_000, Duration::from_secs(60));
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 2_000, "{found:?}");
}

/// An input that has more and of which nothing comes: a new consumer goes on with it.
#[test]
fn a_lost_fetch_gets_a_new_consumer() {
    let Some(mut bench) = Bench::new("fetch-lost") else { return };
    bench.short_session();
    bench.set("MEMSLUICE__SABOTAGE", "fetch_lost");
    bench.load(&support::generated(2_000, 100));
    let running = bench.spawn(Run::live("one"));
    bench.wait_for_decisions(2_000, Duration::from_secs(120));
    let log = running.log();
    assert_eq!(log.matches("nothing comes of an input that has more").count(), 1, "{log}");
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 2_000, "{found:?}");
}

/// A call of librdkafka that never comes back, as when the group's coordinator is gone for good: the producer is
/// replaced, and its transaction fenced.
#[test]
fn a_call_without_an_answer_is_left_behind() {
    let Some(mut bench) = Bench::new("offsets-hang") else { return };
    bench.set("MEMSLUICE__SABOTAGE", "offsets_hang");
    bench.load(&support::generated(2_000, 100));
    let running = bench.spawn(Run::live("one"));
    bench.wait_for_decisions(2_000, Duration::from_secs(90));
    let log = running.log();
    assert!(log.contains("Offsets: the client does not answer"), "{log}");
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 2_000, "{found:?}");
}

/// A small disk of its own; `None` where it can't be mounted.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path) -> Option<Self> {
        std::fs::create_dir_all(at).unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", "size=40m", "memsluice"]).arg(at).status();
        if done.is_ok_and(|s| s.success()) {
            return Some(Self(at.to_owned()));
        }
        eprintln!("skipped: a small disk can't be mounted here (needs root)");
        None
    }

    /// Fills what is free.
    fn fill(&self) {
        let mut ballast = std::fs::File::create(self.0.join("ballast")).unwrap();
        for size in [1 << 20, 4096, 1] {
            while ballast.write_all(&vec![0; size]).is_ok() {}
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

/// The state's disk fills up in a run: the process ends and says so; with space it goes on where Kafka stands.
#[test]
fn a_full_disk_loses_nothing() {
    let Some(mut bench) = Bench::new("disk") else { return };
    let Some(disk) = Disk::mount(&bench.path("state-one")) else { return };
    bench.replace_policy("may_embed: true", "may_embed: false");
    bench.set("MEMSLUICE__SABOTAGE", "encoder_slow");
    let data = support::generated(6_000, 2_000);
    bench.load(&data);
    let running = bench.spawn(Run::until_end());
    bench.wait_for_committed(500, Duration::from_secs(60));
    disk.fill();
    let (status, log) = running.ends(Duration::from_secs(60));
    assert_eq!(status, Some(4), "{log}");
    assert!(log.contains("[state_failed]") && log.contains("is full"), "{log}");
    std::fs::remove_file(bench.path("state-one").join("ballast")).unwrap();
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 6_000, "{found:?}");
}
