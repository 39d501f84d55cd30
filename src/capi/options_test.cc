#include "capi/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <map>
#include <string>

#include "imd/write/memory_plan.h"
#include "io/memory_device.h"
#include "tier/store/serving_options.h"

namespace swale::capi::options_test {
namespace {

using testing::HasSubstr;

Environment environment(std::map<std::string, std::string> variables = {}) {
  return [variables = std::move(variables)](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
}

net::LaunchEnvironment launch(const char* launcher, int32_t size, std::optional<int32_t> local_size,
                              const char* job_id) {
  net::LaunchEnvironment found;
  found.launcher = launcher;
  found.rank = 1;
  found.size = size;
  found.local_size = local_size;
  found.job_id = job_id;
  return found;
}

TEST(Options, DefaultsAreThoseOfTheLayersBelow) {
  const auto job = job_settings("", environment());
  ASSERT_TRUE(job.ok()) << job.status().to_string();
  EXPECT_EQ(job->job.transport, net::JobOptions().transport);
  EXPECT_EQ(job->job.posting, net::JobOptions().posting);
  EXPECT_EQ(job->job.poll, net::JobOptions().poll);
  EXPECT_EQ(job->job.silence_deadline, net::JobOptions().silence_deadline);
  EXPECT_EQ(job->job.heartbeat_interval, net::JobOptions().heartbeat_interval);
  EXPECT_EQ(job->job.close_deadline, net::JobOptions().close_deadline);
  EXPECT_EQ(job->join_deadline, net::RendezvousOptions().deadline);
  const auto writer = writer_options("", environment());
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  EXPECT_EQ(writer->memory_bytes, imd::WriterOptions().memory_bytes);
  EXPECT_EQ(writer->ways, imd::WriterOptions().ways);
  EXPECT_EQ(writer->frame_bytes, imd::WriterOptions().frame_bytes);
  EXPECT_EQ(writer->window, imd::WriterOptions().window);
  EXPECT_EQ(writer->lease.lease, imd::WriterOptions().lease.lease);
  EXPECT_EQ(writer->lease.wait, imd::WriterOptions().lease.wait);
  const auto reader = reader_options("", environment());
  ASSERT_TRUE(reader.ok()) << reader.status().to_string();
  EXPECT_EQ(reader->reads_in_flight_max, imd::ReaderOptions().reads_in_flight_max);
  EXPECT_EQ(reader->scan_chunk_bytes, imd::ReaderOptions().scan_chunk_bytes);
  EXPECT_EQ(reader->map, imd::ReaderOptions().map);
}

Result<tier::StoreOptions> tier_options_of(std::string_view text,
                                           std::map<std::string, std::string> variables = {}) {
  io::MemoryDevice device;
  SWALE_ASSIGN_OR_RETURN(const Config config,
                         config_of(Call::kTier, text, environment(std::move(variables))));
  return tier::tier_store_options(config, device, "/ssd", "/slow");
}

TEST(Options, ABufferHasTheShapeThatIsShipped) {
  const auto shipped = tier_options_of("");
  ASSERT_TRUE(shipped.ok()) << shipped.status().to_string();
  const tier::Options engine;
  EXPECT_EQ(shipped->engine.policy, engine.policy);
  EXPECT_EQ(shipped->engine.durability, engine.durability);
  EXPECT_EQ(shipped->engine.segment_count * shipped->engine.segment_bytes, kGiB);
  EXPECT_EQ(shipped->engine.segment_count, 16u);
  EXPECT_EQ(shipped->engine.queue_slots, 64u);
  EXPECT_EQ(shipped->engine.merge_bytes_max, engine.merge_bytes_max);
  EXPECT_EQ(shipped->engine.backing_depth, engine.backing_depth);
  EXPECT_EQ(shipped->engine.flush_pieces_max, engine.flush_pieces_max);
  EXPECT_EQ(shipped->engine.map_bytes_max, engine.map_bytes_max);
  EXPECT_EQ(shipped->engine.ssd_bytes_per_day, engine.ssd_bytes_per_day);
  EXPECT_EQ(shipped->engine.group_commit_ns, engine.group_commit_ns);
  EXPECT_EQ(shipped->engine.retry_ns, engine.retry_ns);
  EXPECT_EQ(shipped->engine.idle_flush_ns, engine.idle_flush_ns);
  EXPECT_EQ(shipped->engine.age_flush_ns, engine.age_flush_ns);
  EXPECT_EQ(shipped->engine.quiet_requests_per_second, engine.quiet_requests_per_second);
  EXPECT_EQ(shipped->engine.detector.stream_requests, engine.detector.stream_requests);
  EXPECT_EQ(shipped->engine.detector.guard_above, engine.detector.guard_above);
  EXPECT_EQ(shipped->engine.detector.watermark_high, engine.detector.watermark_high);
  EXPECT_EQ(shipped->engine.detector.watermark_low, engine.detector.watermark_low);
  EXPECT_EQ(shipped->queue_slots, 256u);
  EXPECT_EQ(shipped->slot_bytes, 256 * kKiB);
  EXPECT_EQ(shipped->open_files_max, tier::StoreOptions().open_files_max);
  EXPECT_EQ(tier::serving_options("/ssd", "/slow", kGiB).engine.segment_bytes, shipped->engine.segment_bytes);
}

TEST(Options, EachLimitOfABufferReachesIt) {
  const auto made = tier_options_of(
      "tier.policy=ssdup+,tier.durability=group,tier.size=64M,tier.segments=2,tier.dirty_age_s=1min,tier."
      "idle_flush_s=3,tier.memory=5M,tier.writes=7,tier.write_bytes=8K,tier.queue=9,tier.merge_bytes=16K,"
      "tier.in_flight=11,tier.flush_in_flight=12,tier.wear_bytes_per_day=13G,tier.open_files=14,tier.group_"
      "commit_s=15ms,tier.retry_s=16,tier.quiet_writes=17,tier.stream=18,tier.guard_above=45,tier.guard_"
      "below=30,tier.watermark_high=50",
      {{"SWALE_TIER_WATERMARK_LOW", "20"}, {"SWALE_TIER_QUEUE", "99"}});
  ASSERT_TRUE(made.ok()) << made.status().to_string();
  const tier::Options& engine = made->engine;
  EXPECT_EQ(engine.policy, tier::Policy::kSsdupPlus);
  EXPECT_EQ(engine.durability, tier::Durability::kGroupCommit);
  EXPECT_EQ(engine.segment_count, 2u);
  EXPECT_EQ(engine.segment_bytes, 32 * kMiB);
  EXPECT_EQ(engine.age_flush_ns, seconds(60));
  EXPECT_EQ(engine.idle_flush_ns, seconds(3));
  EXPECT_EQ(engine.map_bytes_max, 5 * kMiB);
  EXPECT_EQ(made->queue_slots, 7u);
  EXPECT_EQ(made->slot_bytes, 8 * kKiB);
  EXPECT_EQ(engine.queue_slots, 9u) << "the string wins over the environment";
  EXPECT_EQ(engine.merge_bytes_max, 16 * kKiB);
  EXPECT_EQ(engine.backing_depth, 11u);
  EXPECT_EQ(engine.flush_pieces_max, 12u);
  EXPECT_EQ(engine.ssd_bytes_per_day, 13 * kGiB);
  EXPECT_EQ(made->open_files_max, 14u);
  EXPECT_EQ(engine.group_commit_ns, milliseconds(15));
  EXPECT_EQ(engine.retry_ns, seconds(16));
  EXPECT_EQ(engine.quiet_requests_per_second, 17u);
  EXPECT_EQ(engine.detector.stream_requests, 18u);
  EXPECT_EQ(engine.detector.guard_above, 0.45);
  EXPECT_EQ(engine.detector.guard_below, 0.3);
  EXPECT_EQ(engine.detector.watermark_high, 0.5);
  EXPECT_EQ(engine.detector.watermark_low, 0.2);
}

TEST(Options, AServersStringHasBothKinds) {
  constexpr std::array kCalls = {Call::kIond, Call::kTier};
  const auto both = config_of(kCalls, "iond.threads=3,tier.queue=5", environment());
  ASSERT_TRUE(both.ok()) << both.status().to_string();
  EXPECT_EQ(both->get_int("iond.threads"), 3);
  EXPECT_EQ(both->get_int("tier.queue"), 5);
  const Status wrong = config_of(kCalls, "imd.ways=2", environment()).status();
  EXPECT_THAT(std::string(wrong.message()), HasSubstr("it is one of swale_dir_open"));
}

TEST(Options, ReadersMapOrDoNot) {
  EXPECT_EQ(reader_options("imd.map=auto", environment())->map, imd::ReaderOptions::Map::kAuto);
  EXPECT_EQ(reader_options("imd.map=never", environment())->map, imd::ReaderOptions::Map::kNever);
  EXPECT_EQ(reader_options("", environment({{"SWALE_IMD_MAP", "never"}}))->map,
            imd::ReaderOptions::Map::kNever);
  EXPECT_EQ(reader_options("imd.map=always", environment()).status().code(), Code::kInvalidArgument);
}

TEST(Options, TheStringWinsOverTheEnvironment) {
  const auto get = environment({{"SWALE_IMD_WAYS", "3"}, {"SWALE_IMD_WINDOW", "9"}});
  const auto writer = writer_options("imd.ways=2,imd.memory=32M", get);
  ASSERT_TRUE(writer.ok()) << writer.status().to_string();
  EXPECT_EQ(writer->ways, 2u);
  EXPECT_EQ(writer->window, 9u);
  EXPECT_EQ(writer->memory_bytes, 32 * kMiB);
}

TEST(Options, StorageHasOneMeaningForWritersAndReaders) {
  for (const Call call : {Call::kWrite, Call::kRead}) {
    const auto defaults = storage_options(call, "", environment());
    ASSERT_TRUE(defaults.ok());
    EXPECT_EQ(defaults->engine, io::PosixOptions::Engine::kAuto);
    EXPECT_EQ(defaults->direct, io::PosixOptions::Direct::kAuto);
    const auto forced = storage_options(call, "io.engine=threads,io.direct=never", environment());
    EXPECT_EQ(forced->engine, io::PosixOptions::Engine::kThreads);
    EXPECT_EQ(forced->direct, io::PosixOptions::Direct::kNever);
    EXPECT_EQ(storage_options(call, "io.engine=steam", environment()).status().code(),
              Code::kInvalidArgument);
  }
}

TEST(Options, UnknownNamesAndAbsurdValuesAreErrorsThatNameThem) {
  for (const char* text : {"imd.wayz=1", "imd.map=auto", "job.id=x", "imd.ways=0", "imd.ways=many",
                           "imd.frame_bytes=1G", "imd.memory=-1", "nonsense"}) {
    const Status status = writer_options(text, environment()).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string(text).substr(0, std::string(text).find('='))));
  }
  // An option of another call: the message says of which.
  for (const auto& [status, call] :
       {std::pair{reader_options("imd.schema=x:f8", environment()).status(), "swale_dir_open"},
        std::pair{writer_options("imd.map=auto", environment()).status(), "swale_reader_open"},
        std::pair{job_settings("io.engine=uring", environment()).status(), "swale_dir_open"}}) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(std::string("it is one of ") + call));
  }
  EXPECT_EQ(job_settings("net.heartbeat_interval_s=20", environment()).status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(job_settings("job.transport=pigeon", environment()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(job_settings("net.posting=pigeon", environment()).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(job_settings("net.posting=direct", environment())->job.posting, "direct");
  EXPECT_EQ(job_settings("net.poll_s=0", environment())->job.poll, 0);
  EXPECT_EQ(job_settings("net.poll_s=50us", environment())->job.poll, 50'000);
  EXPECT_EQ(reader_options("imd.reads_in_flight=0", environment()).status().code(), Code::kInvalidArgument);
}

// The limits that a row documents are those of what it is for.
TEST(Options, WritersTakeTheLimitsOfEveryRow) {
  int limits = 0;
  for (const OptionRow& row : rows_of(Call::kWrite)) {
    if (row.type != OptionType::kInt && row.type != OptionType::kBytes) continue;
    for (const double limit : {row.min, row.max}) {
      const auto options = writer_options(fmt::format("{}={}", row.name, limit), environment());
      ASSERT_TRUE(options.ok()) << options.status().to_string();
      imd::MemoryWish wish{
          options->memory_bytes, 2, options->ways, options->frame_bytes, options->window, 0, {}};
      if (row.name != "imd.memory") wish.budget_bytes = kGiB;
      const Status planned = imd::plan_memory(wish).status();
      EXPECT_NE(planned.code(), Code::kInvalidArgument)
          << row.name << "=" << limit << ": " << planned.to_string();
      ++limits;
    }
  }
  std::printf("%d limits\n", limits);
  const Status status = writer_options("imd.frame_bytes=1K", environment()).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("from 17KiB to 32KiB"));
}

TEST(Options, AVariableOfNoOptionIsAnErrorThatNamesTheNearest) {
  const char* const fine[] = {
      "PATH=/bin", "SWALE_IMD_WAYS=2", "SWALE_JOB_RANK=0", "SWALE_LOG=debug", "SWALE=1", "SWALE_FAULT_X=1",
      nullptr};
  EXPECT_TRUE(check_variables(fine).ok()) << check_variables(fine).to_string();
  EXPECT_TRUE(check_variables(nullptr).ok());
  for (const auto& [variable, meant] :
       {std::pair{"SWALE_IMD_WAYZ=2", "SWALE_IMD_WAYS"}, std::pair{"SWALE_IO_ENGIN", "SWALE_IO_ENGINE"},
        std::pair{"SWALE_IMD_MAPS=", "SWALE_IMD_MAP"},
        std::pair{"SWALE_JOB_RENDEZVOUZ=/x", "SWALE_JOB_RENDEZVOUS"}}) {
    const char* const variables[] = {"HOME=/", variable, nullptr};
    const Status status = check_variables(variables);
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << variable;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr(std::string(variable).substr(0, std::string(variable).find('='))),
                               HasSubstr(meant)));
  }
}

TEST(Options, ResumeAfterIsAnyStepOrNone) {
  EXPECT_FALSE(writer_options("", environment())->resume_after.has_value());
  EXPECT_EQ(writer_options("imd.resume_after=-7", environment())->resume_after, -7);
  EXPECT_EQ(writer_options("imd.resume_after=9007199254740993", environment())->resume_after,
            9'007'199'254'740'993);
  for (const char* text :
       {"imd.resume_after=x", "imd.resume_after=1.5", "imd.resume_after=9223372036854775808"}) {
    const Status status = writer_options(text, environment()).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr("imd.resume_after"));
  }
}

TEST(Options, ALayoutIsAskedForOrLeftAsItWasMade) {
  const auto unsaid = writer_options("", environment());
  EXPECT_FALSE(unsaid->compression || unsaid->index || unsaid->bloom_bits);
  const auto said =
      writer_options("imd.compression=zstd,imd.index=blocked_bloom,imd.bloom_bits=0", environment());
  EXPECT_EQ(said->compression, Codec::kZstd);
  EXPECT_EQ(said->index, run::IndexKind::kBlockedBloom);
  EXPECT_EQ(said->bloom_bits, 0u);
  EXPECT_EQ(writer_options("imd.compression=none,imd.index=papers", environment())->compression,
            Codec::kNone);
  for (const char* text :
       {"imd.compression=snappy", "imd.index=btree", "imd.bloom_bits=33", "imd.bloom_bits=-2"})
    EXPECT_EQ(writer_options(text, environment()).status().code(), Code::kInvalidArgument) << text;
}

TEST(Options, AJobOnOneNodeMeetsInAFolderOfTheUser) {
  const auto options = net::rendezvous_options({}, launch("openmpi", 4, 4, "openmpi-77"), environment());
  ASSERT_TRUE(options.ok()) << options.status().to_string();
  EXPECT_THAT(options->directory, HasSubstr("/swale-"));
  EXPECT_EQ(options->job_id, "openmpi-77");
  EXPECT_EQ(options->rank, 1);
  EXPECT_EQ(options->size, 4);
  EXPECT_TRUE(
      net::rendezvous_options({}, launch("slurm", 4, {}, "slurm-1.0"), environment({{"SLURM_NNODES", "1"}}))
          .ok());
}

TEST(Options, AJobThatMayHaveSeveralNodesIsAskedForADirectory) {
  for (const auto& found :
       {launch("openmpi", 8, 4, "x"), launch("swale", 8, {}, "x"), launch("slurm", 8, {}, "x")}) {
    const Status status = net::rendezvous_options({}, found, environment({{"SLURM_NNODES", "2"}})).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("job.rendezvous"));
  }
  net::JobSettings settings;
  settings.rendezvous = "/shared/meet";
  EXPECT_EQ(net::rendezvous_options(settings, launch("openmpi", 8, 4, "x"), environment())->directory,
            "/shared/meet");
}

TEST(Options, AJobWithoutAnIdIsAskedForOne) {
  net::JobSettings settings;
  settings.rendezvous = "/shared/meet";
  const Status status = net::rendezvous_options(settings, launch("hydra", 8, 4, ""), environment()).status();
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("job.id"));
  settings.id = "mine";
  EXPECT_EQ(net::rendezvous_options(settings, launch("hydra", 8, 4, "theirs"), environment())->job_id,
            "mine");
}

}  // namespace
}  // namespace swale::capi::options_test
