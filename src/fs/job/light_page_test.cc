// Requests for files past the kernel that come by pages: what a program may write there, and that nobody
// waits for a program which stops or dies.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <iterator>
#include <thread>

#include "base/rng.h"
#include "fs/job/testing/light_rig.h"

namespace swale::fs::light_test {
namespace {

constexpr int kMany = 300;

class LightPageTest : public LightRig {
 protected:
  // 0, or the errno; it is open afterwards.
  static int open_by_page(PagedProgram& program, const std::string& path, uint32_t* handle) {
    LightAnswer answer;
    const int failed = program.ask(request_for(LightCall::kOpen, 0, path), &answer);
    *handle = answer.handle;
    return failed;
  }
  // Creates that are closed again; how many have failed.
  static int creates_that_fail(PagedProgram& program, const std::string& name, int count) {
    int failed = 0;
    for (int i = 0; i < count; ++i) {
      uint32_t handle = 0;
      failed += open_by_page(program, fmt::format("{}{}", name, i), &handle) != 0;
      program.close(handle);
    }
    return failed;
  }
  // A child that has made a file and has done `then`, and goes on with `on` until it is killed.
  template <class Then, class On>
  pid_t start_child(const std::string& name, const Then& then, const On& on) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      PagedProgram program(connect());
      if (creates_that_fail(program, name, 1) != 0) ::_exit(1);
      then(program);
      if (::write(ends[1], "x", 1) != 1) ::_exit(1);
      for (int i = 0;; ++i) on(program, i);
    }
    char byte = 0;
    EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
    ::close(ends[1]);
    return child;
  }
  pid_t start_storm(const std::string& name) {
    return start_child(
        name, [](PagedProgram&) {},
        [&](PagedProgram& program, int i) {
          if (creates_that_fail(program, fmt::format("{}-{}-", name, i), 1) != 0) ::_exit(1);
        });
  }
  static void end(pid_t child) {
    int status = 0;
    ::kill(child, SIGKILL);
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status));
  }
};

TEST_F(LightPageTest, APageAnswersAsTheSocketDoes) {
  start();
  PagedProgram paged(connect());
  const io::Descriptor plain = meet();
  uint32_t handle = 0;
  ASSERT_EQ(open_by_page(paged, "file", &handle), 0);
  EXPECT_EQ(open_by_page(paged, "file", &handle), EEXIST);
  EXPECT_EQ(ask(plain, request_for(LightCall::kOpen, 0, "file")).error, EEXIST);
  for (const LightRequest& request :
       {request_for(LightCall::kLook, 0, "file"), request_for(LightCall::kLook, 0, "missing"),
        request_for(LightCall::kStat, 77), request_for(LightCall::kReopen, 77)}) {
    LightAnswer by_page;
    const int failed = paged.ask(request, &by_page);
    const LightAnswer by_socket = ask(plain, request);
    EXPECT_EQ(failed, by_socket.error);
    EXPECT_EQ(std::memcmp(&by_page.stat, &by_socket.stat, sizeof(by_page.stat)), 0);
  }
  LightRequest asked = request_for(LightCall::kAsk, 1, std::string(sizeof(GrantRequest), 0));
  asked.flags = static_cast<uint32_t>(kAskShortCut);
  GrantRequest granted;
  LightAnswer answer;
  EXPECT_EQ(paged.ask(asked, &answer, &granted, sizeof(granted)), 0);
  EXPECT_FALSE(paged.is_lost);
}

// More than the page has space for, while the server sleeps, and while it does not.
TEST_F(LightPageTest, AllThatIsClosedIsClosed) {
  start();
  PagedProgram program(connect());
  std::vector<uint32_t> handles(kMany);
  for (int i = 0; i < kMany; ++i)
    EXPECT_EQ(open_by_page(program, fmt::format("file{}", i), &handles[static_cast<size_t>(i)]), 0);
  EXPECT_EQ(fs().stats().light_open, static_cast<uint64_t>(kMany));
  for (const uint32_t each : handles) program.close(each);
  EXPECT_EQ(open_in_the_end(0), 0u);
  program.close(1);  // of nothing
  EXPECT_EQ(creates_that_fail(program, "again", kMany), 0);
  EXPECT_EQ(open_in_the_end(0), 0u);
}

TEST_F(LightPageTest, ProgramsAskAllAtOnceAndOneByOne) {
  start();
  std::vector<std::thread> threads;
  std::atomic<int> failed = 0;
  for (int i = 0; i < 6; ++i)
    threads.emplace_back([this, i, &failed] {
      PagedProgram program(connect());
      failed += creates_that_fail(program, fmt::format("of{}-", i), kMany);
      for (int pause = 0; pause < 30; ++pause) {  // the server sleeps meanwhile
        ::usleep(500);
        failed += creates_that_fail(program, fmt::format("late{}-{}-", i, pause), 1);
      }
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(open_in_the_end(0), 0u);
}

// Any bytes, at any time: the server answers, or ends the connection, and serves others on.
TEST_F(LightPageTest, AProgramMayWriteAnythingIntoItsPage) {
  start();
  PagedProgram other(connect());
  Rng rng(1);
  int failed = 0, ended = 0;
  for (int i = 0; i < kMany; ++i) {
    PagedProgram program(connect());
    LightPage& page = program.page();
    LightRequest request =
        request_for(static_cast<LightCall>(rng.below(8)), static_cast<uint32_t>(rng.below(3)),
                    std::string(rng.below(kLightPathMax), 'p'));
    if (rng.below(4) == 0) request.path_bytes = static_cast<uint32_t>(rng.below(1ull << 32));
    std::memcpy(&page.request, &request, sizeof(request));
    const bool whole = rng.below(2) == 0;
    page.request_bytes = static_cast<uint32_t>(whole ? kLightHeadBytes + request.path_bytes
                                                     : rng.below(rng.below(2) == 0 ? 2048 : 1ull << 32));
    for (auto& each : page.closes) each = static_cast<uint32_t>(rng.below(1ull << 32));
    page.closed = static_cast<uint32_t>(rng.below(1ull << 32));
    page.listens = page.waits = static_cast<uint32_t>(rng.below(3));
    page.answered = page.answer_bytes = static_cast<uint32_t>(rng.below(1ull << 32));
    page.asked = static_cast<uint32_t>(rng.below(1ull << 32));
    program.ring();
    failed += creates_that_fail(other, fmt::format("other{}-", i), 1);
    char byte = 0;
    ended += ::recv(program.way().socket, &byte, 1, MSG_DONTWAIT) == 0;
  }
  EXPECT_EQ(failed, 0);
  EXPECT_GT(ended, 0);
  EXPECT_EQ(open_in_the_end(0), 0u);
}

// What it says changes while the server looks.
TEST_F(LightPageTest, ARequestThatChangesWhileItIsReadHarmsNobody) {
  start();
  PagedProgram other(connect());
  std::atomic<bool> over = false;
  std::thread liar([this, &over] {
    while (!over) {
      PagedProgram program(connect());
      LightPage& page = program.page();
      const LightRequest good = request_for(LightCall::kLook, 0, "file"), bad = [] {
        LightRequest made = request_for(LightCall::kOpen, 0, std::string(kLightPathMax, 'x'));
        made.path_bytes = ~uint32_t{0};
        return made;
      }();
      std::memcpy(&page.request, &good, sizeof(good));
      for (int i = 0; i < 100; ++i) {
        page.request_bytes = kLightHeadBytes + good.path_bytes;
        ++page.asked;
        program.ring();
        for (int turn = 0; turn < 50; ++turn) {
          std::memcpy(&page.request, turn % 2 == 0 ? &bad : &good, sizeof(good));
          page.request_bytes = turn % 2 == 0 ? ~uint32_t{0} : kLightHeadBytes + good.path_bytes;
        }
      }
    }
  });
  EXPECT_EQ(creates_that_fail(other, "true", 3 * kMany), 0);
  over = true;
  liar.join();
  EXPECT_EQ(open_in_the_end(0), 0u);
}

TEST_F(LightPageTest, AProgramThatStopsHoldsUpNobody) {
  start();
  PagedProgram other(connect());
  std::vector<pid_t> stopped;
  for (int i = 0; i < 6; ++i) {
    stopped.push_back(start_storm(fmt::format("stopped{}", i)));
    EXPECT_EQ(creates_that_fail(other, fmt::format("beside{}-", i), i), 0);
    EXPECT_EQ(::kill(stopped.back(), SIGSTOP), 0);
  }
  EXPECT_EQ(creates_that_fail(other, "after", kMany), 0);
  for (const pid_t each : stopped) end(each);
  EXPECT_EQ(open_in_the_end(0), 0u);
}

TEST_F(LightPageTest, AProgramThatIsKilledLeavesNothingOpen) {
  start();
  PagedProgram other(connect());
  for (int i = 0; i < 30; ++i) {
    const pid_t child = start_storm(fmt::format("killed{}", i));
    EXPECT_EQ(creates_that_fail(other, fmt::format("beside{}-", i), i), 0);
    end(child);
  }
  EXPECT_EQ(creates_that_fail(other, "after", kMany), 0);
  EXPECT_EQ(open_in_the_end(0), 0u);
}

// It has written the request, and has not rung: nothing may come of it when others know that it is over.
TEST_F(LightPageTest, WhatAKilledProgramHasNotSentIsNotDone) {
  start();
  PagedProgram other(connect());
  int ghosts = 0;
  for (int i = 0; i < 30; ++i) {
    const LightRequest request = request_for(LightCall::kOpen, 0, fmt::format("ghost{}", i));
    const auto ask_half = [&](PagedProgram& program) {
      for (int quiet_ms = 0; quiet_ms < 50; ++quiet_ms) {  // the server sleeps by then
        ::usleep(1'000);
        LightPage& page = program.page();
        const bool closing = std::any_of(std::begin(page.closes), std::end(page.closes),
                                         [](const auto& each) { return each.load() != 0; });
        if (closing || page.listens != 0) quiet_ms = 0;
      }
      std::memcpy(&program.page().request, &request, sizeof(request));
      program.page().request_bytes = static_cast<uint32_t>(kLightHeadBytes + request.path_bytes);
      ++program.page().asked;
    };
    end(start_child(fmt::format("first{}", i), ask_half, [](PagedProgram&, int) { ::pause(); }));
    EXPECT_EQ(creates_that_fail(other, fmt::format("beside{}-", i), 2), 0);
    LightAnswer answer;
    ghosts += other.ask(request_for(LightCall::kLook, 0, fmt::format("ghost{}", i)), &answer) == 0;
  }
  EXPECT_EQ(ghosts, 0);
  EXPECT_EQ(open_in_the_end(0), 0u);
}

TEST_F(LightPageTest, AServerThatEndsIsNoticed) {
  start();
  PagedProgram program(connect());
  uint32_t handle = 0;
  EXPECT_EQ(open_by_page(program, "file", &handle), 0);
  server_.reset();
  EXPECT_EQ(open_by_page(program, "other", &handle), ENOTCONN);
  EXPECT_TRUE(program.is_lost);
}

TEST_F(LightPageTest, APageCannotBeShortened) {
  start();
  io::Descriptor socket = connect();
  LightWelcome said;
  iovec part = {&said, sizeof(said)};
  alignas(cmsghdr) char control[CMSG_SPACE(kLightDescriptors * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ASSERT_EQ(::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC), static_cast<ssize_t>(sizeof(said)));
  ASSERT_NE(CMSG_FIRSTHDR(&message), nullptr);
  int passed[kLightDescriptors];
  std::memcpy(passed, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(passed));
  const io::Descriptor memory(passed[0]), bell(passed[1]);
  for (const off_t bytes : {0, 1, 8192}) EXPECT_NE(::ftruncate(memory.get(), bytes), 0);
}

}  // namespace
}  // namespace swale::fs::light_test
