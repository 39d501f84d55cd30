// What every engine's collective opening begins with: all ranks make the same call (call_order.h), all can
// make it, and all give the same options. What a rank sends, gets and holds for it does not grow with the
// job.
//
// Collective. Threads: one at a time per job. Errors: the failure of the lowest failing rank, on all ranks;
// kInvalidArgument names the two calls, or the option and the two ranks that differ.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "net/job/agree.h"
#include "net/meeting/bootstrap.h"
#include "net/meeting/call_order.h"

namespace swale::net {

// Begins a collective call on `job`: the ranks tell each other whether they can make it, and that it is the
// same one. `path`: of what is opened, for messages. A rank that runs out of memory here gives the job up,
// which tells the ranks that wait for it.
Status begin_collective(Job& job, CallKind kind, std::string_view path, const Status& mine);

// An option that all ranks must give alike: its name, as the table of options has it, and this rank's value.
struct AgreedOption {
  std::string name;
  std::string value;
};
// All ranks give the same names in the same order.
Status agree_on_options(const Ranks& ranks, std::span<const AgreedOption> options);
// Before there is a job.
Status agree_on_options(Bootstrap& bootstrap, std::span<const AgreedOption> options);

}  // namespace swale::net
