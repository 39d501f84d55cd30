#include "net/meeting/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>

#include "net/job/agree.h"
#include "net/meeting/testing/bootstrap_test_util.h"

namespace swale::net::bootstrap_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(SoloBootstrap, IsAJobOfOneRank) {
  const auto solo = solo_bootstrap();
  EXPECT_EQ(solo->rank(), 0);
  EXPECT_EQ(solo->size(), 1);
  EXPECT_THAT(*allgather(*solo, "mine"), ElementsAre("mine"));
}

// Runs `body(bootstrap)` as each rank of a local group.
void as_ranks(int32_t size, const std::function<void(Rank, std::shared_ptr<LocalGroup>)>& body) {
  auto group = std::make_shared<LocalGroup>(size);
  std::vector<std::thread> threads;
  for (Rank rank = 0; rank < size; ++rank) threads.emplace_back([=] { body(rank, group); });
  for (auto& each : threads) each.join();
}

TEST(LocalBootstrap, GathersManyRounds) {
  as_ranks(4, [](Rank rank, const std::shared_ptr<LocalGroup>& group) {
    const auto bootstrap = local_bootstrap(group, rank);
    for (int round = 0; round < 200; ++round) {
      const auto all = allgather(*bootstrap, fmt::format("{}:{}", rank, round));
      ASSERT_TRUE(all.ok());
      for (size_t i = 0; i < 4; ++i) ASSERT_EQ((*all)[i], fmt::format("{}:{}", i, round));
    }
  });
}

TEST(LocalBootstrap, NamesTheRanksThatDoNotCome) {
  auto group = std::make_shared<LocalGroup>(3, milliseconds(1));
  const Status status = allgather(*local_bootstrap(group, 1), "x").status();
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("ranks 0 2"));
}

TEST(CallbackBootstrap, GathersDifferentLengthsOverAnEqualSizeAllgather) {
  as_ranks(3, [](Rank rank, const std::shared_ptr<LocalGroup>& group) {
    const auto bootstrap = callback_bootstrap(callbacks(rank, group));
    const auto all = allgather(*bootstrap, std::string(static_cast<size_t>(rank) * 1000, 'a'));
    ASSERT_TRUE(all.ok()) << all.status().to_string();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ((*all)[i], std::string(i * 1000, 'a'));
    EXPECT_THAT(*allgather(*bootstrap, ""), ElementsAre("", "", ""));
  });
}

TEST(CallbackBootstrap, TooLongAStringOfOneRankFailsOnAll) {
  as_ranks(3, [](Rank rank, const std::shared_ptr<LocalGroup>& group) {
    const auto bootstrap = callback_bootstrap(callbacks(rank, group));
    const std::string mine(rank == 1 ? Bootstrap::kBytesMax + 1 : 5, 'a');
    EXPECT_EQ(allgather(*bootstrap, mine).status().code(), Code::kResourceExhausted);
  });
}

// In a buffer that is too small for all strings they come in pieces of 8 bytes and more.
TEST(CallbackBootstrap, GathersInPieces) {
  for (const size_t bytes_max : {size_t{1}, size_t{24}, size_t{60}, size_t{1000}}) {
    as_ranks(3, [&](Rank rank, const std::shared_ptr<LocalGroup>& group) {
      CommCallbacks small = callbacks(rank, group);
      small.bytes_max = bytes_max;
      const auto bootstrap = callback_bootstrap(small);
      const auto mine = [](Rank of) {
        return std::string(static_cast<size_t>(of) * 35, static_cast<char>('a' + of));
      };
      const auto all = allgather(*bootstrap, mine(rank));
      ASSERT_TRUE(all.ok()) << all.status().to_string();
      EXPECT_THAT(*all, ElementsAre(mine(0), mine(1), mine(2)));
      const auto word =
          first_word(*bootstrap, rank == 0 ? "" : fmt::format("{} says this at some length", rank));
      ASSERT_TRUE(word.ok()) << word.status().to_string();
      EXPECT_EQ(word->rank, 1);
      EXPECT_EQ(word->text, "1 says this at some length");
      EXPECT_EQ(first_word(*bootstrap, "")->rank, -1);
    });
  }
}

TEST(CallbackBootstrap, AFailingCallbackIsReported) {
  CommCallbacks failing;
  failing.allgather = [](const void*, void*, size_t) { return 17; };
  const Status status = allgather(*callback_bootstrap(failing), "x").status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("17"));
}

// The ranks of two nodes publish their addresses over a communicator.
class CommBook : public testing::Test {
 protected:
  static constexpr int32_t kRanks = 5;

  CommBook() {
    char path[] = "/tmp/swale_book_XXXXXX";
    folder_ = ::mkdtemp(path);
  }
  ~CommBook() override { std::filesystem::remove_all(folder_); }

  static std::string address_of(Rank rank) {
    return fmt::format("address {}", std::string(static_cast<size_t>(rank) + 1, '@'));
  }
  // Each rank's book. `settle` changes a rank's callbacks.
  using Books = std::vector<Result<std::shared_ptr<const AddressBook>>>;
  Books publish(const std::function<void(CommCallbacks*)>& settle, Rank without = -1) {
    Books books(static_cast<size_t>(kRanks),
                Result<std::shared_ptr<const AddressBook>>(Status::out_of_memory()));
    as_ranks(kRanks, [&](Rank rank, const std::shared_ptr<LocalGroup>& group) {
      CommCallbacks mine = callbacks(rank, group);
      mine.bytes_max = 60;  // pieces of 8 bytes
      mine.folders = {folder_};
      settle(&mine);
      const Result<std::string> address =
          rank == without ? Result<std::string>(invalid_argument("no network")) : address_of(rank);
      const NodeMap nodes = NodeMap::in_blocks(std::vector<int32_t>{2, 3}).value();
      books[static_cast<size_t>(rank)] =
          callback_bootstrap(mine)->publish(encode_address(rank, "host", address), nodes);
    });
    return books;
  }
  void expect_whole(const Books& books) {
    for (const auto& book : books) {
      ASSERT_TRUE(book.ok()) << book.status().to_string();
      for (Rank rank = 0; rank < kRanks; ++rank) {
        const auto found = (*book)->find(rank);
        ASSERT_TRUE(found.ok()) << found.status().to_string();
        EXPECT_EQ(found->address, address_of(rank));
        EXPECT_EQ((*book)->host_of(rank), "host");
      }
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the files' names are gone when all have them open";
  }

  std::string folder_;
};

TEST_F(CommBook, IsAFileOfEachNodeWhereItIsTooLargeForAllToKeep) {
  const Books books = publish([](CommCallbacks*) {});
  expect_whole(books);
  for (const auto& book : books) {
    EXPECT_EQ((*book)->private_bytes(), 0u);
    EXPECT_GT((*book)->shared_bytes(), 0u);
  }
}

TEST_F(CommBook, IsKeptByEachRankOfASmallJob) {
  const Books books = publish([](CommCallbacks* mine) { mine->bytes_max = kMiB; });
  expect_whole(books);
  for (const auto& book : books) EXPECT_EQ((*book)->shared_bytes(), 0u);
}

// Where a node has no folder for the file, or its ranks have not the same one, they keep the addresses
// themselves.
TEST_F(CommBook, IsKeptByRanksThatCanNotShareAFile) {
  const Books none = publish([&](CommCallbacks* mine) {
    if (mine->rank < 2) mine->folders = {folder_ + "/none"};
  });
  expect_whole(none);
  EXPECT_EQ((*none[1])->shared_bytes(), 0u);
  EXPECT_GT((*none[4])->shared_bytes(), 0u);
  const Books apart = publish([&](CommCallbacks* mine) {
    if (mine->rank == 3) mine->folders = {folder_ + "/none"};
  });
  expect_whole(apart);
  EXPECT_EQ((*apart[3])->shared_bytes(), 0u);
  EXPECT_GT((*apart[4])->shared_bytes(), 0u);
}

TEST_F(CommBook, ARankWithoutAnAddressFailsAllByName) {
  for (const size_t bytes_max : {size_t{60}, size_t{kMiB}}) {
    for (const auto& book : publish([&](CommCallbacks* mine) { mine->bytes_max = bytes_max; }, 3)) {
      EXPECT_EQ(book.status().code(), Code::kAborted);
      EXPECT_THAT(std::string(book.status().message()),
                  HasSubstr("rank 3 (host host) could not start its transport: no network"));
    }
  }
}

TEST(AddressBook, RefusesRowsThatAreDamagedOrAnotherRanks) {
  const std::string row = encode_address(1, "host", std::string("address"));
  EXPECT_EQ(decode_address(1, row + std::string(9, '\0'))->address, "address");
  for (size_t bit = 0; bit < 8 * row.size(); ++bit) {
    std::string damaged = row;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(decode_address(1, damaged).ok()) << bit;
  }
  for (size_t bytes = 0; bytes < row.size(); ++bytes)
    EXPECT_EQ(decode_address(1, Bytes(row).substr(0, bytes)).status().code(), Code::kCorruption);
  const auto book = make_book(std::vector<std::string>{row, row}).value();
  EXPECT_TRUE(book->find(1).ok());
  EXPECT_THAT(std::string(book->find(0).status().message()),
              HasSubstr("rank 0 is damaged, or another rank's"));
  EXPECT_EQ(book->host_of(0), "unknown");
}

TEST(RankTable, AFileThatWasCutIsNamedWithTheOffset) {
  char path[] = "/tmp/swale_table_XXXXXX";
  const std::string file = std::string(::mkdtemp(path)) + "/rows";
  const RankTable::Shape shape{4, 20, 8};
  {
    auto table = RankTable::create(file, shape);
    ASSERT_TRUE(table.ok()) << table.status().to_string();
    EXPECT_EQ(RankTable::create(file, shape).status().code(), Code::kAlreadyExists);
    for (const size_t offset : {size_t{0}, size_t{8}, size_t{16}}) {
      for (Rank rank = 0; rank < 4; ++rank)
        ASSERT_TRUE(table->put(rank, offset, fmt::format("{}{}", rank, offset)).ok());
    }
    ASSERT_TRUE(table->flush().ok());
  }
  const auto table = RankTable::open(file, shape);
  ASSERT_TRUE(table.ok()) << table.status().to_string();
  EXPECT_EQ(*table->row(2), std::string("20\0\0\0\0\0\00028\0\0\0\0\0\000216\0", 20));
  ASSERT_EQ(::truncate(file.c_str(), 79), 0);
  EXPECT_TRUE(table->row(2).ok());
  EXPECT_THAT(std::string(table->row(3).status().message()),
              testing::AllOf(HasSubstr(file), HasSubstr("before offset 80"), HasSubstr("rank 3 of 4")));
  std::filesystem::remove_all(std::filesystem::path(file).parent_path());
  EXPECT_EQ(RankTable::open(file, shape).status().code(), Code::kNotFound);
}

}  // namespace
}  // namespace swale::net::bootstrap_test
