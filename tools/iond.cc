// `swale iond`: an I/O server of a job: serves the files of a backing directory with a tiered write buffer in
// front.
#include <array>
#include <filesystem>
#include <memory>

#include "capi/handles.h"
#include "capi/options.h"
#include "iond/iond.h"
#include "iond/ordinary_user.h"
#include "iond/stats_socket.h"
#include "net/job/memory_share.h"
#include "tier/store/tier_counters.h"
#include "tools/iond.h"

namespace swale::tools {
namespace {

class Server {
 public:
  explicit Server(const IondChoices& choices) : choices_(choices) {}
  Status serve(net::Job& job) const;

 private:
  std::string ssd(net::Rank rank) const;
  std::string backing(net::Rank rank) const;
  Result<std::unique_ptr<tier::Store>> open_store(io::Device& device, const net::Job& job,
                                                  const Config& config) const;
  void tell(net::Rank rank, const tier::Store& store) const;

  const IondChoices& choices_;
};

std::string with_rank(std::string path, net::Rank rank) {
  const size_t at = path.find("%r");
  return at == std::string::npos ? path : path.replace(at, 2, std::to_string(rank));
}

std::string Server::ssd(net::Rank rank) const { return with_rank(choices_.tier.ssd, rank); }
std::string Server::backing(net::Rank rank) const { return with_rank(choices_.tier.backing, rank); }

Result<std::unique_ptr<tier::Store>> Server::open_store(io::Device& device, const net::Job& job,
                                                        const Config& config) const {
  SWALE_ASSIGN_OR_RETURN(tier::StoreOptions store,
                         choices_.tier.store_options(config, ssd(job.rank()), backing(job.rank())));
  store.memory = net::memory_limit(job, net::kNoDefaultLimit);
  return tier::Store::open(device, store);
}

Status Server::serve(net::Job& job) const {
  const auto read_options = [&]() -> Result<Config> {
    SWALE_RETURN_IF_ERROR(capi::check_process_variables());
    constexpr std::array kCalls = {capi::Call::kIond, capi::Call::kTier};
    return capi::config_of(kCalls, choices_.tier.text(), capi::process_environment);
  };
  const auto wanted = read_options();
  io::PosixDevice device;
  std::unique_ptr<tier::Store> store;
  Status mine = wanted.status();
  if (mine.ok()) {
    auto opened = open_store(device, job, *wanted);
    mine = opened.status();
    if (opened.ok()) store = std::move(*opened);
  }
  // All ranks hear of a server that cannot serve.
  std::optional<iond::IondServing> serving;
  if (store) serving = iond::IondServing{store.get(), backing(job.rank())};
  auto iond =
      iond::Iond::open(job, wanted.ok() ? iond::iond_options(*wanted) : iond::IondOptions(), serving, mine);
  SWALE_RETURN_IF_ERROR(iond.status());
  for (const Status& damaged : store->recovery().damaged) complain("{}", damaged.message());
  // Until it has drained, too.
  const auto stats = iond::StatsSocket::open(ssd(job.rank()), [&, server = iond->get()] {
    return iond::iond_counters(*store, server->load()).json();
  });
  if (!stats.ok()) complain("{}; so nobody can ask how this server stands", stats.status().message());
  const Status served = (*iond)->close();
  const Status closed = store->close(choices_.tier.at_close());
  tell(job.rank(), *store);
  return served.ok() ? closed : served;
}

void Server::tell(net::Rank rank, const tier::Store& store) const {
  const Counters counters = tier::tier_counters(store, rank);
  if (choices_.json) {
    Json line = {{"rank", rank}, {"backing", backing(rank)}};
    line.update(Json::parse(counters.json()));
    print_json(line);
    return;
  }
  print(fmt::format("{}: took {} writes with {} bytes, {} of them by the SSD; {} are left there\n",
                    backing(rank), counters.sum("write.requests"), counters.sum("write.bytes"),
                    counters.sum("ssd.bytes"), counters.sum("log.dirty")));
}

}  // namespace

void IondChoices::add_to(OptionSet command, TierChoices::Folders folders) {
  tier.add_to(command, "--at-end", folders);
  tier.add_options(
      command,
      "options iond.stripe and so on, as for swale_iond_open, and tier.dirty_age_s and so on: see "
      "swale-options(7)");
  command.add_flag("--json", json, "print JSON");
}

int serve_iond(const IondChoices& choices, const std::function<void()>& joined) {
  // Before this process joins the job: as root it has nothing to say to it.
  if (const Status user = iond::expect_ordinary_user(); !user.ok()) return fail(user);
  swale_job* job = nullptr;
  if (swale_job_open(nullptr, "", &job) != SWALE_OK) {
    complain("{}", swale_last_error());
    return kExitFailure;
  }
  if (joined) joined();
  const Status served = Server(choices).serve(*job->state->job);
  const bool left = swale_job_close(job) == SWALE_OK;
  if (!served.ok()) return fail(served);
  if (left) return finish_output(kExitOk);
  complain("{}", swale_last_error());
  return kExitFailure;
}

void add_iond(CLI::App& app, Run* run) {
  auto choices = std::make_shared<IondChoices>();
  OptionSet sub = add_command(
      app, "iond", "serves files to the other ranks of its job, with a tiered write buffer in front",
      {
          .description =
              "An I/O server. `swale run` starts servers beside a program that a launcher starts, also one "
              "of MPI. By hand, start one or more of them as ranks of the same job as the program, which "
              "must not be one of MPI then: MPI_Init would wait for them. It writes and reads files by the "
              "functions of swale/swale_iond.h. Files are striped over all servers (iond.stripe). Each "
              "server has an SSD directory and a backing directory of its own; %r in their names stands for "
              "its rank, for servers that share a host. The log is made if it is not there. A server runs as "
              "the user whose job it serves, "
              "and refuses to run as root.\n\n"
              "Start the servers in the same order and number each time: what they serve says which server "
              "it is. A server ends when all ranks have closed, or died; what is in the log then stays "
              "there, or is drained first. After a crash, start it again with the same directories: nothing "
              "that it acknowledged is missing, as "
              "--durability promises. With a single server, files in the backing directory are plain "
              "ones.\n\n"
              "While it runs, `swale tier stats` with its SSD directory says how it stands.",
          .examples = {{"mkdir -p slow && SWALE_JOB_RANK=0 SWALE_JOB_SIZE=1 swale iond --ssd ssd --backing "
                        "slow --size 16M",
                        "makes the log, finds no other rank, and ends with its counts"}},
      });
  choices->add_to(sub);
  sub.callback([choices, run] { *run = [choices] { return serve_iond(*choices, {}); }; });
}

}  // namespace swale::tools
