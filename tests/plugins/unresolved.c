/* Needs a library that isn't there. */
#include "fake_plugin.h"

void function_of_an_absent_library(void);

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  function_of_an_absent_library();
  fake_fill(host, tables, "unresolved");
  return BP_OK;
}
