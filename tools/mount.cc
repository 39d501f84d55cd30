// `swale mount`: a massive directory, or a metadata store with its logs, as files, for programs that know
// nothing of it.
#include <sys/stat.h>

#include <cerrno>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "fs/containers/container_fs.h"
#include "fs/epochs/epochs_fs.h"
#include "fuse/mounted.h"
#include "io/posix_device.h"
#include "meta/store/store.h"
#include "net/meeting/bootstrap.h"
#include "tools/background.h"
#include "tools/command_line.h"
#include "tools/engine.h"
#include "tools/meta_engine.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

constexpr unsigned kThreads = 10;

bool is_metadata_store(const std::string& path) {
  io::PosixDevice device({}, path);
  const auto engine = engine_of(device, path, engines());
  return engine.ok() && (*engine)->format == kMetaEngine.format;
}

struct MountCommand {
  std::string directory;
  std::string mountpoint;
  std::string logs;
  bool foreground = false;
  bool allow_other = false;
  bool json = false;

  int run() const;

 private:
  using Ready = std::function<void(const std::string&)>;
  Status serve(const Ready& ready) const;
  Status serve_epochs(const fuse::Mounted& mounted, const Ready& ready) const;
  Status serve_container(const fuse::Mounted& mounted, const Ready& ready) const;
  std::string said(const imd::Manifest& manifest) const;
  std::string said(size_t files) const;
};

std::string MountCommand::said(const imd::Manifest& manifest) const {
  uint64_t records = 0;
  for (const imd::EpochEntry& epoch : manifest.epochs) records += epoch.records;
  if (json)
    return json_line({{"mountpoint", mountpoint},
                      {"directory", directory},
                      {"epochs", manifest.epochs.size()},
                      {"records", records}});
  return fmt::format("{}: {} epochs of {}, a folder each; {} records\n", mountpoint, manifest.epochs.size(),
                     directory, records);
}

std::string MountCommand::said(size_t files) const {
  if (json) return json_line({{"mountpoint", mountpoint}, {"directory", directory}, {"files", files}});
  return fmt::format("{}: {} files of {}\n", mountpoint, files, directory);
}

Status MountCommand::serve_epochs(const fuse::Mounted& mounted, const Ready& ready) const {
  SWALE_ASSIGN_OR_RETURN(const auto opened, open_imd(whole_path(directory)));
  struct stat found;
  const std::string manifest = directory + "/swale.json";
  if (::stat(manifest.c_str(), &found) != 0) return errno_status(errno, manifest);
  fs::EpochsFs files(*opened->reader, found.st_mtim);
  return fuse::serve_mounted(mounted, &files, fuse::raise_descriptor_limit(),
                             [&] { ready(said(opened->reader->manifest())); });
}

// The store as a job of one process opens it that only reads.
Status MountCommand::serve_container(const fuse::Mounted& mounted, const Ready& ready) const {
  SWALE_RETURN_IF_ERROR(fs::LogFiles::check_pattern(logs));
  io::PosixDevice device({}, whole_path(directory)), log_device({}, directory);
  SWALE_ASSIGN_OR_RETURN(const auto job, net::Job::open(net::solo_bootstrap(), net::JobOptions()));
  meta::StoreOptions options;
  options.open = meta::OpenStore::kReadOnly;
  SWALE_ASSIGN_OR_RETURN(const auto store, meta::Store::open(*job, device, whole_path(directory), options));
  std::vector<meta::Attributes> names;
  store->with_servers([&](const meta::ServerCore& server) {
    std::vector<meta::Attributes> some = server.attributes().list();
    names.insert(names.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  });
  Status served;
  {
    const auto client = store->client();
    fs::LogFiles log_files(log_device, whole_path(logs));
    fs::ContainerFs files(*client, log_files, std::move(names));
    served = fuse::serve_mounted(mounted, &files, fuse::raise_descriptor_limit(),
                                 [&] { ready(said(files.files_shown())); });
  }
  const Status closed = store->close(), left = job->close();
  for (const Status& each : {closed, left})
    if (served.ok()) served = each;
  return served;
}

Status MountCommand::serve(const Ready& ready) const {
  fuse::Mounted mounted;
  mounted.mountpoint = whole_path(mountpoint);
  mounted.name = "swale:" + directory;
  mounted.allow_other = allow_other;
  mounted.trusts_files = false;
  mounted.read_only = true;
  mounted.threads = kThreads;
  SWALE_RETURN_IF_ERROR(fuse::expect_mountpoint(mounted.mountpoint));
  // Threads that reading starts leave signals to the one that serves the mount.
  const fuse::SignalsBlocked blocked;
  const bool is_store = is_metadata_store(whole_path(directory));
  if (is_store && logs.empty())
    return invalid_argument(
        "{}: a metadata store has no bytes itself: say where its logs are, as --logs 'out/log-%s'",
        directory);
  if (!is_store && !logs.empty())
    return invalid_argument("{}: --logs is for metadata stores, and this is none", directory);
  return is_store ? serve_container(mounted, ready) : serve_epochs(mounted, ready);
}

int MountCommand::run() const {
  Serving serving;
  serving.foreground = foreground;
  serving.json = json;
  serving.serve = [this](const auto& ready) { return serve(ready); };
  return serve_in_background(serving);
}

}  // namespace

void add_mount(CLI::App& app, Run* run) {
  auto command = std::make_shared<MountCommand>();
  OptionSet sub = add_command(
      app, "mount", "shows a massive directory or a container as files, read-only",
      {
          .description =
              "Shows at MOUNTPOINT (by FUSE 3) a folder for each epoch, named by its number, and in it a "
              "file for each key: cp, tar, rsync, grep or a program of your own read them as files. A file "
              "has the key's values of this epoch, one behind the other. Its name is the key: digits if "
              "imd.key says that keys are numbers, the key's own text if it is one, and 0x with hex digits "
              "otherwise. Epochs that a running job commits appear after a second. Folders have the "
              "extended attributes user.swale.step, user.swale.time, user.swale.records and "
              "user.swale.attributes.\n\n"
              "Opening a file costs a query of its key (10 to 20 us); listing an epoch reads it. For all "
              "records of an epoch, swale scan and swale export are quicker.\n\n"
              "Of a container, which is a metadata store and the logs that its programs have written "
              "(--logs 'out/log-%s'), it shows the files, as they were when the mount began. Unmount by "
              "fusermount3 -u.",
          .examples = {{"mkdir -p mnt && swale mount out/particles mnt && ls mnt && fusermount3 -u mnt",
                        "an epoch is a folder"},
                       {"swale mount out/particles mnt && tar -cf epoch-0.tar -C mnt 0 && fusermount3 -u mnt",
                        "all of an epoch for who has no Swale"}},
      });
  sub.add_option("PATH", command->directory,
                 "the massive directory or metadata store (it contains swale.json)")
      .required()
      .type_name("DIR");
  sub.add_option("MOUNTPOINT", command->mountpoint, "a directory outside of it").required().type_name("DIR");
  sub.add_option("--logs", command->logs, "of a metadata store: the path of a log, with %s for its number")
      .type_name("PATTERN");
  sub.add_flag("--foreground", command->foreground, "stays until the mount has ended");
  sub.add_flag("--allow-other", command->allow_other, "other users may read it, too");
  sub.add_flag("--json", command->json, "print JSON when the mount is there");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
