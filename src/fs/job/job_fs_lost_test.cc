// Attributes that the backing cannot keep: the file's bytes come there, the end of the job says what is
// missing, and no other drain is hindered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/xattr.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "fs/job/testing/content.h"
#include "fs/job/testing/hanging_calls.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_lost_test {
namespace {

using testing::HasSubstr;

constexpr const char* kAttribute = "user.kept";
constexpr size_t kLongBytes = 60 * kKiB;  // ext4 keeps some 4 KiB

void make(FileCalls& on, const std::string& path, const std::string& attribute) {
  int handle = -1;
  ASSERT_EQ(on.open(path, O_RDWR | O_CREAT, 0644, &handle), 0) << path;
  EXPECT_EQ(on.write(handle, 0, "bytes of " + path), 0);
  EXPECT_EQ(on.set_attribute(path, kAttribute, attribute), 0);
  EXPECT_EQ(on.set_attribute(path, "user.small", "small"), 0);
  EXPECT_EQ(on.close(handle), 0);
}

std::string attribute_of(FileCalls& on, const std::string& path, const std::string& name = kAttribute) {
  std::string value;
  const int failed = on.get_attribute(path, name, &value);
  return failed == 0 ? value : std::string("(") + std::strerror(failed) + ")";
}

// `fs`: the node that has drained it. `f` has lost its attribute.
void expect_lost(JobFs& fs, const std::string& backing, const Status& drained) {
  EXPECT_THAT(drained.to_string(), HasSubstr("f: "));
  EXPECT_EQ(content(backing + "/f"), "bytes of f");
  PlainCalls there(backing);
  EXPECT_EQ(attribute_of(there, "f", "user.small"), "small");
  const JobFsStats stats = fs.stats();
  EXPECT_EQ(stats.undrained_files, 0u);
  EXPECT_EQ(stats.lost_attributes, 1u);
  EXPECT_EQ(stats.failed_drains, 1u) << stats.last_failure;
  EXPECT_THAT(stats.json(), HasSubstr("f: its attribute user.kept of"));
}

class JobFsLost : public testing::Test {
 protected:
  // Whether this file system keeps so long an attribute.
  static bool keeps_long(const std::string& backing) {
    const std::string path = backing + "/probe", value(kLongBytes, 'x');
    std::ofstream(path) << "";
    const bool keeps = ::setxattr(path.c_str(), kAttribute, value.data(), value.size(), 0) == 0;
    EXPECT_EQ(::unlink(path.c_str()), 0);
    return keeps;
  }
  const std::string long_ = std::string(kLongBytes, 'x');
};

// The call that gives the new file its attribute fails, and no other one.
TEST_F(JobFsLost, AnAttributeThatTheBackingRefusesIsAFailureOfTheDrainThatHindersNoOther) {
  bool refused = false, hung = true;
  for (size_t nth = 1; hung && !refused; ++nth) {
    JobWorld world;
    world.start();
    make(world.calls(), "f", "value");
    Status drained;
    HangingCalls calls(
        world.backing(), nth, [&] { drained = world.fs().drain_all(); }, ENOSPC);
    hung = calls.hangs();
    calls.let_go();
    refused = calls.where().starts_with("fsetxattr");
    if (!refused) continue;
    SCOPED_TRACE(calls.where());
    if (!drained.ok() && drained.message().find("user.small") != std::string::npos) {
      refused = false;  // of the two attributes, the other one
      continue;
    }
    expect_lost(world.fs(), world.backing(), drained);
    EXPECT_THAT(drained.to_string(), HasSubstr("f: its attribute user.kept of 5 bytes"));
    EXPECT_THAT(drained.to_string(), HasSubstr(std::strerror(ENOSPC)));
    EXPECT_FALSE(world.fs().drain_all().ok()) << "it is still not there";
    EXPECT_EQ(world.fs().stats().failed_drains, 1u) << "nobody has tried again";
    make(world.calls(), "g", "value");
    EXPECT_EQ(world.fs().drain_all().to_string(), drained.to_string());
    EXPECT_EQ(content(world.backing() + "/g"), "bytes of g");
    EXPECT_EQ(attribute_of(world.calls(), "f"), "value") << "programs go on seeing it";
    EXPECT_EQ(world.calls().set_attribute("f", kAttribute, "again"), 0);
    EXPECT_TRUE(world.fs().drain_all().ok()) << "the backing has it now";
    EXPECT_EQ(world.fs().stats().lost_attributes, 0u);
  }
  EXPECT_TRUE(refused);
}

TEST_F(JobFsLost, AnAttributeThatIsTooLongForTheBackingIsKeptInTheTreeAndToldAtTheEnd) {
  JobWorld world;
  if (keeps_long(world.backing())) GTEST_SKIP() << "the file system here keeps 60 KiB";
  world.start();
  make(world.calls(), "f", long_);
  EXPECT_EQ(attribute_of(world.calls(), "f"), long_);
  expect_lost(world.fs(), world.backing(), world.fs().drain_all());
  EXPECT_EQ(attribute_of(world.calls(), "f"), long_);
  EXPECT_EQ(world.calls().set_attribute("f", "user.more", long_), ENOSPC) << "of a file that is there";
  EXPECT_EQ(world.calls().remove_attribute("f", kAttribute), 0);
  EXPECT_TRUE(world.fs().drain_all().ok());
  make(world.calls(), "g", long_);
  EXPECT_FALSE(world.fs().drain_all().ok());
  EXPECT_EQ(world.calls().unlink("g"), 0);
  EXPECT_TRUE(world.fs().drain_all().ok()) << "it is gone";
}

TEST_F(JobFsLost, SoIsThatOfAJobOfTwoNodes) {
  NodesWorld world(2);
  if (keeps_long(world.backing())) GTEST_SKIP() << "the file system here keeps 60 KiB";
  world.start();
  make(world.calls(0), "f", long_);
  const Status drained = world.fs(1).drain_everywhere();
  const size_t root = world.fs(0).stats().lost_attributes == 1 ? 0 : 1;
  expect_lost(world.fs(root), world.backing(), drained);
  EXPECT_EQ(world.fs(1 - root).stats().lost_attributes, 0u);
  EXPECT_EQ(world.calls(1).remove_attribute("f", kAttribute), 0);
  EXPECT_TRUE(world.fs(1).drain_everywhere().ok());
}

// A file's attributes have 64 KiB, their names too.
TEST_F(JobFsLost, AttributesOfSixtyFourKibTakeNoMore) {
  JobWorld world;
  world.start();
  make(world.calls(), "f", "");
  const std::string most(64 * kKiB - std::strlen(kAttribute) - std::strlen("user.small") - 5, 'x');
  EXPECT_EQ(world.calls().set_attribute("f", kAttribute, most), 0);
  EXPECT_EQ(attribute_of(world.calls(), "f"), most);
  EXPECT_NE(world.calls().set_attribute("f", kAttribute, most + "x"), 0);
  EXPECT_EQ(attribute_of(world.calls(), "f"), most);
}

}  // namespace
}  // namespace swale::fs::job_fs_lost_test
