// Jobs that only read: beside a writer, without the right to write, and of stores that are not there.
#include "meta/store/reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "io/fault_device.h"
#include "io/memory_device.h"
#include "meta/store/testing/test_store_ranks.h"

namespace swale::meta::reading_test {
namespace {

using store_test::barrier;
using store_test::RankOf;
using store_test::run_ranks;
using store_test::small_ranges;

using testing::ElementsAre;
using testing::HasSubstr;

StoreOptions opening(OpenStore how) {
  StoreOptions options = small_ranges();
  options.open = how;
  return options;
}

// A job of one rank that has the store open for reading, whatever others do.
class Reader {
 public:
  explicit Reader(io::Device& device, OpenStore how = OpenStore::kReadOnly, const std::string& path = "store")
      : job_(*net::Job::open(net::solo_bootstrap(), net::JobOptions())) {
    auto store = Store::open(*job_, device, path, opening(how));
    opened = store.status();
    if (!store.ok()) return;
    store_ = *std::move(store);
    client = store_->client();
  }
  ~Reader() {
    client.reset();
    const Status closed = store_ ? store_->close() : ok_status();
    EXPECT_TRUE(closed.ok()) << closed.to_string();
    store_.reset();
    EXPECT_TRUE(job_->close().ok());
  }
  Result<std::vector<Extent>> all(const std::string& name) {
    SWALE_ASSIGN_OR_RETURN(const File file, client->open(name, 0, 0, 0));
    std::vector<Extent> found;
    for (uint64_t next = 0; next < kOffsetEnd;) {
      std::vector<Extent> some;
      SWALE_RETURN_IF_ERROR(client->scan(file, next, 1000, &some, &next));
      found.insert(found.end(), some.begin(), some.end());
    }
    return found;
  }
  Status opened;
  std::unique_ptr<Client> client;

 private:
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<Store> store_;
};

std::map<std::string, std::string> files_of(io::Device& device) {
  std::map<std::string, std::string> files;
  const auto names = device.list("store");
  for (const std::string& name : *names) {
    if (name != kLockName && !name.ends_with(".claims"))
      files[name] = *io::read_file(device, "store/" + name, kGiB);
  }
  return files;
}

constexpr Extent kOne{0, 100, {1, 0}}, kTwo{4096, 100, {1, 100}}, kThree{9000, 100, {1, 200}};

TEST(Reading, BesideAWriterSeesWhatWasAcknowledgedBefore) {
  io::MemoryDevice device;
  run_ranks(2, device, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    if (rank.job.rank() == 0) {
      const Extent both[] = {kOne, kTwo};
      ASSERT_TRUE(rank.client->put(&*file, both).ok());
      const auto before = files_of(device);
      Reader reader(device);
      ASSERT_TRUE(reader.opened.ok()) << reader.opened.to_string();
      EXPECT_THAT(*reader.all("f"), ElementsAre(kOne, kTwo));
      EXPECT_TRUE(files_of(device) == before);
      // What comes later, and a merge that removes the files that the reader has.
      ASSERT_TRUE(rank.client->put(&*file, std::span(&kThree, 1)).ok());
      rank.store.with_servers([](ServerCore& core) { ASSERT_TRUE(core.shard().drain().ok()); });
      EXPECT_THAT(*reader.all("f"), ElementsAre(kOne, kTwo));
      Reader second(device);
      ASSERT_TRUE(second.opened.ok()) << second.opened.to_string();
      EXPECT_THAT(*second.all("f"), ElementsAre(kOne, kTwo, kThree));
      // A second writer is kept out, and no reader takes its place.
      StoreOptions options = opening(OpenStore::kExisting);
      options.lease.wait = 0;
      const auto job = *net::Job::open(net::solo_bootstrap(), net::JobOptions());
      EXPECT_EQ(Store::open(*job, device, "store", options).status().code(), Code::kBusy);
      EXPECT_TRUE(job->close().ok());
    }
    barrier(rank);
  });
  Reader closed(device);
  ASSERT_TRUE(closed.opened.ok()) << closed.opened.to_string();
  EXPECT_THAT(*closed.all("f"), ElementsAre(kOne, kTwo, kThree));
}

void read_all(io::Device& device, const std::atomic<uint64_t>& acknowledged) {
  const uint64_t before = acknowledged;
  Reader reader(device);
  ASSERT_TRUE(reader.opened.ok()) << reader.opened.to_string();
  const auto found = reader.all("f");
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_GE(found->size(), before);
  for (uint64_t at = 0; at < found->size(); ++at) {
    ASSERT_EQ((*found)[at].offset, at * 300);
    ASSERT_EQ((*found)[at].place.address, at * 1000);
  }
}

// Checkpoints all the time, files that are removed under the readers, attributes that checkpoints keep.
TEST(Reading, ManyReadersBesideABusyWriter) {
  io::MemoryDevice device;
  StoreOptions options = small_ranges();
  options.shard.write_buffer_entries = 32;
  options.shard.compression_buffer_bytes = 300;
  options.shard.log_bytes_max = 2000;
  std::atomic<uint64_t> acknowledged{0};
  std::atomic<bool> done{false};
  run_ranks(1, device, options, [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    std::thread readers([&] {
      for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) read_all(device, acknowledged);
      done = true;
    });
    for (uint64_t i = 0; !done; ++i) {
      const Extent next{i * 300, 10 + i % 200, {2, i * 1000}};
      ASSERT_TRUE(rank.client->put(&*file, std::span(&next, 1)).ok());
      acknowledged = i + 1;
      const std::string name = fmt::format("doomed {}", i);
      auto doomed = rank.client->open(name, Client::kCreate, 0, 0);
      ASSERT_TRUE(doomed.ok() && rank.client->remove(name).ok());
    }
    readers.join();
    fmt::print("60 readers beside {} puts\n", acknowledged.load());
  });
}

// Nothing may be made or written: every call that would is refused by the device.
TEST(Reading, NeedsNoRightToWrite) {
  io::MemoryDevice memory;
  run_ranks(2, memory, small_ranges(), [&](RankOf& rank) {
    auto file = rank.client->open("f", Client::kCreate, 0, 0);
    ASSERT_TRUE(file.ok());
    if (rank.job.rank() == 0) {
      const Extent both[] = {kOne, kTwo};
      ASSERT_TRUE(rank.client->put(&*file, both).ok());
    }
    barrier(rank);
  });
  io::FaultDevice device(memory);
  const auto before = files_of(memory);
  for (const io::CallKind kind : {io::CallKind::kWrite, io::CallKind::kSync})
    device.inject(
        {.kind = kind, .from_then_on = true, .status = error(Code::kIoError, Scope::kFile, "EACCES")});
  Reader reader(device);
  ASSERT_TRUE(reader.opened.ok()) << reader.opened.to_string();
  EXPECT_THAT(*reader.all("f"), ElementsAre(kOne, kTwo));
  auto file = *reader.client->open("f", 0, 0, 0);
  for (const Status& refused :
       {reader.client->put(&file, std::span(&kThree, 1)), reader.client->truncate(&file, 0, 0),
        reader.client->seal(&file), reader.client->remove("f"), reader.client->relocate({1, 0, 10, {2, 0}}),
        reader.client->open("g", Client::kCreate, 0, 0).status()}) {
    EXPECT_EQ(refused.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("for reading only"));
  }
  EXPECT_TRUE(reader.client->close(&file, 0).ok());
  EXPECT_TRUE(files_of(memory) == before);
}

TEST(Reading, AMistypedPathMakesNoStore) {
  io::MemoryDevice device;
  ASSERT_TRUE(device.make_directory("there").ok());
  for (const char* const path : {"stroe", "there"}) {
    for (const OpenStore how : {OpenStore::kExisting, OpenStore::kReadOnly}) {
      const Reader reader(device, how, path);
      EXPECT_EQ(reader.opened.code(), Code::kNotFound) << reader.opened.to_string();
      EXPECT_THAT(std::string(reader.opened.message()), HasSubstr(path));
    }
  }
  EXPECT_FALSE(*device.exists("stroe"));
  EXPECT_TRUE(device.list("there")->empty());
}

TEST(Reading, ExclusiveFindsAStoreThatIsThere) {
  io::MemoryDevice device;
  { EXPECT_TRUE(Reader(device, OpenStore::kExclusive).opened.ok()); }
  EXPECT_EQ(Reader(device, OpenStore::kExclusive).opened.code(), Code::kAlreadyExists);
  EXPECT_TRUE(Reader(device, OpenStore::kExisting).opened.ok());
  EXPECT_TRUE(Reader(device, OpenStore::kCreate).opened.ok());
}

}  // namespace
}  // namespace swale::meta::reading_test
