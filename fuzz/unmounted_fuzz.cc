// A hostile program of the node's user, in a tree that is mounted nowhere: any requests in any order,
// well-formed or not, as this user or as another one. What stands beside the backing, where a link leads, and
// the job's own folder in it keep what they have; a refusal passes no descriptor. The tree is a real one, on
// real files; it is made anew each kInputsOfTree inputs.
//
// Input: records of 1 byte that says what, and what that takes:
//   'r' bytes '\n'                        a request as it comes (its head; paths end at the line's end)
//   else: call, flags, user, two paths    a well-formed one (kFlags, kPieces)
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "fs/job/stand_ins.h"
#include "fs/job/unmounted_calls.h"
#include "fuzz/fuzz_input.h"
#include "fuzz/target.h"
#include "io/posix_device.h"
#include "meta/store/job_names.h"
#include "net/job/job.h"
#include "net/meeting/bootstrap.h"

namespace swale::fs::unmounted_fuzz {
namespace {

using fuzz::require;

constexpr size_t kInputsOfTree = 200;
constexpr size_t kStepsMax = 100;
constexpr const char* kPieces[] = {"a", "b", "d", "link", "out", ".", "..", ".swale", "", "test"};
constexpr uint32_t kFlags[] = {O_RDONLY,
                               O_WRONLY | O_CREAT,
                               O_RDWR | O_CREAT | O_TRUNC,
                               O_RDWR | O_CREAT | O_EXCL,
                               O_WRONLY | O_APPEND,
                               O_RDONLY | O_DIRECTORY,
                               O_RDONLY | O_NOFOLLOW,
                               O_RDWR,
                               O_RDONLY | O_PATH,
                               O_TMPFILE | O_RDWR,
                               O_RDWR | O_SYNC | O_CREAT,
                               1,
                               2,
                               ~0u};

class Tree {
 public:
  Tree() {
    root_ = (std::filesystem::current_path() / "unmounted-fuzz-XXXXXX").string();
    require(::mkdtemp(root_.data()) != nullptr);
    std::filesystem::create_directories(root_ + "/backing/d");
    std::ofstream(root_ + "/outside") << kOutside;
    std::ofstream(root_ + "/backing/a") << "on the backing";
    std::filesystem::create_symlink("../outside", root_ + "/backing/link");
    std::filesystem::create_symlink("..", root_ + "/backing/out");
    open_job();
    io::PosixOptions links;
    links.links = io::PosixOptions::Links::kNone;
    auto backing = io::PosixDevice(links).anchored(root_ + "/backing");
    require(backing.ok());
    backing_ = std::move(*backing);
    JobFsOptions options;
    options.backing = root_ + "/backing";
    options.job = "test";
    options.state_folder = root_ + "/state";
    options.logs.memory_directory = root_ + "/memory";
    options.logs.spill_directory = root_ + "/spill";
    options.logs.memory_bytes = 32 * kMiB;
    options.logs.shape.node = "here";
    options.drains_alone = false;
    auto fs = JobFs::open(names_->client(), device_, device_, *backing_, options);
    require(fs.ok());
    fs_ = std::move(*fs);
    auto stand_ins = StandIns::open(*fs_, root_ + "/stand-ins", 64);
    require(stand_ins.ok());
    stand_ins_ = std::move(*stand_ins);
    calls_ = std::make_unique<UnmountedCalls>(*fs_, *stand_ins_);
  }
  ~Tree() {
    calls_.reset();
    stand_ins_.reset();
    fs_.reset();
    require(names_->close().ok());
    names_.reset();
    require(job_->close().ok());
    std::filesystem::remove_all(root_);
  }

  void serve(const UnmountedRequest& request, size_t bytes, uid_t user) {
    if (!UnmountedCalls::is_whole(request, bytes)) return;
    const ucred who = {::getpid(), user, user};
    const UnmountedCalls::Answer answer = calls_->serve(request, who);
    require(answer.said.error >= 0 && answer.said.error < 4096);
    if (answer.said.error != 0) require(!answer.passed.valid());
    if (!answer.passed.valid()) return;
    struct stat found;
    require(::fstat(answer.passed.get(), &found) == 0 && S_ISREG(found.st_mode));
    static_cast<void>(::write(answer.passed.get(), "hostile", 7));
  }
  void check() const {
    std::ifstream outside(root_ + "/outside");
    std::string text;
    std::getline(outside, text);
    require(text == kOutside);
    struct stat found;
    require(::stat((root_ + "/outside").c_str(), &found) == 0 && found.st_size == sizeof(kOutside) - 1);
    require(::stat((root_ + "/backing/.swale").c_str(), &found) == 0 && S_ISDIR(found.st_mode));
    require((found.st_mode & 077) == 0);
  }

 private:
  static constexpr char kOutside[] = "nobody may change this";

  void open_job() {
    net::JobOptions of_job;
    of_job.transport = "loopback";
    of_job.posting = "direct";
    auto job = net::Job::open(net::solo_bootstrap(), of_job);
    require(job.ok());
    job_ = std::move(*job);
    auto names = meta::JobNames::open(*job_, device_, root_ + "/names", {});
    require(names.ok());
    names_ = std::move(*names);
  }

  std::string root_;
  io::PosixDevice device_;
  std::unique_ptr<io::Device> backing_;
  std::unique_ptr<net::Job> job_;
  std::unique_ptr<meta::JobNames> names_;
  std::unique_ptr<JobFs> fs_;
  std::unique_ptr<StandIns> stand_ins_;
  std::unique_ptr<UnmountedCalls> calls_;
};

uint8_t take_byte(Bytes* input) {
  if (input->empty()) return 0;
  const auto byte = static_cast<uint8_t>(input->front());
  input->remove_prefix(1);
  return byte;
}

// 1 byte says how many pieces; above 200 a text as it comes.
std::string take_path(Bytes* input) {
  const uint8_t pieces = take_byte(input);
  if (pieces > 200) return fuzz::take_line(input).substr(0, kUnmountedPathMax);
  std::string path;
  for (int i = 0; i < pieces % 5; ++i) {
    if (i > 0) path += '/';
    path += kPieces[take_byte(input) % std::size(kPieces)];
  }
  return path;
}

void put_paths(UnmountedRequest* request, const std::string& path, const std::string& other) {
  request->path_bytes = static_cast<uint32_t>(path.size());
  request->other_bytes = static_cast<uint32_t>(other.size());
  path.copy(request->paths, path.size());
  other.copy(request->paths + path.size(), other.size());
}

void step(Tree& tree, Bytes* input) {
  const uint8_t what = take_byte(input);
  UnmountedRequest request;
  if (what == 'r') {
    const std::string line = fuzz::take_line(input);
    const size_t bytes = std::min(line.size(), sizeof(request));
    std::memcpy(static_cast<void*>(&request), line.data(), bytes);
    return tree.serve(request, bytes, ::getuid());
  }
  request.call = static_cast<UnmountedCall>(what % 22);
  request.flags = kFlags[take_byte(input) % std::size(kFlags)];
  const uint8_t bits = take_byte(input);
  request.mode = bits * 8u;
  request.what = bits;
  request.size = bits % 2 == 0 ? bits * 512u : ~uint64_t{0} >> (bits % 8);
  request.user = request.group = bits;
  request.accessed_ns = request.modified_ns = bits % 4 == 3 ? INT64_MIN : bits * int64_t{1'000'000'007};
  const std::string path = take_path(input);
  put_paths(&request, path, take_path(input));
  constexpr uid_t kNobody = 65534;
  tree.serve(request, kUnmountedHeadBytes + request.path_bytes + request.other_bytes,
             bits % 16 == 1 ? kNobody : ::getuid());
}

}  // namespace

SWALE_FUZZ_TARGET(unmounted_fuzz) {
  static std::unique_ptr<Tree> tree;
  static size_t inputs = 0;
  if (inputs++ % kInputsOfTree == 0) {
    tree.reset();
    tree = std::make_unique<Tree>();
  }
  Bytes input = fuzz::as_bytes(data, size);
  for (size_t steps = 0; !input.empty() && steps < kStepsMax; ++steps) step(*tree, &input);
  tree->check();
  return 0;
}

}  // namespace swale::fs::unmounted_fuzz
