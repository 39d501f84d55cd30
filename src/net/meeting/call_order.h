// CallOrder: finds ranks that make different collective calls. All ranks make the collective calls of a job
// in one order. Where they do not, each waits for something that the other will never send, though both live:
// no deadline finds that.
//
// Calls of the job (opening or making a directory, opening and closing a metadata store or I/O servers,
// closing the job) have numbers, the same on all ranks; and so have the calls on each directory (ends of
// epochs, close). A message of a call says its number and which call it is, and a call on a directory also
// how many calls of the job its sender had made before. So a receiver finds
//   - another call of the same number;
//   - a call on a directory that this rank has passed over: it has made a call of the job that the sender has
//     not.
// A message from ahead is kept until this rank gets there. Ranks may learn at different calls that writing to
// a directory has failed, so that its calls are compared no more (forget). Ends of epochs of two directories
// are not compared with each other: threads may make them at the same time.
//
// Threads: any. Errors: kInvalidArgument, scope fatal (is_mismatch): the application's ranks cannot go on.
// Limits: of each directory one message from ahead is kept, and of the job kKept.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/mutex.h"
#include "base/status.h"
#include "net/fabric/transport.h"

namespace swale::net {

// DO NOT CHANGE THESE VALUES: ranks of one job may run different builds.
enum class CallKind : uint8_t {
  kNone = 0,
  kOpenDirectory = 1,
  kMakeDirectory = 2,
  kEndEpoch = 3,
  kCloseDirectory = 4,
  kCloseJob = 5,
  kOpenStore = 6,  // a metadata store
  kCloseStore = 7,
  kOpenServers = 8,  // I/O servers
  kCloseServers = 9,
  kSetAttributes = 10,  // of a massive directory: a call of the job
};

// What messages of a call on a directory carry.
struct CallStamp {
  uint32_t number = 0;     // among the calls on this directory, from 1; 0: not told
  uint32_t job_calls = 0;  // calls of the job that its sender had made before
  bool operator==(const CallStamp&) const = default;
};

// Whether a failure says that ranks made different calls.
inline bool is_mismatch(const Status& status) {
  return status.code() == Code::kInvalidArgument && status.scope() == Scope::kFatal;
}

class CallOrder {
 public:
  static constexpr uint32_t kKept = 64;

  explicit CallOrder(Rank rank) : rank_(rank) {}

  // This rank makes its next call of the job. `path`: of its directory, for messages. A failure if a peer is
  // known to have made another call in its place.
  Status begin(CallKind kind, std::string_view path);
  // The number and kind of the last one.
  CallKind last(uint32_t* number) const;
  // A peer says that its call of the job of this number is of this kind.
  Status heard(Rank peer, uint32_t number, CallKind kind);

  // The same for the directory of a channel: kEndEpoch or kCloseDirectory. `epoch`: for messages.
  void add_channel(uint32_t channel);
  Status begin(uint32_t channel, CallKind kind, uint32_t epoch, std::string_view path, CallStamp* stamp);
  Status heard(Rank peer, uint32_t channel, CallKind kind, uint32_t epoch, const CallStamp& stamp);
  void forget(uint32_t channel);

 private:
  struct Call {
    CallKind kind = CallKind::kNone;
    uint32_t epoch = 0;
    std::string path;  // empty: not known
  };
  struct JobCall {
    uint32_t number = 0;  // 0: none
    Rank peer = -1;       // of a claim
    Call call;
  };
  struct Directory {
    uint32_t made = 0;    // calls
    uint32_t closed = 0;  // the number of the close, if made
    std::string path;
    CallStamp ahead = {};  // a peer's call that this rank has not made yet
    Rank peer = -1;
    CallKind kind = CallKind::kNone;
    uint32_t epoch = 0;
  };

  static std::string text_of(const Call& call);
  Status mismatch(const Call& own, Rank peer, const Call& theirs) const;

  const Rank rank_;
  mutable Mutex mutex_;
  uint32_t number_ GUARDED_BY(mutex_) = 0;  // calls of the job so far
  std::array<JobCall, kKept> own_ GUARDED_BY(mutex_);
  std::array<JobCall, kKept> ahead_ GUARDED_BY(mutex_);
  std::map<uint32_t, Directory> directories_ GUARDED_BY(mutex_);  // by channel
};

}  // namespace swale::net
