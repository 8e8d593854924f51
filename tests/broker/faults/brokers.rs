//! Brokers that go away, change, forget, or can't do what they should.

use std::time::Duration;

use super::full;
use crate::cluster::Cluster;
use crate::support::{self, Bench, Outcome, Run};

/// A single broker whose internal topics want three replicas: said at start, not waited for.
#[test]
fn a_broker_without_a_transaction_topic_is_named() {
    let settings = [("transaction.state.log.replication.factor", "3")];
    let Some(mut cluster) = Cluster::start(1, &settings) else { return };
    let bench = Bench::at("no-state", &cluster.bootstrap(), 1);
    let begun = std::time::Instant::now();
    let running = bench.spawn(Run::until_end());
    let (status, log) = running.ends(Duration::from_secs(30));
    assert_eq!(status, Some(3), "{log}");
    assert!(log.contains("[broker_refused]"), "{log}");
    assert!(log.contains("transaction.state.log.replication.factor is 3 and 1 broker(s) run"), "{log}");
    eprintln!("named after {:?}", begun.elapsed());
    cluster.configure(&[("transaction.state.log.replication.factor", "1"), ("transaction.max.timeout.ms", "5000")]);
    let (status, log) = bench.spawn(Run::until_end()).ends(Duration::from_secs(30));
    assert_eq!(status, Some(2), "{log}");
    assert!(log.contains("[topology_timeouts]") && log.contains("transaction.max.timeout.ms 5s"), "{log}");
    cluster.configure(&[("transaction.max.timeout.ms", "900000")]);
    bench.load(&support::generated(200, 10));
    assert_eq!(bench.run(Run::until_end()), Outcome::Exit(0));
    assert!(bench.verify().clean());
}

/// The broker forgets idle producers: the next transaction is rolled back, the producer is made again.
#[test]
fn expired_producer_ids_are_replaced() {
    let settings = [
        ("transactional.id.expiration.ms", "4000"),
        ("transaction.remove.expired.transaction.cleanup.interval.ms", "1000"),
        ("producer.id.expiration.ms", "4000"),
        ("producer.id.expiration.check.interval.ms", "1000"),
    ];
    let Some(cluster) = Cluster::start(1, &settings) else { return };
    let bench = Bench::at("expired", &cluster.bootstrap(), 1);
    let data = support::generated(1_000, 50);
    bench.load(&data);
    let running = bench.spawn(Run::live("one"));
    bench.wait_for_decisions(1_000, Duration::from_secs(60));
    for round in 2..=3 {
        std::thread::sleep(Duration::from_secs(10));
        bench.load_more(&data, 1_000);
        bench.wait_for_decisions(round * 1_000, Duration::from_secs(90));
    }
    let log = running.log();
    assert!(log.contains("rolled back") || log.contains("rebuilding"), "the ids did not expire: {log}");
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 3_000, "{found:?}");
}

/// The only broker stops, and later is killed, in the middle of a run. Where the kill strikes between a commit and its
/// markers Kafka may leave the transaction open for good, and says so in its log: then memsluice has to name it.
#[test]
fn the_only_broker_bounces() {
    for _ in 0..3 {
        let Some(cluster) = Cluster::start(1, &[]) else { return };
        if bounce(cluster) {
            return;
        }
        eprintln!("Kafka lost the markers of a transaction: once more");
    }
    panic!("Kafka lost markers three times in a row");
}

/// Whether the broker kept its transactions.
fn bounce(mut cluster: Cluster) -> bool {
    let mut bench = Bench::at("bounce", &cluster.bootstrap(), 1);
    bench.replace_policy("may_embed: true", "may_embed: false");
    bench.set("MEMSLUICE__SABOTAGE", "encoder_slow");
    let data = support::generated(8_000, 100);
    bench.load(&data);
    let mut running = bench.spawn(Run::live("one"));
    bench.wait_for_committed(1_000, Duration::from_secs(60));
    cluster.stop(1);
    std::thread::sleep(Duration::from_secs(3));
    cluster.start_again(1);
    cluster.wait_until_whole();
    bench.wait_for_committed(3_000, Duration::from_secs(150));
    cluster.kill(1);
    cluster.start_again(1);
    cluster.wait_until_whole();
    let until = std::time::Instant::now() + Duration::from_secs(240);
    while bench.count("decisions") < 8_000 && running.is_running() && std::time::Instant::now() < until {
        std::thread::sleep(Duration::from_millis(500));
    }
    if cluster.lost_markers(1) {
        let log = running.log();
        assert!(running.is_running() || log.contains("[restore_stalled]"), "{log}");
        return false;
    }
    bench.wait_for_decisions(8_000, Duration::from_secs(60));
    assert!(running.is_running(), "{}", running.log());
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 8_000, "{found:?}");
    true
}

/// Each of three brokers is killed in turn, so that leaders and both coordinators move. The slow encoder makes the
/// inputs last for two minutes.
#[test]
fn each_of_three_brokers_is_killed() {
    if !full("each_of_three_brokers_is_killed") {
        return;
    }
    let Some(mut cluster) = Cluster::start(3, &[]) else { return };
    let mut bench = Bench::at("three", &cluster.bootstrap(), 3);
    bench.replace_policy("may_embed: true", "may_embed: false");
    bench.set("MEMSLUICE__SABOTAGE", "encoder_slow");
    let data = support::generated(60_000, 100);
    bench.load(&data);
    let mut running = bench.spawn(Run::live("one"));
    bench.wait_for_committed(1_000, Duration::from_secs(60));
    for broker in 1..=3 {
        let before = bench.count("committed-memory");
        let led: Vec<u16> = (0..4).map(|p| cluster.leader("__transaction_state", p)).collect();
        eprintln!("killing broker {broker}; __transaction_state is led by {led:?}");
        cluster.kill(broker);
        bench.wait_for_committed(before + 1_000, Duration::from_secs(120));
        cluster.start_again(broker);
        cluster.wait_until_whole();
        std::thread::sleep(Duration::from_secs(5));
    }
    bench.wait_for_decisions(60_000, Duration::from_secs(300));
    assert!(running.is_running(), "{}", running.log());
    assert_eq!(running.terminate(), Outcome::Exit(0));
    let found = bench.verify();
    assert!(found.clean() && found.inputs == 60_000, "{found:?}");
}
