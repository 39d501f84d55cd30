"""recipes_test.py SOURCE: the Debian and Spack recipes say what scripts/install-deps.sh and cmake/ say.

Spack itself is not needed: the recipe is loaded with stand-ins that write down what it declares.
"""
import contextlib
import os
import re
import sys
import types

SOURCE = sys.argv[1]
# What only tests, or a faster build, need; and the compiler, which both systems have by themselves.
NOT_IN_RECIPES = {"g++", "ccache", "libgtest-dev", "libgmock-dev", "python3"}
# What builds the Python package: the wheel takes it from scripts/requirements-wheel.txt.
OF_PYTHON = {"py-pip", "py-nanobind", "py-scikit-build-core"}
# What Spack's recipes name instead of one of several packages that provide it.
VIRTUAL = {"pkgconf": "pkgconfig"}


def read(*path):
    with open(os.path.join(SOURCE, *path), encoding="utf-8") as file:
        return file.read()


def needed(text):
    """[(Debian's name, Spack's name)] of the group build."""
    rows = [line.split() for line in text.split("packages='")[1].split("'")[0].splitlines() if line.strip()]
    rows = [row for row in rows if "build" in row[0].split(",") and row[1] not in NOT_IN_RECIPES]
    return [(row[1], VIRTUAL.get(row[4], row[4])) for row in rows]


def debian_differences(control, rows):
    listed = re.search(r"^Build-Depends:(.*(?:\n .*)*)", control, re.M)[1]
    declared = {entry.split()[0] for entry in listed.replace("\n", " ").split(",")}
    wanted = {row[0] for row in rows} | {"debhelper-compat", "dh-python", "python3-dev"}
    return [f"packaging/debian/control: {name} is in Build-Depends alone"
            for name in sorted(declared - wanted)] + [
        f"packaging/debian/control: Build-Depends lack {name}" for name in sorted(wanted - declared)]


def load_recipe(text):
    """(dependencies, CMake options) of the recipe."""
    dependencies, options = [], []
    stand_in = types.ModuleType("spack.package")

    class CMakePackage:
        def define(self, name, value):
            options.append(name)
            return f"-D{name}={value}"

    def directive(*_, **__):
        return lambda function: function

    stand_in.CMakePackage = CMakePackage

    def depends_on(spec, **how):
        if how.get("type") != "run":  # what a script needs when it is run, nobody builds with
            dependencies.append(re.match(r"[\w-]+", spec)[0])

    stand_in.depends_on = depends_on
    stand_in.when = lambda _: contextlib.nullcontext()
    for name in ("version", "variant", "maintainers", "license", "conflicts", "generator", "run_after",
                 "on_package_attributes", "requires", "extends"):
        setattr(stand_in, name, directive)
    sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), stand_in
    names = {}
    exec(compile(text, "packaging/spack/package.py", "exec"), names)  # pylint: disable=exec-used
    names["Swale"]().cmake_args()
    return dependencies, options


def spack_differences(recipe, rows, options):
    dependencies, given = load_recipe(recipe)
    declared, wanted = set(dependencies) - {"c", "cxx"}, {row[1] for row in rows} | OF_PYTHON
    return [f"packaging/spack/package.py: depends_on(\"{name}\") is not in install-deps.sh"
            for name in sorted(declared - wanted)] + [
        f"packaging/spack/package.py: depends_on(\"{name}\") is missing"
        for name in sorted(wanted - declared)] + [
        f"packaging/spack/package.py: no CMake option {name}" for name in given if name not in options]


def python_differences(path, text, cmake):
    """Settings of the Python package's build that it does not know."""
    known = set(re.findall(r"^(?:set|option)\((\w+)[^)]*", cmake, re.M))
    given = set(re.findall(r"cmake\.define\.(\w+)", text))
    return [f"{path}: python/CMakeLists.txt has no {name}" for name in sorted(given - known)] + (
        [] if given else [f"{path}: does not build the Python package"])


def main():
    rows = needed(read("scripts/install-deps.sh"))
    assert len(rows) > 8, rows
    control, recipe = read("packaging/debian/control"), read("packaging/spack/package.py")
    options = set(re.findall(r"^option\((\w+)", read("cmake/SwaleOptions.cmake"), re.M))
    rules, cmake = read("packaging/debian/rules"), read("python/CMakeLists.txt")
    found = debian_differences(control, rows) + spack_differences(recipe, rows, options)
    found += python_differences("packaging/debian/rules", rules, cmake)
    found += python_differences("packaging/spack/package.py", recipe, cmake)
    if found:
        sys.exit("\n".join(found))
    canaries = [
        debian_differences(control.replace(" libfmt-dev,", ""), rows),
        debian_differences(control, rows[1:]),
        spack_differences(recipe.replace('    depends_on("xxhash@0.8:")\n', ""), rows, options),
        spack_differences(recipe, rows, options - {"SWALE_BENCH"}),
        python_differences("", rules, cmake.replace("option(SWALE_CARRY_LIBRARY", "option(OTHER")),
        python_differences("", recipe.replace("cmake.define.", ""), cmake),
    ]
    assert all(len(noticed) == 1 for noticed in canaries), canaries
    print(f"{len(rows)} packages are in both recipes; all {len(canaries)} canaries are noticed")


main()
