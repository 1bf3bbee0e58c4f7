#!/usr/bin/env python3
"""Drives a real release of Kafka into one of its own bugs, and records what its brokers hear.

  bugs.py KAFKA-9212 DIR OUT.pcap.gz    DIR: as `real-kafka install DIR --release VERSION` made it

KAFKA-9212   to 2.3.1; repaired in 2.4.0. A reassignment raises the leader epoch by LeaderAndIsr, and the UpdateMetadata
             of the same batch still has the epoch before: consumers get FENCED_LEADER_EPOCH.
KAFKA-13972  to 3.2.x; repaired in 3.3.0. A cancelled reassignment leaves its new replica behind: the broker ignores
             StopReplica, as its leader epoch is the one that the broker knows.

Prints what was done when, as JSON. Linux, Python 3, the right to capture packets (root) and two minutes.
"""
import argparse, gzip, json, os, signal, socket, struct, subprocess, sys, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
BASE, ZK = 23092, 23181
STEPS = []


def step(text, **more):
    STEPS.append({"t": round(time.time(), 3), "step": text, **more})


def real_kafka(*args):
    out = subprocess.run([sys.executable, os.path.join(HERE, "real-kafka"), *map(str, args)], check=True,
                         stdout=subprocess.PIPE).stdout
    return json.loads(out)


def wait(what, fn, seconds=30):
    end = time.time() + seconds
    while time.time() < end:
        if fn():
            return
        time.sleep(0.1)
    raise SystemExit("bugs.py: gave up waiting for " + what)


class Capture:
    """Records the packets of the brokers' ports on loopback, as a classic pcap."""

    def __init__(self, path):
        self.file = gzip.GzipFile(path, "wb", mtime=0)
        self.file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 262144, 1))
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.sock.bind(("lo", 0))
        self.sock.settimeout(0.2)
        self.ended = False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        ports = range(BASE, BASE + 3)
        while not self.ended:
            try:
                data, where = self.sock.recvfrom(1 << 18)
            except TimeoutError:
                continue
            now = time.time_ns()
            if where[2] == socket.PACKET_OUTGOING or data[23] != 6:   # loopback shows each packet twice; TCP alone
                continue
            at = 14 + (data[14] & 15) * 4
            if not any(p in ports for p in struct.unpack(">HH", data[at:at + 4])):
                continue
            self.file.write(struct.pack("<IIII", now // 10**9, now // 1000 % 10**6, len(data), len(data)) + data)

    def close(self):
        self.ended = True
        self.thread.join()
        self.sock.close()
        self.file.close()


class Cluster:
    def __init__(self, d, ibp, brokers=3):
        self.d = d
        self.info = real_kafka("start", d, "--fresh", "--brokers", brokers, "--ibp", ibp, "--base-port", BASE,
                               "--zk-port", ZK, "--heap", "256m")
        step("cluster ready", controller=self.info["controller"]["brokerid"])

    def zk(self, *args):
        return real_kafka("zk", self.d, *args)

    def exists(self, path):
        parent, _, name = path.rpartition("/")
        return name in self.zk("ls", parent)["children"]

    def create_topic(self, name, replicas):
        body = {"version": 1, "partitions": {str(p): r for p, r in enumerate(replicas)}}
        self.zk("create", "/brokers/topics/" + name, json.dumps(body))
        step("create topic", name=name, replicas=replicas)
        wait("the topic", lambda: self.exists("/brokers/topics/%s/partitions" % name)
             and all(self.exists("/brokers/topics/%s/partitions/%d/state" % (name, p)) for p in range(len(replicas))))
        time.sleep(2)

    def state(self, name, p):
        return json.loads(self.zk("get", "/brokers/topics/%s/partitions/%d/state" % (name, p))["data"])

    def alter_reassignment(self, topic, partition, replicas):
        """AlterPartitionReassignments (45) v0, by hand; None cancels."""
        port = BASE + json.loads(self.zk("get", "/controller")["data"])["brokerid"]
        def text(b):
            return bytes([len(b) + 1]) + b
        body = struct.pack(">i", 20000) + b"\2" + text(topic.encode()) + b"\2" + struct.pack(">i", partition)
        body += b"\0" if replicas is None else bytes([len(replicas) + 1]) + struct.pack(">%di" % len(replicas), *replicas)
        body += b"\0" * 3
        head = struct.pack(">hhih", 45, 0, 1, 4) + b"bugs" + b"\0"
        with socket.create_connection(("127.0.0.1", port), 20) as s:
            s.sendall(struct.pack(">i", len(head + body)) + head + body)
            n, = struct.unpack(">i", s.recv(4, socket.MSG_WAITALL))
            answer = s.recv(n, socket.MSG_WAITALL)
        step("reassign" if replicas else "cancel the reassignment", topic=topic, partition=partition, replicas=replicas,
             error=struct.unpack(">h", answer[9:11])[0])


def kafka_9212(c):
    c.create_topic("orders", [[0, 1], [1, 0]])
    body = {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [0, 2]}]}
    before = c.state("orders", 0)
    c.zk("create", "/admin/reassign_partitions", json.dumps(body))
    step("reassign", topic="orders", partition=0, replicas=[0, 2], before=before)
    wait("the end of the reassignment", lambda: not c.exists("/admin/reassign_partitions"))
    time.sleep(3)
    step("reassigned", state=c.state("orders", 0))
    time.sleep(12)
    c.create_topic("other", [[2, 1]])


def kafka_13972(c):
    controller = c.info["controller"]["brokerid"]
    leader, new = [b for b in (0, 1, 2) if b != controller]
    c.create_topic("orders", [[leader, controller]])
    pid = int(open(os.path.join(c.d, "run", "broker-%d.pid" % leader)).read())
    log = os.path.join(c.d, "logs", "broker-%d" % new, "state-change.log")
    os.kill(pid, signal.SIGSTOP)    # for less than its session: the new replica cannot catch up and join the ISR
    step("pause the leader", broker=leader, state=c.state("orders", 0))
    c.alter_reassignment("orders", 0, [leader, controller, new])
    wait("LeaderAndIsr of the new replica", lambda: "orders-0" in open(log).read() and "LeaderAndIsr" in open(log).read())
    time.sleep(0.5)
    c.alter_reassignment("orders", 0, None)
    time.sleep(0.5)
    os.kill(pid, signal.SIGCONT)
    step("the leader goes on", broker=leader, state=c.state("orders", 0))
    time.sleep(15)
    folder = os.path.join(c.d, "data", "broker-%d" % new)
    step("directories of the cancelled replica", broker=new,
         found=sorted(x for x in os.listdir(folder) if x.startswith("orders")))
    c.create_topic("other", [[0, 1, 2]])


BUGS = {"KAFKA-9212": kafka_9212, "KAFKA-13972": kafka_13972}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("bug", choices=BUGS)
    ap.add_argument("dir")
    ap.add_argument("out")
    ap.add_argument("--ibp", default="2.3")
    a = ap.parse_args()
    capture = Capture(a.out)
    try:
        BUGS[a.bug](Cluster(a.dir, a.ibp))
    finally:
        real_kafka("stop", a.dir, "--kill")
        capture.close()
    print(json.dumps({"bug": a.bug, "steps": STEPS}, indent=1))


if __name__ == "__main__":
    main()
