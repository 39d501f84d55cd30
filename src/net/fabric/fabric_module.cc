#include "net/fabric/fabric_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace swale::net {
namespace {

struct Registry {
  Mutex mutex;
  std::map<std::string, const FabricModule*> modules GUARDED_BY(mutex);
  // Never freed: a getenv of another thread may stand in one of them.
  std::deque<std::vector<char*>> environments GUARDED_BY(mutex);
};

Registry& registry() {
  static auto* const all = new Registry();
  return *all;
}

// The environment with some variables added where they are unset, as long as the object lives. `entries`: of
// the registry, whose mutex is locked.
class AddedVariables {
 public:
  AddedVariables(const std::vector<const char*>& variables, std::vector<char*>& entries) : before_(environ) {
    for (char** each = before_; each != nullptr && *each != nullptr; ++each) entries.push_back(*each);
    for (const char* variable : variables) {
      const std::string name(variable, std::strchr(variable, '='));
      if (::getenv(name.c_str()) == nullptr) entries.push_back(const_cast<char*>(variable));
    }
    entries.push_back(nullptr);
    mine_ = entries.data();
    std::atomic_thread_fence(std::memory_order_release);
    environ = mine_;
  }
  ~AddedVariables() {
    if (environ == mine_) environ = before_;  // else somebody has set a variable, and goes on from ours
  }
  AddedVariables(const AddedVariables&) = delete;
  AddedVariables& operator=(const AddedVariables&) = delete;

 private:
  char** const before_;
  char** mine_ = nullptr;
};

// The folder of the file that this code was loaded from: libswale, or the program.
std::string own_folder() {
  Dl_info info;
  std::string path;
  if (::dladdr(reinterpret_cast<void*>(&load_fabric), &info) != 0) path = info.dli_fname;
  Dl_info program;
  const void* base = info.dli_fbase;
  const void* const headers = reinterpret_cast<const void*>(::getauxval(AT_PHDR));
  if (headers != nullptr && ::dladdr(headers, &program) != 0 && program.dli_fbase == base)
    path = "/proc/self/exe";
  char resolved[PATH_MAX];
  if (::realpath(path.c_str(), resolved) == nullptr) return "";
  return std::string(resolved, std::strrchr(resolved, '/'));
}

// `entries`: for AddedVariables.
Result<void*> open_library(const std::string& name, std::vector<char*>& entries) {
  const std::string file = fmt::format("libswale-{}.so", name);
  const std::string folder = own_folder();
  const AddedVariables quiet({"UCX_HANDLE_ERRORS=none", "UCX_DEBUG_SIGNO=0"}, entries);
  constexpr int kFlags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
  // Beside it in the build tree; in a folder of its version where libswale, or the command `swale`, is
  // installed.
  const std::string places[] = {
      fmt::format("{}/{}", folder, file), fmt::format("{}/swale-{}/{}", folder, SWALE_VERSION, file),
      fmt::format("{}/" SWALE_LIBRARIES_FROM_PROGRAMS "/swale-{}/{}", folder, SWALE_VERSION, file)};
  std::string why;
  for (const std::string& place : places) {
    if (::access(place.c_str(), F_OK) != 0) continue;
    // A file that is there and does not load is the one that was meant.
    if (void* library = ::dlopen(place.c_str(), kFlags)) return library;
    why = ::dlerror();
    break;
  }
  if (why.empty()) {
    if (void* library = ::dlopen(file.c_str(), kFlags)) return library;
    why = fmt::format("it is neither in {}, nor in its swale-{}, nor where the system's loader looks", folder,
                      SWALE_VERSION);
  }
  return error(Code::kUnavailable, Scope::kFatal,
               "ranks talk through {}, which cannot be loaded: {}; install it beside libswale (and the "
               "libraries of {} that it needs), or put its folder into LD_LIBRARY_PATH",
               file, why, name);
}

}  // namespace

void register_fabric(const FabricModule* module) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  all.modules[module->name] = module;
}

Result<const FabricModule*> load_fabric(const std::string& name) {
  Registry& all = registry();
  const MutexLock lock(all.mutex);
  const FabricModule*& module = all.modules[name];
  if (module != nullptr) return module;
  SWALE_ASSIGN_OR_RETURN(void* library, open_library(name, all.environments.emplace_back()));
  const auto* found = static_cast<const FabricModule*>(::dlsym(library, "swale_fabric"));
  if (found == nullptr || found->interface != FabricModule::kInterface ||
      std::strcmp(found->version, SWALE_VERSION) != 0) {
    return error(Code::kUnsupported, Scope::kFatal,
                 "libswale-{}.so is of version {}, libswale of {}: install both from one build", name,
                 found == nullptr ? "?" : found->version, SWALE_VERSION);
  }
  if (found->log_to != nullptr) found->log_to(&log_message);
  return module = found;
}

}  // namespace swale::net
