"""install_test.py BUILD SOURCE: Swale is installed into a scratch folder, moved, and used from there alone.

Programs in C, C++ and Fortran are built against the moved tree by pkg-config and by find_package, and run,
one rank and several. The canaries take single files out of the tree and expect the same steps to fail.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../security"))
import ordinary_user  # noqa: E402

BUILD, SOURCE = (os.path.realpath(path) for path in sys.argv[1:3])
CONSUMER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "consumer")
PARTICLES = {"particles.c": "examples/mpi/particles.c", "particles.f90": "examples/fortran/particles.f90"}
MPI = {"openmpi": ("mpirun.openmpi", "mpicc.openmpi", "mpif90.openmpi"),
       "mpich": ("mpiexec.mpich", "mpicc.mpich", "mpif90.mpich")}
# Each with the kind of program that does not build without it.
HEADERS = {"swale.h": "c", "swale.hpp": "c++", "swale_mpi.h": "openmpi c", "swale.f90": "fortran",
           "swale_mpi.f90": "openmpi fortran",
           "swale_mpi_f08.f90": "openmpi fortran f08",
           "swale_arrow.h": "c++ engines",
           **dict.fromkeys([f"swale_{engine}.{ending}" for engine in ("meta", "iond", "tier", "fs")
                            for ending in ("h", "hpp")], "c++ engines")}


def environment(tree=None, libraries=False):
    """Of a user who knows the tree (or nothing of it), and nothing of the build."""
    result = {name: text for name, text in os.environ.items()
              if not name.startswith(("SWALE_", "CMAKE_", "PKG_CONFIG", "LD_LIBRARY", "CPATH",
                                      "LIBRARY_PATH"))}
    result.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                  # Open MPI 4, 5
                  OMPI_MCA_rmaps_base_oversubscribe="1",
                  PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", OMPI_MCA_mpi_yield_when_idle="1")
    if tree:
        result["PKG_CONFIG_PATH"] = os.path.join(tree, "lib/pkgconfig")
        result["PATH"] = os.path.join(tree, "bin") + ":" + result["PATH"]
        if libraries:
            result["LD_LIBRARY_PATH"] = os.path.join(tree, "lib")
    return result


class Failure(Exception):
    pass


def run(*command, tree=None, cwd=None, libraries=False):
    """Standard output of the command; Failure, with all that it said, if it fails."""
    done = subprocess.run(command, cwd=cwd, env=environment(tree, libraries), timeout=200, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise Failure(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


class Scratch(unittest.TestCase):
    """One folder for all tests, with the tree in it and the user's sources."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.mkdtemp(prefix="swale-test-")
        staged = subprocess.run(["cmake", "--install", BUILD, "--prefix", "/opt/of the user/swale"],
                                timeout=100,
                                env=dict(environment(), DESTDIR=os.path.join(cls.scratch, "stage")),
                                capture_output=True, text=True)
        assert staged.returncode == 0, staged.stderr
        assert not os.path.exists("/opt/of the user"), "DESTDIR was not heeded"
        cls.tree = os.path.join(cls.scratch, "moved")
        os.rename(os.path.join(cls.scratch, "stage/opt/of the user/swale"), cls.tree)
        cls.sources = os.path.join(cls.scratch, "user")
        shutil.copytree(CONSUMER, cls.sources)
        for name, path in PARTICLES.items():
            shutil.copy(os.path.join(SOURCE, path), os.path.join(cls.sources, name))
        with open(os.path.join(cls.sources, "particles_f08.f90"), "w", encoding="utf-8") as file:
            file.write(run("sed", "-f", "f08.sed", "particles.f90", cwd=cls.sources))

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.scratch)

    def fresh(self, name):
        """A path in a new folder."""
        return os.path.join(tempfile.mkdtemp(dir=self.scratch), name)

    def assert_only_the_tree(self, program):
        """The program finds libswale in the tree, and has no path of the build in it."""
        dynamic = run("readelf", "-d", program)
        self.assertIn("[libswale.so.0]", dynamic)
        for path in (BUILD, SOURCE):
            self.assertNotIn(path, dynamic)
        libraries = run("ldd", program, tree=self.tree, libraries=True)
        self.assertIn(f"libswale.so.0 => {self.tree}/lib/libswale.so.0 ", libraries)
        self.assertNotIn(BUILD, libraries)


def build_by_hand(tree, sources, out, kind):
    """The user's program of this kind, by compiler and pkg-config; its path."""
    flags = run("pkg-config", "--cflags", "--libs", "swale", tree=tree).split()
    modules = run("pkg-config", "--variable=fortrandir", "swale", tree=tree).strip()
    os.makedirs(out, exist_ok=True)
    program = os.path.join(out, kind)
    fortran = [os.path.join(modules, "swale.f90")]
    command = {
        "c": ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "writes.c"],
        "c++": ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "reads.cc"],
        "c++ engines": ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "engines.cc"],
        "fortran": ["gfortran", "-std=f2018", "-Wall", *fortran, "reads.f90"],
        "fortran engines": ["gfortran", "-std=f2018", "-Wall", *fortran, "engines.f90"],
        **{f"{name} c": [compilers[1], "particles.c"] for name, compilers in MPI.items()},
        **{f"{name} fortran": [compilers[2], *fortran, os.path.join(modules, "swale_mpi.f90"),
                               "particles.f90"]
           for name, compilers in MPI.items()},
        **{f"{name} fortran f08": [compilers[2], *fortran, os.path.join(modules, "swale_mpi_f08.f90"),
                                   "particles_f08.f90"]
           for name, compilers in MPI.items()},
    }[kind]
    if "fortran" in kind:
        command.insert(1, f"-J{out}")
    run(*command, *flags, "-o", program, tree=tree, cwd=sources)
    return program


def build_by_cmake(tree, sources, out):
    """Everything, by find_package; the folder of the programs."""
    run("cmake", "-G", "Ninja", "-S", sources, "-B", out, f"-DCMAKE_PREFIX_PATH={tree}",
        f"-DMPI_C_COMPILER={shutil.which(MPI['openmpi'][1])}",
        f"-DMPI_Fortran_COMPILER={shutil.which(MPI['openmpi'][2])}")
    run("cmake", "--build", out, "-j2")
    return out


class Installed(Scratch):
    def test_the_files_are_those_that_were_meant(self):
        found = {os.path.relpath(os.path.join(folder, name), self.tree)
                 for folder, _, names in os.walk(self.tree) for name in names}
        version = re.search(r"libswale\.so\.(\d+\.\d+\.\d+)", " ".join(found))[1]
        expected = {f"include/swale/{name}" for name in HEADERS} | {
            "bin/swale", "bin/swale-stats-plot", "lib/libswale.so", "lib/libswale.so.0",
            f"lib/libswale.so.{version}", f"lib/swale-{version}/libswale-ucx.so",
            f"lib/swale-{version}/libswale-tls.so", f"lib/swale-{version}/libswale_preload.so",
            "lib/pkgconfig/swale.pc",
            "lib/systemd/system/swale-tier@.service", "lib/systemd/system/swale-tree@.service",
            "lib/cmake/swale/swaleConfig.cmake", "lib/cmake/swale/swaleConfigVersion.cmake",
            "lib/cmake/swale/swaleTargets.cmake"}
        self.assertEqual(expected - found, set())
        others = {path for path in found - expected
                  if not path.startswith(("share/", "lib/cmake/swale/swaleTargets-"))}
        self.assertEqual(others, set())
        for path in ("LICENSE", "docs/guide/README.md", "examples/mpi/particles.c",
                     "examples/guide/blocks.c", "docs/results/size.csv"):
            self.assertIn("share/doc/swale/" + path, found)
        if glob.glob(os.path.join(BUILD, "man", "*.1")):  # made by the target swale_man
            self.assertIn("share/man/man1/swale.1", found)
            self.assertIn("share/man/man1/swale-stats-plot.1", found)
        for path in sorted(found):  # text that would tie the tree to this machine
            if path.endswith((".cmake", ".pc", ".h", ".hpp", ".f90")):
                with open(os.path.join(self.tree, path), encoding="utf-8") as file:
                    text = file.read()
                for place in (BUILD, SOURCE, "/opt/of the user"):
                    self.assertNotIn(place, text, path)
        for path in ("lib/libswale.so", f"lib/swale-{version}/libswale-ucx.so",
                     f"lib/swale-{version}/libswale-tls.so", f"lib/swale-{version}/libswale_preload.so",
                     "bin/swale"):
            self.assertNotRegex(run("readelf", "-d", os.path.join(self.tree, path)), "RPATH|RUNPATH")

    def test_no_link_of_an_installed_page_is_dead(self):
        folder = os.path.join(self.tree, "share/doc/swale")
        links = 0
        for page in glob.glob(os.path.join(folder, "**/*.md"), recursive=True):
            with open(page, encoding="utf-8") as file:
                prose = re.sub(r"^```.*?^```$", "", file.read(), flags=re.M | re.S)
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
                if "://" not in target:
                    links += 1
                    self.assertTrue(os.path.exists(os.path.join(os.path.dirname(page), target)),
                                    f"{page}: {target}")
        self.assertGreater(links, 100)
        with open(os.path.join(folder, "README.md"), encoding="utf-8") as file:
            self.assertNotIn("](include/", file.read(), "a link to what is not there becomes its text")

    def test_by_hand(self):
        out = self.fresh("by-hand")
        programs = {kind: build_by_hand(self.tree, self.sources, out, kind)
                    for kind in ("c", "c++", "fortran")}
        for program in programs.values():
            self.assert_only_the_tree(program)
        path = self.fresh("squares")
        loaded = run(programs["c"], path, tree=self.tree, libraries=True)
        self.assertRegex(loaded, rf"^loaded {self.tree}/lib/libswale\.so\.[0-9.]+\n$")
        for kind in ("c++", "fortran"):
            self.assertIn(": 100 right, 200 records", run(programs[kind], path, tree=self.tree,
                                                          libraries=True))
        self.assertIn("2 epochs, 200 records", run("swale", "info", path, tree=self.tree))
        self.assertIn("all good", run("swale", "verify", path, tree=self.tree))

    def test_several_ranks_without_mpi_load_the_module_of_the_tree(self):
        program = build_by_hand(self.tree, self.sources, self.fresh("by-hand"), "c")
        path = self.fresh("squares")
        for name, (launcher, *_) in MPI.items():
            loaded = run(launcher, "-n", "2", program, path + name, tree=self.tree, libraries=True)
            files = sorted(re.findall(r"^loaded (.*)$", loaded, re.M))
            self.assertEqual(len(files), 2, loaded)
            self.assertRegex(files[1], rf"^{self.tree}/lib/swale-[0-9.]+/libswale-ucx\.so$")
            self.assertIn("2 partitions, 200 records", run("swale", "verify", path + name, tree=self.tree))

    def test_mpi_by_hand(self):
        for name, (launcher, *_) in MPI.items():
            for language in ("c", "fortran", "fortran f08"):
                program = build_by_hand(self.tree, self.sources, self.fresh("by-hand"), f"{name} {language}")
                self.assert_only_the_tree(program)
                said = run(launcher, "-n", "2", program, self.fresh("particles"), tree=self.tree,
                           libraries=True)
                self.assertRegex(said, r"(\d+) of \1 trajectories are right")

    def test_by_cmake(self):
        out = build_by_cmake(self.tree, self.sources, self.fresh("by-cmake"))
        path = self.fresh("squares")
        for name in ("writes_c", "reads_cxx", "reads_fortran", "particles_c", "particles_fortran",
                     "particles_f08"):
            self.assertNotIn(BUILD, run("ldd", os.path.join(out, name)))
            self.assertIn(self.tree, run("readelf", "-d", os.path.join(out, name)))
        run(os.path.join(out, "writes_c"), path)
        for reader in ("reads_cxx", "reads_fortran"):
            self.assertIn(": 100 right, 200 records", run(os.path.join(out, reader), path))
        for program in ("particles_c", "particles_fortran", "particles_f08"):
            said = run(MPI["openmpi"][0], "-n", "2", os.path.join(out, program), self.fresh("particles"))
            self.assertRegex(said, r"(\d+) of \1 trajectories are right")
        self.assertIn("2 ranks", run(MPI["openmpi"][0], "-n", "2", os.path.join(out, "ranks_cxx")))

    def test_a_cxx_program_with_mpi_needs_no_c(self):
        sources = self.fresh("cxx-only")
        os.makedirs(sources)
        shutil.copy(os.path.join(self.sources, "ranks.cc"), sources)
        with open(os.path.join(sources, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write("cmake_minimum_required(VERSION 3.25)\nproject(ranks LANGUAGES CXX)\n"
                       "find_package(swale REQUIRED COMPONENTS mpi)\nadd_executable(ranks ranks.cc)\n"
                       "target_link_libraries(ranks PRIVATE swale::mpi)\n")
        out = build_by_cmake(self.tree, sources, self.fresh("by-cmake"))
        self.assertIn("2 ranks", run(MPI["openmpi"][0], "-n", "2", os.path.join(out, "ranks")))

    def test_all_engines_from_cxx_and_fortran(self):
        """The buffer and the store in one process; then files behind an I/O server, which `swale run` starts
        beside the program.
        """
        # an I/O server refuses to run as root, and what it starts is found by another user
        os.chmod(self.scratch, 0o755)
        out = self.fresh("by-hand")
        os.chmod(os.path.dirname(out), 0o755)
        for kind, said in (("c++ engines", "all engines from C++"),
                           ("fortran engines", "all engines from Fortran")):
            program = build_by_hand(self.tree, self.sources, out, kind)
            # Not in /tmp, which may be without extended attributes.
            with tempfile.TemporaryDirectory(prefix="swale-engines-", dir=os.getcwd()) as place:
                os.mkdir(os.path.join(place, "slow"))
                self.assertIn(said, run(program, place, tree=self.tree, libraries=True))
            with tempfile.TemporaryDirectory(prefix="swale-engines-", dir=os.getcwd()) as place:
                os.mkdir(os.path.join(place, "slow"))
                ordinary_user.give(place)
                command = ["swale", "run", "--ssd", f"{place}/ssd", "--backing", f"{place}/slow", "--size",
                           "16M", "--", program, "--servers"]
                self.assertIn(said, run("env", f"TMPDIR={place}", *ordinary_user.words(*command),
                                        tree=self.tree, libraries=True))

    def test_another_major_version_is_refused(self):
        sources = self.fresh("sources")
        shutil.copytree(self.sources, sources)
        listing = os.path.join(sources, "CMakeLists.txt")
        with open(listing, encoding="utf-8") as file:
            text = file.read()
        with open(listing, "w", encoding="utf-8") as file:
            file.write(text.replace("find_package(swale 0.1", "find_package(swale 1.0"))
        with self.assertRaisesRegex(Failure, "requested version \"1.0\""):
            build_by_cmake(self.tree, sources, self.fresh("by-cmake"))


class Canaries(Scratch):
    """A file is taken away: the steps above notice."""

    def without(self, path):
        tree = self.fresh("tree")
        shutil.copytree(self.tree, tree, symlinks=True)
        (found,) = glob.glob(os.path.join(tree, path))
        os.remove(found)
        return tree

    def test_a_missing_header_is_noticed(self):
        for header, kind in HEADERS.items():
            tree = self.without(os.path.join("include/swale", header))
            with self.assertRaisesRegex(Failure, header, msg=header):
                build_by_hand(tree, self.sources, self.fresh("by-hand"), kind)
        print(f"{len(HEADERS)} headers were taken away and missed")

    def test_a_missing_library_is_noticed(self):
        with self.assertRaisesRegex(Failure, "lswale"):
            build_by_hand(self.without("lib/libswale.so"), self.sources, self.fresh("by-hand"), "c")

    def test_a_missing_module_is_noticed(self):
        tree = self.without("lib/swale-*/libswale-ucx.so")
        program = build_by_hand(tree, self.sources, self.fresh("by-hand"), "c")
        with self.assertRaisesRegex(Failure, "neither in .*/lib, nor in its swale-"):
            run("mpirun.openmpi", "-n", "2", program, self.fresh("squares"), tree=tree, libraries=True)


missing = [tool for tool in ("cc", "c++", "gfortran", "cmake", "ninja", "pkg-config", "readelf",
                             *(tool for tools in MPI.values() for tool in tools)) if not shutil.which(tool)]
if missing and "CI" not in os.environ:
    print(f"SKIPPED: 12 cases need {', '.join(missing)}")
    sys.exit(77)
unittest.main(argv=sys.argv[:1])
