// The reading side of Swale's C interface as the demo uses it: keys are atom ids, values are AtomState.
#ifndef EXAMPLES_LAMMPS_READER_H_
#define EXAMPLES_LAMMPS_READER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fail.h"
#include "record.h"
#include "swale/swale.h"

namespace impact {

using RecordFn = std::function<void(int64_t epoch, int64_t id, const AtomState& state)>;

class Reader {
 public:
  explicit Reader(const std::string& path);

  int64_t epochs() const { return swale_reader_epoch_count(reader_.get()); }
  swale_epoch_info epoch(int64_t index) const;
  // A counter of swale_reader_stats.
  uint64_t counted(const char* name) const;
  uint64_t count() const;  // of all records

  // The trajectory of one atom, in the order of time; empty if there is none.
  std::vector<DumpRecord> trajectory(int64_t id) const;
  // Every state of many atoms, in no order; returns how many of the atoms were there.
  size_t get_many(const std::vector<int64_t>& ids, const RecordFn& fn) const;
  void scan(int64_t epoch, const RecordFn& fn) const;
  // The `k` atoms with the highest kinetic energy in an epoch, highest first.
  std::vector<DumpRecord> fastest(int64_t epoch, size_t k) const;

 private:
  struct Close {
    void operator()(swale_reader* reader) const { swale_reader_close(reader); }
  };
  std::unique_ptr<swale_reader, Close> reader_;
};

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_READER_H_
