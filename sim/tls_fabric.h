// TlsFabric: the Fabric whose frames travel by the product's transport `tls` over the Wire (tls_net.h). What
// a test loses, doubles or alters is a frame before it is posted; faults of the wire are the Wire's.
//
// Threads: the simulation's one.
#pragma once

#include <utility>
#include <vector>

#include "sim/fabric.h"
#include "sim/tls_net.h"

namespace swale::sim {

class TlsFabric final : public Fabric {
 public:
  TlsFabric(EventQueue& events, uint64_t secret, std::vector<FrameFaultPlan> faults,
            const TlsNet::Params& params, const Arrive& arrive, const Lose& lose)
      : Fabric(events, secret, std::move(faults), arrive),
        net_(events, params,
             {[arrive](net::Rank at, net::Rank from, Bytes header, Bytes payload) {
                arrive(from, at, header, payload);
              },
              [](net::Rank, uint64_t) {}, lose}) {}

  // `total` gets what the wire has carried, at the end.
  void count_into(Wire::Counts* total) { total_ = total; }
  ~TlsFabric() override {
    if (total_ != nullptr) total_->add(net_.wire().counts());
  }

  void kill(net::Rank rank) override { net_.kill(rank); }
  bool drop(net::Rank at, net::Rank peer, const Status& why) override {
    net_.drop(at, peer, why);
    return true;
  }
  TlsNet& net() { return net_; }

 protected:
  void deliver(net::Rank from, net::Rank to, Frame frame) override {
    net_.post(from, to, frame.header, frame.payload, ++cookie_);
  }

 private:
  TlsNet net_;
  uint64_t cookie_ = 0;
  Wire::Counts* total_ = nullptr;
};

}  // namespace swale::sim
