// Every number of a metadata store's files, set to the ends of its range and to the neighbours of what is
// right, with checksums that fit; also those that a closed store has of its files. Whatever is asked then
// gives an answer, or an error that names a file: no crash, no byte beyond a buffer (run it under
// AddressSanitizer), no long work, no memory that a number in a file chose. Variables of the environment:
// forged_trials.h.
#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "imd/testing/test_repair.h"
#include "io/memory_device.h"
#include "meta/index/shard_check.h"
#include "meta/store/closing.h"
#include "meta/store/reading.h"
#include "meta/store/testing/test_store_ranks.h"
#include "tests/forged/forged_trials.h"
#include "tests/forged/meta_fields.h"

namespace swale::forged {
namespace {

using imd::test::Image;

constexpr const char* kStore = "store";

meta::StoreOptions options(meta::BlockCodec codec) {
  meta::StoreOptions options;
  options.servers_per_node = 1;
  options.range_bytes = 64 * kKiB;
  options.deadline = seconds(20);
  options.files_max = 1000;
  options.shard.codec = codec;
  options.shard.write_buffer_entries = 256;
  options.shard.compression_buffer_bytes = 64 * kKiB;
  options.shard.cache_bytes = 256 * kKiB;
  options.shard.log_bytes_max = 24 * kKiB;
  return options;
}

Image image_of(io::Device& device) {
  Image image = {{fmt::format("{}/", kStore), ""}};
  imd::test::add_to_image(device, kStore, &image);
  return image;
}

// A store with everything: irregular extents, patterns, a truncated, a removed and a sealed file,
// relocations; opened twice.
struct Images {
  Image killed, closed;
};
Images make(meta::BlockCodec codec) {
  io::MemoryDevice device;
  Images images;
  for (int job = 0; job < 2; ++job) {
    meta::store_test::run_ranks(1, device, options(codec), [&](meta::store_test::RankOf& rank) {
      Rng rng(static_cast<uint64_t>(job) + 1);
      meta::Client& client = *rank.client;
      for (const char* name : {"a", "b", "sealed", "cut", "removed"}) {
        auto file = client.open(name, meta::Client::kCreate, 0644, 5);
        ASSERT_TRUE(file.ok()) << file.status().to_string();
        if (file->attributes.sealed) continue;
        for (int put = 0; put < 6; ++put) {
          std::vector<meta::Extent> extents;
          for (uint64_t i = 0; i < 100; ++i) {
            const bool strided = put % 2 == 0;
            extents.push_back({strided ? (i * 4 + static_cast<uint64_t>(put)) * 512 : rng.below(100'000'000),
                               strided ? 512 : 1 + rng.below(5000),
                               {static_cast<meta::LogId>(put), strided ? i * 512 : rng.below(1 << 30)}});
          }
          ASSERT_TRUE(client.put(&*file, extents).ok());
        }
        ASSERT_TRUE(client.close(&*file, 6).ok());
        if (name == std::string_view("sealed")) {
          ASSERT_TRUE(client.seal(&*file).ok());
        }
        if (name == std::string_view("cut")) {
          ASSERT_TRUE(client.truncate(&*file, 70'000, 7).ok());
        }
      }
      ASSERT_TRUE(client.remove("removed").ok());
      ASSERT_TRUE(client.relocate({1, 0, 1 << 20, {77, 5}}).ok());
      images.killed = image_of(device);
    });
  }
  images.closed = image_of(device);
  return images;
}

// What a closed store says of its files is made right again: lengths and checksums in the closing, its own in
// the manifest.
void reseal_closing(Image* image) {
  const std::string manifest_path = fmt::format("{}/{}", kStore, meta::kManifestName);
  const std::string closing_path = fmt::format("{}/{}", kStore, meta::closing_name(0));
  auto manifest = meta::decode_manifest((*image)[manifest_path], manifest_path);
  if (!manifest.ok() || manifest->closings.size() != 1) return;
  io::MemoryDevice device;
  imd::test::put_back(*image, device);
  auto closing = meta::decode_closing((*image)[closing_path], closing_path);
  if (closing.ok()) {
    for (meta::ClosingFile& part : closing->parts) {
      const std::string& file = (*image)[fmt::format("{}/{}", kStore, part.name)];
      const bool sorted = part.name.find(".sorted-") != std::string::npos;
      part.bytes = file.size();
      part.crc = crc32c(sorted && file.size() >= 64 ? Bytes(file).substr(file.size() - 64) : Bytes(file));
    }
    (*image)[closing_path] = meta::encode_closing(*closing);
  }
  manifest->closings[0].crc = crc32c((*image)[closing_path]);
  (*image)[manifest_path] = meta::encode_manifest(*manifest);
}

class Questions {
 public:
  Questions(io::Device& device, std::string file, meta::BlockCodec codec)
      : device_(device), file_(std::move(file)), codec_(codec) {}

  void ask() {
    verify();
    use();
    verify();
  }
  uint64_t errors() const { return errors_; }
  uint64_t answers() const { return answers_; }

 private:
  void note(const Status& status) {
    ++(status.ok() ? answers_ : errors_);
    if (status.ok() || status.code() == Code::kNotFound) return;
    EXPECT_FALSE(status.message().empty());
    // An internal error would be a mistake of ours.
    EXPECT_NE(status.code(), Code::kInternal) << status.to_string();
    if (status.code() == Code::kCorruption) {
      const bool names_file = status.message().find(kStore) != std::string::npos ||
                              status.message().starts_with("sealed: the table of this sealed file");
      EXPECT_TRUE(names_file) << status.to_string();
    }
  }

  void verify() {
    const auto verified = meta::verify_shard(device_, kStore, 0);
    note(verified.status());
    if (verified.ok())
      for (const Status& problem : verified->problems) note(problem);
    note(meta::read_server(device_, kStore, 0, meta::ShardOptions()).status());
    const auto manifest = meta::read_manifest(device_, kStore);
    note(manifest.status());
    if (manifest.ok() && manifest->closed)
      for (const Status& problem : meta::check_closing(device_, kStore, *manifest, 0)) note(problem);
  }

  void use() {
    net::JobOptions job_options;
    auto job = net::Job::open(net::solo_bootstrap(), job_options);
    ASSERT_TRUE(job.ok());
    auto store = meta::Store::open(**job, device_, kStore, options(codec_));
    note(store.status());
    if (store.ok()) {
      ask(*(*store)->client());
      note((*store)->close());
    }
    EXPECT_TRUE((*job)->close().ok());
  }

  void ask(meta::Client& client) {
    for (const char* name : {"a", "sealed", "cut", "removed"}) {
      auto file = client.open(name, 0, 0, 8);
      note(file.status());
      if (!file.ok()) continue;
      meta::Found found;
      const std::vector<meta::ByteRange> ranges = {
          {0, 300'000}, {50'000'000, 1'000'000}, {uint64_t{1} << 62, 9}};
      note(client.get(*file, ranges, &found));
      uint64_t next = 0;
      for (int pieces = 0; pieces < 100 && next < meta::kOffsetEnd; ++pieces) {
        std::vector<meta::Extent> extents;
        const Status scanned = client.scan(*file, next, 500, &extents, &next);
        note(scanned);
        if (!scanned.ok()) break;
      }
      const std::vector<meta::Extent> more = {{123, 45, {6, 7}}};
      note(client.put(&*file, more));
      note(client.close(&*file, 9).status());
    }
    note(client.relocate({2, 0, 1000, {78, 5}}));
    note(client.stats().status());
  }

  io::Device& device_;
  const std::string file_;
  const meta::BlockCodec codec_;
  uint64_t errors_ = 0, answers_ = 0;
};

struct Shape {
  const char* name;
  meta::BlockCodec codec;
  bool closed;
};
std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.name; }

class ForgedStore : public testing::TestWithParam<Shape> {};

TEST_P(ForgedStore, EveryNumberGivesAnAnswerOrAnError) {
  const Images images = make(GetParam().codec);
  ASSERT_FALSE(HasFailure());
  const Image& image = GetParam().closed ? images.closed : images.killed;
  ForgedTrials trials;
  uint64_t errors = 0, answers = 0;
  std::map<std::string, uint64_t> kinds;
  for (const auto& [path, bytes] : image) {
    if (path.ends_with('/') || path.ends_with(meta::kLockName)) continue;
    const Fields fields = fields_of_store_file(path, std::make_shared<const std::string>(bytes));
    EXPECT_TRUE(!fields.empty() || bytes.empty()) << path << ": nothing was forged";
    uint64_t forged_here = 0;
    for (const ForgedField& field : fields) {
      for (const uint64_t number : forged_numbers(field)) {
        const std::string what = fmt::format("{}: {}: {} instead of {}", path, field.name, number, field.now);
        if (!trials.takes(what)) continue;
        SCOPED_TRACE(ForgedTrials::trace(what));
        Image forged = image;
        forged[path] = field.forge(number);
        if (GetParam().closed && !path.ends_with(meta::kManifestName)) reseal_closing(&forged);
        forged.erase(fmt::format("{}/{}", kStore, meta::kLockName));
        io::MemoryDevice device;
        imd::test::put_back(forged, device);
        trials.begin();
        Questions questions(device, path, GetParam().codec);
        questions.ask();
        errors += questions.errors();
        answers += questions.answers();
        trials.end();
        ASSERT_FALSE(HasFailure());
        ++forged_here;
      }
    }
    fmt::print("  {}: {} fields, {} numbers\n", path, fields.size(), forged_here);
    for (const char* kind : {".sorted-", ".snapshot-", ".log-", ".attributes-", ".manifest", ".json"})
      if (path.find(kind) != std::string::npos) kinds[kind] += fields.size();
  }
  EXPECT_EQ(kinds.size(), 6u) << "a kind of file is missing";
  fmt::print("{} errors, {} answers\n", errors, answers);
  EXPECT_GT(errors, 0u);
  EXPECT_GT(answers, errors / 10);
}

INSTANTIATE_TEST_SUITE_P(All, ForgedStore,
                         testing::Values(Shape{"Killed", meta::BlockCodec::kAuto, false},
                                         Shape{"Closed", meta::BlockCodec::kAuto, true},
                                         Shape{"DeltaZstd", meta::BlockCodec::kDeltaZstd, false}),
                         [](const auto& shape) { return std::string(shape.param.name); });

}  // namespace
}  // namespace swale::forged
