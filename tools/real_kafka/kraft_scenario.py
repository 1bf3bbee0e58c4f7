#!/usr/bin/env python3
"""One run of a real KRaft cluster: a scenario that a seed draws, a pcap, each node's metadata log, and Kafka's own dump.

  kraft_scenario.py --work DIR --jars LIB --out PREFIX --seed 7 [--controllers 3] [--brokers 3] [--minutes 2]
                    [--combined] [--dynamic] [--metadata-version 3.9] [--migrate] [--acts impostor,stranger]

It runs itself again inside a network namespace of its own (loopback only). Needs root, tcpdump or dumpcap, iproute2,
and confluent-kafka in the Python used. LIB: `real-kafka install DIR --release 4.1.0`, then DIR/lib; from 3.9 on.
Controllers are nodes 1000.. on ports 19291.., brokers nodes 0.. on ports 19192... With --combined the first nodes are
both. With --dynamic the first controller begins alone, and the others are added, removed and added again. With
--migrate (3.9 alone) the brokers begin with ZooKeeper on ports 19092.., and end in KRaft mode under controller 3000.
A healthy run: --acts reassign,config,restart_all,more_partitions,create_again,copy.
PREFIX.pcap             the packets
PREFIX.steps.json       what was done when, seconds since 1970
PREFIX.metadata.tar.xz  nodeN/: each node's __cluster_metadata-0 at the end (.log, .checkpoint, quorum-state)
PREFIX.truth.jsonl.gz   each record of the longest log as Kafka's DumpLogSegments prints it: offset, time_ms, epoch,
                        type, version, data; and with "snapshot" those of that node's snapshots
PREFIX.logs.tar.xz      each node's state-change.log, controller.log and server.log
"""
import argparse, base64, gzip, io, json, os, random, re, shutil, signal, string, subprocess, sys, tarfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
RK = os.path.join(HERE, "real-kafka")
JVM = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true"]
LOG4J = """log4j.rootLogger=INFO, server
log4j.logger.state.change.logger=TRACE, state
log4j.additivity.state.change.logger=false
log4j.logger.org.apache.kafka.controller=DEBUG, controller
log4j.additivity.org.apache.kafka.controller=false
"""
APPENDER = """log4j.appender.%(name)s=org.apache.log4j.FileAppender
log4j.appender.%(name)s.File=${real.logs}/%(file)s
log4j.appender.%(name)s.layout=org.apache.log4j.PatternLayout
log4j.appender.%(name)s.layout.ConversionPattern=[%%d{ISO8601}] %%p %%m (%%c)%%n
"""
LOGS = {"server": "server.log", "state": "state-change.log", "controller": "controller.log"}
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"


def args():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--work", required=True)
    p.add_argument("--jars", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--seed", type=int, required=True)
    p.add_argument("--controllers", type=int, default=3)
    p.add_argument("--brokers", type=int, default=3)
    p.add_argument("--minutes", type=float, default=2)
    p.add_argument("--combined", action="store_true", help="the first nodes are controllers and brokers")
    p.add_argument("--dynamic", action="store_true", help="kraft.version 1: voters are added and removed")
    p.add_argument("--metadata-version", help="the release that the cluster is formatted for; upgraded in the end")
    p.add_argument("--migrate", action="store_true", help="from ZooKeeper; the jars of 3.9")
    p.add_argument("--acts", help="what happens, in this order, instead of what the seed draws: names of methods")
    p.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return p.parse_args()


class Run:
    def __init__(self, a):
        self.a = a
        self.rnd = random.Random(a.seed)
        self.steps, self.procs, self.td, self.live, self.copies = [], {}, None, [], {}
        self.controllers = [i if a.combined and i < a.brokers else 1000 + i for i in range(a.controllers)]
        self.brokers = list(range(a.brokers))
        self.late = self.brokers[-1] if a.brokers > 3 else None
        self.nodes = list(dict.fromkeys(self.controllers + self.brokers))
        self.cluster = base64.urlsafe_b64encode(self.rnd.randbytes(16)).decode().rstrip("=")

    def p(self, *names):
        return os.path.join(self.a.work, *names)

    def step(self, what, **more):
        self.steps.append({"at": round(time.time(), 3), "step": what, **more})
        print("[kraft seed %d] %s %s" % (self.a.seed, what, more or ""), file=sys.stderr, flush=True)
        with open(self.a.out + ".steps.json", "w") as f:
            json.dump(self.steps, f, indent=0)

    def nap(self, seconds):
        time.sleep(seconds)

    # --- nodes
    def port(self, n):
        return 19192 + n

    def controller_port(self, n):
        return 19291 + self.controllers.index(n)

    def configure(self, n, name=None, port=None):
        name = name or "node%d" % n
        is_controller, is_broker = n in self.controllers, n in self.brokers
        listeners = (["PLAINTEXT://127.0.0.1:%d" % (port or self.port(n))] if is_broker else []) + \
            (["CONTROLLER://127.0.0.1:%d" % self.controller_port(n)] if is_controller else [])
        where = [(c, "127.0.0.1:%d" % self.controller_port(c)) for c in self.controllers]
        c = {
            "node.id": n,
            "process.roles": ",".join(["broker"] * is_broker + ["controller"] * is_controller),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT", "listeners": ",".join(listeners), "log.dirs": self.p("data", name.removeprefix("node")),
            "offsets.topic.replication.factor": 1, "offsets.topic.num.partitions": 2, "num.network.threads": 2, "num.io.threads": 2,
            "log.cleaner.enable": "false", "auto.create.topics.enable": "false", "metadata.log.max.snapshot.interval.ms": 30000,
            "metadata.max.retention.ms": 45000, "broker.session.timeout.ms": 6000, "broker.heartbeat.interval.ms": 1000,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS", "controlled.shutdown.retry.backoff.ms": 500,
        }
        if self.a.dynamic:
            c["controller.quorum.bootstrap.servers"] = ",".join(w for _c, w in where)
        else:
            c["controller.quorum.voters"] = ",".join("%d@%s" % w for w in where)
        if is_broker:
            c |= {"advertised.listeners": listeners[0], "broker.rack": "r%d" % (n % 2)}
        with open(self.p(name + ".properties"), "w") as f:
            f.writelines("%s=%s\n" % kv for kv in c.items())

    def java(self, cls, *words, timeout=90, check=False):
        r = subprocess.run(["java", "-Xmx160m", *JVM, "-Dlog4j.configuration=file:/dev/null", "-cp",
                            os.path.join(self.a.jars, "*"), cls, *map(str, words)],
                           stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        if check and r.returncode:
            raise SystemExit("%s %s: %s" % (cls, words, (r.stdout + r.stderr)[-600:]))
        return r.stdout + (r.stderr if r.returncode else "")

    def format(self, n, name=None, cluster=None):
        more = ["--release-version", self.a.metadata_version] if self.a.metadata_version else []
        if self.a.dynamic:
            more.append("--standalone" if n == self.controllers[0] else "--no-initial-controllers")
        self.java("kafka.tools.StorageTool", "format", "--cluster-id=" + (cluster or self.cluster), "-c",
                  self.p("%s.properties" % (name or "node%d" % n)), *more, check=True)

    def start(self, n, name=None):
        name = name or "node%d" % n
        logs = self.p("logs", name)
        os.makedirs(logs, exist_ok=True)
        with open(os.path.join(logs, "stdout.log"), "ab") as out:
            self.procs[n if name == "node%d" % n else name] = subprocess.Popen(
                ["java", "-Xmx256m", "-Xms48m", *JVM, "-Dlog4j.configuration=file:" + self.p("log4j.properties"),
                 "-Dreal.logs=" + logs, "-cp", os.path.join(self.a.jars, "*"), "kafka.Kafka",
                 self.p(name + ".properties")], stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        self.step("start", node=n, name=name)

    def stop(self, n, sig):
        process = self.procs.pop(n)
        process.send_signal(sig)
        self.step("signal", node=n, signal=sig.name)
        try:
            process.wait(45)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        self.step("gone", node=n)

    def started(self, n):
        try:
            with open(self.p("logs", "node%d" % n, "server.log")) as f:
                return f.read().count("Kafka Server started")
        except OSError:
            return 0

    def wait_for(self, nodes, seconds=120):
        end = time.time() + seconds
        while time.time() < end and not all(self.started(n) for n in nodes):
            self.nap(1)

    def here(self):
        return [b for b in self.brokers if b in self.procs]

    # --- capture
    def cap_start(self, ports):
        f = " or ".join("tcp portrange %d-%d" % each for each in ports)
        path = self.a.out + ".pcap"
        cmd = ["tcpdump", "-i", "lo", "-s", "0", "-w", path, "-U", "-B", "16384", "-Z", "root", f] \
            if shutil.which("tcpdump") else ["dumpcap", "-q", "-i", "lo", "-s", "0", "-w", path, "-P", "-B", "16", "-f", f]
        self.td = subprocess.Popen(cmd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        end = time.time() + 10
        while time.time() < end and not os.path.exists(path):
            self.nap(0.05)
        self.nap(0.5)

    def cap_stop(self):
        self.nap(1)
        self.td.send_signal(signal.SIGINT)
        said = self.td.communicate(timeout=15)[1].decode()
        self.step("capture ends", said=[x.strip() for x in said.splitlines() if "dropped" in x])

    # --- what administrators do
    def bootstrap(self):
        return ",".join("127.0.0.1:%d" % self.port(b) for b in self.here())

    def admin(self, what, client_id, **named):
        """Call a method of confluent-kafka's AdminClient, and note how it ended."""
        from confluent_kafka.admin import AdminClient
        words = named.pop("words")
        admin = AdminClient({"bootstrap.servers": self.bootstrap(), "client.id": client_id, "log_level": 2})
        errors = []
        for future in getattr(admin, what)(*words, request_timeout=20).values():
            try:
                future.result(25)
            except Exception as e:
                errors.append(str(e)[:120])
        self.step(what, by=client_id, errors=errors, **named)

    def create(self, name, partitions, replication, config=None):
        from confluent_kafka.admin import NewTopic
        topic = NewTopic(name, partitions, replication, config=config or {})
        self.admin("create_topics", "creator", words=[[topic]], name=name, partitions=partitions, replication=replication)
        self.live.append(name)

    def delete(self, name):
        self.admin("delete_topics", "cleaner", words=[[name]], name=name)
        self.live.remove(name)

    def tool(self, cls, *words, step, command=(), **more):
        said = self.java(cls, *command, "--bootstrap-server", self.bootstrap(), *words)
        self.step(step, **more, said=said.strip()[-200:])
        return said

    def active(self):
        m = re.search(r"LeaderId:\s+(\d+)", self.java(QUORUM, "--bootstrap-server", self.bootstrap(), "describe", "--status"))
        return int(m[1]) if m else None

    def plan(self, plan, *words, step):
        with open(self.p("plan.json"), "w") as f:
            json.dump({"version": 1, "partitions": plan}, f)
        self.tool("org.apache.kafka.tools.reassign.ReassignPartitionsCommand", "--reassignment-json-file",
                  self.p("plan.json"), *words, step=step, plan=plan)

    # --- the scenario, one method for each thing that happens
    def kill_broker(self, sig=signal.SIGKILL):
        b = self.rnd.choice([b for b in self.here() if b not in self.controllers] or self.here())
        self.stop(b, sig)
        self.nap(self.rnd.uniform(8, 11))
        self.start(b)
        self.nap(9)

    def shut_down_broker(self):
        self.kill_broker(signal.SIGTERM)

    def kill_controller(self):
        c = self.active()
        self.step("active controller", node=c)
        if c in self.procs and len(self.controllers) > 1:
            self.stop(c, signal.SIGKILL)
            self.nap(8)
            self.step("active controller", node=self.active())
            self.start(c)
            self.nap(8)

    def unclean(self):
        """Brokers go one after another until the ISR is the last of them, and another comes back."""
        order = [b for b in self.here() if b not in self.controllers]
        if len(order) < 2:
            return
        self.rnd.shuffle(order)
        for b in order:
            self.stop(b, signal.SIGKILL)
            self.nap(8)
        self.start(order[0])
        self.nap(14)
        for b in order[1:]:
            self.start(b)
        self.nap(12)

    def delete_topic(self):
        self.delete(self.live[-1])
        self.nap(2)

    def create_again(self):
        name = self.live[-1]
        self.delete(name)
        self.nap(2)
        self.create(name, 2, 2)
        self.nap(2)

    def more_partitions(self):
        from confluent_kafka.admin import NewPartitions
        self.admin("create_partitions", "scaler", words=[[NewPartitions(self.live[0], 8)]], name=self.live[0], partitions=8)
        self.nap(1)

    def config(self):
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
        entry = ConfigEntry("retention.ms", "86400000", incremental_operation=AlterConfigOpType.SET)
        self.admin("incremental_alter_configs", "tuner", name=self.live[0],
                   words=[[ConfigResource("topic", self.live[0], incremental_configs=[entry])]])
        self.admin("alter_configs", "old-tuner", name=self.live[0],
                   words=[[ConfigResource("topic", self.live[0], set_config={"retention.ms": "3600000"})]])

    def security(self):
        from confluent_kafka.admin import AclBinding, AclBindingFilter, AclOperation, AclPermissionType, \
            ResourcePatternType, ResourceType, ScramCredentialInfo, ScramMechanism, UserScramCredentialDeletion, \
            UserScramCredentialUpsertion
        rule = (ResourceType.TOPIC, self.live[0], ResourcePatternType.LITERAL, "User:alice", "*", AclOperation.READ,
                AclPermissionType.ALLOW)
        self.admin("create_acls", "security", words=[[AclBinding(*rule)]])
        self.admin("delete_acls", "security", words=[[AclBindingFilter(*rule)]])
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        self.admin("alter_user_scram_credentials", "security",
                   words=[[UserScramCredentialUpsertion("alice", info, b"secret")]])
        self.admin("alter_user_scram_credentials", "security",
                   words=[[UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)]])
        self.tool("kafka.admin.ConfigCommand", "--alter", "--entity-type", "clients", "--entity-name", "loader",
                  "--add-config", "producer_byte_rate=1048576", step="quota")

    def reassign(self):
        topic, here = self.live[1 % len(self.live)], self.here()
        plan = [{"topic": topic, "partition": 0, "replicas": self.rnd.sample(here, min(2, len(here)))}]
        self.plan(plan, "--execute", step="reassign")
        self.nap(5)
        return plan, here

    def move(self):
        plan, here = self.reassign()
        b = self.rnd.choice([b for b in here if b not in self.controllers] or here)
        self.stop(b, signal.SIGKILL)    # a reassignment that cannot end, and is taken back
        self.nap(7)
        self.plan([{**plan[0], "replicas": [b]}], "--execute", step="reassign to a broker that is down")
        self.nap(2)
        self.plan([{**plan[0], "replicas": [b]}], "--cancel", step="cancel the reassignment")
        self.start(b)
        self.nap(9)

    def elect(self):
        self.tool("org.apache.kafka.tools.LeaderElectionCommand", "--election-type", "preferred", "--topic", self.live[0],
                  "--partition", 0, step="elect leaders")

    def late_broker(self):
        self.start(self.late)
        self.nap(10)

    def refused(self, name, cluster=None):
        """A second process with the id of the first broker, which runs."""
        b = self.brokers[0]
        self.configure(b, name, 19198)
        self.format(b, name, cluster)
        self.start(b, name)
        self.nap(20)
        self.stop(name, signal.SIGKILL)

    def impostor(self):
        self.refused("impostor")

    def stranger(self):
        """It belongs to another cluster."""
        self.refused("stranger", base64.urlsafe_b64encode(self.rnd.randbytes(16)).decode().rstrip("=").replace("-", "A"))

    def unregister(self):
        """The last broker goes for good."""
        b = self.here()[-1]
        if b not in self.controllers and len(self.here()) > 2:
            self.stop(b, signal.SIGTERM)
            self.nap(2)
            self.tool("org.apache.kafka.tools.ClusterTool", "--id", b, command=["unregister"], step="unregister", node=b)

    def upgrade(self):
        if self.a.metadata_version:
            by = "--metadata" if self.a.upgrade_to.startswith("3.") else "--release-version"
            self.tool("org.apache.kafka.tools.FeatureCommand", "upgrade", by, self.a.upgrade_to, step="upgrade",
                      to=self.a.upgrade_to)

    def voter(self, n, adds):
        with open(self.p("data", str(n), "meta.properties")) as f:
            directory = re.search(r"directory\.id=(\S+)", f.read())[1]
        if adds:
            self.tool(QUORUM, "--command-config", self.p("node%d.properties" % n), "add-controller", step="add voter", node=n)
        else:
            self.tool(QUORUM, "remove-controller", "--controller-id", n, "--controller-directory-id", directory,
                      step="remove voter", node=n)
        self.nap(2)

    def voters_change(self):
        n = next((c for c in self.controllers if c != self.active()), None) if self.a.dynamic else None
        if n is not None:
            self.voter(n, False)
            self.nap(3)
            self.voter(n, True)

    def restart_all(self):
        """Each node in turn, by controlled shutdown."""
        for n in sorted(self.procs):
            self.stop(n, signal.SIGTERM)
            times, end = self.started(n), time.time() + 60
            self.start(n)
            while time.time() < end and self.started(n) == times:
                self.nap(0.5)
            self.nap(8)

    def copy(self):
        """The capture ends and each node's files are copied while the cluster runs."""
        self.nap(5)
        self.cap_stop()
        for n, place in self.places().items():
            self.copies[n] = shutil.copytree(place, self.p("copies", str(n)))

    def go(self):
        a, r = self.a, self.rnd
        for part in ("data", "logs", "copies"):
            shutil.rmtree(self.p(part), ignore_errors=True)
            os.makedirs(self.p(part))
        with open(self.p("log4j.properties"), "w") as f:
            f.write(LOG4J + "".join(APPENDER % {"name": k, "file": v} for k, v in LOGS.items()))
        for n in self.nodes:
            self.configure(n)
            self.format(n)
        self.cap_start([(19192, 19199), (19291, 19299)])
        first = [n for n in self.nodes if n != self.late]
        for n in first:
            self.start(n)
        self.wait_for(first)
        self.nap(3)
        if a.dynamic:
            for n in self.controllers[1:]:
                self.voter(n, True)
        for i in range(5):
            name = "".join(r.choice(string.ascii_letters + string.digits + "._-") for _ in range(r.choice((2, 7, 19))))
            name = name.strip("._-") or "x"
            if name not in self.live and len(self.here()) > 1:
                self.create(name, r.choice((1, 3, 6)), r.choice((2, min(3, len(self.here())))),
                            {} if i else {"unclean.leader.election.enable": "true"})
        end = time.time() + a.minutes * 60
        todo = [self.kill_broker, self.delete_topic, self.move, self.more_partitions, self.shut_down_broker,
                self.create_again, self.config, self.elect, self.voters_change]
        r.shuffle(todo)
        always = [self.security, self.kill_controller, *([self.late_broker] if self.late is not None else []), self.unclean]
        if a.acts:
            always, todo = [getattr(self, name) for name in a.acts.split(",")], []
        else:
            always += [self.upgrade, self.unregister]
        for act in [*always[:-2], *todo, *always[-2:]]:
            if act in always or time.time() < end:
                act()

    # --- the end
    def finish(self):
        for n in sorted(self.procs, key=str, reverse=True):
            self.stop(n, signal.SIGTERM)
        if not self.copies:
            self.cap_stop()
        return self.copies or self.places()

    def places(self):
        return {n: self.p("data", str(n), "__cluster_metadata-0") for n in self.nodes}

    def keep(self, places):
        """Pack each node's metadata log and its logs; write what Kafka's dump says of the longest log."""
        places = {n: place for n, place in places.items() if os.path.isdir(place)}
        with tarfile.open(self.a.out + ".metadata.tar.xz", "w:xz", preset=9) as tar:
            for n, place in sorted(places.items()):
                for name in sorted(os.listdir(place)):
                    if name.endswith((".log", ".checkpoint")) or name == "quorum-state":
                        self.pack(tar, "node%d/%s" % (n, name), os.path.join(place, name))
        with tarfile.open(self.a.out + ".logs.tar.xz", "w:xz", preset=9) as tar:
            for node in sorted(os.listdir(self.p("logs"))):
                for name in LOGS.values():
                    if os.path.exists(self.p("logs", node, name)):
                        self.pack(tar, "%s/%s" % (node, name), self.p("logs", node, name))
        size = {n: sum(os.path.getsize(os.path.join(place, f)) for f in os.listdir(place) if f.endswith(".log"))
                for n, place in places.items()}
        place, rows = places[max(size, key=lambda n: (size[n], n))], []
        for name in sorted(os.listdir(place), key=lambda name: (name.endswith(".checkpoint"), name)):
            if name.endswith((".log", ".checkpoint")):
                rows += self.dumped(os.path.join(place, name))
        with gzip.GzipFile(self.a.out + ".truth.jsonl.gz", "wb", mtime=0) as f:
            f.write("".join(json.dumps(row) + "\n" for row in rows).encode())
        print(json.dumps({"out": self.a.out, "records": len(rows), "bytes": os.path.getsize(self.a.out + ".pcap")}))

    @staticmethod
    def pack(tar, name, path):
        with open(path, "rb") as f:
            data = f.read()
        member = tarfile.TarInfo(name)
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))

    def dumped(self, path):
        """What DumpLogSegments says of a file, one row for each record; lines that are none of those are shown."""
        of = {"snapshot": os.path.basename(path)[:-len(".checkpoint")]} if path.endswith(".checkpoint") else {}
        epoch = 0
        for line in self.java("kafka.tools.DumpLogSegments", "--cluster-metadata-decoder", "--files", path, timeout=180).splitlines():
            if m := re.match(r"baseOffset:.*partitionLeaderEpoch: (-?\d+)", line):
                epoch = int(m[1])
            elif m := re.match(r"\| offset: (\d+) CreateTime: (-?\d+)", line):
                row = of | {"offset": int(m[1]), "time_ms": int(m[2]), "epoch": epoch}
                if m := re.search(r" payload: (\{.*\})$", line):
                    yield row | json.loads(m[1])
                elif m := re.search(r" controlType: (\w+)", line):
                    yield row | {"type": m[1]}
                elif m := re.search(r" headerKeys: \[\] (\w+):? (\{.*\})", line):
                    yield row | {"type": m[1], "data": json.loads(m[2])}
                else:
                    print("not understood:", line[:300], file=sys.stderr)


class Migration(Run):
    """ZooKeeper, the hybrid phase, KRaft: of one cluster."""

    def rk(self, *words):
        r = subprocess.run([sys.executable, RK, *map(str, words)], stdout=subprocess.PIPE, stderr=sys.stderr, timeout=300)
        if r.returncode:
            raise SystemExit("real-kafka %s failed" % (words,))
        return json.loads(r.stdout or b"{}")

    def port(self, n):
        return 19092 + n

    def here(self):
        return self.brokers

    def killed(self, b, seconds):
        self.step("kill -9", node=b)
        self.rk("stop-broker", self.a.work, b, "--kill")
        self.nap(seconds)
        self.rk("start-broker", self.a.work, b)
        self.step("start", node=b)
        self.nap(4)

    def go(self):
        a = self.a
        self.rk("install", a.work, "--jars", a.jars)
        self.cap_start([(19092, 19099), (19291, 19291)])
        self.rk("start", a.work, "--brokers", a.brokers, "--ibp", "3.9", "--heap", "256m", "--fresh", "--base-port", 19092,
                "--migration-port", 19291, "--prop", "zookeeper.session.timeout.ms=4000",
                "--prop", "broker.session.timeout.ms=9000", "--prop", "metadata.log.max.snapshot.interval.ms=30000")
        self.step("cluster ready", controller=self.rk("status", a.work)["controller"]["brokerid"])
        self.create("orders", 3, 2)
        self.create("bills", 2, 3)
        self.create("short", 1, 2)
        self.create("unsafe", 2, 2, {"unclean.leader.election.enable": "true"})
        self.killed(self.rk("status", a.work)["controller"]["brokerid"], 8)
        self.delete("short")
        self.step("KRaft controller starts")
        self.rk("start-kraft", a.work)
        self.step("KRaft controller has taken over")
        self.nap(5)
        self.create("hybrid", 2, 2)
        self.more_partitions()
        self.killed(self.rnd.choice(self.brokers), 14)
        self.delete("bills")
        self.step("brokers restart in KRaft mode")
        self.rk("finish-migration", a.work)
        self.step("migrated")
        self.nap(6)
        self.create("after", 2, 2)
        self.config()
        self.delete("hybrid")
        self.nap(2)

    def finish(self):
        self.rk("stop", self.a.work)
        self.cap_stop()
        places = {n: self.p("data", "broker-%d" % n, "__cluster_metadata-0") for n in self.brokers}
        return places | {3000: self.p("data", "kraft", "__cluster_metadata-0")}


def main():
    a = args()
    a.work, a.jars, a.out = map(os.path.abspath, (a.work, a.jars, a.out))
    if not a.inside:
        for folder in (a.work, os.path.dirname(a.out)):
            os.makedirs(folder, exist_ok=True)
        sh = 'ip link set lo up && ethtool -K lo tso off gso off gro off >/dev/null 2>&1; exec "$@"'
        os.execvp("unshare", ["unshare", "-n", "bash", "-c", sh, "x", sys.executable, os.path.abspath(__file__),
                              *sys.argv[1:], "--inside"])
    release = max(re.findall(r"kafka_2\.13-(\d+\.\d+)", " ".join(os.listdir(a.jars))) or ["0"])
    a.upgrade_to = release
    run = (Migration if a.migrate else Run)(a)
    try:
        run.go()
        places = run.finish()
    except BaseException:
        if a.migrate:
            subprocess.run([sys.executable, RK, "stop", a.work, "--kill"], stdout=subprocess.DEVNULL)
        for process in [*run.procs.values(), *([run.td] if run.td and run.td.poll() is None else [])]:
            process.kill()
        raise
    run.keep(places)


if __name__ == "__main__":
    main()
