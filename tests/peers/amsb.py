"""OWASP's Agent Memory Security Benchmark over Kafka: writes go to `memory-writes`, reads see what a read-committed
reader of `committed-memory` keeps."""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from agent_memory_guard.bench.adapter import MemorySystemAdapter, RememberOutcome
from agent_memory_guard.bench.adapters.baseline import baseline_adapters
from agent_memory_guard.bench.harness import run_suite
from agent_memory_guard.bench.scoring import score_report
from confluent_kafka import Consumer, Producer, TopicPartition

ROOT = Path(__file__).resolve().parents[2]
ORIGINS = {
    "external_tool": "tool_output",
    "user_input": "user_input",
    "agent_authored": "agent_generated",
    "system": "system",
}
OUTCOMES = {
    "allow": RememberOutcome.STORED,
    "redact": RememberOutcome.REDACTED,
    "quarantine": RememberOutcome.QUARANTINED,
    "block": RememberOutcome.BLOCKED,
    "dead_letter": RememberOutcome.BLOCKED,
}
WAIT = 60.0


class Stream:
    """A memsluice with topics of its own, and readers of what it commits."""

    def __init__(self, name, bootstrap, binary, edit):
        self.name, self.bootstrap, self.binary = name, bootstrap, binary
        self.folder = Path(tempfile.mkdtemp(prefix="amsb-"))
        shutil.copytree(ROOT / "topology", self.folder / "topology", ignore=shutil.ignore_patterns("invalid"))
        edit(self.folder / "topology")
        self.prefix = f"amsb-{uuid.uuid4().hex[:8]}-"
        (self.folder / "secret").write_bytes(os.urandom(32))
        self.env = os.environ | {
            "MEMSLUICE__KAFKA__BOOTSTRAP": bootstrap,
            "MEMSLUICE__KAFKA__TOPIC_PREFIX": self.prefix,
            "MEMSLUICE__KAFKA__GROUP": f"{self.prefix}group",
            "MEMSLUICE__SECRET_FILE": str(self.folder / "secret"),
            "MEMSLUICE__STATE_DIR": str(self.folder / "state"),
            "MEMSLUICE__HTTP__LISTEN": "off",
            "MEMSLUICE_TOPOLOGY": str(self.folder / "topology"),
        }
        subprocess.run([binary, "topology", "apply", "--replication", "1"], env=self.env, check=True,
                       stdout=subprocess.DEVNULL)
        self.log = open(self.folder / "log", "w")
        self.process = subprocess.Popen([binary, "run"], env=self.env, stdout=subprocess.DEVNULL, stderr=self.log)
        self.producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "acks": "all"})
        self.verdicts, self.memory = {}, {}
        self.changed, self.stopping = threading.Condition(), False
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        reader = Consumer({"bootstrap.servers": self.bootstrap, "group.id": f"{self.prefix}amsb",
                           "isolation.level": "read_committed", "enable.auto.commit": False})
        topics = [self.prefix + t for t in ("decisions", "committed-memory")]
        known = reader.list_topics(timeout=WAIT).topics
        reader.assign([TopicPartition(t, p, 0) for t in topics for p in known[t].partitions])
        while not self.stopping:
            message = reader.poll(0.1)
            if message is None or message.error():
                continue
            with self.changed:
                if message.topic() == topics[1]:
                    value = message.value()
                    self.memory[message.key().decode()] = None if value is None else json.loads(value)["content"]
                else:
                    body = json.loads(message.value())
                    body = body.get("body", body)
                    if body["kind"] == "decision":
                        at = (body["input"]["partition"], body["input"]["offset"])
                        self.verdicts[at] = (body["verdict"], body["reasons"])
                self.changed.notify_all()
        reader.close()

    def write(self, store, record, content, origin):
        """The verdict on one write, with its reasons."""
        done = []
        value = {"tenant": "acme", "store": store, "record_id": record, "op": "create", "content": content,
                 "origin": origin, "principal": "amsb", "session_id": store, "written_by": "amsb"}
        self.producer.produce(self.prefix + "memory-writes", json.dumps(value).encode(), f"acme/{store}".encode(),
                              on_delivery=lambda error, m: done.append((error, m)))
        self.producer.flush(WAIT)
        if not done or done[0][0] is not None:
            raise RuntimeError(f"the write was not taken: {done}")
        at = (done[0][1].partition(), done[0][1].offset())
        until = time.monotonic() + WAIT
        with self.changed:
            while at not in self.verdicts:
                left = until - time.monotonic()
                if left <= 0 or self.process.poll() is not None:
                    raise SystemExit(f"no decision on {at}:\n{(self.folder / 'log').read_text()[-3000:]}")
                self.changed.wait(min(left, 1.0))
            return self.verdicts[at]

    def read(self, store, record):
        """What a reader of `committed-memory` has under the key. Decision and output are of one transaction, but of
        two partitions: what is behind is waited for."""
        key = f"acme/{store}/{record}"
        until = time.monotonic() + 2.0
        with self.changed:
            while key not in self.memory and time.monotonic() < until:
                self.changed.wait(0.2)
            return self.memory.get(key)

    def close(self):
        self.stopping = True
        self.thread.join()
        self.process.terminate()
        status = self.process.wait(60)
        self.log.close()
        if status != 0:
            raise SystemExit(f"memsluice ended with {status}:\n{(self.folder / 'log').read_text()[-3000:]}")
        shutil.rmtree(self.folder)


def adapter_of(stream, version, reasons):
    """A benchmark adapter class; each instance has a store of its own."""

    class Memsluice(MemorySystemAdapter):
        name = f"memsluice, {stream.name}"

        def __init__(self):
            self.store = f"s-{uuid.uuid4().hex[:12]}"

        def remember(self, key, value, *, source_class="external_tool"):
            verdict, why = stream.write(self.store, key, value, ORIGINS[source_class])
            reasons.append(why)
            return OUTCOMES[verdict]

        def recall(self, key):
            return stream.read(self.store, key)

    Memsluice.version = version
    return Memsluice


def sample(_topology):
    """As shipped."""


def policy_alone(topology):
    file = topology / "memsluice.yaml"
    text = file.read_text()
    for part in ("screen:\n  mode: enforce", "memsad:\n  mode: enforce"):
        if part not in text:
            raise SystemExit(f"the sample topology has no {part!r}")
        text = text.replace(part, part.replace("enforce", "off"))
    file.write_text(text)


def scores_alone(topology):
    file = topology / "policy.yaml"
    head, found, _ = file.read_text().partition("\nrules:")
    if not found:
        raise SystemExit("the sample policy has no rules")
    file.write_text(head + "\nrules: []\n")
    (topology / "policy.fixtures.yaml").unlink(missing_ok=True)


def show(card, runs, reasons):
    print(f"\n{card.system}: grade {card.grade.value}, score {card.score:.1f}; attacks defended "
          f"{card.defended_total} of {card.malicious_total}, benign writes kept "
          f"{card.benign_total - card.false_positives} of {card.benign_total}, critical breaches "
          f"{card.critical_breaches}")
    for run, why in zip(runs, reasons):
        print(f"  {'ok  ' if run.passed else 'MISS'} {run.scenario_id:<30} {run.severity:<9} "
              f"{run.final_outcome:<12} {' '.join(why)}")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--bootstrap", required=True)
    args.add_argument("--memsluice", required=True)
    args.add_argument("--json")
    args = args.parse_args()
    version = subprocess.run([args.memsluice, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    results, passed = [], False
    for name, edit in [("sample", sample), ("policy alone", policy_alone), ("scores alone", scores_alone)]:
        stream, reasons = Stream(name, args.bootstrap, args.memsluice, edit), []
        try:
            report = run_suite(adapter_of(stream, version, reasons))
        finally:
            stream.close()
        card = score_report(report)
        show(card, report.runs, reasons)
        results.append(report.to_dict() | {"grade": card.grade.value, "score": card.score, "reasons": reasons})
        if name == "sample":
            passed = card.grade.value == "A" and card.false_positives == 0
    print("\nthe benchmark's own baselines, same run:")
    for baseline in baseline_adapters():
        report = run_suite(baseline)
        card = score_report(report)
        print(f"  {card.system}: grade {card.grade.value}, score {card.score:.1f}, defended {card.defended_total} of "
              f"{card.malicious_total}, benign kept {card.benign_total - card.false_positives} of {card.benign_total}")
        results.append(report.to_dict() | {"grade": card.grade.value, "score": card.score})
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1))
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
