// impact-query: which target atoms ended with the highest energy, and where did each come from? One process,
// which knows nothing but the path of the massive directory.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "answer.h"
#include "arguments.h"
#include "measure.h"
#include "reader.h"

namespace {

using impact::Answer;
using impact::AtomState;
using impact::Cost;
using impact::DumpRecord;
using impact::Reader;

// The `k` target atoms with the highest kinetic energy in the last epoch, highest first. Atoms of the
// projectile may be among the fastest: then more are asked for.
std::vector<DumpRecord> fastest_atoms(const Reader& reader, size_t k) {
  for (size_t wanted = k + 2;; wanted *= 2) {
    std::vector<DumpRecord> atoms = reader.fastest(reader.epochs() - 1, wanted);
    const bool all = atoms.size() < wanted;
    std::erase_if(atoms, [](const DumpRecord& atom) { return atom.state.type != impact::kTargetType; });
    if (atoms.size() < k && !all) continue;
    atoms.resize(std::min(atoms.size(), k));
    return atoms;
  }
}

// The same by a scan, for comparison.
std::vector<DumpRecord> scan_for_fastest(const Reader& reader, size_t k) {
  const auto faster = [](const DumpRecord& a, const DumpRecord& b) {
    return a.state.kinetic_energy > b.state.kinetic_energy;
  };
  std::vector<DumpRecord> heap;  // the slowest of the best is at the front
  reader.scan(reader.epochs() - 1, [&](int64_t, int64_t id, const AtomState& state) {
    if (state.type != impact::kTargetType) return;
    if (heap.size() == k && state.kinetic_energy <= heap.front().state.kinetic_energy) return;
    if (heap.size() == k) {
      std::pop_heap(heap.begin(), heap.end(), faster);
      heap.pop_back();
    }
    heap.push_back({id, state});
    std::push_heap(heap.begin(), heap.end(), faster);
  });
  std::sort_heap(heap.begin(), heap.end(), faster);
  return heap;
}

Answer trajectories(const Reader& reader, const std::vector<int64_t>& ids) {
  Answer answer;
  if (ids.size() == 1) {
    answer = reader.trajectory(ids.front());
  } else {
    reader.get_many(ids, [&](int64_t, int64_t id, const AtomState& state) { answer.push_back({id, state}); });
  }
  impact::sort_answer(answer);
  return answer;
}

// `query` is called with a reader: once cold, together with opening it, and then warm, on the open reader.
template <typename Query>
Cost measure(const std::string& path, Query query) {
  Cost cost;
  impact::evict(path);
  const uint64_t storage_before = impact::storage_bytes_read();
  const impact::Stopwatch stopwatch;
  const Reader reader(path);
  query(reader);
  cost.cold_s = stopwatch.seconds();
  cost.storage_bytes = impact::storage_bytes_read() - storage_before;
  cost.bytes = reader.counted("read.bytes");
  cost.reads = reader.counted("read.requests");
  cost.warm_s = impact::warm_seconds([&] { query(reader); });
  return cost;
}

// The whole last frame, as DumpRecords, for the background of the picture.
void write_last_frame(const Reader& reader, const std::string& path) {
  Answer frame;
  reader.scan(reader.epochs() - 1, [&](int64_t, int64_t id, const AtomState& state) {
    frame.push_back({id, state});
  });
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(frame.data()),
             static_cast<std::streamsize>(frame.size() * sizeof(DumpRecord)));
  file.close();
  if (!file) impact::fail("cannot write " + path);
}

std::string place(const AtomState& state) {
  return fmt::format("{:6.1f} {:6.1f} {:6.1f}", state.position[0], state.position[1], state.position[2]);
}

void print_cost(const Cost& cost) {
  fmt::print("{:7.1f} KB {:6} {:9.2f} {:9.3f}\n", static_cast<double>(cost.bytes) / 1e3, cost.reads,
             1e3 * cost.cold_s, 1e3 * cost.warm_s);
}

}  // namespace

int main(int argc, char** argv) {
  std::string out;
  int64_t count = 10;
  impact::Arguments arguments(
      "Finds the target atoms with the highest energy in the last frame of OUT/atoms.swale and follows each\n"
      "back to where it came from. Writes OUT/fastest.json, OUT/answer-swale.csv and OUT/cost-swale.json.");
  arguments.directory(out, "the directory that impact wrote");
  arguments.count("--top", count, 1, 100000, "how many atoms");
  arguments.parse(argc, argv);
  const auto k = static_cast<size_t>(count);

  const std::string path = out + "/atoms.swale";
  const Reader reader(path);
  if (reader.epochs() == 0) impact::fail(path + " has no epoch");
  const std::vector<DumpRecord> fastest = fastest_atoms(reader, k);
  const std::vector<DumpRecord> scanned = scan_for_fastest(reader, k);
  const auto energy = [](const DumpRecord& atom) { return atom.state.kinetic_energy; };
  if (!std::ranges::equal(fastest, scanned, {}, energy, energy)) {
    impact::fail("the fastest atoms by their extrema are not those that a scan finds");
  }
  std::vector<int64_t> ids;
  for (const DumpRecord& atom : fastest) ids.push_back(atom.id);

  fmt::print("  {:>6} {:>8}   {:^20}   {:^20}  {:^38}\n", "", "energy", "came from (sigma)",
             "is now at (sigma)", "cost of its trajectory");
  fmt::print("  {:>6} {:>8}   {:>6} {:>6} {:>6}   {:>6} {:>6} {:>6} {:>10} {:>6} {:>9} {:>9}\n", "atom",
             "(epsilon)", "x", "y", "z", "x", "y", "z", "read", "reads", "cold, ms", "warm, ms");
  for (const DumpRecord& atom : fastest) {
    const Cost cost = measure(path, [&](const Reader& fresh) { fresh.trajectory(atom.id); });
    const Answer trajectory = reader.trajectory(atom.id);
    fmt::print("  {:>6} {:>8.1f}   {}   {} ", atom.id, atom.state.kinetic_energy,
               place(trajectory.front().state), place(trajectory.back().state));
    print_cost(cost);
  }

  const Cost top = measure(path, [&](const Reader& fresh) { fastest_atoms(fresh, k); });
  const Cost scan = measure(path, [&](const Reader& fresh) { scan_for_fastest(fresh, k); });
  const Cost one = measure(path, [&](const Reader& fresh) { trajectories(fresh, {ids.front()}); });
  const Cost all = measure(path, [&](const Reader& fresh) { trajectories(fresh, ids); });
  fmt::print("  {:64}", fmt::format("all {} trajectories in one request", ids.size()));
  print_cost(all);
  fmt::print("  {:64}", fmt::format("to find these {} by the extrema of the energy", ids.size()));
  print_cost(top);
  fmt::print("  {:64}", fmt::format("to find these {} by a scan of the last epoch; the same", ids.size()));
  print_cost(scan);

  impact::write_json(out + "/fastest.json", {{"ids", ids}});
  write_last_frame(reader, out + "/last-frame.bin");
  impact::write_answer(out + "/answer-swale.csv", trajectories(reader, ids));
  impact::write_json(
      out + "/cost-swale.json",
      {{"epochs", reader.epochs()}, {"costs", {{"one", one}, {"ten", all}, {"top", top}, {"scan", scan}}}});
  return 0;
}
