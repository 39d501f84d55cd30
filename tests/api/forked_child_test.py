"""forked_child_test.py SWALE LIBSWALE: a child made by fork has its parent's handles, and none of the threads
that serve them. Every call on a handle of a job, a directory, a store or I/O servers is refused at once in
the child, instead of waiting for ever; the parent goes on.
"""
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../security"))
import ordinary_user  # noqa: E402

SWALE, LIBRARY = map(os.path.abspath, sys.argv[1:3])
INVALID_ARGUMENT = 1
SECONDS = 20  # that a child may take for all its calls

lib = ctypes.CDLL(LIBRARY)
lib.swale_last_error.restype = ctypes.c_char_p


def size(number):
    return ctypes.c_uint64(number)


def must(name, *arguments):
    code = getattr(lib, "swale_" + name)(*arguments)
    if code != 0:
        raise RuntimeError(f"{name}: {lib.swale_last_error().decode()}")


def opened(name, *arguments):
    handle = ctypes.c_void_p()
    must(name, *arguments, ctypes.byref(handle))
    return handle


def refused_in_child(calls):
    """Forks; what was not refused in the child. SIGALRM ends a child that waits."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(SECONDS)
        wrong = []
        try:
            for name, *arguments in calls:
                code = getattr(lib, "swale_" + name)(*arguments)
                text = lib.swale_last_error().decode()
                if code != INVALID_ARGUMENT or "made by fork" not in text or name not in text:
                    wrong.append(f"swale_{name}: {code}, {text}")
        except BaseException:
            wrong.append(traceback.format_exc())
        os.write(writing, "\n".join(wrong).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        wrong = said.read()
    _, state = os.waitpid(child, 0)
    return wrong if state == 0 else f"{wrong}; the child ended with {state}: a call waited"


def calls_of_servers():
    """As rank 1 beside `swale iond`."""
    job = opened("job_open", None, None)
    iond = opened("iond_open", job, 0, None)
    file = opened("iond_file_open", iond, b"a", 1, 0o644)
    must("iond_write", file, size(0), b"12345", size(5))
    attributes = (ctypes.c_uint64 * 6)(48)  # swale_attributes
    got, space, other = ctypes.c_size_t(), ctypes.create_string_buffer(8), ctypes.c_void_p()
    wrong = refused_in_child([
        ("iond_write", file, size(0), b"xxxxx", size(5)), ("iond_read", file, size(0), space, size(5),
                                                           ctypes.byref(got)),
        ("iond_truncate", file, size(0)), ("iond_file_stat", file, ctypes.byref(attributes)),
        ("iond_stat", iond, b"a", ctypes.byref(attributes)),
        ("iond_stats", iond, ctypes.byref(other)), ("iond_sync", file),
        ("iond_file_open", iond, b"b", 1, 0o644, ctypes.byref(other)), ("iond_remove", iond, b"a"),
        ("iond_rename", iond, b"a", b"b"), ("iond_mkdir", iond, b"d", 0o755), ("iond_rmdir", iond, b"d"),
        ("iond_list", iond, b"", ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0), None),
        ("iond_set_mode", iond, b"a", 0o644), ("iond_set_modified", iond, b"a", ctypes.c_int64(7)),
        ("iond_drain", iond), ("iond_file_close", file), ("iond_open", job, 0, None, ctypes.byref(other)),
        ("iond_close", iond),
        ("job_close", job)])
    must("iond_read", file, size(0), space, size(5), ctypes.byref(got))
    assert space.raw[:got.value] == b"12345", space.raw
    must("iond_file_close", file)
    must("iond_close", iond)
    must("job_close", job)
    return wrong


class ForkedChild(unittest.TestCase):
    def test_directories_and_stores(self):
        with tempfile.TemporaryDirectory(prefix="swale-fork-") as scratch:
            job = opened("job_open", None, None)
            folder = opened("dir_open", job, f"{scratch}/dir".encode(), 1, b"imd.memory=8M")
            store = opened("meta_open", job, f"{scratch}/meta".encode(), 1, None)
            file = opened("meta_file_open", store, b"a", 3, 0o644)
            must("dir_append", folder, b"k", size(1), b"v", size(1))
            name = opened("subfile_open_write", folder, b"name")
            segment = (ctypes.c_uint64 * 4)(0, 10, 0, 0)
            span = (ctypes.c_uint64 * 2)(0, 10)
            must("meta_put", file, segment, size(1))
            other = ctypes.c_void_p()
            each = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda *_: 0)
            wrong = refused_in_child([
                ("dir_append", folder, b"k", size(1), b"w", size(1)),
                ("dir_append", folder, b"12345678", size(8), b"w", size(1)),
                ("dir_epoch_end", folder, size(0), ctypes.c_double(0)),
                ("dir_epoch_end_begin", folder, size(0), ctypes.c_double(0)),
                ("dir_epoch_end_wait", folder), ("dir_pause", folder), ("dir_resume", folder),
                ("subfile_write", name, b"x", size(1)),
                ("subfile_open_write", folder, b"other", ctypes.byref(other)),
                ("dir_stats", folder, ctypes.byref(other)),
                ("meta_put", file, segment, size(1)), ("meta_get", file, span, size(1), ctypes.byref(other)),
                ("meta_scan", file, size(0), each, None), ("meta_truncate", file, size(0)),
                ("meta_seal", file),
                ("meta_file_open", store, b"a", 0, 0, ctypes.byref(other)),
                ("meta_remove", store, b"a"), ("meta_relocate", store, 1, size(0), size(1), 2, size(0)),
                ("meta_stats", store, ctypes.byref(other)), ("meta_file_close", file), ("meta_close", store),
                ("dir_close", folder), ("dir_make", job, f"{scratch}/more".encode(), None),
                ("dir_open", job, f"{scratch}/dir".encode(), 1, None, ctypes.byref(other)),
                ("meta_open", job, f"{scratch}/meta".encode(), 1, None, ctypes.byref(other)),
                ("job_close", job)])
            self.assertEqual(wrong, "")
            must("dir_append", folder, b"k", size(1), b"w", size(1))
            must("dir_epoch_end", folder, size(0), ctypes.c_double(0))
            must("meta_get", file, span, size(1), ctypes.byref(other))
            must("meta_file_close", file)
            must("meta_close", store)
            must("subfile_close", name)
            must("dir_close", folder)
            must("job_close", job)
            done = subprocess.run([SWALE, "verify", f"{scratch}/dir"], capture_output=True, text=True,
                                  timeout=60, check=False)
            self.assertIn("2 records", done.stdout, "the parent's records, and none of the child's")

    def test_servers(self):
        with tempfile.TemporaryDirectory(prefix="swale-fork-") as scratch:
            os.mkdir(f"{scratch}/disk")
            os.mkdir(f"{scratch}/meet", 0o700)
            ordinary_user.give(scratch)  # an I/O server refuses to run as root
            started = []
            for rank, words in ((0, [SWALE, "iond", "--ssd", f"{scratch}/ssd", "--backing",
                                     f"{scratch}/disk", "--size", "16M"]),
                                (1, [ordinary_user.python(), os.path.abspath(__file__), SWALE, LIBRARY,
                                     "--client"])):
                environment = dict(os.environ, SWALE_JOB_RANK=str(rank), SWALE_JOB_SIZE="2",
                                   SWALE_JOB_ID=f"fork{os.getpid()}", SWALE_JOB_RENDEZVOUS=f"{scratch}/meet",
                                   LD_LIBRARY_PATH=os.path.dirname(LIBRARY))
                started.append(subprocess.Popen(ordinary_user.words(*words), env=environment,
                                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
            try:
                out, err = started[1].communicate(timeout=120)
                self.assertEqual((out.strip(), started[1].returncode), ("", 0), err)
                _, err = started[0].communicate(timeout=120)
                self.assertEqual(started[0].returncode, 0, err)
            finally:
                for process in started:
                    process.kill()
                    process.communicate()


if "--client" in sys.argv:
    print(calls_of_servers())
else:
    unittest.main(argv=sys.argv[:1])
