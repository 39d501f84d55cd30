// NamesJudge: whether the answers that clients of a tree of names get are right while other clients change
// the tree.
//
// A change happens at one moment: when the record with its answer, or with the removed node of its directory,
// is durable. Then the model makes it, and it must be right there. An answer that changed nothing must be
// right at some moment between its request and itself. A listing has every name that was there all along,
// none that never was, and none twice. In the end the servers' rows are the model's.
//
// Each client has one operation at a time. Threads: one.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "meta/names/name_messages.h"
#include "meta/names/name_record.h"
#include "meta/names/name_table.h"
#include "sim/names_model.h"

namespace swale::sim {

const char* name_of(meta::NameOp op);

class NamesJudge {
 public:
  using Blame = std::function<void(const std::string& what)>;
  // Whether a node counts on the file, for its clients.
  using Holds = std::function<bool(const meta::FileId& file)>;

  // `rng` draws how many names a listing asks for at once.
  NamesJudge(uint32_t servers, uint32_t clients, Rng& rng, Blame blame, Holds holds)
      : rng_(rng),
        blame_(std::move(blame)),
        holds_(std::move(holds)),
        model_(servers),
        operations_(clients) {}

  // A client begins an operation.
  void begin(uint32_t client, const meta::NameRequest& request);
  // What the client asks next: a listing goes from one server to the next.
  meta::NameRequest request(uint32_t client) const;
  // A node has sent a request to a server, for these clients.
  void sent(const meta::NameRequest& request, std::vector<uint32_t> clients);
  // A server has sent this to another one: perhaps which request a directory is removed for.
  void sent_by_server(const std::string& payload);
  // A server's record is durable.
  void happen(const std::string& record);
  // False: the operation is a listing that goes on.
  bool end(uint32_t client, const meta::NameAnswer& answer);
  // The tables of all servers, after everything: one server each.
  void compare(const std::vector<const meta::NameTable*>& tables);

  uint64_t changed() const { return changed_; }
  uint64_t listed() const { return listed_; }

 private:
  struct Operation {
    meta::NameRequest request;
    bool busy = false;
    bool applied = false;         // the model has made the change
    meta::FileId result = {};     // of the change
    std::set<ModelAnswer> right;  // answers that change nothing and were right at some moment
    // Of a listing:
    std::set<std::string> always, ever, seen;  // names that were there all along, at some time, in answers
    std::vector<uint64_t> members;             // servers that have not told all of their names
  };
  struct Asked {
    meta::NameRequest request;
    std::vector<uint32_t> clients;
    bool applied = false;
  };

  void change(const meta::RequestKey& from, const meta::FileId& file);
  void look_again();
  void judge(const Operation& operation, const meta::NameAnswer& answer);
  bool list(Operation* operation, const meta::NameAnswer& answer);
  void check_names(Operation* operation, const meta::NameAnswer& answer);
  std::map<meta::FileId, NamesModel::Node> collect(const std::vector<const meta::NameTable*>& tables);

  Rng& rng_;
  const Blame blame_;
  const Holds holds_;
  NamesModel model_;
  std::vector<Operation> operations_;                     // by client
  std::map<std::pair<uint64_t, uint64_t>, Asked> asked_;  // by client and number
  std::map<meta::FileId, meta::RequestKey> removers_;     // which request a directory is removed for
  uint64_t changed_ = 0, listed_ = 0;
};

}  // namespace swale::sim
