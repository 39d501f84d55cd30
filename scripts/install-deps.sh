#!/usr/bin/env bash
# install-deps.sh GROUP...: installs what Swale needs, for the groups build, test, long, demo, bench, wheel,
# deb, check and docs.
#
# On Debian 12 and 13, Ubuntu 24.04 and later: installs what is missing, as root or through sudo, in one
# transaction; when nothing is missing it does nothing and needs no privilege. On other systems it prints the
# names to install. With SWALE_DEPS=skip it trusts you to have installed everything.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"

# One row a package: the groups that need it; its names in Debian, Fedora (RHEL with EPEL), Arch and Spack
# ("-": part of another row or not packaged there; aur:NAME: in Arch's user repository; A|B: the first that
# the release has).
packages='
build,test,demo  cmake               cmake               cmake          cmake
build,test,demo  ninja-build         ninja-build         ninja          ninja
build,test,demo  g++                 gcc-c++             gcc            gcc
build,test,demo  pkg-config          pkgconf-pkg-config  pkgconf        pkgconf
build,test,demo  ccache              ccache              ccache         ccache
build,test,demo  libucx-dev          ucx-devel           openucx        ucx
build,test,demo  libssl-dev          openssl-devel       openssl        openssl
build,test,demo  libfmt-dev          fmt-devel           fmt            fmt
build,test,demo  libspdlog-dev       spdlog-devel        spdlog         spdlog
build,test,demo  nlohmann-json3-dev  json-devel          nlohmann-json  nlohmann-json
build,test,demo  libcli11-dev        cli11-devel         cli11          cli11
build,test,demo  libisal-dev         isa-l-devel         isa-l          isa-l
build,test,demo  liburing-dev        liburing-devel      liburing       liburing
build,test,demo  libfuse3-dev        fuse3-devel         fuse3          libfuse
build,test,demo  libxxhash-dev       xxhash-devel        xxhash         xxhash
build,test,demo  liblz4-dev          lz4-devel           lz4            lz4
build,test,demo  libzstd-dev         libzstd-devel       zstd           zstd
test             libgtest-dev        gtest-devel         gtest          googletest+gmock
test             libgmock-dev        gmock-devel         -              -
build,test,demo  python3             python3             python         python
test,demo,bench  openmpi-bin         openmpi             openmpi        openmpi
test,demo,bench  libopenmpi-dev      openmpi-devel       -              -
test             gfortran            gcc-gfortran        gcc-fortran    -
test             iproute2            iproute             iproute2       iproute2
test             mpich               mpich               aur:mpich      mpich
test             libmpich-dev        mpich-devel         -              -
test             libhdf5-openmpi-dev hdf5-openmpi-devel  hdf5-openmpi   hdf5+mpi
test             libpnetcdf-dev      -                   aur:parallel-netcdf  parallel-netcdf
test             slurmctld           slurm-slurmctld     aur:slurm-llnl  slurm
test             slurmd              slurm-slurmd        -              -
test             slurm-client        slurm               -              -
test             munge               munge               munge          munge
test,demo        liblammps-dev       lammps-devel        aur:lammps     lammps+lib
test             groff-base          groff-base          groff          groff
test             fuse3               fuse3               -              -
test             acl                 acl                 acl            acl
test             fio                 fio                 fio            fio
test             rsync               rsync               rsync          rsync
test             sqlite3             sqlite              sqlite         sqlite
test             git                 git                 git            git
test             e2fsprogs           e2fsprogs           e2fsprogs      -
test             xfsprogs            xfsprogs            xfsprogs       -
long             btrfs-progs         btrfs-progs         btrfs-progs    -
test             mandoc              mandoc              mandoc         -
test             man-db              man-db              man-db         man-db
test             zsh                 zsh                 zsh            zsh
test             fish                fish                fish           fish
test             jq                  jq                  jq             jq
test,wheel,deb   python3-dev         python3-devel       -              -
test,demo,bench,wheel,deb python3-venv -                 -              -
test,demo,bench  python3-numpy       python3-numpy       python-numpy   py-numpy
test,demo,bench  python3-matplotlib  python3-matplotlib  python-matplotlib  py-matplotlib
test,bench       libleveldb-dev      leveldb-devel       leveldb        leveldb
test,bench       librocksdb-dev      rocksdb-devel       rocksdb        rocksdb
test,bench       libsqlite3-dev      sqlite-devel        sqlite         sqlite
test,bench       libsnappy-dev       snappy-devel        snappy         snappy
long             postgresql          postgresql-contrib  postgresql     postgresql
long             chromium            chromium            chromium       -
test             python3-h5py        python3-h5py        python-h5py    py-h5py
long             golang-go           golang              go             go
long             lammps              lammps              aur:lammps     lammps
long             gromacs             gromacs             aur:gromacs    gromacs
long             stress-ng           stress-ng           stress-ng      stress-ng
deb              build-essential     -                   -              -
deb              debhelper           -                   -              -
deb              debootstrap         -                   -              -
deb              dh-python           -                   -              -
deb              lintian             -                   -              -
check  clang-16|clang-19                      clang              clang        llvm+clang
check  clang-format-16|python3-venv           clang-tools-extra  -            -
check  clang-tidy-16|clang-tidy-19            -                  -            -
check  libclang-rt-16-dev|libclang-rt-19-dev  compiler-rt        compiler-rt  -
check  lld-16|lld-19                          lld                lld          -
check  llvm-16|llvm-19                        llvm               llvm         -
docs             doxygen             doxygen             doxygen        doxygen
'

# names COLUMN GROUPS...: the packages of the groups, in the column's spelling.
names() {
  local column=$1
  shift
  awk -v column="$column" -v wanted="$*" '
    BEGIN { n = split(wanted, group, " ") }
    NF {
      for (i = 1; i <= n; i++)
        if (index("," $1 ",", "," group[i] ",") && $column != "-") { print $column; break }
    }
  ' <<< "$packages" | sort -u
}

[ $# -gt 0 ] || set -- build
for group in "$@"; do
  case $group in
    build | test | long | demo | bench | wheel | deb | check | docs) ;;
    *) die "unknown group '$group';" \
      "the groups are build, test, long, demo, bench, wheel, deb, check and docs" ;;
  esac
done
[ "${SWALE_DEPS:-}" != skip ] || exit 0

if ! command -v apt-get > /dev/null || ! command -v dpkg-query > /dev/null; then
  cat >&2 << END
install-deps.sh installs packages on Debian and Ubuntu only. Here, please install for '$*' what your system
calls:
  Fedora, RHEL:  $(names 3 "$@" | paste -sd ' ')
  Arch:          $(names 4 "$@" | paste -sd ' ')
  Spack:         $(names 5 "$@" | paste -sd ' ')
(Fedora keeps MPI behind 'module load mpi/openmpi-x86_64'.) Then run the same command again with
SWALE_DEPS=skip.
END
  exit 1
fi

mapfile -t wanted < <(names 2 "$@")
mapfile -t spellings < <(printf '%s\n' "${wanted[@]}" | tr '|' '\n')
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${spellings[@]}" 2> /dev/null |
  sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
  for name in ${package//|/ }; do
    if grep -qxF -e "$name" <<< "$installed"; then continue 2; fi
  done
  missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

# Of A|B the first that apt has heard of, else the last; in `chosen`.
choose_names() {
  local package name
  chosen=()
  for package in "${missing[@]}"; do
    for name in ${package//|/ }; do
      if [ "$name" = "$package" ] || apt-cache show "$name" > /dev/null 2>&1; then break; fi
    done
    chosen+=("$name")
  done
}
choose_names

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo > /dev/null ||
    die "needs root to install; run as root: apt-get install --no-install-recommends ${chosen[*]}"
  say "sudo is needed to install ${#chosen[@]} packages: ${chosen[*]}"
  sudo -v || die "without sudo, have these installed: ${chosen[*]}"
  as_root=(sudo)
fi
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300
  -o Acquire::Retries=3 -o Dpkg::Use-Pty=0)

step deps-update "Updating the package lists" "${apt[@]}" update
choose_names  # apt may know more now
step deps-install "Installing ${#chosen[@]} packages for: $*" "${apt[@]}" install --no-install-recommends \
  "${chosen[@]}"
