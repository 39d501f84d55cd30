/* What the tests of the C interface check with. Each test program includes it once. */
#ifndef SWALE_TESTS_API_CHECKS_H
#define SWALE_TESTS_API_CHECKS_H

#include <stdio.h>
#include <string.h>

#include "swale/swale.h"

static int failures = 0;
static int checks = 0;

static void check(int good, const char* text, const char* file, int line) {
  ++checks;
  if (good) return;
  ++failures;
  fprintf(stderr, "%s:%d: %s\n  last error: %s\n", file, line, text, swale_last_error());
}
#define CHECK(condition) check((condition) != 0, #condition, __FILE__, __LINE__)
#define CHECK_OK(call) CHECK((call) == SWALE_OK)

/* The call fails with this code, and its text has this word. */
static void check_failure(int code, int expected, const char* word, const char* text, const char* file,
                          int line) {
  ++checks;
  if (code == expected && strstr(swale_last_error(), word) != NULL) return;
  ++failures;
  fprintf(stderr, "%s:%d: %s\n  is \"%s\" and should be \"%s\", naming \"%s\"; last error: %s\n", file, line,
          text, swale_code_name(code), swale_code_name(expected), word, swale_last_error());
}
#define CHECK_FAILS(expected, word, call) check_failure((call), (expected), (word), #call, __FILE__, __LINE__)

#endif
