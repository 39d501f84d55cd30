// PlainText: text in a buffer of the caller's, without locale, locks or memory, for signal handlers. What
// does not fit is cut off. Threads: one at a time. Needs: nothing but the compiler.
#pragma once

#include <cstddef>
#include <cstdint>

namespace swale::fs {

class PlainText {
 public:
  PlainText(char* out, size_t space) : at_(out), end_(out + space - 1) { *at_ = '\0'; }
  PlainText& operator<<(const char* text) {
    while (*text != '\0' && at_ < end_) *at_++ = *text++;
    *at_ = '\0';
    return *this;
  }
  PlainText& operator<<(uint64_t number) {
    char digits[21];
    char* first = digits + sizeof(digits) - 1;
    *first = '\0';
    do {
      *--first = static_cast<char>('0' + number % 10);
      number /= 10;
    } while (number != 0);
    return *this << first;
  }
  PlainText& hex(uint64_t number) {
    char digits[17] = {};
    for (int i = 15; i >= 0; --i, number >>= 4) digits[i] = "0123456789abcdef"[number & 15];
    return *this << digits;
  }

 private:
  char* at_;
  char* end_;
};

}  // namespace swale::fs
