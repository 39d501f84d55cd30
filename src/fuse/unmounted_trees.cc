#include "fuse/unmounted_trees.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include "fs/log/attach_client.h"
#include "io/descriptor.h"
#include "io/private_files.h"

namespace swale::fuse {
namespace {

namespace files = std::filesystem;

constexpr char kTopLink[] = "unmounted-top", kTopLinkOnNodes[] = "unmounted-top-of-nodes";
constexpr int kLinksMax = 40;  // as the kernel
constexpr size_t kPathMax = 4096;

Status no_server(const std::string& path) {
  return error(Code::kNotFound, Scope::kFile,
               "{}: no server of this node has a tree there that is mounted nowhere (swale start --no-mount, "
               "swale run --no-mount)",
               path);
}

// False: there is none.
bool find_top(const std::string& folder, UnmountedTree* tree) {
  const auto opened = io::open_private_directory(AT_FDCWD, folder, folder);
  if (!opened.ok()) return false;
  char top[kPathMax];
  for (const char* const link : {kTopLink, kTopLinkOnNodes}) {
    const ssize_t got = ::readlinkat(opened->get(), link, top, sizeof(top));
    if (got <= 0 || got == static_cast<ssize_t>(sizeof(top))) continue;
    tree->top.assign(top, static_cast<size_t>(got));
    tree->on_nodes = link == kTopLinkOnNodes;
    return true;
  }
  return false;
}

Result<io::Descriptor> connect(const std::string& socket) {
  int connected = -1;
  const int failed = fs::connect_to_server(socket.c_str(), &connected, nullptr);
  if (failed != 0) return errno_status(-failed, socket + ": the server of a tree");
  return io::Descriptor(connected);
}

// The folder's links are resolved; the last name may be that of a file of the tree.
files::path resolved(const std::string& path) {
  std::error_code failed;
  files::path at = files::absolute(path, failed).lexically_normal();
  for (int links = 0; links < kLinksMax; ++links) {
    if (!at.has_filename() && at.has_relative_path()) at = at.parent_path();
    const files::path folder = files::canonical(at.parent_path(), failed);
    if (failed) return at;
    at = folder / at.filename();
    const files::path target = files::read_symlink(at, failed);
    if (failed) break;
    at = (folder / target).lexically_normal();
  }
  return at;
}

Status read_all(const io::Descriptor& from, std::string* text) {
  char part[4096];
  for (off_t at = 0;;) {
    const ssize_t got = io::continued([&] { return ::pread(from.get(), part, sizeof(part), at); });
    if (got < 0) return errno_status(errno, "the answer of the server of a tree");
    if (got == 0) return {};
    text->append(part, static_cast<size_t>(got));
    at += got;
  }
}

// The server may take long: a message that is late is none that is lost.
Status hear(const io::Descriptor& from, fs::UnmountedAnswer* answer, io::Descriptor* passed) {
  iovec part = {answer, sizeof(*answer)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t got = -1;
  do {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    got = io::continued([&] { return ::recvmsg(from.get(), &message, MSG_CMSG_CLOEXEC); });
  } while (got < 0 && errno == EAGAIN);
  if (const cmsghdr* const head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
      head != nullptr && head->cmsg_type == SCM_RIGHTS) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(head), sizeof(number));
    *passed = io::Descriptor(number);
  }
  if (got == static_cast<ssize_t>(sizeof(*answer)) && answer->magic == fs::kUnmountedMagic &&
      answer->version == fs::kUnmountedVersion)
    return {};
  return errno_status(EIO, "the server of a tree has ended, or is of another version");
}

}  // namespace

std::string UnmountedTree::variable() const {
  return fmt::format("{}{}:{}", on_nodes ? fs::kUnmountedOnNodes : "", socket, top);
}

Status show_unmounted(const JobFolders& folders, bool on_nodes) {
  const std::string link = folders.memory + "/" + (on_nodes ? kTopLinkOnNodes : kTopLink);
  ::unlink(link.c_str());  // of a killed server
  return ::symlink(folders.backing.c_str(), link.c_str()) == 0 ? Status() : errno_status(errno, link);
}

Result<std::vector<UnmountedTree>> find_unmounted_trees() {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(kMemoryFolder), ::closedir);
  if (!stream) return errno_status(errno, kMemoryFolder);
  const std::string own = memory_prefix();
  std::vector<UnmountedTree> trees;
  while (const dirent* const entry = ::readdir(stream.get())) {
    const std::string folder = fmt::format("{}/{}", kMemoryFolder, entry->d_name);
    if (!folder.starts_with(own)) continue;
    UnmountedTree tree;
    tree.socket = folder + "/" + fs::kUnmountedSocket;
    if (find_top(folder, &tree) && connect(tree.socket).ok()) trees.push_back(std::move(tree));
  }
  return trees;
}

// The innermost, where one is in another.
Result<UnmountedPlace> find_unmounted(const std::string& path) {
  SWALE_ASSIGN_OR_RETURN(const std::vector<UnmountedTree> trees, find_unmounted_trees());
  const std::string whole = resolved(path).string();
  UnmountedPlace found;
  for (const UnmountedTree& each : trees) {
    const bool within =
        whole.starts_with(each.top) && (whole.size() == each.top.size() || whole[each.top.size()] == '/');
    if (!within || each.top.size() <= found.tree.top.size()) continue;
    found = {each, whole.substr(std::min(whole.size(), each.top.size() + 1))};
  }
  return found.tree.top.empty() ? Result<UnmountedPlace>(no_server(path)) : std::move(found);
}

Status ask_unmounted(const UnmountedPlace& place, fs::UnmountedCall call, std::string* text) {
  if (place.below.size() >= fs::kUnmountedPathMax) return errno_status(ENAMETOOLONG, place.below);
  const std::string path = place.below.empty() ? place.tree.top : place.tree.top + "/" + place.below;
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor to, connect(place.tree.socket));
  fs::UnmountedRequest request;
  request.call = call;
  request.path_bytes = static_cast<uint32_t>(place.below.size());
  place.below.copy(request.paths, place.below.size());
  const size_t bytes = fs::kUnmountedHeadBytes + place.below.size();
  if (io::continued([&] { return ::send(to.get(), &request, bytes, MSG_NOSIGNAL); }) !=
      static_cast<ssize_t>(bytes))
    return errno_status(errno, path + ": asking the server of its tree");
  fs::UnmountedAnswer answer;
  io::Descriptor passed;
  SWALE_RETURN_IF_ERROR(hear(to, &answer, &passed).with_context(path));
  if (answer.error != 0) return errno_status(answer.error, path);
  if (text == nullptr) return {};
  return passed.valid() ? read_all(passed, text) : errno_status(EIO, path + ": no answer has come");
}

}  // namespace swale::fuse
