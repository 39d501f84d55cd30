// `swale mount`: a massive directory as files, for programs that know nothing of it.
#include <sys/stat.h>

#include <cerrno>
#include <memory>

#include "fs/epochs/epochs_fs.h"
#include "fuse/mounted.h"
#include "tools/background.h"
#include "tools/command_line.h"
#include "tools/options.h"

namespace swale::tools {
namespace {

constexpr unsigned kThreads = 10;

struct MountCommand {
  std::string directory;
  std::string mountpoint;
  bool foreground = false;
  bool allow_other = false;
  bool json = false;

  int run() const;

 private:
  Status serve(const std::function<void(const std::string&)>& ready) const;
  std::string said(const imd::Manifest& manifest) const;
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

Status MountCommand::serve(const std::function<void(const std::string&)>& ready) const {
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
  SWALE_ASSIGN_OR_RETURN(const auto opened, open_imd(whole_path(directory)));
  struct stat found;
  const std::string manifest = directory + "/swale.json";
  if (::stat(manifest.c_str(), &found) != 0) return errno_status(errno, manifest);
  fs::EpochsFs files(*opened->reader, found.st_mtim);
  return fuse::serve_mounted(mounted, &files, fuse::raise_descriptor_limit(),
                             [&] { ready(said(opened->reader->manifest())); });
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
      app, "mount", "shows a massive directory as folders of files, read-only",
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
              "records of an epoch, swale scan and swale export are quicker. Unmount by fusermount3 -u.",
          .examples = {{"mkdir -p mnt && swale mount out/particles mnt && ls mnt && fusermount3 -u mnt",
                        "an epoch is a folder"},
                       {"swale mount out/particles mnt && tar -cf epoch-0.tar -C mnt 0 && fusermount3 -u mnt",
                        "all of an epoch for who has no Swale"}},
      });
  sub.add_option("PATH", command->directory, "the massive directory (the one that contains swale.json)")
      .required()
      .type_name("DIR");
  sub.add_option("MOUNTPOINT", command->mountpoint, "a directory outside of it").required().type_name("DIR");
  sub.add_flag("--foreground", command->foreground, "stays until the mount has ended");
  sub.add_flag("--allow-other", command->allow_other, "other users may read it, too");
  sub.add_flag("--json", command->json, "print JSON when the mount is there");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
