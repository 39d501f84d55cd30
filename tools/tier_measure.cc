// `swale tier measure`: what the disk under a directory costs, as a preset for models of the tiered write
// buffer.
#include <sys/statvfs.h>

#include <cerrno>
#include <memory>

#include "base/process_identity.h"
#include "io/disk_measure.h"
#include "io/disk_preset.h"
#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/progress.h"

namespace swale::tools {
namespace {

constexpr uint64_t kMeasuredSizeMin = 4 * kMiB;
constexpr uint64_t kMeasuredSizeMax = 1024 * kGiB;

struct TierMeasureCommand {
  std::string directory;
  std::string ssd;
  std::string preset;
  std::string name;
  double network_mb_s = 250;
  uint64_t size = kGiB;
  double seconds = 20;
  bool json = false;

  int run() const;

 private:
  Result<io::DiskMeasurement> measure(io::Device& device, const std::string& path) const;
};

// Before anything is written: a disk that becomes full disturbs others.
Result<uint64_t> capacity_with_space(const std::string& directory, uint64_t wanted) {
  struct statvfs disk;
  if (::statvfs(directory.c_str(), &disk) != 0) return errno_status(errno, directory);
  const uint64_t free = uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free < wanted)
    return error(Code::kNoSpace, Scope::kOperation,
                 "{}: {} bytes are free, and the measurement writes {}; give a smaller --size, or free space",
                 directory, free, wanted);
  return std::min<uint64_t>(uint64_t{disk.f_blocks} * disk.f_frsize, (uint64_t{1} << 53) - 1);
}

Result<io::DiskMeasurement> TierMeasureCommand::measure(io::Device& device, const std::string& path) const {
  io::MeasureOptions options{.directory = path, .file_bytes = size, .duration = swale::seconds(seconds)};
  SWALE_ASSIGN_OR_RETURN(options.capacity_bytes, capacity_with_space(path, size));
  ProgressBar bar;
  io::MeasureProgress progress;
  if (ProgressBar::wanted())
    progress = [&bar](std::string_view what, Nanos spent, Nanos total) {
      bar.update(static_cast<uint64_t>(std::min(spent, total)), static_cast<uint64_t>(total),
                 fmt::format("s, {}", what), 1'000'000'000);
    };
  return io::measure_disk(device, system_clock(), options, progress);
}

Json json_of(const io::DiskMeasurement& found) {
  const io::DiskModel& model = found.model;
  Json gaps = Json::array(), depths = Json::array();
  for (const auto& gap : found.gaps)
    gaps.push_back({{"bytes", gap.bytes}, {"latency_ns", gap.latency}, {"reads", gap.reads}});
  for (const auto& depth : found.depths)
    depths.push_back({{"depth", depth.depth}, {"reads_per_s", depth.reads_per_s}});
  return {{"file_bytes", found.file_bytes},
          {"direct", found.direct},
          {"read_bytes_per_s", model.read_bytes_per_s},
          {"write_bytes_per_s", model.write_bytes_per_s},
          {"read_latency_ns", model.read_latency},
          {"write_latency_ns", model.write_latency},
          {"sync_latency_ns", model.sync_latency},
          {"fixed_ns", model.fixed},
          {"settle_ns", model.settle},
          {"stroke_ns", model.stroke},
          {"capacity_bytes", model.capacity_bytes},
          {"channels", model.channels},
          {"saturating_depth", found.saturating_depth},
          {"gaps", std::move(gaps)},
          {"depths", std::move(depths)}};
}

std::string text_of(const std::string& path, const io::DiskMeasurement& found) {
  const io::DiskModel& model = found.model;
  std::string text =
      fmt::format("{}: a file of {} MiB, {}\n", path, found.file_bytes / kMiB,
                  found.direct ? "past the page cache"
                               : "THROUGH THE PAGE CACHE: its file system allows no direct I/O, "
                                 "so these are numbers of memory, not of the disk");
  const auto line = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("{:<22}{}\n", name, value);
  };
  line("in order", fmt::format("{:.1f} MB/s to write, {:.1f} MB/s to read", model.write_bytes_per_s / 1e6,
                               model.read_bytes_per_s / 1e6));
  line("latency of 4 KiB",
       fmt::format("{:.3f} ms to read, {:.3f} ms to write", static_cast<double>(model.read_latency) / 1e6,
                   static_cast<double>(model.write_latency) / 1e6));
  line("sync", fmt::format("{:.3f} ms", static_cast<double>(model.sync_latency) / 1e6));
  line("head", model.capacity_bytes == 0
                   ? std::string("none: reads take the same time anywhere")
                   : fmt::format("moves: {:.3f} ms, and {:.3f} ms more over the whole disk",
                                 static_cast<double>(model.fixed + model.settle) / 1e6,
                                 static_cast<double>(model.stroke) / 1e6));
  for (const auto& gap : found.gaps)
    line(fmt::format("  {} KiB apart", gap.bytes / kKiB),
         fmt::format("{:.3f} ms (median of {})", static_cast<double>(gap.latency) / 1e6, gap.reads));
  for (const auto& depth : found.depths)
    line(fmt::format("  {} at a time", depth.depth), fmt::format("{:.0f} reads/s", depth.reads_per_s));
  line("queue depth", fmt::format("{} give 90 % of the most reads; {} at a time count as parallel",
                                  found.saturating_depth, model.channels));
  return text;
}

int TierMeasureCommand::run() const {
  const Result<io::PosixOptions> storage = Common::storage();
  if (!storage.ok()) return fail(storage.status());
  io::PosixDevice device(*storage);
  if (!preset.empty()) {  // before minutes are spent
    const auto taken = device.exists(preset);
    if (!taken.ok()) return fail(taken.status());
    if (*taken)
      return fail(
          error(Code::kAlreadyExists, Scope::kFile, "{}: is there already; nothing was measured", preset));
  }
  const auto disk = measure(device, directory);
  if (!disk.ok()) return fail(disk.status());
  std::optional<io::DiskMeasurement> flash;
  if (!ssd.empty()) {
    auto measured = measure(device, ssd);
    if (!measured.ok()) return fail(measured.status());
    flash = std::move(*measured);
  }
  io::DiskPreset made;
  made.name = name.empty() ? fmt::format("{}:{}", host_name(), directory) : name;
  made.source = fmt::format("swale tier measure {}{}; flash: {}; network: {} MB/s as given", directory,
                            disk->direct ? "" : " (through the page cache)",
                            flash ? ssd + (flash->direct ? "" : " (through the page cache)") : "paper-ssd",
                            network_mb_s);
  made.bed = {disk->model, flash ? flash->model : *io::disk_model("paper-ssd"), network_mb_s * 1e6};
  if (!preset.empty())
    if (const Status written = io::replace_file(device, preset, io::encode_disk_preset(made)); !written.ok())
      return fail(written);
  if (json) {
    Json line = {{"name", made.name}, {"source", made.source}, {"disk", json_of(*disk)}};
    if (flash) line["flash"] = json_of(*flash);
    print_json(line);
  } else {
    print(text_of(directory, *disk));
    if (flash) print(text_of(ssd, *flash));
    if (!preset.empty()) print(fmt::format("{}: the preset \"{}\"\n", preset, made.name));
  }
  return finish_output(kExitOk);
}

}  // namespace

void add_tier_measure(CLI::App& app, Run* run) {
  auto command = std::make_shared<TierMeasureCommand>();
  OptionSet sub = add_command(
      app, "tier-measure", "measures what the disk under a directory costs, as a preset for models",
      {
          .description =
              "Writes a file to DIR, reads it, and removes it: bandwidth in order, latency of 4 KiB by the "
              "distance from the read before, of a small write and a sync, and reads a second by queue "
              "depth. Transfers go past the page cache where the file system can do so; where it cannot, the "
              "output says that the numbers are those of memory. The file has no name while it is measured, "
              "so nothing stays behind however the command ends. On a disk that others use, the "
              "numbers are those of what is left of it.\n\n"
              "--preset writes the numbers to a file that the models of the tiered write buffer take in the "
              "place of their presets A, B and C. The flash of a preset is that of --ssd, or the SSD of the "
              "paper. `swale tier measure` is the same as `swale tier-measure`.",
          .examples = {{"swale tier measure out --size 8M --seconds 1", "a table"},
                       {"mkdir -p slow && swale tier measure slow --ssd out --size 8M --seconds 1 --preset "
                        "disk.preset",
                        "a preset of both"}},
      });
  sub.add_option("DIR", command->directory, "a directory on the disk").required().type_name("DIR");
  sub.add_option("--ssd", command->ssd, "a directory on the SSD, which is measured as the preset's flash")
      .type_name("DIR");
  sub.add_option("--preset", command->preset, "the preset is written to this file, which must not be there")
      .type_name("FILE");
  sub.add_option("--name", command->name, "of the preset; by default the host and DIR").type_name("NAME");
  sub.add_option("--network", command->network_mb_s,
                 "of the preset: MB/s at which writes reach the disk at most; by default 250")
      .between(1.0, 1e6)
      .type_name("MB/S");
  sub.add_option("--size", command->size,
                 "at most so much is written, in bytes, or with K, M, G (1,024); by default 1G")
      .size_between(kMeasuredSizeMin, kMeasuredSizeMax)
      .type_name("BYTES");
  sub.add_option("--seconds", command->seconds, "about so long for each directory; by default 20")
      .between(0.1, 3600.0)
      .type_name("SECONDS");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
