// Pages that the kernels of several nodes keep of sealed files, with a model of a kernel: what is read once,
// what an unseal and the commits after it take back, and what a drop must not wait for.
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>

#include "fs/job/testing/nodes_world.h"

namespace swale::fs::job_fs_pages_test {
namespace {

constexpr size_t kNodes = 3;

// What the kernel of a node has of its files: all of one or nothing.
class Kernel {
 public:
  struct Open {
    Node* node = nullptr;
    std::unique_ptr<OpenFile> file;
    bool direct = false;
  };

  void mount(JobFs* fs) {
    fs_ = fs;
    fs->drop_pages_by([this](Node& node) {
      if (during_drop) during_drop();
      const MutexLock lock(mutex_);
      pages.erase(&node);
      ++drops;
    });
  }
  Open open(const std::string& name, int flags = O_RDONLY) {
    Open opened;
    Entry entry;
    EXPECT_EQ(fs_->lookup(*fs_->root(), name.c_str(), &entry), 0);
    EXPECT_EQ(fs_->open_file(*entry.node, flags, Caller::this_thread(), &opened.file), 0);
    opened.node = entry.node;
    const FileSystem::Pages kept = fs_->pages(*opened.file, maps);
    opened.direct = kept == FileSystem::Pages::kNone;
    if (kept == FileSystem::Pages::kKept) return opened;
    const MutexLock lock(mutex_);
    pages.erase(opened.node);
    return opened;
  }
  std::string read(const Open& opened) {
    {
      const MutexLock lock(mutex_);
      const auto found = pages.find(opened.node);
      if (!opened.direct && found != pages.end()) return found->second;
    }
    std::string out(100, '\0');
    size_t got = 0;
    EXPECT_EQ(fs_->read(*opened.file, 0, out, &got), 0);
    out.resize(got);
    if (opened.direct) return out;
    const MutexLock lock(mutex_);
    pages[opened.node] = out;
    return out;
  }
  void close(Open* opened) {
    fs_->release(std::move(opened->file));
    fs_->forget(opened->node, 1);
  }
  std::string read(const std::string& name) {
    Open opened = open(name);
    const std::string out = read(opened);
    close(&opened);
    return out;
  }
  uint64_t reads() const { return fs_->stats().reads; }

  bool maps = true;
  std::map<const Node*, std::string> pages;
  std::atomic<uint64_t> drops = 0;
  std::function<void()> during_drop;

 private:
  Mutex mutex_;  // of pages
  JobFs* fs_ = nullptr;
};

class JobFsPages : public testing::Test {
 protected:
  void start() {
    world_.start();
    for (size_t node = 0; node < kNodes; ++node) kernels_[node].mount(&world_.fs(node));
  }
  void make(size_t node, const std::string& path, const std::string& bytes) {
    int handle = -1;
    ASSERT_EQ(calls(node).open(path, O_RDWR | O_CREAT, 0644, &handle), 0);
    EXPECT_EQ(calls(node).write(handle, 0, bytes), 0);
    EXPECT_EQ(calls(node).close(handle), 0);
  }
  // Reader on node 2, unseal by node 0, a change that `commits` by node 1. What the reader sees at last.
  using Change = std::function<void(const std::string& path)>;
  std::string seen_after_an_unseal(const Change& commits);
  FileSystemCalls& calls(size_t node) { return world_.calls(node); }

  std::array<Kernel, kNodes> kernels_;
  NodesWorld world_{kNodes};
};

TEST_F(JobFsPages, ASealedFileIsAskedForOnceAlsoByLaterOpens) {
  start();
  make(0, "f", "sealed bytes");
  Kernel& kernel = kernels_[1];
  EXPECT_EQ(kernel.read("f"), "sealed bytes");
  EXPECT_TRUE(kernel.pages.empty()) << "nothing is kept of what may change";
  ASSERT_EQ(calls(0).set_mode("f", 0444), 0);
  Kernel::Open first = kernel.open("f");
  Entry known;  // a kernel knows a file, and keeps its pages, beyond its opens
  ASSERT_EQ(world_.fs(1).lookup(*world_.fs(1).root(), "f", &known), 0);
  const uint64_t before = kernel.reads();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(kernel.read(first), "sealed bytes");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(kernel.read("f"), "sealed bytes");
  EXPECT_EQ(kernel.reads(), before + 1);
  kernel.close(&first);
  EXPECT_EQ(kernel.read("f"), "sealed bytes");
  EXPECT_EQ(kernel.reads(), before + 1) << "nobody has had it open meanwhile";
  world_.fs(1).forget(known.node, 1);
  Kernel::Open direct = kernel.open("f", O_RDONLY | O_DIRECT);
  EXPECT_TRUE(direct.direct);
  kernel.close(&direct);
  kernels_[2].maps = false;  // its direct writes would drop no pages
  Kernel::Open old = kernels_[2].open("f");
  EXPECT_TRUE(old.direct);
  kernels_[2].close(&old);
}

// Of a mapping, or of an open while it was sealed before.
TEST_F(JobFsPages, PagesFromBeforeASealAreNotKept) {
  start();
  make(0, "f", "sealed bytes");
  ASSERT_EQ(calls(0).set_mode("f", 0444), 0);
  Kernel& kernel = kernels_[1];
  Kernel::Open mapped = kernel.open("f", O_RDONLY | O_DIRECT);
  kernel.pages[mapped.node] = "old mapping";
  Kernel::Open one = kernel.open("f");
  EXPECT_TRUE(kernel.pages.empty());
  kernel.pages[mapped.node] = "old mapping";  // the open has been answered, and not yet dropped them
  Kernel::Open other = kernel.open("f");
  EXPECT_EQ(kernel.read(other), "sealed bytes");
  EXPECT_EQ(kernel.read("f"), "sealed bytes");
  for (Kernel::Open* const each : {&mapped, &one, &other}) kernel.close(each);
}

std::string JobFsPages::seen_after_an_unseal(const Change& commits) {
  start();
  make(0, "f", "AAAAAAAA");
  EXPECT_EQ(calls(0).set_mode("f", 0444), 0);
  Kernel& kernel = kernels_[2];
  Kernel::Open reader = kernel.open("f");
  EXPECT_EQ(kernel.read(reader), "AAAAAAAA");
  EXPECT_EQ(kernel.pages.size(), 1u);
  EXPECT_EQ(calls(0).set_mode("f", 0644), 0);
  EXPECT_EQ(kernel.pages.empty(), world_.unseal_takes_back) << "dropped before chmod has answered";
  EXPECT_EQ(kernel.read(reader), "AAAAAAAA");
  EXPECT_EQ(kernel.pages.size(), 1u) << "an old open reads through pages";
  Kernel::Open later = kernel.open("f");
  EXPECT_TRUE(later.direct);
  kernel.close(&later);
  EXPECT_EQ(kernel.read(reader), "AAAAAAAA");
  commits("f");
  const std::string seen = kernel.read(reader);
  kernel.close(&reader);
  return seen;
}

TEST_F(JobFsPages, AnOldReaderSeesWhatAnotherNodeHasClosed) {
  EXPECT_EQ(seen_after_an_unseal([&](const std::string& path) { make(1, path, "BBBBBBBBBB"); }),
            "BBBBBBBBBB");
  // No old reader is left: the first commit finds that out, and the next ones ask nobody.
  make(1, "f", "C");
  const uint64_t before = kernels_[2].drops;
  int handle = -1;
  ASSERT_EQ(calls(1).open("f", O_RDWR, 0, &handle), 0);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(calls(1).write(handle, 0, "D"), 0);
    EXPECT_EQ(calls(1).sync(handle), 0);
  }
  EXPECT_LE(kernels_[2].drops, before + 1);
  EXPECT_EQ(calls(1).close(handle), 0);
}

TEST_F(JobFsPages, AnOldReaderSeesWhatAnotherNodeHasSynced) {
  int handle = -1;
  EXPECT_EQ(seen_after_an_unseal([&](const std::string& path) {
              ASSERT_EQ(calls(1).open(path, O_RDWR, 0, &handle), 0);
              EXPECT_EQ(calls(1).write(handle, 2, "BB"), 0);
              EXPECT_EQ(calls(1).sync(handle), 0);
            }),
            "AABBAAAA");
  EXPECT_EQ(calls(1).close(handle), 0);
}

TEST_F(JobFsPages, AnOldReaderSeesWhatAnotherNodeHasCut) {
  EXPECT_EQ(seen_after_an_unseal([&](const std::string& path) { EXPECT_EQ(calls(1).truncate(path, 3), 0); }),
            "AAA");
}

TEST_F(JobFsPages, AnOldReaderSeesWhatAnotherNodeHasRenamed) {
  int handle = -1;
  EXPECT_EQ(seen_after_an_unseal([&](const std::string& path) {
              ASSERT_EQ(calls(1).open(path, O_RDWR, 0, &handle), 0);
              EXPECT_EQ(calls(1).write(handle, 0, "B"), 0);
              EXPECT_EQ(calls(1).rename(path, "renamed", 0), 0);
            }),
            "BAAAAAAA");
  EXPECT_EQ(calls(1).close(handle), 0);
}

TEST_F(JobFsPages, ACanaryThatTakesNothingBackIsNoticed) {
  world_.unseal_takes_back = false;
  EXPECT_EQ(seen_after_an_unseal([&](const std::string& path) { make(1, path, "BBBBBBBB"); }), "AAAAAAAA");
}

// A drop waits for reads under way, and these for what is held: neither mutex nor turn may be.
TEST_F(JobFsPages, ADropMayWaitForReadsAndOpensOfItsNode) {
  start();
  make(0, "f", "AAAA");
  make(1, "other", "bytes of node 1");
  ASSERT_EQ(calls(0).set_mode("f", 0444), 0);
  std::array<Kernel::Open, kNodes> readers, others;
  for (size_t node = 0; node < kNodes; ++node) {
    readers[node] = kernels_[node].open("f");
    others[node] = kernels_[node].open("other");
  }
  uint64_t waited = 0;
  for (size_t node = 0; node < kNodes; ++node)
    kernels_[node].during_drop = [&, node] {
      // By a thread of its own, as the kernel's reads are answered; names are changed in a turn.
      std::thread([&] {
        EXPECT_EQ(kernels_[node].read(others[node]), "bytes of node 1");
        EXPECT_EQ(calls(node).set_mode("other", 0640), 0);
      }).join();
      ++waited;
    };
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(kernels_[node].read(readers[node]), "AAAA");
  ASSERT_EQ(calls(1).set_mode("f", 0644), 0);
  EXPECT_EQ(waited, kNodes);
  for (size_t node = 0; node < kNodes; ++node) EXPECT_EQ(kernels_[node].read(readers[node]), "AAAA");
  make(2, "f", "BBBB");
  EXPECT_GE(waited, 2 * kNodes);
  for (size_t node = 0; node < kNodes; ++node) {
    EXPECT_EQ(kernels_[node].read(readers[node]), "BBBB") << "node " << node;
    kernels_[node].during_drop = nullptr;
  }
  for (size_t node = 0; node < kNodes; ++node) {
    kernels_[node].close(&readers[node]);
    kernels_[node].close(&others[node]);
  }
}

// Two nodes commit while the kernels of both wait for reads that the other one answers.
TEST_F(JobFsPages, CommitsOfTwoNodesDoNotWaitForEachOther) {
  start();
  make(0, "f", "AAAA");
  make(0, "at-0", "bytes of node 0");
  make(1, "at-1", "bytes of node 1");
  ASSERT_EQ(calls(0).set_mode("f", 0444), 0);
  Kernel::Open old = kernels_[2].open("f");
  ASSERT_EQ(calls(0).set_mode("f", 0644), 0);
  std::array<Kernel::Open, 2> others = {kernels_[0].open("at-1"), kernels_[1].open("at-0")};
  for (size_t node = 0; node < 2; ++node)
    kernels_[node].during_drop = [&, node] {
      std::thread([&] { EXPECT_EQ(kernels_[node].read(others[node]).size(), 15u); }).join();
    };
  std::array<std::thread, 2> writers;
  for (size_t node = 0; node < 2; ++node)
    writers[node] = std::thread([&, node] {
      for (int i = 0; i < 50; ++i) make(node, "f", std::string(1, static_cast<char>('a' + i % 26)));
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(kernels_[2].read(old), std::string(1, static_cast<char>('a' + 49 % 26)) + "AAA");
  for (Kernel& kernel : kernels_) kernel.during_drop = nullptr;
  for (size_t node = 0; node < 2; ++node) kernels_[node].close(&others[node]);
  kernels_[2].close(&old);
}

}  // namespace
}  // namespace swale::fs::job_fs_pages_test
