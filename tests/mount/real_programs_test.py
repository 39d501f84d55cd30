#!/usr/bin/env python3
"""real_programs_test.py SWALE LIBSWALE PRELOAD [--long]: programs that know nothing of Swale, natively and in
the tree of a job: through its mount, through the preload library, and on two nodes in turn.

A program is a list of steps. In a plain directory they run one after the other; on two nodes each step runs
on the other node than the one before, so it finds what that has left. What each step prints, and all files in
the end, must be the same, seen through the mounts and in the backing directory. --long: also programs that
take a minute or large packages (Go, LAMMPS, GROMACS), and two nodes with the preload library.
"""
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

import gromacs_restart
from mounted import SWALE, listing, run
from nodes_test import PATIENCE_S, NodesCase

PRELOAD = os.path.abspath(sys.argv[3])
LONG = "--long" in sys.argv
HERE = os.path.dirname(os.path.abspath(__file__))
# Of a name: nodes, and what the environment has for the library, if it is loaded.
PRELOADED = {"LD_PRELOAD": PRELOAD}
LIGHT = dict(PRELOADED, SWALE_FS_DESCRIPTORS="light")
WAYS = {"mount": (1, {}), "preload": (1, PRELOADED), "nodes": (2, {}), "light": (1, LIGHT)}
if LONG:
    WAYS["nodes and preload"] = (2, PRELOADED)
ALSO_LIGHT = ("cp and dd", "sort and pipelines", "find")  # in the short run
ENVIRONMENT = dict(os.environ, LC_ALL="C", TZ="UTC", PYTHONDONTWRITEBYTECODE="1",
                   GIT_AUTHOR_NAME="a", GIT_AUTHOR_EMAIL="a@b", GIT_COMMITTER_NAME="a",
                   GIT_COMMITTER_EMAIL="a@b", GIT_AUTHOR_DATE="2026-01-01T00:00:00Z",
                   GIT_COMMITTER_DATE="2026-01-01T00:00:00Z", GIT_CONFIG_GLOBAL="/dev/null",
                   GIT_CONFIG_SYSTEM="/dev/null", GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="pack.threads",
                   GIT_CONFIG_VALUE_0="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                   OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
                   PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMP_NUM_THREADS="1")
# What is there of names, sizes, modes and times that a program has set.
FIND = "find {} -type f -printf '%P %s %m %T@\\n' | sort"
SOURCE = """
    mkdir -p source/a/b source/c; seq 1 300000 > source/large; seq 1 7 > source/a/small; : > source/c/empty
    for i in $(seq 1 40); do seq 1 $((i * 97)) > source/a/b/f$i; done; ln -s ../large source/a/link
    chmod 600 source/a/b/f7; chmod 755 source/a/b/f8
    find source -exec touch -h -d @1700000000 {} +"""
MAKEFILE = """all: sums
sums: $(patsubst %,%.sum,$(sort $(wildcard source/a/b/f*[0-9] source/new)))
	cat $^ > $@
%.sum: %
	cksum < $< > $@
"""
TOOLS = {
    "tar": [SOURCE + "; tar --sort=name -cf all.tar source; cksum all.tar",
            "mkdir out; tar -C out -xf all.tar; diff -r --no-dereference source out/source; "
            + FIND.format("out"),
            # A drain meanwhile would change the times of directories, of which tar complains.
            "find out -type f -exec sync {} +; tar --sort=name -C out -cf again.tar source; "
            "cmp all.tar again.tar; touch -d @1700000200 all.tar; rm -r source",
            "tar -rf again.tar all.tar; tar -tf again.tar | tail -2; tar -df all.tar -C out"],
    "cp and dd": [SOURCE + "; cp -a source copy; " + FIND.format("copy"),
                  "dd if=copy/large of=parts bs=1000 seek=3 count=700 conv=notrunc status=none; cksum parts",
                  "dd if=copy/large of=parts bs=512 seek=100 skip=9 count=99 conv=notrunc,fsync status=none; "
                  "truncate -s 700001 parts; cksum parts",
                  "cp --sparse=always parts holes; cp -r copy/a two; mv copy/large two/moved; "
                  "cmp parts holes; "
                  "dd if=parts bs=64k status=none | dd of=piped bs=1k iflag=fullblock status=none; ls -R"],
    "sort and pipelines": [
        "seq 1 200000 | awk '{ print $1 * 7919 % 200003, \"line\" }' > lines; wc lines",
        "sort -n lines | uniq | tee teed | tail -50000 > sorted; sort -n -S 1M -T . -o parts lines; "
        "cmp teed parts; wc -l sorted teed",
        "for i in 1 2 3; do echo \"round $i\"; done >> sorted 2>&1; "
        "{ grep -c 7 lines; tail -1 sorted; } >> log",
        "exec 5>> log; echo one >&5; ( echo two >&5 ); sh -c 'echo three >&5'; exec 5>&-; cat log; "
        "split -n 5 lines part-; cat part-* | cmp - lines; sed -i s/line/LINE/ lines; cksum lines"],
    "rsync": [SOURCE + "; rsync -a source/ mirror; " + FIND.format("mirror"),
              "printf changed | dd of=source/large bs=1 seek=300000 conv=notrunc status=none; "
              "rm source/a/b/f3; seq 1 9 > source/new; touch -d @1700000100 source/large source/new; "
              "rsync -a --delete --inplace --no-whole-file source/ mirror; "
              "diff -r --no-dereference source mirror",
              "rsync -aOnci --delete source/ mirror; rsync -a --delete --no-whole-file source/ by-rename; "
              "rsync -a --sparse --partial --append source/large grown; " + FIND.format("by-rename")],
    "find": [SOURCE + "; find . -type f -size +1 -newermt @1600000000 -printf '%P %s %m %n %T@\\n' | sort",
             "find . -type l -printf '%P %l\\n'; find source -name 'f*7' -delete; find source -empty | sort",
             "find source -type f -print0 | sort -z | xargs -0 cat | cksum"],
    "make": [SOURCE + "; cat > Makefile << 'END'\n" + MAKEFILE
             + "END\nmake -j4 > /dev/null; cat sums | cksum",
             "make -q && echo nothing to do; touch source/a/b/f9; make | grep -c cksum",
             "make -q && echo nothing to do; seq 3 > source/new; make; cat sums | cksum"],
    "git": [SOURCE + "; git init -q -b main source; cd source; git add -A; git commit -qm first; "
            "git rev-parse HEAD HEAD^{tree}",
            "git clone -q --no-local source clone; cd clone; git config remote.origin.url ../source; "
            "for i in 1 2 3; do echo $i >> new; git add -A; git commit -qm $i; done; "
            "git log --format='%H %T'; git status --porcelain",
            "cd clone; git status --porcelain; git gc -q; git fsck --strict; "
            "git push -q origin HEAD:refs/heads/other; git cat-file --batch-all-objects --batch-check",
            "cd source; git merge -q other; git status --porcelain; git fsck --strict; "
            "git log --format='%H %T'",
            "git -C clone status --porcelain; git -C clone cat-file --batch-all-objects --batch | cksum; "
            # The index has times and inode numbers; a pack, one of several orders of the same objects, by
            # which it is called in info/packs.
            "rm source/.git/index clone/.git/index clone/.git/objects/pack/* clone/.git/objects/info/packs"],
    "sqlite": ["sqlite3 base.db 'pragma journal_mode=delete; create table t (i integer primary key, x text)'",
               "for i in 1 2 3; do sqlite3 base.db \"with recursive c(n) as (select 1 union all select n+1 "
               "from c where n < 500) insert into t(x) select 'row ' || (n * $i) from c\"; done; "
               "sqlite3 base.db 'select count(*), sum(i), max(x) from t; pragma integrity_check'",
               "sqlite3 base.db 'create index by_x on t(x); delete from t where i % 3 = 0; vacuum; "
               "pragma integrity_check'",
               "sqlite3 base.db .dump | cksum; sqlite3 base.db 'select count(*) from t where x > \"row 7\"'"],
}
FIO_ENGINES = {"psync": "", "pvsync2": "", "posixaio": "", "libaio": "--direct=1", "io_uring": "", "mmap": ""}
# The steps of one module of Python; what it has left is read by another process.
NOT_IN_EACH_RELEASE = ("zarr", "pyarrow")  # of Debian: where they are missing the long run skips them
PYTHON = {
    "numpy": ["""
import numpy as np
np.save("a.npy", np.arange(300000).reshape(300, 1000))
mapped = np.memmap("mapped", dtype="<f8", mode="w+", shape=(400, 1003))
mapped[::3] = np.arange(1003); mapped.flush()
np.savez("both.npz", one=np.ones(1000), two=np.arange(5))
""", """
import numpy as np
print(np.load("a.npy", mmap_mode="r")[7].sum(), np.fromfile("mapped").sum())
mapped = np.memmap("mapped", dtype="<f8", mode="r+", shape=(400, 1003))
mapped[1] = 5; mapped.flush()
print(sorted(np.load("both.npz")))
""", """
import numpy as np
print(np.fromfile("mapped").sum(), np.load("both.npz")["two"])
import os; os.unlink("both.npz")  # a zip: it has the time
"""],
    "h5py": ["""
import h5py, numpy as np
with h5py.File("f.h5", "w") as f:
    f.create_dataset("x", data=np.arange(100000), chunks=(1000,), maxshape=(None,), compression="gzip")
    f.create_group("g").attrs["a"] = 3
""", """
import h5py, numpy as np
with h5py.File("f.h5", "r+") as f:
    f["x"].resize((150000,)); f["x"][100000:] = 7; f["g/y"] = np.ones((300, 300))
""", """
import h5py
with h5py.File("f.h5", "r") as f: print(f["x"][:].sum(), f["g/y"][:].sum(), f["g"].attrs["a"])
"""],
    "zarr": ["""
import zarr
z = zarr.open("z.zarr", mode="w", shape=(1000, 300), chunks=(100, 100), dtype="i4")
z[:] = 3
""", """
import zarr
z = zarr.open("z.zarr", mode="r+"); z[10:500, 5] = 9; z.attrs["a"] = "b"; z.append(z[:100])
""", """
import zarr
z = zarr.open("z.zarr", mode="r"); print(z.shape, z[:].sum(), z.attrs["a"])
"""],
    "pyarrow": ["""
import pyarrow as pa, pyarrow.parquet as pq, pyarrow.feather as pf
table = pa.table({"i": list(range(50000)), "s": ["row %d" % (i % 99) for i in range(50000)]})
pq.write_table(table, "t.parquet"); pf.write_feather(table, "t.feather", compression="uncompressed")
pq.write_to_dataset(table.slice(0, 3000), "set", partition_cols=["s"], basename_template="part-{i}.parquet")
""", """
import pyarrow.parquet as pq, pyarrow.feather as pf, pyarrow as pa
print(pq.read_table("t.parquet", filters=[("i", ">", 49000)]).num_rows)
table = pf.read_table("t.feather", memory_map=True); print(table.num_rows, table["i"][777])
with pa.OSFile("t.arrow", "wb") as sink, pa.ipc.new_file(sink, table.schema) as out: out.write_table(table)
""", """
import pyarrow as pa, pyarrow.parquet as pq
print(pa.ipc.open_file(pa.memory_map("t.arrow")).read_all().num_rows, pq.read_table("set").num_rows)
"""],
    "multiprocessing": ["""
import subprocess, sys
with open("pools.py", "w") as out: out.write('''
import multiprocessing
def fill(name, part):
    with open(name, "r+b", buffering=0) as file:
        for i in range(200):
            file.seek((i * 4 + part) * 1000); file.write(bytes([part + 1]) * 1000)
    return type(multiprocessing.current_process()).__name__, part
if __name__ == "__main__":
    for method in ("fork", "forkserver", "spawn"):
        open(method, "wb").close()
        with multiprocessing.get_context(method).Pool(4) as pool:
            print(sorted(pool.starmap_async(fill, [(method, part) for part in range(4)], 1).get(%d)))
''')
subprocess.run([sys.executable, "pools.py"], check=True)
""" % PATIENCE_S, """
import concurrent.futures, subprocess, sys
with open("log", "ab", buffering=0) as log:
    for i in range(50): log.write(b"%d\\n" % i)
    subprocess.run(["echo", "by a child"], stdout=log, check=True); log.write(b"after\\n")
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(lambda i: len(open("spawn", "rb").read(1000 * i)), range(50))))
"""],
}
STATIC = [f"{name} . {more}" for name, more in (
    ("random", "1 500"), ("random", "2 500"), ("fork", ""), ("exec", ""), ("spawn", ""), ("pass", ""),
    ("threads", ""), ("streams", ""), ("numbers", ""), ("many", "1 200"))]
LAMMPS = """
units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 6 0 6 0 6
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
fix 1 all nve
dump d all custom 50 dump.* id x y z vx vy vz
dump_modify d sort id
restart 50 restart.*
run 100
write_data end.data
"""
GROMACS = {"md.mdp": "integrator=md\nnsteps=100\ndt=0.002\nnstxout=20\nnstvout=20\nnstenergy=20\n"
           "nstxout-compressed=10\ncutoff-scheme=Verlet\ncoulombtype=PME\nrcoulomb=0.8\nrvdw=0.8\n"
           "tcoupl=v-rescale\ntc-grps=System\ntau-t=0.1\nref-t=300\ngen-vel=yes\ngen-seed=7\nld-seed=9\n"
           "constraints=h-bonds\n",
           "topol.top": '#include "oplsaa.ff/forcefield.itp"\n#include "oplsaa.ff/spc.itp"\n'
           "[ system ]\nwater\n[ molecules ]\n"}


def differing(found, wanted):
    """{name: what it is, and should be} of what is not the same."""
    return {name: (found.get(name), wanted.get(name)) for name in found.keys() | wanted.keys()
            if found.get(name) != wanted.get(name)}


class RealPrograms(NodesCase):
    def setUp(self):
        super().setUp()
        self.plain = self.make("plain")
        self.past_kernel = 0  # files

    def needs(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")

    def step(self, folder, script, library):
        environment = dict(ENVIRONMENT, **library)
        done = subprocess.run(["sh", "-c", "set -e\n" + script], cwd=folder, env=environment,
                              capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        return done.returncode, done.stdout, done.stderr.replace(folder, "")

    def same(self, steps, ways=None, without=lambda name: False, sub_test=None, light=LONG, masked=None):
        """`without`: names of files that are never the same; `masked`: by how a name ends, what their content
        has in common. `light`: also with files past the kernel."""
        ways = ways or [way for way in WAYS if way != "light" or light]

        def left(folder):
            found = {name: what for name, what in listing(folder).items() if not without(name)}
            for end, mask in (masked or {}).items():
                for name in (name for name in found if name.endswith(end)):
                    with open(os.path.join(folder, name), "rb") as file:
                        found[name] = (found[name][0], hashlib.sha256(mask(file.read())).hexdigest())
            return found

        self.empty(self.plain)
        native = [self.step(self.plain, script, {}) for script in steps]
        for script, done in zip(steps, native):
            self.assertEqual(done[0], 0, f"{script}: {done}")
        wanted = left(self.plain)
        self.assertGreater(len(wanted), 0)
        for way in ways:
            with sub_test() if sub_test else self.subTest(way=way):
                nodes, library = WAYS[way]
                self.empty(self.backing)
                with self.tree(nodes):
                    for i, script in enumerate(steps):
                        self.assertEqual(self.step(self.at(i % nodes), script, library), native[i], script)
                    for node in range(nodes):
                        self.assertEqual(differing(left(self.at(node)), wanted), {}, f"node {node}")
                    self.past_kernel += self.made_past_kernel() if way == "light" else 0
                self.assertEqual(differing(left(self.backing), wanted), {})
                self.nothing_is_left(nodes)

    def made_past_kernel(self):
        said = json.loads(run(SWALE, "fs", "stat", "--json", self.at(0)))
        return said["light_creates"] + said["light_opens"]

    @contextlib.contextmanager
    def tree(self, nodes):
        """All is brought to the backing in the end."""
        started = self.serve(nodes=nodes)
        try:
            yield
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            ended = self.ends(started)
        for status, said in ended:
            self.assertEqual(status, 0, said)

    def empty(self, folder):
        shutil.rmtree(folder)
        os.mkdir(folder)

    def python(self, module):
        built = os.path.join(HERE, "../../build/python-venv/bin/python")
        for each in (sys.executable, "/usr/bin/python3", built):
            if os.path.exists(each) and subprocess.run([each, "-c", f"import {module}"], capture_output=True,
                                                       check=False).returncode == 0:
                return each
        return self.skipTest(f"no Python here has {module}")

    def test_tools(self):
        for name, steps in TOOLS.items():
            with self.subTest(name=name):
                self.needs(*(each for each in ("rsync", "git") if each == name),
                           *(["sqlite3"] if name == "sqlite" else []))
                self.same(steps, light=LONG or name in ALSO_LIGHT)
        print(f"{self.past_kernel} files were opened past the kernel")
        self.assertGreater(self.past_kernel, 0)

    def test_fio(self):
        self.needs("fio")
        steps = []
        for engine, more in FIO_ENGINES.items():
            for kind in ("write", "randrw"):
                steps.append(f"fio --name={engine}-{kind} --ioengine={engine} --rw={kind} --bs=4k-64k "
                             "--size=2M --verify=pattern --verify_pattern=%o --do_verify=1 --iodepth=8 "
                             f"--fallocate=none --end_fsync=1 --verify_state_save=0 {more} > /dev/null")
        self.same(steps, light=False)  # it has libaio, and would say so

    def test_python(self):
        for module, scripts in PYTHON.items():
            if module in NOT_IN_EACH_RELEASE and not LONG:
                continue
            with self.subTest(module=module):
                python = self.python(module)
                self.same([f"{python} - << 'END'\n{script}END" for script in scripts])

    def test_a_static_program(self):
        program = os.path.join(self.scratch, "static")
        run("gcc", "-static", "-std=c11", "-O1", "-w", "-pthread", os.path.join(HERE, "../preload/steps.c"),
            "-o", program)
        handler = os.path.join(self.scratch, "handler")
        run("gcc", "-static", "-std=c11", "-O1", "-w", os.path.join(HERE, "../preload/handler_steps.c"), "-o",
            handler)
        self.same([*(f"{program} {words}" for words in STATIC), f"{handler} ."])

    if LONG:
        def test_a_go_program(self):
            self.needs("go")
            program = os.path.join(self.scratch, "program")
            run("go", "build", "-o", program, os.path.join(HERE, "go_program.go"),
                env=dict(os.environ, GOCACHE=os.path.join(self.scratch, "cache"), GOFLAGS="-mod=mod"))
            self.same([f"{program} {step}" for step in ("write", "change", "read")])

        def test_lammps(self):
            self.needs("lmp", "mpirun.openmpi")
            command = "mpirun.openmpi -n 2 lmp -log none -screen none -in"
            again = "read_restart restart.50\npair_coeff 1 1 1.0 1.0 2.5\nfix 1 all nve\nrun 50\n" \
                    "write_restart again.100\nwrite_data again.data\n"
            self.same([f"cat > in << 'END'\n{LAMMPS}END\n{command} in; ls",
                       f"cat > in.again << 'END'\n{again}END\n{command} in.again; ls"])

        def test_gromacs(self):
            self.needs("gmx")
            files = "".join(f"cat > {name} << 'END'\n{text}END\n" for name, text in GROMACS.items())
            md = "gmx -quiet -nobackup mdrun -reprod -nt 1 -deffnm run"
            self.same([files + "gmx -quiet solvate -cs spc216 -box 2 2 2 -o box.gro -p topol.top "
                       "2> /dev/null; "
                       "gmx -quiet grompp -f md.mdp -c box.gro -p topol.top -o run.tpr 2> /dev/null; ls",
                       f"{md} -cpt 0 -nsteps 50 > /dev/null 2>&1; cp run.cpt half.cpt; ls",
                       f"{md} -cpi run.cpt -nsteps 100 > /dev/null 2>&1; ls"],
                      # run.tpr has a seed that nothing uses.
                      without=lambda name: name.endswith((".log", ".tpr", "mdout.mdp")),
                      masked={".cpt": gromacs_restart.masked})

    def test_canary_of_a_restart_file_of_gromacs_all_but_date_and_log_is_compared(self):
        def restart(date=b"Mon Nov 30 05:21:49 2026\n", log=b"\x59", state=b"\x40\xb9"):
            return b"".join((b"\0\0\0\x0c/usr/bin/gmx\0\0\0\x19", date, b"\0\0\0", state,
                             b"\0\0\0\x07run.log\0", log * 76, b"\0\0\0\x07run.xtc\0", state * 38))
        masked = gromacs_restart.masked
        wanted = masked(restart())
        self.assertEqual(masked(restart(date=b"Tue Dec  1 15:00:07 2026\n", log=b"\n")), wanted)
        self.assertNotEqual(masked(restart(state=b"\x40\xb8")), wanted)
        with self.assertRaises(AssertionError):
            masked(restart(date=b"no date"))
        self.assertEqual(len(wanted), len(restart()))

    def test_canary_what_differs_is_noticed(self):
        for change in ("echo other > file", "chmod 640 file", "rm file", ": > another", "echo said"):
            script = f"echo one > file; case $PWD in */plain) ;; *) {change} ;; esac"
            with self.assertRaises(AssertionError):
                self.same([script], ways=["mount"], sub_test=contextlib.nullcontext)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
