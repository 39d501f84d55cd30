#include "bench/net/large_opening.h"

#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/coding.h"
#include "base/process_identity.h"
#include "bench/arguments.h"
#include "bench/check_status.h"
#include "bench/counted_new.h"
#include "bench/measure.h"
#include "net/fabric/address_book.h"
#include "net/fabric/tls_fabric.h"
#include "net/fabric/ucx_fabric.h"
#include "net/job/job.h"
#include "net/job/job_meeting.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/rendezvous_file.h"

namespace swale::bench {
namespace {

using net::Rank;

constexpr size_t kWordBytes = 8;

// What a rank gives when the ranks meet is another node's if its second word differs
// (net/job/job_meeting.cc).
void change_node(char* introduction, int32_t node) {
  char* const word = introduction + kWordBytes;
  put_u64(word, get_u64(word) + static_cast<uint64_t>(node) * 0x9e3779b97f4a7c15);
}

// A row of the same length as the own one of `bytes`, with an address that nobody has.
std::string row_of(Rank rank, size_t bytes) {
  const auto row = [&](size_t length) {
    return net::encode_address(rank, host_name(), std::string(length, static_cast<char>('a' + rank % 26)));
  };
  size_t length = bytes - row(0).size();
  while (row(length).size() > bytes) --length;
  return row(length);
}

// The other ranks behind a communicator's allgather. They give what rank 0 gives, but for their nodes and
// addresses.
class Others {
 public:
  explicit Others(const net::NodeMap& nodes) : nodes_(nodes) {}

  // Calls come in the order of net/meeting/comm_bootstrap.cc: the lengths of the introductions, these in
  // pieces; the lengths of the rows, and where these do not fit into the buffer the numbers of files; the
  // rows in pieces; who has failed.
  int allgather(const char* send, char* receive, size_t bytes) {
    ++calls;
    for (Rank rank = 0; rank < nodes_.ranks(); ++rank)
      std::memcpy(receive + static_cast<size_t>(rank) * bytes, send, bytes);
    if (longest_ == 0) {  // lengths
      longest_ = get_u64(send);
      offset_ = 0;
      numbers_ =
          meets_ == 1 && kMiB / static_cast<size_t>(nodes_.ranks()) / kWordBytes * kWordBytes < longest_;
      if (numbers_) file_bytes = longest_ * static_cast<size_t>(nodes_.ranks());
      return 0;
    }
    if (numbers_ && offset_ == 0 && !std::exchange(told_numbers_, true)) {
      std::memset(receive + bytes, 0, static_cast<size_t>(nodes_.ranks() - 1) * bytes);
      return 0;
    }
    if (offset_ == longest_) return 0;  // nobody has failed
    for (Rank rank = 1; rank < nodes_.ranks(); ++rank)
      play(rank, receive + static_cast<size_t>(rank) * bytes, bytes);
    offset_ += bytes;
    if (offset_ == longest_ && meets_ == 0) {
      longest_ = 0;
      ++meets_;
    }
    return 0;
  }

  uint64_t calls = 0;
  uint64_t file_bytes = 0;

 private:
  void play(Rank rank, char* piece, size_t bytes) {
    // Nobody is looked up: of a row's contents its beginning is enough, where its rank and checksum stand.
    if (meets_ == 1 && offset_ < 2 * kWordBytes) {
      row_of(rank, longest_).copy(piece, bytes, offset_);
    } else if (meets_ == 0 && offset_ <= kWordBytes && offset_ + bytes > kWordBytes) {
      change_node(piece - offset_, nodes_.seat(rank).node);
    }
  }

  const net::NodeMap& nodes_;
  size_t longest_ = 0;  // of what is gathered; 0: lengths are next
  size_t offset_ = 0;
  int meets_ = 0;  // 1: the ranks have met
  bool numbers_ = false;
  bool told_numbers_ = false;
};

struct Opened {
  uint64_t peak_bytes = 0;
  uint64_t kept_bytes = 0;
  uint64_t fabric_bytes = 0;  // UCX's own, in C
};

uint64_t heap_bytes() {
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

Opened open_job(const std::function<std::unique_ptr<net::Bootstrap>()>& bootstrap) {
  const uint64_t heap = heap_bytes(), before = reset_peak();
  auto job = net::Job::open(bootstrap(), {});
  check(job.status());
  Opened opened;
  opened.peak_bytes = allocations().peak_bytes - before;
  opened.kept_bytes = allocations().bytes - before;
  opened.fabric_bytes = std::max(heap_bytes(), heap + opened.kept_bytes) - heap - opened.kept_bytes;
  return opened;
}

// ---- by a rendezvous directory

// Finds out what a rank gives.
class Listener final : public net::Bootstrap {
 public:
  explicit Listener(int32_t size) : size_(size) {}
  Rank rank() const override { return 0; }
  int32_t size() const override { return size_; }
  Result<std::string> ask(Bytes mine, net::Survey*) override {
    heard = mine;
    return Status::out_of_memory();
  }
  Result<std::shared_ptr<const net::AddressBook>> publish(Bytes, const net::NodeMap&) override {
    return Status::out_of_memory();
  }
  std::string heard;

 private:
  const int32_t size_;
};

net::RendezvousOptions meeting_in(const std::string& folder, int32_t size) {
  net::RendezvousOptions options;
  options.directory = folder;
  options.job_id = "large";
  options.node_id = "node0";
  options.size = size;
  options.leave_wait = 0;
  return options;
}

constexpr double kPatienceS = 120;

// All ranks but 0, in a process of their own: they say hello, give to both rounds, and end.
void play_others(const std::string& path, const net::NodeMap& nodes, size_t row_bytes) {
  using net::RendezvousKind;
  Listener listener(nodes.ranks());
  static_cast<void>(net::meet(listener, {}));
  net::RendezvousDirectory answers(path, "of-nobody");
  check(answers.open());
  uint64_t session = 0;
  const auto append = [&](RendezvousKind kind, uint32_t round, const std::function<std::string(Rank)>& body) {
    for (int32_t node = 0; node < nodes.nodes(); ++node) {
      std::string bytes;
      for (int32_t local = 0; local < nodes.ranks_on(node); ++local) {
        const Rank rank = nodes.rank_at(node, local);
        const auto nonce = static_cast<uint64_t>(rank) + 1;
        if (rank != 0) bytes += net::encode_record({kind, rank, nonce, session, round, body(rank)});
      }
      FILE* file = std::fopen(fmt::format("{}/node-n{}", path, node).c_str(), "ab");
      if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
          std::fclose(file) != 0)
        die("writing to " + path);
    }
  };
  append(RendezvousKind::kHello, 0, [](Rank) { return std::string("host somewhere process 12345"); });
  const auto wait_for = [&](RendezvousKind kind) {
    const double end = now_s() + kPatienceS;
    for (bool came = false; !came; std::this_thread::sleep_for(std::chrono::milliseconds(1))) {
      if (now_s() > end) die("rank 0 does not answer in " + path);
      check(answers.scan_answers([&](const net::RendezvousRecord& record) {
        session = record.session;
        came = came || record.kind == kind;
      }));
    }
  };
  wait_for(RendezvousKind::kWelcome);
  append(RendezvousKind::kGather, 0, [&](Rank rank) {
    std::string introduction = listener.heard;
    change_node(introduction.data(), nodes.seat(rank).node);
    return introduction;
  });
  wait_for(RendezvousKind::kAnswer);
  append(RendezvousKind::kGather, 1, [&](Rank rank) { return row_of(rank, row_bytes); });
}

Opened open_by_rendezvous(const net::NodeMap& nodes, size_t row_bytes) {
  char folder[] = "/tmp/swale_large_job_XXXXXX";
  if (::mkdtemp(folder) == nullptr) die("mkdtemp");
  const std::string path = fmt::format("{}/swale-{}-large", folder, ::geteuid());
  if (::mkdir(path.c_str(), 0700) != 0) die("mkdir " + path);
  const pid_t parent = ::getpid();
  const pid_t others = ::fork();
  if (others < 0) die("fork");
  if (others == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) std::_Exit(1);
    play_others(path, nodes, row_bytes);
    std::_Exit(0);
  }
  const Opened opened = open_job([&] {
    auto bootstrap = net::rendezvous_bootstrap(meeting_in(folder, nodes.ranks()));
    check(bootstrap.status());
    return *std::move(bootstrap);
  });
  int ended = 0;
  if (::waitpid(others, &ended, 0) != others || ended != 0) die("the process of the other ranks has failed");
  remove_all(folder);
  return opened;
}

void add(nlohmann::json* line, const std::string& name, const Opened& opened) {
  (*line)[name + "_peak_bytes"] = opened.peak_bytes;
  (*line)[name + "_kept_bytes"] = opened.kept_bytes;
  (*line)[name + "_fabric_bytes"] = opened.fabric_bytes;
}

}  // namespace

void add_job_opening(nlohmann::json* line, const net::NodeMap& nodes) {
  net::register_fabric(net::tls_fabric());
  net::register_fabric(net::ucx_fabric());
  Others others(nodes);
  const Opened by_communicator = open_job([&] {
    net::CommCallbacks callbacks;
    callbacks.size = nodes.ranks();
    callbacks.allgather = [&](const void* send, void* receive, size_t bytes) {
      return others.allgather(static_cast<const char*>(send), static_cast<char*>(receive), bytes);
    };
    return net::callback_bootstrap(callbacks);
  });
  constexpr size_t kRowBytes = 300;
  const Opened by_rendezvous = open_by_rendezvous(nodes, kRowBytes);
  // Each rank of the node has its part of the file that they share.
  const uint64_t share = others.file_bytes / static_cast<uint64_t>(nodes.ranks_on(0));
  add(line, "job_open_communicator", by_communicator);
  (*line)["job_open_communicator_shared_bytes"] = share;
  (*line)["job_open_communicator_calls"] = others.calls;
  add(line, "job_open_rendezvous", by_rendezvous);
  (*line)["job_open_bytes"] = std::max(by_communicator.peak_bytes + share, by_rendezvous.peak_bytes);
}

}  // namespace swale::bench
