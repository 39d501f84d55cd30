#!/usr/bin/env python3
"""check_command_test.py SWALE LIBRARY: what `swale check` says of programs that are linked for it."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

SWALE, LIBRARY = map(os.path.abspath, sys.argv[1:3])
SOURCES = {
    "plain": "int main(void) { return 0; }",
    "streams": "#include <stdio.h>\nint main(void) { return fopen(\"x\", \"w\") == NULL; }",
    "posix_aio": "#include <aio.h>\nint main(void) { struct aiocb one = {0}; return aio_write(&one); }",
}


class Check(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="swale-check-", dir=os.getcwd())
        self.addCleanup(folder.cleanup)
        self.scratch = folder.name

    def build(self, name, *words):
        source = os.path.join(self.scratch, name + ".c")
        with open(source, "w", encoding="ascii") as file:
            file.write(SOURCES[name])
        return self.cc(source, "-o", os.path.join(self.scratch, name), *words)

    def cc(self, *words):
        subprocess.run(["cc", *words], check=True)
        return words[words.index("-o") + 1]

    def linked_with(self, library):
        """The plain program, and a library of that name that it needs."""
        made = self.cc("-shared", "-x", "c", "/dev/null", f"-Wl,-soname,{library}.so.1", "-o",
                       os.path.join(self.scratch, f"{library}.so"))
        return self.build("plain", "-Wl,--no-as-needed", made)

    def said(self, program):
        done = subprocess.run([SWALE, "check", "--json", program], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def remarks(self, program):
        return " ".join(self.said(program)["remarks"])

    def test_a_plain_program_has_no_remarks(self):  # the canary of the others
        self.assertEqual(self.said(self.build("plain"))["remarks"], [])

    def test_the_library_is_named(self):
        program = self.build("plain")
        self.assertEqual(os.path.realpath(self.said(program)["library"]), os.path.realpath(LIBRARY))
        text = subprocess.run([SWALE, "check", program], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"LD_PRELOAD={os.path.realpath(LIBRARY)}", text)

    def test_streams_that_write_have_large_requests(self):
        self.assertIn("those that write, by requests of 128 KiB", self.remarks(self.build("streams")))

    def test_calls_past_the_c_library_keep_descriptors_the_kernels(self):
        for library in ("liburing", "libaio"):
            remark = self.remarks(self.linked_with(library))
            self.assertIn(library.replace("liburing", "io_uring"), remark)
            self.assertIn("light is of no effect", remark)
        remark = self.remarks(self.build("posix_aio"))
        self.assertIn("asynchronous", remark)
        self.assertNotIn("of no effect", remark)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
