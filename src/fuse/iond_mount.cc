#include "fuse/iond_mount.h"

#include <signal.h>

#include "fuse/iond_fs.h"
#include "fuse/mounted.h"

namespace swale::fuse {
namespace {

Status serve(iond::Iond& servers, const IondMountOptions& options) {
  SWALE_ASSIGN_OR_RETURN(const auto fs, IondFs::open(servers));
  Mounted mounted;
  mounted.mountpoint = options.mountpoint;
  mounted.name = "swale-iond";
  mounted.trusts_files = false;
  mounted.threads = options.threads;
  return serve_mounted(mounted, fs.get(), raise_descriptor_limit(), [&] {
    if (options.ready) options.ready(servers);
  });
}

// All threads of this process leave SIGTERM to this one.
Status stand_by(const IondMountOptions& options, const iond::Iond& servers) {
  SWALE_RETURN_IF_ERROR(options.wait_for_mount());
  const SignalsBlocked blocked;
  options.ready(servers);
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGTERM);
  int signal = 0;
  while (::sigwait(&ends, &signal) != 0) {
  }
  return {};
}

}  // namespace

Status run_iond_mount(net::Job& job, const IondMountOptions& options) {
  Status mine = options.mine;
  if (mine.ok()) mine = expect_mountpoint(options.mountpoint);
  std::unique_ptr<iond::Iond> servers;
  {
    const SignalsBlocked blocked;
    SWALE_ASSIGN_OR_RETURN(servers, iond::Iond::open(job, options.servers, std::nullopt, mine));
  }
  const Status served = options.wait_for_mount ? stand_by(options, *servers) : serve(*servers, options);
  const Status closed = servers->close();
  return served.ok() ? closed : served;
}

}  // namespace swale::fuse
