#include <memory>
#include <utility>

#include "capi/handles.h"
#include "capi/options.h"
#include "capi/structs.h"
#include "net/job/agree.h"
#include "net/meeting/bootstrap.h"
#include "net/meeting/rendezvous.h"
#include "net/meeting/topology.h"

namespace swale::capi {
namespace {

Result<std::unique_ptr<net::Bootstrap>> communicator(const swale_comm* given) {
  SWALE_RETURN_IF_ERROR(check_struct("swale_job_open", "comm", given));
  const swale_comm comm = take_struct(*given);
  if (comm.size < 1 || comm.rank < 0 || comm.rank >= comm.size) {
    return invalid_argument("swale_job_open: rank {} of {}: expected 0 <= rank < size", comm.rank, comm.size);
  }
  if (comm.size == 1) return net::solo_bootstrap();
  if (comm.allgather == nullptr) return null_argument("swale_job_open", "comm->allgather");
  net::CommCallbacks callbacks;
  callbacks.rank = comm.rank;
  callbacks.size = comm.size;
  callbacks.allgather = [comm](const void* send, void* receive, size_t bytes) {
    return comm.allgather(comm.context, send, receive, bytes);
  };
  return net::callback_bootstrap(std::move(callbacks));
}

Result<std::unique_ptr<net::Bootstrap>> launched(const net::JobSettings& settings) {
  SWALE_ASSIGN_OR_RETURN(const net::LaunchEnvironment launch, net::detect_launch(process_environment));
  if (launch.size == 1) return net::solo_bootstrap();
  SWALE_ASSIGN_OR_RETURN(const net::RendezvousOptions options,
                         net::rendezvous_options(settings, launch, process_environment));
  return net::rendezvous_bootstrap(options);
}

Status open_job(const swale_comm* comm, const char* text, std::shared_ptr<JobState>* state) {
  const auto read_settings = [&]() -> Result<net::JobSettings> {
    SWALE_RETURN_IF_ERROR(check_process_variables());
    return job_settings(text_or_empty(text), process_environment);
  };
  const Result<net::JobSettings> settings = read_settings();
  std::unique_ptr<net::Bootstrap> bootstrap;
  if (comm != nullptr) {
    SWALE_ASSIGN_OR_RETURN(bootstrap, communicator(comm));
    // All ranks learn of a rank whose options are wrong, instead of waiting for it.
    SWALE_RETURN_IF_ERROR(net::agree(*bootstrap, settings.status()));
  } else {
    SWALE_RETURN_IF_ERROR(settings.status());
    SWALE_ASSIGN_OR_RETURN(bootstrap, launched(*settings));
  }
  auto opened = std::make_shared<JobState>();
  SWALE_ASSIGN_OR_RETURN(opened->job, net::Job::open(std::move(bootstrap), settings->job));
  *state = std::move(opened);
  return {};
}

}  // namespace
}  // namespace swale::capi

using swale::Status;
using swale::capi::guarded;

extern "C" {

const char* swale_version(void) {
#define SWALE_TEXT_INNER(number) #number
#define SWALE_TEXT(number) SWALE_TEXT_INNER(number)
  return SWALE_TEXT(SWALE_VERSION_MAJOR) "." SWALE_TEXT(SWALE_VERSION_MINOR) "." SWALE_TEXT(
      SWALE_VERSION_PATCH);
}

const char* swale_code_name(int code) {
  static_assert(SWALE_OK == static_cast<int>(swale::Code::kOk) &&
                SWALE_CORRUPTION == static_cast<int>(swale::Code::kCorruption) &&
                SWALE_INTERNAL == static_cast<int>(swale::Code::kInternal));
  if (code < SWALE_OK || code > SWALE_INTERNAL) return "unknown code";
  return swale::code_name(static_cast<swale::Code>(code)).data();  // from a literal, so it ends with a NUL
}

const char* swale_last_error(void) { return swale::capi::last_error(); }

int swale_job_open(const swale_comm* comm, const char* options, swale_job** job) {
  return guarded([&]() -> Status {
    if (job == nullptr) return swale::capi::null_argument("swale_job_open", "job");
    auto handle = std::make_unique<swale_job>();
    SWALE_RETURN_IF_ERROR(swale::capi::open_job(comm, options, &handle->state));
    *job = handle.release();
    return {};
  });
}

int swale_job_rank(const swale_job* job) {
  if (job != nullptr) return job->state->job->rank();
  swale::capi::report(swale::capi::null_argument("swale_job_rank", "job"));
  return -1;
}

int swale_job_size(const swale_job* job) {
  if (job != nullptr) return job->state->job->size();
  swale::capi::report(swale::capi::null_argument("swale_job_size", "job"));
  return -1;
}

int swale_job_close(swale_job* job) {
  return guarded([&]() -> Status {
    std::unique_ptr<swale_job> handle(job);
    if (job == nullptr) return {};
    SWALE_RETURN_IF_ERROR(swale::capi::check_process_of("swale_job_close", *job->state, &handle));
    if (const int open = job->state->open_directories; open != 0) {
      const Status refused = swale::invalid_argument(
          "swale_job_close: {} directories of this job are still open; close them first. The handle is freed",
          open);
      // Other ranks may be waiting for this one in any call: the job cannot continue.
      if (job->state->job->size() > 1) {
        job->state->job->give_up(
            swale::error(swale::Code::kInvalidArgument, swale::Scope::kFatal,
                         "rank {} closes the job while {} directories of it are still open",
                         job->state->job->rank(), open));
      }
      return refused;
    }
    return job->state->job->close();
  });
}

}  // extern "C"
