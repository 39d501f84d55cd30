#include "fs/share/testing/share_world.h"

#include <algorithm>
#include <set>

namespace swale::fs {
namespace {

constexpr uint64_t kStepsMax = 100'000;
constexpr uint32_t kRepeatsMax = 3;
constexpr uint64_t kReadBytes = 60;  // of the file at the end

}  // namespace

ShareWorld::ShareWorld(const ShareWorldParams& params)
    : params_(params), rng_(params.seed), nodes_(params.nodes), left_(params.operations) {
  start_root();
  for (NodeId i = 0; i < params.nodes; ++i) {
    nodes_[i].id = i;
    start_node(nodes_[i]);
  }
}

ShareRules ShareWorld::rules() const {
  using Canary = ShareWorldParams::Canary;
  return {.obey_once = params_.canary != Canary::kTwice,
          .own_from_begin = params_.canary != Canary::kOwnLate,
          .learn_orders = params_.canary != Canary::kNoLearn};
}

void ShareWorld::problem(const std::string& what) {
  if (outcome_.problem.empty()) outcome_.problem = what;
}

void ShareWorld::start_root() {
  root_ = std::make_unique<FileRoots>(rules());
  // Servers of a job start together: what was published before counts no more.
  for (Node& node : nodes_) withdraw_map(node);
  for (const std::string& record : records_)
    if (const Status replayed = root_->replay(record); !replayed.ok()) problem(replayed.to_string());
  if (records_.size() < 8 || rng_.chance(1, 2)) return;
  // A log that is begun anew.
  records_.clear();
  const Status kept = root_->states([&](Bytes record) {
    records_.emplace_back(record);
    return ok_status();
  });
  if (!kept.ok()) problem(kept.to_string());
}

void ShareWorld::start_node(Node& node) {
  node.share = std::make_unique<NodeShare>(node.id, rules());
  for (const auto& [order, span] : node.written)
    if (const Status found = node.share->found(kShared, order, span); !found.ok()) problem(found.to_string());
}

void ShareWorld::kill_node(Node& node) {
  ++outcome_.kills;
  ++node.life;
  node.calls.clear();
  node.last_answer.reset();
  withdraw_map(node);
  start_node(node);
}

void ShareWorld::write(Node& node, const Span& span) {
  const uint64_t order = ++node.order;
  const Value value = model_.wrote(node.id, order, span, now_);
  for (uint64_t at = span.begin; at < span.end; ++at) node.bytes[at] = {value, order};
  node.written.emplace_back(order, span);
  node.map.reset();  // its marks say so
  if (const Status told = node.share->wrote(kShared, span); !told.ok()) problem(told.to_string());
}

// ---- messages

void ShareWorld::deliver(size_t index) {
  Message message = bag_[index];
  if (!quiet_ && chance(params_.double_per_mille)) {
    ++outcome_.doubled;
  } else {
    bag_[index] = std::move(bag_.back());
    bag_.pop_back();
    if (!quiet_ && chance(params_.lose_per_mille)) {
      ++outcome_.lost;
      return;
    }
  }
  ++outcome_.delivered;
  if (message.answer)
    answered(message);
  else if (message.to == kRoot)
    handle_at_root(message);
  else if (message.takes_back)
    handle_take_back(message);
  else
    handle_fetch(message);
}

void ShareWorld::handle_at_root(const Message& message) {
  const auto request = decode_share_request(message.text);
  if (!request.ok()) return problem(request.status().to_string());
  ++outcome_.requests;
  std::string record;
  const auto answer = root_->handle(*request, &record);
  if (!answer.ok()) return problem(answer.status().to_string());
  const bool by_number = params_.kill_at != 0 && outcome_.requests == (params_.kill_at + 1) / 2;
  const bool kill = by_number || (!quiet_ && chance(params_.kill_per_mille * 3));
  const bool before_record = kill && (by_number ? params_.kill_at % 2 == 0 : rng_.chance(1, 2));
  if (kill) ++outcome_.kills;
  if (!before_record && !record.empty()) records_.push_back(record);
  if (!kill || (before_record && params_.canary == ShareWorldParams::Canary::kNoRecord))
    send({.from = kRoot,
          .to = message.from,
          .life = message.life,
          .call = message.call,
          .answer = true,
          .text = encode(*answer)});
  if (kill) start_root();
}

void ShareWorld::handle_fetch(const Message& message) {
  const Node& node = nodes_[message.to];
  Message answer{
      .from = message.to, .to = message.from, .life = message.life, .call = message.call, .answer = true};
  for (const Span& span : message.spans) {
    for (uint64_t at = span.begin; at < span.end; ++at) {
      const auto byte = node.bytes.find(at);
      if (byte == node.bytes.end())
        answer.moved = true;
      else
        answer.bytes[at] = byte->second.value;
    }
  }
  send(std::move(answer));
}

void ShareWorld::handle_take_back(const Message& message) {
  withdraw_map(nodes_[message.to]);
  send({.from = message.to,
        .to = message.from,
        .life = message.life,
        .call = message.call,
        .answer = true,
        .takes_back = true});
}

void ShareWorld::answered(const Message& message) {
  Node& node = nodes_[message.to];
  if (message.life != node.life) return;
  for (Call& call : node.calls) {
    if (call.id != message.call || call.stage == Call::Stage::kDone || call.stage == Call::Stage::kBegin)
      continue;
    if (call.stage == Call::Stage::kTakeBack || message.takes_back) {
      if (call.stage != Call::Stage::kTakeBack || !message.takes_back) return;
      const auto hold = std::find_if(call.holds.begin(), call.holds.end(),
                                     [&](const ShareHold& each) { return each.node == message.from; });
      if (hold == call.holds.end()) return;
      call.over.push_back(*hold);
      call.holds.erase(hold);
      if (call.holds.empty()) end_change(node, call);
      return;
    }
    if (call.stage != Call::Stage::kFetch) {
      const auto answer = decode_share_answer(message.text);
      if (!answer.ok()) return problem(answer.status().to_string());
      return root_answered(node, call, *answer);
    }
    if (message.from == kRoot || call.wanted.erase(message.from) == 0) return;
    if (message.moved) {
      ++outcome_.asked_again;
      return start_read(node, call);
    }
    call.got.insert(message.bytes.begin(), message.bytes.end());
    if (call.wanted.empty()) end_read(node, call);
    return;
  }
}

// ---- calls

void ShareWorld::ask_root(Node& node, Call& call, const ShareRequest& request) {
  call.id = next_call_++;
  ShareRequest whole = request;
  whole.backing = {1, kBackingBytes, 1};
  call.request = encode(whole);
  call.stage = Call::Stage::kRoot;
  send({.from = node.id, .to = kRoot, .life = node.life, .call = call.id, .text = call.request});
}

void ShareWorld::begin_call(Node& node) {
  using Kind = Call::Kind;
  Call call;
  call.began = now_;
  const uint64_t kind = rng_.below(26);
  call.kind = kind < 7    ? Kind::kCommit
              : kind < 9  ? Kind::kTruncate
              : kind < 11 ? Kind::kAppend
              : kind < 20 ? Kind::kRead
                          : Kind::kMap;
  const auto reserving = [](const Call& each) { return each.kind == Kind::kAppend; };
  if (call.kind == Kind::kAppend && std::any_of(node.calls.begin(), node.calls.end(), reserving)) return;
  call.size = call.kind == Kind::kAppend ? 1 + rng_.below(4) : rng_.below(kSpace);
  call.span.begin = rng_.below(kSpace);
  call.span.end = call.span.begin + 1 + rng_.below(20);
  node.calls.push_back(call);
  advance(node, node.calls.back());
}

void ShareWorld::advance(Node& node, Call& call) {
  if (const auto question = node.share->question(kShared)) {
    ask_root(node, call, *question);
    call.stage = Call::Stage::kLearn;
  } else if (call.kind == Call::Kind::kRead) {
    call.reading.reset();
    start_read(node, call);
  } else if (call.kind == Call::Kind::kMap) {
    start_map(node, call);
  } else {
    start_change(node, call);
  }
}

void ShareWorld::start_change(Node& node, Call& call) {
  using Kind = Call::Kind;
  const bool no_wait = params_.canary == ShareWorldParams::Canary::kNoWait;
  if (call.kind == Kind::kAppend) {
    call.order = ++node.order;
    return ask_root(node, call, node.share->reservation(kShared, call.order, call.size));
  }
  if (call.kind == Kind::kTruncate) {
    const auto request = node.share->begin_truncate(kShared, node.order + 1, call.size);
    if (request.status().code() == Code::kBusy) return;
    if (!request.ok()) return problem(request.status().to_string());
    call.order = ++node.order;
    model_.truncate_begins(node.id, call.order, call.size, now_);
    if (no_wait) model_.truncate_ends(node.id, call.order, now_);
    return ask_root(node, call, *request);
  }
  const auto request = node.share->begin_commit(kShared, node.order);
  if (request.status().code() == Code::kBusy) return;
  if (!request.ok()) return problem(request.status().to_string());
  call.order = node.order;
  if (*request) model_.commit_begins(node.id, call.order, now_);
  if (!*request || no_wait) model_.commit_ends(node.id, call.order, now_);
  if (!*request) return finish(call, "commit of nothing");
  ask_root(node, call, **request);
}

void ShareWorld::start_read(Node& node, Call& call) {
  if (!call.reading) {
    auto reading = node.share->begin_read(kShared, call.span);
    if (!reading.ok()) return problem(reading.status().to_string());
    call.reading = std::move(*reading);
  }
  ShareRequest look = node.share->look(*call.reading);
  if (params_.canary == ShareWorldParams::Canary::kNoAsk) {
    look.span = {0, 2 * kReadBytes};
    if (node.last_answer) return looked(node, call, *node.last_answer);
  }
  ask_root(node, call, look);
}

// ---- maps

void ShareWorld::withdraw_map(Node& node) {
  node.map.reset();
  ++node.withdrawn;
}

void ShareWorld::start_map(Node& node, Call& call) {
  auto reading = node.share->begin_read(kShared, call.span);
  if (!reading.ok()) return problem(reading.status().to_string());
  call.reading = std::move(*reading);
  call.withdrawn = node.withdrawn;
  ShareRequest hold = node.share->look(*call.reading);
  hold.op = ShareOp::kHold;
  ask_root(node, call, hold);
}

void ShareWorld::publish(Node& node, Call& call, const ShareAnswer& answer) {
  const bool late = node.withdrawn != call.withdrawn;
  if (late && params_.canary != ShareWorldParams::Canary::kLateMap) return finish(call, "map, too late");
  auto own = node.share->own_on_top(*call.reading, answer);
  if (!own.ok()) return problem(own.status().to_string());
  node.map = {call.span, std::move(*own), node.share->size(kShared, answer)};
  finish(call, "map");
}

// Up to the first byte that the map has not, or the end of the file.
void ShareWorld::read_by_map(Node& node) {
  const Map& map = *node.map;
  const uint64_t begin = map.span.begin + rng_.below(map.span.end - map.span.begin);
  std::vector<Value> bytes;
  uint64_t at = begin;
  map.own.visit({begin, std::min(map.span.end, map.size)}, [&](const Span& span, char) {
    for (; at >= span.begin && at < span.end; ++at) {
      const auto own = node.bytes.find(at);
      if (own == node.bytes.end()) return problem(fmt::format("a map has byte {}, and the log has not", at));
      bytes.push_back(own->second.value);
    }
  });
  const bool ends = at >= map.size;
  if (bytes.empty() && !ends) return;
  const std::string wrong = model_.check_read(node.id, {begin, ends ? at + 1 : at}, bytes, now_, now_);
  if (!wrong.empty()) problem("by a map: " + wrong);
  ++outcome_.calls[ends ? "read by map, to the end" : "read by map"];
}

void ShareWorld::take_back(Node& node, Call& call) {
  for (const ShareHold& each : call.holds)
    send({.from = node.id, .to = each.node, .life = node.life, .call = call.id, .takes_back = true});
}

// All others have let go.
void ShareWorld::end_change(Node& node, Call& call) {
  if (!call.over.empty()) {
    const ShareRequest over{.op = ShareOp::kLetGo, .node = node.id, .file = kShared, .holds = call.over};
    send({.from = node.id, .to = kRoot, .life = node.life, .text = encode(over)});
    ++outcome_.calls["took maps back"];
  }
  withdraw_map(node);
  node.share->end_change(kShared, NodeShare::Ended::kObeyed);
  if (call.kind == Call::Kind::kCommit) {
    model_.commit_ends(node.id, call.order, now_);
    return finish(call, "commit");
  }
  model_.truncate_ends(node.id, call.order, now_);
  for (auto at = node.bytes.lower_bound(call.size); at != node.bytes.end();)
    at = at->second.order < call.order ? node.bytes.erase(at) : std::next(at);
  finish(call, "truncate");
}

void ShareWorld::root_answered(Node& node, Call& call, const ShareAnswer& answer) {
  using Kind = Call::Kind;
  if (call.stage == Call::Stage::kLearn) {
    if (const Status learned = node.share->learn(kShared, answer); !learned.ok())
      problem(learned.to_string());
    call.stage = Call::Stage::kBegin;
    return advance(node, call);
  }
  if (answer.error != 0) return problem("errno " + std::to_string(answer.error));
  switch (call.kind) {
    case Kind::kRead:
      node.last_answer = answer;
      return looked(node, call, answer);
    case Kind::kAppend: {
      const Span span{answer.offset, answer.offset + call.size};
      const std::string wrong = model_.check_place(span, call.began);
      if (!wrong.empty()) problem(wrong);
      write(node, span);
      return finish(call, "append");
    }
    case Kind::kMap:
      return publish(node, call, answer);
    case Kind::kTruncate:
    case Kind::kCommit:
      if (params_.canary != ShareWorldParams::Canary::kNoTakeBack) call.holds = answer.holds;
      if (call.holds.empty()) return end_change(node, call);
      call.id = next_call_++;
      call.stage = Call::Stage::kTakeBack;
      return take_back(node, call);
  }
}

void ShareWorld::looked(Node& node, Call& call, const ShareAnswer& answer) {
  auto parts = node.share->plan(*call.reading, answer);
  if (!parts.ok()) return problem(parts.status().to_string());
  call.parts = std::move(*parts);
  call.wanted.clear();
  call.got.clear();
  for (const ReadPart& part : call.parts)
    if (part.from == ReadPart::From::kNode) call.wanted[part.node].push_back(part.span);
  if (call.wanted.empty()) return end_read(node, call);
  call.id = next_call_++;
  call.stage = Call::Stage::kFetch;
  fetch(node, call);
}

void ShareWorld::fetch(Node& node, Call& call) {
  for (const auto& [other, spans] : call.wanted)
    send({.from = node.id, .to = other, .life = node.life, .call = call.id, .spans = spans});
}

void ShareWorld::end_read(Node& node, Call& call) {
  using From = ReadPart::From;
  std::vector<Value> bytes;
  for (const ReadPart& part : call.parts) {
    for (uint64_t at = part.span.begin; at < part.span.end; ++at) {
      if (part.from != From::kOwn) {
        bytes.push_back(part.from == From::kNode      ? call.got.at(at)
                        : part.from == From::kBacking ? kOld
                                                      : kHole);
        continue;
      }
      const auto own = node.bytes.find(at);
      if (own == node.bytes.end()) {  // cut meanwhile
        ++outcome_.asked_again;
        node.last_answer.reset();
        return advance(node, call);
      }
      bytes.push_back(own->second.value);
    }
  }
  const auto own = node.share->own_at_end(*call.reading);
  if (!own.ok()) return problem(own.status().to_string());
  for (const Span& span : *own)
    for (uint64_t at = span.begin; at < std::min(span.end, call.span.begin + bytes.size()); ++at)
      bytes[at - call.span.begin] = node.bytes.at(at).value;
  const std::string wrong = model_.check_read(node.id, call.span, bytes, call.began, now_);
  if (!wrong.empty()) problem(wrong);
  if (call.span == Span{0, kReadBytes}) whole_.push_back(bytes);
  finish(call, "read");
}

void ShareWorld::finish(Call& call, const char* what) {
  ++outcome_.calls[what];
  call.stage = Call::Stage::kDone;
}

void ShareWorld::repeat(Node& node, Call& call) {
  if (call.stage == Call::Stage::kDone) return;
  if (call.stage == Call::Stage::kBegin) return advance(node, call);
  if (++call.repeats > kRepeatsMax && !quiet_) return give_up(node, call);
  if (call.stage == Call::Stage::kFetch) return fetch(node, call);
  if (call.stage == Call::Stage::kTakeBack) return take_back(node, call);
  send({.from = node.id, .to = kRoot, .life = node.life, .call = call.id, .text = call.request});
}

void ShareWorld::give_up(Node& node, Call& call) {
  using Kind = Call::Kind;
  ++outcome_.given_up;
  const bool change = call.kind == Kind::kCommit || call.kind == Kind::kTruncate;
  if (change && (call.stage == Call::Stage::kRoot || call.stage == Call::Stage::kTakeBack)) {
    node.share->end_change(kShared, NodeShare::Ended::kUnknown);
    withdraw_map(node);
  }
  call.stage = Call::Stage::kDone;
}

// ---- the run

void ShareWorld::step() {
  ++now_;
  ++outcome_.steps;
  for (Node& each : nodes_)
    if (each.map && rng_.chance(1, 4)) read_by_map(each);
  Node& node = nodes_[rng_.below(nodes_.size())];
  const uint64_t dice = rng_.below(100);
  if (!quiet_ && chance(params_.kill_per_mille)) {
    kill_node(node);
  } else if (!bag_.empty() && dice < 55) {
    deliver(rng_.below(bag_.size()));
  } else if (left_ > 0 && dice < 85) {
    --left_;
    if (rng_.chance(1, 2)) {
      const uint64_t begin = rng_.below(kSpace);
      write(node, {begin, begin + 1 + rng_.below(8)});
    } else if (node.calls.size() < 3) {
      begin_call(node);
    }
  } else if (!node.calls.empty()) {
    Call& call = node.calls[rng_.below(node.calls.size())];
    if (call.stage == Call::Stage::kBegin || rng_.chance(1, 4)) repeat(node, call);
  }
  for (Node& each : nodes_)
    std::erase_if(each.calls, [](const Call& call) { return call.stage == Call::Stage::kDone; });
}

bool ShareWorld::idle() const {
  return left_ == 0 &&
         std::all_of(nodes_.begin(), nodes_.end(), [](const Node& node) { return node.calls.empty(); });
}

void ShareWorld::run_until_idle() {
  while (!idle() && outcome_.problem.empty()) {
    if (outcome_.steps > kStepsMax) return problem("a call never ends");
    step();
  }
}

// When all is committed, all nodes read the same.
void ShareWorld::expect_equal_at_end() {
  quiet_ = true;
  for (const auto kind : {Call::Kind::kCommit, Call::Kind::kRead}) {
    whole_.clear();
    for (Node& node : nodes_) {
      Call call;
      call.kind = kind;
      call.began = ++now_;
      call.span = {0, kReadBytes};
      node.calls.push_back(call);
      advance(node, node.calls.back());
    }
    run_until_idle();
  }
  for (const auto& bytes : whole_)
    if (bytes != whole_.front()) problem("after all commits two nodes read different bytes");
}

ShareWorldOutcome ShareWorld::run() {
  run_until_idle();
  if (outcome_.problem.empty()) expect_equal_at_end();
  return outcome_;
}

}  // namespace swale::fs
