#!/usr/bin/env python3
"""fix_test.py SWALE_LMP SWALE: what the fix writes is what LAMMPS's own dump writes, number by number; a run
that continues from a checkpoint replaces the frames after it; mistakes take one line.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SWALE_LMP, SWALE = (os.path.abspath(path) for path in sys.argv[1:3])
INPUT = Path(__file__).resolve().with_name("in.melt")
STRESS = [f"c_stress[{i}]" for i in range(6)]
FIELDS = ["type", "x", "y", "z", "xu", "yu", "zu", "ix", "iy", "iz", "vx", "vy", "vz", "fx", "fy", "fz",
          "c_pe", *STRESS, "f_mean", "v_speed"]
# As examples/lammps/mpi-env.sh.
ENVIRONMENT = {**os.environ, "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_mpi_yield_when_idle": "1",
               "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_btl_tcp_if_include": "lo",
               "OMP_NUM_THREADS": "1"}
if os.geteuid() == 0:
    ENVIRONMENT.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def records_of_dump(path):
    """(step, atom) -> numbers, of a text dump."""
    found, step, rows = {}, None, 0
    lines = iter(path.read_text(encoding="ascii").splitlines())
    for line in lines:
        if line == "ITEM: TIMESTEP":
            step = int(next(lines))
        elif line == "ITEM: NUMBER OF ATOMS":
            rows = int(next(lines))
        elif line.startswith("ITEM: ATOMS"):
            for _ in range(rows):
                atom, *numbers = next(lines).split()
                found[step, int(atom)] = [float(number) for number in numbers]
    return found


def differences(ours, theirs):
    """The places at which the records differ; NaN does not occur."""
    return sorted(place for place in {*ours, *theirs} if ours.get(place) != theirs.get(place))


class Fix(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="swale-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def lammps(self, ranks, *variables, fails=False, text=None):
        words = ["mpirun.openmpi", "-n", str(ranks), SWALE_LMP, "-in", str(INPUT), "-screen", "none"]
        if text is not None:
            words[5] = str(self.folder / "in.other")
            Path(words[5]).write_text(text, encoding="ascii")
        for name, value in zip(variables[::2], variables[1::2]):
            words += ["-var", name, str(value)]
        done = subprocess.run(words, cwd=self.folder, env=ENVIRONMENT, capture_output=True, text=True,
                              timeout=300)
        log = (self.folder / "log.lammps").read_text(encoding="utf-8")
        self.assertEqual(done.returncode != 0, fails, done.stdout + done.stderr + log)
        return log

    def swale(self, *words):
        return subprocess.run([SWALE, *words], cwd=self.folder, check=True, capture_output=True, text=True,
                              timeout=120).stdout

    def records(self, more=()):
        fields = ",".join(["step", "key", *FIELDS, *more])
        table = self.swale("scan", "run", "--format", "csv", "--fields", fields)
        rows = [line.split(",") for line in table.splitlines()[1:]]
        return {(int(row[0]), int(row[1])): [float(number) for number in row[2:]] for row in rows}

    def test_records_are_those_of_the_dump(self):
        for ranks in (1, 3):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            self.lammps(ranks, "dump", "yes")
            ours, theirs = self.records(), records_of_dump(self.folder / "text.dump")
            self.assertEqual(len(theirs), 11 * 235)
            self.assertEqual(differences(ours, theirs), [])
            self.swale("verify", "run")
        # The canary: the last digit of a number.
        place = max(ours)
        ours[place][4] *= 1 + 2**-52
        self.assertEqual(differences(ours, theirs), [place])

    def test_what_other_kinds_of_atoms_have(self):
        for style, more, change in (
                ("full", "mol q mass", ['"set region left charge 0.25"', '"set region left mol 3"']),
                ("sphere", "radius mass", ['"set region left diameter 0.75"'])):
            shutil.rmtree(self.folder / "run", ignore_errors=True)
            text = INPUT.read_text(encoding="ascii")
            text = text.replace('"units lj" &', f'"units lj" "atom_style {style}" &')
            text = text.replace('  "set region left type 2" &', "  " + " ".join(change) + " &")
            if style == "sphere":
                text = text.replace('  "mass * 1.0" &\n', "")
            self.lammps(2, "dump", "yes", "more", more, "steps", 10, text=text)
            ours, theirs = self.records(more.split()), records_of_dump(self.folder / "text.dump")
            self.assertEqual(len(theirs), 2 * 235)
            self.assertEqual(differences(ours, theirs), [])
            self.assertNotEqual(min(theirs.values())[-2], 0)

    def test_attributes_say_what_exports_need(self):
        self.lammps(2)
        lines = [json.loads(line) for line in self.swale("info", "run", "--json").splitlines()]
        text = json.dumps(lines)
        for name in ('"units": "lj"', '"periodic": [true, true, true]', '"position": ["x", "y", "z"]',
                     '"velocity": ["vx", "vy", "vz"]', '"species": "type"'):
            self.assertIn(name, text)
        self.assertIn('"box": [[8.39', text)  # three edges, as the box is tilted

    def test_a_restart_replaces_what_came_after_its_checkpoint(self):
        self.lammps(2)
        before = self.records()
        self.lammps(3, "from", 50, "steps", 30, "dump", "yes")
        after, theirs = self.records(), records_of_dump(self.folder / "text.dump")
        self.assertEqual({step for step, _ in after}, set(range(0, 81, 10)))
        kept = {place: row for place, row in before.items() if place[0] <= 50}
        self.assertEqual(differences({**after, **kept}, after), [], "frames up to the checkpoint stay")
        # LAMMPS's dump begins at the checkpoint, which the first run has written.
        again = {place: row for place, row in theirs.items() if place[0] > 50}
        self.assertTrue(again)
        later = {place: row for place, row in after.items() if place[0] > 50}
        self.assertEqual(differences(again, later), [])

    def test_a_lost_frame_of_the_checkpoint_is_written_again(self):
        """The directory has less than the checkpoint's step, as if somebody had removed it."""
        self.lammps(2, "steps", 100)
        shutil.rmtree(self.folder / "run")
        self.lammps(2, "from", 50, "steps", 20)
        self.assertEqual({step for step, _ in self.records()}, {50, 60, 70})

    def test_another_run_with_the_same_steps_drops_nothing(self):
        """It begins the fix at step 50, as a run from the checkpoint does, but comes from no restart file."""
        self.lammps(2)
        before = self.records()
        text = INPUT.read_text(encoding="ascii")
        where = "fix          frames"
        self.assertEqual(text.count(where), 1)
        log = self.lammps(2, fails=True, text=text.replace(where, "run 50\n" + where))
        self.assertIn("run has epochs of step 50 or later", log)
        log = self.lammps(2, "from", 50, fails=True, text=text.replace(where, "fix          others"))
        self.assertIn("a fix swale with this ID", log)
        self.assertEqual(differences(self.records(), before), [])

    def test_several_runs_in_one_input(self):
        text = INPUT.read_text(encoding="ascii") + "run 7\nrun 13\nunfix frames\nrun 10\n"
        self.lammps(2, "steps", 20, text=text)
        self.assertEqual({step for step, _ in self.records()}, {0, 10, 20, 30, 40})

    def test_mistakes_take_one_line_and_say_what_to_do(self):
        def says(expected, **changes):
            text = INPUT.read_text(encoding="ascii")
            for old, new in changes.get("change", {}).items():
                self.assertIn(old, text)
                text = text.replace(old, new)
            log = self.lammps(2, *changes.get("variables", ()), fails=True, text=text)
            [error] = [line for line in log.splitlines() if line.startswith("ERROR")]
            self.assertIn(f"fix swale: {expected}", error)

        self.lammps(2, "steps", 0)
        says("run has epochs of step 0 or later, and this run does not come from a restart file")
        shutil.rmtree(self.folder / "run")
        says("no field vv; there are type mol", variables=("more", "vv"))
        says("no compute nothing", variables=("more", "c_nothing"))
        says("compute thermo_temp has no numbers for each atom", variables=("more", "c_thermo_temp"))
        says("no atom-style variable steps", variables=("more", "v_steps"))
        says("atoms of this atom_style have no q", variables=("more", "q"))
        says("extrema vx2: no such field", change={"extrema c_pe": "extrema vx2"})
        says("N is 0: expected 1 or more steps", change={"swale 10 ": "swale 0 "})
        says("fix mean has numbers every 10 steps: make N a multiple of that",
             change={"swale 10 ": "swale 5 "})
        (self.folder / "file").write_text("no directory", encoding="ascii")
        says("file/run/swale.json: opening: Not a directory", variables=("out", "file/run"))
        self.assertFalse((self.folder / "run").exists())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
