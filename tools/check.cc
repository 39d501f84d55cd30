// `swale check`: what libswale_preload.so will do for a program, by what its file says.
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>

#include "tools/command_line.h"
#include "tools/options.h"
#include "tools/preload.h"

namespace swale::tools {
namespace {

constexpr uint64_t kProgramBytesMax = uint64_t{1} << 30;
constexpr int kScriptsMax = 4;  // an interpreter may be a script

// What a program's file says of it.
struct Program {
  std::string path;
  std::string interpreter;  // of a script: what was looked at instead
  bool is_elf = false;
  bool is_dynamic = false;
  bool is_set_id = false;
  bool is_go = false;
  std::vector<std::string> needed;
  std::set<std::string> imported;
};

// Structures of a file, which may be cut off or forged.
class ElfFile {
 public:
  explicit ElfFile(std::string_view bytes) : bytes_(bytes) {}

  template <class T>
  bool get(uint64_t offset, T* out) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return false;
    std::memcpy(out, bytes_.data() + offset, sizeof(T));
    return true;
  }
  std::string text(uint64_t offset) const {
    if (offset >= bytes_.size()) return {};
    const std::string_view rest = bytes_.substr(offset);
    return std::string(rest.substr(0, rest.find('\0')));
  }

 private:
  std::string_view bytes_;
};

void read_section(const ElfFile& file, const Elf64_Ehdr& head, const Elf64_Shdr& section, Program* program) {
  if (section.sh_type != SHT_DYNAMIC && section.sh_type != SHT_DYNSYM) return;
  Elf64_Shdr names;
  if (!file.get(head.e_shoff + uint64_t{section.sh_link} * sizeof(names), &names)) return;
  const bool symbols = section.sh_type == SHT_DYNSYM;
  const uint64_t step = symbols ? sizeof(Elf64_Sym) : sizeof(Elf64_Dyn);
  for (uint64_t at = 0; at + step <= section.sh_size; at += step) {
    Elf64_Sym symbol;
    Elf64_Dyn entry;
    if (symbols) {
      if (!file.get(section.sh_offset + at, &symbol)) return;
      if (symbol.st_shndx == SHN_UNDEF) program->imported.insert(file.text(names.sh_offset + symbol.st_name));
    } else {
      if (!file.get(section.sh_offset + at, &entry)) return;
      if (entry.d_tag == DT_NEEDED) program->needed.push_back(file.text(names.sh_offset + entry.d_un.d_val));
    }
  }
}

void read_elf(std::string_view bytes, Program* program) {
  const ElfFile file(bytes);
  Elf64_Ehdr head;
  if (!file.get(0, &head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return;
  program->is_elf = head.e_ident[EI_CLASS] == ELFCLASS64 && head.e_shentsize == sizeof(Elf64_Shdr);
  if (!program->is_elf) return;
  for (uint64_t i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part;
    if (file.get(head.e_phoff + i * sizeof(part), &part) && part.p_type == PT_INTERP)
      program->is_dynamic = true;
  }
  Elf64_Shdr names = {};
  static_cast<void>(file.get(head.e_shoff + uint64_t{head.e_shstrndx} * sizeof(names), &names));
  for (uint64_t i = 0; i < head.e_shnum; ++i) {
    Elf64_Shdr section;
    if (!file.get(head.e_shoff + i * sizeof(section), &section)) return;
    if (file.text(names.sh_offset + section.sh_name) == ".go.buildinfo") program->is_go = true;
    read_section(file, head, section, program);
  }
}

// Where a shell would find it.
std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* const path = std::getenv("PATH");
  std::string_view left = path == nullptr ? "" : path;
  while (!left.empty()) {
    const std::string_view folder = left.substr(0, left.find(':'));
    left.remove_prefix(std::min(left.size(), folder.size() + 1));
    if (std::string found = fmt::format("{}/{}", folder, name); ::access(found.c_str(), X_OK) == 0)
      return found;
  }
  return name;
}

Result<Program> read_program(const std::string& name) {
  Program program;
  program.path = find_program(name);
  std::string path = program.path;
  for (int i = 0; i < kScriptsMax; ++i) {
    struct stat found;
    if (::stat(path.c_str(), &found) != 0) return errno_status(errno, path);
    if (static_cast<uint64_t>(found.st_size) > kProgramBytesMax || !S_ISREG(found.st_mode))
      return invalid_argument("{}: no program is such a file", path);
    std::ifstream file(path, std::ios::binary);
    const std::string bytes(std::istreambuf_iterator<char>(file), {});
    if (!file) return errno_status(errno != 0 ? errno : EIO, path);
    if (!bytes.starts_with("#!")) {
      program.is_set_id = (found.st_mode & (S_ISUID | S_ISGID)) != 0;
      read_elf(bytes, &program);
      return program;
    }
    std::string line = bytes.substr(2, bytes.find('\n') - 2);
    line.erase(0, line.find_first_not_of(' '));
    path = line.substr(0, line.find(' '));
    if (path.ends_with("/env")) path = find_program(line.substr(std::min(line.size(), line.find(' ') + 1)));
    program.interpreter = path;
  }
  return invalid_argument("{}: a script whose interpreter is a script, {} times", name, kScriptsMax);
}

struct Finding {
  bool stops = false;  // the library will not come to it
  std::string text;
};

std::vector<Finding> judge(const Program& program) {
  std::vector<Finding> found;
  const auto says = [&](bool when, bool stops, const char* text) {
    if (when) found.push_back({stops, text});
  };
  const auto imports = [&](const char* name) { return program.imported.contains(name); };
  const auto needs = [&](std::string_view start) {
    return std::any_of(program.needed.begin(), program.needed.end(),
                       [&](const std::string& each) { return each.starts_with(start); });
  };
  says(!program.is_elf, true, "it is no program of this system's kind: nothing can be said of it");
  if (!program.is_elf) return found;
  says(!program.is_dynamic, true,
       "it is linked statically: nothing is preloaded into it; it writes through the mount; where none is "
       "(--no-mount), to the backing itself");
  says(program.is_set_id, true,
       "it is set-user-ID or set-group-ID: the system preloads nothing into it; where there is no mount "
       "(--no-mount), it works on the backing itself");
  says(program.is_go, false,
       "it is written in Go: its calls are the kernel's own, and go through the mount; where there is none "
       "(--no-mount), to the backing itself");
  says(needs("libasan"), false,
       "AddressSanitizer must be the first library: set LD_PRELOAD to the path that `gcc "
       "-print-file-name=libasan.so` tells, before swale run");
  says(needs("liburing"), false,
       "what it does by io_uring goes through the mount; SWALE_FS_DESCRIPTORS=light is of no effect");
  says(needs("libaio"), false,
       "what it does by libaio goes through the mount; SWALE_FS_DESCRIPTORS=light is of no effect");
  says(imports("aio_write") || imports("aio_write64"), false,
       "what it writes by asynchronous calls of the C library goes through the mount");
  says(imports("mmap") || imports("mmap64"), false,
       "once it has mapped a file of the tree shared, it writes through the mount");
  says(imports("fopen") || imports("fopen64"), false,
       "streams of the C library go through the mount; those that write, by requests of 128 KiB");
  says(imports("syscall"), false, "calls past the C library give files back to the mount");
  return found;
}

// Go programs have the library, and call the kernel past it.
std::string why_not_seen(const Program& program, const std::vector<Finding>& found) {
  for (const Finding& each : found)
    if (each.stops) return each.text;
  return program.is_go ? "it is written in Go: its calls are the kernel's own" : "";
}

struct CheckCommand {
  std::string program;
  bool json = false;

  int run() const {
    if (program.empty()) return say_whether_loaded();
    const auto read = read_program(program);
    if (!read.ok()) return fail(read.status());
    const std::vector<Finding> found = judge(*read);
    const bool stops =
        std::any_of(found.begin(), found.end(), [](const Finding& each) { return each.stops; });
    const auto library = find_preload_library();
    if (json) {
      Json remarks = Json::array();
      for (const Finding& each : found) remarks.push_back(each.text);
      print_json({{"program", read->path},
                  {"interpreter", read->interpreter},
                  {"preloads", !stops},
                  {"library", library.ok() ? *library : ""},
                  {"remarks", remarks}});
    } else {
      const std::string by =
          read->interpreter.empty() ? "" : fmt::format(" (a script of {})", read->interpreter);
      print_line(
          fmt::format("{}{}: {}", read->path, by,
                      stops ? "writes through the mount only" : "can write by its log with --preload"));
      for (const Finding& each : found) print_line(fmt::format("  - {}", each.text));
      if (!stops && library.ok()) print_line(fmt::format("  LD_PRELOAD={}", *library));
    }
    return finish_output(stops ? kExitNotFound : kExitOk);
  }

 private:
  int say_whether_loaded() const {
    const std::string version = preloaded_version();
    if (json)
      print_json({{"preloaded", version}});
    else
      print_line(version.empty() ? "libswale_preload.so is not in this process"
                                 : fmt::format("libswale_preload.so {} is in this process", version));
    return finish_output(version == SWALE_VERSION ? kExitOk : kExitNotFound);
  }
};

}  // namespace

Status expect_preloadable(const std::string& program) {
  SWALE_ASSIGN_OR_RETURN(const Program read, read_program(program));
  const std::string why = why_not_seen(read, judge(read));
  if (why.empty()) return {};
  return invalid_argument(
      "{}: {}: without a mount it would write beside the tree; start it in one that is mounted, or without "
      "swale run",
      read.path, why);
}

void add_check(CLI::App& app, Run* run) {
  auto command = std::make_shared<CheckCommand>();
  OptionSet sub = add_command(
      app, "check", "says what `swale run --preload` will do for a program",
      {
          .description =
              "Looks at the file of a program (of a script: its interpreter), and says whether "
              "libswale_preload.so comes to it, and which of its writes will go through the mount all the "
              "same: they are as right, and slower. It sees the program's own calls, not those of its "
              "libraries. It names the library, for those who set LD_PRELOAD themselves. Without a program: "
              "says whether the library is in this very process.",
          .examples = {{"swale check sort", "a program, as a shell would find it"},
                       {"swale check --json sh | jq .preloads", "whether the library comes to it"}},
          .exit_1 = "nothing is preloaded into the program; or, without one, the library is not here",
      });
  sub.add_option("program", command->program, "the program, by path or as a shell finds it")
      .type_name("PROGRAM");
  sub.add_flag("--json", command->json, "print JSON");
  sub.callback([command, run] { *run = [command] { return command->run(); }; });
}

}  // namespace swale::tools
