#include "stage/manifest.h"

#include <gtest/gtest.h>

namespace swale::stage {
namespace {

std::vector<ManifestLine> parsed(Bytes text) {
  auto lines = parse_manifest(text, "m");
  EXPECT_TRUE(lines.ok()) << lines.status().to_string();
  return lines.ok() ? *lines : std::vector<ManifestLine>();
}

TEST(Manifest, ReadsWhatUnifyFsWrites) {
  const auto lines = parsed(
      "# a comment\n\n/scratch/in.dat /unifyfs/in.dat\n"
      "  \"/scratch/a b\"\t\"/unifyfs/a b\"   # why\r\n/x /y crc32c:E3069283");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].source, "/scratch/in.dat");
  EXPECT_EQ(lines[0].destination, "/unifyfs/in.dat");
  EXPECT_FALSE(lines[0].crc);
  EXPECT_EQ(lines[1].source, "/scratch/a b");
  EXPECT_EQ(lines[1].destination, "/unifyfs/a b");
  EXPECT_EQ(lines[1].line, 4u);
  EXPECT_EQ(lines[2].crc, 0xe3069283u);
}

TEST(Manifest, AnyNameComesBackAsItWasWritten) {
  const std::string names[] = {"plain", "with blank", "quote\"and\\backslash", "line\nfeed\r\ttab",
                               "#hash", "\x01\x7f",   "\xc3\xa9t\xc3\xa9",     "\xff\xfe"};
  std::string text;
  for (const std::string& name : names) text += manifest_line(name, "to " + name, 7);
  const auto lines = parsed(text);
  ASSERT_EQ(lines.size(), std::size(names));
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].source, names[i]);
    EXPECT_EQ(lines[i].destination, "to " + names[i]);
    EXPECT_EQ(lines[i].crc, 7u);
  }
}

TEST(Manifest, NamesTheLineThatIsWrong) {
  using namespace std::string_literals;
  const std::pair<std::string, std::string> cases[] = {
      {"a b\nonly-one\n", "m: line 2: expected SOURCE DESTINATION"},
      {"a b c\n", "expected crc32c:"},
      {"a b crc32c:123\n", "expected crc32c:"},
      {"a b crc32c:0000000g\n", "expected crc32c:"},
      {"a b crc32c:00000000 d\n", "expected the end"},
      {"\"a b\n", "no double quote that ends"},
      {"\"a\"b c\n", "no blank after"},
      {"a\"b c\n", "a double quote inside"},
      {"\"a\\q\" c\n", "an escape other than"},
      {"\"a\\x0\" c\n", "an escape other than"},
      {"\"a\\x00\" c\n", "an escape other than"},
      {"\"\" c\n", "an empty path"},
      {"a\0b c\n"s, "a zero byte"},
  };
  for (const auto& [text, expected] : cases) {
    const Status status = parse_manifest(text, "m").status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_NE(status.message().find(expected), std::string_view::npos) << status.to_string();
  }
}

}  // namespace
}  // namespace swale::stage
