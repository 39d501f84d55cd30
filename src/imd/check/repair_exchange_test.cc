// Files in the wrong place: exchanged, copied over each other or put back from an older copy, while documents or epoch logs are
// lost; then repair; every query before and after. The names of files say of which job and partition they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imd/format/log_names.h"
#include "imd/test_repair.h"
#include "imd/test_repair_case.h"

namespace swale::imd::repair_exchange_test {
namespace {

using test::check_case;
using test::Counts;
using test::Image;
using test::kRepairDir;
using test::Made;

// Asks what is right before repair, too.
void expect_right(const Image& image, const Made& made) {
  Counts counts;
  check_case(image, made.truth, false, &counts);
}

// A log that says that it is another generation's is not this one's.
TEST(RepairExchange, TheEpochLogOfAnOlderGenerationBringsNoDroppedEpochBack) {
  const Made made = test::make_directory({.seed = 3, .ranks = {2, 2}, .ways = 1, .dropped = 1});
  for (const bool swapped : {false, true}) {
    Image image = made.image;
    std::string& older = image.at(epoch_log_path(kRepairDir, 1));
    std::string& newest = image.at(epoch_log_path(kRepairDir, 2));
    if (swapped) {
      std::swap(older, newest);
    } else {
      newest = older;
    }
    expect_right(image, made);
    EXPECT_FALSE(HasFailure()) << (swapped ? "swapped" : "copied");
  }
}

}  // namespace
}  // namespace swale::imd::repair_exchange_test
