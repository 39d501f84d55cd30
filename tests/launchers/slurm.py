"""Slurm on one machine: a controller, some "nodes", all with this machine's name, and munge, for the time of
a test.

Needs the Debian packages slurmctld, slurmd, slurm-client and munge; no service of theirs has to run, and none
is touched.
"""
import ctypes
import getpass
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

CPUS = 4  # of a node, as far as Slurm is told
READY_S = 60
CONFIGURATION = """
ClusterName=swale
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CredType=cred/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
SlurmctldPort={controller_port}
SlurmdParameters=config_overrides
NodeName=n[0-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] \
CPUs={cpus} RealMemory=1000 State=UNKNOWN
PartitionName=p Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


class NotInstalled(Exception):
    """A program of Slurm's is missing: a package brings it."""


class CannotRun(Exception):
    """Slurm is installed and does not start; why."""


def program(name):
    path = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    if path is None:
        raise NotInstalled(name)
    return path


def free_ports(count):
    """`count` ports, one after the other, that nothing listens on now."""
    for first in range(20_000 + os.getpid() % 5_000, 30_000, count):
        held = []
        try:
            for port in range(first, first + count):
                held.append(socket.socket())
                held[-1].bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise CannotRun("no free ports")


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Slurm:
    """with Slurm(FOLDER, NODES) as slurm: slurm.srun(...). FOLDER is fresh, and all users may enter the
    folders above it.

    OWN: a folder. Each node then has mounts and a host name of its own, as on a cluster, and another folder
    of that name; node i's is OWN-i outside. Only root may have it so.
    """

    def __init__(self, folder, nodes, own=None):
        self.folder, self.nodes, self.own, self.daemons = pathlib.Path(folder), nodes, own, []
        self.configuration = self.folder / "slurm.conf"

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def environment(self, **more):
        return {**os.environ, "SLURM_CONF": str(self.configuration), **more}

    def start(self):
        for name in ("munge", "state", *(f"spool/n{i}" for i in range(self.nodes))):
            (self.folder / name).mkdir(parents=True)
        munge = self.folder / "munge"
        munge.chmod(0o700)
        key = munge / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        first = free_ports(self.nodes + 1)
        self.configuration.write_text(CONFIGURATION.format(
            host=socket.gethostname().split(".")[0], user=getpass.getuser(), folder=self.folder,
            controller_port=first, first_port=first + 1, last_port=first + self.nodes, last=self.nodes - 1,
            cpus=CPUS), encoding="ascii")
        # Named, so that a node does not look for a mounted hierarchy first; nothing here uses one.
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n", encoding="ascii")
        self.daemon("munged", "--foreground", "--force",
                    *(f"--{what}-file={munge / what}" for what in ("key", "pid", "log", "seed")),
                    f"--socket={munge / 'socket'}")
        self.wait_until("munged listens", (munge / "socket").exists)
        self.daemon("slurmctld", "-D", "-c", "-f", self.configuration)
        for i in range(self.nodes):
            self.node(i)
        self.wait_until("all nodes are idle", self.all_idle)
        self.try_step()

    def node(self, number):
        words = ["slurmd", "-D", "-N", f"n{number}", "-f", self.configuration]
        if self.own is None:
            self.daemon(*words)
            return
        pathlib.Path(f"{self.own}-{number}").mkdir(0o700)
        self.daemon("unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c",
                    'hostname "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"', "sh", f"n{number}",
                    f"{self.own}-{number}", self.own, program(words[0]), *words[1:])

    def daemon(self, name, *words):
        with open(self.folder / f"{name}.out", "ab") as out:
            self.daemons.append(subprocess.Popen([program(name), *map(str, words)], stdin=subprocess.DEVNULL,
                                                 stdout=out, stderr=out, preexec_fn=die_with_parent,
                                                 env=self.environment()))

    def try_step(self):
        """A step that does nothing: whether ranks can be started here at all (names that do not resolve,
        ports that are shut).
        """
        step = self.start_step(self.nodes, ["true"])
        try:
            out = step.communicate(timeout=READY_S)[0]
        except subprocess.TimeoutExpired:
            step.kill()
            out = f"no answer in {READY_S} s: {step.communicate()[0]}"
        if step.returncode != 0:
            raise CannotRun(f"srun true: {' '.join(out.split())}; {self.first_errors()}")

    def all_idle(self):
        asked = subprocess.run([program("sinfo"), "--noheader", "--Node", "--format=%T"],
                               capture_output=True, text=True, env=self.environment(), timeout=READY_S,
                               check=False)
        return asked.stdout.split() == ["idle"] * self.nodes

    def wait_until(self, what, is_so):
        end = time.monotonic() + READY_S
        while not is_so():
            ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            if ended or time.monotonic() > end:
                raise CannotRun(f"waited until {what}; ended: {ended}; {self.first_errors()}")
            time.sleep(0.1)

    def first_errors(self):
        """A line of each log that speaks of a failure."""
        lines = []
        for path in sorted(self.folder.glob("*.log")):
            errors = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
                      if re.search("error: (?!NOTE|Configured MailProg|Could not open .* state file)|fatal",
                                   line)]
            lines += [f"{path.name}: {line}" for line in errors[-1:]]
        return "; ".join(lines)

    def start_step(self, ranks, words, nodes=None, **environment):
        """srun of `words` as a process; its output, of all ranks, line by line with the rank before it."""
        return subprocess.Popen(
            [program("srun"), "--label", "--unbuffered", f"--nodes={nodes or self.nodes}",
             f"--ntasks={ranks}", *map(str, words)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            preexec_fn=die_with_parent, env=self.environment(**environment))

    def stop(self):
        if any(daemon.poll() is None for daemon in self.daemons[1:2]):
            subprocess.run([program("scancel"), "--full", "--signal=KILL", f"--user={getpass.getuser()}"],
                           env=self.environment(), capture_output=True, timeout=READY_S, check=False)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons = []
