#include "fs/job/job_nodes.h"

#include <gtest/gtest.h>

namespace swale::fs {
namespace {

constexpr meta::FileId kFile{7, 1};
constexpr meta::FileId kOther{7, 2};
const JobNodes::Place kOld{meta::kRootDirectory, "old"};
const JobNodes::Place kNew{meta::kRootDirectory, "new"};

std::string name_of(const JobNodes& nodes, const meta::FileId& id) {
  const auto place = nodes.place_of(id);
  return place ? place->name : "none";
}

TEST(JobNodes, WhatALookUpFindsIsThePlace) {
  JobNodes nodes;
  nodes.put(kFile, kNew);
  const JobNodes::LookUp later(nodes);
  EXPECT_TRUE(nodes.put_found(later, kFile, kOld));
  EXPECT_EQ(name_of(nodes, kFile), "old");
}

TEST(JobNodes, AChangeSinceALookUpBeganStays) {
  JobNodes nodes;
  nodes.put(kFile, kOld);
  const JobNodes::LookUp began(nodes);
  nodes.put(kFile, kNew);
  EXPECT_TRUE(nodes.put_found(began, kFile, kOld));
  EXPECT_EQ(name_of(nodes, kFile), "new");
}

TEST(JobNodes, ANewPlaceOfWhatWasNotMetYetIsKeptForALookUpThatIsUnderWay) {
  JobNodes nodes;
  const JobNodes::LookUp began(nodes);
  nodes.put_if_met(kFile, kNew);
  nodes.put_if_met(kOther, kNew);
  EXPECT_EQ(name_of(nodes, kFile), "none");
  EXPECT_TRUE(nodes.put_found(began, kFile, kOld));
  EXPECT_EQ(name_of(nodes, kFile), "new");
  EXPECT_EQ(name_of(nodes, kOther), "none");
}

TEST(JobNodes, WhatWasRemovedSinceALookUpBeganIsNotFound) {
  JobNodes nodes;
  nodes.put(kFile, kOld);
  const JobNodes::LookUp began(nodes);
  nodes.remove(kFile);
  EXPECT_FALSE(nodes.put_found(began, kFile, kOld));
  EXPECT_EQ(name_of(nodes, kFile), "none");
}

TEST(JobNodes, TheLastOfSeveralChangesStays) {
  JobNodes nodes;
  const JobNodes::LookUp began(nodes);
  nodes.remove(kFile);
  nodes.put(kFile, kNew);
  EXPECT_TRUE(nodes.put_found(began, kFile, kOld));
  EXPECT_EQ(name_of(nodes, kFile), "new");
}

// The end of a later look-up, or of an earlier one, takes no change from those that go on.
TEST(JobNodes, EachLookUpMeetsTheChangesSinceItBegan) {
  JobNodes nodes;
  auto first = std::make_unique<JobNodes::LookUp>(nodes);
  nodes.put(kOther, kNew);
  const JobNodes::LookUp second(nodes);
  nodes.put(kFile, kNew);
  { const JobNodes::LookUp third(nodes); }
  first.reset();
  EXPECT_TRUE(nodes.put_found(second, kFile, kOld));
  EXPECT_EQ(name_of(nodes, kFile), "new");
  EXPECT_TRUE(nodes.put_found(second, kOther, kOld));
  EXPECT_EQ(name_of(nodes, kOther), "old") << "it was changed before the second began";
}

}  // namespace
}  // namespace swale::fs
