// Records of the log that are damaged, while the engine runs and while it does not: a read gives what was
// acknowledged last, or is refused; it never gives older bytes.
#include <gtest/gtest.h>

#include "tier/engine/testing/crash_options.h"
#include "tier/engine/testing/crash_world.h"

namespace swale::tier::engine_damage_test {
namespace {

struct Outcome {
  std::string wrong;
  uint64_t damaged = 0;
  uint64_t refused_bytes = 0;
  std::map<std::string, uint64_t> visited;
};

Outcome run_seed(uint64_t seed, const Canaries& canaries) {
  Rng rng(seed);
  Options options = small_options(&rng);
  options.canaries = canaries;
  CrashWorld world(options, seed * 104729);
  Outcome run;
  const auto go = [&](const std::string& wrong) { return (run.wrong = wrong).empty(); };
  for (int life = 0; life < 4 && run.wrong.empty(); ++life) {
    const uint64_t steps = 50 + rng.below(300);
    for (uint64_t i = 0; i < steps && run.wrong.empty(); ++i) {
      if (rng.chance(1, 40)) world.damage(1);
      go(world.step());
    }
    if (run.wrong.empty() && rng.chance(1, 4)) go(world.settle());
    if (run.wrong.empty()) go(world.crash(static_cast<uint32_t>(rng.below(4))));
    if (run.wrong.empty() && rng.chance(1, 4))
      go(world.crash());  // before anything of the recovery is durable
    if (run.wrong.empty() && rng.chance(1, 6)) go(world.accept());
  }
  if (run.wrong.empty()) go(world.settle());
  run.damaged = world.damaged();
  run.refused_bytes = world.refused_bytes();
  run.visited = world.visited();
  return run;
}

TEST(EngineDamage, AReadGivesTheNewestBytesOrIsRefusedAndNeverOlderOnes) {
  uint64_t damaged = 0;
  uint64_t refused = 0;
  std::map<std::string, uint64_t> visited;
  for (uint64_t seed = 1; seed <= 400u * scale(); ++seed) {
    const Outcome run = run_seed(seed, {});
    ASSERT_EQ(run.wrong, "") << "seed " << seed;
    damaged += run.damaged;
    refused += run.refused_bytes;
    for (const auto& [point, count] : run.visited) visited[point] += count;
  }
  std::printf("%lu records damaged, %lu bytes refused in checks\n", damaged, refused);
  for (const char* part : {"header", "end", "checks", "payload", "sector"}) {
    std::printf("%8lu damaged %s\n", visited[std::string("damaged ") + part], part);
    EXPECT_GT(visited[std::string("damaged ") + part], 0u) << part;
  }
  std::printf("%8lu torn records voided\n", visited["torn record voided"]);
  EXPECT_GT(visited["torn record voided"], 0u);
  EXPECT_GT(refused, 0u);
}

// Only reads of damaged records may be refused: undamaged ones are in engine_crash_test.cc, which allows no
// refusal.
bool noticed(const Canaries& canaries) {
  for (uint64_t seed = 1; seed <= 3000; ++seed)
    if (!run_seed(seed, canaries).wrong.empty()) return true;
  return false;
}

TEST(EngineDamage, CanaryLossesThatAreForgotten) { EXPECT_TRUE(noticed({.forget_losses = true})); }
TEST(EngineDamage, CanaryErasuresBeforeTheListOfLossesIsDurable) {
  EXPECT_TRUE(noticed({.erase_unsaved = true}));
}
TEST(EngineDamage, CanaryTornRecordsThatCountAsLost) { EXPECT_TRUE(noticed({.poison_torn = true})); }

}  // namespace
}  // namespace swale::tier::engine_damage_test
