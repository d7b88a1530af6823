// write_model FILE: a small model with a tokenizer, for the example program to run.
#include <cstdio>
#include <fstream>

#include "tests/support/small_chat_model.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::ofstream file(argv[1], std::ios::binary);
  file << backplane::test::small_chat_model();
  return file.good() ? 0 : 1;
}
