// NodeFiles on a machine that loses power: its memory is gone, and of its storage what was not synced. Bytes
// that keep() has made durable are there; later ones may be, each for itself.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"
#include "fs/node/testing/node_rig.h"

namespace swale::fs::power_loss_test {
namespace {

// What each byte of a file may be after a power loss.
class Model {
 public:
  void write(uint64_t offset, const std::string& bytes) {
    resize(std::max<size_t>(now_.size(), offset + bytes.size()));
    for (size_t i = 0; i < bytes.size(); ++i) {
      now_[offset + i] = bytes[i];
      may_be_[offset + i] += bytes[i];
    }
  }
  // Durable at once, as is what it cuts.
  void truncate(uint64_t size) {
    resize(size);
    kept_ = std::min<size_t>(kept_, size);
  }
  void keep() {
    kept_ = now_.size();
    for (size_t i = 0; i < kept_; ++i) may_be_[i] = now_[i];
  }
  const std::string& now() const { return now_; }
  // "" or what is wrong with the file after a power loss; from now on it is what was found.
  std::string judge(const std::string& found) {
    std::string wrong;
    if (found.size() < kept_)
      wrong = fmt::format("it has {} bytes of {} that were kept", found.size(), kept_);
    for (size_t i = 0; wrong.empty() && i < found.size(); ++i) {
      const bool known = i < may_be_.size() && may_be_[i].find(found[i]) != std::string::npos;
      if (!known && (i < kept_ || found[i] != '\0'))
        wrong = fmt::format("byte {} is none that was written", i);
    }
    now_ = found;
    may_be_.resize(now_.size());
    keep();
    return wrong;
  }

 private:
  void resize(size_t size) {
    const size_t before = now_.size();
    now_.resize(size, '\0');
    may_be_.resize(size);
    for (size_t i = before; i < size; ++i) may_be_[i] = '\0';
  }
  std::string now_;
  std::vector<std::string> may_be_;
  size_t kept_ = 0;  // bytes that must be there
};

class PowerLossTest : public NodeRig {
 protected:
  PowerLossTest() {
    small_chunks(64 * 1024, 12);
    options_.spill_directory = "/spill";
    options_.outlives_power = true;
  }
  void boot() {
    node_.reset();
    auto node = NodeFiles::open(device_, storage_device_, options_, backing_);
    ASSERT_TRUE(node.ok()) << node.status().to_string();
    node_ = std::move(*node);
    for (const uint32_t log : node_->logs().logs()) {
      const std::vector<uint32_t> left = node_->logs().logs();  // the end of one frees others that are over
      if (std::find(left.begin(), left.end(), log) == left.end()) continue;
      ASSERT_TRUE(node_->end_log(log).ok());
    }
    for (Writer& writer : writers_) {
      const auto log = node_->logs().add_log();
      ASSERT_TRUE(log.ok()) << log.status().to_string();
      writer.log.detach();
      attach(writer.log, *log);
    }
    for (const meta::FileId& id : {kFile, kOther}) ASSERT_TRUE(node_->open_file(id).ok());
  }
  void lose_power(Rng& rng, io::CrashMode mode) {
    node_.reset();
    storage_device_.crash(rng, mode);
    std::filesystem::remove_all(options_.memory_directory);
  }
  void put(size_t writer, const meta::FileId& id, uint64_t offset, const std::string& bytes) {
    ASSERT_EQ(writers_[writer].log.write(id, offset, bytes.data(), bytes.size()),
              static_cast<int64_t>(bytes.size()));
  }
  bool keep(const meta::FileId& id) {
    const auto chunks = node_->in_memory(id);
    EXPECT_TRUE(chunks.ok()) << chunks.status().to_string();
    const auto kept = node_->keep(*chunks, {id, ++time_});
    EXPECT_TRUE(kept.ok()) << kept.status().to_string();
    return kept.ok() && *kept != NodeLogs::Kept::kNotYet;
  }

  struct Writer {
    LogWriter log;
  };
  Writer writers_[2];
  int runs_ = 0;
  int64_t time_ = 0;
  io::MemoryDevice storage_device_;

  // Lives that end by a power loss. "" or what is wrong.
  std::string live(uint64_t seed, int lives, io::CrashMode mode) {
    std::filesystem::remove_all(options_.memory_directory);
    options_.spill_directory = fmt::format("/spill{}", ++runs_);
    Rng rng(seed);
    std::map<meta::FileId, Model> models;
    for (int life = 0; life < lives; ++life) {
      boot();
      for (auto& [id, model] : models)
        if (const std::string wrong = model.judge(read(id)); !wrong.empty())
          return fmt::format("life {}: file {}: {}", life, id.low, wrong);
      const uint64_t steps = 20 + rng.below(60);
      for (uint64_t step = 0; step < steps; ++step) {
        const meta::FileId id = rng.below(2) == 0 ? kFile : kOther;
        Model& model = models[id];
        const uint64_t kind = rng.below(100);
        if (kind < 75) {
          const uint64_t offset = rng.below(40'000);
          const std::string bytes = pattern(rng.below(1'000'000), 1 + rng.below(6000));
          put(rng.below(2), id, offset, bytes);
          model.write(offset, bytes);
        } else if (kind < 88) {
          if (!keep(id)) return "keep() waits for a writer that is not there";
          model.keep();
        } else if (kind < 92) {
          const uint64_t size = rng.below(50'000);
          EXPECT_TRUE(node_->truncate(id, size).ok());
          model.truncate(size);
        }
        EXPECT_TRUE(node_->serve().ok());
        if (read(id) != model.now()) return fmt::format("life {}: file {} reads otherwise", life, id.low);
      }
      if (rng.below(3) > 0) lose_power(rng, mode);  // else the server is killed
    }
    return "";
  }
};

// In files of their own, in a journal that has space for all, and in one that often begins anew.
TEST_F(PowerLossTest, WhatWasKeptIsThere) {
  for (const uint64_t journal : {0, 8 << 20, 64 << 10}) {
    options_.rules.journal_bytes_max = journal == 0 ? 0 : LogRules().journal_bytes_max;
    options_.rules.journal_bytes = journal;
    for (uint64_t seed = 1; seed <= 6; ++seed)
      for (const io::CrashMode mode : {io::CrashMode::kDropAll, io::CrashMode::kTearPages})
        EXPECT_EQ(live(seed, 6, mode), "") << "seed " << seed << ", journal of " << journal;
  }
}

TEST_F(PowerLossTest, CanaryAKeepThatDoesNotSyncLosesBytes) {
  options_.rules.sync_spills = false;
  const std::string wrong = live(1, 8, io::CrashMode::kDropAll);
  EXPECT_NE(wrong, "");
  std::printf("noticed: %s\n", wrong.c_str());
}

// The old bytes, whose chunk nobody reads any more, or the new ones.
TEST_F(PowerLossTest, OverwrittenBytesStayUntilTheNewOnesAreDurable) {
  for (const bool outlives : {true, false}) {
    options_.outlives_power = outlives;
    options_.spill_directory = fmt::format("/spill{}", ++runs_);
    boot();
    put(0, kFile, 0, pattern(1, 20'000));
    ASSERT_TRUE(keep(kFile));
    for (uint64_t i = 2; i < 30; ++i) {
      put(i % 2, kFile, 0, pattern(i, 20'000));
      ASSERT_TRUE(node_->serve().ok());
    }
    const std::string now = read(kFile);
    ASSERT_TRUE(storage_device_.sync_directory(options_.spill_directory).ok());  // a removal is there to stay
    Rng rng(1);
    lose_power(rng, io::CrashMode::kDropAll);
    boot();
    const std::string found = read(kFile);
    EXPECT_EQ(found.size() == now.size(), outlives) << "or the canary was not noticed";
    node_.reset();
    std::filesystem::remove_all(options_.memory_directory);
  }
}

TEST_F(PowerLossTest, ChunksOfOthersAreNotTouched) {
  options_.rules.journal_bytes_max = 0;
  boot();
  put(0, kFile, 0, pattern(1, 10'000));
  put(1, kOther, 0, pattern(2, 10'000));
  ASSERT_TRUE(keep(kFile));
  EXPECT_EQ(node_->logs().spilled_chunks(), 1u);
  EXPECT_TRUE(node_->in_memory(kFile)->empty());
  EXPECT_EQ(node_->in_memory(kOther)->size(), 1u);
  put(0, kFile, 10'000, pattern(3, 10'000));  // the next chunk is there without a turn of the server
  EXPECT_EQ(read(kFile), pattern(1, 10'000) + pattern(3, 10'000));
  Rng rng(1);
  lose_power(rng, io::CrashMode::kDropAll);
  boot();
  EXPECT_EQ(read(kFile), pattern(1, 10'000));
}

// The journal takes bytes and time, and leaves the chunk to its writer.
TEST_F(PowerLossTest, AJournalTakesASmallSync) {
  boot();
  put(0, kFile, 0, pattern(1, 10'000));
  put(1, kOther, 0, pattern(2, 10'000));
  ASSERT_TRUE(keep(kFile));
  EXPECT_TRUE(node_->in_memory(kFile)->empty());
  EXPECT_EQ(node_->in_memory(kOther)->size(), 1u);
  put(0, kFile, 10'000, pattern(3, 500));
  EXPECT_EQ(node_->in_memory(kFile)->size(), 1u);
  ASSERT_TRUE(keep(kFile));
  put(0, kFile, 10'500, pattern(4, 500));
  EXPECT_EQ(node_->logs().spilled_chunks(), 0u);
  Rng rng(1);
  lose_power(rng, io::CrashMode::kDropAll);
  boot();
  EXPECT_EQ(read(kFile), pattern(1, 10'000) + pattern(3, 500));
  EXPECT_EQ(node_->logs().spilled_chunks(), 1u);
  EXPECT_EQ(node_->logs().found_times().at(kFile), time_);
  EXPECT_FALSE(node_->logs().found_times().contains(kOther));
}

}  // namespace
}  // namespace swale::fs::power_loss_test
