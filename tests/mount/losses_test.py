#!/usr/bin/env python3
"""losses_test.py SWALE LIBSWALE: the tree of a job on three nodes, of which one is lost for good with all
that it has: `swale fs recover --without`, and a look at what is left (`--look`).
"""
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

from mounted import SWALE, listing
from nodes_test import NodesCase, PATIENCE_S, wait_until


class Losses(NodesCase):
    def tearDown(self):
        if hasattr(self, "backing"):  # a look may be there
            subprocess.run(["fusermount3", "-u", "-z", self.backing], stderr=subprocess.DEVNULL, check=False)
        super().tearDown()

    # Files of all kinds: new and old ones, of one node and of all; then all is killed.
    def lose_a_node(self):
        nodes, model, roots = 3, {}, {}
        for i in range(9):
            with open(os.path.join(self.backing, f"old-{i}"), "wb") as file:
                file.write(b"o" * 9_000)
            model[f"old-{i}"] = [(b"o", None)] * 9
        started = self.serve("--at-end", "keep", nodes=nodes)

        def write(node, name, blocks):
            file = os.open(self.at(node, name), os.O_RDWR | os.O_CREAT, 0o640)
            known = model.setdefault(name, [])
            for block in blocks:
                byte = b"%d" % (node + 1)
                os.pwrite(file, byte * 1_000, block * 1_000)
                known += [(b"\0", None)] * (block + 1 - len(known))
                known[block] = (byte, node)
            os.close(file)
            roots[name] = os.stat(self.at(node, name)).st_ino >> 52
        for i in range(9):
            for node in range(nodes):
                write(node, f"own-{node}-{i}", range(3))
                write(node, f"shared-{i}", (node, node + 5))
            write(i % nodes, f"old-{i}", (1, 4))
            write(0, f"shared-{i}", (7,))  # over node 2's
        for node in range(2):  # by another node; the table stays where it is
            for i in range(3):
                os.rename(self.at(1 - node, f"own-{node}-{i}"), self.at(1 - node, f"own-{node}-{i}-new"))
                for known in (model, roots):
                    known[f"own-{node}-{i}-new"] = known.pop(f"own-{node}-{i}")
        self.kill_all()
        self.ends(started)
        for node in range(nodes):
            subprocess.run(["fusermount3", "-u", "-z", self.at(node)], check=True)
        return model, roots

    def forget_node(self):
        self.forget_memory_of("buffer-2")
        shutil.rmtree(os.path.join(self.scratch, "buffer-2"))

    def recover_without(self, *options):
        started = [self.start(rank, 2, rank, "fs", "recover", "--buffer", "%b", "--without", "2", "--json",
                              *options, self.backing) for rank in range(2)]
        said = [process.communicate(timeout=PATIENCE_S) for process in started]
        self.assertEqual(said[1][0], "")
        return [process.returncode for process in started], said[0][1], json.loads(said[0][0] or "{}")

    @staticmethod
    def by_name(report):
        return {file.get("path") or file["known_as"]: file for file in report["files"]}

    def judge_report(self, report, model, roots):
        by_name = self.by_name(report)
        for name, blocks in model.items():
            if roots[name] == 2:  # listed, if a node that is left has bytes of it or its name
                if any(node in (0, 1) for _, node in blocks):
                    self.assertEqual(by_name[name]["state"], "lost table", name)
                continue
            lost = [[i * 1_000, i * 1_000 + 1_000, 2] for i, (_, node) in enumerate(blocks) if node == 2]
            for i in range(len(lost) - 1, 0, -1):
                if lost[i - 1][1] == lost[i][0]:
                    lost[i - 1][1] = lost.pop(i)[1]
            file = by_name[name]
            self.assertEqual(file["lost"], lost, name)
            # Only what was renamed may have its table elsewhere than its name.
            whole = "whole" if "path" in file or not name.endswith("-new") else "nameless"
            self.assertEqual(file["state"], "lost ranges" if lost else whole, name)
            self.assertEqual(file["size"], len(blocks) * 1_000, name)
        self.assertLessEqual(set(by_name), set(model))

    def judge_content(self, report, model, roots):
        lost_folder, = (os.path.join(self.backing, ".swale", name)
                        for name in os.listdir(os.path.join(self.backing, ".swale")))

        def read(path):
            with open(path, "rb") as file:
                return file.read()
        by_name = self.by_name(report)
        for name, blocks in model.items():
            path = os.path.join(self.backing, name)
            left = b"".join((b"\0" if node == 2 else byte) * 1_000 for byte, node in blocks)
            if roots[name] != 2 and by_name[name]["state"] == "whole":
                self.assertEqual(read(path), left, name)
                if not name.startswith("old"):
                    self.assertEqual(os.stat(path).st_mode & 0o777, 0o640)
                continue
            if name.startswith("old"):  # as before the job
                self.assertEqual(read(path), b"o" * 9_000)
            else:
                self.assertFalse(os.path.exists(path), name)
            if roots[name] != 2:
                kept, = by_name[name]["kept"]
                self.assertEqual(read(os.path.join(lost_folder, kept)), left, name)
                continue
            found = [read(os.path.join(lost_folder, kept))
                     for kept in sorted(by_name[name]["kept"])] if name in by_name else []
            own = [[i for i, (_, node) in enumerate(blocks) if node == which] for which in (0, 1)]
            if name.startswith("shared"):
                own = [[0, 5, 7], [1, 6]]
            copies = [b"".join((b"%d" % (which + 1) if i in own[which] else b"\0") * 1_000
                               for i in range(own[which][-1] + 1)) for which in (0, 1) if own[which]]
            self.assertEqual(found, copies, name)
        self.assertEqual(json.loads(read(os.path.join(lost_folder, "losses.json")))["files"], report["files"])

    def test_what_a_lost_node_alone_had_is_listed_and_the_rest_is_brought(self):
        model, roots = self.lose_a_node()
        self.forget_node()
        before = listing(self.backing)
        for options in (("--without", "1"), ()):  # node 2 is the one that is not there
            words = ["fs", "recover", "--buffer", "%b", *options, self.backing]
            for status, said in self.ends([self.start(rank, 2, rank, *words) for rank in range(2)]):
                self.assertEqual(status, 2 if options else 3, said)
                self.assertIn("not here: 2" if options else "swale fs recover --without 2", said)
        statuses, said, report = self.recover_without()
        self.assertEqual(statuses, [1, 1], said)
        self.assertIn("nothing was changed", said)
        self.assertFalse(report["accepted"])
        self.judge_report(report, model, roots)
        after = listing(self.backing)
        for seen in (before, after):
            for name in [name for name in seen if name.startswith(".swale")]:
                del seen[name]
        self.assertEqual(after, before)
        statuses, said, report = self.recover_without("--accept-losses")
        self.assertEqual(statuses, [0, 0], said)
        self.assertTrue(report["accepted"])
        self.judge_report(report, model, roots)
        self.judge_content(report, model, roots)
        # Canaries: a report without one of the ranges; old bytes in a lost range.
        hurt = next(file for file in report["files"] if file["lost"] and "path" in file)
        whole = hurt["lost"]
        hurt["lost"] = whole[1:]
        with self.assertRaises(AssertionError):
            self.judge_report(report, model, roots)
        hurt["lost"] = whole
        folder, = os.listdir(os.path.join(self.backing, ".swale"))
        with open(os.path.join(self.backing, ".swale", folder, hurt["kept"][0]), "r+b") as file:
            file.seek(whole[0][0])
            file.write(b"o")
        with self.assertRaises(AssertionError):
            self.judge_content(report, model, roots)
        # The next job has the backing, and leaves what was kept.
        for node in range(2):
            self.assertEqual(os.listdir(os.path.join(self.scratch, f"buffer-{node}")), [])
        for process in (next_job := self.serve(nodes=2)):
            process.send_signal(signal.SIGTERM)
        self.assertEqual([status for status, _ in self.ends(next_job)], [0, 0])
        self.assertEqual(os.listdir(os.path.join(self.backing, ".swale")), [folder])

    def test_a_report_of_losses_leaves_all_to_a_recovery_with_all_nodes(self):
        model, roots = self.lose_a_node()
        statuses, said, report = self.recover_without()
        self.assertEqual(statuses, [1, 1], said)
        self.judge_report(report, model, roots)
        for status, said in self.ends([self.start(rank, 3, rank, "fs", "recover", "--buffer", "%b",
                                                  self.backing) for rank in range(3)]):
            self.assertEqual(status, 0, said)
        for name, blocks in model.items():
            with open(os.path.join(self.backing, name), "rb") as file:
                self.assertEqual(file.read(), b"".join(byte * 1_000 for byte, _ in blocks), name)
        self.nothing_is_left(3)

    def test_a_recovery_without_a_node_that_is_killed_goes_on(self):
        model, roots = self.lose_a_node()
        self.forget_node()

        def there(what):
            found = os.path.join(self.backing, ".swale")
            for folder in os.listdir(found):
                if folder.startswith(("job-", "lost+found-")):
                    try:
                        yield from (name for name in os.listdir(os.path.join(found, folder)) if what in name)
                    except OSError:
                        pass
        for step, reached in (
                ("bytes are written", lambda: any(there("left-"))),
                ("a file is kept", lambda: any(there(".node-"))),
                ("a file has its name", lambda: any(name.startswith("own-")
                                                    for name in os.listdir(self.backing)))):
            words = ["fs", "recover", "--buffer", "%b", "--without", "2", "--accept-losses", self.backing]
            started = [self.start(rank, 2, rank, *words) for rank in range(2)]
            wait_until(step, lambda: reached() or any(process.poll() is not None for process in started),
                       pause_s=0)
            self.kill_all()
            self.ends(started)
            if any(there("losses.json")):
                print(f"killed when {step}: too late")
                return  # nothing is left to be recovered: the machine was slow to kill it
            print(f"killed when {step}")
        statuses, said, report = self.recover_without("--accept-losses")
        self.assertEqual(statuses, [0, 0], said)
        for file in report["files"]:  # as the first one would have said it
            self.assertNotEqual(file["state"], "changed there", file)
        self.judge_report(report, model, roots)
        self.judge_content(report, model, roots)

    def test_a_file_that_others_have_changed_meanwhile_is_kept(self):
        model, roots = self.lose_a_node()
        self.forget_node()
        name = next(name for name, blocks in model.items() if name.startswith("old-") and roots[name] != 2
                    and all(node != 2 for _, node in blocks))
        path = os.path.join(self.backing, name)
        with open(path, "r+b") as file:
            file.write(b"theirs")
            file.truncate(7_000)
        statuses, said, report = self.recover_without("--accept-losses")
        self.assertEqual(statuses, [0, 0], said)
        file = self.by_name(report)[name]
        self.assertEqual(file["state"], "changed there")
        with open(path, "rb") as found:
            self.assertEqual(found.read(), b"theirs" + b"o" * 6_994)
        swale, (kept,) = os.path.join(self.backing, ".swale"), file["kept"]
        with open(os.path.join(swale, os.listdir(swale)[0], kept), "rb") as found:
            content = found.read()
        unwritten = {i for begin, end in file["unwritten"] for i in range(begin // 1_000, end // 1_000)}
        self.assertEqual(unwritten, {i for i, (_, node) in enumerate(model[name]) if node is None})
        self.assertEqual(content, b"".join((b"\0" if i in unwritten else byte) * 1_000
                                           for i, (byte, _) in enumerate(model[name])))

    def test_the_only_node_that_is_left_recovers_alone(self):
        started = self.serve("--at-end", "keep", nodes=2)
        os.mkdir(self.at(0, "d"))
        for i in range(6):
            with open(self.at(0, "d", f"f{i}"), "wb") as file:
                file.write(b"%d" % i * 70_000)
        roots = [os.stat(self.at(0, "d", f"f{i}")).st_ino >> 52 for i in range(6)]
        directory = os.stat(self.at(0, "d")).st_ino >> 52  # its entry is there, too
        self.kill_all()
        self.ends(started)
        for node in range(2):
            subprocess.run(["fusermount3", "-u", "-z", self.at(node)], check=True)
        self.forget_memory_of("buffer-1")
        shutil.rmtree(os.path.join(self.scratch, "buffer-1"))
        left = self.start(0, 1, 0, "fs", "recover", "--buffer", "%b", "--without", "1", "--accept-losses",
                          "--json", self.backing)
        report, said = left.communicate(timeout=PATIENCE_S)
        self.assertEqual(left.returncode, 0, said)
        files = self.by_name(json.loads(report))
        swale = os.path.join(self.backing, ".swale")
        folder = os.path.join(swale, os.listdir(swale)[0])
        for i, root in enumerate(roots):
            file = files[f"d/f{i}"]
            whole = "whole" if directory == 0 else "nameless"
            self.assertEqual(file["state"], whole if root == 0 else "lost table")
            path = os.path.join(self.backing, "d", f"f{i}")
            if file["state"] != "whole":
                self.assertFalse(os.path.exists(path))
                path = os.path.join(folder, *file["kept"])
            with open(path, "rb") as found:
                self.assertEqual(found.read(), b"%d" % i * 70_000)

    def look(self, words, nodes):
        """Mounts what is left on these nodes."""
        started = [self.start(rank, len(nodes), node, "fs", "recover", "--buffer", "%b", *words, "--look")
                   for rank, node in enumerate(nodes)]
        for process in started:
            line = "begin"
            while line and "is mounted, read-only" not in line:
                line = process.stdout.readline()
            self.assertTrue(line, process.stderr.read() if not line else "")
        return started

    def fails(self, expected, call):
        with self.assertRaises(OSError) as failed:
            call()
        self.assertEqual(failed.exception.errno, expected)

    def judge_look(self, node, report, model):
        by_name = self.by_name(report)
        for name, blocks in model.items():
            path, file = self.at(node, name), by_name.get(name)
            if file is None or "path" not in file or file["state"] == "lost table":
                self.fails(errno.EIO, lambda path=path: os.stat(path))
                continue
            self.assertEqual(os.stat(path).st_size, len(blocks) * 1_000, name)
            opened = os.open(path, os.O_RDONLY)
            try:
                for i, (byte, owner) in enumerate(blocks):
                    if owner == 2:
                        self.fails(errno.EIO, lambda i=i, opened=opened: os.pread(opened, 1_000, i * 1_000))
                    else:
                        self.assertEqual(os.pread(opened, 1_000, i * 1_000), byte * 1_000, f"{name}: {i}")
            finally:
                os.close(opened)
            self.fails(errno.EROFS, lambda path=path: os.open(path, os.O_WRONLY))

    def test_a_look_at_what_is_left_shows_no_lost_byte_and_changes_nothing(self):
        model, roots = self.lose_a_node()
        self.forget_node()
        _, _, report = self.recover_without()
        before = listing(self.backing)
        started = self.look(("--without", "2", "--at", "%a", self.backing), (0, 1))
        for node in (1, 0):
            self.judge_look(node, report, model)
        hurt = next(file for file in report["files"] if file["lost"] and "path" in file)["path"]
        i = next(i for i, (_, node) in enumerate(model[hurt]) if node == 2)
        for byte in (b"o", b"\0"):  # canaries: old bytes, and zeros, where bytes are lost
            false = {hurt: [*model[hurt][:i], (byte, None), *model[hurt][i + 1:]]}
            with self.assertRaises(OSError):
                self.judge_look(0, report, false)
        listed = os.listdir(self.at(0))
        self.assertNotIn(".swale", listed)
        self.assertLessEqual({file["path"] for file in report["files"] if "path" in file}, set(listed))
        for process in started:
            process.send_signal(signal.SIGTERM)
        for status, said in self.ends(started):
            self.assertEqual(status, 1, said)
            lines = [line for line in said.splitlines() if f"/{hurt}: bytes " in line]
            self.assertEqual(len(lines), 1, said)
            self.assertIn("on node 2 alone", lines[0])
            self.assertIn(f"swale fs recover {self.backing} --without 2 --accept-losses", lines[0])
        after = listing(self.backing)
        for seen in (before, after):
            for name in [name for name in seen if name.startswith(".swale")]:
                del seen[name]
        self.assertEqual(after, before)
        statuses, said, report = self.recover_without("--accept-losses")
        self.assertEqual(statuses, [0, 0], said)
        self.judge_content(report, model, roots)

    def test_a_node_that_ends_during_a_look_is_named_and_nobody_waits_for_it(self):
        model, roots = self.lose_a_node()
        self.forget_node()
        _, _, report = self.recover_without()
        by_name = self.by_name(report)
        look, other = self.look(("--without", "2", "--at", "%a", self.backing), (0, 1))
        name, i = next((name, i) for name, blocks in model.items() for i, (_, node) in enumerate(blocks)
                       if node == 1 and roots[name] != 2 and "path" in by_name[name])
        mine, j = next((name, i) for name, blocks in model.items() for i, (_, node) in enumerate(blocks)
                       if node == 0 and roots[name] != 2 and "path" in by_name[name])
        opened, kept = (os.open(self.at(0, each), os.O_RDONLY) for each in (name, mine))
        try:
            self.assertEqual(os.pread(opened, 1_000, i * 1_000), b"2" * 1_000)
            other.kill()
            other.wait()
            wait_until("the kernel has let it go", lambda: not self.servers(self.at(1)))
            self.fails(errno.EIO, lambda: os.pread(opened, 1_000, i * 1_000))
            self.assertEqual(os.pread(kept, 1_000, j * 1_000), b"1" * 1_000)
        finally:
            os.close(opened)
            os.close(kept)
        look.send_signal(signal.SIGTERM)
        (status, said), = self.ends([look])
        self.assertNotIn(status, (0, 1), said)
        line, = (line for line in said.splitlines() if f"/{name}: " in line)
        self.assertIn("node 1", line)
        self.assertNotIn("--accept-losses", line)  # nothing of it is lost
        statuses, said, report = self.recover_without("--accept-losses")
        self.assertEqual(statuses, [0, 0], said)
        self.judge_content(report, model, roots)

    def test_a_look_over_the_backing_itself_hides_its_old_bytes(self):
        for i in range(6):
            with open(os.path.join(self.backing, f"old-{i}"), "wb") as file:
                file.write(b"o" * 9_000)
        started = self.serve("--at-end", "keep", nodes=2)
        for i in range(6):
            with open(self.at(1, f"old-{i}"), "r+b") as file:
                file.write(b"1" * 1_000)
        roots = [os.stat(self.at(0, f"old-{i}")).st_ino >> 52 for i in range(6)]
        self.kill_all()
        self.ends(started)
        for node in range(2):
            subprocess.run(["fusermount3", "-u", "-z", self.at(node)], check=True)
        self.forget_memory_of("buffer-1")
        shutil.rmtree(os.path.join(self.scratch, "buffer-1"))
        look, = self.look(("--without", "1", self.backing), (0,))
        for i, root in enumerate(roots):
            path = os.path.join(self.backing, f"old-{i}")
            if root == 1:
                self.fails(errno.EIO, lambda path=path: os.stat(path))
                continue
            with open(path, "rb", buffering=0) as file:
                self.fails(errno.EIO, lambda file=file: file.read(1_000))
                file.seek(1_000)
                self.assertEqual(file.read(9_000), b"o" * 8_000)
        self.assertIn(0, roots)
        said = subprocess.run([SWALE, "fs", "stat", self.backing, "--json"], capture_output=True, text=True,
                              check=True).stdout
        self.assertEqual(json.loads(said)["without"], [1])
        again = self.start(0, 1, 0, "fs", "recover", "--buffer", "%b", "--without", "1", self.backing)
        (status, said), = self.ends([again])
        self.assertNotIn(status, (0, 1), said)
        self.assertIn("a job has it now", said)
        subprocess.run(["fusermount3", "-u", self.backing], check=True)
        (status, said), = self.ends([look])
        self.assertEqual(status, 1, said)
        with open(os.path.join(self.backing, "old-0"), "rb") as file:
            self.assertEqual(file.read(), b"o" * 9_000)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
