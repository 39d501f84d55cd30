// Drain: what is on the backing afterwards, on a real file system, with others that change it meanwhile.
#include "fs/node/drain.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "fs/node/testing/node_rig.h"

namespace swale::fs::drain_test {
namespace {

using Outcome = Drain::Outcome;

class DrainTest : public NodeRig {
 protected:
  DrainTest() : folder_(testing::TempDir()), root_(folder_.path()) {
    auto anchored = io::PosixDevice({.links = io::PosixOptions::Links::kNone}).anchored(root_);
    EXPECT_TRUE(anchored.ok());
    strict_ = std::move(*anchored);
    there_ = std::make_unique<NamedBacking>(*strict_, root_);
    there_->names = backing_.names;
  }
  // The server and its drain.
  void start() {
    drain_.reset();
    node_.reset();
    auto node = NodeFiles::open(device_, device_, options_, *there_);
    ASSERT_TRUE(node.ok()) << node.status().to_string();
    node_ = std::move(*node);
    auto drain = Drain::open(*node_, *there_, {.job = "job7"});
    ASSERT_TRUE(drain.ok()) << drain.status().to_string();
    drain_ = std::move(*drain);
  }
  std::string at(const std::string& name) const { return root_ + "/" + name; }
  std::string on_backing(const std::string& name) { return content_of(device_, at(name)); }
  void expect_done(const meta::FileId& id, Outcome outcome = Outcome::kDone) {
    const auto done = drain_->file(id);
    ASSERT_TRUE(done.ok()) << done.status().to_string();
    EXPECT_EQ(*done, outcome);
  }
  // The steps of one file.
  void begin(const meta::FileId& id) {
    const auto begun = drain_->begin({&id, 1});
    ASSERT_TRUE(begun.ok()) << begun.status().to_string();
    ASSERT_EQ(*begun, 1u);
    drain_->look();
  }
  void write_all() {
    while (drain_->fill()) drain_->put();
  }
  Result<Outcome> finish() { return drain_->finish().front().outcome; }
  // Nothing of ours is left beside the files.
  void expect_clean() { EXPECT_TRUE(device_.list(at(".swale/job7"))->empty()); }

  Folder folder_;
  const std::string root_;
  std::unique_ptr<io::Device> strict_;
  std::unique_ptr<NamedBacking> there_;
  std::unique_ptr<Drain> drain_;
  std::atomic<bool> done_{false};
};

TEST_F(DrainTest, NewFilesAppearWholeAndEmptyOnesToo) {
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  ASSERT_TRUE(node_->open_file(kOther).ok());
  write(kFile, 3, pattern(1, 3'000'000));
  EXPECT_FALSE(std::filesystem::exists(at("file")));
  ASSERT_TRUE(drain_->all().ok());
  EXPECT_EQ(on_backing("file"), std::string(3, '\0') + pattern(1, 3'000'000));
  EXPECT_EQ(on_backing("other"), "");
  EXPECT_EQ(read(kFile), on_backing("file"));
  EXPECT_EQ(node_->logs().live_bytes(), 0u);
  EXPECT_TRUE(node_->undrained().empty());
  expect_done(kFile, Outcome::kNothing);
  expect_clean();
  for (const char* const name : {".swale", ".swale/job7"}) {
    struct stat folder;
    ASSERT_EQ(::stat(at(name).c_str(), &folder), 0);
    EXPECT_EQ(folder.st_mode & 07777, 0700u);
  }
}

TEST_F(DrainTest, AReplacedFileKeepsItsModeAndAChangedOneItsInode) {
  put_file(device_, at("file"), "0123456789");
  put_file(device_, at("other"), "replaced");
  ASSERT_EQ(::chmod(at("other").c_str(), 0640), 0);
  struct stat before, after;
  ASSERT_EQ(::stat(at("file").c_str(), &before), 0);
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  ASSERT_TRUE(node_->open_file(kOther).ok());
  write(kFile, 8, "abcd");
  ASSERT_TRUE(node_->truncate(kOther, 0).ok());
  write(kOther, 0, "new");
  ASSERT_TRUE(drain_->all().ok());
  EXPECT_EQ(on_backing("file"), "01234567abcd");
  EXPECT_EQ(on_backing("other"), "new");
  ASSERT_EQ(::stat(at("file").c_str(), &after), 0);
  EXPECT_EQ(after.st_ino, before.st_ino);
  ASSERT_EQ(::stat(at("other").c_str(), &after), 0);
  EXPECT_EQ(after.st_mode & 07777, 0640u);
  // And again: what we have changed ourselves is no change of others.
  write(kFile, 0, "X");
  ASSERT_TRUE(node_->truncate(kFile, 5).ok());
  ASSERT_TRUE(node_->truncate(kFile, 7).ok());
  expect_done(kFile);
  EXPECT_EQ(on_backing("file"), std::string("X1234\0\0", 7));
  start();
  write(kFile, 1, "Y");
  expect_done(kFile);
  EXPECT_EQ(on_backing("file"), std::string("XY234\0\0", 7));
  expect_clean();
}

TEST_F(DrainTest, AFileThatOthersHaveChangedIsKept) {
  put_file(device_, at("file"), "0123456789");
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  ASSERT_TRUE(node_->open_file(kOther).ok());
  write(kFile, 2, "ours");
  write(kOther, 0, "also ours");
  put_file(device_, at("file"), "theirs, and longer");
  put_file(device_, at("other"), "theirs");
  expect_done(kFile, Outcome::kKeptAside);
  expect_done(kOther, Outcome::kKeptAside);
  EXPECT_EQ(on_backing("file"), "theirs, and longer");
  EXPECT_EQ(on_backing("other"), "theirs");
  EXPECT_EQ(on_backing("file.swale-job7"), "thours, an");
  EXPECT_EQ(on_backing("other.swale-job7"), "also ours");
  ASSERT_EQ(drain_->aside().size(), 2u);
  EXPECT_EQ(drain_->aside()[1], at("other.swale-job7"));
  EXPECT_EQ(read(kFile), "theirs, and longer") << "from now on the file is theirs";
  // A second time takes another name.
  write(kOther, 0, "once more");
  put_file(device_, at("other"), "changed again");
  expect_done(kOther, Outcome::kKeptAside);
  EXPECT_EQ(on_backing("other.swale-job7-2"), "once more");
  // Removed by others: nothing to keep, but our bytes alone are not the file.
  write(kFile, 0, "T");
  std::filesystem::remove(at("file"));
  expect_done(kFile, Outcome::kKeptAside);
  EXPECT_FALSE(std::filesystem::exists(at("file")));
  EXPECT_EQ(on_backing("file.swale-job7-2").substr(0, 2), std::string("T\0", 2));
  expect_clean();
}

// A file that appears or changes between the steps of a drain.
TEST_F(DrainTest, AFileThatOthersMakeDuringADrainIsKept) {
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 0, "ours");
  begin(kFile);
  put_file(device_, at("file"), "theirs");
  write_all();
  const auto outcome = finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, Outcome::kKeptAside);
  EXPECT_EQ(on_backing("file"), "theirs");
  EXPECT_EQ(on_backing("file.swale-job7"), "ours");
}

TEST_F(DrainTest, WritesAndTruncatesDuringADrainComeAfterIt) {
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 0, pattern(1, 100'000));
  begin(kFile);
  write(kFile, 50'000, "during");
  ASSERT_TRUE(node_->truncate(kFile, 60'000).ok());
  write_all();
  std::string expected = pattern(1, 100'000).substr(0, 60'000);
  expected.replace(50'000, 6, "during");
  EXPECT_EQ(read(kFile), expected);
  ASSERT_TRUE(finish().ok());
  EXPECT_EQ(on_backing("file"), pattern(1, 100'000)) << "the state with which the drain began";
  EXPECT_EQ(read(kFile), expected);
  expect_done(kFile);
  EXPECT_EQ(on_backing("file"), expected);
}

// A hundred files in two directories, a third of them changed in place: their syncs come before the first of
// them gets its name, and each directory is synced once for all.
TEST_F(DrainTest, AFewSyncsServeManyFiles) {
  std::filesystem::create_directory(at("d"));
  io::FaultDevice watched(*strict_);
  NamedBacking backing(watched, root_);
  const auto id_of = [](uint64_t i) { return meta::FileId{9, i + 1}; };
  constexpr uint64_t kCount = 100;
  for (uint64_t i = 0; i < kCount; ++i) {
    backing.names[id_of(i)] = fmt::format("{}f{}", i % 2 == 0 ? "" : "d/", i);
    if (i % 3 == 0) put_file(device_, at(backing.names[id_of(i)]), pattern(i, 5000));
  }
  auto node = NodeFiles::open(device_, device_, options_, backing);
  ASSERT_TRUE(node.ok()) << node.status().to_string();
  node_ = std::move(*node);
  auto drain = Drain::open(*node_, backing, {.job = "job7"});
  ASSERT_TRUE(drain.ok()) << drain.status().to_string();
  drain_ = std::move(*drain);
  start_writer();
  for (uint64_t i = 0; i < kCount; ++i) {
    ASSERT_TRUE(node_->open_file(id_of(i)).ok());
    write(id_of(i), 100, pattern(i + 1, 3000));
  }
  std::vector<std::pair<io::CallKind, std::string>> calls;
  watched.set_hook([&](const io::Call& call) {
    calls.emplace_back(call.kind, call.path);
    return Status();
  });
  ASSERT_TRUE(drain_->all().ok());
  watched.clear();
  std::map<std::string, int> directory_syncs;
  int unsynced = 0, syncs = 0;
  for (const auto& [kind, path] : calls) {
    if (kind == io::CallKind::kSyncDirectory) ++directory_syncs[path];
    if (kind == io::CallKind::kOpen && path.find("/new-") != std::string::npos) ++unsynced;
    if (kind == io::CallKind::kSync) ++syncs;
    if (kind == io::CallKind::kSync && path.find("/new-") != std::string::npos) --unsynced;
    if (kind == io::CallKind::kRename && path.find("/new-") != std::string::npos) {
      EXPECT_EQ(unsynced, 0) << path << " gets its name before all are synced";
    }
  }
  constexpr int kBatches = (kCount + Drain::kFilesMax - 1) / Drain::kFilesMax;
  EXPECT_EQ(syncs, 100 + 34) << "of the files, and of 34 marks";
  EXPECT_EQ(directory_syncs[root_], kBatches);
  EXPECT_EQ(directory_syncs[at("d")], kBatches);
  EXPECT_EQ(directory_syncs[at(".swale/job7")], 2 * kBatches) << "marks come and go";
  for (uint64_t i = 0; i < kCount; ++i) {
    std::string expected = i % 3 == 0 ? pattern(i, 5000) : std::string(100, '\0');
    expected.resize(std::max<size_t>(expected.size(), 3100), '\0');
    expected.replace(100, 3000, pattern(i + 1, 3000));
    EXPECT_EQ(on_backing(backing.names[id_of(i)]), expected);
  }
  expect_clean();
  drain_.reset();
  node_.reset();
}

// Each file of a batch fails for itself.
TEST_F(DrainTest, AFileThatFailsLeavesTheOthersOfItsBatch) {
  io::FaultDevice faulty(*strict_);
  NamedBacking backing(faulty, root_);
  const auto id_of = [](uint64_t i) { return meta::FileId{9, i}; };
  for (uint64_t i = 1; i <= 3; ++i) backing.names[id_of(i)] = fmt::format("f{}", i);
  for (const io::CallKind kind : {io::CallKind::kOpen, io::CallKind::kWrite, io::CallKind::kRead,
                                  io::CallKind::kSync, io::CallKind::kRename}) {
    for (uint64_t i = 1; i <= 3; ++i) std::filesystem::remove(at(backing.names[id_of(i)]));
    drain_.reset();
    node_.reset();
    options_.memory_directory = memory_.path() + "/node" + std::string(io::call_kind_name(kind));
    options_.spill_directory = storage_.path() + "/spill" + std::string(io::call_kind_name(kind));
    auto node = NodeFiles::open(device_, device_, options_, backing);
    ASSERT_TRUE(node.ok()) << node.status().to_string();
    node_ = std::move(*node);
    auto drain = Drain::open(*node_, backing, {.job = "job7"});
    ASSERT_TRUE(drain.ok()) << drain.status().to_string();
    drain_ = std::move(*drain);
    start_writer();
    for (uint64_t i = 1; i <= 3; ++i) write(id_of(i), 0, pattern(i, 70'000));
    faulty.inject({.kind = kind, .path_part = marked_name(kNewPrefix, id_of(2))});
    EXPECT_FALSE(drain_->all().ok()) << io::call_kind_name(kind);
    EXPECT_EQ(on_backing("f1"), pattern(1, 70'000)) << io::call_kind_name(kind);
    EXPECT_EQ(on_backing("f3"), pattern(3, 70'000)) << io::call_kind_name(kind);
    EXPECT_FALSE(std::filesystem::exists(at("f2"))) << io::call_kind_name(kind);
    EXPECT_EQ(node_->undrained(), std::vector<meta::FileId>{id_of(2)}) << io::call_kind_name(kind);
    expect_clean();
    ASSERT_TRUE(drain_->all().ok()) << io::call_kind_name(kind);
    EXPECT_EQ(on_backing("f2"), pattern(2, 70'000)) << io::call_kind_name(kind);
  }
  drain_.reset();
  node_.reset();
}

// Another job's ids are not ours.
TEST_F(DrainTest, MarksOfOtherJobsAreLeftAlone) {
  put_file(device_, at("file"), "theirs");
  auto file = device_.open(at("file"), io::OpenMode::kRead);
  const DrainMark mark{DrainMark::How::kInPlace, "file", *stamp_of(**file)};
  const std::string path = at(".swale/dead/") + marked_name(kMarkPrefix, kFile);
  ASSERT_TRUE(io::make_directories(device_, at(".swale/dead")).ok());
  put_file(device_, path, encode_mark(mark));
  ASSERT_EQ(::chmod(at(".swale").c_str(), 0700), 0);
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 0, "ours");
  put_file(device_, at("file"), "theirs, changed");
  expect_done(kFile, Outcome::kKeptAside);
  EXPECT_EQ(content_of(device_, path), encode_mark(mark));
}

// A removal during a drain: nothing of the file appears.
TEST_F(DrainTest, AFileThatIsRemovedDuringADrainDoesNotAppear) {
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 0, "gone");
  begin(kFile);
  write_all();
  there_->names.erase(kFile);
  ASSERT_TRUE(node_->remove(kFile).ok());
  const auto outcome = finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status().to_string();
  EXPECT_EQ(*outcome, Outcome::kNothing);
  EXPECT_FALSE(std::filesystem::exists(at("file")));
  EXPECT_EQ(node_->logs().live_bytes(), 0u);
  expect_clean();
}

// Half old, half new, and under another name: it is this node's own all the same.
TEST_F(DrainTest, AFileThatIsRenamedWhileItIsChangedInPlaceIsNoStrangers) {
  put_file(device_, at("file"), pattern(1, 100'000));
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 50'000, pattern(2, 1'000));
  begin(kFile);
  write_all();
  drain_->settle();
  std::filesystem::rename(at("file"), at("renamed"));
  there_->names[kFile] = "renamed";
  EXPECT_EQ(finish().status().code(), Code::kBusy);
  EXPECT_TRUE(drain_->finish().empty()) << "no drain is under way";
  expect_done(kFile);
  EXPECT_EQ(on_backing("renamed"),
            pattern(1, 50'000) + pattern(2, 1'000) + pattern(1, 100'000).substr(51'000));
  EXPECT_TRUE(drain_->aside().empty());
  expect_clean();
}

// Renamed after its path was asked for, and back before it gets its bytes.
TEST_F(DrainTest, AFileThatIsElsewhereWhileADrainLooksIsNoStrangers) {
  put_file(device_, at("file"), pattern(1, 100'000));
  start();
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  write(kFile, 50'000, pattern(2, 1'000));
  const meta::FileId id = kFile;
  ASSERT_TRUE(drain_->begin({&id, 1}).ok());
  std::filesystem::rename(at("file"), at("elsewhere"));
  drain_->look();
  write_all();
  std::filesystem::rename(at("elsewhere"), at("file"));
  EXPECT_EQ(finish().status().code(), Code::kBusy);
  EXPECT_EQ(on_backing("file"), pattern(1, 100'000));
  expect_done(kFile);
  EXPECT_EQ(on_backing("file"), pattern(1, 50'000) + pattern(2, 1'000) + pattern(1, 100'000).substr(51'000));
  EXPECT_TRUE(drain_->aside().empty());
  expect_clean();
}

TEST_F(DrainTest, NoLinkIsFollowedAndNoPathLeavesTheRoot) {
  Folder outside(testing::TempDir());
  std::filesystem::create_directory(outside.path() + "/d");
  put_file(device_, outside.path() + "/d/file", "outside");
  std::filesystem::create_directory_symlink(outside.path() + "/d", at("way"));
  std::filesystem::create_symlink(outside.path() + "/d/file", at("link"));
  start();
  start_writer();
  const std::string up = "../" + std::filesystem::path(outside.path()).filename().string() + "/up";
  for (const std::string& name : {std::string("link"), std::string("way/file"), std::string("way/new"), up,
                                  std::string(".swale/x"), std::string("a//b"), std::string(".")}) {
    there_->names[kFile] = name;
    const meta::FileId id = kFile;
    const Status opened = node_->open_file(id);
    write(id, 0, "evil");
    const auto drained = drain_->file(id);
    EXPECT_FALSE(drained.ok()) << name;
    if (opened.ok()) node_->close_file(id);
    EXPECT_EQ(read(id), "evil") << "programs of the node see it, and all else goes on";
    ASSERT_TRUE(node_->remove(id).ok());
  }
  EXPECT_EQ(content_of(device_, outside.path() + "/d/file"), "outside");
  EXPECT_FALSE(std::filesystem::exists(outside.path() + "/d/new"));
  EXPECT_FALSE(std::filesystem::exists(outside.path() + "/up"));
  EXPECT_EQ(drain_->file(kOther).status().code(), Code::kOk);
}

// Three processes write one file in strides; one of them is killed; the file is drained again and again
// meanwhile. What had returned is there.
TEST_F(DrainTest, ProcessesShareAFileThatIsDrainedMeanwhile) {
  small_chunks(64 * 1024, 12);
  start();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  constexpr uint64_t kProcesses = 3, kRecords = 300, kBytes = 4700;
  void* const shared = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const written = static_cast<std::atomic<uint64_t>*>(shared);
  std::vector<pid_t> children;
  std::vector<uint32_t> logs;
  for (uint64_t process = 0; process < kProcesses; ++process) {
    const auto log = node_->logs().add_log();
    ASSERT_TRUE(log.ok()) << log.status().to_string();
    logs.push_back(*log);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      LogWriter writer;
      if (writer.attach(options_.memory_directory.c_str(), *log) != 0) ::_exit(1);
      for (uint64_t i = 0; i < kRecords; ++i) {
        const uint64_t record = i * kProcesses + process;
        const std::string bytes = pattern(record, kBytes);
        if (writer.write(kFile, record * kBytes, bytes.data(), kBytes) != kBytes) ::_exit(2);
        written[process].store(i + 1);
      }
      while (process == 2) ::pause();  // it is to be killed, at the latest now
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (size_t left = kProcesses; left > 0;) {
    const Status served = drain_->make_space();
    ASSERT_TRUE(served.ok()) << served.to_string();
    ASSERT_TRUE(drain_->all().ok());
    static_cast<void>(node_->logs().wait(1'000'000));
    if (children[2] > 0 && written[2].load() >= 50) ::kill(children[2], SIGKILL);
    for (size_t i = 0; i < kProcesses; ++i) {
      int status = 0;
      if (children[i] == 0 || ::waitpid(children[i], &status, WNOHANG) != children[i]) continue;
      EXPECT_TRUE(i == 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
      ASSERT_TRUE(node_->end_log(logs[i]).ok());
      children[i] = 0;
      --left;
    }
  }
  ASSERT_TRUE(drain_->all().ok());
  const std::string file = on_backing("file");
  EXPECT_EQ(read(kFile), file);
  for (uint64_t process = 0; process < kProcesses; ++process) {
    EXPECT_GE(written[process].load(), process == 2 ? 50u : kRecords);
    for (uint64_t i = 0; i < written[process].load(); ++i) {
      const uint64_t record = i * kProcesses + process;
      ASSERT_EQ(file.substr(record * kBytes, kBytes), pattern(record, kBytes)) << record;
    }
  }
  ::munmap(shared, 4096);
  EXPECT_EQ(node_->logs().live_bytes(), 0u);
  EXPECT_TRUE(node_->damage().empty());
}

// The backing is full: writers wait for the drain, and get its errno only when it has failed; afterwards all
// goes on.
TEST_F(DrainTest, AFullBackingIsToldToWritersAndOnlyThen) {
  small_chunks(64 * 1024, 2);
  options_.shape.wait_ns = 60'000'000'000;
  // No space to spill: the node-local storage is full from now on.
  io::FaultDevice storage(device_);
  io::FaultDevice full(*strict_);
  NamedBacking backing(full, root_);
  backing.names = there_->names;
  auto node = NodeFiles::open(device_, storage, options_, backing);
  ASSERT_TRUE(node.ok()) << node.status().to_string();
  node_ = std::move(*node);
  auto drain = Drain::open(*node_, backing, {.job = "job7"});
  ASSERT_TRUE(drain.ok());
  drain_ = std::move(*drain);
  start_writer();
  ASSERT_TRUE(node_->open_file(kFile).ok());
  storage.inject({.kind = io::CallKind::kWrite,
                  .path_part = kSpillPrefix,
                  .from_then_on = true,
                  .status = errno_status(ENOSPC, "spill")});
  const auto write_all = [&](uint64_t n, int* error) {
    std::thread writer([&] {
      for (uint64_t i = 0; i < 20 && *error == 0; ++i) {
        const std::string bytes = pattern(i, 30'000);
        const int64_t wrote = writer_.write(kFile, (n + i) * 30'000, bytes.data(), bytes.size());
        if (wrote < 0) *error = static_cast<int>(-wrote);
      }
      done_.store(true);
    });
    while (!done_.load()) {
      static_cast<void>(drain_->make_space());
      static_cast<void>(node_->logs().wait(1'000'000));
    }
    writer.join();
    done_.store(false);
  };
  int error = 0;
  write_all(0, &error);
  EXPECT_EQ(error, 0) << "while the backing has space, nobody fails";
  for (const int failure : {ENOSPC, EDQUOT}) {
    full.inject({.kind = io::CallKind::kWrite,
                 .path_part = "new-",
                 .from_then_on = true,
                 .status = errno_status(failure, "backing")});
    full.inject({.kind = io::CallKind::kWrite,
                 .path_part = "/file",
                 .from_then_on = true,
                 .status = errno_status(failure, "backing")});
    write_all(20, &error);
    EXPECT_EQ(error, failure);
    error = 0;
    full.clear();
    ASSERT_TRUE(drain_->make_space().ok()) << "a writer that waits again gets what is free now";
  }
  write_all(40, &error);
  EXPECT_EQ(error, 0) << "there is space again";
  ASSERT_TRUE(drain_->all().ok());
  EXPECT_EQ(on_backing("file").substr(40 * 30'000), read(kFile, 40 * 30'000));
  EXPECT_EQ(on_backing("file").substr(59 * 30'000), pattern(19, 30'000));
  drain_.reset();
  node_.reset();
}

}  // namespace
}  // namespace swale::fs::drain_test
