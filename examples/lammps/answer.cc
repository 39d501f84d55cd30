#include "answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <tuple>

#include "fail.h"

namespace impact {
namespace {

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) fail("cannot write " + path);
}

}  // namespace

void sort_answer(Answer& answer) {
  std::sort(answer.begin(), answer.end(), [](const DumpRecord& a, const DumpRecord& b) {
    return std::tie(a.id, a.state.step) < std::tie(b.id, b.state.step);
  });
}

void write_answer(const std::string& path, const Answer& answer) {
  std::string text = "atom,step,type,x,y,z,vx,vy,vz,energy\n";
  for (const auto& [id, state] : answer) {
    const auto& [p, v, energy, type, step] = state;
    fmt::format_to(std::back_inserter(text), "{},{},{},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g}\n",
                   id, step, type, p[0], p[1], p[2], v[0], v[1], v[2], energy);
  }
  write_text(path, text);
}

nlohmann::json read_json(const std::string& path) {
  std::ifstream file(path);
  nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) fail(fmt::format("{} is missing or is not JSON", path));
  return json;
}

void write_json(const std::string& path, const nlohmann::json& json) {
  write_text(path, json.dump(2) + "\n");
}

}  // namespace impact
