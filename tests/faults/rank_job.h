// What tests share that start the ranks of rank_program.h: a folder of their own, and a job by TLS.
//
// Threads: one.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "tests/faults/launcher.h"

namespace swale::faults {

// A folder below the system's for temporary files; it goes with the object.
class Scratch {
 public:
  explicit Scratch(const std::string& test) {
    std::string path = (std::filesystem::temp_directory_path() / ("swale-" + test + "-XXXXXX")).string();
    path_ = ::mkdtemp(path.data());
  }
  ~Scratch() { std::filesystem::remove_all(path_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// PROGRAM FOLDER/files MODE FOLDER/notes, on that many nodes.
inline LaunchParams job_by_tls(const char* program, const Scratch& scratch, const std::string& mode,
                               int nodes) {
  LaunchParams params;
  params.size = nodes;
  params.program = program;
  params.arguments = {scratch.path() + "/files", mode, scratch.path() + "/notes"};
  params.job_id = std::filesystem::path(program).filename().string() + "-" + mode;
  params.rendezvous = scratch.path() + "/rendezvous-" + mode;
  params.by_tls = true;
  std::filesystem::create_directories(params.rendezvous);
  std::filesystem::permissions(params.rendezvous, std::filesystem::perms::owner_all);
  return params;
}

}  // namespace swale::faults
