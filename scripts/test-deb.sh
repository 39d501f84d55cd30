#!/usr/bin/env bash
# test-deb.sh [FOLDER]: the packages of FOLDER (build/deb, made by build-deb.sh) are installed in a bare
# Debian root, used there by a C, a C++ and a Fortran program, by Python and by two ranks, removed again, and
# judged by lintian. Needs root and a mirror; elsewhere it says that it was skipped. The base system is kept
# in FOLDER/base.tar for the next time.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
debs=$(realpath "${1:-build/deb}")
root=$debs/root

if [ "$(id -u)" -ne 0 ]; then
  echo "test-deb: 4 steps were skipped: debootstrap and chroot need root"
  [ -z "${CI:-}" ] || exit 1
  exit 0
fi

# The mirror, its proxies and certificates are those of this machine.
mirror=$(apt-get indextargets --format '$(REPO_URI)' | sort -u | grep -v security | head -n 1)
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
make_base() {
  rm -rf "$root"
  debootstrap --variant=minbase --include=ca-certificates "$codename" "$root" "$mirror"
  tar -C "$root" -cf "$debs/base.tar.part" .
  mv "$debs/base.tar.part" "$debs/base.tar"
}
[ -f "$debs/base.tar" ] || step deb-base "Bootstrapping a bare $codename" make_base
rm -rf --one-file-system "$root"
mkdir -p "$root"
tar -C "$root" -xf "$debs/base.tar"
printf '127.0.0.1 localhost %s\n' "$(hostname)" > "$root/etc/hosts"
for file in /etc/apt/apt.conf.d/* /etc/ssl/certs/ca-certificates.crt; do
  if [ -f "$file" ]; then install -D -m 644 "$file" "$root$file"; fi
done
mkdir -p "$root/debs" "$root/user"
cp "$debs"/*.deb "$root/debs"
cp tests/install/consumer/* examples/mpi/particles.c examples/fortran/particles.f90 "$root/user"

# Mounts, processes and shared memory of the root vanish with the command.
in_root() {
  unshare --mount --pid --fork --kill-child --ipc bash -c "
    mount --rbind /dev '$root/dev'; mount -t proc proc '$root/proc'; mount -t sysfs sysfs '$root/sys'
    exec chroot '$root' env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 \
      DEBIAN_FRONTEND=noninteractive OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
      OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe bash -euxc \
      \"\$1\"" in_root "$1"
}
apt='apt-get -q -y -o Dpkg::Use-Pty=0 -o Acquire::Retries=3 --no-install-recommends'

# The library and the command alone, without a compiler: what they depend on must come with them.
step deb-install "Installing the command in a bare root" in_root "
  $apt update
  $apt install /debs/libswale0_*.deb /debs/swale_*.deb
  swale --version
  test ! -e /usr/include/swale
  for file in man/man1/swale.1.gz man/man1/swale-scan.1.gz man/man1/swale-stats-plot.1.gz \
    man/man7/swale-options.7.gz \
    bash-completion/completions/swale zsh/vendor-completions/_swale fish/vendor_completions.d/swale.fish; do
    test -s /usr/share/\$file
  done
  bash -n /usr/share/bash-completion/completions/swale
  if swale-stats-plot none.svg < /dev/null 2> said; then exit 1; fi
  grep python3-matplotlib said"

step deb-use "Building and running programs against libswale-dev" in_root "
  $apt install /debs/libswale-dev_*.deb gcc g++ gfortran pkg-config cmake make libc6-dev openmpi-bin \
    libopenmpi-dev \
    python3-matplotlib
  cd /user
  flags=\$(pkg-config --cflags --libs swale)
  modules=\$(pkg-config --variable=fortrandir swale)
  gcc writes.c \$flags -o writes
  g++ -std=c++17 reads.cc \$flags -o reads
  gfortran \$modules/swale.f90 reads.f90 \$flags -o reads-fortran
  mpif90.openmpi \$modules/swale.f90 \$modules/swale_mpi.f90 particles.f90 \$flags -o particles
  mpirun.openmpi -n 2 ./writes squares | tee said
  grep -x 'loaded /usr/lib/.*/swale-[0-9.]*/libswale-ucx.so' said
  ./reads squares | grep ': 100 right, 200 records'
  ./reads-fortran squares | grep ': 100 right, 200 records'
  swale verify squares | grep 'all good'
  swale stats squares --json | swale-stats-plot squares.svg
  grep -q '<svg' squares.svg
  cmake -S . -B by-cmake > /dev/null
  cmake --build by-cmake > /dev/null
  rm -r squares.files  # which reads-fortran has made: it wants to make it itself
  ./by-cmake/reads_cxx squares | grep ': 100 right, 200 records'
  ./by-cmake/reads_fortran squares | grep ': 100 right, 200 records'
  test -e /usr/share/doc/libswale-dev/docs/guide/first-trajectory.md
  mpirun.openmpi -n 2 ./particles atoms | grep '2000 of 2000 trajectories are right'"

# The Python package with Debian's NumPy and Matplotlib, and its commands as those of swale.
step deb-python "Using python3-swale" in_root "
  $apt install /debs/python3-swale_*.deb python3-matplotlib
  cd /user
  swale example flyby --bodies 50 --frames 4 | grep '200 records'
  swale plot flyby --top energy -o best.png
  head -c 8 best.png | grep -q PNG
  test -s /usr/share/man/man1/swale-plot.1.gz
  head -n 1 /usr/bin/swale-plot | grep -x '#! */usr/bin/python3'
  test ! -e /usr/lib/python3/dist-packages/swale/lib
  python3 -c '
import swale
with swale.open(\"squares\") as d:
    assert len(d) == 200 and len(d.scan()) == 200
assert not [line for line in open(\"/proc/self/maps\") if \"libucp\" in line]'"

# The canary: what was installed is gone, so the same programs fail, and nothing is left behind.
step deb-remove "Removing the packages" in_root "
  apt-get -q -y purge swale libswale0 libswale-dev python3-swale
  if /user/reads /user/squares; then exit 1; fi
  test -z \"\$(find / -xdev -path /user -prune -o -path /debs -prune -o -path /proc -prune -o -name \
    '*swale*' -print)\""

# Who uploads the package to Debian gives it an address and a bug number; before that there are none.
step deb-lintian "Asking lintian" lintian --allow-root --fail-on error,warning --tag-display-limit 0 \
  --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs \
  "$debs"/*.changes
rm -rf --one-file-system "$root"
say "the packages install, work, and leave nothing behind"
