// `swale serve` and `swale fs`: the tree of a job over a backing directory.
#include "tools/tree.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "capi/options.h"
#include "fs/client/client_seal.h"
#include "fs/job/job_fs.h"
#include "fs/node/drain_mark.h"
#include "fuse/job_losses.h"
#include "fuse/node_meeting.h"
#include "fuse/unmounted_trees.h"
#include "io/descriptor.h"
#include "net/meeting/topology.h"
#include "tools/options.h"
#include "tools/progress.h"
#include "tools/tree_engine.h"

namespace swale::tools {
namespace {

constexpr int kPollMillis = 200;
constexpr int kPollsALine = 50;
constexpr uint64_t kMemoryMin = 32 * kMiB;
constexpr uint64_t kMemoryMax = uint64_t{1} << 50;

// "1,3". None: it is no such list.
std::optional<std::set<uint32_t>> node_numbers(std::string_view text) {
  std::set<uint32_t> nodes;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    uint32_t node = 0;
    const auto [end, failed] = std::from_chars(word.begin(), word.end(), node);
    if (failed != std::errc() || end != word.end()) return {};
    nodes.insert(node);
    text.remove_prefix(std::min(word.size() + 1, text.size()));
  }
  return nodes;
}

// Each rank of a launch is the server of a node.
Status find_place(fuse::JobMountOptions* options) {
  SWALE_ASSIGN_OR_RETURN(options->nodes, find_launch());
  if (options->nodes) options->nodes->meeting += ".serve";
  return {};
}

struct ServeCommand {
  TreeChoices tree;
  std::string backing;
  std::string at_end = "drain";
  bool json = false;

  int run() const {
    fuse::JobMountOptions options = tree.options(backing, at_end);
    options.ready = [this](const std::string& remark) {
      const std::string& mountpoint = tree.at.empty() ? backing : tree.at;
      json ? print_json({{"mountpoint", mountpoint}, {"backing", backing}})
           : print_line(fmt::format("{}: its tree is mounted", mountpoint));
      if (!remark.empty()) complain("{}", remark);
      static_cast<void>(finish_output(kExitOk));
    };
    if (const Status found = find_place(&options); !found.ok()) return fail(found);
    const Status ended = fuse::run_job_mount(options);
    return ended.ok() ? kExitOk : fail(ended);
  }
};

struct FsCommand {
  TreeChoices tree;
  std::string action;
  std::string path;
  std::string without;
  bool accept_losses = false;
  bool look = false;
  bool json = false;

  int run() const {
    if (const std::string wrong = wrong_options(); !wrong.empty()) {
      complain("fs {}: {}", action, wrong);
      return kExitUsage;
    }
    if (action == "stat") return stat();
    if (action == "sync") return sync();
    if (action == "drain") return drain();
    if (action == "seal") return seal();
    fuse::JobMountOptions options = tree.options(path, "drain");
    options.mounts = false;
    options.looks = look;
    if (const Status found = find_place(&options); !found.ok()) return fail(found);
    if (!without.empty()) return recover_without(options);
    const Status recovered = fuse::run_job_mount(options);
    return recovered.ok() ? kExitOk : fail(recovered);
  }

 private:
  std::string wrong_options() const {
    const bool of_losses = accept_losses || look;
    if (action != "recover" && (of_losses || !without.empty() || !tree.at.empty()))
      return "--without, --look, --at and --accept-losses belong to recover";
    if (of_losses && without.empty())
      return "--look and --accept-losses need --without, which names the nodes that are lost";
    if (accept_losses && look) return "--look changes nothing, and --accept-losses does: choose one";
    return tree.at.empty() || look ? "" : "--at says where --look mounts the tree";
  }

  void show(const fuse::LossesFound& found) const {
    if (found.is_first) json ? print_json_text(found.document) : print(found.text);
  }

  // The mount is there.
  void tell_look(const fuse::LossesFound& found) const {
    show(found);
    const std::string& mountpoint = tree.at.empty() ? path : tree.at;
    if (!json) print_line(fmt::format("{}: what is left is mounted, read-only", mountpoint));
    static_cast<void>(finish_output(kExitOk));
  }

  int recover_without(const fuse::JobMountOptions& options) const {
    const auto nodes = node_numbers(without);
    if (!nodes) {
      complain("fs recover: --without {}: give the numbers of nodes, with commas", without);
      return kExitUsage;
    }
    using fuse::Losses;
    const Losses losses = accept_losses ? Losses::kAccept : look ? Losses::kLook : Losses::kReport;
    const auto found =
        fuse::recover_without(options, *nodes, losses, [this](const auto& mounted) { tell_look(mounted); });
    if (!found.ok()) return fail(found.status());
    if (!look) show(*found);
    if (found->is_first && !accept_losses)
      complain("{}: nothing was changed; --accept-losses brings what is left", path);
    return finish_output(accept_losses ? kExitOk : kExitNotFound);
  }

  int stat() const {
    const auto stats = ask_tree(path);
    if (!stats.ok()) return fail(stats.status());
    if (json) {
      print_json(*stats);
      return finish_output(kExitOk);
    }
    for (const auto& [name, value] : stats->items())
      if (name != "last_failure" || value != "") print_line(fmt::format("{:<16} {}", name, value.dump()));
    return finish_output(kExitOk);
  }

  int sync() const {
    if (const auto stats = ask_tree(path); !stats.ok()) return fail(stats.status());
    const Status synced = command_sync(path);
    return synced.ok() ? kExitOk : fail(synced);
  }

  int seal() const {
    const auto place = fuse::find_unmounted(path);
    Status sealed = place.ok() ? fuse::ask_unmounted(*place, fs::UnmountedCall::kSeal) : fs::seal_file(path);
    if (place.ok() && sealed.posix_error() == EBUSY)
      sealed = error(Code::kBusy, Scope::kFile,
                     "{}: a program has it open; it can be sealed when all have closed it", path);
    return sealed.ok() ? kExitOk : fail(sealed);
  }

  int drain() const {
    const auto before = ask_tree(path);
    if (!before.ok()) return fail(before.status());
    const Status ended = sync_tree(path);
    const auto after = ask_tree(path);
    if (!after.ok()) return fail(after.status());
    const auto more = [&](const char* name) {
      return after->value(name, uint64_t{0}) - before->value(name, uint64_t{0});
    };
    if (json)
      print_json({{"drained_files", more("drained_files")},
                  {"kept_aside", more("kept_aside")},
                  {"failed_drains", more("failed_drains")},
                  {"undrained_files", after->value("undrained_files", uint64_t{0})},
                  {"undrained_bytes", after->value("undrained_bytes", uint64_t{0})}});
    else
      print_line(fmt::format("{}: {} files were brought to it; {} are not there yet", path,
                             more("drained_files"), after->value("undrained_files", uint64_t{0})));
    const int shown = finish_output(kExitOk);
    return ended.ok() ? shown : fail(ended);
  }
};

}  // namespace

// The server answers when all is on the backing.
Status command_sync(const std::string& path) {
  // A directory that is no tree's would keep the attribute.
  const bool mounted = ::getxattr(path.c_str(), fs::kJobStatsAttribute, nullptr, 0) >= 0;
  if (!mounted)
    if (const auto place = fuse::find_unmounted(path); place.ok())
      return fuse::ask_unmounted({place->tree, ""}, fs::UnmountedCall::kSyncAll)
          .with_context("bringing all to it; swale fs stat says why");
  if (mounted && ::setxattr(path.c_str(), fs::kJobCommandAttribute, "sync", 4, 0) == 0) return {};
  return errno_status(mounted ? errno : ENODATA, path + ": bringing all to it; swale fs stat says why");
}

Status sync_tree(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const Json before, ask_tree(path));
  const auto bytes = before.value("undrained_bytes", uint64_t{0});
  std::future<Status> drained = std::async(std::launch::async, [&path] { return command_sync(path); });
  ProgressBar bar;
  for (int polls = 1; drained.wait_for(std::chrono::milliseconds(kPollMillis)) != std::future_status::ready;
       ++polls) {
    const auto now = ask_tree(path);
    if (!now.ok()) continue;
    const auto left = now->value("undrained_bytes", uint64_t{0});
    if (ProgressBar::wanted())
      bar.update(bytes - std::min(left, bytes), bytes, "MiB", kMiB);
    else if (polls % kPollsALine == 0)
      complain("{}: {} MiB are not there yet", path, left / kMiB);
  }
  return drained.get();
}

Result<std::optional<fuse::JobMountOptions::Nodes>> find_launch() {
  SWALE_ASSIGN_OR_RETURN(const net::LaunchEnvironment launch, net::detect_launch(capi::process_environment));
  if (launch.size == 1) return std::optional<fuse::JobMountOptions::Nodes>();
  SWALE_RETURN_IF_ERROR(capi::check_process_variables());
  fuse::JobMountOptions::Nodes nodes;
  SWALE_ASSIGN_OR_RETURN(nodes.settings, capi::job_settings("", capi::process_environment));
  nodes.settings.job.node = fuse::node_word(nodes.settings);
  nodes.settings.rendezvous = fs::kSwaleDirectory;  // below the backing
  SWALE_ASSIGN_OR_RETURN(const net::RendezvousOptions meeting,
                         net::rendezvous_options(nodes.settings, launch, capi::process_environment));
  nodes.meeting = meeting.job_id;
  nodes.own = launch.rank;
  nodes.count = launch.size;
  return std::optional(std::move(nodes));
}

void TreeChoices::add_to(OptionSet command) {
  command.add_option("--at", at, "where the tree is mounted; by default over the backing directory itself")
      .type_name("DIR");
  add_buffer(command);
  command.add_option("--memory", memory, "for bytes that are not on the backing yet; by default 1G")
      .size_between(kMemoryMin, kMemoryMax)
      .type_name("SIZE");
  command
      .add_option(
          "--fsync", fsync,
          "when fsync returns: when the bytes are durable in the buffer, if one is named and on a disk "
          "(node, "
          "the default), or when the file is in the backing directory")
      .one_of({"node", "backing"});
}

void TreeChoices::add_buffer(OptionSet command) {
  command
      .add_option(
          "--buffer", buffer,
          "a directory on a disk of this node, for names, and for bytes that do not fit into memory; by "
          "default in TMPDIR or /tmp")
      .type_name("DIR");
}

fuse::JobMountOptions TreeChoices::options(const std::string& backing, const std::string& at_end) const {
  using AtEnd = fuse::JobMountOptions::AtEnd;
  fuse::JobMountOptions options;
  options.backing = whole_path(backing);
  options.at = whole_path(at);
  options.buffer = whole_path(buffer);
  options.memory_bytes = memory;
  options.fsync =
      fsync == "backing" ? fuse::JobMountOptions::Fsync::kBacking : fuse::JobMountOptions::Fsync::kNode;
  options.at_end = at_end == "keep" ? AtEnd::kKeep : at_end == "discard" ? AtEnd::kDiscard : AtEnd::kDrain;
  return options;
}

void add_serve(CLI::App& app, Run* run) {
  auto command = std::make_shared<ServeCommand>();
  OptionSet sub = add_command(
      app, "serve", "mounts the tree of a job over a directory, until it is told to end",
      {
          .description =
              "Programs see the files of DIR, and what they write stays in this node's memory, or in "
              "the buffer, until it is brought to DIR as plain files: by fsync without a buffer, when nobody "
              "writes, when memory is short, and at the end. The paths do not change. `swale run --backing "
              "DIR "
              "-- program` does the same for as long as a program runs.\n\n"
              "It ends by umount or SIGTERM, and then brings all to DIR (--at-end drain), leaves it "
              "for the next server of DIR or for swale fs recover (keep), or gives it up (discard). "
              "Only the user who mounts may use the tree. Meanwhile no other program should change "
              "files of DIR; a file that one did change is kept, and what the job has written is put "
              "beside it.\n\n"
              "Under a launcher (mpirun --map-by ppr:1:node, srun --ntasks-per-node=1) each rank is the "
              "server of its node, and all show one tree: programs of one node see what others have "
              "closed or synced. If the buffer of a node is in memory, fsync of all brings the file to "
              "DIR. The end waits for all nodes.",
          .examples = {{"mkdir -p mounted && (swale serve mounted & server=$!; until swale fs stat mounted "
                        "2>/dev/null; do sleep 0.1; done; date > mounted/now; kill $server; wait $server)",
                        "mounts, writes, and ends: mounted/now is a plain file then"}},
      });
  sub.add_option("DIR", command->backing, "the backing directory; must be there").required().type_name("DIR");
  command->tree.add_to(sub);
  sub.add_option("--at-end", command->at_end, "what becomes of what is not on DIR yet; by default drain")
      .one_of({"drain", "keep", "discard"});
  sub.add_flag("--json", command->json, "print JSON when the tree is mounted");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

void add_fs(CLI::App& app, Run* run) {
  auto command = std::make_shared<FsCommand>();
  OptionSet sub = add_command(
      app, "fs", "shows, syncs, seals or recovers the tree of a job",
      {
          .description =
              "stat shows what the server of a mounted tree has that is not on the backing directory "
              "yet. sync brings all of it there, and returns when it is durable; drain does the same, "
              "and shows how far it is. seal makes a file read-only that nobody has open to write: then "
              "nobody, root included, changes its bytes, until chmod u+w; chmod a-w seals it, too. "
              "recover brings what a server has left that was killed, or that ended with --at-end keep: "
              "nothing may be mounted meanwhile, but for what the killed server has left, which is "
              "unmounted. The tree of several nodes is recovered on all of them, by a launcher, a rank "
              "on each.\n\nNodes that are lost for good are named by --without, to recover on all "
              "others: it lists each file and range that is lost with them, changes nothing, and exits "
              "with 1. With --look, too, each of these nodes has what is left mounted over DIR (or --at), "
              "read-only, until umount or SIGTERM: files that are whole are read as usual; a read that "
              "touches a lost range fails with EIO, never with old bytes, and so does each file whose "
              "table, and each name whose server, was on a lost node. With --accept-losses, too, files "
              "that are whole come to DIR, and what is left of all others to DIR/.swale/lost+found-JOB, "
              "which losses.json there describes.",
          .examples =
              {{"mkdir -p mounted && swale run --backing mounted -- sh -c 'date > mounted/now; swale fs stat "
                "mounted; swale fs sync mounted'",
                "one file, which is on the backing then"},
               {"mkdir -p mounted && swale run --backing mounted --at-end keep -- sh -c 'date > "
                "mounted/now'; swale fs recover mounted; cat mounted/now",
                "brings to mounted what a server has left"}},
          .exit_1 = "recover --without (and --look): nodes are lost, and nothing was changed",
      });
  sub.add_option("ACTION", command->action, "stat, sync, drain, seal or recover")
      .required()
      .one_of({"stat", "sync", "drain", "seal", "recover"});
  sub.add_option("DIR", command->path,
                 "where the tree is mounted; recover: the backing directory; seal: a file")
      .required()
      .type_name("DIR");
  command->tree.add_buffer(sub);
  sub.add_option("--without", command->without,
                 "recover: the numbers of the nodes that are lost for good, as 1,3; all others must be here")
      .type_name("NODES");
  sub.add_flag("--look", command->look,
               "recover: mount what is left without these nodes, read-only, and change nothing");
  sub.add_option("--at", command->tree.at, "recover --look: where; by default over DIR itself")
      .type_name("DIR");
  sub.add_flag("--accept-losses", command->accept_losses, "recover: give up what these nodes alone had");
  sub.add_flag("--json", command->json, "stat, drain, recover --without: print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
