#include "imd/format/messages.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace swale::imd::messages_test {
namespace {

TEST(Messages, AllKindsComeBackAsTheyWere) {
  const DurableMessage durable{EpochNumber(3), 17, -5, 2.25, {1, 2, 3}, {4, 5, 6}};
  const Result<Message> decoded = decode_message(encode(durable), 1);
  ASSERT_TRUE(decoded.ok());
  const auto& back = std::get<DurableMessage>(*decoded);
  EXPECT_EQ(back.epoch, 3u);
  EXPECT_EQ(back.step_rank, 17);
  EXPECT_EQ(back.step, -5);
  EXPECT_EQ(back.time, 2.25);
  EXPECT_EQ(back.appended, durable.appended);
  EXPECT_EQ(back.indexed, durable.indexed);

  EXPECT_EQ(std::get<EndMessage>(*decode_message(encode(EndMessage{EpochNumber(9), 123}), 1)).records, 123u);
  EXPECT_EQ(std::get<CommittedMessage>(*decode_message(encode(CommittedMessage{EpochNumber(9)}), 1)).epoch,
            9u);
  EXPECT_TRUE(std::holds_alternative<CloseMessage>(*decode_message(encode(CloseMessage{}), 1)));
}

TEST(Messages, EveryTruncationAndAnyTrailingByteIsRefused) {
  const std::vector<Message> messages = {EndMessage{EpochNumber(1), 2}, DurableMessage{},
                                         CommittedMessage{EpochNumber(1)}, CloseMessage{}};
  for (const Message& message : messages) {
    const std::string bytes = encode(message);
    for (size_t length = 0; length < bytes.size(); ++length) {
      const Result<Message> decoded = decode_message(Bytes(bytes).substr(0, length), 5);
      ASSERT_FALSE(decoded.ok()) << length;
      EXPECT_NE(decoded.status().message().find("rank 5"), std::string::npos);
    }
    EXPECT_FALSE(decode_message(bytes + "x", 5).ok());
  }
}

TEST(Messages, RandomBytesNeverCrashTheDecoder) {
  Rng rng(1);
  size_t accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(rng.below(80), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.below(i % 2 == 0 ? 256 : 8));
    accepted += decode_message(bytes, 0).ok() ? 1 : 0;
  }
  EXPECT_LT(accepted, 20'000u);
}

}  // namespace
}  // namespace swale::imd::messages_test
