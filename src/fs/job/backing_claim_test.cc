// BackingClaim: one job a backing, with one server or several, and servers that find themselves without it.
#include "fs/job/backing_claim.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace swale::fs::backing_claim_test {
namespace {

using testing::HasSubstr;

class BackingClaimTest : public testing::Test {
 protected:
  BackingClaimTest() {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
    root_ = io::Descriptor(::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  }
  ~BackingClaimTest() override { std::filesystem::remove_all(path_); }

  Result<std::unique_ptr<BackingClaim>> take(const std::string& job, const std::string& hosts = "one two") {
    return BackingClaim::take(root_.get(), path_, job, hosts);
  }
  std::unique_ptr<BackingClaim> taken(const std::string& job) {
    auto claim = take(job);
    EXPECT_TRUE(claim.ok()) << claim.status().to_string();
    return std::move(*claim);
  }
  std::unique_ptr<BackingClaim> joined(const BackingClaim& first) {
    auto claim = BackingClaim::join(root_.get(), path_, first.job(), first.start());
    EXPECT_TRUE(claim.ok()) << claim.status().to_string();
    return std::move(*claim);
  }
  bool is_there(const std::string& name) const { return std::filesystem::exists(path_ + "/" + name); }

  std::string path_ = (std::filesystem::temp_directory_path() / "swale-claim-XXXXXX").string();
  io::Descriptor root_;
};

TEST_F(BackingClaimTest, OneJobHasItFromItsFirstServerToItsLeave) {
  auto first = taken("job-a");
  auto other = joined(*first);
  EXPECT_TRUE(other->expect_own().ok());
  EXPECT_EQ(take("job-b").status().code(), Code::kBusy);
  EXPECT_EQ(take("job-a").status().code(), Code::kBusy) << "its servers live";
  EXPECT_TRUE(first->leave().ok());
  EXPECT_FALSE(is_there(".swale"));
  first.reset();
  taken("job-b");
}

// The lock alone would let it in.
TEST_F(BackingClaimTest, AnotherJobIsRefusedWhenTheServerThatTookItIsDeadAndOthersLive) {
  auto first = taken("job-a");
  const auto other = joined(*first);
  first.reset();
  const auto refused = take("job-b");
  EXPECT_EQ(refused.status().code(), Code::kBusy);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("job-a has it"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("on one two"));
  EXPECT_FALSE(is_there(".swale/job-b"));
  EXPECT_TRUE(other->expect_own().ok());
}

TEST_F(BackingClaimTest, AServerThatWakesAfterItsJobWasStartedAnewOrHasEndedHasItNoMore) {
  auto first = taken("job-a");
  const auto away = joined(*first);
  first.reset();
  const auto second = taken("job-a");
  const auto fresh = joined(*second);
  const Status lost = away->expect_own();
  EXPECT_EQ(lost.code(), Code::kAborted);
  EXPECT_EQ(lost.posix_error(), EIO);
  EXPECT_THAT(std::string(lost.message()), HasSubstr("without this one"));
  EXPECT_TRUE(second->expect_own().ok());
  EXPECT_TRUE(fresh->expect_own().ok());
  ASSERT_TRUE(BackingClaim::end_starts(root_.get(), path_, "job-a").ok());
  EXPECT_EQ(second->expect_own().code(), Code::kAborted) << "its servers meet anew";
  EXPECT_FALSE(BackingClaim::join(root_.get(), path_, "job-a", second->start()).ok());
  EXPECT_TRUE(second->leave().ok());
  EXPECT_EQ(fresh->expect_own().code(), Code::kAborted) << "its job has ended";
  EXPECT_TRUE(BackingClaim::end_starts(root_.get(), path_, "job-a").ok()) << "there is none";
}

// Its bytes are that user's, who knows what the buffers have.
TEST_F(BackingClaimTest, OnlyTheUserWhoseJobItIsUsesOrRecoversIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a directory another user's";
  constexpr uid_t kOther = 65532;
  const std::string folder = path_ + "/.swale";
  taken("job-a").reset();  // as a kill leaves it
  ASSERT_EQ(::chown(folder.c_str(), kOther, static_cast<gid_t>(-1)), 0);
  const Status refused[] = {take("job-a").status(), take("job-b").status(),
                            BackingClaim::open_meeting(root_.get(), path_).status(),
                            BackingClaim::end_starts(root_.get(), path_, "job-a")};
  for (const Status& each : refused) {
    EXPECT_EQ(each.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(each.message()), HasSubstr("only that user can use or recover it"));
    EXPECT_THAT(std::string(each.message()), HasSubstr("belongs to user 65532"));
  }
  EXPECT_FALSE(is_there(".swale/job-b"));
  ASSERT_EQ(::chown(folder.c_str(), ::geteuid(), static_cast<gid_t>(-1)), 0);
  taken("job-a");
}

TEST_F(BackingClaimTest, RanksMeetInAFolderThatIsNoJobs) {
  const auto meeting = BackingClaim::open_meeting(root_.get(), path_);
  ASSERT_TRUE(meeting.ok()) << meeting.status().to_string();
  struct stat found;
  ASSERT_EQ(::stat((path_ + "/.swale/meeting").c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
  std::filesystem::create_directory(path_ + "/.swale/meeting/left-by-a-kill");
  const auto claim = taken("job-a");
  EXPECT_TRUE(claim->leave().ok());
  EXPECT_FALSE(is_there(".swale"));
}

}  // namespace
}  // namespace swale::fs::backing_claim_test
