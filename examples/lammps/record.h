// What the demo stores for an atom in a frame, and how the plain dumps and the tables of answers are laid
// out. Swale:  key = the atom's id, 8 bytes little-endian; value = AtomState, 40 bytes. Dumps:  one file per
// process, dump.RRRR.bin, without a header: DumpRecord, 48 bytes, in the order of writing. Both hold the same
// bytes for an atom and a frame; impact-verify compares them. Units: Lennard-Jones (sigma, tau, epsilon, mass
// 1), in the frame of reference that moves with --drift. Limits: little-endian machines.
#ifndef EXAMPLES_LAMMPS_RECORD_H_
#define EXAMPLES_LAMMPS_RECORD_H_

#include <bit>
#include <cstddef>
#include <cstdint>

namespace impact {

struct AtomState {
  float position[3];  // unwrapped: continuous across the periodic borders
  float velocity[3];
  float kinetic_energy;
  int32_t type;  // 1 target, 2 projectile
  int64_t step;  // of the simulation
};
static_assert(sizeof(AtomState) == 40 && offsetof(AtomState, step) == 32);

// The same for Swale: its fields, and the one whose largest values are found without a scan.
inline constexpr char kDirectoryOptions[] =
    "imd.schema=position:f4x3:sigma;velocity:f4x3:sigma/tau;kinetic_energy:f4:epsilon;type:i4;step:i8,"
    "imd.extrema=kinetic_energy";

struct DumpRecord {
  int64_t id;
  AtomState state;
};
static_assert(sizeof(DumpRecord) == 48 && offsetof(DumpRecord, state) == 8);
static_assert(std::endian::native == std::endian::little);

inline constexpr int32_t kTargetType = 1;

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_RECORD_H_
