// ValueLengths: which lengths of values an append takes at once. A directory with a schema takes values of
// one length only; other lengths go the long way, which refuses them with a message.
//
// Threads: a value. Cost: one subtraction and one comparison for both limits; a limit alone needs the
// comparison, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace swale::imd {

class ValueLengths {
 public:
  // Lengths up to `most`; or `exact` alone, if it is given. `exact` above `most`: none at all.
  ValueLengths(std::optional<uint32_t> exact, size_t most)
      : least_(!exact           ? 0
               : *exact <= most ? *exact
                                : SIZE_MAX),
        more_(exact ? 0 : most) {}

  bool fit(size_t bytes) const { return bytes - least_ <= more_; }

 private:
  size_t least_;
  size_t more_;
};

}  // namespace swale::imd
