#include "stage/plan.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/hash.h"
#include "io/posix_device.h"
#include "stage/manifest.h"

namespace swale::stage {
namespace {

constexpr std::string_view kPartEnd = ".swale-part";

bool is_part(std::string_view name) { return name.starts_with('.') && name.ends_with(kPartEnd); }

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// Without links, as far as it is there.
std::string real_path(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> found(::realpath(path.c_str(), nullptr), ::free);
  if (found) return found.get();
  const std::string folder = io::parent_directory(path);
  if (folder == path || folder == ".") return path;
  return real_path(folder) + path.substr(path.rfind('/'));
}

class Planner {
 public:
  Planner(const StageOptions& options, const Root& source) : options_(options), source_(source) {}

  Result<Plan> of_tree() {
    SWALE_RETURN_IF_ERROR(check_roots());
    folders_.push_back({options_.from, options_.to});
    while (!folders_.empty()) {
      const auto [source, destination] = std::move(folders_.back());
      folders_.pop_back();
      if (const Status listed = walk(source, destination); !listed.ok()) fail(source, listed.message());
    }
    return finish();
  }

  Result<Plan> of_manifest() {
    io::PosixDevice device;
    SWALE_ASSIGN_OR_RETURN(const std::string text,
                           io::read_file(device, options_.manifest, kManifestBytesMax));
    SWALE_ASSIGN_OR_RETURN(const std::vector<ManifestLine> lines, parse_manifest(text, options_.manifest));
    std::unordered_map<std::string, uint64_t> destinations;
    for (const ManifestLine& line : lines) {
      const auto [other, is_new] = destinations.emplace(line.destination, line.line);
      if (is_new)
        add_line(line);
      else
        fail(line.source, fmt::format("{}: line {} has the same destination, {}, as line {}",
                                      options_.manifest, line.line, line.destination, other->second));
    }
    return finish();
  }

 private:
  // A tree that is copied into itself would never end.
  Status check_roots() const {
    const std::string from = real_path(options_.from), to = real_path(options_.to);
    if (to == from || to.starts_with(from + "/") || from.starts_with(to + "/"))
      return invalid_argument("{} and {} are one folder, or one is in the other", from, to);
    return {};
  }

  Status walk(const std::string& source, const std::string& destination) {
    SWALE_ASSIGN_OR_RETURN(io::Descriptor folder,
                           source_.open(source, O_RDONLY | O_DIRECTORY, "listing the folder"));
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(folder.get()), ::closedir);
    if (!stream) return errno_status(errno, source + ": listing the folder");
    const int fd = folder.release();  // the stream's
    std::vector<std::string> names;
    for (errno = 0; const dirent* const entry = ::readdir(stream.get()); errno = 0) {
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
    }
    if (errno != 0) return errno_status(errno, source + ": listing the folder");
    std::sort(names.begin(), names.end());
    for (const std::string& name : names) {
      Entry entry = {source + "/" + name, destination + "/" + name};
      if (::fstatat(fd, name.c_str(), &entry.attributes, AT_SYMLINK_NOFOLLOW) != 0)
        fail(entry.source, errno_status(errno, entry.source + ": looking at it").message());
      else if (is_part(name))
        fail(entry.source, entry.source +
                               ": is what an unfinished stage into this folder has left; finish "
                               "that stage, or remove the file");
      else if (S_ISDIR(entry.attributes.st_mode))
        add_folder(std::move(entry));
      else
        add(std::move(entry));
    }
    return {};
  }

  void add_folder(Entry entry) {
    folders_.push_back({entry.source, entry.destination});
    plan_.folders.push_back(std::move(entry));
  }

  void add_line(const ManifestLine& line) {
    Entry entry = {line.source, line.destination, {}, line.crc};
    const Result<struct stat> found = source_.look(line.source);
    if (!found.ok()) return fail(line.source, found.status().message());
    entry.attributes = *found;
    struct stat other;
    if (::lstat(line.destination.c_str(), &other) == 0 && other.st_ino == found->st_ino &&
        other.st_dev == found->st_dev)
      return fail(line.source, line.source + ": is its own destination, " + line.destination);
    add(std::move(entry));
  }

  void add(Entry entry) {
    const mode_t mode = entry.attributes.st_mode;
    if (!S_ISREG(mode) && !S_ISLNK(mode)) {
      return fail(entry.source, fmt::format("{}: is {}; only regular files and symbolic links are staged",
                                            entry.source, kind_of(mode)));
    }
    const HashChoice choice = choose(hash_bytes(entry.destination), options_.ranks);
    if (choice.index != options_.rank) return;
    if (S_ISREG(mode) && entry.attributes.st_nlink > 1) ++with_links_;
    (S_ISLNK(mode) ? plan_.links : plan_.files).push_back(std::move(entry));
  }

  // Of several ranks, one tells it.
  void fail(const std::string& path, std::string_view what) {
    if (options_.rank == 0) plan_.failures.push_back({path, std::string(what)});
  }

  Result<Plan> finish() {
    if (with_links_ > 0)
      plan_.remarks.push_back(
          fmt::format("{} files have more than one name: each name becomes a file of its own", with_links_));
    return std::move(plan_);
  }

  const StageOptions& options_;
  const Root& source_;
  std::vector<std::pair<std::string, std::string>> folders_;  // to be listed
  uint64_t with_links_ = 0;
  Plan plan_;
};

}  // namespace

Result<Plan> make_plan(const StageOptions& options, const Root& source) {
  Planner planner(options, source);
  return options.manifest.empty() ? planner.of_tree() : planner.of_manifest();
}

std::string part_path(const std::string& destination) {
  const std::string folder = io::parent_directory(destination);
  std::string name = destination.substr(destination.rfind('/') + 1);
  if (name.size() + 1 + kPartEnd.size() > NAME_MAX) name = fmt::format("{:016x}", hash_bytes(name));
  const bool here = destination.find('/') == std::string::npos;
  return fmt::format("{}.{}{}", here ? "" : folder == "/" ? "/" : folder + "/", name, kPartEnd);
}

}  // namespace swale::stage
