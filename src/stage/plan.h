// Plan: what a stage has to do, found before it copies anything: the files, links and folders of a tree, or
// the lines of a manifest, each with the identity that its source has now.
//
// What cannot be staged (sockets, devices, FIFOs, a folder that cannot be listed, a line whose source is not
// there, two lines with one destination) is a failure of its own path, and does not stop the others. That
// files with several links become separate files is a remark.
//
// Threads: a value; make_plan is a free function.
// Limits: about 400 bytes of memory a file.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <vector>

#include "stage/file_identity.h"
#include "stage/root.h"
#include "stage/stage_options.h"

namespace swale::stage {

struct Entry {
  std::string source;
  std::string destination;
  struct stat attributes = {};       // of the source
  std::optional<uint32_t> crc = {};  // what the manifest demands

  FileIdentity identity() const { return FileIdentity::of(attributes); }
  uint64_t bytes() const { return static_cast<uint64_t>(attributes.st_size); }
};

struct Failure {
  std::string path;
  std::string what;
};

struct Plan {
  std::vector<Entry> files;    // regular ones
  std::vector<Entry> links;    // symbolic
  std::vector<Entry> folders;  // each after the one that it is in
  std::vector<Failure> failures;
  std::vector<std::string> remarks;
};

// Of `options` and its rank. kInvalidArgument: the options or the manifest are wrong; nothing was begun.
Result<Plan> make_plan(const StageOptions& options, const Root& source);

// "DIR/.NAME.swale-part", the name of `destination` while it is being written; if that is too long for a
// name, with a hash in place of NAME.
std::string part_path(const std::string& destination);

}  // namespace swale::stage
