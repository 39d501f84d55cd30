#include "net/meeting/rendezvous_base.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/log.h"
#include "net/meeting/rendezvous.h"

namespace swale::net::rendezvous_base_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uid_t kVictim = 12345;
constexpr uid_t kNeighbour = 12346;

// A place like /tmp, in which a neighbour may plant what he wants. The calls are made as the victim.
class RendezvousBase : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root can be two users";
    char path[] = "/tmp/swale_base_XXXXXX";
    place_ = ::mkdtemp(path);
    ASSERT_EQ(::chmod(place_.c_str(), 01777), 0);
    own_ = place_ + "/own";
    ASSERT_EQ(::mkdir(own_.c_str(), 0700), 0);
    ASSERT_EQ(::chown(own_.c_str(), kVictim, kVictim), 0);
    set_log_sink([this](LogLevel, std::string_view message) { logged_ += message; });
    ASSERT_EQ(::seteuid(kVictim), 0);
  }
  void TearDown() override {
    if (place_.empty()) return;
    ASSERT_EQ(::seteuid(0), 0);
    set_log_sink({});
    std::filesystem::remove_all(place_);
  }
  // As root: a folder of this owner and mode.
  void plant(const std::string& path, uid_t owner, mode_t mode) {
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_TRUE(::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST);
    ASSERT_EQ(::chown(path.c_str(), owner, owner), 0);
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    ASSERT_EQ(::seteuid(kVictim), 0);
  }
  void plant_link(const std::string& path, const std::string& target, uid_t owner) {
    ASSERT_EQ(::seteuid(0), 0);
    ASSERT_EQ(::symlink(target.c_str(), path.c_str()), 0);
    ASSERT_EQ(::lchown(path.c_str(), owner, owner), 0);
    ASSERT_EQ(::seteuid(kVictim), 0);
  }
  // What opening a job there says; "" if it opens.
  static std::string opening(const std::string& base) {
    RendezvousOptions options;
    options.directory = base;
    options.job_id = "job";
    options.node_id = "node";
    return std::string(rendezvous_bootstrap(options).status().message());
  }

  std::string place_;
  std::string own_;
  std::string logged_;
};

TEST_F(RendezvousBase, OnesOwnIsTaken) {
  EXPECT_EQ(opening(own_), "");
  EXPECT_EQ(opening(own_ + "/"), "");
  EXPECT_EQ(opening(own_ + "/made"), "");
  EXPECT_EQ(opening(place_), "") << "as /tmp itself";
  plant(own_, kVictim, 0755);
  EXPECT_EQ(opening(own_), "") << "others may read it: what is in it is 0700";
  plant_link(place_ + "/own-link", own_, kVictim);
  EXPECT_EQ(opening(place_ + "/own-link"), "");
}

TEST_F(RendezvousBase, WhatAnotherUserCanChangeIsRefused) {
  plant(place_ + "/his", kNeighbour, 0777);
  EXPECT_THAT(opening(place_ + "/his"),
              AllOf(HasSubstr("/his"), HasSubstr("user 12346"), HasSubstr("mkdir -m 700")));
  plant(place_ + "/his/below", kVictim, 0700);
  EXPECT_THAT(opening(place_ + "/his/below"), HasSubstr("user 12346")) << "he can move it away";
  plant_link(place_ + "/his-link", own_, kNeighbour);
  EXPECT_THAT(opening(place_ + "/his-link"), HasSubstr("user 12346")) << "he can lead it elsewhere";
  plant_link(own_ + "/to-his", place_ + "/his", kVictim);
  EXPECT_THAT(opening(own_ + "/to-his"), HasSubstr("user 12346")) << "one's own link, to a place of his";
  for (const mode_t mode : {0777, 0770}) {
    plant(own_, kVictim, mode);
    EXPECT_THAT(opening(own_), AllOf(HasSubstr(fmt::format("{:04o}", mode)), HasSubstr("no sticky bit")));
    plant(own_, kVictim, mode | 01000);
    EXPECT_EQ(opening(own_), "") << "with the sticky bit nobody can move what is in it";
  }
  plant(own_, kVictim, 0777);
  EXPECT_THAT(opening(own_ + "/below"), HasSubstr("0777"));
  EXPECT_TRUE(std::filesystem::is_empty(own_ + "/below")) << "nothing was told";
  plant(own_, kVictim, 0770);
  EXPECT_EQ(opening(own_ + "/below"), "") << "a project's folder";
}

TEST_F(RendezvousBase, IfTheUsualPlaceIsTakenBySomebodyElseTheNextOneIs) {
  const std::vector<std::string> candidates = {place_ + "/first", place_ + "/second", own_ + "/third"};
  EXPECT_EQ(own_rendezvous_base(candidates).value(), candidates[0]);
  struct stat found;
  ASSERT_EQ(::stat(candidates[0].c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, 0700u);
  EXPECT_EQ(own_rendezvous_base(candidates).value(), candidates[0]) << "it is there already";
  EXPECT_EQ(logged_, "");
  plant(candidates[0], kVictim, 0755);
  EXPECT_EQ(own_rendezvous_base(candidates).value(), candidates[1]);
  EXPECT_THAT(logged_, AllOf(HasSubstr("/second"), HasSubstr("/first"), HasSubstr("0755")));
  plant(candidates[0], kNeighbour, 0700);
  EXPECT_EQ(own_rendezvous_base(candidates).value(), candidates[1]);
  ASSERT_EQ(::rmdir(candidates[1].c_str()), 0);
  plant_link(candidates[1], own_, kNeighbour);
  EXPECT_EQ(own_rendezvous_base(candidates).value(), candidates[2]);
  plant(own_, kVictim, 0777);
  const Status none = own_rendezvous_base(candidates).status();
  EXPECT_EQ(none.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(none.message()),
              AllOf(HasSubstr("/first"), HasSubstr("/second"), HasSubstr("0777")));
}

}  // namespace
}  // namespace swale::net::rendezvous_base_test
