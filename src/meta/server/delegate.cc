#include "meta/server/delegate.h"

#include <algorithm>
#include <cassert>

namespace swale::meta {

bool unreached(const Status& status) {
  return status.code() == Code::kUnavailable || status.code() == Code::kDeadlineExceeded ||
         status.code() == Code::kAborted;
}

void Delegate::on_request(AttributeRequest request, uint32_t root, uint64_t token) {
  assert(root < shape_.servers && root != shape_.server);  // the root answers itself
  std::string key;
  append_u8(&key, static_cast<uint8_t>(request.op));
  append_file(&key, request.file);
  key += request.name;
  Flow& flow = flows_[key];
  flow.root = root;
  const auto fits = [&](const Batch& batch) { return mergeable(request, batch.request); };
  const auto batch = std::find_if(flow.queued.begin(), flow.queued.end(), fits);
  if (batch == flow.queued.end()) {
    flow.queued.push_back({std::move(request), {token}});
  } else {
    batch->tokens.push_back(token);
    merge(request, &batch->request);
    counters_.merged_max = std::max<uint64_t>(counters_.merged_max, batch->tokens.size());
  }
  ++counters_.requests;
  ++waiting_;
  list(key, &flow);
}

void Delegate::list(const std::string& key, Flow* flow) {
  assert(!flow->queued.empty() || flow->in_flight < shape_.in_flight_max);
  if (flow->listed) return;
  ready_.push_back(key);
  flow->listed = true;
}

void Delegate::flush() {
  std::vector<std::string> ready;
  ready.swap(ready_);
  for (const std::string& key : ready) {
    const auto place = flows_.find(key);
    assert(place != flows_.end() && place->second.listed);
    Flow& flow = place->second;
    flow.listed = false;
    while (!flow.queued.empty() && flow.in_flight < shape_.in_flight_max) {
      Batch first = std::move(flow.queued.front());
      flow.queued.erase(flow.queued.begin());
      ++flow.in_flight;
      send(key, &flow, std::move(first));
    }
    if (flow.queued.empty() && flow.in_flight == 0) flows_.erase(place);
  }
}

void Delegate::send(const std::string& key, Flow* flow, Batch batch) {
  assert(flow->in_flight > 0 && flow->in_flight <= shape_.in_flight_max && !batch.tokens.empty());
  const uint64_t id = next_id_++;
  ++counters_.forwarded;
  uint32_t to = flow->root;
  if (!flow->bypass && shape_.mode == RingMode::kRing)
    to = ring_parent(shape_.server, flow->root, shape_.servers, shape_.radix);
  Upstream& upstream = upstream_[id];
  upstream = {key, std::move(batch), to == flow->root};
  actions_.forward(to, upstream.batch.request, id);
}

void Delegate::on_answer(uint64_t id, const Result<std::string>& response) {
  const auto known = upstream_.find(id);
  if (known == upstream_.end()) return;
  Upstream upstream = std::move(known->second);
  upstream_.erase(known);
  Flow& flow = flows_.at(upstream.key);
  if (!response.ok() && unreached(response.status()) && !upstream.straight) {
    flow.bypass = true;
    ++counters_.bypassed;
    return send(upstream.key, &flow, std::move(upstream.batch));
  }
  assert(flow.in_flight > 0 && waiting_ >= upstream.batch.tokens.size());
  --flow.in_flight;
  list(upstream.key, &flow);
  waiting_ -= upstream.batch.tokens.size();
  for (const uint64_t token : upstream.batch.tokens) actions_.answer(token, response);
}

}  // namespace swale::meta
