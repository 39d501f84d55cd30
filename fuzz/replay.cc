// fuzz_replay TARGET FOLDER...: runs a fuzz target over the files of its corpus, for compilers without
// libFuzzer and for quick tests. Then once with each file cut in half and with a byte turned over, so that
// the tree's corpus need not hold damaged twins.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "fuzz/target.h"

namespace swale::fuzz {
namespace {

const Target* targets = nullptr;

}  // namespace

Target::Target(const char* name, Run* run) : name_(name), run_(run), next_(targets) { targets = this; }

Target::Run* Target::named(const char* name) {
  for (const Target* target = targets; target != nullptr; target = target->next_)
    if (std::strcmp(target->name_, name) == 0) return target->run_;
  return nullptr;
}

}  // namespace swale::fuzz

int main(int argc, char** argv) {
  const auto target = swale::fuzz::Target::named(argc > 1 ? argv[1] : "");
  if (target == nullptr) {
    std::fprintf(stderr, "fuzz_replay TARGET FOLDER...: there is no such target\n");
    std::abort();  // not an exit status: a canary's test, which must fail, would take it for its own
  }
  const auto run = [&](const std::string& bytes) {
    target(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  };
  size_t files = 0, inputs = 0;
  for (int i = 2; i < argc; ++i) {
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      std::ifstream file(entry.path(), std::ios::binary);
      std::ostringstream text;
      text << file.rdbuf();
      const std::string bytes = text.str();
      run(bytes);
      run(bytes.substr(0, bytes.size() / 2));
      for (size_t at = 0; at < bytes.size(); at += 1 + bytes.size() / 64, ++inputs) {
        std::string damaged = bytes;
        damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
        run(damaged);
      }
      ++files;
      inputs += 2;
    }
  }
  std::printf("%zu inputs from %zu files\n", inputs, files);
  return files == 0 ? 1 : 0;  // an empty corpus tests nothing
}
