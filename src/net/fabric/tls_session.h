// TlsSession: one connection: a socket, TLS over it, and a buffer of what is to be sent. Nothing here blocks.
//
// What is put is encrypted at once, into the buffer; flush sends it. So whoever put bytes may use their
// memory again. The buffer is bounded: put only while there is room().
//
// Without a TlsContext bytes go in clear: a benchmark's comparison, and nothing else.
// Threads: one at a time. Errors: after kFailed, why() says it, and the connection is of no more use.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "net/fabric/sockets.h"
#include "net/fabric/tls_context.h"

namespace swale::net {

// Buffers for what connections have to send: a connection has one while it has something.
class TlsBuffers {
 public:
  static constexpr size_t kBytes = 192 * kKiB;

  std::unique_ptr<char[]> take();
  void give(std::unique_ptr<char[]> buffer);

 private:
  static constexpr size_t kKeptMax = 8;
  std::vector<std::unique_ptr<char[]>> free_;
};

class TlsSession {
 public:
  enum class Side { kDials, kAccepts };
  enum class Step {
    kDone,
    kAgain,   // when the socket can be read (or written, if unsent)
    kEnd,     // the peer has closed the connection
    kFailed,  // see why()
  };
  static constexpr size_t kPutMax = 16 * kKiB;  // one record

  // `fd`, one of `sockets`, is the session's from here on, also when this fails. kResourceExhausted: no
  // memory.
  static Result<std::unique_ptr<TlsSession>> make(const TlsContext* context, TlsBuffers* buffers, int fd,
                                                  Side side, Sockets& sockets = kernel_sockets());
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  int fd() const { return fd_; }
  const std::string& why() const { return why_; }
  // New keys after so many records: AES-GCM's bound for one key is 2^24.5 (RFC 8446, 5.5).
  void rekey_after(uint64_t records) { rekey_after_ = records; }

  // kDone: the peer has proved that it has the key.
  Step handshake();

  // Whether kPutMax bytes can be put.
  bool room() const { return TlsBuffers::kBytes - end_ >= kPutMax + kRecordOverheadMax; }
  // At most kPutMax bytes. False: failed.
  bool put(Bytes bytes);
  // After put has failed: kEnd if the peer had closed the connection before.
  Step put_failure() const { return why_.empty() ? Step::kEnd : Step::kFailed; }
  size_t unsent() const { return end_ - begin_; }
  Step flush();  // kDone: all is sent

  // At most `room` bytes come.
  Step read(char* into, size_t room, size_t* bytes);
  // A round of reads begins: the socket may have something again.
  void begin_reading() { drained_ = false; }

 private:
  // A record's head, its tag, and that of a change of keys before it.
  static constexpr size_t kRecordOverheadMax = 512;

  TlsSession(TlsBuffers* buffers, int fd, Sockets& sockets) : buffers_(buffers), fd_(fd), sockets_(sockets) {}
  friend struct TlsSocketBio;
  ssize_t receive(char* into, size_t room);
  bool append(const char* bytes, size_t count);
  void make_room();
  Step failed(int code, std::string_view what);

  TlsBuffers* const buffers_;
  const int fd_;
  Sockets& sockets_;
  SSL* ssl_ = nullptr;
  std::unique_ptr<char[]> out_;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool drained_ = false;  // the socket had less than was asked for
  bool ended_ = false;
  bool no_memory_ = false;  // for what is to be sent
  int errno_ = 0;
  uint64_t records_ = 0;  // under the present keys
  uint64_t rekey_after_ = uint64_t{1} << 23;
  std::string why_;
};

}  // namespace swale::net
