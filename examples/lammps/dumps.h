// The plain dumps of a run, and a scan of them: all cores read all dumps in large blocks and keep the records
// of the wanted atoms. What one does without an index, done well.
#ifndef EXAMPLES_LAMMPS_DUMPS_H_
#define EXAMPLES_LAMMPS_DUMPS_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "answer.h"

namespace impact {

// The dumps dump.0000.bin and so on of `ranks` ranks in directory `out`, open.
class Dumps {
 public:
  struct Block {
    int fd;
    off_t offset;
    size_t bytes;
  };

  Dumps(const std::string& out, int ranks);
  Dumps(const Dumps&) = delete;
  Dumps& operator=(const Dumps&) = delete;
  ~Dumps();

  const std::vector<Block>& blocks() const { return blocks_; }
  uint64_t bytes() const { return bytes_; }
  Answer scan(const std::vector<int64_t>& ids) const;  // by all cores; sorted

 private:
  std::vector<int> fds_;
  std::vector<Block> blocks_;
  uint64_t bytes_ = 0;
};

std::string dump_path(const std::string& out, int rank);

}  // namespace impact

#endif  // EXAMPLES_LAMMPS_DUMPS_H_
