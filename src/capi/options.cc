#include "capi/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "base/nearest.h"
#include "imd/write/memory_plan.h"

namespace swale::capi {
namespace {

constexpr double kMiBAsDouble = 1024.0 * 1024.0;

constexpr std::array kJobRows = {
    OptionRow{.name = "job.transport",
              .type = OptionType::kEnum,
              .default_value = "auto",
              .choices = "auto|ucx|loopback",
              .help = "how ranks talk; loopback is for threads of one process"},
    OptionRow{
        .name = "job.rendezvous",
        .type = OptionType::kString,
        .default_value = "",
        .help =
            "directory that all ranks see, where they meet if no communicator is given; by default a folder "
            "in /dev/shm if all ranks are on one node"},
    OptionRow{
        .name = "job.id",
        .type = OptionType::kString,
        .default_value = "",
        .help = "the same on all ranks of a job and on no other at the same time; by default the launcher's"},
    OptionRow{
        .name = "job.join_deadline_s",
        .type = OptionType::kSeconds,
        .default_value = "60",
        .min = 1,
        .max = 86'400,
        .help = "how long the ranks wait for each other in the rendezvous directory, plus 10 ms per rank"},
    OptionRow{
        .name = "job.collective_deadline_s",
        .type = OptionType::kSeconds,
        .default_value = "600",
        .min = 1,
        .max = 604'800,
        .help =
            "how long a rank that opens a directory waits for ranks which live but do not come to the same "
            "call, plus 10 ms per rank; the dead are noticed sooner"},
    OptionRow{
        .name = "net.posting",
        .type = OptionType::kEnum,
        .default_value = "auto",
        .choices = "auto|queue|direct",
        .help =
            "who sends a full frame: direct, the thread that filled it; queue, the network thread; auto is "
            "direct where several ranks share a node"},
    OptionRow{.name = "net.silence_deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "30",
              .min = 0.1,
              .max = 86'400,
              .help = "a peer that has sent nothing for so long, not even a heartbeat, is given up"},
    OptionRow{
        .name = "net.heartbeat_interval_s",
        .type = OptionType::kSeconds,
        .default_value = "1",
        .min = 0.01,
        .max = 3'600,
        .help = "how often a sign of life goes to connected peers; less than half of the silence deadline"},
    OptionRow{.name = "net.close_deadline_s",
              .type = OptionType::kSeconds,
              .default_value = "30",
              .min = 0.1,
              .max = 86'400,
              .help = "how long closing a job waits for the peers"}};

constexpr OptionRow kEngineRow = {
    .name = "io.engine",
    .type = OptionType::kEnum,
    .default_value = "auto",
    .choices = "auto|uring|threads",
    .help = "how many operations are in flight at once: io_uring where the kernel has it, or threads"};
constexpr OptionRow kDirectRow = {
    .name = "io.direct",
    .type = OptionType::kEnum,
    .default_value = "auto",
    .choices = "auto|never|always",
    .help = "whether logs bypass the page cache (O_DIRECT): auto where the file system can and it pays"};

constexpr std::array kWriteRows = {
    kEngineRow,
    kDirectRow,
    OptionRow{.name = "write.memory",
              .type = OptionType::kBytes,
              .default_value = "0",
              .min = 0,
              .max = 64.0 * 1024 * kMiBAsDouble,
              .help = "memory of the pipeline on each rank; 0: 3 % of the machine's divided by the ranks on "
                      "it, at most "
                      "64M"},
    OptionRow{.name = "write.ways",
              .type = OptionType::kInt,
              .default_value = "1",
              .min = 1,
              .max = 64,
              .help = "indexing threads of each rank; more than one helps where storage outruns a core"},
    OptionRow{.name = "write.frame_bytes",
              .type = OptionType::kBytes,
              .default_value = "32K",
              .min = imd::kFrameBytesMin,
              .max = imd::kFrameBytesMax,
              .help = "records travel between ranks in frames of at most so many bytes"},
    OptionRow{.name = "write.window",
              .type = OptionType::kInt,
              .default_value = "4",
              .min = 1,
              .max = 64,
              .help = "frames on their way to one peer before the sender waits"},
    OptionRow{
        .name = "write.collective_deadline_s",
        .type = OptionType::kSeconds,
        .default_value = "0",
        .min = 0,
        .max = 604'800,
        .help = "how long the end of an epoch or the close of a directory waits for ranks which live but do "
                "not come to the same call; 0: without limit"},
    OptionRow{.name = "dir.schema",
              .type = OptionType::kString,
              .default_value = "",
              .help = "of a directory that is made: what a value consists of, name:type[xCOUNT][:unit] "
                      "separated by ';', "
                      "little-endian and packed; types f4 f8 i1 i2 i4 i8 u1 u2 u4 u8"},
    OptionRow{.name = "dir.extrema",
              .type = OptionType::kString,
              .default_value = "",
              .help = "at most 8 fields of dir.schema, separated by ';', whose largest and smallest are "
                      "found quickly"},
    OptionRow{.name = "dir.compression",
              .type = OptionType::kEnum,
              .default_value = "as_made",
              .choices = "as_made|none|lz4|zstd",
              .help = "of blocks, chosen when a directory is made (as_made: none there); data that does not "
                      "shrink is left as it is"},
    OptionRow{.name = "dir.index",
              .type = OptionType::kEnum,
              .default_value = "as_made",
              .choices = "as_made|sketch|bloom|blocked_bloom|papers",
              .help = "how records are found, chosen when a directory is made (as_made: sketch there); the "
                      "others are for comparison only"},
    OptionRow{.name = "dir.bloom_bits",
              .type = OptionType::kInt,
              .default_value = "-1",
              .min = -1,
              .max = run::kBloomBitsMax,
              .help =
                  "for comparison only: bits per record of Bloom filters, chosen when a directory is made; "
                  "0: no filters, only block fences; -1: 10, or as made"},
    OptionRow{.name = "dir.partitioner",
              .type = OptionType::kString,
              .default_value = "hash",
              .help = "the name of the function that swale_dir_open_partitioned was given"},
    OptionRow{.name = "dir.lock_lease_s",
              .type = OptionType::kSeconds,
              .default_value = "60",
              .min = 1,
              .max = 3'600,
              .help = "a writer that has not renewed swale.lock for so long is given up by the next one; it "
                      "renews six times as often; what rank 0 says counts"},
    OptionRow{.name = "dir.lock_wait_s",
              .type = OptionType::kSeconds,
              .default_value = "90",
              .min = 0,
              .max = 7'200,
              .help = "how long opening looks whether another writer still renews swale.lock, before it says "
                      "SWALE_BUSY; one that does is noticed sooner; what rank 0 says counts"},
    OptionRow{.name = "dir.resume_after",
              .type = OptionType::kString,
              .default_value = "",
              .help =
                  "a step: drop the first epoch with a greater step and all behind it, before anything is "
                  "written; all ranks give the same"}};

constexpr std::array kReadRows = {
    kEngineRow, kDirectRow,
    OptionRow{.name = "read.reads_in_flight",
              .type = OptionType::kInt,
              .default_value = "64",
              .min = 1,
              .max = 65'536,
              .help = "read requests given to storage at a time"},
    OptionRow{.name = "read.map",
              .type = OptionType::kEnum,
              .default_value = "never",
              .choices = "auto|never",
              .help =
                  "auto: logs on local file systems are mapped, so that what is in the page cache is found "
                  "without a system call; but a page that the device fails to deliver, or that somebody cuts "
                  "off, then raises SIGBUS in this process"},
    OptionRow{.name = "read.scan_chunk",
              .type = OptionType::kBytes,
              .default_value = "4M",
              .min = 4096,
              .max = 1024 * kMiBAsDouble,
              .help = "bytes of one read of a scan"}};

Result<std::string> default_rendezvous(const net::LaunchEnvironment& launch, const Environment& environment) {
  const char* slurm_nodes = environment("SLURM_NNODES");
  const bool one_slurm_node =
      launch.launcher == "slurm" && slurm_nodes != nullptr && std::string_view(slurm_nodes) == "1";
  if (launch.local_size != launch.size && !one_slurm_node) {
    return invalid_argument(
        "a job of {} ranks (launcher: {}) that may be on several nodes needs a directory which all of them "
        "see: set "
        "option job.rendezvous (or SWALE_JOB_RENDEZVOUS), or give a communicator",
        launch.size, launch.launcher);
  }
  const char* base = ::access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : "/tmp";
  return fmt::format("{}/swale-{}", base, ::geteuid());
}

}  // namespace

std::span<const OptionRow> job_rows() { return kJobRows; }
std::span<const OptionRow> write_rows() { return kWriteRows; }
std::span<const OptionRow> read_rows() { return kReadRows; }

Status check_variables(const char* const* variables) {
  // These stand for a launcher (net/topology.cc).
  std::vector<std::string> names = {"SWALE_JOB_RANK", "SWALE_JOB_SIZE"};
  std::vector<std::string> sections;
  for (const auto rows : {job_rows(), write_rows(), read_rows()}) {
    for (const OptionRow& row : rows) {
      names.push_back(Config::environment_name(row.name));
      sections.push_back(Config::environment_name(row.name.substr(0, row.name.find('.') + 1)));
    }
  }
  for (; variables != nullptr && *variables != nullptr; ++variables) {
    const std::string_view variable(*variables);
    const std::string_view name = variable.substr(0, variable.find('='));
    const auto starts = [&](const std::string& section) { return name.starts_with(section); };
    if (std::none_of(sections.begin(), sections.end(), starts)) continue;
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    const std::vector<std::string_view> known(names.begin(), names.end());
    return invalid_argument(
        "environment variable {}: no option has it; the nearest is {} (unset it, or correct it)", name,
        nearest(name, known));
  }
  return {};
}

Status check_process_variables() { return check_variables(::environ); }

const char* process_environment(const char* name) { return std::getenv(name); }

Result<JobSettings> job_settings(std::string_view text, const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, Config::make(kJobRows, text, environment));
  JobSettings settings;
  settings.job.transport = config.get_string("job.transport");
  settings.job.posting = config.get_string("net.posting");
  settings.job.silence_deadline = config.get_nanos("net.silence_deadline_s");
  settings.job.heartbeat_interval = config.get_nanos("net.heartbeat_interval_s");
  settings.job.close_deadline = config.get_nanos("net.close_deadline_s");
  settings.job.collective_deadline = config.get_nanos("job.collective_deadline_s");
  settings.rendezvous = config.get_string("job.rendezvous");
  settings.id = config.get_string("job.id");
  settings.join_deadline = config.get_nanos("job.join_deadline_s");
  if (settings.job.heartbeat_interval > settings.job.silence_deadline / 2) {
    return invalid_argument(
        "net.heartbeat_interval_s={} must be at most half of net.silence_deadline_s={}: a living peer would "
        "be given up",
        to_seconds(settings.job.heartbeat_interval), to_seconds(settings.job.silence_deadline));
  }
  return settings;
}

Result<imd::WriterOptions> writer_options(std::string_view text, const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, Config::make(kWriteRows, text, environment));
  imd::WriterOptions options;
  options.memory_bytes = config.get_bytes("write.memory");
  options.ways = static_cast<uint32_t>(config.get_int("write.ways"));
  options.frame_bytes = config.get_bytes("write.frame_bytes");
  options.window = static_cast<uint16_t>(config.get_int("write.window"));
  options.compression = codec_named(config.get_string("dir.compression"));
  options.index = run::index_named(config.get_string("dir.index"));
  if (const int64_t bits = config.get_int("dir.bloom_bits"); bits >= 0)
    options.bloom_bits = static_cast<uint32_t>(bits);
  options.lease.lease = config.get_nanos("dir.lock_lease_s");
  options.lease.wait = config.get_nanos("dir.lock_wait_s");
  if (const Nanos limit = config.get_nanos("write.collective_deadline_s"); limit != 0)
    options.collective_deadline = limit;
  options.partitioner.name = config.get_string("dir.partitioner");
  SWALE_ASSIGN_OR_RETURN(
      options.schema, run::Schema::parse(config.get_string("dir.schema"), config.get_string("dir.extrema")));
  if (const std::string& step = config.get_string("dir.resume_after"); !step.empty()) {
    int64_t value = 0;
    const auto [stop, failure] = std::from_chars(step.data(), step.data() + step.size(), value);
    if (failure != std::errc() || stop != step.data() + step.size()) {
      return invalid_argument("dir.resume_after=\"{}\": expected a 64-bit integer, the last step to keep",
                              step);
    }
    options.resume_after = value;
  }
  return options;
}

Result<imd::ReaderOptions> reader_options(std::string_view text, const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, Config::make(kReadRows, text, environment));
  imd::ReaderOptions options;
  options.reads_in_flight_max = static_cast<size_t>(config.get_int("read.reads_in_flight"));
  options.scan_chunk_bytes = config.get_bytes("read.scan_chunk");
  options.map = config.get_string("read.map") == "auto" ? imd::ReaderOptions::Map::kAuto
                                                        : imd::ReaderOptions::Map::kNever;
  return options;
}

Result<io::PosixOptions> storage_options(std::span<const OptionRow> rows, std::string_view text,
                                         const Environment& environment) {
  SWALE_ASSIGN_OR_RETURN(const Config config, Config::make(rows, text, environment));
  io::PosixOptions options;
  const std::string& engine = config.get_string("io.engine");
  const std::string& direct = config.get_string("io.direct");
  using Engine = io::PosixOptions::Engine;
  using Direct = io::PosixOptions::Direct;
  options.engine = engine == "uring"     ? Engine::kUring
                   : engine == "threads" ? Engine::kThreads
                                         : Engine::kAuto;
  options.direct = direct == "never" ? Direct::kNever : direct == "always" ? Direct::kAlways : Direct::kAuto;
  return options;
}

Result<net::RendezvousOptions> rendezvous_options(const JobSettings& settings,
                                                  const net::LaunchEnvironment& launch,
                                                  const Environment& environment) {
  net::RendezvousOptions options;
  options.rank = launch.rank;
  options.size = launch.size;
  options.deadline = settings.join_deadline;
  options.node_id = net::this_node_id();
  options.directory = settings.rendezvous;
  if (options.directory.empty()) {
    SWALE_ASSIGN_OR_RETURN(options.directory, default_rendezvous(launch, environment));
  }
  options.job_id = !settings.id.empty()     ? settings.id
                   : !launch.job_id.empty() ? launch.job_id
                                            : net::launcher_process_id(launch);
  if (options.job_id.empty()) {
    return invalid_argument(
        "the launcher ({}) gives this job of {} ranks no id: set option job.id (or SWALE_JOB_ID) to a word "
        "that is the "
        "same on all ranks and used by no other job, or give a communicator",
        launch.launcher, launch.size);
  }
  return options;
}

}  // namespace swale::capi
