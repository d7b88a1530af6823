/* Its manifest says "renamed". */
#include "fake_plugin.h"

bp_status backplane_plugin_v1(const bp_host* host, bp_context context, bp_tables* tables) {
  (void)context;
  fake_fill(host, tables, "original");
  return BP_OK;
}
