// LightRig: a job of one node, and a server at which programs come that open files past the kernel; beside it
// a plain directory, where the kernel says what is right.
// Threads: one, but for create() and open().
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "fs/job/light_server.h"
#include "fs/job/testing/job_world.h"
#include "fs/log/attach_format.h"
#include "fs/log/light_caller.h"
#include "fs/log/light_format.h"
#include "fs/log/map_format.h"
#include "io/descriptor.h"
#include "io/unix_address.h"

namespace swale::fs::light_test {

inline constexpr int kEndTriesMax = 6'000;  // looks, 10 ms apart
inline constexpr int kCreates = O_WRONLY | O_CREAT | O_EXCL;

// One that modes bind, whoever runs the test.
inline Credentials bound() { return {::geteuid(), ::getegid(), ::getpid(), {}, false}; }

// A program that asks by its page, as libswale_preload does.
class PagedProgram {
 public:
  explicit PagedProgram(io::Descriptor connected) : socket_(std::move(connected)) {
    LightWelcome said;
    EXPECT_EQ(hear_welcome(&::syscall, socket_.get(), &said, &bell_, &page_), 0);
    EXPECT_NE(page_, nullptr);
  }
  ~PagedProgram() {
    if (page_ != nullptr) ::munmap(page_, kLightPageBytes);
    if (bell_ >= 0) ::close(bell_);
  }
  PagedProgram(const PagedProgram&) = delete;
  PagedProgram& operator=(const PagedProgram&) = delete;

  LightPage& page() { return *page_; }
  LightWay way() const { return {&::syscall, socket_.get(), bell_, page_}; }
  void ring() const {
    const uint64_t one = 1;
    EXPECT_EQ(::write(bell_, &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
  }
  // The errno, and what the program would do without an answer.
  int ask(const LightRequest& request, LightAnswer* answer, void* argument = nullptr, size_t size = 0) {
    return ask_light(way(), request, answer, argument, size, &is_lost);
  }
  void close(uint32_t handle) { close_light(way(), handle); }

  bool is_lost = false;

 private:
  const io::Descriptor socket_;
  int bell_ = -1;
  LightPage* page_ = nullptr;
};

class LightRig : public testing::Test {
 protected:
  void start() {
    world_.start();
    folder_ = std::filesystem::path(world_.options().logs.memory_directory).parent_path();
    auto server = LightServer::open(fs(), folder_, "/the/top");
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(*server);
  }
  void TearDown() override { server_.reset(); }
  JobFs& fs() { return world_.fs(); }
  const Caller caller_ = Caller::this_thread();

  // A directory of the tree, which the kernel knows for as long as the test runs; and the plain one.
  void make_directory(const std::string& name, mode_t mode) {
    Entry entry;
    ASSERT_EQ(fs().make_directory(*fs().root(), name.c_str(), 0755, caller_, &entry), 0);
    struct stat found;
    ASSERT_EQ(fs().change(*entry.node, {.mode = mode}, caller_, &found), 0);
    fs().forget(entry.node, 1);
    const std::string plain = world_.plain() + "/" + name;
    ASSERT_EQ(::mkdir(plain.c_str(), 0755), 0);
    ASSERT_EQ(::chmod(plain.c_str(), mode), 0);
  }
  void make_file(const std::string& name, mode_t mode = 0644) {
    Entry entry;
    std::unique_ptr<OpenFile> file;
    ASSERT_EQ(fs().create(*fs().root(), name.c_str(), mode, O_WRONLY | O_CREAT, caller_, &entry, &file), 0);
    fs().release(std::move(file));
    fs().forget(entry.node, 1);
    const io::Descriptor plain(::open((world_.plain() + "/" + name).c_str(), O_WRONLY | O_CREAT, mode));
    ASSERT_TRUE(plain.valid());
  }
  // As the kernel opens it.
  std::unique_ptr<OpenFile> open_by_kernel(const std::string& name, int flags, Node** node) {
    Entry entry;
    std::unique_ptr<OpenFile> file;
    EXPECT_EQ(fs().lookup(*fs().root(), name.c_str(), &entry), 0);
    EXPECT_EQ(fs().open_file(*entry.node, flags, caller_, &file), 0);
    *node = entry.node;
    return file;
  }
  void close_by_kernel(std::unique_ptr<OpenFile> file, Node* node) {
    fs().release(std::move(file));
    fs().forget(node, 1);
  }
  std::string content(const std::string& name) {
    std::string bytes(100, '\0');
    size_t got = 0;
    Node* node = nullptr;
    auto file = open_by_kernel(name, O_RDONLY, &node);
    EXPECT_EQ(fs().read(*file, 0, bytes, &got), 0);
    close_by_kernel(std::move(file), node);
    return bytes.substr(0, got);
  }
  void make_link(const std::string& name, const std::string& target) {
    Entry entry;
    ASSERT_EQ(fs().make_symlink(*fs().root(), name.c_str(), target.c_str(), caller_, &entry), 0);
    fs().forget(entry.node, 1);
    ASSERT_EQ(::symlink(target.c_str(), (world_.plain() + "/" + name).c_str()), 0);
  }
  // 0: it was opened, and is closed.
  int open(const std::string& path, int flags, const Credentials& who, uint64_t directory = 1) {
    JobFs::LightOpen wanted{directory, path, flags, 0644, 022, &who};
    fs().serve_light({}, {&wanted, 1});
    if (wanted.failed == 0) fs().serve_light({&wanted.made, 1}, {});
    return wanted.failed;
  }
  int create(const std::string& path, const Credentials& who, uint64_t directory = 1) {
    return open(path, kCreates, who, directory);
  }
  // The same in the plain directory, by a process that modes bind: the kernel's word.
  int open_there(const std::string& path, int flags) const {
    return by_bound([&] {
      return ::open((world_.plain() + "/" + path).c_str(), flags | O_CLOEXEC, 0644) >= 0 ? 0 : errno;
    });
  }
  bool may_there(const std::string& path, int access) const {
    return by_bound([&] { return ::access((world_.plain() + "/" + path).c_str(), access); }) == 0;
  }

  io::Descriptor connect() {
    io::Descriptor folder(::open(folder_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    io::Descriptor made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    const sockaddr_un address = io::unix_address(folder, kLightSocket);
    EXPECT_EQ(::connect(made.get(), io::general(address), sizeof(address)), 0);
    return made;
  }
  // It asks by the socket.
  io::Descriptor meet() {
    io::Descriptor made = connect();
    LightWelcome said;
    EXPECT_EQ(::recv(made.get(), &said, sizeof(said), 0), static_cast<ssize_t>(sizeof(said)));
    EXPECT_EQ(said.error, 0);
    EXPECT_STREQ(said.top, "/the/top");
    return made;
  }
  static LightRequest request_for(LightCall call, uint32_t handle = 0, const std::string& path = "") {
    LightRequest request;
    request.call = call;
    request.handle = handle;
    request.directory = 1;
    request.flags = kCreates;
    request.mode = 0644;
    request.path_bytes = static_cast<uint32_t>(path.size());
    path.copy(request.path, path.size());
    return request;
  }
  static void send(const io::Descriptor& to, const LightRequest& request) {
    const bool has_path = request.call == LightCall::kOpen || request.call == LightCall::kLook ||
                          request.call == LightCall::kAsk;
    const size_t bytes = kLightHeadBytes + (has_path ? request.path_bytes : 0);
    EXPECT_EQ(::send(to.get(), &request, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  static LightAnswer ask(const io::Descriptor& to, const LightRequest& request) {
    send(to, request);
    LightAnswer answer;
    answer.error = -1;
    EXPECT_EQ(::recv(to.get(), &answer, sizeof(answer), 0), static_cast<ssize_t>(sizeof(answer)));
    return answer;
  }
  // As an ioctl of the mount. The errno.
  template <class Argument>
  static int ask_tree(const io::Descriptor& to, uint32_t handle, unsigned long command, Argument* argument) {
    LightRequest request = request_for(LightCall::kAsk, handle, std::string(sizeof(*argument), 0));
    request.flags = static_cast<uint32_t>(command);
    std::memcpy(request.path, argument, sizeof(*argument));
    send(to, request);
    LightAnswer answer;
    iovec parts[] = {{&answer, sizeof(answer)}, {argument, sizeof(*argument)}};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    const ssize_t got = ::recvmsg(to.get(), &message, 0);
    const size_t wanted = sizeof(answer) + (answer.error == 0 ? sizeof(*argument) : 0);
    EXPECT_EQ(got, static_cast<ssize_t>(wanted));
    return answer.error;
  }
  uint64_t open_in_the_end(uint64_t wanted) {
    for (int i = 0; i < kEndTriesMax && fs().stats().light_open != wanted; ++i) ::usleep(10'000);
    return fs().stats().light_open;
  }

  template <class Body>
  static int by_bound(const Body& body) {
    const pid_t child = ::fork();
    if (child == 0) {
      __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct none[2] = {};
      ::_exit(::syscall(SYS_capset, &header, none) == 0 ? body() : 255);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
  }

  JobWorld world_;
  std::string folder_;
  std::unique_ptr<LightServer> server_;
};

}  // namespace swale::fs::light_test
