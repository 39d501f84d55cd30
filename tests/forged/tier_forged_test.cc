// Every number of a tiered write buffer's files, set to the ends of its range and to the neighbours of what
// is right, with checksums that fit. Whatever is asked then (inspect, open, read, write, sync, drain) gives
// an answer or an error that names a directory or a file: no crash, no byte beyond a buffer (run it under
// AddressSanitizer), no long work, no memory that a number in a file chose. A process of root opens such a
// log when somebody else has written it, or a disk has. Variables of the environment: forged_trials.h.
#include <gtest/gtest.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "base/rng.h"
#include "io/memory_device.h"
#include "io/posix_device.h"
#include "tests/forged/forged_trials.h"
#include "tests/forged/tier_fields.h"
#include "tier/log/log_format.h"
#include "tier/log/loss_list.h"
#include "tier/store/shared_queue.h"
#include "tier/store/store.h"
#include "tier/trace/trace_format.h"

namespace swale::forged {
namespace {

namespace fs = std::filesystem;
using tier::Store;

constexpr uint64_t kSegmentBytes = 64 * kKiB;
constexpr const char* kFiles[] = {"a", "b", "cut", "gone"};

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Each number writes and syncs files, which takes minutes on a disk: in memory, if files have ids there.
fs::path place() {
  static const bool in_memory = [] {
    std::string probe = "/dev/shm/tier-forged-XXXXXX";
    const int file = ::mkstemp(probe.data());
    if (file < 0) return false;
    const bool kept = ::fsetxattr(file, tier::kTrustedIdAttribute, "an id", 5, 0) == 0 ||
                      ::fsetxattr(file, tier::kIdAttribute, "an id", 5, 0) == 0;
    ::close(file);
    ::unlink(probe.c_str());
    return kept;
  }();
  return in_memory ? fs::path("/dev/shm") : fs::current_path();
}

enum class State { kKilled, kClosed, kDamaged };

class ForgedTier : public testing::TestWithParam<State> {
 protected:
  void SetUp() override {
    root_ = (place() / "tier-forged-XXXXXX").string();
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { fs::remove_all(root_); }

  tier::StoreOptions options(const std::string& place) const {
    tier::StoreOptions options;
    options.ssd_directory = fmt::format("{}/{}/ssd", root_, place);
    options.backing_directory = fmt::format("{}/{}/backing", root_, place);
    options.engine.policy = tier::Policy::kSsdBlocking;
    options.engine.segment_count = 6;
    options.engine.segment_bytes = kSegmentBytes;
    options.engine.queue_slots = 8;
    options.queue_slots = 8;
    options.slot_bytes = 16 * kKiB;
    return options;
  }

  // Directories as a killed or a closed process leaves them, with records of each kind.
  void make(State state) {
    fs::create_directories(root_ + "/made/backing");
    auto opened = Store::open(device_, options("made"));
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    Store& store = **opened;
    store.pause_flush(true);
    Rng rng(5);
    std::map<std::string, Store::Handle> files;
    for (const char* name : kFiles) files[name] = *store.open_file(name, io::OpenMode::kOpenOrCreate);
    for (int i = 0; i < 24; ++i) {
      const std::string bytes(100 + rng.below(9'000), static_cast<char>('a' + i));
      ASSERT_TRUE(store.write(files[kFiles[i % 4]], rng.below(20'000), bytes).ok());
    }
    ASSERT_TRUE(store.sync(files["a"]).ok());
    ASSERT_TRUE(store.truncate(files["cut"], 5'000).ok());
    ASSERT_TRUE(store.remove("gone").ok());
    // While the process lives: which is what a kill leaves.
    if (state == State::kKilled) copy(root_ + "/made", root_ + "/left");
    for (const auto& [name, file] : files) store.close_file(file);
    ASSERT_TRUE(store.close(Store::AtClose::kKeep).ok());
    opened->reset();
    if (state != State::kKilled) copy(root_ + "/made", root_ + "/left");
    if (state == State::kDamaged) damage();
    log_id_ = tier::decode_segment_header(content_of(ssd() / "log").substr(0, kSegmentBytes))->log_id;
    if (state == State::kKilled) leave_in_queue();
    if (state == State::kDamaged) leave_losses();
  }

  uint64_t id_of_a() const {
    uint64_t id = 0;
    const std::string path = backing() / "a";
    for (const char* name : {tier::kTrustedIdAttribute, tier::kIdAttribute})
      if (::getxattr(path.c_str(), name, &id, sizeof(id)) == sizeof(id)) return id;
    ADD_FAILURE() << path << " has no id";
    return 0;
  }

  // A list as an erased segment leaves it.
  void leave_losses() {
    tier::LossList list;
    list.log_id = log_id_;
    tier::LostRange lost;
    lost.file = id_of_a();
    lost.offset = 40'000;
    lost.length = 500;
    lost.sequence = 7;
    list.ranges.push_back(lost);
    lost.offset = 90'000;
    lost.accepted = true;
    list.ranges.push_back(lost);
    const fs::path path = backing() / ".swale-tier/lost";
    std::ofstream(path, std::ios::binary) << tier::encode_loss_list(list);
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  }

  // Writes that were under way: acknowledged, and in the queue alone.
  void leave_in_queue() {
    const uint64_t file = id_of_a();
    const std::string at = ssd() / "queue.made";
    auto queue = tier::SharedQueue::create(device_, at, 3, 16 * kKiB, log_id_);
    ASSERT_TRUE(queue.ok()) << queue.status().to_string();
    for (uint32_t slot = 0; slot < 3; ++slot) {
      tier::RecordHeader record;
      record.type = tier::RecordType::kQueued;
      record.sequence = 1000 + slot;
      record.file = file;
      record.offset = slot * 1000;
      record.length = slot == 2 ? 9'000 : 700;
      const std::string bytes(record.length, static_cast<char>('A' + slot));
      std::copy(bytes.begin(), bytes.end(), (*queue)->payload(slot));
      record.check = tier::make_checks(bytes, (*queue)->checks(slot, record.length));
      (*queue)->seal(slot, record);
    }
    ASSERT_TRUE((*queue)->sync().ok());
    const std::string left = content_of(at);
    queue->reset();
    fs::remove(at);
    std::ofstream(ssd() / "queue.99", std::ios::binary) << left;
    fs::permissions(ssd() / "queue.99", fs::perms::owner_read | fs::perms::owner_write);
  }

  // A flipped byte in each payload of the first segment that has some: which one that is, depends on how soon
  // the flusher came to rest. leave_losses adds a list.
  void damage() {
    std::string log = content_of(ssd() / "log");
    int damaged = 0;
    for (size_t begin = 0; begin < log.size() && damaged == 0; begin += kSegmentBytes) {
      const std::string segment = log.substr(begin, kSegmentBytes);
      const auto scan = tier::scan_segment(segment, *tier::decode_segment_header(segment));
      for (const tier::RecordHeader& record : scan->records) {
        if (!record.has_payload()) continue;
        log[record.payload_address() + 50] ^= 1;
        ++damaged;
      }
    }
    ASSERT_GT(damaged, 0);
    std::ofstream(ssd() / "log", std::ios::binary) << log;
    tier::StoreOptions with = options("left");
    auto opened = Store::open(device_, with);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    // Which of them are losses, depends on what newer records cover.
    (*opened)->pause_flush(true);
    ASSERT_TRUE((*opened)->close(Store::AtClose::kKeep).ok());
  }

  fs::path ssd() const { return root_ + "/left/ssd"; }
  fs::path backing() const { return root_ + "/left/backing"; }

  // With the attributes by which the log finds files.
  static void copy(const fs::path& from, const fs::path& to) {
    fs::remove_all(to);
    for (const char* part : {"ssd", "backing", "backing/.swale-tier"}) {
      fs::create_directories(to / part);
      fs::permissions(to / part, fs::status(from / part).permissions());
      for (const auto& each : fs::directory_iterator(from / part)) {
        if (!each.is_regular_file()) continue;
        const fs::path copied = to / part / each.path().filename();
        fs::copy_file(each.path(), copied);
        for (const char* name : {tier::kTrustedIdAttribute, tier::kIdAttribute}) {
          char value[64];
          const ssize_t bytes = ::getxattr(each.path().c_str(), name, value, sizeof(value));
          if (bytes > 0) {
            ASSERT_EQ(::setxattr(copied.c_str(), name, value, static_cast<size_t>(bytes), 0), 0);
          }
        }
      }
    }
  }

  void note(const Status& status) {
    ++(status.ok() ? answers_ : errors_);
    if (status.ok() || status.code() == Code::kNotFound) return;
    EXPECT_NE(status.code(), Code::kInternal) << status.to_string();
    if (status.code() == Code::kCorruption) {
      EXPECT_NE(status.message().find(root_), std::string::npos) << "names no file: " << status.to_string();
    }
  }

  void ask() {
    uint64_t characters = 0;
    const std::string ssd = root_ + "/forged/ssd";
    const auto inspected = Store::inspect(
        device_, ssd, [&](const tier::LogRecord& record) { characters += record.text().size(); });
    note(inspected.status());
    if (inspected.ok())
      for (const Status& problem : inspected->problems) note(problem);
    open(false);
    open(true);
  }
  void open(bool accept) {
    tier::StoreOptions with = options("forged");
    with.accept_loss = accept;
    auto opened = Store::open(device_, with);
    note(opened.status());
    if (!opened.ok()) return;
    Store& store = **opened;
    for (const Status& damaged : store.recovery().damaged) note(damaged);
    for (const char* name : kFiles) {
      const auto file = store.open_file(name, io::OpenMode::kOpenOrCreate);
      note(file.status());
      if (!file.ok()) continue;
      const auto size = store.size(*file);
      note(size.status());
      std::string bytes(64 * kKiB, '\0');
      note(store.read(*file, 0, MutableBytes(bytes.data(), bytes.size())).status());
      if (size.ok() && *size > 70'000)
        note(store.read(*file, *size - 10, MutableBytes(bytes.data(), 100)).status());
      note(store.write(*file, 300, "written after"));
      note(store.sync(*file));
      store.close_file(*file);
    }
    note(store.drain());
    note(store.close(Store::AtClose::kKeep));
  }

  void forge_all(const fs::path& relative, const Fields& fields) {
    ASSERT_FALSE(fields.empty()) << relative << ": nothing was forged";
    uint64_t here = 0;
    for (const ForgedField& field : fields) {
      for (const uint64_t number : forged_numbers(field)) {
        const std::string what =
            fmt::format("{}: {}: {} instead of {}", relative.string(), field.name, number, field.now);
        if (!trials_.takes(what)) continue;
        SCOPED_TRACE(ForgedTrials::trace(what));
        copy(root_ + "/left", root_ + "/forged");
        std::ofstream(root_ / ("forged" / relative), std::ios::binary) << field.forge(number);
        trials_.begin();
        ask();
        trials_.end();
        ASSERT_FALSE(HasFailure());
        ++here;
      }
    }
    fmt::print("  {}: {} fields, {} numbers\n", relative.string(), fields.size(), here);
  }
  Content content(const fs::path& relative) const {
    return std::make_shared<const std::string>(content_of(root_ / ("left" / relative)));
  }

  io::PosixDevice device_;
  std::string root_;
  uint64_t log_id_ = 0;
  ForgedTrials trials_{place() == fs::current_path() ? 5u : 1u};
  uint64_t errors_ = 0, answers_ = 0;
};

TEST_P(ForgedTier, EveryNumberGivesAnAnswerOrAnError) {
  make(GetParam());
  ASSERT_FALSE(HasFailure());
  forge_all("ssd/log", tier_log_fields(content("ssd/log"), kSegmentBytes, log_id_));
  for (const char* seal : {"ssd/seal", "ssd/seal.copy"}) forge_all(seal, tier_seal_fields(content(seal)));
  if (GetParam() == State::kKilled)
    forge_all("ssd/queue.99", tier_queue_fields(content("ssd/queue.99"), log_id_));
  forge_all("backing/.swale-tier/log", tier_mark_fields(content("backing/.swale-tier/log")));
  if (GetParam() == State::kDamaged)
    forge_all("backing/.swale-tier/lost", tier_losses_fields(content("backing/.swale-tier/lost")));
  fmt::print("{} errors, {} answers\n", errors_, answers_);
  EXPECT_GT(errors_, 0u);
  EXPECT_GT(answers_, errors_ / 10);
}

// A truncate that is older than a loss behind its cut: it waited for the list of losses, and its segment's
// erasure ended it again.
TEST_P(ForgedTier, ATruncateOfAnotherSequenceEndsOnce) {
  make(GetParam());
  ASSERT_FALSE(HasFailure());
  Fields fields = tier_log_fields(content("ssd/log"), kSegmentBytes, log_id_);
  std::erase_if(fields, [](const ForgedField& field) {
    return field.name.find("type 3") == std::string::npos || !field.name.ends_with("copy: sequence");
  });
  // The flusher of the opening that finds the damage may have erased its segment before it was paused.
  if (GetParam() == State::kDamaged && fields.empty()) return;
  trials_.take_all();
  forge_all("ssd/log", fields);
}

// What is written next would count from 0 again, and look older than what is there.
TEST_P(ForgedTier, ASequenceThatNoLogReachesIsRefused) {
  make(GetParam());
  ASSERT_FALSE(HasFailure());
  uint64_t refused = 0;
  for (const ForgedField& field : tier_log_fields(content("ssd/log"), kSegmentBytes, log_id_)) {
    if (!field.name.ends_with("both copies: sequence")) continue;
    SCOPED_TRACE(field.name);
    copy(root_ + "/left", root_ + "/forged");
    std::ofstream(root_ + "/forged/ssd/log", std::ios::binary) << field.forge(UINT64_MAX);
    const Status opened = Store::open(device_, options("forged")).status();
    // A segment that a clean end calls erased stays erased, whatever its records say.
    if (GetParam() != State::kKilled && opened.ok() && field.name.starts_with("record")) continue;
    EXPECT_EQ(opened.code(), Code::kCorruption) << opened.to_string();
    EXPECT_NE(opened.message().find("out of range"), std::string::npos) << opened.to_string();
    ++refused;
  }
  EXPECT_GT(refused, 1u);  // the headers of the first and the last segment, at least
}

INSTANTIATE_TEST_SUITE_P(All, ForgedTier, testing::Values(State::kKilled, State::kClosed, State::kDamaged),
                         [](const auto& state) {
                           return std::string(state.param == State::kKilled   ? "Killed"
                                              : state.param == State::kClosed ? "Closed"
                                                                              : "Damaged");
                         });

TEST(ForgedTrace, EveryNumberGivesAnAnswerOrAnError) {
  tier::TraceBlockBuilder block;
  std::string trace = tier::encode_trace_header(1'700'000'000'000'000'000);
  for (uint64_t i = 0; i < 300; ++i) {
    const auto kind = static_cast<tier::TraceRecord::Kind>(1 + i % tier::TraceRecord::kKinds);
    ASSERT_TRUE(block.add({.kind = kind,
                           .time = static_cast<Nanos>(i * 1000),
                           .file = i % 5,
                           .offset = i * 4096,
                           .length = 100}));
    if (i % 100 == 99) trace += block.take(i == 199 ? 3 : 0);
  }
  trace += block.take(0);
  const Fields fields = tier_trace_fields(std::make_shared<const std::string>(trace));
  ASSERT_GT(fields.size(), 100u);
  uint64_t errors = 0, answers = 0;
  for (const ForgedField& field : fields) {
    for (const uint64_t number : forged_numbers(field)) {
      SCOPED_TRACE(fmt::format("{}: {} instead of {}", field.name, number, field.now));
      io::MemoryDevice device;
      const auto file = *device.open("/trace", io::OpenMode::kOpenOrCreate);
      ASSERT_TRUE(file->pwrite(0, field.forge(number)).ok());
      uint64_t records = 0;
      const auto read =
          tier::read_trace(*file, [&](const tier::TraceRecord& record) { records += record.file < 5; });
      ++(read.ok() ? answers : errors);
      EXPECT_LE(records, 300u);
    }
  }
  EXPECT_GT(errors, 0u);
  EXPECT_GT(answers, 0u);
}

}  // namespace
}  // namespace swale::forged
