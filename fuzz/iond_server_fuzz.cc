// An I/O server among hostile clients: two ranks of the job, which have its key, send any request in any
// order, well-formed or not. An honest client beside them has a file of its own: what it has written is what
// it reads, and its file has the size that it gave it. The server is a real one, with a tier's store on real
// files; it is kept from input to input, without the files. Requests that name the honest client's file are
// left out: all clients of a job may change all files.
//
// Input: 1 byte that says which server of how many, then records of 1 byte that says what, and what that
// takes (hostile_input.h).
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/fuzz_input.h"
#include "fuzz/hostile_input.h"
#include "fuzz/target.h"
#include "io/posix_device.h"
#include "iond/iond_files.h"
#include "iond/iond_messages.h"

namespace swale::iond_server_fuzz {
namespace {

using namespace swale::iond;
using fuzz::HostileInput;
using fuzz::require;

constexpr net::Rank kHonest = 1;
constexpr net::Rank kHostile = 2;  // and the next one
constexpr uint64_t kHonestFile = 0x9c7d41a2e35bf017;
constexpr const char* kHonestName = "the honest client's";
constexpr size_t kStepsMax = 200;
constexpr size_t kOpenFilesMax = 64;

// The folder of all servers, beside the program: /tmp may be without attributes. Removed at the end.
class Folder {
 public:
  Folder() {
    path_ = (std::filesystem::current_path() / "iond-server-fuzz-XXXXXX").string();
    require(::mkdtemp(path_.data()) != nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class Server {
 public:
  Server(const std::string& root, uint32_t server, uint32_t servers) : server_(server), servers_(servers) {
    backing_ = fmt::format("{}/disk{}of{}", root, server, servers);
    std::filesystem::create_directories(backing_ + "/folder");
    tier::StoreOptions options;
    options.ssd_directory = fmt::format("{}/ssd{}of{}", root, server, servers);
    options.backing_directory = backing_;
    options.engine.segment_count = 4;
    options.engine.segment_bytes = 256 * kKiB;
    options.engine.queue_slots = 8;
    options.queue_slots = 16;
    options.slot_bytes = 32 * kKiB;
    auto store = tier::Store::open(device_, options);
    require(store.ok());
    store_ = *std::move(store);
    auto files = IondFiles::make({.store = store_.get(),
                                  .backing_directory = backing_,
                                  .server = server,
                                  .servers = servers,
                                  .open_files_max = kOpenFilesMax});
    require(files.ok());
    files_ = *std::move(files);
  }

  void begin() {
    content_.clear();
    IondRequest request = named(kHonestName);
    request.flags = kIondCreate | kIondExclusive;
    honest_ = decode_iond_answer(*must(IondMethod::kOpen, request))->file;
  }
  void step(HostileInput* in) {
    switch (const uint8_t what = in->byte(); what % 8) {
      case 0:
        static_cast<void>(send(static_cast<IondMethod>(in->byte() % (kIondMethods + 2)),
                               std::string(in->text()), kHostile));
        break;
      case 1:
        write_honest(in->byte());
        break;
      case 2:
        check_honest();
        break;
      default:
        made(in, kHostile + what / 128);
    }
  }
  void finish() {
    check_honest();
    for (const net::Rank rank : {kHonest, kHostile, kHostile + 1}) files_->drop(rank);
    require(files_->open_files() == 0);
    IondRequest gone = named(kHonestName);
    static_cast<void>(must(IondMethod::kRemove, gone));
    remove_all();
  }

 private:
  IondRequest named(std::string_view name) const {
    IondRequest request;
    request.name = name;
    request.file = kHonestFile;
    request.striping = {kStripeBytesMin, servers_, 0};
    return request;
  }
  Result<std::string> must(IondMethod method, const IondRequest& request) {
    Result<std::string> answer = files_->answer(
        method, encode_iond_request(request, request.data.size()) + std::string(request.data), kHonest);
    require(answer.ok());
    return answer;
  }

  void write_honest(uint8_t where) {
    const std::string bytes = fmt::format("honest {}", where);
    IondRequest request = named("");
    request.file = honest_;
    request.offset = where * 7;
    request.length = bytes.size();
    request.data = bytes;
    static_cast<void>(must(IondMethod::kWrite, request));
    content_.resize(std::max<size_t>(content_.size(), request.offset + bytes.size()));
    content_.replace(request.offset, bytes.size(), bytes);
  }
  void check_honest() {
    IondRequest request = named("");
    request.file = honest_;
    require(decode_iond_answer(*must(IondMethod::kAttributes, request))->size == content_.size());
    request.length = 4096;
    const auto answer = must(IondMethod::kRead, request);
    require(decode_iond_answer(*answer)->data == content_);
  }

  // A request with each of its numbers and names taken from the input, most of them such that something
  // happens.
  void made(HostileInput* in, net::Rank from) {
    static constexpr std::string_view kNames[] = {"a", "b", "folder/c", "folder", "..", "a/b", "user.a"};
    IondRequest request;
    const auto method = static_cast<IondMethod>(in->byte() % kIondMethods);
    const uint8_t form = in->byte();
    const size_t open = handles_.size();
    request.file = open > 0 && form % 4 != 0 ? handles_[form / 4 % open] : in->number();
    request.offset = in->number();
    request.length = in->number();
    request.flags = in->byte();
    if (form % 64 == 5) request.inode = in->number();
    request.striping = {form % 16 == 1 ? in->number() : kStripeBytesMin,
                        form % 16 == 2 ? in->byte() : servers_, 0};
    const uint8_t name = in->byte();
    request.name = name % 8 == 7 ? in->text() : kNames[name % 8];
    request.other = name / 8 % 8 == 7 ? in->text() : kNames[name / 8 % 8];
    request.mode = form % 32 == 4                         ? static_cast<uint32_t>(in->number())
                   : method == IondMethod::kMakeDirectory ? 0755
                                                          : 0644;
    if (method == IondMethod::kSetAttributes) request.modified_ns = static_cast<int64_t>(in->number());
    if (method == IondMethod::kList && form % 32 != 3) request.length = kIondDataBytesMax;
    std::string data;
    if (method == IondMethod::kPutAttribute) data.assign(name, 'v');
    if (method == IondMethod::kAllocate) request.length %= 4 * kMiB;
    if (method == IondMethod::kWrite) {
      // A write has as many bytes as it says, or is refused.
      if (form % 32 != 3) request.length = std::min<uint64_t>(request.length, kIondDataBytesMax);
      data.assign(std::min<uint64_t>(request.length, kIondDataBytesMax + 1), static_cast<char>(name));
    }
    const auto answer = send(method, encode_iond_request(request, data.size()) + data, from);
    if (method == IondMethod::kList && answer.ok())
      require(decode_iond_entries(decode_iond_answer(*answer)->data, request.other).ok());
    if (method == IondMethod::kOpen && answer.ok()) handles_.push_back(decode_iond_answer(*answer)->file);
  }
  Result<std::string> send(IondMethod method, const std::string& message, net::Rank from) {
    if (message.find(kHonestName) != std::string::npos || fuzz::names_secret(message, kHonestFile))
      return invalid_argument("not sent");
    int answers = 0;
    Result<std::string> told = std::string();
    files_->serve(method, message, from, [&](Result<std::string> answer) {
      ++answers;
      told = std::move(answer);
    });
    require(answers == 1);
    require(files_->open_files() <= kOpenFilesMax);
    if (told.ok()) require(told->size() <= kIondDataBytesMax + kIondAnswerBytesMax);
    if (!told.ok()) require(encode_iond_failure(told.status()).size() <= kIondAnswerBytesMax);
    return told;
  }

  // What hostile clients have made, by requests of their own.
  void remove_all() {
    handles_.clear();
    std::vector<std::string> names, folders;
    for (const auto& each : std::filesystem::recursive_directory_iterator(backing_)) {
      const std::string name = each.path().lexically_relative(backing_).string();
      if ((each.is_symlink() || each.is_regular_file()) && !name.starts_with(tier::kPrivateDirectory))
        names.push_back(name);
      if (!each.is_symlink() && each.is_directory() && check_iond_name(name).ok()) folders.push_back(name);
    }
    for (const std::string& name : names) {
      IondRequest request = named(name);
      if (server_ != kNamesServer) request.file = std::stoull(name.substr(name.find('/') + 1), nullptr, 16);
      static_cast<void>(must(IondMethod::kRemove, request));
    }
    if (server_ != kNamesServer) return;
    std::ranges::sort(folders, std::ranges::greater());  // what is inside first
    for (const std::string& name : folders)
      static_cast<void>(must(IondMethod::kRemoveDirectory, named(name)));
    IondRequest folder = named("folder");
    folder.mode = 0755;
    static_cast<void>(must(IondMethod::kMakeDirectory, folder));
  }

  const uint32_t server_, servers_;
  std::string backing_;
  io::PosixDevice device_;
  std::unique_ptr<tier::Store> store_;
  std::unique_ptr<IondFiles> files_;
  uint64_t honest_ = 0;
  std::string content_;
  std::vector<uint64_t> handles_;  // of hostile clients
};

}  // namespace

SWALE_FUZZ_TARGET(iond_server_fuzz) {
  static const Folder folder;
  static Server servers[] = {{folder.path(), 0, 1}, {folder.path(), 0, 2}, {folder.path(), 1, 2}};
  HostileInput input(fuzz::as_bytes(data, size));
  Server& server = servers[input.byte() % 3];
  server.begin();
  for (size_t steps = 0; !input.empty() && steps < kStepsMax; ++steps) server.step(&input);
  server.finish();
  return 0;
}

}  // namespace swale::iond_server_fuzz
