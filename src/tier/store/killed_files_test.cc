// Store: a process that makes, writes, removes and replaces files is killed at any time.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <optional>

#include "base/rng.h"
#include "io/posix_device.h"
#include "tier/store/testing/store_folder.h"

namespace swale::tier::killed_files_test {
namespace {

// What the process has told is so: no write is missing, and nothing is kept but of a removal that was under
// way.
struct Told {
  enum class What : uint8_t { kWritten, kRemoving, kRemoved, kReplacing, kReplaced } what = What::kWritten;
  uint8_t name = 0, from = 0;
  char byte = 0;
};
constexpr uint8_t kNames = 12;
constexpr size_t kFileBytes = 3000;

std::string name_of(uint8_t name) { return fmt::format("f{}", name); }

class KilledFilesTest : public ::testing::Test, protected StoreFolder {
 protected:
  KilledFilesTest() : StoreFolder("killed-files") {}
  Status open() {
    StoreOptions options = small_options();
    auto store = Store::open(device_, options);
    if (!store.ok()) return store.status();
    store_ = std::move(*store);
    return {};
  }
  void live(int told, uint64_t seed) {
    Rng rng(seed);
    if (!open().ok()) ::_exit(1);
    const auto tell = [&](const Told& what) {
      if (::write(told, &what, sizeof(what)) != sizeof(what)) ::_exit(1);
    };
    for (;;) {
      const auto name = static_cast<uint8_t>(rng.below(kNames)),
                 from = static_cast<uint8_t>(rng.below(kNames));
      const uint64_t kind = rng.below(4);
      if (kind < 2) {
        const char byte = static_cast<char>('a' + rng.below(26));
        const auto file = store_->open_file(name_of(name), io::OpenMode::kOpenOrCreate);
        if (!file.ok() || !store_->write(*file, 0, std::string(kFileBytes, byte)).ok()) ::_exit(1);
        store_->close_file(*file);
        tell({Told::What::kWritten, name, 0, byte});
      } else if (std::filesystem::exists(backing(name_of(name))) && kind == 2) {
        tell({Told::What::kRemoving, name});
        if (!store_->remove(name_of(name)).ok()) ::_exit(1);
        tell({Told::What::kRemoved, name});
      } else if (name != from && std::filesystem::exists(backing(name_of(from)))) {
        tell({Told::What::kReplacing, name, from});
        if (!store_->rename(name_of(from), name_of(name)).ok()) ::_exit(1);
        tell({Told::What::kReplaced, name, from});
      }
    }
  }
  // One life; what its end has caught is in *under_way.
  void run(uint64_t seed, std::map<uint8_t, char>* files, std::optional<Told>* under_way) {
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    const pid_t child = ::fork();
    if (child == 0) live(ends[1], seed);
    ::close(ends[1]);
    uint64_t left = 1 + seed * 7919 % 150;  // what is heard before the kill
    Told told;
    while (::read(ends[0], &told, sizeof(told)) == sizeof(told)) {
      if (--left == 0) ::kill(child, SIGKILL);
      under_way->reset();
      switch (told.what) {
        case Told::What::kWritten:
          (*files)[told.name] = told.byte;
          break;
        case Told::What::kRemoved:
          files->erase(told.name);
          break;
        case Told::What::kReplaced:
          (*files)[told.name] = (*files)[told.from];
          files->erase(told.from);
          break;
        default:
          *under_way = told;
      }
    }
    ::close(ends[0]);
    int state = 0;
    ::waitpid(child, &state, 0);
    ASSERT_TRUE(WIFSIGNALED(state)) << "a call has failed";
  }

  io::PosixDevice device_;
  std::unique_ptr<Store> store_;
};

TEST_F(KilledFilesTest, OnlyARemovalThatWasUnderWayIsKept) {
  uint64_t records = 0, dropped = 0;
  for (uint64_t life = 1; life <= 20; ++life) {
    SCOPED_TRACE(life);
    std::map<uint8_t, char> files;
    std::optional<Told> under_way;
    ASSERT_NO_FATAL_FAILURE(run(life, &files, &under_way));
    const Status opened = open();
    ASSERT_TRUE(opened.ok()) << opened.to_string();
    const RecoveryReport& found = store_->recovery();
    records += found.records;
    dropped += found.dropped;
    EXPECT_LE(found.kept.size(), under_way.has_value());
    EXPECT_TRUE(found.damaged.empty());
    uint64_t others = 0;
    for (const auto& [name, byte] : files) {
      if (under_way && (under_way->name == name || under_way->from == name)) continue;
      const auto file = store_->open_file(name_of(name), io::OpenMode::kReadWrite);
      ASSERT_TRUE(file.ok()) << file.status().to_string();
      std::string bytes(kFileBytes, '\0');
      const auto got = store_->read(*file, 0, bytes);
      ASSERT_TRUE(got.ok()) << got.status().to_string();
      EXPECT_EQ(bytes, std::string(kFileBytes, bytes[0])) << name_of(name);
      EXPECT_TRUE(bytes[0] >= 'a' && bytes[0] <= 'z') << name_of(name) << ": a write is missing";
      others += bytes[0] != byte;
    }
    EXPECT_LE(others, 1u) << "one write had not been told yet";
    ASSERT_TRUE(store_->close(Store::AtClose::kDrain).ok());
    store_.reset();
    std::filesystem::remove_all(backing_);
    std::filesystem::remove_all(root_ + "/ssd");
    std::filesystem::create_directory(backing_);
  }
  EXPECT_GT(records, 500u);
  EXPECT_GT(dropped, 50u) << "of files that were removed";
  std::printf("%lu records, %lu of removed files\n", records, dropped);
}

}  // namespace
}  // namespace swale::tier::killed_files_test
