// Setting UCX up: configuration, worker, addresses, start.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <utility>

#include "base/log.h"
#include "net/fabric/interfaces.h"
#include "net/fabric/ucx_internal.h"
#include "net/fabric/ucx_settings.h"

namespace swale::net::ucx_internal {
namespace {

Status ucx_status(ucs_status_t status, std::string_view what) {
  return error(Code::kUnavailable, Scope::kFatal,
               "{} failed: {} (fabrics are chosen by UCX_TLS and UCX_NET_DEVICES)", what,
               ucs_status_string(status));
}

#define SWALE_UCX(call, what)                                                            \
  do {                                                                                   \
    if (const ucs_status_t ucx_ = (call); ucx_ != UCS_OK) return ucx_status(ucx_, what); \
  } while (false)

// What a job on one node uses. Segments of POSIX have mode 0600 and no name. Not: tcp, which listens on every
// address of the node, and writes into the memory of this process what a stranger sends; sysv, whose segments
// the user's group may read and write; cma, which nothing here needs.
constexpr char kNodeFabrics[] = "posix,self";
// What a job on several nodes uses by default: all but sysv.
constexpr char kAllFabrics[] = "^sysv";

// May the list of UCX_TLS choose one of these? "" is the default list; "^a,b" is all but a and b.
bool allows(std::string_view tls, std::initializer_list<const char*> names) {
  const bool all_but = tls.starts_with('^');
  bool named = false;
  for (const char* name : names) {
    named |= (',' + std::string(tls.substr(all_but ? 1 : 0)) + ',').find(fmt::format(",{},", name)) !=
             std::string::npos;
  }
  return tls.empty() || tls == "all" || named != all_but;
}

// Without tcp, which nobody has asked for: whoever reaches its port writes into this process's memory.
std::string without_tcp(const std::string& tls) {
  if (tls.empty() || tls == "all") return std::string(kAllFabrics) + ",tcp";
  return tls.starts_with('^') && allows(tls, {"tcp"}) ? tls + ",tcp" : tls;
}

bool allows_shared_memory(std::string_view tls) {
  return tls.starts_with(kAllFabrics) || allows(tls, {"sm", "shm", "mm", "posix", "sysv", "xpmem"});
}

// Whether the list names nothing but what a job on one node uses.
bool stays_inside_node(std::string_view tls) {
  while (!tls.empty()) {
    const std::string_view name = tls.substr(0, tls.find(','));
    if (name != "posix" && name != "self") return false;
    tls.remove_prefix(std::min(tls.size(), name.size() + 1));
  }
  return true;
}

// InfiniBand devices are named with their port, "mlx5_0:1"; TCP's are "eth0". Where UCX opens no TCP device,
// it warns of settings for them.
bool allows_tcp(std::string_view tls) {
  const char* devices = std::getenv("UCX_NET_DEVICES");
  return allows(tls, {"tcp"}) && (devices == nullptr || std::strchr(devices, ':') == nullptr);
}

// ucp_config_modify takes a fabric's setting by its name without the fabric's prefix before UCX 1.17 (seen in
// 1.13 to 1.16), and with it since (seen in 1.17 to 1.20). A name of the other kind does nothing but a
// warning in the users' terminals.
bool knows_fabrics_prefixes() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return major > 1 || (major == 1 && minor >= 17);
}

constexpr char kNeedsSharedMemory[] =
    "all ranks are on this node, so they use its shared memory alone: some 5 MB a rank, and with UCX 1.18 at "
    "least 16 MB free. Is there as much in /dev/shm?";

// UCX 1.18 leaves shared memory out, and only warns, where /dev/shm has less than 16 MB free. With a UCX that
// prints its fabrics otherwise, the ranks find out when they meet.
bool has_no_shared_memory(ucp_context_h context) {
  char* text = nullptr;
  size_t bytes = 0;
  FILE* const out = ::open_memstream(&text, &bytes);
  if (out == nullptr) return false;
  ucp_context_print_info(context, out);
  std::fclose(out);
  const std::unique_ptr<char, decltype(&std::free)> owner(text, std::free);
  const std::string_view fabrics(text, bytes);
  const auto names = [fabrics](const char* name) { return fabrics.find(name) != std::string_view::npos; };
  return names(" self/") && !names(" posix/");
}

}  // namespace

Status Ucx::configure(const TransportOptions& options, ucp_config_t* config) {
  const char* set = std::getenv("UCX_TLS");
  std::string tls = set != nullptr ? set : kAllFabrics;
  if (options.reach == Reach::kNode) {
    if (set != nullptr && !stays_inside_node(set) && rank_ == 0) {
      log_warn("UCX_TLS={} is not used: all ranks are on this node, and talk by its shared memory alone ({})",
               set, kNodeFabrics);
    }
    tls = kNodeFabrics;
  }
  if (options.reach == Reach::kHardware) tls = without_tcp(tls);
  if (set == nullptr || tls != set) {
    SWALE_UCX(ucp_config_modify(config, "TLS", tls.c_str()), fmt::format("ucp_config_modify TLS={}", tls));
  }
  for (const auto& [name, value] : options.settings) {
    if (name == "TLS") tls = value;
    SWALE_UCX(ucp_config_modify(config, name.c_str(), value.c_str()),
              fmt::format("ucp_config_modify {}={}", name, value));
  }
  const auto set_unless_user = [&](const char* name, const std::string& value) {
    if (user_sets_ucx(name)) return ok_status();
    SWALE_UCX(ucp_config_modify(config, name, value.c_str()),
              fmt::format("ucp_config_modify {}={}", name, value));
    return ok_status();
  };
  if (allows_shared_memory(tls)) {
    for (const auto& [name, value] : kUcxSharedMemorySettings)
      SWALE_RETURN_IF_ERROR(set_unless_user(name, value));
  }
  // By default UCX listens on the address of every interface, loopback too.
  if (options.reach != Reach::kNode && allows_tcp(tls)) {
    std::vector<std::string> devices = ucx_interfaces();
    for (std::string& each : rdma_ports()) devices.push_back(std::move(each));
    if (!devices.empty())
      SWALE_RETURN_IF_ERROR(set_unless_user("NET_DEVICES", fmt::format("{}", fmt::join(devices, ","))));
  }
  // Otherwise connect() blocks the progress thread, for 3 s to 2 minutes if the peer cannot be reached:
  // meanwhile this rank sends nothing, so that others take it for dead instead of the one that it tries to
  // reach.
  if (allows_tcp(tls) && !user_sets_ucx("TCP_CONN_NB")) {
    SWALE_RETURN_IF_ERROR(set_unless_user(knows_fabrics_prefixes() ? "TCP_CONN_NB" : "CONN_NB", "y"));
  }
  for (const auto& [name, value] : kUcxSettings) SWALE_RETURN_IF_ERROR(set_unless_user(name, value));
  return ok_status();
}

Status Ucx::init(const TransportOptions& options) {
  direct_ = options.posting == Posting::kDirect;
  secret_ = options.secret;
  ucp_config_t* config = nullptr;
  SWALE_UCX(ucp_config_read(nullptr, nullptr, &config), "ucp_config_read");
  Status configured = configure(options, config);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "swale";
  const ucs_status_t status = configured.ok() ? ucp_init(&params, config, &context_) : UCS_OK;
  ucp_config_release(config);
  SWALE_RETURN_IF_ERROR(configured);
  SWALE_UCX(status, "ucp_init");
  if (options.reach == Reach::kNode && has_no_shared_memory(context_))
    return ucx_status(UCS_ERR_NO_RESOURCE, fmt::format("{} ucp_init", kNeedsSharedMemory));

  ucp_worker_params_t worker{};
  worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // by fabric_mutex_
  if (const ucs_status_t made = ucp_worker_create(context_, &worker, &worker_); made != UCS_OK) {
    // Most often the first call that takes memory.
    return ucx_status(made, options.reach == Reach::kNode
                                ? fmt::format("{} ucp_worker_create", kNeedsSharedMemory)
                                : "ucp_worker_create");
  }
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
  handler.id = kActiveMessageId;
  handler.cb = on_message;
  handler.arg = this;
  handler.flags = UCP_AM_FLAG_WHOLE_MSG;
  SWALE_UCX(ucp_worker_set_am_recv_handler(worker_, &handler), "ucp_worker_set_am_recv_handler");

  int worker_fd = -1;
  SWALE_UCX(ucp_worker_get_efd(worker_, &worker_fd), "ucp_worker_get_efd");
  return init_beds(worker_fd, options.poll);
}

std::string Ucx::address() const {
  ucp_address_t* bytes = nullptr;
  size_t count = 0;
  if (ucp_worker_get_address(worker_, &bytes, &count) != UCS_OK) return "";
  const std::string out(reinterpret_cast<const char*>(bytes), count);
  ucp_worker_release_address(worker_, bytes);
  return out;
}

Status Ucx::start(std::shared_ptr<const AddressBook> book, TransportEvents* events) {
  if (book->ranks() != size_) {
    return invalid_argument("UCX transport: {} addresses for {} ranks", book->ranks(), size_);
  }
  book_ = std::move(book);
  return start_progress(events);
}

}  // namespace swale::net::ucx_internal

namespace swale::net {

Result<std::unique_ptr<UcxTransport>> ucx_transport(Rank rank, int32_t size,
                                                    const TransportOptions& options) {
  auto transport = std::make_unique<ucx_internal::Ucx>(rank, size);
  SWALE_RETURN_IF_ERROR(transport->init(options));
  return std::unique_ptr<UcxTransport>(std::move(transport));
}

}  // namespace swale::net
