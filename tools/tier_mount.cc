// `swale tier mount`: the files of a backing directory, with a tiered write buffer in front of them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>

#include "fuse/mount.h"
#include "io/link_rule.h"
#include "tools/background.h"
#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/tier_choices.h"

namespace swale::tools {
namespace {

struct TierMountCommand {
  TierChoices tier;
  std::string mountpoint;
  std::string log_file;
  std::string trace_file;
  unsigned threads = 10;
  double wait_s = 10;
  bool foreground = false;
  bool allow_other = false;
  bool trust_tree = false;
  bool json = false;

  int run() const;

 private:
  Result<fuse::MountOptions> options() const;
  std::string said(const tier::RecoveryReport& found, uint64_t log_bytes) const;
};

// Of a log that is made.
uint64_t log_bytes_of(const tier::StoreOptions& options) {
  return options.engine.segment_count * options.engine.segment_bytes;
}

Result<fuse::MountOptions> TierMountCommand::options() const {
  fuse::MountOptions options;
  options.mountpoint = whole_path(mountpoint);
  SWALE_ASSIGN_OR_RETURN(options.store, tier.store_options(whole_path(tier.ssd), whole_path(tier.backing)));
  options.wait = static_cast<Nanos>(wait_s * 1e9);
  options.at_unmount = tier.at_close();
  options.allow_other = allow_other;
  options.trust_tree = trust_tree;
  options.threads = threads;
  if (!trace_file.empty()) options.trace_file = whole_path(trace_file);
  return options;
}

std::string TierMountCommand::said(const tier::RecoveryReport& found, uint64_t log_bytes) const {
  const std::string preset = tier.preset_name();
  if (json)
    return json_line({{"mountpoint", mountpoint},
                      {"backing", tier.backing},
                      {"ssd", tier.ssd},
                      {"preset", preset.empty() ? "modern" : preset},
                      {"new_log", found.made_anew},
                      {"dirty_bytes", found.dirty_bytes},
                      {"dropped", found.dropped},
                      {"kept", found.kept.size()},
                      {"brought_bytes", found.brought_bytes},
                      {"damaged", found.damaged.size()}});
  std::string text = fmt::format("{}: {} with {} in front", mountpoint, tier.backing, tier.ssd);
  if (!preset.empty()) text += fmt::format(", costs from {}", preset);
  if (found.made_anew) return text + fmt::format(", a new log of {} bytes\n", log_bytes);
  text += fmt::format("; {} bytes were not on {} yet", found.dirty_bytes, tier.backing);
  if (found.dropped > 0) text += fmt::format(", {} records are of files that were removed", found.dropped);
  if (!found.kept.empty())
    text +=
        fmt::format("; BYTES OF {} FILES ARE KEPT ASIDE, because they were not found: see swale verify {}",
                    found.kept.size(), tier.backing);
  if (found.brought_bytes > 0)
    text +=
        fmt::format("; {} bytes that had been kept aside were brought to their files", found.brought_bytes);
  if (!found.damaged.empty())
    text += fmt::format("; {} RECORDS ARE DAMAGED: see swale tier verify", found.damaged.size());
  return text + "\n";
}

// Where other users may write (/tmp), one could have planted a link, a file or a FIFO in its place.
Result<io::Descriptor> open_messages(const std::string& path) {
  const std::string doing = path + ": opening the file for messages";
  const size_t slash = path.find_last_of('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  const io::Descriptor folder(::open(io::parent_directory(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return errno_status(errno, doing);
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  io::OpenedBelow opened = io::open_below(folder.get(), name, kFlags | O_NONBLOCK, 0666, io::LinksOf::kUser);
  if (!opened.link.empty()) return io::refused_link(opened, path, name);
  if (opened.failed == ENXIO) return invalid_argument("{}: it is a FIFO or a socket; remove it", doing);
  if (opened.failed != 0) return errno_status(opened.failed, doing);
  struct stat is;
  if (::fstat(opened.fd.get(), &is) != 0) return errno_status(errno, doing);
  if (S_ISFIFO(is.st_mode)) return invalid_argument("{}: it is a FIFO; remove it", doing);
  if (S_ISREG(is.st_mode) && is.st_uid != ::geteuid() && is.st_uid != 0)
    return invalid_argument("{}: it belongs to user {}; remove it, or name another one", doing, is.st_uid);
  if (S_ISREG(is.st_mode) && is.st_nlink != 1)
    return invalid_argument("{}: the file has {} names, and may be another one's; remove it", doing,
                            is.st_nlink);
  if (::fcntl(opened.fd.get(), F_SETFL, kFlags & ~O_CREAT) != 0) return errno_status(errno, doing);
  return std::move(opened.fd);
}

int TierMountCommand::run() const {
  auto wanted = options();
  if (!wanted.ok()) return fail(wanted.status());
  if (!log_file.empty()) {
    const auto log = open_messages(log_file);
    if (!log.ok()) return fail(log.status());
    ::dup2(log->get(), STDERR_FILENO);
  }
  Serving serving;
  serving.foreground = foreground;
  serving.json = json;
  serving.keeps_messages = !log_file.empty();
  serving.serve = [&](const auto& ready) {
    wanted->ready = [&, log_bytes = log_bytes_of(wanted->store)](const tier::RecoveryReport& found) {
      ready(said(found, log_bytes));
    };
    return fuse::run_mount(*wanted);
  };
  return serve_in_background(serving);
}

}  // namespace

void add_tier_mount(CLI::App& app, Run* run) {
  auto command = std::make_shared<TierMountCommand>();
  OptionSet sub = add_command(
      app, "tier-mount", "mounts a backing directory with the SSD log of a tiered write buffer in front",
      {
          .description =
              "Shows the files of the backing directory at MOUNTPOINT (by FUSE 3). What programs write there "
              "goes to a log on the SSD or to the backing directory, whichever is quicker, and from the log "
              "to the "
              "backing directory later. `swale tier mount` is the same as `swale tier-mount`.\n\n"
              "The log is made if it is not there. Unmount by fusermount3 -u or umount, or end the process "
              "by SIGTERM: what is in the log stays there for the next mount, or is drained first. A "
              "process that was killed loses nothing that was acknowledged, as --durability promises: mount "
              "again. While it is mounted, no other program may change the files of the backing directory.",
          .examples =
              {{"mkdir -p slow mnt && swale tier mount --ssd ssd --backing slow --size 16M mnt && date > "
                "mnt/now && fusermount3 -u mnt",
                "mounts, writes, and unmounts; the log keeps what was written"},
               {"swale tier mount --ssd ssd --backing slow --on-unmount drain mnt && fusermount3 -u mnt",
                "mounts again; when the process has ended, everything is in slow"},
               {"mkdir -p slow2 mnt && swale tier mount --ssd ssd2 --backing slow2 --size 16M --policy "
                "ssdup+ --options "
                "tier.segments=2 mnt && fusermount3 -u mnt",
                "a log of the paper's two regions, and its policy"}},
      });
  sub.add_option("MOUNTPOINT", command->mountpoint, "a directory outside of the other two")
      .required()
      .type_name("DIR");
  command->tier.add_to(sub, "--on-unmount");
  command->tier.add_options(sub, "options tier.dirty_age_s and so on: see swale-options(7)");
  sub.add_option("--threads", command->threads, "that serve requests; by default 10")
      .between(1, 256)
      .type_name("N");
  sub.add_option("--wait", command->wait_s,
                 "for an earlier mount of the directories that is still ending, in seconds; by default 10")
      .between(0.0, 86400.0)
      .type_name("SECONDS");
  sub.add_option("--log", command->log_file,
                 "appends messages to this file; by default they go to stderr, and "
                 "nowhere once it runs in the background")
      .type_name("FILE");
  sub.add_option("--trace", command->trace_file,
                 "records the requests into this file, which must not be there: see swale-tier-trace(1)")
      .type_name("FILE");
  sub.add_flag("--foreground", command->foreground, "stays until the mount has ended");
  sub.add_flag(
      "--allow-other", command->allow_other,
      "users other than the one that mounts may use it; a mount by root does what each asks for as that "
      "user");
  sub.add_flag(
      "--trust-tree", command->trust_tree,
      "with --allow-other, by an ordinary user: whoever else may write into the backing directory is "
      "trusted with your files");
  sub.add_flag("--json", command->json, "print JSON when the mount is there");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
