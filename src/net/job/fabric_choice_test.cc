// Which fabric a job takes.
#include "net/job/fabric_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "net/fabric/interfaces.h"

namespace swale::net::fabric_choice_test {
namespace {

using testing::HasSubstr;

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(::mkdtemp(name_)) {}
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  char name_[32] = "/tmp/swale_fabricXXXXXX";
  const std::string path_;
};

TEST(FabricChoice, IsUcxWhereNobodyElseCanReachItAndElseTls) {
  struct Row {
    const char* transport;
    NetworkFacts facts;
    Fabric fabric;
    Reach reach;
  };
  const Row rows[] = {{"auto", {true, 0, 0}, Fabric::kUcx, Reach::kNode},
                      {"ucx", {true, 0, 0}, Fabric::kUcx, Reach::kNode},
                      {"auto", {true, -1, -1}, Fabric::kUcx, Reach::kNode},
                      {"tls", {true, -1, -1}, Fabric::kTls, Reach::kAnywhere},
                      {"auto", {false, -1, 3}, Fabric::kUcx, Reach::kHardware},
                      {"ucx", {false, -1, 3}, Fabric::kUcx, Reach::kHardware},
                      {"auto", {false, 2, -1}, Fabric::kUcx, Reach::kAnywhere},
                      {"ucx", {false, 2, -1}, Fabric::kUcx, Reach::kAnywhere},
                      {"auto", {false, -1, -1}, Fabric::kUcx, Reach::kAnywhere},
                      {"auto", {false, 2, 3}, Fabric::kTls, Reach::kAnywhere},
                      {"tls", {false, -1, -1}, Fabric::kTls, Reach::kAnywhere},
                      {"loopback", {false, 0, 0}, Fabric::kLoopback, Reach::kAnywhere}};
  for (const Row& row : rows) {
    const auto chosen = choose_fabric(row.transport, row.facts);
    ASSERT_TRUE(chosen.ok()) << chosen.status().to_string();
    EXPECT_EQ(chosen->fabric, row.fabric) << row.transport << " " << chosen->why;
    EXPECT_EQ(chosen->reach, row.reach) << row.transport << " " << chosen->why;
  }
  const auto refused = choose_fabric("ucx", {false, 2, 3});
  EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(refused.status().message(), HasSubstr("rank 2 has no RDMA"));
  EXPECT_THAT(refused.status().message(), HasSubstr("job.trust=network"));
  EXPECT_EQ(choose_fabric("udp", {}).status().code(), Code::kInvalidArgument);
}

TEST(FabricChoice, TrustIsSaidAndNotGuessed) {
  const char* tls = nullptr;
  const auto environment = [&](const char* name) {
    return std::string_view(name) == "UCX_TLS" ? tls : nullptr;
  };
  std::string why_not;
  if (site_trusts_network("/etc/swale/trust", &why_not)) GTEST_SKIP() << "this site trusts its network";
  for (const auto& [value, trusted] :
       std::initializer_list<std::pair<const char*, bool>>{{nullptr, false},
                                                           {"", false},
                                                           {"all", false},
                                                           {"^tcp", false},
                                                           {"^sysv", false},
                                                           {"rc,ud,self", false},
                                                           {"tcp", true},
                                                           {"tcp,self", true},
                                                           {"self,tcp", true},
                                                           {"tcpx,self", false}}) {
    tls = value;
    EXPECT_EQ(look_at_network({}, environment).trusted, trusted) << (value == nullptr ? "unset" : value);
  }
  tls = nullptr;
  JobOptions options;
  options.trusts_network = true;
  EXPECT_TRUE(look_at_network(options, environment).trusted);
  for (const bool rdma : {false, true}) {
    for (const bool trusted : {false, true}) {
      const NetworkView back = NetworkView::of_word(NetworkView{rdma, trusted}.word());
      EXPECT_EQ(back.rdma, rdma);
      EXPECT_EQ(back.trusted, trusted);
    }
  }
}

TEST(FabricChoice, ASiteFileIsRootsAlone) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/trust";
  std::string why_not;
  EXPECT_FALSE(site_trusts_network(path, &why_not));
  EXPECT_EQ(why_not, "") << "no file is no word";
  std::ofstream(path) << "# of this site\n  network \n";
  ::chmod(path.c_str(), 0644);
  const bool root = ::geteuid() == 0;
  EXPECT_EQ(site_trusts_network(path, &why_not), root);
  EXPECT_EQ(why_not.empty(), root);
  why_not.clear();
  ::chmod(path.c_str(), 0664);
  EXPECT_FALSE(site_trusts_network(path, &why_not)) << "its group can write to it";
  EXPECT_THAT(why_not, HasSubstr("mode 664"));
  ::chmod(path.c_str(), 0644);
  const std::string link = folder.path() + "/link";
  ASSERT_EQ(::symlink(path.c_str(), link.c_str()), 0);
  why_not.clear();
  EXPECT_FALSE(site_trusts_network(link, &why_not));
  EXPECT_NE(why_not, "");
  if (!root) return;
  why_not.clear();
  std::ofstream(path) << "networks\n# network\nnet work\n";
  EXPECT_FALSE(site_trusts_network(path, &why_not));
  EXPECT_EQ(why_not, "");
  std::ofstream(path) << "network";
  ASSERT_EQ(::chown(path.c_str(), 4711, 0), 0);
  EXPECT_FALSE(site_trusts_network(path, &why_not));
  EXPECT_THAT(why_not, HasSubstr("owner 4711"));
}

TEST(FabricChoice, RdmaPortsAreActiveOnesOfDevicesThatUcxKnows) {
  const TemporaryFolder folder;
  const auto add = [&](const std::string& port, const char* state) {
    std::filesystem::create_directories(folder.path() + "/" + port);
    std::ofstream(folder.path() + "/" + port + "/state") << state << "\n";
  };
  EXPECT_TRUE(rdma_ports(folder.path() + "/none").empty());
  add("mlx5_0/ports/1", "4: ACTIVE");
  add("mlx5_0/ports/2", "1: DOWN");
  add("mlx5_1/ports/1", "2: INIT");
  add("efa_0/ports/1", "4: ACTIVE");
  add("rxe0/ports/1", "4: ACTIVE");
  EXPECT_THAT(rdma_ports(folder.path()), testing::ElementsAre("mlx5_0:1"));
}

TEST(FabricChoice, RdmaIsADeviceThatCanBeOpenedAndThatUcxMayUse) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path() + "/ports/mlx5_0/ports/1");
  std::filesystem::create_directories(folder.path() + "/devices");
  std::ofstream(folder.path() + "/ports/mlx5_0/ports/1/state") << "4: ACTIVE\n";
  const char* tls = nullptr;
  const char* devices = nullptr;
  const auto environment = [&](const char* name) {
    if (std::string_view(name) == "UCX_TLS") return tls;
    return std::string_view(name) == "UCX_NET_DEVICES" ? devices : nullptr;
  };
  const auto has_rdma = [&] {
    return look_at_network({}, environment, {folder.path() + "/ports", folder.path() + "/devices"}).rdma;
  };
  EXPECT_FALSE(has_rdma()) << "there is a port and no device, as in a container";
  std::ofstream(folder.path() + "/devices/rdma_cm") << "";
  EXPECT_FALSE(has_rdma()) << "that is no device";
  std::filesystem::create_directories(folder.path() + "/devices/uverbs0");
  EXPECT_FALSE(has_rdma()) << "it does not open for writing";
  std::ofstream(folder.path() + "/devices/uverbs1") << "";
  EXPECT_TRUE(has_rdma());
  for (const auto& [value, left] :
       std::initializer_list<std::pair<const char*, bool>>{{"", true},
                                                           {"all", true},
                                                           {"rc,self", true},
                                                           {"self,ud_x", true},
                                                           {"\\dc,sm", true},
                                                           {"ib", true},
                                                           {"^tcp", true},
                                                           {"^rc,ud", true},
                                                           {"tcp", false},
                                                           {"sm,self", false},
                                                           {"ud:aux,self", false},
                                                           {"^ib", false},
                                                           {"^rc,ud,dc", false}}) {
    tls = value;
    EXPECT_EQ(has_rdma(), left) << value;
  }
  tls = nullptr;
  devices = "eth0";
  EXPECT_FALSE(has_rdma());
  devices = "eth0,mlx5_0:1";
  EXPECT_TRUE(has_rdma());
}

TEST(FabricChoice, InterfacesInUseAreNotLoopbackUnlessThereIsNoOther) {
  const auto all = addresses_in_use();
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  ASSERT_FALSE(all->empty());
  for (const InterfaceAddress& each : *all) EXPECT_EQ(each.loopback, all->front().loopback) << each.interface;
}

}  // namespace
}  // namespace swale::net::fabric_choice_test
