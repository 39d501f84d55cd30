// What a newer build wrote: refused in every place where it can stand, by everybody, with a message that says
// which file, what is unknown and what to do; and nothing is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/coding.h"
#include "base/crc32c.h"
#include "imd/check/verify.h"
#include "imd/read/reader.h"
#include "imd/testing/test_directory.h"
#include "imd/testing/test_job.h"
#include "imd/write/writer.h"
#include "io/fault_device.h"
#include "io/memory_device.h"

namespace swale::imd::newer_test {
namespace {

using testing::HasSubstr;

constexpr char kDir[] = "/dir";

struct Place {
  const char* name;
  std::string file;
  const char* says;  // in the message, beside the file
  std::function<void(std::string*)> change;
  bool writer_refuses = true;  // writers do not read the logs of committed epochs
};

void replace_in_manifest(std::string* json, const std::string& from, const std::string& to) {
  json->replace(json->find(from), from.size(), to);
  json->resize(json->rfind("\"crc32c\""));
  *json += fmt::format("\"crc32c\":\"{:08x}\"}}\n", crc32c(*json));
}

// Changes the last footer of partition 0's index log.
void change_footer(std::string* log, const std::function<void(run::FooterPart*)>& change) {
  const char* const trailer = log->data() + log->size() - sizeof(run::FooterTrailer);
  const uint64_t at = get_fixed<run::FooterTrailer>(trailer).offset;
  run::FooterPart part = run::decode_footer(Bytes(*log).substr(at), PartitionNumber(0), at, "index").value();
  change(&part);
  log->resize(at);
  *log += run::encode_footer(part);
}

// Of partition 0's first run; the block is sealed again by its own checksum.
void change_run_kind(std::string* log) {
  auto header = get_fixed<run::RunHeader>(log->data());
  header.kind = run::RunKind{9};
  put_fixed(log->data(), header);
  put_u32(log->data() + 60,
          crc32c_extend(run::partition_seed(PartitionNumber(0)), Bytes(*log).substr(0, 60)));
  put_u32(log->data() + run::kBlockBytes - 4,
          crc32c_extend(run::epoch_seed(PartitionNumber(0), header.epoch_id),
                        Bytes(*log).substr(0, run::kBlockBytes - 4)));
}

std::vector<Place> places() {
  const std::string manifest = manifest_path(kDir);
  const std::string index = index_log_path(kDir, {1, PartitionNumber(0)});
  const auto in_manifest = [](const char* from, const char* to) {
    return [from, to](std::string* json) { replace_in_manifest(json, from, to); };
  };
  return {
      {"version", manifest, "version 2", in_manifest("\"version\":1", "\"version\":2")},
      {"feature", manifest, "holograms",
       in_manifest("\"incompatible_features\":[]", "\"incompatible_features\":[\"holograms\"]")},
      {"hash", manifest, "md5", in_manifest("\"xxh3-64\"", "\"md5\"")},
      {"digest", manifest, "row-sum-2", in_manifest("\"mum-row-sum\"", "\"row-sum-2\"")},
      {"footer version", index, "version 2",
       [](std::string* log) { change_footer(log, [](run::FooterPart* part) { part->trailer.version = 2; }); },
       false},
      {"footer feature", index, "feature bits 0x4",
       [](std::string* log) {
         change_footer(log, [](run::FooterPart* part) { part->trailer.incompatible_features = 4; });
       },
       false},
      {"segment flag", index, "flags 0x40",
       [](std::string* log) {
         change_footer(log, [](run::FooterPart* part) { part->records[0].flags = 0x40; });
       },
       false},
      {"run kind", data_log_path(kDir, {1, PartitionNumber(0)}), "kind 9", change_run_kind, false},
  };
}

Status read_all(io::Device& device) {
  SWALE_ASSIGN_OR_RETURN(const auto reader, Reader::open(device, kDir, {}));
  return reader->scan(Reader::kAllEpochs, [](uint32_t, Bytes, Bytes) { return true; });
}

Status verify(io::Device& device) {
  SWALE_ASSIGN_OR_RETURN(const auto reader, Reader::open(device, kDir, {}));
  const auto report = verify_directory(*reader, 1);
  return report.problems.empty() ? Status() : report.problems.front();
}

Status write(io::Device& device, std::optional<int64_t> resume_after) {
  Status status;
  run_ranks(1, [&](net::Job& job) {
    WriterOptions options;
    options.memory_bytes = 4 * kMiB;
    options.resume_after = resume_after;
    auto writer = Writer::open(job, device, kDir, Writer::Create::kNever, options);
    status = writer.status();
    if (writer.ok()) static_cast<void>((*writer)->close());
  });
  return status;
}

void expect_refused(const Status& status, const Place& place) {
  EXPECT_EQ(status.code(), Code::kUnsupported) << place.name << ": " << status.to_string();
  const std::string message(status.message());
  EXPECT_THAT(message, HasSubstr(place.file));
  EXPECT_THAT(message, HasSubstr(place.says));
  EXPECT_THAT(message, HasSubstr("newer swale"));
}

TEST(Newer, IsRefusedInEveryPlaceByEverybody) {
  uint64_t points = 0;
  for (const Place& place : places()) {
    io::MemoryDevice memory;
    test::TestDirectory directory(memory, kDir);
    directory.begin_job(1);
    directory.write_epoch({{"key", "value"}});
    std::string content = io::read_file(memory, place.file, kMiB).value();
    place.change(&content);
    ASSERT_TRUE(io::replace_file(memory, place.file, content).ok());
    expect_refused(read_all(memory), place);
    expect_refused(verify(memory), place);
    io::FaultDevice device(memory);
    points += 3;
    const bool in_manifest = place.file == manifest_path(kDir);
    if (in_manifest) {
      EXPECT_EQ(device.calls(io::CallKind::kWrite), 0u) << "not even a lock";
      expect_refused(write(memory, -1), place);
    }
    if (place.writer_refuses) expect_refused(write(memory, {}), place);
    points += (in_manifest ? 1 : 0) + (place.writer_refuses ? 1 : 0);
    EXPECT_TRUE(io::read_file(memory, place.file, kMiB).value() == content) << place.name;
  }
  fmt::print("visited {} refusals in {} places\n", points, places().size());
}

TEST(Newer, CanaryTheSameChangesWithoutNewsAreRead) {
  io::MemoryDevice memory;
  test::TestDirectory directory(memory, kDir);
  directory.begin_job(1);
  directory.write_epoch({{"key", "value"}});
  std::string json = io::read_file(memory, manifest_path(kDir), kMiB).value();
  replace_in_manifest(&json, "\"version\":1", "\"version\":1");
  ASSERT_TRUE(io::replace_file(memory, manifest_path(kDir), json).ok());
  std::string log = io::read_file(memory, index_log_path(kDir, {1, PartitionNumber(0)}), kMiB).value();
  change_footer(&log, [](run::FooterPart* part) { part->trailer.compatible_features = 4; });
  ASSERT_TRUE(io::replace_file(memory, index_log_path(kDir, {1, PartitionNumber(0)}), log).ok());
  const Status status = verify(memory);
  EXPECT_TRUE(status.ok()) << status.to_string();
}

}  // namespace
}  // namespace swale::imd::newer_test
