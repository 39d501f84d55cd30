// StageRig: a tree to stage, a place for it, and what must be true of the place afterwards. Small pieces and
// batches, so that few bytes meet each path of the code.
// Threads: one.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>

#include "io/fault_device.h"
#include "stage/stage.h"

namespace swale::stage {

inline std::string bytes_of(uint64_t seed, size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((i + 1) * (2 * seed + 2'654'435'761) >> 9);
  return bytes;
}

inline void put(const std::string& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
}

inline std::string get(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Each path below `root`, and what is there: the content, "-> target" or "folder", with mode and time.
inline std::map<std::string, std::string> listing(const std::string& root) {
  std::map<std::string, std::string> found;
  for (const auto& each : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = each.path();
    struct stat attributes;
    EXPECT_EQ(::lstat(path.c_str(), &attributes), 0) << path;
    std::string what = fmt::format("{:o} {}.{:09} ", attributes.st_mode, attributes.st_mtim.tv_sec,
                                   attributes.st_mtim.tv_nsec);
    if (S_ISLNK(attributes.st_mode)) what = "-> " + std::filesystem::read_symlink(path).string();
    if (S_ISREG(attributes.st_mode)) what += get(path);
    found[path.substr(root.size() + 1)] = what;
  }
  return found;
}

class StageRig : public testing::Test {
 protected:
  static constexpr uint64_t kPiece = 64 * kKiB;

  StageRig() {
    std::string name = std::filesystem::temp_directory_path().string() + "/swale-stage-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    root_ = name;
    std::filesystem::create_directories(from());
  }
  ~StageRig() override {
    std::error_code failed;
    std::filesystem::remove_all(root_, failed);
    EXPECT_FALSE(failed) << failed.message();
  }

  std::string from() const { return root_ + "/from"; }
  std::string to() const { return root_ + "/to"; }
  StageOptions options(Direction direction = Direction::kOut) const {
    StageOptions options;
    options.direction = direction;
    options.from = from();
    options.to = to();
    options.status = root_ + "/status";
    options.threads = 3;
    options.piece_bytes = kPiece;
    options.batch_bytes = 2 * kPiece;
    options.batch_files = 2;
    options.chunk_bytes = 16 * kKiB;
    return options;
  }
  StageOptions manifest_options(const std::string& text) const {
    StageOptions chosen = options();
    put(root_ + "/manifest", text);
    chosen.manifest = root_ + "/manifest";
    chosen.from = chosen.to = "";
    return chosen;
  }

  // Two small files, one of three pieces, a folder, a link.
  void make_small_tree() {
    put(from() + "/a", bytes_of(1, 5000));
    std::filesystem::create_directories(from() + "/d");
    put(from() + "/d/large", bytes_of(2, 2 * kPiece + 777));
    put(from() + "/d/b", bytes_of(3, 97));
    std::filesystem::create_symlink("../a", from() + "/d/link");
  }

  // With the destination's device wrapped so that its calls fail as `prepare` says.
  using Prepare = std::function<void(io::FaultDevice& device)>;
  StageReport run(const StageOptions& options, const Prepare& prepare = {}) {
    stop_ = false;
    const auto wrap = [&](io::Device& device) {
      auto faults = std::make_unique<io::FaultDevice>(device);
      prepare(*faults);
      faults_ = faults.get();
      return faults;
    };
    auto stage = Stage::open(options, stop_, prepare ? Stage::WrapDevice(wrap) : Stage::WrapDevice());
    if (!stage.ok()) return {StageState::kFailed, {{"", std::string(stage.status().message())}}, {}};
    const StageReport report = (*stage)->run({});
    calls_ = faults_ != nullptr ? faults_->calls() : 0;
    before_ = (*stage)->counts().files_before;
    bytes_before_ = (*stage)->counts().bytes_before;
    faults_ = nullptr;
    return report;
  }
  static std::string failures_of(const StageReport& report) {
    std::string text;
    for (const Failure& each : report.failures) text += each.what + "\n";
    return text;
  }

  // No part, journal, draft or lock is left.
  void expect_nothing_left() const {
    for (const auto& each : std::filesystem::recursive_directory_iterator(root_)) {
      const std::string name = each.path().filename();
      EXPECT_FALSE(name.ends_with(".swale-part")) << each.path();
      EXPECT_FALSE(each.path().parent_path() == root_ && name.starts_with("status.")) << each.path();
    }
  }
  void expect_staged() const {
    EXPECT_TRUE(listing(from()) == listing(to()));
    expect_nothing_left();
  }
  // Each file of the tree is not there yet, is `old`, or is whole.
  void expect_old_or_new(const std::string& old) const {
    for (const auto& each : std::filesystem::recursive_directory_iterator(from())) {
      const std::string there = to() + each.path().string().substr(from().size());
      if (!each.is_regular_file() || each.is_symlink() || !std::filesystem::exists(there)) continue;
      const std::string content = get(there);
      EXPECT_TRUE(content == old || content == get(each.path()))
          << there << ": " << content.size() << " bytes";
    }
  }

  std::string root_;
  std::atomic<bool> stop_{false};
  io::FaultDevice* faults_ = nullptr;
  uint64_t calls_ = 0;  // of the last run on the destination
  uint64_t before_ = 0, bytes_before_ = 0;
};

}  // namespace swale::stage
