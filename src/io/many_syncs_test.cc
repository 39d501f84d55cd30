#include "io/many_syncs.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/fault_device.h"
#include "io/posix_device.h"

namespace swale::io::many_syncs_test {
namespace {

TEST(ManySyncs, EachFileHasItsOwnStatus) {
  const std::string folder = testing::TempDir() + "/many-syncs";
  std::filesystem::create_directories(folder);
  PosixDevice posix;
  FaultDevice faulty(posix);
  for (Device* const device : {static_cast<Device*>(&posix), static_cast<Device*>(&faulty)}) {
    ManySyncs syncs(*device);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, 3 * ManySyncs::kAtOnce + 1}) {
      std::vector<std::unique_ptr<File>> files;
      std::vector<Status> statuses(count, Status(Code::kInternal, Scope::kOperation, "not asked"));
      std::vector<std::pair<File*, Status*>> asked;
      for (size_t i = 0; i < count; ++i) {
        auto file = device->open(fmt::format("{}/f{}", folder, i), OpenMode::kOpenOrCreate);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        ASSERT_TRUE((*file)->pwrite(0, "bytes").ok());
        files.push_back(std::move(*file));
        asked.emplace_back(files.back().get(), &statuses[i]);
      }
      const bool fails = device == &faulty && count > 1;
      if (fails) faulty.inject({.kind = CallKind::kSync, .path_part = "/f1"});
      syncs.sync(asked);
      for (size_t i = 0; i < count; ++i)
        EXPECT_EQ(statuses[i].ok(), !(fails && i == 1)) << i << ": " << statuses[i].to_string();
    }
  }
  EXPECT_EQ(faulty.faults(), 2u);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace swale::io::many_syncs_test
