#include "bench/tier/engine_cost.h"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "tier/engine/engine.h"

namespace swale::tierbench {
namespace {

using tier::Action;

// The paper's tree: one node an extent, offset and length in the file, and the place in the log.
class AvlTree {
 public:
  void insert(uint64_t offset, uint32_t length, uint64_t address) {
    nodes_.push_back({offset, address, length, 1, kNone, kNone});
    root_ = insert_at(root_, static_cast<uint32_t>(nodes_.size() - 1));
  }
  template <class Visit>
  void walk(const Visit& visit) const {
    std::vector<uint32_t> path;
    for (uint32_t at = root_; at != kNone || !path.empty();) {
      for (; at != kNone; at = nodes_[at].left) path.push_back(at);
      at = path.back();
      path.pop_back();
      visit(nodes_[at].offset, nodes_[at].address);
      at = nodes_[at].right;
    }
  }

 private:
  static constexpr uint32_t kNone = ~uint32_t{0};
  struct Node {
    uint64_t offset;
    uint64_t address;
    uint32_t length;
    int32_t height;
    uint32_t left;
    uint32_t right;
  };

  int32_t height(uint32_t at) const { return at == kNone ? 0 : nodes_[at].height; }
  void update(uint32_t at) {
    nodes_[at].height = 1 + std::max(height(nodes_[at].left), height(nodes_[at].right));
  }
  uint32_t rotate_right(uint32_t at) {
    const uint32_t up = nodes_[at].left;
    nodes_[at].left = nodes_[up].right;
    nodes_[up].right = at;
    update(at), update(up);
    return up;
  }
  uint32_t rotate_left(uint32_t at) {
    const uint32_t up = nodes_[at].right;
    nodes_[at].right = nodes_[up].left;
    nodes_[up].left = at;
    update(at), update(up);
    return up;
  }
  uint32_t insert_at(uint32_t at, uint32_t node) {
    if (at == kNone) return node;
    if (nodes_[node].offset < nodes_[at].offset) {
      const uint32_t child = insert_at(nodes_[at].left, node);
      nodes_[at].left = child;
    } else {
      const uint32_t child = insert_at(nodes_[at].right, node);
      nodes_[at].right = child;
    }
    update(at);
    const int32_t balance = height(nodes_[at].left) - height(nodes_[at].right);
    if (balance > 1) {
      const uint32_t left = nodes_[at].left;
      if (height(nodes_[left].left) < height(nodes_[left].right)) nodes_[at].left = rotate_left(left);
      return rotate_right(at);
    }
    if (balance < -1) {
      const uint32_t right = nodes_[at].right;
      if (height(nodes_[right].right) < height(nodes_[right].left)) nodes_[at].right = rotate_right(right);
      return rotate_left(at);
    }
    return at;
  }

  std::vector<Node> nodes_;
  uint32_t root_ = kNone;
};

// Of this thread's processor time: other programs on the machine do not count.
double thread_cpu_now() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

template <class Work>
double seconds_of(const Work& work) {
  const double begin = thread_cpu_now();
  work();
  return thread_cpu_now() - begin;
}

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "bench_tier: cost of the engine: %s\n", why);
  std::abort();
}

uint64_t mix(uint64_t sum, uint64_t offset, uint64_t address) {
  return (sum ^ (offset + 3 * address)) * 0x9e3779b97f4a7c15;
}

}  // namespace

double engine_ns_per_request(const tier::Options& options, const Program& program, size_t depth) {
  tier::Engine engine(options);
  const auto file = engine.open_file(1, 0, 0);
  struct Operation {
    Action::Kind kind;
    uint32_t id;
  };
  // A segment that becomes free lets as many writers append as it has space for, and several become free at
  // once.
  constexpr size_t kRing = 8192;
  std::vector<Operation> under_way(kRing);
  size_t first = 0;
  size_t end = 0;
  std::string header(tier::kRecordHeaderBytes, '\0');
  Nanos now = 0;
  uint64_t acknowledged = 0;
  const auto collect = [&] {
    while (const Action* action = engine.next_action()) {
      if (action->kind == Action::Kind::kAcknowledge) ++acknowledged;
      if (action->kind <= Action::Kind::kRelease) continue;
      if (action->kind == Action::Kind::kAppend)
        tier::encode_record_header(action->record, options.log_id, header);
      if (end - first == kRing) give_up("more actions are under way than the driver has space for");
      under_way[end++ % kRing] = {action->kind, action->id};
    }
  };
  const auto complete_one = [&] {
    const Operation operation = under_way[first++ % kRing];
    engine.completed(operation.kind, operation.id, Code::kOk, now);
    collect();
  };
  const double spent = seconds_of([&] {
    for (const Request& request : program.requests) {
      now += 1'000'000;
      engine.write(1, file, request.offset, request.length, now);
      collect();
      while (end - first > depth) complete_one();
    }
    while (first < end) complete_one();
  });
  if (acknowledged != program.requests.size() || !engine.idle()) give_up("requests are not finished");
  return spent * 1e9 / static_cast<double>(program.requests.size());
}

OrderCost order_cost(const Program& program) {
  OrderCost cost;
  const auto& requests = program.requests;
  tier::RequestStream stream(128);
  uint64_t random = 0;
  cost.group_s = seconds_of([&] {
    for (const Request& request : requests)
      if (const auto sum = stream.add(0, request.offset, request.length)) random += *sum;
  });
  uint64_t sums[3] = {random, random, random};
  cost.map_s = seconds_of([&] {
    tier::ExtentMap map;
    uint64_t address = 64;
    for (const Request& request : requests) {
      map.insert({request.offset, address, request.length, tier::ExtentState::kDirty});
      address += 64 + request.length;
    }
    map.visit(0, tier::kFileBytesMax,
              [&](const tier::Extent& extent) { sums[0] = mix(sums[0], extent.offset, extent.address); });
    cost.map_bytes_per_extent = static_cast<double>(map.memory_bytes()) / static_cast<double>(map.size());
  });
  cost.avl_s = seconds_of([&] {
    AvlTree tree;
    uint64_t address = 64;
    for (const Request& request : requests) {
      tree.insert(request.offset, request.length, address);
      address += 64 + request.length;
    }
    tree.walk([&](uint64_t offset, uint64_t at) { sums[1] = mix(sums[1], offset, at); });
  });
  cost.hash_sort_s = seconds_of([&] {
    std::unordered_map<uint64_t, std::pair<uint64_t, uint32_t>> table;
    uint64_t address = 64;
    for (const Request& request : requests) {
      table[request.offset] = {address, request.length};
      address += 64 + request.length;
    }
    std::vector<std::pair<uint64_t, uint64_t>> sorted;
    sorted.reserve(table.size());
    for (const auto& [offset, place] : table) sorted.emplace_back(offset, place.first);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& [offset, at] : sorted) sums[2] = mix(sums[2], offset, at);
  });
  cost.checksum = sums[0];
  cost.agree = sums[0] == sums[1] && sums[0] == sums[2];
  return cost;
}

}  // namespace swale::tierbench
