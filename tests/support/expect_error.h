// EXPECT_ERROR(statement, code, part): the statement throws an Error of that code whose text holds `part`.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "core/base/error.h"

#define EXPECT_ERROR(statement, wanted_code, part)                                        \
  try {                                                                                   \
    statement;                                                                            \
    ADD_FAILURE() << "no error where one about '" << (part) << "' was wanted";            \
  } catch (const backplane::Error& caught) {                                              \
    EXPECT_EQ(caught.code(), (wanted_code)) << caught.what();                             \
    EXPECT_NE(std::string(caught.what()).find(part), std::string::npos) << caught.what(); \
  }
