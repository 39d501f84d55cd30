#!/usr/bin/env bash
# docs.sh: the reference of include/swale, by doxygen, as build/docs/html/index.html. Anything public that is
# not documented fails it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/step.sh"
cd "$swale_root"
mkdir -p build/docs

# The headers carry plain comments, for people who read headers. For doxygen the first one is about the file,
# a comment that opens a line belongs to what follows, and one after a declaration to what stands before it.
cat > build/docs/filter.sed << 'END'
1s,^/\* ,/** \\file\n * ,
1s,^// ,/// \\file\n/// ,
s,^/\* ----.*,,
s,^( \* +)#include,\1\\#include,
s,^( *)/\* ,\1/** ,
s,^( *)// ,\1/// ,
s,([;\,{]|[0-9]) +/\* ,\1 /**< ,
s,([;\,{]|[0-9]) +// ,\1 ///< ,
END

cat > build/docs/Doxyfile << END
PROJECT_NAME = Swale
PROJECT_NUMBER = "$(sed -n 's/^project(swale VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
INPUT = include/swale
FILE_PATTERNS = *.h *.hpp
STRIP_FROM_PATH = include
STRIP_FROM_INC_PATH = include
OUTPUT_DIRECTORY = build/docs
INPUT_FILTER = "sed -E -f build/docs/filter.sed"
JAVADOC_AUTOBRIEF = YES
TYPEDEF_HIDES_STRUCT = YES
OPTIMIZE_OUTPUT_FOR_C = YES
DISTRIBUTE_GROUP_DOC = YES
ENABLE_PREPROCESSING = YES
MACRO_EXPANSION = NO
PREDEFINED = __cplusplus=202002L ARROW_C_DATA_INTERFACE ARROW_C_STREAM_INTERFACE
EXCLUDE_SYMBOLS = SWALE_*_H_ SWALE_*_HPP_ swale::detail*
GENERATE_LATEX = NO
HAVE_DOT = NO
QUIET = YES
WARN_IF_UNDOCUMENTED = YES
WARN_NO_PARAMDOC = NO
WARN_AS_ERROR = FAIL_ON_WARNINGS
END
step docs "Building the reference of the public headers" doxygen build/docs/Doxyfile
say "build/docs/html/index.html"
