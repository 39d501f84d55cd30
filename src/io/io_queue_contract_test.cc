// What every queue promises, run over every Device, engine and way past the page cache.
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "io/io_queue.h"
#include "io/testing/device_test_fixture.h"

namespace swale::io::io_queue_contract_test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kPage = 4096;

// Memory that direct transfers can use.
class Pages {
 public:
  explicit Pages(size_t count) : bytes_(count * kPage) {
    memory_.reset(static_cast<char*>(std::aligned_alloc(kPage, bytes_)));
    std::fill_n(memory_.get(), bytes_, '.');
  }
  MutableBytes all() { return {memory_.get(), bytes_}; }
  MutableBytes page(size_t index) { return all().subspan(index * kPage, kPage); }

 private:
  struct Free {
    void operator()(char* memory) const { std::free(memory); }
  };
  size_t bytes_;
  std::unique_ptr<char, Free> memory_;
};

Operation read_of(File& file, uint64_t offset, MutableBytes into, uint64_t tag = 0) {
  return {Operation::Kind::kRead, &file, offset, into, {}, tag};
}
Operation write_of(File& file, uint64_t offset, Bytes from, uint64_t tag = 0) {
  return {Operation::Kind::kWrite, &file, offset, {}, from, tag};
}
Operation sync_of(File& file, uint64_t tag = 0) { return {Operation::Kind::kSync, &file, 0, {}, {}, tag}; }

class QueueContract : public OverDevices {
 protected:
  std::unique_ptr<IoQueue> make_queue(size_t depth) {
    Result<std::unique_ptr<IoQueue>> queue = device().make_queue(depth);
    EXPECT_TRUE(queue.ok()) << queue.status().to_string();
    return std::move(queue).value();
  }
  // All completions, by tag; each tag once.
  std::map<uint64_t, Completion> drain(IoQueue& queue) {
    std::map<uint64_t, Completion> found;
    std::vector<Completion> out;
    while (queue.in_flight() > 0) queue.wait(1, &out);
    for (Completion& completion : out) {
      const uint64_t tag = completion.tag;
      EXPECT_TRUE(found.emplace(tag, std::move(completion)).second) << "tag " << tag << " came twice";
    }
    return found;
  }
  std::map<uint64_t, Completion> run(size_t depth, const std::vector<Operation>& operations) {
    const auto queue = make_queue(depth);
    queue->submit(operations);
    EXPECT_EQ(queue->in_flight(), operations.size());
    std::map<uint64_t, Completion> found = drain(*queue);
    EXPECT_EQ(found.size(), operations.size());
    return found;
  }
};

INSTANTIATE_TEST_SUITE_P(Queues, QueueContract, ::testing::ValuesIn(all_implementations()),
                         implementation_name);

TEST_P(QueueContract, ManyOperationsOnSeveralFilesInAnyShape) {
  constexpr size_t kFiles = 5;
  constexpr size_t kPieces = 40;
  Rng rng(7);
  std::vector<std::unique_ptr<File>> files;
  std::vector<std::string> expected(kFiles);
  Pages pages(kFiles * kPieces * 3);
  std::vector<Operation> operations;
  size_t at = 0;
  for (size_t f = 0; f < kFiles; ++f) {
    files.push_back(open("f" + std::to_string(f), OpenMode::kCreate));
    files.back()->prefer_direct();
    for (size_t p = 0; p < kPieces; ++p) {
      // One to three pages, and in odd files a few bytes less: neither length nor the next offset is aligned
      // then.
      const size_t count = 1 + rng.below(3);
      const size_t bytes = count * kPage - (f % 2 == 1 ? rng.below(99) : 0);
      const MutableBytes piece = pages.all().subspan(at * kPage, bytes);
      at += count;
      for (char& byte : piece) byte = static_cast<char>(rng.next());
      operations.push_back(write_of(*files[f], expected[f].size(), view(piece), operations.size()));
      expected[f] += view(piece);
    }
  }
  for (size_t i = operations.size(); i > 1; --i) std::swap(operations[i - 1], operations[rng.below(i)]);
  for (const auto& [tag, completion] : run(16, operations)) EXPECT_TRUE(completion.status.ok()) << tag;

  std::vector<Operation> reads;
  std::vector<std::string> got(kFiles);
  for (size_t f = 0; f < kFiles; ++f) {
    EXPECT_TRUE(read("f" + std::to_string(f)) == expected[f]);
    got[f].resize(expected[f].size());
    for (size_t from = 0; from < got[f].size(); from += 10'000) {
      const size_t bytes = std::min<size_t>(10'000, got[f].size() - from);
      reads.push_back(read_of(*files[f], from, MutableBytes(got[f]).subspan(from, bytes), reads.size()));
    }
  }
  const auto done = run(16, reads);
  for (size_t i = 0; i < reads.size(); ++i) EXPECT_EQ(done.at(i).bytes, reads[i].into.size());
  EXPECT_TRUE(got == expected);
}

TEST_P(QueueContract, MoreOperationsThanDepth) {
  const auto file = open("a", OpenMode::kCreate);
  Pages pages(50);
  std::vector<Operation> operations;
  for (size_t i = 0; i < 50; ++i) {
    std::fill_n(pages.page(i).data(), kPage, static_cast<char>('a' + i % 26));
    operations.push_back(write_of(*file, i * kPage, view(pages.page(i)), i));
  }
  for (const auto& [tag, completion] : run(1, operations)) EXPECT_TRUE(completion.status.ok()) << tag;
  EXPECT_TRUE(read("a") == view(pages.all()));
}

TEST_P(QueueContract, DepthIsAnyNumber) {
  for (const size_t depth : {size_t{0}, size_t{3}, size_t{100'000}}) {
    const auto queue = make_queue(depth);
    EXPECT_EQ(queue->in_flight(), 0u);
  }
}

TEST_P(QueueContract, ReadStopsAtTheEndOfTheFile) {
  const auto file = open("a", OpenMode::kCreate);
  file->prefer_direct();
  Pages content(3);
  ASSERT_TRUE(file->pwrite(0, view(content.all()).substr(0, 2 * kPage + 100)).ok());
  Pages pages(5);
  const auto done =
      run(8, {read_of(*file, kPage, pages.all().subspan(0, 2 * kPage), 0),
              read_of(*file, 2 * kPage, pages.page(2), 1), read_of(*file, 3 * kPage, pages.page(3), 2),
              read_of(*file, 2 * kPage + 90, pages.page(4).subspan(1, 50), 3)});
  for (const auto& [tag, completion] : done) EXPECT_TRUE(completion.status.ok()) << tag;
  EXPECT_EQ(done.at(0).bytes, kPage + 100);
  EXPECT_EQ(done.at(1).bytes, 100u);
  EXPECT_EQ(done.at(2).bytes, 0u);
  EXPECT_EQ(done.at(3).bytes, 10u);
}

TEST_P(QueueContract, EmptyOperationsComplete) {
  const auto file = open("a", OpenMode::kCreate);
  file->prefer_direct();
  const auto done =
      run(4, {read_of(*file, 0, {}, 0), write_of(*file, kPage, {}, 1), read_of(*file, 10, {}, 2)});
  for (const auto& [tag, completion] : done) {
    EXPECT_TRUE(completion.status.ok()) << tag;
    EXPECT_EQ(completion.bytes, 0u);
  }
  EXPECT_EQ(*file->size(), 0u);
  const auto queue = make_queue(4);
  queue->submit({});
  EXPECT_EQ(queue->in_flight(), 0u);
}

TEST_P(QueueContract, FailureIsItsOperationsAloneAndWordedAsTheFilesOwn) {
  write("a", "old");
  const auto writable = open("b", OpenMode::kCreate);
  const auto readable = open("a", OpenMode::kRead);
  Pages pages(4);
  const auto done =
      run(4, {write_of(*writable, 0, view(pages.page(0)), 0), write_of(*readable, 77, "new", 1),
              write_of(*readable, kPage, view(pages.page(1)), 2), sync_of(*writable, 3),
              write_of(*writable, kPage, view(pages.page(2)), 4), read_of(*readable, 0, pages.page(3), 5)});
  for (const uint64_t tag : {0, 3, 4, 5}) EXPECT_TRUE(done.at(tag).status.ok()) << tag;
  EXPECT_EQ(done.at(1).status.to_string(), readable->pwrite(77, "new").to_string());
  EXPECT_EQ(done.at(2).status.to_string(), readable->pwrite(kPage, view(pages.page(1))).to_string());
  EXPECT_THAT(std::string(done.at(1).status.message()), HasSubstr("offset 77"));
  EXPECT_EQ(done.at(5).bytes, 3u);
  EXPECT_EQ(read("a"), "old");
}

TEST_P(QueueContract, ImpossibleOffsetsAreFailures) {
  const auto file = open("a", OpenMode::kCreate);
  const auto done = run(2, {write_of(*file, UINT64_MAX, "x", 0), write_of(*file, uint64_t{1} << 63, "x", 1)});
  EXPECT_FALSE(done.at(0).status.ok());
  EXPECT_FALSE(done.at(1).status.ok());
  EXPECT_EQ(*file->size(), 0u);
}

TEST_P(QueueContract, DirectAndBufferedTransfersOfOneFileAgree) {
  const auto file = open("a", OpenMode::kCreate);
  file->prefer_direct();
  Pages pages(4);
  std::fill_n(pages.all().data(), 2 * kPage, 'd');
  run(2, {write_of(*file, 0, view(pages.all()).substr(0, 2 * kPage))});
  run(2, {write_of(*file, 1000, "buffered")});
  run(2, {read_of(*file, 0, pages.page(2))});
  EXPECT_EQ(view(pages.page(2)).substr(999, 10), "dbufferedd");
  run(2, {write_of(*file, 0, view(pages.page(0)))});
  std::string unaligned(10, '.');
  run(2, {read_of(*file, 1000, unaligned)});
  EXPECT_EQ(unaligned, "dddddddddd");
}

TEST_P(QueueContract, WaitHandsOutAtLeastWhatWasAskedFor) {
  const auto file = open("a", OpenMode::kCreate);
  Pages pages(12);
  std::vector<Operation> operations;
  for (size_t i = 0; i < 12; ++i) operations.push_back(write_of(*file, i * kPage, view(pages.page(i)), i));
  const auto queue = make_queue(12);
  std::vector<Completion> out;
  EXPECT_EQ(queue->wait(1, &out), 0u);  // nothing in flight: it does not sleep
  queue->submit(operations);
  const size_t first = queue->wait(5, &out);
  EXPECT_GE(first, 5u);
  EXPECT_EQ(queue->in_flight(), 12 - first);
  const size_t more = queue->wait(99, &out);
  EXPECT_EQ(first + more, 12u);
  EXPECT_EQ(out.size(), 12u);
  EXPECT_EQ(queue->wait(0, &out), 0u);
}

TEST_P(QueueContract, WakesLoseNothing) {
  constexpr size_t kRounds = 50;
  const auto file = open("a", OpenMode::kCreate);
  const auto queue = make_queue(4);
  queue->wake();
  queue->wake();
  std::vector<Completion> out;
  EXPECT_EQ(queue->wait(1, &out), 0u);
  std::atomic<bool> stop{false};
  std::thread waker([&] {
    while (!stop) queue->wake();
  });
  Pages pages(1);
  for (size_t i = 0; i < kRounds; ++i) {
    queue->submit(
        std::vector<Operation>{write_of(*file, i * kPage, view(pages.page(0)), i), sync_of(*file, 1000 + i)});
    while (queue->in_flight() > 0) queue->wait(1 + i % 2, &out);
  }
  stop = true;
  waker.join();
  EXPECT_EQ(out.size(), 2 * kRounds);
  for (const Completion& completion : out) EXPECT_TRUE(completion.status.ok()) << completion.tag;
  EXPECT_EQ(*file->size(), kRounds * kPage);
}

TEST_P(QueueContract, DestructorWaitsForWhatIsInFlight) {
  const auto file = open("a", OpenMode::kCreate);
  file->prefer_direct();
  {
    Pages pages(8 * 64);
    std::vector<Operation> operations;
    for (size_t i = 0; i < 8; ++i)
      operations.push_back(
          write_of(*file, i * 64 * kPage, view(pages.all()).substr(i * 64 * kPage, 64 * kPage), i));
    make_queue(8)->submit(operations);
    std::fill_n(pages.all().data(), pages.all().size(), 'X');  // too late to be written
  }
  EXPECT_TRUE(read("a") == std::string(8 * 64 * kPage, '.'));
}

TEST_P(QueueContract, FilesOfAnotherDeviceAreServedToo) {
  MemoryDevice other;
  const auto there = other.open("/a", OpenMode::kCreate).value();
  const auto here = open("a", OpenMode::kCreate);
  run(2, {write_of(*there, 0, "there"), write_of(*here, 0, "here", 1)});
  EXPECT_EQ(*read_file(other, "/a", 10), "there");
  EXPECT_EQ(read("a"), "here");
}

TEST(InlineQueue, CarriesOutTheNthCallInOrder) {
  MemoryDevice memory;
  FaultDevice faults(memory);
  const auto file = faults.open("/a", OpenMode::kCreate).value();
  const auto queue = faults.make_queue(8).value();
  faults.inject({.kind = CallKind::kWrite, .nth = 3});
  std::vector<Operation> operations;
  for (size_t i = 0; i < 5; ++i) operations.push_back(write_of(*file, i, "x", i));
  queue->submit(operations);
  std::vector<Completion> out;
  ASSERT_EQ(queue->wait(5, &out), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(out[i].tag, i);
    EXPECT_EQ(out[i].status.ok(), i != 2);
  }
}

}  // namespace
}  // namespace swale::io::io_queue_contract_test
