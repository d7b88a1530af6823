/* Says no in its entry point. */
#include "fake_plugin.h"

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  fake_fill(host, tables, "refuses");
  return host->fail(context, BP_INTERNAL, "the moon is in the wrong phase");
}
