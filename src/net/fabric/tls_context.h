// TlsContext: what all TLS connections of a transport have in common. TLS 1.3 with the job's key as an
// external pre-shared key and nothing else: no certificate, no ticket, no early data, one cipher
// (TLS_AES_128_GCM_SHA256), and a fresh X25519 exchange for each connection, so that who learns the key later
// cannot read what was recorded before.
//
// Both sides check that the key was used: a server that shows a certificate instead is refused, and so is a
// client without the key.
// Threads: one at a time.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "base/status.h"
#include "net/fabric/job_key.h"

namespace swale::net {

class TlsContext {
 public:
  // What OpenSSL does with a connection's buffers, 83 KB, after each record: to allocate them anew costs a
  // small message a tenth of what OpenSSL takes for it.
  enum class Buffers { kGivenBack, kKept };
  // kUnsupported if OpenSSL cannot do it.
  static Result<std::unique_ptr<TlsContext>> make(const JobKey& key, Buffers buffers = Buffers::kGivenBack);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  // nullptr: no memory.
  SSL* make_connection() const { return SSL_new(context_); }

 private:
  explicit TlsContext(const JobKey& key) : key_(key) {}
  static const TlsContext* of(SSL* ssl);
  static int use_session(SSL* ssl, const EVP_MD* hash, const unsigned char** identity, size_t* bytes,
                         SSL_SESSION** session);
  static int find_session(SSL* ssl, const unsigned char* identity, size_t bytes, SSL_SESSION** session);
  SSL_SESSION* session_of(SSL* ssl) const;

  const JobKey key_;
  SSL_CTX* context_ = nullptr;
};

// The newest of this thread's errors of OpenSSL, for people; clears them.
std::string tls_error_text();

}  // namespace swale::net
