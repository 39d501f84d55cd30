// Programs that read by the maps that the server publishes, beside a string, and what they must notice.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <utility>

#include "base/rng.h"
#include "fs/job/testing/attach_rig.h"
#include "fs/log/map_reader.h"
#include "fs/log/testing/stepped_child.h"

namespace swale::fs::map_reads_test {
namespace {

using How = MapReader::How;

class MapReadsTest : public AttachRig {
 protected:
  MapReadsTest() { small_logs(); }
  int ask(Open& in, uint64_t offset, MapRequest* answer) {
    MapRequest request;
    request.offset = offset;
    std::string out;
    const int failed = fs().command(*in.file, kAskMap,
                                    Bytes(reinterpret_cast<const char*>(&request), sizeof(request)), &out);
    if (failed == 0) std::memcpy(answer, out.data(), sizeof(*answer));
    return failed;
  }
  // A reader of one server, and its map of one file.
  struct Reader {
    explicit Reader(const MapReader::Rules& rules = {}, const MapReader::Means& means = {})
        : reads(new MapReader(means, rules)) {}
    ~Reader() { reads->close(); }
    std::unique_ptr<MapReader> reads;  // too large for a stack
    MapRequest map;
    bool met = false;
    uint64_t questions = 0, bytes = 0;
  };
  MapReader::Outcome look(Reader& by, Open& in, uint64_t offset, MutableBytes out) {
    auto got = by.reads->read(by.map.slot, by.map.ticket, offset, out.data(), out.size());
    if (got.how != How::kNoMap) return got;
    ++by.questions;
    if (ask(in, offset, &by.map) != 0) return {};
    by.met = by.met || by.reads->open(by.map);
    EXPECT_TRUE(by.met);
    return by.reads->read(by.map.slot, by.map.ticket, offset, out.data(), out.size());
  }
  std::string read_both_ways(Reader& by, Open& in, uint64_t offset, size_t bytes) {
    std::string out(bytes, '\0');
    const auto got = look(by, in, offset, out);
    by.bytes += got.bytes;
    out.resize(got.bytes);
    return got.how == How::kAll ? out : out + read(in, offset + got.bytes, bytes - got.bytes);
  }
  uint64_t random_calls(const MapReader::Rules& rules, uint64_t calls, const MapReader::Means& means = {});
  MapSlot& slot_of(const MapRequest& map);
};

// As the server has it, to be changed.
MapSlot& MapReadsTest::slot_of(const MapRequest& map) {
  const std::string path = std::string(map.folder) + "/" + kMapsName;
  const io::Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  void* const there =
      ::mmap(nullptr, map_file_bytes(kMapSlotsMax), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  EXPECT_NE(there, MAP_FAILED);
  return *reinterpret_cast<MapSlot*>(static_cast<char*>(there) + map_slot_begin(map.slot));
}

// Returns the wrong reads.
uint64_t MapReadsTest::random_calls(const MapReader::Rules& rules, uint64_t calls,
                                    const MapReader::Means& means) {
  Reader reader(rules, means);
  const uint64_t wrong = random_reads(calls, [&](Open& in, uint64_t offset, size_t bytes) {
    return read_both_ways(reader, in, offset, bytes);
  });
  std::printf("%lu of about %lu bytes were read in logs, after %lu questions\n", reader.bytes, calls * 8'000,
              reader.questions);
  EXPECT_GT(reader.bytes, calls * 100);
  return wrong;
}

TEST_F(MapReadsTest, RandomReadsByMapsGiveWhatAStringGives) {
  start();
  EXPECT_EQ(random_calls({}, 20'000), 0u);
}

TEST_F(MapReadsTest, RandomReadsByDescriptorsGiveWhatAStringGives) {
  start();
  EXPECT_EQ(random_calls({}, 10'000, {.keeps_descriptors = true}), 0u);
}

TEST_F(MapReadsTest, CanaryAnEpochThatNobodyLooksAtByDescriptors) {
  start();
  EXPECT_GT(random_calls({.ignores_epoch = true}, 20'000, {.keeps_descriptors = true}), 0u);
}

TEST_F(MapReadsTest, CanaryMarksThatNobodyLooksAt) {
  start();
  EXPECT_GT(random_calls({.ignores_marks = true}, 4'000), 0u);
}

TEST_F(MapReadsTest, CanaryAnEpochThatNobodyLooksAt) {
  start();
  EXPECT_GT(random_calls({.ignores_epoch = true}, 20'000), 0u);
}

TEST_F(MapReadsTest, OneQuestionServesAllReadersUntilSomebodyWrites) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(file, program->token);
  const std::string bytes = pattern(1, 20'000);
  ASSERT_EQ(program->writer.write(id, 0, bytes.data(), bytes.size()), 20'000);
  Reader one, other;
  std::string out(400, '\0');
  for (uint64_t i = 0; i < 50; ++i) {
    ASSERT_EQ(look(one, file, i * 400, out).how, How::kAll);
    ASSERT_EQ(out, bytes.substr(i * 400, 400));
  }
  EXPECT_EQ(look(one, file, 19'900, out).bytes, 100u) << "the end of the file";
  EXPECT_EQ(look(one, file, 20'000, out).how, How::kAll);
  EXPECT_EQ(one.questions, 1u);
  ASSERT_EQ(look(other, file, 0, out).how, How::kAll);
  EXPECT_EQ(other.map.ticket, one.map.ticket);
  ASSERT_EQ(program->writer.write(id, 10, "new", 3), 3);
  ASSERT_EQ(look(other, file, 0, out).how, How::kAll);
  EXPECT_EQ(out, bytes.substr(0, 10) + "new" + bytes.substr(13, 387));
  EXPECT_EQ(other.questions, 2u);
  ASSERT_EQ(look(one, file, 0, out).how, How::kAll);
  EXPECT_EQ(out.substr(10, 3), "new");
  EXPECT_EQ(one.questions, 1u) << "the other one has asked";
}

TEST_F(MapReadsTest, WhoMayChangePagesOfTheKernelTakesMapsAway) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(file, 0, pattern(1, 2'000)), 0);
  Reader reader;
  std::string out(400, '\0');
  ASSERT_EQ(look(reader, file, 0, out).how, How::kAll);
  Open& mapped = open("file", O_RDWR);
  EXPECT_EQ(look(reader, file, 0, out).how, How::kNoMap);
  MapRequest map;
  EXPECT_EQ(ask(file, 0, &map), EBUSY);
  meta::FileId id;
  mapped.file->direct = true;
  EXPECT_EQ(AttachRig::ask(mapped, {}, &id, kAskShortCut), 0) << "it promises that it maps nothing";
  EXPECT_EQ(look(reader, file, 0, out).how, How::kAll);
  std::string none;
  EXPECT_EQ(fs().command(*mapped.file, kAskPages, "", &none), 0) << "and takes that back";
  EXPECT_EQ(look(reader, file, 0, out).how, How::kNoMap);
  close(&mapped);
  EXPECT_EQ(look(reader, file, 0, out).how, How::kAll);
  Open& only_written = open("file", O_WRONLY);
  EXPECT_EQ(look(reader, file, 0, out).how, How::kAll);
  close(&only_written);
}

TEST_F(MapReadsTest, AFlippedBitIsLeftToTheMountWhichTellsOfIt) {
  world_.options().logs.shape.chunk_bytes = kChunkBytes;
  world_.options().logs.memory_bytes = 32 << 20;
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  const auto program = attach();
  const meta::FileId id = granted(file, program->token);
  const std::string bytes = pattern(1, 700'000);
  ASSERT_EQ(program->writer.write(id, 0, bytes.data(), bytes.size()), 700'000);
  MapRequest map;
  // The server takes checksums when nobody writes.
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  do {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "the server takes no checksums";
    ASSERT_EQ(ask(file, 0, &map), 0);
  } while (slot_of(map).places[0].checks < 10);
  const MapPlace place = slot_of(map).places[0];
  const std::string log = std::string(map.folder) + "/" + kLogPrefix + std::to_string(place.log);
  const io::Descriptor there(::open(log.c_str(), O_WRONLY | O_CLOEXEC));
  const auto at = static_cast<off_t>(place.chunk_at + place.place + 70'500);
  const auto store = [&](char byte) { ASSERT_EQ(::pwrite(there.get(), &byte, 1, at), 1); };
  uint64_t points = 0;
  for (const bool keeps : {false, true}) {
    const MapReader::Means means{.keeps_descriptors = keeps};
    for (const size_t wanted : {1'000, 200'000}) {  // beside it, and where it belongs
      Reader reader({}, means), careless({.skips_checks = true}, means);
      std::string out(wanted, '\0');
      ASSERT_EQ(look(reader, file, 65'536, out).how, How::kAll);
      ASSERT_EQ(out, bytes.substr(65'536, wanted));
      ASSERT_EQ(ask(file, 0, &map), 0) << "a new map: what was found whole is looked at again";
      store(static_cast<char>(bytes[70'500] ^ 4));
      EXPECT_NE(look(reader, file, 65'536, out).how, How::kAll);
      EXPECT_EQ(look(careless, file, 65'536, out).how, How::kAll) << "the canary";
      EXPECT_EQ(look(reader, file, 400'000, out).how, How::kAll) << "other blocks";
      size_t got = 0;
      EXPECT_EQ(fs().read(*file.file, 70'000, out, &got), EIO);
      store(bytes[70'500]);
      ++points;
    }
  }
  std::printf("%lu points\n", points);
  EXPECT_EQ(points, 4u);
}

// The checksum is of what was written, not of what the server finds when it makes one for the block.
TEST_F(MapReadsTest, AFlipOfWhatTheMountHasWrittenIsFoundHoweverEarlyItIs) {
  world_.options().logs.shape.chunk_bytes = kChunkBytes;
  world_.options().logs.memory_bytes = 32 << 20;
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(file, 0, pattern(1, 700'000)), 0);
  MapRequest map;
  ASSERT_EQ(ask(file, 0, &map), 0);
  const MapPlace place = slot_of(map).places[0];
  const std::string log = std::string(map.folder) + "/" + kLogPrefix + std::to_string(place.log);
  const io::Descriptor there(::open(log.c_str(), O_WRONLY | O_CLOEXEC));
  ASSERT_EQ(::pwrite(there.get(), "~", 1, static_cast<off_t>(place.chunk_at + place.place + 70'500)), 1);
  const auto until = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  do {
    ASSERT_LT(std::chrono::steady_clock::now(), until) << "the server takes no checksums";
    ASSERT_EQ(ask(file, 0, &map), 0);
  } while (slot_of(map).places[0].checks < 10);
  std::string out(1000, '\0');
  size_t got = 0;
  EXPECT_EQ(fs().read(*file.file, 70'000, out, &got), EIO);
  EXPECT_EQ(fs().read(*file.file, 400'000, out, &got), 0) << "other blocks";
}

// Between the looks and the copy the slot gets another file's map, or the log's slot other bytes.
struct Between {
  std::function<void()> call;  // once
  static void make(void* self) {
    if (const auto once = std::exchange(static_cast<Between*>(self)->call, nullptr); once) once();
  }
};

TEST_F(MapReadsTest, ASlotThatIsUsedAgainBetweenLookAndCopyIsNoticed) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(file, 0, pattern(1, 20'000)), 0);
  Open& other = open("other", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(other, 0, pattern(2, 20'000)), 0);
  Between between;
  Reader reader({.between = Between::make, .of_between = &between});
  Reader canary({.looks_once = true, .between = Between::make, .of_between = &between});
  std::string out(20'000, '\0');
  ASSERT_EQ(look(reader, file, 0, out).how, How::kAll);
  ASSERT_EQ(look(canary, file, 0, out).how, How::kAll);
  MapRequest map;
  between.call = [&] {  // its own map anew
    ASSERT_EQ(ask(file, 0, &map), 0);
  };
  EXPECT_EQ(reader.reads->read(reader.map.slot, reader.map.ticket, 0, out.data(), out.size()).how,
            How::kNoMap);
  int points = 0;
  for (Reader* const each : {&reader, &canary}) {
    ASSERT_EQ(look(*each, file, 0, out).how, How::kAll);
    between.call = [&] {  // the bytes go, and others come
      truncate(file, 0);
      for (int i = 0; i < 100; ++i) ASSERT_EQ(write_by_mount(other, 0, pattern(3, 60'000)), 0);
      ASSERT_EQ(write_by_mount(file, 0, pattern(1, 20'000)), 0);
      ++points;
    };
    const auto got = each->reads->read(each->map.slot, each->map.ticket, 0, out.data(), out.size());
    if (each == &reader) {
      EXPECT_EQ(got.how, How::kNoMap);
    } else {
      EXPECT_NE(got.how, How::kNoMap) << "the canary";
    }
  }
  // So many other files that the slot becomes another file's.
  ASSERT_EQ(look(reader, file, 0, out).how, How::kAll);
  for (uint32_t i = 0; i < kMapSlotsMax; ++i) {
    Open& next = open("next" + std::to_string(i), O_RDWR | O_CREAT | O_DIRECT);
    ASSERT_EQ(ask(next, 0, &map), 0);
    close(&next);
    points += map.slot == reader.map.slot;
  }
  std::printf("%d points\n", points);
  EXPECT_EQ(points, 3);
  EXPECT_EQ(reader.reads->read(reader.map.slot, reader.map.ticket, 0, out.data(), out.size()).how,
            How::kNoMap);
}

TEST_F(MapReadsTest, GarbageInAMapIsNotBelieved) {
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  std::string model = pattern(1, 20'000);
  ASSERT_EQ(write_by_mount(file, 0, model), 0);
  for (uint64_t at = 0; at < 15'000; at += 300) {
    ASSERT_EQ(write_by_mount(file, at, pattern(at, 100)), 0);
    model.replace(at, 100, pattern(at, 100));
  }
  Reader reader;
  std::string out(3'000, '\0');
  ASSERT_EQ(look(reader, file, 0, out).how, How::kAll);
  MapSlot& slot = slot_of(reader.map);
  Rng rng(11);
  uint64_t refused = 0, points = 0;
  for (int round = 0; round < 4'000; ++round, ++points) {
    const size_t words = 60 + (rng.below(2) == 0 ? 0 : 2000);
    auto* const word = reinterpret_cast<uint64_t*>(&slot) + rng.below(words);
    const uint64_t before = *word;
    *word = rng.below(2) == 0 ? rng.next() : before + rng.below(3);
    const uint64_t offset = rng.below(17'000);
    const auto got = reader.reads->read(reader.map.slot, reader.map.ticket, offset, out.data(), out.size());
    refused += got.how == How::kNoMap || got.how == How::kNothing || got.how == How::kPart;
    ASSERT_EQ(out.substr(0, got.bytes), model.substr(offset, got.bytes)) << round;
    *word = before;
  }
  std::printf("%lu points, %lu refused\n", points, refused);
  EXPECT_GT(refused, points / 50);
}

// The server is killed at each instruction with which it publishes: what is left is whole, or no map.
TEST_F(MapReadsTest, AServerThatIsKilledWhileItPublishesLeavesNoHalfMap) {
  if (!SteppedChild::available()) GTEST_SKIP() << "this machine does not let a process trace its children";
  start();
  Open& file = open("file", O_RDWR | O_CREAT | O_DIRECT);
  ASSERT_EQ(write_by_mount(file, 0, pattern(1, 20'000)), 0);
  io::PosixDevice device;
  const std::string folder = world_.options().logs.memory_directory;
  ToldPlaces told[2];
  MapRequest map, of_file;
  ASSERT_EQ(ask(file, 0, &of_file), 0);
  auto maps = PublishedMaps::open(device, folder, 4);
  ASSERT_TRUE(maps.ok()) << maps.status().to_string();
  for (uint32_t i = 0; i < 2; ++i) {
    told[i].end = 1000;
    told[i].place_count = 8 + i;
    for (uint32_t j = 0; j < told[i].place_count; ++j) told[i].places[j].offset = j * 10 + i;
  }
  ASSERT_TRUE((*maps)->publish({7, 1}, told[0], 100, &map).ok());
  std::memcpy(map.folder, of_file.folder, sizeof(map.folder));
  MapSlot& slot = slot_of(map);
  uint64_t points = 0, whole = 0;
  for (bool goes_on = true; goes_on; ++points) {
    ASSERT_TRUE((*maps)->publish({7, 1}, told[0], 100, &map).ok());
    {
      SteppedChild child([] {}, [&] { static_cast<void>((*maps)->publish({7, 1}, told[1], 101, &map)); });
      goes_on = child.run(points * 3);
    }
    const uint64_t sequence = slot.sequence.load();
    const MapState state = slot.state;
    if (sequence % 2 != 0) continue;
    ASSERT_EQ(state.check, check_of(state, sequence));
    const auto i = static_cast<uint32_t>(state.size - 100);
    for (uint32_t j = 0; j < told[i].place_count; ++j) {
      ASSERT_EQ(slot.places[j].offset, told[i].places[j].offset);
      ASSERT_EQ(slot.places[j].check, check_of(slot.places[j], state.check));
    }
    ++whole;
  }
  std::printf("%lu points, %lu with a whole map\n", points, whole);
  EXPECT_GT(points, 100u);
  EXPECT_LT(whole, points);
}

}  // namespace
}  // namespace swale::fs::map_reads_test
