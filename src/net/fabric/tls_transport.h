// TLS: the Transport between processes for networks that nobody has called private: TCP, with TLS 1.3 and the
// job's key (job_key.h). Who has no key reaches OpenSSL's handshake and no further: no byte of his is looked
// at by code of ours. docs/design/tls.md has the choices and the arithmetic behind them.
//
// One connection joins two ranks. Either may dial; the first record says who it is (after the handshake, so
// that only ranks of the job can say it), and the other one answers. If both dial at once, the lower rank's
// connection wins. A connection that ends without an end mark is a peer that is gone, for good.
//
// A stranger can hold kHalfOpenMax connections for kHandshakeDeadline at most; beyond that the oldest one is
// dropped, and a rank of the job to which this happens dials again. Connections that come to nothing are
// counted (Transport::rejected_messages), and the first is logged.
//
// Format of a connection after the handshake: records, each u32 bytes of the payload | u8 kind | u8 bytes of
// the header |
//   u16 0, then header and payload. Little-endian. Kinds: 0 frame, 1 end, 2 introduction (payload: u32 magic
//   "SWT1" | u32 rank | u32 rank that it means to reach | u64 the job's secret), 3 welcome, 4 refusal
//   (payload: u32, TlsRefusal).
// Threads: as Transport. Limits: a payload has at most 64 MiB.
#pragma once

#include <memory>

#include "net/fabric/seat.h"

namespace swale::net {

class TlsTransport : public SeatedTransport {
 public:
  static constexpr size_t kPayloadBytesMax = 64 * kMiB;
  // Strangers' connections, and ranks' that are not done with the handshake: as many as ranks, in these
  // bounds.
  static constexpr size_t kHalfOpenMin = 64;
  static constexpr size_t kHalfOpenMax = 512;
  static constexpr Nanos kHandshakeDeadline = seconds(5);

  // Connections that ranks of the job have made with this one, and those that are not that far. Any thread,
  // but not under a lock that an event takes.
  struct Connections {
    size_t open = 0;
    size_t half_open = 0;
  };
  virtual Connections connections() = 0;
};

// Settings: REKEY_AFTER, records of one connection until new keys.
Result<std::unique_ptr<TlsTransport>> tls_transport(Rank rank, int32_t size,
                                                    const TransportOptions& options = {});

}  // namespace swale::net
