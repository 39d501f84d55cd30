// Recovery without all nodes, without memory: an allocation that fails is an error, and what is repeated
// comes to the same plan and the same report; the log of paths has what it answered for.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/contain.h"
#include "base/testing/test_allocations.h"
#include "fs/losses/loss_plan.h"
#include "fs/losses/loss_report.h"
#include "fs/node/known_paths.h"
#include "io/memory_device.h"

namespace swale::fs::losses_alloc_test {
namespace {

using test::Allocations;

const meta::FileId kShared{0, 5}, kRootless{2, 6}, kPath{1, 7};

// Two nodes of three are left.
std::vector<std::string> surveys_of_nodes() {
  std::vector<std::string> surveys;
  for (NodeId node = 0; node < 2; ++node) {
    NodeSurvey survey;
    survey.node = node, survey.nodes = 3, survey.tree = 77, survey.job = "job-of-the-allocation-test";
    survey.logs[kShared].orders.put({node * 10ul, node * 10ul + 15}, 9);
    survey.logs[kRootless].orders.put({0, 100}, 4);
    survey.paths[kRootless] = "a directory/with a long name of a file";
    if (node == 0) {
      survey.names.push_back(
          {meta::kRootDirectory, "a long name of a file", {kShared, meta::NodeType::kFile}});
      survey.files[kShared];
      FileRoots::Known root;
      root.file = kShared, root.size = 40;
      for (NodeId each = 0; each < 3; ++each) root.parts.put({each * 10ul, each * 10ul + 10}, each);
      survey.roots.push_back(root);
    }
    surveys.push_back(encode(survey));
  }
  return surveys;
}

// Everything is tried again once: one allocation fails. False: it has failed twice.
template <class Call>
bool twice(const Call& call, int* refused) {
  for (int i = 0; i < 2; ++i) {
    const Allocations::Library library;
    const Status status = contain(call);
    if (status.ok()) return true;
    EXPECT_EQ(status.posix_error(), ENOMEM) << status.to_string();
    ++*refused;
  }
  return false;
}

TEST(LossesAlloc, EachAllocationMayFail) {
  Allocations::spare_this_thread();
  const std::vector<std::string> texts = surveys_of_nodes();
  std::string first_document, first_text;
  int refused = 0, points = 0;
  for (bool hit = true; hit; ++points) {
    io::MemoryDevice device;
    std::vector<NodeSurvey> surveys;
    std::string document, text;
    std::unique_ptr<KnownPaths> paths;
    Allocations::fail(points, points == 0 ? 0 : 1);  // the first round has all memory
    EXPECT_TRUE(twice(
        [&]() -> Status {
          surveys.clear();
          for (const std::string& each : texts) {
            SWALE_ASSIGN_OR_RETURN(NodeSurvey survey, decode_survey(each));
            surveys.push_back(std::move(survey));
          }
          return {};
        },
        &refused));
    EXPECT_TRUE(twice(
        [&]() -> Status {
          SWALE_ASSIGN_OR_RETURN(const LossPlan plan, plan_losses(surveys, {2}));
          document = loss_document(plan, {});
          text = loss_text(plan, {});
          return {};
        },
        &refused));
    const auto open = [&]() -> Status {
      SWALE_ASSIGN_OR_RETURN(paths, KnownPaths::open(device, "/state"));
      return {};
    };
    EXPECT_TRUE(twice(open, &refused));
    for (const char* const path : {"the first path of a file", "its second path, which is longer"})
      EXPECT_TRUE(twice([&] { return paths->put(kPath, path); }, &refused));
    const std::vector<std::pair<meta::FileId, std::string>> moved = {
        {kShared, "of a rename of its directory"}};
    EXPECT_TRUE(twice([&] { return paths->put(moved); }, &refused));
    hit = points == 0 || Allocations::hit();
    Allocations::stop();
    if (points == 0) first_document = document, first_text = text;
    EXPECT_EQ(document, first_document) << "at allocation " << points;
    EXPECT_EQ(text, first_text) << "at allocation " << points;
    EXPECT_NE(text.find("bytes 25 to 30 were on node 2 alone"), std::string::npos) << text;
    paths.reset();
    EXPECT_TRUE(twice(open, &refused));
    EXPECT_EQ(paths->paths(), (KnownPaths::Paths{{kPath, "its second path, which is longer"},
                                                 {kShared, "of a rename of its directory"}}))
        << "at allocation " << points;
    if (testing::Test::HasFailure()) break;
  }
  std::printf("%d allocations failed, %d calls were refused\n", points - 2, refused);
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace swale::fs::losses_alloc_test
