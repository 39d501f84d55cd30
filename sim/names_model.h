// NamesModel: what a tree is by POSIX, as plain maps on one thread. It knows the answer to each request at
// one moment, and what a change makes of the tree.
//
// A file whose last entry is gone and that nobody holds is dying: a server may not have heard of it yet, so
// both answers to requests by its id are right until its node is gone.
// Threads: one.
#pragma once

#include <map>
#include <set>
#include <string>

#include "meta/names/name_messages.h"

namespace swale::sim {

struct ModelAnswer {
  int error = 0;
  meta::FileId file = {};
  bool changes = false;  // a success that changes the tree: it must have a record
  uint32_t mode = 0;     // of kStat
  friend auto operator<=>(const ModelAnswer&, const ModelAnswer&) = default;
};

class NamesModel {
 public:
  explicit NamesModel(uint32_t servers);

  // What the request would be answered now, or may be (dying files).
  std::set<ModelAnswer> answers(const meta::NameRequest& request) const;
  // Makes the change; `made`: the id of what a creation has made. Not "": why it cannot be right.
  std::string apply(const meta::NameRequest& request, const meta::FileId& made);
  // The node of a file is gone from its server.
  std::string gone(const meta::FileId& file);

  struct Node {
    meta::NodeType type = meta::NodeType::kFile;
    meta::FileId parent = {};
    std::map<std::string, meta::FileId> entries = {};
    bool linked = true;
    uint32_t mode = 0;
    std::set<uint64_t> holders = {};
  };
  const std::map<meta::FileId, Node>& nodes() const { return nodes_; }
  bool is_directory(const meta::FileId& file) const;
  // The names of a directory; none if it is not there.
  std::set<std::string> names(const meta::FileId& directory) const;

 private:
  const Node* find(const meta::FileId& file) const;
  meta::FileId entry(const meta::FileId& directory, const std::string& name) const;
  bool above(const meta::FileId& file, const meta::FileId& directory) const;
  ModelAnswer answer(const meta::NameRequest& request) const;
  ModelAnswer rename(const meta::NameRequest& request) const;
  bool holds_more(const meta::NameRequest& request, const meta::FileId& file) const;
  void unlink(const meta::FileId& file);
  void apply_rename(const meta::NameRequest& request);

  const uint32_t servers_;
  std::map<meta::FileId, Node> nodes_;
  std::set<meta::FileId> drawn_;  // all ids ever
};

}  // namespace swale::sim
