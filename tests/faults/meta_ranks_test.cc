// The metadata store in jobs of real processes on several hosts: each host is a network namespace of its own,
// its ranks talk over TCP to those of other hosts. All answers are right (meta_ranks.cc), and storms of
// requests take as many messages as the model says (sim/meta_model.h): exactly where requests are not
// combined; where they are, both lie within the same bounds. The model's times are not compared: 32 ranks on
// two cores wait for the scheduler, not for messages.
//
// SWALE_FAULT_ROUNDS > 1: 32 ranks on 4 hosts; otherwise 6 on 2.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "sim/meta_model.h"
#include "tests/faults/network.h"
#include "tests/faults/rank_job.h"

namespace swale::faults::meta_ranks_test {
namespace {

constexpr Seconds kPatience(300);

struct Shape {
  uint32_t hosts, ranks_per_host, servers_per_host;
};

struct Method {
  const char* name;
  sim::StormMethod model;
};
constexpr Method kPlain{"plain", sim::StormMethod::kOursPlain};
constexpr Method kDirect{"direct", sim::StormMethod::kOursDirect};
constexpr Method kRing{"ring", sim::StormMethod::kOursRing};

struct Storm {
  unsigned long rounds = 0, requests = 0, at_root = 0, cpu_us = 0, span_us = 0, slowest_us = 0;
};

Storm run_job(const Shape& shape, const Method& method, const Network* network) {
  const Scratch scratch("meta-ranks");
  LaunchParams params;
  params.size = static_cast<int>(shape.hosts * shape.ranks_per_host);
  params.program = META_RANKS;
  params.arguments = {scratch.path() + "/store", std::to_string(shape.servers_per_host), method.name, "200",
                      "5"};
  params.job_id = "meta-ranks";
  params.rendezvous = scratch.path() + "/rendezvous";
  std::filesystem::create_directories(params.rendezvous);
  std::filesystem::permissions(params.rendezvous, std::filesystem::perms::owner_all);
  params.environment = {"UCX_TLS=tcp,self"};
  if (network != nullptr) params.environment.push_back("UCX_NET_DEVICES=eth0");
  for (uint32_t rank = 0; rank < shape.hosts * shape.ranks_per_host; ++rank) {
    const uint32_t host = rank / shape.ranks_per_host;
    std::vector<std::string> words;
    if (network != nullptr) words = network->enter(static_cast<int>(host));
    words.insert(words.end(), {"/usr/bin/env", fmt::format("SWALE_JOB_NODE=host{}", host)});
    params.before.push_back(words);
  }
  Launcher job(params);
  Storm storm;
  EXPECT_TRUE(job.wait_for_ends(kPatience)) << job.describe();
  for (int rank = 0; rank < params.size; ++rank)
    EXPECT_NE(job.end(rank).find("done"), nullptr) << "rank " << rank << "\n" << job.describe();
  const Line* const line = job.end(0).find("storm");
  const int fields =
      line == nullptr
          ? 0
          : std::sscanf(line->text.c_str(),
                        "storm %lu rounds, %lu requests, %lu at the root, %lu us of CPU, span %lu us, "
                        "slowest %lu us",
                        &storm.rounds, &storm.requests, &storm.at_root, &storm.cpu_us, &storm.span_us,
                        &storm.slowest_us);
  EXPECT_EQ(fields, 6) << job.describe();
  return storm;
}

// Of ranks that ask at random times within `span_us`.
sim::StormResult model_of(const Shape& shape, const Method& method, unsigned long span_us) {
  sim::StormParams params;
  params.method = method.model;
  params.nodes = shape.hosts;
  params.clients_per_node = shape.ranks_per_host;
  params.servers_per_node = shape.servers_per_host;
  params.spread = static_cast<Nanos>(span_us) * 1000;
  return sim::run_storm(params);
}

void compare(const Shape& shape, const Method& method, const Network* network) {
  const Storm storm = run_job(shape, method, network);
  ASSERT_GT(storm.rounds, 0u);
  const sim::StormResult model = model_of(shape, method, storm.span_us);
  // Of the model: a message each way, at the root both its requests and its answers.
  const double requests = static_cast<double>(storm.requests) / static_cast<double>(storm.rounds);
  const double at_root = static_cast<double>(storm.at_root) / static_cast<double>(storm.rounds);
  const auto model_requests = static_cast<double>(model.messages) / 2;
  const auto model_at_root = static_cast<double>(model.root_messages) / 2;
  fmt::print(
      "{} ranks on {} hosts, {}: {} requests a storm (model {}), {} at the root (model {}), {} us of CPU a "
      "message, asked within {} us, slowest {} us (model {})\n",
      shape.hosts * shape.ranks_per_host, shape.hosts, method.name, requests, model_requests, at_root,
      model_at_root, storm.cpu_us / (2 * storm.requests), storm.span_us, storm.slowest_us,
      model.slowest / 1000);
  const double clients = shape.hosts * shape.ranks_per_host;
  if (method.model == sim::StormMethod::kOursPlain) {
    EXPECT_EQ(requests, model_requests);
    EXPECT_EQ(at_root, model_at_root);
    return;
  }
  // Each server but the root has clients and forwards once at least; combining never costs the root more than
  // no combining.
  const double servers = shape.hosts * shape.servers_per_host;
  for (const double each : {requests, model_requests}) EXPECT_GE(each, clients + servers - 1);
  for (const double each : {at_root, model_at_root}) EXPECT_LE(each, clients);
  EXPECT_NEAR(requests, model_requests, model_requests / 2);
}

TEST(MetaRanks, AnswerRightOnSeveralHostsWithAsManyMessagesAsTheModelSays) {
  const char* const rounds = std::getenv("SWALE_FAULT_ROUNDS");
  const bool large = rounds != nullptr && std::atoi(rounds) > 1;
  const Shape shape = large ? Shape{4, 8, 2} : Shape{2, 3, 1};
  std::string why;
  const std::unique_ptr<Network> network = Network::make(static_cast<int>(shape.hosts), &why);
  if (network == nullptr) fmt::print("all hosts share one network: {}\n", why);
  for (const Method& method : {kPlain, kDirect, kRing}) compare(shape, method, network.get());
}

// A count that is off by one request is seen.
TEST(MetaRanks, CanaryTheModelOfAnotherShapeIsAnother) {
  const Shape shape{2, 3, 1}, other{2, 4, 1};
  EXPECT_NE(model_of(shape, kPlain, 0).messages, model_of(other, kPlain, 0).messages);
  EXPECT_NE(model_of(shape, kPlain, 0).root_messages, model_of(other, kPlain, 0).root_messages);
}

}  // namespace
}  // namespace swale::faults::meta_ranks_test
