#include "io/held_lock.h"

#include <set>
#include <utility>

#include "base/log.h"
#include "base/mutex.h"

namespace swale::io {
namespace {

struct NonceList {
  Mutex mutex;
  std::multiset<std::string> nonces GUARDED_BY(mutex);
};
NonceList& nonce_list() {
  static NonceList list;
  return list;
}

struct Listing {
  explicit Listing(std::string text) : nonce(std::move(text)) {
    NonceList& list = nonce_list();
    const MutexLock lock(list.mutex);
    list.nonces.insert(nonce);
  }
  ~Listing() {
    NonceList& list = nonce_list();
    const MutexLock lock(list.mutex);
    list.nonces.erase(list.nonces.find(nonce));
  }
  Listing(const Listing&) = delete;
  Listing& operator=(const Listing&) = delete;
  const std::string nonce;
};

}  // namespace

std::shared_ptr<void> list_nonce(const std::string& nonce) { return std::make_shared<Listing>(nonce); }

bool is_listed(const std::string& nonce) {
  NonceList& list = nonce_list();
  const MutexLock lock(list.mutex);
  return list.nonces.contains(nonce);
}

HeldLock::HeldLock(Device& device, std::string path, LockContent content, std::unique_ptr<File> file,
                   std::shared_ptr<void> listed)
    : path_(std::move(path)),
      content_(std::move(content)),
      device_(&device),
      file_(std::move(file)),
      listed_(std::move(listed)) {}

Status HeldLock::check_locked() {
  if (lost_) return why_lost_;
  if (device_ == nullptr) return error(Code::kAborted, Scope::kFile, "{}: was released", path_);
  const Result<FoundLock> found = read_lock(*device_, path_);
  if (!found.ok() && found.status().code() != Code::kNotFound) return found.status();
  if (found.ok() && found->content.ok() && found->content->nonce == content_.nonce) return {};
  std::string what;
  if (!found.ok()) {
    what = "was removed (or its directory was moved or removed)";
  } else if (found->content.ok()) {
    what = fmt::format("was taken over by {} at {} (job {})", found->content->who(), found->content->since,
                       found->content->job);
  } else {
    what = fmt::format("was overwritten: it {}", found->content.status().message());
  }
  why_lost_ = error(Code::kAborted, Scope::kFile,
                    "{}: {} while this process held it since {}; it may write here no more. Open the "
                    "directory again to go on",
                    path_, what, content_.since);
  lost_ = true;
  log_error("{}", why_lost_.message());
  return why_lost_;
}

Status HeldLock::check() {
  const MutexLock lock(mutex_);
  return check_locked();
}

// With a sync: otherwise other hosts would see the write only after this host writes its page cache back.
Status HeldLock::write_counter() {
  SWALE_RETURN_IF_ERROR(file_->pwrite(kCounterOffset, LockContent::counter_text(counter_ + 1)));
  ++counter_;
  return file_->sync();
}

Nanos HeldLock::renew(Nanos now) {
  const MutexLock lock(mutex_);
  if (device_ == nullptr || lost_) return kForever;
  Status renewed = check_locked();
  if (lost_) return kForever;
  if (renewed.ok()) renewed = write_counter();
  if (!renewed.ok() && !failing_) {
    log_warn(
        "{}: the lease could not be renewed and is tried again: {}; after {:g} s others may take it over",
        path_, renewed.message(), to_seconds(content_.lease));
  }
  if (renewed.ok() && failing_) log_warn("{}: the lease is renewed again", path_);
  failing_ = !renewed.ok();
  return now + renewal_interval();
}

void HeldLock::release() {
  const MutexLock lock(mutex_);
  if (device_ == nullptr) return;
  const Status ours = check_locked();
  Device& device = *std::exchange(device_, nullptr);
  file_.reset();
  listed_.reset();
  if (lost_) return;  // logged already
  const Status removed = ours.ok() ? device.remove(path_) : ours;
  if (!removed.ok()) log_warn("{}: could not be removed: {}", path_, removed.to_string());
}

}  // namespace swale::io
