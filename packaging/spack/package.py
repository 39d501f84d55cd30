# Copyright Spack Project Developers. See COPYRIGHT file for details.
#
# SPDX-License-Identifier: (Apache-2.0 OR MIT)

from spack.package import *


class Swale(CMakePackage):
    """A burst-buffer file system that lives inside a parallel job: indexed massive directories, written by
    all ranks and queried by one process."""

    # To build this tree, from its root:
    #   spack repo create ~/my-recipes mine
    #   mkdir ~/my-recipes/packages/swale && cp packaging/spack/package.py ~/my-recipes/packages/swale/
    #   spack repo add ~/my-recipes
    #   spack dev-build --source-path $PWD swale@main
    git = "file:///path/to/swale"  # of your clone: spack develop, or spack install swale@main

    maintainers("swale")

    license("Apache-2.0")

    version("main", branch="main")

    variant("plot", default=False, description="What swale-stats-plot needs to draw")
    variant("python", default=False, description="The Python package swale and its commands")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("cli11", type="build")
    depends_on("nlohmann-json@3.9:", type="build")
    depends_on("fmt@9:")
    depends_on("spdlog@1.10: +shared +fmt_external")
    depends_on("isa-l@2.30:")
    depends_on("liburing@2.3:")
    depends_on("libfuse@3.14:")
    depends_on("lz4@1.9:")
    depends_on("xxhash@0.8:")
    depends_on("zstd@1.5:")
    depends_on("openssl@3:")
    depends_on("ucx@1.13:")
    depends_on("py-matplotlib", type="run", when="+plot")
    with when("+python"):
        extends("python@3.10:")
        depends_on("py-pip", type="build")
        depends_on("py-nanobind@2.2:", type="build")
        depends_on("py-scikit-build-core@0.10:", type="build")
        depends_on("py-numpy", type="run")
        depends_on("py-matplotlib", type="run")

    conflicts("%gcc@:11", msg="Swale is written in C++20")
    conflicts("%clang@:15", msg="Swale is written in C++20")
    conflicts("platform=darwin", msg="Swale needs Linux")

    generator("ninja")

    def cmake_args(self):
        return [
            self.define("SWALE_TESTS", False),
            self.define("SWALE_BENCH", False),
            self.define("SWALE_EXAMPLES", False),
            self.define("SWALE_WERROR", False),
        ]

    # Linked with the library that was just installed, which Spack's compiler wrapper makes it find.
    @run_after("install")
    def install_python(self):
        if not self.spec.satisfies("+python"):
            return
        settings = {"build-dir": f"{self.build_directory}-python",
                    "cmake.define.SWALE_BUILD": self.build_directory,
                    "cmake.define.SWALE_CARRY_LIBRARY": "OFF"}
        python("-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation",
               "--ignore-installed", f"--prefix={self.prefix}",
               *[f"--config-settings={name}={value}" for name, value in settings.items()],
               join_path(self.stage.source_path, "python"))

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.swale)("--version")
        if self.spec.satisfies("+python"):
            python("-c", "import swale; print(swale.__version__)")
