// The messages of a chat.
#pragma once

#include <vector>

#include "tools/openai/openai_fields.h"
#include "tools/prompt.h"

namespace backplane::tools::openai {

// "messages" of a body: at least one, each with a role and text, given as a string or as a list of text parts, which
// are joined by line ends as vLLM and llama.cpp join them. The role "developer" is taken for "system". Throws
// ApiError{400} naming what is wrong, and for tools, images and the like, which we don't have.
std::vector<ChatMessage> read_messages(const Fields& body);

}  // namespace backplane::tools::openai
