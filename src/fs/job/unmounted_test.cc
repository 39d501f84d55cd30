// A tree that is mounted nowhere: what its server answers, and what becomes of stand-ins.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/rng.h"
#include "fs/job/stand_ins.h"
#include "fs/job/testing/job_world.h"
#include "fs/job/unmounted_server.h"
#include "io/unix_address.h"

namespace swale::fs {
namespace {

constexpr int kLooksMax = 6'000;  // 10 ms apart
constexpr uint32_t kCreates = O_RDWR | O_CREAT;

struct Said {
  UnmountedAnswer answer;
  io::Descriptor passed;
};

class Unmounted : public testing::Test {
 protected:
  void SetUp() override { begin(); }
  void begin() {
    world_.start();
    folder_ = std::filesystem::path(world_.options().logs.memory_directory).parent_path();
    auto stand_ins = StandIns::open(fs(), folder_ + "/stand-ins", 1024);
    ASSERT_TRUE(stand_ins.ok()) << stand_ins.status().to_string();
    stand_ins_ = std::move(*stand_ins);
    auto server = UnmountedServer::open(fs(), *stand_ins_, folder_);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
  }
  void end() {
    server_.reset();
    stand_ins_.reset();
  }
  void TearDown() override { end(); }
  JobFs& fs() { return world_.fs(); }

  static UnmountedRequest request_for(UnmountedCall call, std::string_view path,
                                      std::string_view other = "") {
    UnmountedRequest request;
    request.call = call;
    request.path_bytes = static_cast<uint32_t>(path.size());
    request.other_bytes = static_cast<uint32_t>(other.size());
    path.copy(request.paths, path.size());
    other.copy(request.paths + path.size(), other.size());
    return request;
  }
  io::Descriptor connect() {
    io::Descriptor folder(::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    io::Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const sockaddr_un address = io::unix_address(folder, kUnmountedSocket);
    EXPECT_EQ(::connect(made.get(), io::general(address), sizeof(address)), 0);
    return made;
  }
  // False: no answer came.
  bool ask_bytes(const void* bytes, size_t size, Said* said) {
    const io::Descriptor to = connect();
    EXPECT_EQ(::send(to.get(), bytes, size, MSG_NOSIGNAL), static_cast<ssize_t>(size));
    iovec part = {&said->answer, sizeof(said->answer)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    if (::recvmsg(to.get(), &message, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof(said->answer)))
      return false;
    if (const cmsghdr* const head = CMSG_FIRSTHDR(&message); head != nullptr) {
      int passed = -1;
      std::memcpy(&passed, CMSG_DATA(head), sizeof(passed));
      said->passed = io::Descriptor(passed);
    }
    return true;
  }
  Said ask(const UnmountedRequest& request) {
    Said said;
    EXPECT_TRUE(ask_bytes(&request, kUnmountedHeadBytes + request.path_bytes + request.other_bytes, &said));
    return said;
  }
  int call(UnmountedCall call, std::string_view path, std::string_view other = "") {
    return ask(request_for(call, path, other)).answer.error;
  }
  Said open(std::string_view path, uint32_t flags, uint32_t mode = 0644) {
    UnmountedRequest request = request_for(UnmountedCall::kOpen, path);
    request.flags = flags;
    request.mode = mode;
    return ask(request);
  }
  void write(std::string_view path, std::string_view text) {
    const Said said = open(path, O_WRONLY | O_CREAT | O_TRUNC);
    ASSERT_EQ(said.answer.error, 0) << path;
    ASSERT_EQ(::write(said.passed.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  std::string read(std::string_view path) {
    const Said said = open(path, O_RDONLY);
    EXPECT_EQ(said.answer.error, 0) << path;
    std::string text(100, '\0');
    const ssize_t got = ::read(said.passed.get(), text.data(), text.size());
    return text.substr(0, got < 0 ? 0 : static_cast<size_t>(got));
  }
  LightStat stat(std::string_view path) {
    const Said said = ask(request_for(UnmountedCall::kLook, path));
    EXPECT_EQ(said.answer.error, 0) << path;
    return said.answer.stat;
  }
  size_t stand_ins_in_the_end(size_t wanted) {
    for (int i = 0; i < kLooksMax && stand_ins_->count() != wanted; ++i) ::usleep(10'000);
    return stand_ins_->count();
  }
  // What the tree itself has, without stand-ins.
  std::string content(const char* name) {
    Entry entry;
    std::unique_ptr<OpenFile> file;
    std::string bytes(100, '\0');
    size_t got = 0;
    EXPECT_EQ(fs().lookup(*fs().root(), name, &entry), 0);
    EXPECT_EQ(fs().open_file(*entry.node, O_RDONLY, Caller::this_thread(), &file), 0);
    EXPECT_EQ(fs().read(*file, 0, bytes, &got), 0);
    fs().release(std::move(file));
    fs().forget(entry.node, 1);
    return bytes.substr(0, got);
  }
  // Whose names begin so; "": those of files of the tree.
  int files_in_stand_ins(std::string_view begin) const {
    int count = 0;
    for (const auto& each : std::filesystem::directory_iterator(folder_ + "/stand-ins")) {
      const std::string name = each.path().filename();
      count += begin.empty() ? name.size() == 33 : name.starts_with(begin);
    }
    return count;
  }
  std::string only_stand_in() const {
    for (const auto& each : std::filesystem::directory_iterator(folder_ + "/stand-ins"))
      if (each.path().filename().string().size() == 33) return each.path();
    return "";
  }
  bool is_on_backing(const char* name) const {
    return ::access((world_.backing() + "/" + name).c_str(), F_OK) == 0;
  }

  JobWorld world_;
  std::string folder_;
  std::unique_ptr<StandIns> stand_ins_;
  std::unique_ptr<UnmountedServer> server_;
};

TEST_F(Unmounted, AFileIsWrittenAndReadByAllAndComesToTheTree) {
  Said writes = open("file", kCreates);
  ASSERT_EQ(writes.answer.error, 0);
  ASSERT_EQ(::write(writes.passed.get(), "one", 3), 3);
  EXPECT_EQ(read("file"), "one");
  EXPECT_EQ(stat("file").size, 3u);
  EXPECT_EQ(content("file"), "");  // the stand-in has it
  ASSERT_EQ(::pwrite(writes.passed.get(), "X", 1, 1), 1);
  EXPECT_EQ(read("file"), "oXe");
  EXPECT_FALSE(is_on_backing("file"));
  EXPECT_EQ(stand_ins_->count(), 1u);
  writes.passed = {};
  EXPECT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(content("file"), "oXe");
  EXPECT_EQ(read("file"), "oXe");
  EXPECT_EQ(stand_ins_in_the_end(0), 0u);
  ASSERT_TRUE(fs().drain_all().ok());
  EXPECT_TRUE(is_on_backing("file"));
  EXPECT_EQ(read("file"), "oXe");  // the backing's own: no stand-in
  EXPECT_EQ(stand_ins_->count(), 0u);
}

TEST_F(Unmounted, WhatIsMappedCountsAsOpen) {
  Said opened = open("mapped", kCreates);
  ASSERT_EQ(::ftruncate(opened.passed.get(), 4096), 0);
  char* const map =
      static_cast<char*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, opened.passed.get(), 0));
  ASSERT_NE(map, MAP_FAILED);
  opened.passed = {};
  ::usleep(400'000);
  map[0] = 'm';
  EXPECT_EQ(read("mapped").substr(0, 1), "m");
  ASSERT_EQ(::munmap(map, 4096), 0);
  EXPECT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(content("mapped").substr(0, 1), "m");
}

TEST_F(Unmounted, SyncTakesItInAndCutsAndHolesAreRight) {
  write("file", "0123456789");
  Said opened = open("file", O_RDWR);
  ASSERT_EQ(::ftruncate(opened.passed.get(), 0), 0);
  ASSERT_EQ(::pwrite(opened.passed.get(), "end", 3, 7), 3);
  ASSERT_EQ(call(UnmountedCall::kSync, "file"), 0);
  EXPECT_TRUE(is_on_backing("file"));
  EXPECT_EQ(content("file"), std::string(7, '\0') + "end");
  UnmountedRequest cut = request_for(UnmountedCall::kTruncate, "file");
  cut.size = 8;
  ASSERT_EQ(ask(cut).answer.error, 0);
  EXPECT_EQ(stat("file").size, 8u);
  opened.passed = {};
  EXPECT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(content("file"), std::string(7, '\0') + "e");
}

TEST_F(Unmounted, NamesAreRefusedAsTheKernelDoes) {
  EXPECT_EQ(open("none", O_RDONLY).answer.error, ENOENT);
  EXPECT_EQ(open("none/file", kCreates).answer.error, ENOENT);
  write("file", "x");
  EXPECT_EQ(open("file", kCreates | O_EXCL).answer.error, EEXIST);
  EXPECT_EQ(open("file/below", kCreates).answer.error, ENOTDIR);
  EXPECT_EQ(open("file", O_RDONLY | O_DIRECTORY).answer.error, ENOTDIR);
  EXPECT_EQ(open("file", O_RDWR | O_ASYNC).answer.error, EOPNOTSUPP);
  EXPECT_EQ(call(UnmountedCall::kRemoveDirectory, "file"), ENOTDIR);
  UnmountedRequest directory = request_for(UnmountedCall::kMakeDirectory, "folder");
  directory.mode = 0755;
  EXPECT_EQ(ask(directory).answer.error, 0);
  EXPECT_EQ(ask(directory).answer.error, EEXIST);
  EXPECT_TRUE(is_on_backing("folder"));
  EXPECT_EQ(open("folder", O_RDONLY).answer.kind, static_cast<uint32_t>(S_IFDIR));
  EXPECT_EQ(call(UnmountedCall::kUnlink, "folder"), EISDIR);
  EXPECT_EQ(call(UnmountedCall::kRename, "file", "folder"), EISDIR);
  EXPECT_EQ(call(UnmountedCall::kRename, "file", "folder/inside"), 0);
  EXPECT_EQ(call(UnmountedCall::kRemoveDirectory, "folder"), ENOTEMPTY);
  EXPECT_EQ(read("folder/inside"), "x");
  EXPECT_EQ(call(UnmountedCall::kMakeLink, "link", "folder"), 0);
  EXPECT_EQ(open("link/inside", O_RDONLY).answer.error, ELOOP);
  EXPECT_EQ(call(UnmountedCall::kUnlink, "folder/inside"), 0);
  EXPECT_EQ(call(UnmountedCall::kUnlink, "folder/inside"), ENOENT);
}

TEST_F(Unmounted, NoPathLeadsOut) {
  write("file", "x");
  const std::string too_long(NAME_MAX + 1, 'n');
  for (const std::string& path :
       {std::string(".."), std::string("../file"), std::string("/etc/passwd"), std::string("."),
        std::string("a\0b", 3), std::string("//"), std::string("./file"), too_long, std::string("file/")}) {
    EXPECT_NE(open(path, kCreates).answer.error, 0) << path;
    EXPECT_NE(call(UnmountedCall::kRename, "file", path), 0) << path;
    UnmountedRequest directory = request_for(UnmountedCall::kMakeDirectory, path);
    directory.mode = 0755;
    EXPECT_NE(ask(directory).answer.error, 0) << path;
  }
  EXPECT_EQ(open(".swale", kCreates).answer.error, ENOENT);
  EXPECT_EQ(open(".swale/file", kCreates).answer.error, ENOENT);
  EXPECT_EQ(call(UnmountedCall::kRename, "file", ".swale/file"), ENOENT);
  EXPECT_EQ(read("file"), "x");
}

TEST_F(Unmounted, AFileWithoutANameIsKeptForThoseThatHaveItOpen) {
  Said opened = open("file", kCreates);
  ASSERT_EQ(::write(opened.passed.get(), "still", 5), 5);
  ASSERT_EQ(call(UnmountedCall::kUnlink, "file"), 0);
  struct stat found;
  ASSERT_EQ(::fstat(opened.passed.get(), &found), 0);
  EXPECT_EQ(found.st_mode & 07777, kStandInMode);
  UnmountedRequest look = request_for(UnmountedCall::kLook, "");
  look.stand_in = found.st_ino;
  const Said said = ask(look);
  EXPECT_EQ(said.answer.error, 0);
  EXPECT_EQ(said.answer.stat.links, 0u);
  EXPECT_EQ(said.answer.stat.size, 5u);
  write("file", "another");
  opened.passed = {};
  EXPECT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(read("file"), "another");
  look.stand_in = 1;
  EXPECT_EQ(ask(look).answer.error, ESTALE);
}

TEST_F(Unmounted, AKilledServerLosesNothing) {
  Said stays = open("stays", kCreates);
  ASSERT_EQ(::write(stays.passed.get(), "before", 6), 6);
  Said gone = open("gone", kCreates);
  ASSERT_EQ(call(UnmountedCall::kUnlink, "gone"), 0);
  write("closed", "closed");
  end();
  world_.restart();
  // A copy that was not finished.
  io::Descriptor part(::open((folder_ + "/stand-ins/0000000000000000-0000000000000001.new").c_str(),
                             O_CREAT | O_WRONLY, 0600));
  ASSERT_TRUE(part.valid());
  ASSERT_EQ(::write(stays.passed.get(), ", after", 7), 7);
  auto stand_ins = StandIns::open(fs(), folder_ + "/stand-ins", 1024);
  ASSERT_TRUE(stand_ins.ok()) << stand_ins.status().to_string();
  stand_ins_ = std::move(*stand_ins);
  auto server = UnmountedServer::open(fs(), *stand_ins_, folder_);
  ASSERT_TRUE(server.ok()) << server.status().to_string();
  server_ = std::move(*server);
  EXPECT_EQ(read("stays"), "before, after");
  EXPECT_EQ(read("closed"), "closed");
  ASSERT_EQ(::write(stays.passed.get(), ", on", 4), 4);
  ASSERT_TRUE(stand_ins_->take_all().ok());
  EXPECT_EQ(content("stays"), "before, after, on");
  stays.passed = {};
  gone.passed = {};
  EXPECT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(files_in_stand_ins(""), 0);
}

TEST_F(Unmounted, OneOfASealedFileThatAKilledServerLeftGoes) {
  Said opened = open("sealed", kCreates);
  ASSERT_EQ(::write(opened.passed.get(), "whole", 5), 5);
  const std::string left = only_stand_in();
  UnmountedRequest change = request_for(UnmountedCall::kChange, "sealed");
  change.what = kChangesMode;
  change.mode = 0444;
  ASSERT_EQ(ask(change).answer.error, 0);
  opened.passed = {};
  ASSERT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(open("sealed", O_WRONLY).answer.error, ::geteuid() == 0 ? EPERM : EACCES);
  const io::Descriptor again(::open(left.c_str(), O_CREAT | O_WRONLY, 0600));
  ASSERT_EQ(::write(again.get(), "whole", 5), 5);
  end();
  world_.stop();
  begin();
  ASSERT_TRUE(stand_ins_->take_all().ok());
  EXPECT_EQ(content("sealed"), "whole");
}

TEST_F(Unmounted, ARenameThatReplacesTakesItInBefore) {
  write("old", "old");
  ASSERT_EQ(stand_ins_in_the_end(0), 0u);
  ASSERT_TRUE(fs().drain_all().ok());
  Said opened = open("new", kCreates);
  ASSERT_EQ(::write(opened.passed.get(), "new", 3), 3);
  ASSERT_EQ(call(UnmountedCall::kRename, "new", "old"), 0);
  EXPECT_EQ(content("old"), "new");
  EXPECT_EQ(read("old"), "new");
}

TEST_F(Unmounted, AListHasWhatTheBackingLacks) {
  write("file", "x");
  const Said said = ask(request_for(UnmountedCall::kList, ""));
  ASSERT_EQ(said.answer.error, 0);
  std::string text(1000, '\0');
  const ssize_t got = ::pread(said.passed.get(), text.data(), text.size(), 0);
  ASSERT_GT(got, 0);
  bool found = false;
  for (size_t at = 0; at + sizeof(ListedName) < static_cast<size_t>(got);) {
    ListedName head;
    std::memcpy(&head, text.data() + at, sizeof(head));
    found = found || (text.compare(at + sizeof(head), head.name_bytes, "file") == 0 && head.type == DT_REG);
    at += sizeof(head) + head.name_bytes;
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(call(UnmountedCall::kList, "file"), ENOTDIR);
}

// The test of programs has the kernel's word beside it.
TEST_F(Unmounted, ModesBindWhoDoesNotOverrideThem) {
  UnmountedRequest change = request_for(UnmountedCall::kChange, "file");
  write("file", "x");
  change.what = kChangesMode;
  change.mode = 0;
  ASSERT_EQ(ask(change).answer.error, 0);
  EXPECT_EQ(open("file", O_RDONLY).answer.error, ::geteuid() == 0 ? 0 : EACCES);
  UnmountedRequest runs = request_for(UnmountedCall::kLook, "file");
  runs.mode = X_OK;
  EXPECT_EQ(ask(runs).answer.error, EACCES);
}

TEST_F(Unmounted, AFileThatIsOverBecomesTheNextOne) {
  write("one", "content");
  ASSERT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(files_in_stand_ins("spare-"), 1);
  Said next = open("two", O_WRONLY | O_CREAT | O_EXCL);
  ASSERT_EQ(next.answer.error, 0);
  EXPECT_EQ(files_in_stand_ins("spare-"), 0);
  EXPECT_EQ(read("two"), "");
  EXPECT_EQ(stat("two").size, 0u);
  const int64_t made = stat("two").modified_ns;
  next.passed = {};
  ASSERT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(stat("two").modified_ns, made);  // nobody has written
  EXPECT_EQ(read("two"), "");
  EXPECT_EQ(read("one"), "content");
  Said cuts = open("one", O_WRONLY | O_TRUNC);  // a spare again
  ASSERT_EQ(cuts.answer.error, 0);
  cuts.passed = {};
  ASSERT_EQ(stand_ins_in_the_end(0), 0u);
  EXPECT_EQ(content("one"), "");
}

// A server was killed between the two steps.
TEST_F(Unmounted, OneThatWasJustGivenUpIsNotTaken) {
  write("file", "content");
  ASSERT_EQ(stand_ins_in_the_end(0), 0u);
  end();
  world_.stop();
  const io::Descriptor spare(::open((folder_ + "/stand-ins/spare-0").c_str(), O_WRONLY | O_CREAT, 0600));
  ASSERT_EQ(::write(spare.get(), "content", 7), 7);
  begin();
  EXPECT_EQ(files_in_stand_ins("spare-"), 0);
  EXPECT_EQ(read("file"), "content");
  write("next", "");
  EXPECT_EQ(read("next"), "");
}

TEST_F(Unmounted, AfterARestartOfTheMachineTheTreeHasWhatWasSynced) {
  Said opened = open("file", kCreates);
  ASSERT_EQ(::write(opened.passed.get(), "synced", 6), 6);
  ASSERT_EQ(call(UnmountedCall::kSync, "file"), 0);
  for (const bool restarts : {false, true}) {
    ASSERT_EQ(::pwrite(opened.passed.get(), restarts ? "LOST" : "KEPT", 4, 0), 4);
    end();
    world_.stop();
    if (restarts) {
      const io::Descriptor boot(::open((folder_ + "/stand-ins/boot").c_str(), O_WRONLY | O_TRUNC));
      ASSERT_EQ(::write(boot.get(), "another", 7), 7);
    }
    begin();
    ASSERT_TRUE(stand_ins_->take_all().ok());
    EXPECT_EQ(content("file"), "KEPTed");
  }
}

TEST_F(Unmounted, PartsAreDurableBeforeTheWhole) {
  Said opened = open("file", O_RDWR | O_CREAT | O_SYNC);
  ASSERT_EQ(opened.answer.error, 0);
  ASSERT_EQ(::pwrite(opened.passed.get(), "0123456789", 10, 0), 10);
  UnmountedRequest part = request_for(UnmountedCall::kSync, "file");
  part.offset = 4;
  part.size = 3;
  ASSERT_EQ(ask(part).answer.error, 0);
  EXPECT_EQ(content("file"), std::string(4, '\0') + "456");
  part.flags = O_APPEND;
  part.size = 1;
  ASSERT_EQ(ask(part).answer.error, 0);
  EXPECT_EQ(content("file"), std::string(4, '\0') + "456789");
  EXPECT_TRUE(is_on_backing("file"));
  ASSERT_EQ(::ftruncate(opened.passed.get(), 2), 0);
  ASSERT_EQ(ask(part).answer.error, 0);
  EXPECT_EQ(content("file"), "01");
  part.offset = part.size = ~uint64_t{0};
  part.flags = 0;
  EXPECT_EQ(ask(part).answer.error, 0);
  ASSERT_EQ(call(UnmountedCall::kSync, "file"), 0);
  EXPECT_EQ(content("file"), "01");
}

TEST_F(Unmounted, SealsWaitForWhoHasItOpen) {
  Said opened = open("file", kCreates);
  ASSERT_EQ(::write(opened.passed.get(), "whole", 5), 5);
  EXPECT_EQ(call(UnmountedCall::kSeal, "file"), EBUSY);
  ASSERT_EQ(::pwrite(opened.passed.get(), "W", 1, 0), 1);
  opened.passed = {};
  EXPECT_EQ(call(UnmountedCall::kSeal, "file"), 0);
  EXPECT_EQ(call(UnmountedCall::kSeal, "file"), 0);
  EXPECT_EQ(open("file", O_WRONLY).answer.error, ::geteuid() == 0 ? EPERM : EACCES);
  EXPECT_EQ(read("file"), "Whole");
  EXPECT_EQ(call(UnmountedCall::kSeal, ""), EISDIR);
}

TEST_F(Unmounted, MakersSayTheirUmask) {
  UnmountedRequest makes = request_for(UnmountedCall::kOpen, "file");
  makes.flags = kCreates;
  makes.mode = 0666;
  makes.umask = 027;
  ASSERT_EQ(ask(makes).answer.error, 0);
  EXPECT_EQ(stat("file").mode & 07777u, 0640u);
}

// Whatever comes, the server goes on, and files that nobody named stay as they are.
TEST_F(Unmounted, AProgramMaySendAnything) {
  write("file", "x");
  Rng rng(7);
  int answered = 0;
  for (int i = 0; i < 3'000; ++i) {
    UnmountedRequest request = request_for(static_cast<UnmountedCall>(rng.below(22)), "", "");
    auto* const bytes = reinterpret_cast<unsigned char*>(&request);
    const bool keeps_head = rng.below(4) != 0;
    for (size_t at = keeps_head ? offsetof(UnmountedRequest, stand_in) : 0; at < kUnmountedHeadBytes; ++at)
      bytes[at] = static_cast<unsigned char>(rng.below(4) == 0 ? rng.below(256) : 0);
    if (keeps_head) {
      request.path_bytes = static_cast<uint32_t>(rng.below(40));
      request.other_bytes = static_cast<uint32_t>(rng.below(3));
    }
    for (size_t at = 0; at < 64; ++at) request.paths[at] = static_cast<char>(rng.below(256));
    if (request.call == UnmountedCall::kSyncAll && rng.below(20) != 0) continue;
    const size_t whole = kUnmountedHeadBytes + request.path_bytes + request.other_bytes;
    const size_t size = keeps_head && rng.below(8) != 0 ? whole : 1 + rng.below(sizeof(request));
    Said said;
    if (ask_bytes(bytes, std::min(size, sizeof(request)), &said)) ++answered;
  }
  EXPECT_GT(answered, 1'000);
  EXPECT_EQ(read("file"), "x");
  EXPECT_FALSE(std::filesystem::exists(world_.backing() + "/../file"));
}

}  // namespace
}  // namespace swale::fs
