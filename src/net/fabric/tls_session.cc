#include "net/fabric/tls_session.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/contain.h"

namespace swale::net {

namespace {

constexpr char kNoMemory[] = "no memory";  // short: a string of it needs none

// What another user of OpenSSL on this thread may have left would be taken for ours (SSL_get_error). Mostly
// there is nothing, and clearing touches every place of the thread's queue.
void forget_errors() {
  if (ERR_peek_error() != 0) ERR_clear_error();
}

}  // namespace

std::unique_ptr<char[]> TlsBuffers::take() {
  if (free_.empty()) {
    free_.reserve(kKeptMax);  // give needs no memory
    return std::unique_ptr<char[]>(new char[kBytes]);
  }
  std::unique_ptr<char[]> buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void TlsBuffers::give(std::unique_ptr<char[]> buffer) {
  if (free_.size() < std::min(kKeptMax, free_.capacity())) free_.push_back(std::move(buffer));
}

// OpenSSL's view of the socket. What it writes goes into the session's buffer, so that several records leave
// with one system call, and none with SIGPIPE.
struct TlsSocketBio {
  static TlsSession* session_of(BIO* bio) { return static_cast<TlsSession*>(BIO_get_data(bio)); }

  static int write(BIO* bio, const char* bytes, int count) {
    BIO_clear_retry_flags(bio);
    return session_of(bio)->append(bytes, static_cast<size_t>(count)) ? count : -1;
  }
  static int read(BIO* bio, char* into, int room) {
    BIO_clear_retry_flags(bio);
    const ssize_t got = session_of(bio)->receive(into, static_cast<size_t>(room));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
    return static_cast<int>(got);
  }
  static long control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return session_of(bio)->ended_ ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }
  // nullptr: no memory.
  static const BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* all = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "swale socket");
      if (all != nullptr) {
        BIO_meth_set_write(all, write);
        BIO_meth_set_read(all, read);
        BIO_meth_set_ctrl(all, control);
      }
      return all;
    }();
    return made;
  }
};

Result<std::unique_ptr<TlsSession>> TlsSession::make(const TlsContext* context, TlsBuffers* buffers, int fd,
                                                     Side side, Sockets& sockets) {
  std::unique_ptr<TlsSession> made(new (std::nothrow) TlsSession(buffers, fd, sockets));
  if (!made) sockets.close(fd);
  BIO* bio = nullptr;
  if (made && context != nullptr) {
    made->ssl_ = context->make_connection();
    bio = TlsSocketBio::method() != nullptr ? BIO_new(TlsSocketBio::method()) : nullptr;
  }
  if (!made || (context != nullptr && (made->ssl_ == nullptr || bio == nullptr))) {
    BIO_free(bio);
    ERR_clear_error();
    return error(Code::kResourceExhausted, Scope::kPeer, "no memory for a TLS connection");
  }
  if (bio != nullptr) {
    BIO_set_data(bio, made.get());
    BIO_set_init(bio, 1);
    SSL_set_bio(made->ssl_, bio, bio);
    if (side == Side::kAccepts) {
      SSL_set_accept_state(made->ssl_);
    } else {
      SSL_set_connect_state(made->ssl_);
      // A peer that shows a certificate in place of the key is refused: none is trusted.
      SSL_set_verify(made->ssl_, SSL_VERIFY_PEER, nullptr);
    }
  }
  return made;
}

TlsSession::~TlsSession() {
  SSL_free(ssl_);
  sockets_.close(fd_);
  if (out_) buffers_->give(std::move(out_));
}

ssize_t TlsSession::receive(char* into, size_t room) {
  if (drained_) {
    errno = EAGAIN;
    return -1;
  }
  const ssize_t got = sockets_.receive(fd_, into, room);
  if (got < 0 && errno != EAGAIN && errno != EINTR) errno_ = errno;
  ended_ |= got == 0;
  // Level-triggered: if more comes meanwhile, epoll says so.
  drained_ = got > 0 && static_cast<size_t>(got) < room;
  return got;
}

bool TlsSession::append(const char* bytes, size_t count) {
  if (!out_ && !contain([&] { out_ = buffers_->take(); }).ok()) {
    no_memory_ = true;
    why_ = kNoMemory;
    return false;
  }
  if (count > TlsBuffers::kBytes - end_) return false;  // a peer that makes OpenSSL answer, and does not read
  std::memcpy(out_.get() + end_, bytes, count);
  end_ += count;
  return true;
}

TlsSession::Step TlsSession::failed(int code, std::string_view what) {
  if (no_memory_) {  // OpenSSL only knows that it could not write
    ERR_clear_error();
    why_ = kNoMemory;
    return Step::kFailed;
  }
  if (ssl_ != nullptr) {
    const int kind = SSL_get_error(ssl_, code);
    if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) return Step::kAgain;
    if (kind == SSL_ERROR_ZERO_RETURN || (ended_ && errno_ == 0)) {
      ERR_clear_error();
      return Step::kEnd;
    }
  }
  why_ = errno_ != 0 ? fmt::format("{}: {}", what, std::strerror(errno_))
                     : fmt::format("{}: {}", what, tls_error_text());
  ERR_clear_error();
  // After a reset the connection is at its end, as after a close.
  return errno_ == ECONNRESET || errno_ == EPIPE ? Step::kEnd : Step::kFailed;
}

TlsSession::Step TlsSession::handshake() {
  if (ssl_ == nullptr) return Step::kDone;
  forget_errors();
  begin_reading();
  const int done = SSL_do_handshake(ssl_);
  if (done != 1) return failed(done, "TLS handshake");
  // TLS's word for "the pre-shared key was used".
  if (SSL_session_reused(ssl_) == 1) return Step::kDone;
  why_ = "TLS handshake: the peer did not use the job's key";
  return Step::kFailed;
}

bool TlsSession::put(Bytes bytes) {
  assert(bytes.size() <= kPutMax && room());
  if (ssl_ == nullptr) return append(bytes.data(), bytes.size());
  forget_errors();
  if (++records_ > rekey_after_) {
    records_ = 1;
    if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return failed(-1, "new keys"), false;
  }
  size_t taken = 0;
  const int done = SSL_write_ex(ssl_, bytes.data(), bytes.size(), &taken);
  if (done == 1 && taken == bytes.size()) return true;
  if (failed(done, "encrypting") == Step::kAgain) why_ = "encrypting: OpenSSL asked to try again";
  return false;
}

// Moves at most as many bytes as have been sent.
void TlsSession::make_room() {
  if (begin_ < TlsBuffers::kBytes / 2) return;
  std::memmove(out_.get(), out_.get() + begin_, unsent());
  end_ -= std::exchange(begin_, 0);
}

TlsSession::Step TlsSession::flush() {
  while (begin_ != end_) {
    const ssize_t sent = sockets_.send(fd_, out_.get() + begin_, end_ - begin_);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      make_room();
      return Step::kAgain;
    }
    if (sent < 0) {
      errno_ = errno;
      why_ = fmt::format("sending: {}", std::strerror(errno_));
      return errno_ == ECONNRESET || errno_ == EPIPE ? Step::kEnd : Step::kFailed;
    }
    begin_ += static_cast<size_t>(sent);
  }
  begin_ = end_ = 0;
  if (out_) buffers_->give(std::move(out_));
  return Step::kDone;
}

TlsSession::Step TlsSession::read(char* into, size_t room, size_t* bytes) {
  *bytes = 0;
  if (ssl_ == nullptr) {
    const ssize_t got = receive(into, room);
    if (got == 0) return Step::kEnd;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Step::kAgain;
    if (got < 0) return failed(-1, "receiving");
    *bytes = static_cast<size_t>(got);
    return Step::kDone;
  }
  // Nothing has come since OpenSSL took all there was: it would only say so.
  if (drained_ && SSL_has_pending(ssl_) == 0) return Step::kAgain;
  forget_errors();
  const int done = SSL_read_ex(ssl_, into, room, bytes);
  return done == 1 ? Step::kDone : failed(done, "receiving");
}

}  // namespace swale::net
