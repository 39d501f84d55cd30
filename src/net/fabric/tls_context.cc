#include "net/fabric/tls_context.h"

#include <openssl/err.h>

#include <string_view>

namespace swale::net {
namespace {

// Sent in clear: it tells what is spoken, and nothing of the job.
constexpr std::string_view kIdentity = "swale job key 1";
constexpr unsigned char kCipher[2] = {0x13, 0x01};  // TLS_AES_128_GCM_SHA256
// Records are read in pieces of so many bytes: two frames of 32 KiB at most, with one system call.
constexpr size_t kReadBytes = 66 * 1024;

}  // namespace

std::string tls_error_text() {
  char text[256] = "no details";
  if (const unsigned long code = ERR_peek_last_error(); code != 0)
    ERR_error_string_n(code, text, sizeof(text));
  ERR_clear_error();
  return text;
}

Result<std::unique_ptr<TlsContext>> TlsContext::make(const JobKey& key, Buffers buffers) {
  if (!key.drawn()) return invalid_argument("the transport \"tls\" needs the job's key, and was given none");
  std::unique_ptr<TlsContext> made(new TlsContext(key));
  // A thread of ours may be in OpenSSL while the application ends.
  OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, nullptr);
  SSL_CTX* const context = made->context_ = SSL_CTX_new(TLS_method());
  if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 ||
      SSL_CTX_set1_groups_list(context, "X25519") != 1 || SSL_CTX_set_num_tickets(context, 0) != 1 ||
      SSL_CTX_set_app_data(context, made.get()) != 1) {
    return error(
        Code::kUnsupported, Scope::kFatal,
        "OpenSSL offers no TLS 1.3 with AES-GCM and X25519 here ({}): ranks on several nodes then need RDMA, "
        "or job.trust=network where the network between the nodes is private",
        tls_error_text());
  }
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  if (buffers == Buffers::kGivenBack) SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_max_early_data(context, 0);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadBytes);
  SSL_CTX_set_psk_use_session_callback(context, use_session);
  SSL_CTX_set_psk_find_session_callback(context, find_session);
  return made;
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

const TlsContext* TlsContext::of(SSL* ssl) {
  return static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

// nullptr: no memory. The connection owns it.
SSL_SESSION* TlsContext::session_of(SSL* ssl) const {
  const SSL_CIPHER* cipher = SSL_CIPHER_find(ssl, kCipher);
  SSL_SESSION* session = SSL_SESSION_new();
  if (session != nullptr && cipher != nullptr &&
      SSL_SESSION_set1_master_key(session, key_.bytes.data(), key_.bytes.size()) == 1 &&
      SSL_SESSION_set_cipher(session, cipher) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1) {
    return session;
  }
  SSL_SESSION_free(session);
  return nullptr;
}

int TlsContext::use_session(SSL* ssl, const EVP_MD*, const unsigned char** identity, size_t* bytes,
                            SSL_SESSION** session) {
  *session = of(ssl)->session_of(ssl);
  *identity = reinterpret_cast<const unsigned char*>(kIdentity.data());
  *bytes = kIdentity.size();
  return *session != nullptr ? 1 : 0;
}

// Without a session the handshake goes on without the key, and fails, because there is no certificate.
int TlsContext::find_session(SSL* ssl, const unsigned char* identity, size_t bytes, SSL_SESSION** session) {
  *session = nullptr;
  if (std::string_view(reinterpret_cast<const char*>(identity), bytes) != kIdentity) return 1;
  *session = of(ssl)->session_of(ssl);
  return *session != nullptr ? 1 : 0;
}

}  // namespace swale::net
