// Runs a fuzz target over the files of its corpus: for compilers without libFuzzer, and for quick tests. Then once with
// each file cut in half and with a byte turned over, so that the tree's corpus need not hold damaged twins.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  size_t files = 0, inputs = 0;
  for (int i = 1; i < argc; ++i) {
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
