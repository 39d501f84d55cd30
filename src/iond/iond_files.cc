#include "iond/iond_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cassert>

#include <cerrno>
#include <fstream>
#include <optional>

#include "base/entropy.h"
#include "io/descriptor.h"
#include "io/descriptor_path.h"
#include "iond/shown_mode.h"
#include "iond/stripes.h"

namespace swale::iond {
namespace {

std::string done() { return encode_iond_answer({}); }

}  // namespace

Status claim_backing(const std::string& backing_directory, uint32_t server, uint32_t servers) {
  SWALE_ASSIGN_OR_RETURN(const Beneath root, Beneath::open(backing_directory));
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place place,
                         root.place_of(fmt::format("{}/server", tier::kPrivateDirectory)));
  const std::string& path = place.full;
  const std::string mine = fmt::format("server {} of {}\n", server, servers);
  const io::Descriptor made(::openat(place.directory.get(), place.last.c_str(),
                                     O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (made.valid()) {
    if (::write(made.get(), mine.data(), mine.size()) != static_cast<ssize_t>(mine.size()) ||
        ::fsync(made.get()) != 0)
      return errno_status(errno, path);
    return {};
  }
  if (errno != EEXIST) return errno_status(errno, path);
  SWALE_ASSIGN_OR_RETURN(const io::Descriptor there, root.look(place));
  std::ifstream in(io::descriptor_path(there));
  const std::string found{std::istreambuf_iterator<char>(in), {}};
  if (found == mine) return {};
  return invalid_argument(
      "{}: was served as {}, now as {}; start the servers in the order and number of before, or, if no file "
      "is striped yet, remove {}",
      backing_directory, found.empty() ? "nothing" : found.substr(0, found.find('\n')),
      mine.substr(0, mine.size() - 1), path);
}

Result<std::unique_ptr<IondFiles>> IondFiles::make(const Params& params) {
  assert(params.store != nullptr && params.server < params.servers && params.servers <= kServersMax);
  SWALE_ASSIGN_OR_RETURN(Beneath root, Beneath::open(params.backing_directory));
  return std::unique_ptr<IondFiles>(new IondFiles(params, std::move(root)));
}

size_t IondFiles::open_files() const {
  const MutexLock lock(mutex_);
  return open_.size();
}

void IondFiles::drop(net::Rank owner) {
  std::vector<std::shared_ptr<Open>> gone;  // closed without the mutex
  const MutexLock lock(mutex_);
  for (auto at = open_.begin(); at != open_.end();) {
    if (at->second->owner == owner) {
      gone.push_back(std::move(at->second));
      at = open_.erase(at);
    } else {
      ++at;
    }
  }
}

Result<std::shared_ptr<IondFiles::Open>> IondFiles::find(uint64_t file, net::Rank from) const {
  const MutexLock lock(mutex_);
  const auto found = open_.find(file);
  if (found == open_.end() || found->second->owner != from)
    return invalid_argument("I/O server {}: rank {} has no open file {}", params_.server, from, file);
  return found->second;
}

Result<std::string> IondFiles::answer(IondMethod method, Bytes message, net::Rank from) {
  Result<std::string> told = std::string();
  serve(method, message, from, [&](Result<std::string> answer) { told = std::move(answer); });
  return told;
}

void IondFiles::serve(IondMethod method, Bytes message, net::Rank from, const Reply& reply) {
  if (method == IondMethod::kPing || method == IondMethod::kLeave) return reply(done());
  const Reply named = [&](Result<std::string> answer) {
    if (!answer.ok()) answer = answer.status().with_context(fmt::format("I/O server {}", params_.server));
    reply(std::move(answer));
  };
  const auto request = decode_iond_request(message);
  if (!request.ok()) return named(request.status());
  if (method == IondMethod::kWrite) return write(*request, from, named);
  named(answered(method, *request, from));
}

Result<std::string> IondFiles::answered(IondMethod method, const IondRequest& request, net::Rank from) {
  switch (method) {
    case IondMethod::kOpen:
      return open(request, from);
    case IondMethod::kRemove:
      return remove(request);
    case IondMethod::kRename:
    case IondMethod::kMakeDirectory:
    case IondMethod::kRemoveDirectory:
    case IondMethod::kList:
    case IondMethod::kMakeSymlink:
    case IondMethod::kLink:
    case IondMethod::kSyncDirectory:
      return names(method, request);
    case IondMethod::kLook:
    case IondMethod::kSetAttributes:
    case IondMethod::kReadSymlink:
    case IondMethod::kGetAttribute:
    case IondMethod::kListAttributes:
    case IondMethod::kPutAttribute:
    case IondMethod::kRemoveAttribute:
      return attributes(method, request, from);
    case IondMethod::kSpace:
      return space();
    case IondMethod::kDrain:
      SWALE_RETURN_IF_ERROR(params_.store->drain());
      return done();
    default:
      return use(method, request, from);
  }
}

void IondFiles::write(const IondRequest& request, net::Rank from, const Reply& reply) {
  const auto file = find(request.file, from);
  if (!file.ok()) return reply(file.status());
  Bytes data = request.data;
  if (data.size() != request.length || data.size() > kIondDataBytesMax)
    return reply(corruption("a write of {} bytes has {}; at most {} are allowed", request.length, data.size(),
                            kIondDataBytesMax));
  const auto fill = [&data](MutableBytes out) -> Status {
    data.copy(out.data(), out.size());
    data.remove_prefix(out.size());
    return {};
  };
  params_.store->write((*file)->handle, request.offset, data.size(), fill,
                       [&](const Status& written) { written.ok() ? reply(done()) : reply(written); });
}

// Requests for an open file.
Result<std::string> IondFiles::use(IondMethod method, const IondRequest& request, net::Rank from) {
  SWALE_ASSIGN_OR_RETURN(const std::shared_ptr<Open> file, find(request.file, from));
  tier::Store& store = *params_.store;
  switch (method) {
    case IondMethod::kRead:
      return read(*file, request);
    case IondMethod::kTruncate:
      SWALE_RETURN_IF_ERROR(store.truncate(file->handle, request.offset));
      return done();
    case IondMethod::kSync:
      SWALE_RETURN_IF_ERROR(sync(file.get()));
      return done();
    case IondMethod::kAttributes: {
      IondAnswer answer;
      SWALE_ASSIGN_OR_RETURN(const Target target, target_of(*file));
      SWALE_RETURN_IF_ERROR(describe(target, &answer));
      return encode_iond_answer(answer);
    }
    case IondMethod::kCheck:
      SWALE_RETURN_IF_ERROR(store.deferred_failure(file->handle));
      return done();
    case IondMethod::kAllocate:
      SWALE_RETURN_IF_ERROR(allocate(*file, request.offset, request.length));
      return done();
    case IondMethod::kClose: {
      {
        const MutexLock lock(mutex_);
        open_.erase(request.file);
      }
      SWALE_RETURN_IF_ERROR(store.deferred_failure(file->handle));
      return done();
    }
    default:
      return error(Code::kUnsupported, Scope::kOperation, "method {} is unknown",
                   static_cast<unsigned>(method));
  }
}

Result<std::string> IondFiles::read(const Open& file, const IondRequest& request) {
  if (request.length > kIondDataBytesMax)
    return invalid_argument("a read of {} bytes; at most {} are allowed", request.length, kIondDataBytesMax);
  std::string out = done();
  const size_t head = out.size();
  out.resize(head + request.length);
  SWALE_ASSIGN_OR_RETURN(
      const size_t got,
      params_.store->read(file.handle, request.offset, MutableBytes(out.data() + head, request.length)));
  out.resize(head + got);
  return out;
}

// Of a name that a client has sent.
Result<Beneath::Place> IondFiles::place_of(const std::string& name) const {
  SWALE_RETURN_IF_ERROR(check_iond_name(name));
  return root_.place_of(name);
}

// Of a part, which is called by its file's id, in a directory that is made if it is not there.
Result<Beneath::Place> IondFiles::part_place(uint64_t id, std::string* name) const {
  if (id == 0) return invalid_argument("a file has the id 0");
  *name = fmt::format("{}/{:016x}", kPartsDirectory, id);
  SWALE_ASSIGN_OR_RETURN(const Beneath::Place parts, root_.place_of(kPartsDirectory));
  SWALE_RETURN_IF_ERROR(root_.make_directory(parts, 0700));  // who may use the file is said by server 0
  return root_.place_of(*name);
}

Result<std::string> IondFiles::open(const IondRequest& request, net::Rank from) {
  if (request.striping.servers != params_.servers)
    return invalid_argument("{}: the client stripes over {} servers, there are {}", request.name,
                            request.striping.servers, params_.servers);
  if (open_files() >= params_.open_files_max)
    return error(Code::kResourceExhausted, Scope::kOperation,
                 "{} files are open, as many as iond.open_files allows", params_.open_files_max);
  IondAnswer answer;
  answer.id = request.file;
  const MutexLock lock(names_);
  std::string name(request.name);
  SWALE_ASSIGN_OR_RETURN(Beneath::Place place,
                         has_names() ? place_of(name) : part_place(request.file, &name));
  SWALE_ASSIGN_OR_RETURN(io::Descriptor file, open_name(place, request));
  const auto adopted = params_.store->adopt_file(io::descriptor_path(file));
  if (!adopted.ok()) return adopted.status().with_context(place.full);
  auto opened = std::make_shared<Open>(params_.store, *adopted, std::move(file), name, from);
  struct stat found;
  if (::fstat(opened->path.get(), &found) != 0) return errno_status(errno, place.full);
  answer.inode = found.st_ino;
  if (has_names()) SWALE_RETURN_IF_ERROR(agree_on_stripes(opened->path, name, request.striping, &answer));
  SWALE_ASSIGN_OR_RETURN(answer.size, params_.store->size(opened->handle));
  const MutexLock table(mutex_);
  answer.file = next_++;
  const bool fresh = open_.emplace(answer.file, std::move(opened)).second;
  assert(fresh &&
         answer.file != 0);  // a number is never given again: a late request must not meet another file
  static_cast<void>(fresh);
  return encode_iond_answer(answer);
}

// The file, made if that is wanted. A part is always made: its name comes from the file that is there.
Result<io::Descriptor> IondFiles::open_name(const Beneath::Place& place, const IondRequest& request) const {
  if (!has_names()) {
    SWALE_RETURN_IF_ERROR(root_.make(place, 0600).status());
    return root_.look(place);
  }
  bool made = false;
  if ((request.flags & kIondCreate) != 0) {
    SWALE_RETURN_IF_ERROR(check_iond_mode(place.full, request.mode));
    SWALE_ASSIGN_OR_RETURN(made, root_.make(place, request.mode | owners_bits(FileKind::kFile)));
    if (!made && (request.flags & kIondExclusive) != 0)
      return errno_status(EEXIST, fmt::format("{}: making it", place.full));
  }
  SWALE_ASSIGN_OR_RETURN(io::Descriptor file, root_.look(place));
  if (made) SWALE_RETURN_IF_ERROR(give_mode(file, place.full, request));
  struct stat found;
  if (request.inode != 0 && (::fstat(file.get(), &found) != 0 || found.st_ino != request.inode))
    return errno_status(ESTALE, place.full + ": is another file now");
  return file;
}

// The file's striping is the client's, or becomes it, if the file is empty and has none.
Status IondFiles::agree_on_stripes(const io::Descriptor& file, const std::string& name,
                                   const Striping& wanted, IondAnswer* answer) {
  SWALE_ASSIGN_OR_RETURN(std::optional<Stripes> found, read_stripes(file, name));
  if (!found && params_.servers == 1) return {};
  if (!found) {
    // Its name is in a directory of which nobody else makes files, and only under names_.
    struct stat state;
    if (::fstat(file.get(), &state) != 0) return errno_status(errno, name);
    const auto view = params_.store->view({state.st_dev, state.st_ino});
    if (state.st_size > 0 || (view && view->size > 0))
      return invalid_argument("{}: has content and is not striped: only a single I/O server can serve it",
                              name);
    Stripes fresh{random_number() | 1, wanted};
    fresh.striping.first = static_cast<uint32_t>(fresh.id / 2 % params_.servers);
    const std::string text = text_of(fresh);
    if (::setxattr(io::descriptor_path(file).c_str(), kStripesAttribute, text.data(), text.size(),
                   XATTR_CREATE) != 0)
      return errno_status(errno, fmt::format("{}: its attribute {}", name, kStripesAttribute));
    found = fresh;
  }
  SWALE_RETURN_IF_ERROR(expect_stripes(name, *found, wanted));
  assert(found->striping.check().ok() && found->id != 0);  // as read_stripes has seen to it
  answer->id = found->id;
  answer->first = found->striping.first;
  return {};
}

}  // namespace swale::iond
